package memvault

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// AddMember stores the record of a new member.
func (c control) AddMember(ctx context.Context, m storage.Member) (version storage.Version, err error) {
	err = c.call(ctx, "AddMember", new(uuid.UUID), func() error {
		if err := driver.CheckNewMember(m, c.unversioned); err != nil {
			return err
		}
		if _, taken := c.store.members[m.ID]; taken {
			return fmt.Errorf("%w: member %s", storage.ErrExists, m.ID)
		}
		version = c.store.keep(m)
		return nil
	})
	return version, err
}

// RenewMember stores the record again, if it still has the version m.Version.
func (c control) RenewMember(ctx context.Context, m storage.Member) (version storage.Version, err error) {
	err = c.call(ctx, "RenewMember", new(uuid.UUID), func() error {
		if err := driver.CheckRenewedMember(m); err != nil {
			return err
		}
		if err := c.store.has(m.ID, m.Version); err != nil {
			return err
		}
		version = c.store.keep(m)
		return nil
	})
	return version, err
}

// FindMember returns the record of a member.
func (c control) FindMember(ctx context.Context, id uuid.UUID) (m storage.Member, err error) {
	err = c.call(ctx, "FindMember", new(uuid.UUID), func() (err error) {
		m, err = c.store.member(id)
		return err
	})
	return m, err
}

// Roster returns all members, and the requests to stop plans.
func (c control) Roster(ctx context.Context) (roster storage.Roster, err error) {
	err = c.call(ctx, "Roster", new(uuid.UUID), func() error {
		roster.Now, roster.Notes = time.Now().UTC(), c.store.noteNames()
		for _, id := range slices.Backward(slices.SortedFunc(maps.Keys(c.store.members), driver.NewestFirst)) {
			roster.Members = append(roster.Members, c.store.members[id])
		}
		for _, id := range slices.Backward(slices.SortedFunc(maps.Keys(c.store.stops), driver.NewestFirst)) {
			roster.Stops = append(roster.Stops, c.store.stops[id])
		}
		return nil
	})
	return roster, err
}

// RemoveMember removes a record that has this version.
func (c control) RemoveMember(ctx context.Context, id uuid.UUID, version storage.Version) error {
	return c.call(ctx, "RemoveMember", new(uuid.UUID), func() error {
		if err := driver.CheckRecordVersion(version); err != nil {
			return err
		}
		err := c.store.has(id, version)
		if err == nil {
			delete(c.store.members, id)
		}
		return err
	})
}

// AddStop asks the owner of a plan to stop it.
func (c control) AddStop(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error {
	return c.call(ctx, "AddStop", &plan, func() error {
		if err := driver.CheckStop(plan, by); err != nil {
			return err
		}
		if _, requested := c.store.stops[plan]; !requested {
			c.store.stops[plan] = storage.StopRequest{Plan: plan, By: by.By, Why: by.Why, Requested: time.Now().UTC(), Version: c.store.version()}
		}
		return nil
	})
}

// RemoveStop removes a request that has this version.
func (c control) RemoveStop(ctx context.Context, plan uuid.UUID, version storage.Version) error {
	return c.call(ctx, "RemoveStop", &plan, func() error {
		if err := driver.CheckRecordVersion(version); err != nil {
			return err
		}
		stop, requested := c.store.stops[plan]
		if requested && stop.Version != version {
			return fmt.Errorf("%w: version %s is stored, not %s", storage.ErrConflict, stop.Version, version)
		}
		delete(c.store.stops, plan)
		return nil
	})
}

func (s *Store) member(id uuid.UUID) (storage.Member, error) {
	m, found := s.members[id]
	if !found {
		return m, fmt.Errorf("%w: member %s", storage.ErrNotFound, id)
	}
	return m, nil
}

// has returns an error unless a member's record has this version.
func (s *Store) has(id uuid.UUID, version storage.Version) error {
	m, err := s.member(id)
	if err == nil && m.Version != version {
		err = fmt.Errorf("%w: version %s is stored, not %s", storage.ErrConflict, m.Version, version)
	}
	return err
}

// keep stores a record, and returns its new version.
func (s *Store) keep(m storage.Member) (version storage.Version) {
	m.Started, m.LetGo = m.Started.UTC(), slices.Clone(m.LetGo)
	m.Renewed, m.Version = time.Now().UTC(), s.version()
	s.members[m.ID] = m
	return m.Version
}

// version returns a version that nothing else has.
func (s *Store) version() storage.Version {
	s.versions++
	return storage.Version(strconv.Itoa(s.versions))
}
