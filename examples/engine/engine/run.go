package engine

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// run is the work on one plan. Each part of the plan is changed by one goroutine at a time: the one that runs it.
//
// Its contexts are nested. A scope says whether anything may begin within a plan or a block; the life of the run ends all
// scopes at a shutdown; and when the plan is given up nothing more is written and plugins are cancelled.
type run struct {
	engine *Engine
	plan   *workflow.Plan

	// owned ends with the plan's giving up, whose reason is its cause.
	owned  context.Context
	giveUp context.CancelCauseFunc
	// life is within owned.
	life context.Context
	die  context.CancelCauseFunc
	// scope is the plan's own, within life.
	scope context.Context
	halt  context.CancelFunc

	// own guards the plan's own fields, which a stop changes beside the work.
	own *semaphore.Weighted
	// ending says that the outcome is settled, and a stop comes too late. It is guarded by own.
	ending bool
}

func newRun(e *Engine, plan *workflow.Plan) *run {
	r := &run{engine: e, plan: plan, own: semaphore.NewWeighted(1)}
	r.owned, r.giveUp = context.WithCancelCause(context.Background())
	r.life, r.die = context.WithCancelCause(r.owned)
	r.scope, r.halt = context.WithCancel(r.life)
	// Deferred actions that have begun did so by the outcome, which must not change any more.
	r.ending = plan.DeferredActions != nil && plan.DeferredActions.State.Status != workflow.NotStarted
	return r
}

// work runs the plan, and returns why it was left if it was.
func (r *run) work(ctx context.Context) error {
	defer r.giveUp(nil)
	defer context.AfterFunc(ctx, func() { r.die(ErrDraining) })()
	if ctx.Err() != nil {
		r.die(ErrDraining) // the function above runs at its own time
	}
	return r.runPlan()
}

// halted says whether nothing more may begin in a scope. An error means that the run is left as it is stored.
func (r *run) halted(scope context.Context) (bool, error) {
	if r.life.Err() != nil {
		return true, context.Cause(r.life)
	}
	return scope.Err() != nil, nil
}

// begin makes an object Running, unless it was already when the plan was picked up.
func (r *run) begin(o workflow.Object) error {
	s := o.Header().State
	if s.Status != workflow.NotStarted {
		return nil
	}
	s.Status, s.Start = workflow.Running, time.Now().UTC()
	return r.write(o)
}

// end makes an object final.
func (r *run) end(o workflow.Object, status workflow.Status) error {
	s := o.Header().State
	s.Status, s.End = status, time.Now().UTC()
	return r.write(o)
}

// write stores an object as it is now. A plan of which something can't be stored is given up.
func (r *run) write(o workflow.Object) error {
	err := r.store(o)
	if err != nil {
		r.giveUp(err)
	}
	return err
}

// store is the only way of a change into the vault.
func (r *run) store(o workflow.Object) error {
	if r.owned.Err() != nil {
		return context.Cause(r.owned)
	}
	err := r.engine.insist(r.owned, func(ctx context.Context) error { return storage.Update(ctx, r.engine.vault, o) })
	if err == nil {
		r.engine.opts.Observer.Changed(o)
	}
	return err
}

// verdict is what actions make of their group.
func verdict(actions []*workflow.Action) workflow.Status {
	status := workflow.Completed
	for _, a := range actions {
		switch a.State.Status {
		case workflow.Failed:
			return workflow.Failed
		case workflow.Completed:
		default:
			status = workflow.Stopped
		}
	}
	return status
}

// statusOf is the status with which a plan or a block ends.
func statusOf(reason workflow.FailureReason) workflow.Status {
	switch reason {
	case workflow.NoFailure:
		return workflow.Completed
	case workflow.StopRequested:
		return workflow.Stopped
	}
	return workflow.Failed
}
