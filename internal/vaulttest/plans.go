package vaulttest

import (
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Shape makes a plan of one form.
type Shape func() *workflow.Plan

// Shapes are the plans on which crashes and faults are tried.
var Shapes = map[string]Shape{
	"empty":    func() *workflow.Plan { return &workflow.Plan{Name: "empty"} },
	"small":    plantest.Small,
	"kinds":    EachKind,
	"checks":   checksOnly,
	"deferred": deferredOnly,
	"blocks":   func() *workflow.Plan { return plantest.Sized(2, 2, 1) },
}

func work(name string) []*workflow.Action {
	return []*workflow.Action{{Name: name, Plugin: plantest.PluginName}}
}

// EachKind is the smallest plan that has an object of each kind.
func EachKind() *workflow.Plan {
	plan := plantest.Small()
	plan.PreChecks = &workflow.Checks{Actions: work("check")}
	plan.Blocks[0].PostChecks = &workflow.Checks{}
	plan.DeferredActions = deferredOnly().DeferredActions
	return plan
}

func checksOnly() *workflow.Plan {
	plan := &workflow.Plan{Name: "checks"}
	for _, c := range workflow.ChecksOf(plan) {
		*c = &workflow.Checks{Actions: work("check")}
	}
	return plan
}

func deferredOnly() *workflow.Plan {
	batch := &workflow.DeferBatch{Name: "batch", Actions: work("deferred")}
	return &workflow.Plan{Name: "deferred", DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch}}}
}

// Many returns a plan with so many sub-objects that Read lists them.
func Many() *workflow.Plan { return plantest.Sized(2, 5, 10) }

// CopyOf returns another plan with the same ID.
func CopyOf(plan *workflow.Plan) *workflow.Plan {
	other := EachKind()
	other.ID = plan.ID
	return other
}

// PlanOf makes a plan of a day.
func PlanOf(day time.Time) *workflow.Plan {
	plan := plantest.Small()
	plan.ID = workflow.NewV7At(day.Add(time.Hour))
	return plan
}

// ActionsOf lists a plan's actions.
func ActionsOf(plan *workflow.Plan) (list []*workflow.Action) {
	for o := range workflow.Walk(plan) {
		if a, ok := o.(*workflow.Action); ok {
			list = append(list, a)
		}
	}
	return list
}

// Moved gives each object of a plan a new status.
func Moved(plan *workflow.Plan, to workflow.Status) {
	for o := range workflow.Walk(plan) {
		s := o.Header().State
		s.Status, s.Start = to, time.Now()
	}
}

// Created stores a plan and reads it back.
func Created(t *testing.T, v *azblob.Vault, plan *workflow.Plan) *workflow.Plan {
	t.Helper()
	Must(t, v.Create(t.Context(), plan))
	return Reread(t, v, plan)
}

// Reread returns the plan as it is stored.
func Reread(t *testing.T, v *azblob.Vault, plan *workflow.Plan) *workflow.Plan {
	t.Helper()
	got, err := v.Read(t.Context(), plan.ID)
	Must(t, err)
	return got
}

// CreatedRunning creates a plan and makes it Running.
func CreatedRunning(t *testing.T, v *azblob.Vault, plan *workflow.Plan) *workflow.Plan {
	t.Helper()
	Must(t, v.Create(t.Context(), plan))
	plan.State.Status = workflow.Running
	Must(t, v.UpdatePlan(t.Context(), plan))
	return plan
}

// Running prepares a plan that is about to end: the plan is Running and all its sub-objects have finished.
// after is the plan with its final state.
func Running(t *testing.T, v *azblob.Vault, plan *workflow.Plan) (before, after *workflow.Plan) {
	t.Helper()
	CreatedRunning(t, v, plan)
	finished := *plan
	finished.State = FinishParts(t, v, plan)
	return plan, &finished
}

// FinishParts finishes and stores all sub-objects of a running plan. It returns the plan's final state, which is
// not stored yet.
func FinishParts(t *testing.T, v *azblob.Vault, plan *workflow.Plan) (final workflow.State) {
	t.Helper()
	running := plan.State
	plantest.Finish(plan)
	final, plan.State = plan.State, running
	final.ETag = running.ETag
	for _, o := range workflow.Parts(plan) {
		Must(t, storage.Update(t.Context(), v, o))
	}
	return final
}

// Copied gives a plan a status, as a Read of another store would return it.
func Copied(plan *workflow.Plan, status workflow.Status) *workflow.Plan {
	driver.Complete(plan)
	plantest.Finish(plan)
	if plan.State.Status = status; !status.Final() {
		plan.State.End = time.Time{}
	}
	return plan
}
