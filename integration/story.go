package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// story returns the steps in their order. They show what a vault does; the suite proves it.
func story() []step {
	return []step{
		{"first-hour", "what only a real account can settle: expected and seen", firstHour},
		{"life", "a plan from Create to Delete", life},
		{"crash", "a process dies in the middle of a Create, and another one recovers", crash},
		{"list", "plans of several days, newest first, and searches in them", list},
		{"history", "finished plans of old days are forked, copied, held, catalogued, purged and expired", history},
	}
}

// life takes a plan from Create to Delete, as an engine does.
func life(ctx context.Context, s *stage) error {
	v, plan := s.vault, plantest.Sized(1, 2, 3)
	return s.acts(
		call{"Create", func() error { return v.Create(ctx, plan) }},
		call{"Create again: it exists", func() error { return is(v.Create(ctx, plan), storage.ErrExists) }},
		call{"Update the plan to Running", func() error { plan.State.Status = workflow.Running; return v.UpdatePlan(ctx, plan) }},
		call{"Update each sub-object to Completed, actions with their attempts", func() error { plantest.Finish(plan); return updateParts(ctx, v, plan) }},
		call{"Update the plan to Completed", func() error { return v.UpdatePlan(ctx, plan) }},
		call{"Read", func() error { return reads(ctx, v, plan) }},
		call{"Check", func() error { return sound(ctx, v, 1) }},
		call{"Delete", func() error { return v.Delete(ctx, plan.ID) }},
		call{"Read: not found", func() error { return gone(ctx, v, plan.ID) }},
		call{"Check finds nothing of the plan", func() error { return sound(ctx, v, 0) }},
	)
}

// crash shows one crash: a process dies in the middle of a Create, and another one recovers. The suite tries
// a death at every request of every operation.
func crash(ctx context.Context, s *stage) error {
	v, plan := s.vault, plantest.Sized(1, 2, 3)
	return s.acts(
		call{"Create; the process dies before it sends the plan object", func() error { return s.dieInCreate(ctx, plan) }},
		call{"Another process sees no plan", func() error { return gone(ctx, v, plan.ID) }},
		call{"Create again: the remains are in the way", func() error { return is(v.Create(ctx, plan), storage.ErrConflict) }},
		call{"Recovery, until nothing is recent, removes the remains", func() error {
			done, err := s.recoverAll(ctx, v)
			return reported(err, done[plan.ID].Did != "", done)
		}},
		call{"Check finds nothing of the plan", func() error { return sound(ctx, v, 0) }},
		call{"Create again: the ID is free", func() error { return v.Create(ctx, plan) }},
		call{"Read", func() error { return reads(ctx, v, plan) }},
		call{"Delete", func() error { return v.Delete(ctx, plan.ID) }},
	)
}

var errDied = errors.New("the process died")

// dieInCreate creates a plan in a process of its own, which dies before it sends the plan object. Nobody
// closes its vault.
func (s *stage) dieInCreate(ctx context.Context, plan *workflow.Plan) error {
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	process := emulator.Proxy(s.transport, emulator.Options{}).Transport()
	process.Inject(emulator.On(emulator.PutBlob).Path("-object.json").Do(emulator.Before(func() {
		process.Crash()
		kill(errDied)
	})))
	v, err := s.open(ctx, s.cfg.prefix, settings.Over(process))
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
func (s *stage) recoverAll(ctx context.Context, v *azblob.Vault) (map[uuid.UUID]azblob.RepairedPlan, error) {
	const pause, rounds = shortGrace / 8, 120 // two minutes
	done := map[uuid.UUID]azblob.RepairedPlan{}
	for range rounds {
		r, err := v.Admin().Repair(ctx, azblob.RepairOptions{By: asked})
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

const (
	listedDays = 3
	perDay     = 4
)

// list shows listings and searches.
func list(ctx context.Context, s *stage) error {
	v := s.vault
	var plans, ended []*workflow.Plan // newest first
	final := storage.Filters{ByStatus: []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped}}
	return s.acts(
		call{fmt.Sprintf("Create %d plans on each of %d days, and run every second one", perDay, listedDays), func() (err error) {
			midnight := time.Now().UTC().Truncate(24 * time.Hour)
			for i := range listedDays * perDay {
				p := plantest.Small()
				p.ID = workflow.NewV7At(midnight.AddDate(0, 0, i/perDay-listedDays).Add(time.Duration(i%perDay) * time.Hour))
				plans = append([]*workflow.Plan{p}, plans...)
				err = errors.Join(err, v.Create(ctx, p))
				if i%2 == 1 {
					ended = append([]*workflow.Plan{p}, ended...)
					plantest.Finish(p)
					err = errors.Join(err, updateParts(ctx, v, p), v.UpdatePlan(ctx, p))
				}
			}
			return err
		}},
		call{"List", func() error { return shows(plans)(v.List(ctx, 0)) }},
		call{"List the newest 5", func() error { return shows(plans[:5])(v.List(ctx, 5)) }},
		call{"Search by status", func() error { return shows(ended)(v.Search(ctx, final)) }},
		call{"Count by status", func() error { n, err := v.Count(ctx, final); return reported(err, n == len(ended), n) }},
		call{"Recovery leaves open plans alone", func() error { return v.Recovery(ctx) }},
		call{"Check", func() error { return sound(ctx, v, len(plans)) }},
		call{"Delete all plans", func() error {
			return each(plans, func(p *workflow.Plan) error { return v.Delete(ctx, p.ID) })
		}},
	)
}

// updateParts updates all sub-objects, several at a time as engines do.
func updateParts(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	return each(workflow.Parts(plan), func(o workflow.Object) error { return storage.Update(ctx, v, o) })
}

// each calls a function for several of all at a time, and returns the first error.
func each[T any](all []T, do func(T) error) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, one := range all {
		g.Go(func() error { return do(one) })
	}
	return g.Wait()
}

// is returns nil if err is the wanted error.
func is(err, want error) error {
	switch {
	case errors.Is(err, want):
		return nil
	case err == nil:
		return fmt.Errorf("want the error %q, got none", want)
	}
	return fmt.Errorf("want the error %q, got %w", want, err)
}

// reported returns the error of a call, or one that shows its report if that is not as expected.
func reported(err error, expected bool, report any) error {
	if err == nil && !expected {
		err = fmt.Errorf("it reports %+v", report)
	}
	return err
}

// reads reads a plan and compares it with the expected one.
func reads(ctx context.Context, v *azblob.Vault, want *workflow.Plan) error {
	got, err := v.Read(ctx, want.ID)
	if err != nil {
		return err
	}
	if d := plantest.Diff(want, got); d != "" {
		return fmt.Errorf("the plan that was read differs: %s", d)
	}
	return nil
}

// gone checks that a plan can't be read.
func gone(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
	_, err := v.Read(ctx, id)
	return is(err, storage.ErrNotFound)
}

// shows compares a listing with the expected plans, in their order.
func shows(want []*workflow.Plan) func(iter.Seq[storage.Stream[storage.ListResult]], error) error {
	return func(got iter.Seq[storage.Stream[storage.ListResult]], err error) error {
		listed, err := storage.Collect(got, err)
		same := slices.EqualFunc(listed, want, func(r storage.ListResult, p *workflow.Plan) bool {
			return r.ID == p.ID && r.State.Status == p.State.Status
		})
		return reported(err, same, listed)
	}
}

// sound checks that Check finds a number of plans, and no problem.
func sound(ctx context.Context, v *azblob.Vault, plans int) error {
	r, err := v.Admin().Check(ctx, azblob.CheckOptions{})
	if err == nil && len(r.Problems) > 0 {
		return fmt.Errorf("%s, such as %v", count(len(r.Problems), "problem"), r.Problems[0])
	}
	return reported(err, r.Plans == plans && r.InProgress == 0, r)
}
