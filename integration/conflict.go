package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// conflict shows two processes that update one plan.
func conflict(ctx context.Context, s *stage) error {
	a, err := s.open(ctx)
	if err != nil {
		return err
	}
	b, err := s.open(ctx)
	if err != nil {
		return errors.Join(err, a.Close(ctx))
	}
	plan := plantest.Full()
	var mine, theirs *workflow.Plan
	action := func(p *workflow.Plan) *workflow.Action { return p.Blocks[0].Sequences[0].Actions[0] }
	attempt := func(v *azblob.Vault, p *workflow.Plan, said string) error {
		start(action(p))
		action(p).Attempts = append(action(p).Attempts, workflow.Attempt{Resp: &plantest.Response{Text: said}, Start: started})
		return v.UpdateAction(ctx, action(p))
	}
	read := func(v *azblob.Vault, p **workflow.Plan) (err error) {
		*p, err = v.Read(ctx, plan.ID)
		return err
	}
	err = s.acts(
		call{"Create, update to Running", func() error {
			if err := s.create(ctx, a, plan); err != nil {
				return err
			}
			start(plan)
			return a.UpdatePlan(ctx, plan)
		}},
		call{"Both read the plan", func() error { return errors.Join(read(a, &mine), read(b, &theirs)) }},
		call{"The first updates an action and the plan", func() error {
			mine.Descr = "as the first wants it"
			return errors.Join(attempt(a, mine, "the first"), a.UpdatePlan(ctx, mine))
		}},
		call{"The second's update of the action is a conflict", func() error {
			return is(attempt(b, theirs, "the second"), storage.ErrConflict)
		}},
		call{"The second's completion of the plan is a conflict", func() error {
			return is(s.end(ctx, b, theirs, workflow.Stopped, workflow.StopRequested), storage.ErrConflict)
		}},
		call{"The second reads again, and its update succeeds", func() error {
			return errors.Join(read(b, &theirs), attempt(b, theirs, "the second"))
		}},
		call{"Both see what both wrote", func() error {
			s.expect(theirs)
			if n := len(action(theirs).Attempts); n != 2 || theirs.Descr != mine.Descr {
				return fmt.Errorf("the first update is lost: %d attempts, description %q", n, theirs.Descr)
			}
			return errors.Join(s.whole(ctx, a, theirs), s.whole(ctx, b, theirs))
		}},
		call{"Check", func() error { return s.sound(ctx, a) }},
		call{"Delete; a second Delete finds nothing", func() error {
			return errors.Join(s.remove(ctx, a, plan), is(b.Delete(ctx, plan.ID), storage.ErrNotFound))
		}},
	)
	return errors.Join(err, a.Close(ctx), b.Close(ctx))
}
