package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// story returns the steps in their order. The crash comes before the listings, whose plans stay: each
// Recovery looks at every plan that is not final.
func story(c config) []step {
	steps := []step{
		{"first-hour", "what only a real account can settle: expected and seen", firstHour},
		{"nothing", "an empty vault, which has no container yet", nothing},
	}
	for _, sh := range shapes {
		steps = append(steps, step{"life/" + sh.name, sh.about, func(ctx context.Context, s *stage) error { return life(ctx, s, sh) }})
	}
	steps = append(
		steps,
		step{"crash", "a process dies in the middle of a Create, and another one recovers", crash},
		step{"history", "finished plans of old days are forked, copied, held, catalogued, purged and expired", history},
		step{"list", "plans of several days, newest first, and searches in them", list},
		step{"check", "Recovery and Check find nothing wrong with what is stored", check},
	)
	if !c.keep {
		steps = append(steps, step{"delete", "every plan is deleted, and nothing of it stays", deleteAll})
	}
	return steps
}

func nothing(ctx context.Context, s *stage) error {
	id := workflow.NewV7()
	err := s.acts(
		call{"Read, Exists and Search find no plan", func() error { return s.gone(ctx, s.vault, id) }},
		call{"Delete: not found", func() error { return is(s.vault.Delete(ctx, id), storage.ErrNotFound) }},
		call{"List is empty", func() error { return s.listed(ctx, s.vault) }},
		call{"Recovery has nothing to do", func() error { return s.vault.Recovery(ctx) }},
		call{"Check finds nothing", func() error { return s.sound(ctx, s.vault) }},
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
		v.Create(ctx, &workflow.Plan{ID: idAt(time.Now().Add(48 * time.Hour))}),
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

func check(ctx context.Context, s *stage) error {
	open := 0
	for _, p := range s.newestFirst() {
		if !p.State.Status.Final() {
			open++
		}
	}
	return s.acts(
		call{"Recovery leaves open plans alone", func() error {
			r, err := s.vault.Recover(ctx, azblob.RecoverOptions{})
			if err == nil && (r.Open != open || r.Recent != 0 || len(r.Plans) != 0) {
				err = fmt.Errorf("it reports %+v, want %d open and nothing else", r, open)
			}
			return err
		}},
		call{"Check", func() error { return s.sound(ctx, s.vault) }},
	)
}

func deleteAll(ctx context.Context, s *stage) error {
	return s.acts(
		call{"Delete all plans", func() error {
			var g errgroup.Group
			g.SetLimit(atOnce)
			for _, p := range s.newestFirst() {
				g.Go(func() error { return s.remove(ctx, s.vault, p) })
			}
			return g.Wait()
		}},
		call{"List is empty", func() error { return s.listed(ctx, s.vault) }},
		call{"Check finds nothing", func() error { return s.sound(ctx, s.vault) }},
	)
}

// atOnce is how many calls a step makes at the same time.
const atOnce = 8
