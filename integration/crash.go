package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/conformance"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// crash shows one crash: a process dies in the middle of a Create, and another one recovers. The suite tries
// a death at every request of every operation.
func crash(ctx context.Context, s *stage) error {
	plan := plantest.Full()
	v, err := s.open(ctx)
	if err != nil {
		return err
	}
	var died time.Time
	err = s.acts(
		call{"Create; the process dies before it sends the plan object", func() error {
			err := s.dieInCreate(ctx, plan)
			died = time.Now()
			return err
		}},
		call{"Another process sees no plan", func() error {
			return errors.Join(s.gone(ctx, v, plan.ID), s.listed(ctx, v))
		}},
		call{"Recovery leaves alone what is recent", func() error {
			r, err := v.Recover(ctx, azblob.RecoverOptions{})
			if err == nil && r.Recent != 1 && time.Since(died) < shortGrace {
				err = fmt.Errorf("it reports %+v, want one recent plan", r)
			}
			return err
		}},
		call{"Create again: the remains are in the way", func() error {
			return is(s.vault.Create(ctx, plan), storage.ErrConflict)
		}},
		call{"Check finds a plan in progress, and no problem", func() error {
			r, err := v.Check(ctx, azblob.CheckOptions{})
			if err == nil && (len(r.Problems) > 0 || r.InProgress != 1) {
				err = fmt.Errorf("it reports %+v", r)
			}
			return err
		}},
		call{"Recovery, until nothing is recent, removes the remains", func() error {
			done, err := s.recoverAll(ctx, v)
			if did := done[plan.ID].Did; err == nil && did == "" {
				err = errors.New("it does not report the plan")
			}
			return err
		}},
		call{"Nothing of the plan is stored", func() error {
			return errors.Join(s.gone(ctx, v, plan.ID), s.left(ctx, plan.ID, 0))
		}},
		call{"Create again: the ID is free", func() error {
			if err := s.create(ctx, s.vault, plan); err != nil {
				return err
			}
			return s.whole(ctx, v, plan)
		}},
		call{"Check", func() error { return s.sound(ctx, v) }},
		call{"Delete", func() error { return errors.Join(s.remove(ctx, v, plan), s.left(ctx, plan.ID, 0)) }},
	)
	return errors.Join(err, v.Close(ctx))
}

var errDied = errors.New("the process died")

// dieInCreate creates a plan in a process of its own, which dies before it sends the plan object. Nobody
// closes its vault.
func (s *stage) dieInCreate(ctx context.Context, plan *workflow.Plan) error {
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	v, err := s.open(ctx, azblob.WithTransport(&conformance.Mortal{
		Inner: s.transport, When: conformance.BeforeEffect,
		Fatal: func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "-object.json")
		},
		Died: func() { kill(errDied) },
	}))
	if err != nil {
		return err
	}
	err = v.Create(ctx, plan)
	if !errors.Is(context.Cause(ctx), errDied) {
		return fmt.Errorf("the process never came to the plan object, and Create returned %w", is(err, errDied))
	}
	return is(err, storage.ErrUnknown)
}

// recoverAll lets time pass and recovers, until nothing is recent. It returns what was done about each plan.
func (s *stage) recoverAll(ctx context.Context, v *azblob.Vault) (map[uuid.UUID]azblob.RecoveredPlan, error) {
	const pause, rounds = shortGrace / 8, 120 // two minutes
	done := map[uuid.UUID]azblob.RecoveredPlan{}
	for range rounds {
		r, err := v.Recover(ctx, azblob.RecoverOptions{})
		for _, p := range r.Plans {
			done[p.ID] = p
		}
		if err != nil || r.Recent == 0 {
			return done, err
		}
		if err := s.wait(ctx, pause); err != nil {
			return done, err
		}
	}
	return done, fmt.Errorf("something is still recent after %v", rounds*pause)
}
