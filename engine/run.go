package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// run is the work on one plan. Each object is changed by one goroutine at a time, which runs it.
//
// Its contexts are nested. When a scope has ended, nothing more begins in its plan or block. life ends all
// scopes at a shutdown. plugins ends when draining takes too long, and owned when the plan is given up: nothing
// more is written then.
type run struct {
	engine *Engine
	plan   *workflow.Plan
	slot   *slot
	now    func() time.Time // by the clock of the times that are stored

	// owned ends when the plan is given up. Its cause is the reason.
	owned  context.Context
	giveUp context.CancelCauseFunc
	// writing ends when draining has taken too long. A write that has begun outlives the end of owned.
	writing context.Context
	abort   context.CancelFunc
	// plugins is within owned.
	plugins context.Context
	cut     context.CancelCauseFunc
	// life is within owned.
	life context.Context
	die  context.CancelCauseFunc
	// scope is the scope of the plan, within life. A stop ends it with the cause fleet.ErrStopRequested, and the deadline with
	// errDeadline.
	scope  context.Context
	halt   func()
	expire func()

	results results
	inbox   inbox
	// quiet says that nothing of the plan ran when it was picked up, such as of a plan that has slept.
	quiet bool
	// rests are its waits. wakeAt and steps are set before the work ends because the plan only waits: until when, and after
	// how many calls and writes.
	rests  rests
	wakeAt time.Time
	steps  int
	// pausePlan pauses the plan, and pausable are the actions whose failure does that. Both are nil without Options.PauseOnFailure.
	pausePlan func(ctx context.Context, by workflow.Attribution) error
	// takeTurns takes the turns of the plan of an engine that is alone. It is nil if the plan's owner has done so.
	takeTurns func(ctx context.Context, plan *workflow.Plan) error
	// giveTurns gives back the turns of the plan when it is final.
	giveTurns func(ctx context.Context, plan *workflow.Plan)
	// requested reports whether requests for the plan are left that nobody else removes. It is nil if there are none.
	requested func() bool
	pausable  map[*workflow.Action]string
	// doubts are the actions that an earlier engine may have begun without a trace: of these, an attempt is stored before
	// it begins, so that deaths are counted. A success removes the action.
	doubts sync.Map

	// own guards the plan's own fields, which Stop changes while the work goes on.
	own *semaphore.Weighted
	// ending is set when the outcome is fixed and Stop comes too late. It is guarded by own.
	ending bool
}

// newRun returns a run of a plan. quiet says that nothing of the plan ran before.
func newRun(e *Engine, plan *workflow.Plan, slot *slot, now func() time.Time, ears ears, quiet bool) *run {
	r := &run{engine: e, plan: workflow.InferRunning(plan), slot: slot, now: now, quiet: quiet, own: semaphore.NewWeighted(1)}
	r.inbox = inbox{ears: ears, own: semaphore.NewWeighted(1)}
	r.owned, r.giveUp = context.WithCancelCause(context.Background())
	r.writing, r.abort = context.WithCancel(context.Background())
	r.plugins, r.cut = context.WithCancelCause(r.owned)
	r.life, r.die = context.WithCancelCause(r.owned)
	var halt context.CancelCauseFunc
	r.scope, halt = context.WithCancelCause(r.life)
	r.halt, r.expire = func() { halt(fleet.ErrStopRequested) }, func() { halt(errDeadline) }
	r.ending = ending(r.plan)
	if r.ending && !stops(r.plan.Reason) {
		r.halt, r.expire = func() {}, func() {}
	}
	r.results.fill(r.plan)
	if e.opts.PauseOnFailure {
		r.pausable = pausable(r.plan)
	}
	if plan.State.Status == workflow.Running && plan.Epoch != 1 && !quiet { // this engine has not begun it
		r.doubt()
	}
	return r
}

// ending reports whether the outcome of a plan is fixed: it chose the deferred actions that have begun.
func ending(p *workflow.Plan) bool {
	return p.DeferredActions != nil && p.DeferredActions.State.Status != workflow.NotStarted || !p.Ending.At.IsZero()
}

// doubt notes the actions that an earlier engine may have begun: the first open one of each list, and all of checks.
func (r *run) doubt() {
	var parent workflow.Object // of the last open action
	for o, above := range workflow.Walk(r.plan) {
		a, ok := o.(*workflow.Action)
		if !ok || a.State.Status.Final() {
			continue
		}
		if above != parent || above.Kind() == workflow.KindChecks {
			r.doubts.Store(a, true)
		}
		parent = above
	}
}

// work runs the plan. It returns the reason if the plan was left. When it returns, no write of the plan is in
// flight.
func (r *run) work(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.drain)()
	if ctx.Err() != nil {
		r.die(ErrDraining) // the function above may run later
	}
	defer r.awaitDeadline()()
	err := r.runPlan()
	if err != nil && r.owned.Err() != nil {
		err = context.Cause(r.owned)
	}
	r.giveUp(nil)
	_ = r.own.Acquire(context.Background(), 1) // after the write of a stop
	r.own.Release(1)                           // a later stop finds that the work has ended
	return err
}

// drain ends the work: nothing more begins. What has not ended after Options.Drain is interrupted, and what can't be
// stored within as long again is dropped.
func (r *run) drain() {
	r.die(ErrDraining)
	r.slot.hurry()
	if sleep.For(r.owned, r.engine.opts.Drain) {
		r.cut(ErrDraining)
	}
	if sleep.For(r.owned, r.engine.opts.Drain) {
		r.giveUp(ErrDraining)
		r.abort()
	}
}

// halted reports whether nothing more may begin in a scope. An error means that the plan is left as it is
// stored.
func (r *run) halted(scope context.Context) (bool, error) {
	if r.life.Err() != nil {
		return true, context.Cause(r.life)
	}
	return scope.Err() != nil, nil
}

// wait returns when a delay since a stored time has passed, or when scope ends. A time in the future, of another clock,
// counts as now.
func (r *run) wait(scope context.Context, since time.Time, delay time.Duration) {
	r.rest(scope, delay-max(0, r.now().Sub(since)))
}

// rest returns after d, or when scope ends.
func (r *run) rest(scope context.Context, d time.Duration) {
	defer r.rests.begin(time.Now().Add(d))()
	sleep.For(scope, d)
}

// begin makes an object Running, unless it was Running when the plan was picked up. That is stored if something depends
// on it. Otherwise whoever reads the plan infers it from what is below.
func (r *run) begin(o workflow.Object, stored bool) error {
	s := o.Header().State
	if s.Status != workflow.NotStarted {
		return nil
	}
	s.Status, s.Start = workflow.Running, r.now()
	if !stored {
		return nil
	}
	return r.write(o)
}

// end makes an object final.
func (r *run) end(o workflow.Object, status workflow.Status) error {
	s := o.Header().State
	s.Status, s.End = status, r.now()
	return r.write(o)
}

// write stores an object. If that fails, the plan is given up.
func (r *run) write(o workflow.Object) error {
	err := r.store(r.owned, o)
	if err != nil {
		r.giveUp(err)
	}
	return err
}

// store stores an object. All changes pass through it. While the vault is unavailable or refuses the engine, store
// tries again until ctx ends: the plan stands as it is, and no result is lost.
func (r *run) store(ctx context.Context, o workflow.Object) error {
	if err := r.slot.begin(ctx); err != nil {
		return err
	}
	defer r.slot.end()
	for pause := firstPause; ; pause *= 2 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := r.update(o)
		if !repeatable(err) {
			if err == nil {
				if a, ok := o.(*workflow.Action); ok {
					r.results.stored(a)
				}
				r.engine.opts.Observer.Changed(r.owned, ChangedEvent{o})
			}
			r.engine.hindered(r.owned, r.plan.ID, nil)
			return err
		}
		r.engine.hindered(r.owned, r.plan.ID, err)
		pause = min(pause, longestPause(err))
		sleep.For(ctx, pause)
	}
}

// update makes one request. When the plan is given up it ends by itself, unless that is the end of draining.
func (r *run) update(o workflow.Object) error {
	ctx, cancel := context.WithTimeout(r.writing, r.engine.opts.Patience/4)
	defer cancel()
	return storage.Update(ctx, r.engine.vault, o)
}

// firstPause is the pause before the first repetition of a call. Pauses double.
const firstPause = 100 * time.Millisecond

// longestPause returns the longest pause after an error. A refusal may last for hours.
func longestPause(err error) time.Duration {
	if errors.Is(err, storage.ErrDenied) {
		return time.Minute
	}
	return 5 * time.Second
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
	case workflow.StopRequested, workflow.DeadlineExceeded:
		return workflow.Stopped
	}
	return workflow.Failed
}

// stops reports whether a reason is one for which nothing more of a plan begins.
func stops(reason workflow.FailureReason) bool { return statusOf(reason) == workflow.Stopped }
