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

// story lists the steps in their order. The crashes come before the listings, whose plans stay: each Recovery looks at every
// plan that is not final.
func story(c config) []step {
	steps := []step{{"nothing", "a vault without any plan, for which nobody has made a container", nothing}}
	for _, sh := range shapes(c.seed) {
		steps = append(steps, step{"life/" + sh.name, sh.about, func(ctx context.Context, s *stage) error { return life(ctx, s, sh) }})
	}
	steps = append(
		steps,
		step{"conflict/update", "two writers of one plan: the second is told, and nothing is lost", conflictUpdate},
		step{"conflict/create", "two writers create plans of one ID at once: one of them is there, whole", conflictCreate},
		step{"crash/create", "Create breaks off at each of its stages; a new vault recovers", crashCreate},
		step{"crash/complete", "the last update of a plan breaks off at each of its stages; a new vault recovers", crashComplete},
		step{"crash/delete", "Delete breaks off at each of its stages; a new vault recovers", crashDelete},
		step{"crash/recovery", "Recovery itself breaks off; two new vaults recover at once", crashRecovery},
		step{"strange", "names and descriptions that are easily damaged come back as they were", strange},
		step{"list", "plans of several days, newest first", list},
		step{"search", "every filter, alone and with others, and paging", search},
		step{"check", "Recovery and Check find nothing wrong with all that is there", check},
	)
	if !c.keep {
		steps = append(steps, step{"delete", "all plans that are left are deleted, and nothing of them stays", deleteAll})
	}
	return steps
}

func nothing(ctx context.Context, s *stage) error {
	id := workflow.NewV7()
	if err := s.act("Read, Exists and Search find no plan", func() error { return s.gone(ctx, s.vault, id) }); err != nil {
		return err
	}
	if err := s.act("Delete: not found", func() error { return is(s.vault.Delete(ctx, id), storage.ErrNotFound) }); err != nil {
		return err
	}
	if err := s.act("List is empty", func() error { return s.listed(ctx, s.vault) }); err != nil {
		return err
	}
	if err := s.act("Recovery has nothing to do", func() error { return s.vault.Recovery(ctx) }); err != nil {
		return err
	}
	if err := s.act("Check finds nothing", func() error { return s.sound(ctx, s.vault) }); err != nil {
		return err
	}
	requests, err := s.counted("Bad input is refused before any request", func() error {
		for _, bad := range []error{
			s.vault.Create(ctx, nil),
			s.vault.Create(ctx, &workflow.Plan{ID: uuid.New()}), // not a version 7
			s.vault.Create(ctx, &workflow.Plan{ID: idAt(time.Now().Add(48 * time.Hour))}),
			s.vault.Create(ctx, &workflow.Plan{Blocks: []*workflow.Block{nil}}),
			s.vault.UpdatePlan(ctx, &workflow.Plan{}),
			s.vault.UpdateAction(ctx, &workflow.Action{ID: idAt(time.Now()), PlanID: idAt(time.Now()), Plugin: "p"}), // without a version
		} {
			if err := is(bad, storage.ErrInvalid); err != nil {
				return err
			}
		}
		_, err := s.vault.Search(ctx, storage.Filters{})
		return is(err, storage.ErrInvalid)
	})
	if err == nil && requests > 0 {
		err = fmt.Errorf("bad input took %s", count(requests, "request"))
	}
	return err
}

func check(ctx context.Context, s *stage) error {
	v, err := s.recoverer(ctx)
	if err != nil {
		return err
	}
	open := 0
	for _, p := range s.newestFirst() {
		if !p.State.Status.Final() {
			open++
		}
	}
	err = s.act("Recovery leaves alone what is open", func() error {
		r, err := v.Recover(ctx, azblob.RecoverOptions{})
		if err != nil {
			return err
		}
		if r.Open != open || r.Recent != 0 || len(r.Plans) != 0 {
			return fmt.Errorf("it reports %+v, want %d open and nothing else", r, open)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.act("Check", func() error { return s.sound(ctx, v) }); err != nil {
		return err
	}
	return v.Close(ctx)
}

func deleteAll(ctx context.Context, s *stage) error {
	err := s.act("Delete all plans", func() error {
		var g errgroup.Group
		g.SetLimit(atOnce)
		for _, p := range s.newestFirst() {
			g.Go(func() error {
				err := s.vault.Delete(ctx, p.ID)
				if err == nil {
					s.forget(p.ID)
				}
				return err
			})
		}
		return g.Wait()
	})
	if err != nil {
		return err
	}
	if err := s.act("List is empty", func() error { return s.listed(ctx, s.vault) }); err != nil {
		return err
	}
	return s.act("Check finds nothing", func() error { return s.sound(ctx, s.vault) })
}

// atOnce is how many calls the steps make at the same time.
const atOnce = 8
