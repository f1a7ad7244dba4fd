package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// life takes a plan from Create to Delete, as an engine does.
func life(ctx context.Context, s *stage, sh shape) error {
	plan := sh.plan()
	v := s.vault
	return s.acts(
		call{"Create", func() error { return s.create(ctx, v, plan) }},
		call{"Create again: it exists", func() error { return is(v.Create(ctx, plan), storage.ErrExists) }},
		call{"Read, Exists and Search find it NotStarted", func() error { return s.whole(ctx, v, plan) }},
		call{"Update the plan to Running", func() error { start(plan); return v.UpdatePlan(ctx, plan) }},
		call{"Update each sub-object to Running", func() error {
			for _, o := range workflow.Parts(plan) {
				start(o)
			}
			return updateParts(ctx, v, plan)
		}},
		call{"Read, Exists and Search find it running", func() error { return s.whole(ctx, v, plan) }},
		call{"Update each sub-object to its final status, actions with their attempts", func() error { return finishParts(ctx, v, plan) }},
		call{"Read", func() error { return reads(ctx, v, plan) }},
		call{"Update the plan to " + sh.end.String(), func() error { return s.end(ctx, v, plan, sh.end, sh.reason) }},
		call{"Read, Exists and Search find it " + sh.end.String(), func() error { return s.whole(ctx, v, plan) }},
		call{"Update it back to Running: refused", func() error {
			back := *plan
			back.State.Status = workflow.Running
			return is(v.UpdatePlan(ctx, &back), storage.ErrInvalid)
		}},
		call{"List", func() error { return s.listed(ctx, v) }},
		call{"Check", func() error { return s.sound(ctx, v) }},
		call{"Delete", func() error { return s.remove(ctx, v, plan) }},
		call{"Read, Exists and Search find no plan", func() error { return s.gone(ctx, v, plan.ID) }},
		call{"Update a sub-object: not found", func() error {
			return is(storage.Update(ctx, v, workflow.Parts(plan)[0]), storage.ErrNotFound)
		}},
		call{"Check", func() error { return s.sound(ctx, v) }},
		call{"Nothing of the plan is stored", func() error { return s.left(ctx, plan.ID, 0) }},
	)
}

// create creates a plan, and expects it from then on.
func (s *stage) create(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	if err := v.Create(ctx, plan); err != nil {
		return err
	}
	for o := range workflow.Walk(plan) {
		if h := o.Header(); h.State.ETag == "" || *h.PlanID != plan.ID {
			return fmt.Errorf("%s %s was not given its version and plan", o.Kind(), h.ID)
		}
	}
	s.expect(plan)
	return nil
}

// run creates a plan and runs it; only its last update is missing.
func (s *stage) run(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	if err := s.create(ctx, v, plan); err != nil {
		return err
	}
	start(plan)
	if err := v.UpdatePlan(ctx, plan); err != nil {
		return err
	}
	return finishParts(ctx, v, plan)
}

// end gives a plan its last update.
func (s *stage) end(ctx context.Context, v *azblob.Vault, plan *workflow.Plan, end workflow.Status, reason workflow.FailureReason) error {
	plan.State.Status, plan.State.End, plan.Reason = end, started.AddDate(0, 0, 1), reason
	return v.UpdatePlan(ctx, plan)
}

// remove deletes a plan, and does not expect it from then on.
func (s *stage) remove(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	s.forget(plan.ID)
	return v.Delete(ctx, plan.ID)
}

// finishParts updates all sub-objects to final statuses.
func finishParts(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	running := plan.State
	plantest.Finish(plan)
	plan.State = running
	return updateParts(ctx, v, plan)
}

// updateParts updates all sub-objects, several at a time as engines do.
func updateParts(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, o := range workflow.Parts(plan) {
		g.Go(func() error { return storage.Update(ctx, v, o) })
	}
	return g.Wait()
}
