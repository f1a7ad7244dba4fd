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
	acts := []struct {
		name string
		do   func() error
	}{
		{"Create", func() error { return s.create(ctx, v, plan) }},
		{"Create again: it exists", func() error { return is(v.Create(ctx, plan), storage.ErrExists) }},
		{"Read, Exists and Search find it NotStarted", func() error { return s.whole(ctx, v, plan) }},
		{"Update the plan to Running", func() error { start(plan); return v.UpdatePlan(ctx, plan) }},
		{"Update each part to Running", func() error {
			for _, o := range parts(plan) {
				start(o)
			}
			return updateParts(ctx, v, plan)
		}},
		{"Read, Exists and Search find it running", func() error { return s.whole(ctx, v, plan) }},
		{"Update each part to its end, actions with their attempts", func() error {
			running := plan.State
			plantest.Finish(plan)
			plan.State = running
			return updateParts(ctx, v, plan)
		}},
		{"Read", func() error { return reads(ctx, v, plan) }},
		{"Update the plan to " + sh.end.String(), func() error { return s.end(ctx, v, plan, sh.end, sh.reason) }},
		{"Read, Exists and Search find it " + sh.end.String(), func() error { return s.whole(ctx, v, plan) }},
		{"Update it back to Running: refused", func() error {
			back := *plan
			back.State.Status = workflow.Running
			return is(v.UpdatePlan(ctx, &back), storage.ErrInvalid)
		}},
		{"List", func() error { return s.listed(ctx, v) }},
		{"Check", func() error { return s.sound(ctx, v) }},
		{"Delete", func() error { return s.remove(ctx, v, plan) }},
		{"Read, Exists and Search find no plan", func() error { return s.gone(ctx, v, plan.ID) }},
		{"Update an object of it: not found", func() error { return is(updateAny(ctx, v, plan), storage.ErrNotFound) }},
		{"Check", func() error { return s.sound(ctx, v) }},
	}
	for _, a := range acts {
		if err := s.act(a.name, a.do); err != nil {
			return err
		}
	}
	return s.left(ctx, plan.ID, 0)
}

// create creates a plan that must be there from now on.
func (s *stage) create(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	if err := v.Create(ctx, plan); err != nil {
		return err
	}
	for o := range workflow.Walk(plan) {
		if h := o.Header(); h.State.ETag == "" || *h.PlanID != plan.ID {
			return fmt.Errorf("%s %s was not given its version and plan", o.Kind(), h.ID)
		}
	}
	s.keepInMind(plan)
	return nil
}

// run creates a plan, and takes it to where only the last update is missing.
func (s *stage) run(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	if err := s.create(ctx, v, plan); err != nil {
		return err
	}
	start(plan)
	if err := v.UpdatePlan(ctx, plan); err != nil {
		return err
	}
	running := plan.State
	plantest.Finish(plan)
	plan.State = running
	return updateParts(ctx, v, plan)
}

// end gives a plan its last update.
func (s *stage) end(ctx context.Context, v *azblob.Vault, plan *workflow.Plan, end workflow.Status, reason workflow.FailureReason) error {
	plan.State.Status, plan.State.End, plan.Reason = end, started.AddDate(0, 0, 1), reason
	return v.UpdatePlan(ctx, plan)
}

// remove deletes a plan, which must not be there from now on.
func (s *stage) remove(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	s.forget(plan.ID)
	return v.Delete(ctx, plan.ID)
}

// updateParts updates everything below a plan, several at a time as engines do.
func updateParts(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, o := range parts(plan) {
		g.Go(func() error { return storage.Update(ctx, v, o) })
	}
	return g.Wait()
}

// updateAny updates the last of a plan's parts, or the plan where it has none.
func updateAny(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	if all := parts(plan); len(all) > 0 {
		return storage.Update(ctx, v, all[len(all)-1])
	}
	return storage.Update(ctx, v, plan)
}
