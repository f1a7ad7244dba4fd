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
func (v *Vault) AddMember(ctx context.Context, m storage.Member) (version storage.Version, err error) {
	err = v.call(ctx, "AddMember", new(uuid.UUID), func() error {
		if err := driver.CheckNewMember(m, v.unversioned); err != nil {
			return err
		}
		if _, taken := v.store.members[m.ID]; taken {
			return fmt.Errorf("%w: member %s", storage.ErrExists, m.ID)
		}
		version = v.store.keep(m)
		return nil
	})
	return version, err
}

// RenewMember stores the record again, if it still has the version m.Version.
func (v *Vault) RenewMember(ctx context.Context, m storage.Member) (version storage.Version, err error) {
	err = v.call(ctx, "RenewMember", new(uuid.UUID), func() error {
		if err := driver.CheckRenewedMember(m); err != nil {
			return err
		}
		if err := v.store.has(m.ID, m.Version); err != nil {
			return err
		}
		version = v.store.keep(m)
		return nil
	})
	return version, err
}

// FindMember returns the record of a member.
func (v *Vault) FindMember(ctx context.Context, id uuid.UUID) (m storage.Member, err error) {
	err = v.call(ctx, "FindMember", new(uuid.UUID), func() (err error) {
		m, err = v.store.member(id)
		return err
	})
	return m, err
}

// Roster returns all members, and the requests to stop plans.
func (v *Vault) Roster(ctx context.Context) (roster storage.Roster, err error) {
	err = v.call(ctx, "Roster", new(uuid.UUID), func() error {
		roster.Now, roster.Notes = time.Now().UTC(), v.store.noteNames()
		for _, id := range slices.Backward(slices.SortedFunc(maps.Keys(v.store.members), driver.NewestFirst)) {
			roster.Members = append(roster.Members, v.store.members[id])
		}
		for _, id := range slices.Backward(slices.SortedFunc(maps.Keys(v.store.stops), driver.NewestFirst)) {
			roster.Stops = append(roster.Stops, v.store.stops[id])
		}
		return nil
	})
	return roster, err
}

// RemoveMember removes a record that has this version.
func (v *Vault) RemoveMember(ctx context.Context, id uuid.UUID, version storage.Version) error {
	return v.call(ctx, "RemoveMember", new(uuid.UUID), func() error {
		if err := driver.CheckRecordVersion(version); err != nil {
			return err
		}
		err := v.store.has(id, version)
		if err == nil {
			delete(v.store.members, id)
		}
		return err
	})
}

// AddStop asks the owner of a plan to stop it.
func (v *Vault) AddStop(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error {
	return v.call(ctx, "AddStop", &plan, func() error {
		if err := driver.CheckStop(plan, by); err != nil {
			return err
		}
		if _, requested := v.store.stops[plan]; !requested {
			v.store.stops[plan] = storage.StopRequest{Plan: plan, By: by.By, Why: by.Why, Requested: time.Now().UTC(), Version: v.store.version()}
		}
		return nil
	})
}

// RemoveStop removes a request that has this version.
func (v *Vault) RemoveStop(ctx context.Context, plan uuid.UUID, version storage.Version) error {
	return v.call(ctx, "RemoveStop", &plan, func() error {
		if err := driver.CheckRecordVersion(version); err != nil {
			return err
		}
		stop, requested := v.store.stops[plan]
		if requested && stop.Version != version {
			return fmt.Errorf("%w: version %s is stored, not %s", storage.ErrConflict, stop.Version, version)
		}
		delete(v.store.stops, plan)
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
