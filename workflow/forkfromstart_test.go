package workflow_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestForkFromStart forks random plans: the fork is the plan as its author wrote it, with new IDs, and the plan is
// unchanged.
func TestForkFromStart(t *testing.T) {
	for seed := range uint64(30) {
		p := failedAtRandom(seed)
		p.State.Status = workflow.Completed + workflow.Status(seed%3)
		before := plantest.Clone(p)
		f, err := workflow.ForkFromStart(p)
		if err != nil {
			t.Fatal(err)
		}
		if f.ID == p.ID || f.ForkedFrom != p.ID || f.Epoch != 0 || !f.SubmitTime.IsZero() {
			t.Errorf("seed %d: the fork is %+v", seed, f)
		}
		want := plantest.Clone(p)
		want.ForkedFrom, want.Owner, want.Epoch, want.Reason = p.ID, f.Owner, 0, workflow.NoFailure
		want.SubmitTime, want.RuntimeUpdate = time.Time{}, time.Time{}
		forked := append(workflow.Parts(f), f)
		for i, o := range append(workflow.Parts(want), want) {
			h, had := forked[i].Header(), o.Header()
			if !workflow.IsV7(*h.ID) || *h.ID == *had.ID || *h.PlanID != f.ID || h.State.ETag != "" {
				t.Errorf("seed %d: %s has %s of %s, %q", seed, o.Kind(), *h.ID, *h.PlanID, h.State.ETag)
			}
			*had.ID, *had.PlanID = *h.ID, *h.PlanID
			had.State.Reset()
			if a, ok := o.(*workflow.Action); ok {
				a.Attempts = nil
			}
		}
		if diff := plantest.Diff(want, f); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
		scribble(f)
		if diff := plantest.Diff(before, p); diff != "" {
			t.Errorf("seed %d: a change of the fork changed the plan: %s", seed, diff)
		}
	}
	for _, status := range []workflow.Status{workflow.NotStarted, workflow.Running} {
		f, err := workflow.ForkFromStart(&workflow.Plan{State: workflow.State{Status: status}})
		if wrong, ok := errors.AsType[*workflow.FieldError](err); f != nil || !ok || !strings.HasPrefix(wrong.Problem, "is "+status.String()+": only") {
			t.Errorf("%s: %v, %v", status, f, err)
		}
	}
	if f, err := workflow.ForkFromStart(nil); f != nil || err == nil {
		t.Errorf("nil: %v, %v", f, err)
	}
}
