package engine

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// run is the work on one plan. Each object is changed by one goroutine at a time, which runs it.
//
// Its contexts are nested. When a scope has ended, nothing more begins in its plan or block. life ends all
// scopes at a shutdown. owned ends when the plan is given up: nothing more is written, and plugins are
// cancelled.
type run struct {
	engine *Engine
	plan   *workflow.Plan

	// owned ends when the plan is given up. Its cause is the reason.
	owned  context.Context
	giveUp context.CancelCauseFunc
	// life is within owned.
	life context.Context
	die  context.CancelCauseFunc
	// scope is the scope of the plan, within life.
	scope context.Context
	halt  context.CancelFunc

	// own guards the plan's own fields, which Stop changes while the work goes on.
	own *semaphore.Weighted
	// ending is set when the outcome is fixed and Stop comes too late. It is guarded by own.
	ending bool
}

func newRun(e *Engine, plan *workflow.Plan) *run {
	r := &run{engine: e, plan: plan, own: semaphore.NewWeighted(1)}
	r.owned, r.giveUp = context.WithCancelCause(context.Background())
	r.life, r.die = context.WithCancelCause(r.owned)
	r.scope, r.halt = context.WithCancel(r.life)
	// The outcome chose the deferred actions that have begun, so it must not change any more.
	r.ending = plan.DeferredActions != nil && plan.DeferredActions.State.Status != workflow.NotStarted
	return r
}

// work runs the plan. It returns the reason if the plan was left. When it returns, no write of the plan is in
// flight.
func (r *run) work(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { r.die(ErrDraining) })()
	if ctx.Err() != nil {
		r.die(ErrDraining) // the function above may run later
	}
	err := r.runPlan()
	if err != nil && r.owned.Err() != nil {
		err = context.Cause(r.owned)
	}
	r.giveUp(nil)
	_ = r.own.Acquire(context.Background(), 1) // after the write of a stop
	r.own.Release(1)                           // a later stop finds that the work has ended
	return err
}

// halted reports whether nothing more may begin in a scope. An error means that the plan is left as it is
// stored.
func (r *run) halted(scope context.Context) (bool, error) {
	if r.life.Err() != nil {
		return true, context.Cause(r.life)
	}
	return scope.Err() != nil, nil
}

// begin makes an object Running, unless it was Running when the plan was picked up.
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

// write stores an object. If that fails, the plan is given up.
func (r *run) write(o workflow.Object) error {
	err := r.store(o)
	if err != nil {
		r.giveUp(err)
	}
	return err
}

// store stores an object. All changes pass through it.
func (r *run) store(o workflow.Object) error {
	if r.owned.Err() != nil {
		return context.Cause(r.owned)
	}
	err := r.engine.insist(r.owned, func(ctx context.Context) error {
		// The request in flight ends by itself when the plan is given up. It is not repeated then.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.engine.opts.Patience/4)
		defer cancel()
		return storage.Update(ctx, r.engine.vault, o)
	})
	if err == nil {
		r.engine.opts.Observer.Changed(r.owned, o)
	}
	return err
}

// verdict returns the status of a group with these actions.
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

// failure reports whether a reason is a failure. The first failure counts, and it outweighs a stop.
func failure(reason workflow.FailureReason) bool { return statusOf(reason) == workflow.Failed }

// statusOf returns the status of a plan or block that ends for a reason.
func statusOf(reason workflow.FailureReason) workflow.Status {
	switch reason {
	case workflow.NoFailure:
		return workflow.Completed
	case workflow.StopRequested:
		return workflow.Stopped
	}
	return workflow.Failed
}
