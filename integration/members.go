package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// members shows the records of two processes of a fleet: one judges the other.
func members(ctx context.Context, s *stage) error {
	a, err := s.open(ctx)
	if err != nil {
		return err
	}
	b, err := s.open(ctx)
	if err != nil {
		return errors.Join(err, a.Close(ctx))
	}
	mine := storage.Member{ID: workflow.NewV7(), Name: "хост-1", Started: time.Now(), TTL: 30 * time.Second}
	theirs := storage.Member{ID: workflow.NewV7(), Name: "host-2", Started: time.Now(), TTL: 30 * time.Second}
	plan := workflow.NewV7()
	var roster storage.Roster
	seen := func() (err error) {
		roster, err = a.Roster(ctx)
		return err
	}
	err = s.acts(
		call{"Both join", func() (err error) {
			if mine.Version, err = a.AddMember(ctx, mine); err != nil {
				return err
			}
			theirs.Version, err = b.AddMember(ctx, theirs)
			return err
		}},
		call{"An ID is taken once", func() error {
			_, err := b.AddMember(ctx, storage.Member{ID: mine.ID})
			return is(err, storage.ErrExists)
		}},
		call{"A heartbeat", func() (err error) {
			mine.Version, err = a.RenewMember(ctx, mine)
			return err
		}},
		call{"A stop request, given twice", func() error { return errors.Join(b.RequestStop(ctx, plan), a.RequestStop(ctx, plan)) }},
		call{"The roster shows all of it, by the service's clock", func() error {
			if err := seen(); err != nil {
				return err
			}
			if len(roster.Stops) != 1 || roster.Stops[0].Plan != plan {
				return fmt.Errorf("it has the stop requests %+v", roster.Stops)
			}
			want := map[storage.Member]bool{}
			for _, m := range []storage.Member{mine, theirs} {
				m.Started = m.Started.UTC().Round(0)
				want[m] = true
			}
			for _, m := range roster.Members {
				if age := roster.Now.Sub(m.Renewed); age < 0 || age > time.Minute {
					return fmt.Errorf("member %q is %v old", m.Name, age)
				}
				m.Renewed = time.Time{}
				delete(want, m)
			}
			if len(roster.Members) != 2 || len(want) > 0 {
				return fmt.Errorf("it has the members %+v", roster.Members)
			}
			return nil
		}},
		call{"The second is removed, in the version that was seen", func() error {
			return errors.Join(
				is(a.RemoveMember(ctx, theirs.ID, mine.Version), storage.ErrConflict),
				a.RemoveMember(ctx, theirs.ID, theirs.Version),
			)
		}},
		call{"Its next heartbeat finds no record", func() error {
			_, err := b.RenewMember(ctx, theirs)
			return is(err, storage.ErrNotFound)
		}},
		call{"The first obeys the stop request and leaves", func() error {
			return errors.Join(
				a.RemoveStop(ctx, plan, roster.Stops[0].Version),
				a.RemoveMember(ctx, mine.ID, mine.Version),
				seen(),
			)
		}},
		call{"Nothing of it stays", func() error {
			if len(roster.Members)+len(roster.Stops) > 0 {
				return fmt.Errorf("the roster is %+v", roster)
			}
			return s.sound(ctx, a)
		}},
	)
	return errors.Join(err, a.Close(ctx), b.Close(ctx))
}
