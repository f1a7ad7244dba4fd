package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// shape is a form of plan, and how its life ends.
type shape struct {
	name, about string
	plan        func() *workflow.Plan
	end         workflow.Status
	reason      workflow.FailureReason
}

var shapes = []shape{
	{"small", "one action; the plan fails", plantest.Small, workflow.Failed, workflow.BlockFailed},
	{"full", "every field and every optional sub-object is set", plantest.Full, workflow.Completed, workflow.NoFailure},
	{
		"large", "300 actions, more than one batch of a Delete; the plan is stopped",
		func() *workflow.Plan { return plantest.Sized(1, 10, 30) }, workflow.Stopped, workflow.StopRequested,
	},
}

// story returns the steps in their order. The crash comes before the listings, whose plans stay: each
// Recovery looks at every plan that is not final.
func story() []step {
	steps := []step{
		{"first-hour", "what only a real account can settle: expected and seen", firstHour},
		{"nothing", "an empty vault, which has no container yet", nothing},
	}
	for _, sh := range shapes {
		steps = append(steps, step{"life/" + sh.name, sh.about, func(ctx context.Context, s *stage) error { return life(ctx, s, sh) }})
	}
	return append(
		steps,
		step{"crash", "a process dies in the middle of a Create, and another one recovers", crash},
		step{"history", "finished plans of old days are forked, copied, held, catalogued, purged and expired", history},
		step{"list", "plans of several days, newest first, and searches in them", list},
		step{"check", "Recovery and Check find nothing wrong with what is stored", check},
		step{"delete", "every plan is deleted, and nothing of it stays", deleteAll},
	)
}

func nothing(ctx context.Context, s *stage) error {
	id := workflow.NewV7()
	err := s.acts(
		call{"Read, Exists and Search find no plan", func() error { return s.gone(ctx, id) }},
		call{"Delete: not found", func() error { return is(s.vault.Delete(ctx, id), storage.ErrNotFound) }},
		call{"List is empty", func() error { return s.listed(ctx) }},
		call{"Recovery has nothing to do", func() error { return s.vault.Recovery(ctx) }},
		call{"Check finds nothing", func() error { return s.sound(ctx) }},
	)
	if err != nil {
		return err
	}
	requests, err := s.counted("Bad input is refused before any request", func() error { return refused(ctx, s.vault) })
	if err == nil && requests > 0 {
		err = fmt.Errorf("bad input took %s", count(requests, "request"))
	}
	return err
}

// refused gives a vault bad input.
func refused(ctx context.Context, v *azblob.Vault) error {
	_, noFilter := v.Search(ctx, storage.Filters{})
	for _, err := range []error{
		v.Create(ctx, nil),
		v.Create(ctx, &workflow.Plan{ID: uuid.New()}), // not a UUIDv7
		v.Create(ctx, &workflow.Plan{ID: workflow.NewV7At(time.Now().Add(48 * time.Hour))}),
		v.Create(ctx, &workflow.Plan{Blocks: []*workflow.Block{nil}}),
		v.UpdatePlan(ctx, &workflow.Plan{}),
		v.UpdateAction(ctx, &workflow.Action{ID: workflow.NewV7(), PlanID: workflow.NewV7(), Plugin: "p"}), // no version
		noFilter,
	} {
		if err := is(err, storage.ErrInvalid); err != nil {
			return err
		}
	}
	return nil
}

// life takes a plan from Create to Delete, as an engine does.
func life(ctx context.Context, s *stage, sh shape) error {
	plan := sh.plan()
	v := s.vault
	return s.acts(
		call{"Create", func() error { return s.create(ctx, plan) }},
		call{"Create again: it exists", func() error { return is(v.Create(ctx, plan), storage.ErrExists) }},
		call{"Read, Exists and Search find it NotStarted", func() error { return s.whole(ctx, plan) }},
		call{"Update the plan to Running", func() error { start(plan); return v.UpdatePlan(ctx, plan) }},
		call{"Update each sub-object to Running", func() error {
			for _, o := range workflow.Parts(plan) {
				start(o)
			}
			return updateParts(ctx, v, plan)
		}},
		call{"Read, Exists and Search find it running", func() error { return s.whole(ctx, plan) }},
		call{"Update each sub-object to its final status, actions with their attempts", func() error { return finishParts(ctx, v, plan) }},
		call{"Read", func() error { return reads(ctx, v, plan) }},
		call{"Update the plan to " + sh.end.String(), func() error { return s.end(ctx, plan, sh.end, sh.reason) }},
		call{"Read, Exists and Search find it " + sh.end.String(), func() error { return s.whole(ctx, plan) }},
		call{"Update it back to Running: refused", func() error {
			back := *plan
			back.State.Status = workflow.Running
			return is(v.UpdatePlan(ctx, &back), storage.ErrInvalid)
		}},
		call{"List", func() error { return s.listed(ctx) }},
		call{"Check", func() error { return s.sound(ctx) }},
		call{"Delete", func() error { return s.remove(ctx, plan) }},
		call{"Read, Exists and Search find no plan", func() error { return s.gone(ctx, plan.ID) }},
		call{"Update a sub-object: not found", func() error {
			return is(storage.Update(ctx, v, workflow.Parts(plan)[0]), storage.ErrNotFound)
		}},
		call{"Check finds nothing of the plan", func() error { return s.sound(ctx) }},
	)
}

// crash shows one crash: a process dies in the middle of a Create, and another one recovers. The suite tries
// a death at every request of every operation.
func crash(ctx context.Context, s *stage) error {
	plan := plantest.Full()
	v := s.vault
	var died time.Time
	return s.acts(
		call{"Create; the process dies before it sends the plan object", func() error {
			err := s.dieInCreate(ctx, plan)
			died = time.Now()
			return err
		}},
		call{"Another process sees no plan", func() error { return errors.Join(s.gone(ctx, plan.ID), s.listed(ctx)) }},
		call{"Recovery leaves alone what is recent", func() error {
			r, err := v.Admin().Repair(ctx, azblob.RepairOptions{By: asked})
			return reported(err, r.Recent == 1 || time.Since(died) >= shortGrace, r)
		}},
		call{"Create again: the remains are in the way", func() error { return is(v.Create(ctx, plan), storage.ErrConflict) }},
		call{"Check finds a plan in progress, and no problem", func() error {
			r, err := v.Admin().Check(ctx, azblob.CheckOptions{})
			return reported(err, len(r.Problems) == 0 && r.InProgress == 1, r)
		}},
		call{"Recovery, until nothing is recent, removes the remains", func() error {
			done, err := s.recoverAll(ctx, v)
			return reported(err, done[plan.ID].Did != "", done)
		}},
		call{"Check finds nothing of the plan", func() error { return errors.Join(s.gone(ctx, plan.ID), s.sound(ctx)) }},
		call{"Create again: the ID is free", func() error { return errors.Join(s.create(ctx, plan), s.whole(ctx, plan)) }},
		call{"Check", func() error { return s.sound(ctx) }},
		call{"Delete", func() error { return errors.Join(s.remove(ctx, plan), s.sound(ctx)) }},
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

// createDays creates the plans of the listings: perDay plans on each of several days, each in another status.
func (s *stage) createDays(ctx context.Context) error {
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	for i := range listedDays * perDay {
		p := plantest.Small()
		p.ID = workflow.NewV7At(midnight.AddDate(0, 0, i/perDay-listedDays).Add(time.Duration(i%perDay) * 6 * time.Hour))
		p.Name = fmt.Sprintf("plan %d", i)
		if err := s.create(ctx, p); err != nil {
			return err
		}
		if i%perDay == 0 {
			continue
		}
		start(p)
		err := errors.Join(s.vault.UpdatePlan(ctx, p), finishParts(ctx, s.vault, p))
		switch i % perDay {
		case 2:
			err = errors.Join(err, s.end(ctx, p, workflow.Completed, workflow.NoFailure))
		case 3:
			err = errors.Join(err, s.end(ctx, p, workflow.Failed, workflow.BlockFailed))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list shows listings and searches. Their plans stay for the steps that follow.
func list(ctx context.Context, s *stage) error {
	search := func(f storage.Filters, matches func(*workflow.Plan) bool) func() error {
		return func() error {
			want := slices.DeleteFunc(s.newestFirst(), func(p *workflow.Plan) bool { return !matches(p) })
			err := shows(want)(s.vault.Search(ctx, f))
			n, countErr := s.vault.Count(ctx, f)
			return errors.Join(err, reported(countErr, n == len(want), n))
		}
	}
	name := fmt.Sprintf("plan %d", perDay)
	return s.acts(
		call{fmt.Sprintf("Create %d plans on each of %d days", perDay, listedDays), func() error { return s.createDays(ctx) }},
		call{"List", func() error { return s.listed(ctx) }},
		call{"List the newest 5", func() error { return shows(s.newestFirst()[:5])(s.vault.List(ctx, 5)) }},
		call{"Search and Count by status", search(storage.Filters{ByStatus: []workflow.Status{workflow.Completed, workflow.Failed}}, func(p *workflow.Plan) bool {
			return p.State.Status.Final()
		})},
		call{"Search and Count by name", search(storage.Filters{NamePrefix: name}, func(p *workflow.Plan) bool {
			return strings.HasPrefix(p.Name, name)
		})},
	)
}

func check(ctx context.Context, s *stage) error {
	open := slices.DeleteFunc(s.newestFirst(), func(p *workflow.Plan) bool { return p.State.Status.Final() })
	return s.acts(
		call{"Recovery leaves open plans alone", func() error {
			r, err := s.vault.Admin().Repair(ctx, azblob.RepairOptions{By: asked})
			return reported(err, r.Open == len(open) && r.Recent == 0 && len(r.Plans) == 0, r)
		}},
		call{"Check", func() error { return s.sound(ctx) }},
	)
}

func deleteAll(ctx context.Context, s *stage) error {
	return s.acts(
		call{"Delete all plans", func() error {
			var g errgroup.Group
			g.SetLimit(atOnce)
			for _, p := range s.newestFirst() {
				g.Go(func() error { return s.remove(ctx, p) })
			}
			return g.Wait()
		}},
		call{"List is empty", func() error { return s.listed(ctx) }},
		call{"Check finds nothing", func() error { return s.sound(ctx) }},
	)
}
