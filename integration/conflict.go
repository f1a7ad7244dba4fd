package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// twoWriters opens the vaults of two processes.
func (s *stage) twoWriters(ctx context.Context) (a, b *azblob.Vault, closeBoth func() error, err error) {
	if a, _, err = s.open(ctx); err != nil {
		return nil, nil, nil, err
	}
	if b, _, err = s.open(ctx); err != nil {
		return nil, nil, nil, err
	}
	return a, b, func() error { return errors.Join(a.Close(ctx), b.Close(ctx)) }, nil
}

func conflictUpdate(ctx context.Context, s *stage) error {
	a, b, closeBoth, err := s.twoWriters(ctx)
	if err != nil {
		return err
	}
	plan := plantest.Full()
	var mine, theirs *workflow.Plan
	theirAction := func() *workflow.Action { return theirs.Blocks[0].Sequences[0].Actions[0] }
	acts := []struct {
		name string
		do   func() error
	}{
		{"Create, update to Running", func() error {
			if err := s.create(ctx, a, plan); err != nil {
				return err
			}
			start(plan)
			return a.UpdatePlan(ctx, plan)
		}},
		{"Both read it", func() (err error) {
			if mine, err = a.Read(ctx, plan.ID); err == nil {
				theirs, err = b.Read(ctx, plan.ID)
			}
			return err
		}},
		{"The first updates an action and the plan", func() error {
			action := mine.Blocks[0].Sequences[0].Actions[0]
			start(action)
			action.Attempts = []workflow.Attempt{{Resp: &plantest.Response{Text: "the first"}, Start: started}}
			mine.Descr = "as the first wants it"
			return errors.Join(a.UpdateAction(ctx, action), a.UpdatePlan(ctx, mine))
		}},
		{"The second's update of the action is a conflict", func() error {
			start(theirAction())
			theirAction().Attempts = []workflow.Attempt{{Resp: &plantest.Response{Text: "the second"}, Start: started}}
			return is(b.UpdateAction(ctx, theirAction()), storage.ErrConflict)
		}},
		{"The second's update of the plan is a conflict", func() error {
			theirs.Descr = "as the second wants it"
			return is(b.UpdatePlan(ctx, theirs), storage.ErrConflict)
		}},
		{"The first's completion would be the third version; the second's is a conflict, too", func() error {
			return is(s.end(ctx, b, theirs, workflow.Stopped, workflow.StopRequested), storage.ErrConflict)
		}},
		{"Both see what the first wrote", func() error {
			s.keepInMind(mine)
			return errors.Join(s.whole(ctx, a, mine), s.whole(ctx, b, mine))
		}},
		{"The second reads again, and its updates count", func() (err error) {
			if theirs, err = b.Read(ctx, plan.ID); err != nil {
				return err
			}
			theirAction().Attempts = append(theirAction().Attempts, workflow.Attempt{Resp: &plantest.Response{Text: "the second"}, Start: started})
			theirs.Name = "as the second wants it"
			return errors.Join(b.UpdateAction(ctx, theirAction()), b.UpdatePlan(ctx, theirs))
		}},
		{"Both see what both wrote", func() error {
			s.keepInMind(theirs)
			if n := len(theirAction().Attempts); n != 2 || theirs.Descr != mine.Descr {
				return fmt.Errorf("the first's work is lost: %d attempts, description %q", n, theirs.Descr)
			}
			return errors.Join(s.whole(ctx, a, theirs), s.whole(ctx, b, theirs))
		}},
		{"Check", func() error { return s.sound(ctx, a) }},
		{"Delete; another Delete finds nothing", func() error {
			return errors.Join(s.remove(ctx, a, plan), is(b.Delete(ctx, plan.ID), storage.ErrNotFound))
		}},
	}
	for _, act := range acts {
		if err := s.act(act.name, act.do); err != nil {
			return err
		}
	}
	return closeBoth()
}

func conflictCreate(ctx context.Context, s *stage) error {
	a, b, closeBoth, err := s.twoWriters(ctx)
	if err != nil {
		return err
	}
	id := workflow.NewV7()
	plans := []*workflow.Plan{plantest.Sized(1, 2, 2), plantest.Sized(2, 1, 3)}
	winner := -1
	err = s.act("Two Creates at once", func() error {
		errs := make([]error, 2)
		var both sync.WaitGroup
		for i, v := range []*azblob.Vault{a, b} {
			plans[i].ID = id
			both.Go(func() { errs[i] = v.Create(ctx, plans[i]) })
		}
		both.Wait()
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				return errors.New("both succeeded")
			case err == nil:
				winner = i
				s.keepInMind(plans[i])
			case !errors.Is(err, storage.ErrExists) && !errors.Is(err, storage.ErrConflict):
				return err
			}
		}
		if winner < 0 {
			return fmt.Errorf("none succeeded: %w", errors.Join(errs...))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.act("Both read the winner's plan", func() error {
		return errors.Join(s.whole(ctx, a, plans[winner]), s.whole(ctx, b, plans[winner]))
	}); err != nil {
		return err
	}
	if err := s.act("Check", func() error { return s.sound(ctx, a) }); err != nil {
		return err
	}
	if err := s.act("Delete", func() error { return s.remove(ctx, b, plans[winner]) }); err != nil {
		return err
	}
	if err := s.left(ctx, id, 0); err != nil {
		return err
	}
	return closeBoth()
}
