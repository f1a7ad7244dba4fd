package engine

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// owner is what owns a plan in the store, for this engine: a node of a fleet, or a claim for an engine of another kind. Package
// fleet says what its methods do.
type owner interface {
	Now() time.Time
	Woken() bool
	Take(ctx context.Context) (*workflow.Plan, error)
	Sleep(ctx context.Context, plan *workflow.Plan, until time.Time, lastSignal int) error
	Pause(ctx context.Context, by workflow.Attribution) error
	Signals() (last int, more <-chan struct{})
	GiveTurns(ctx context.Context, plan *workflow.Plan)
	// Asked reports whether requests for the plan are left that nobody else removes when it is final.
	Asked() bool
	// ends returns the contexts that end when the plan is no longer to be worked on, first that of the work on it.
	ends() []context.Context
}

// workFor works on a plan that has an owner until it is final or asleep, or must be given up, which the error says. It returns
// the plan as the owner has stored it last, unless somebody else has.
func (e *Engine) workFor(ctx context.Context, o owner, plan *workflow.Plan, s *slot) (*workflow.Plan, error) {
	work := o.ends()[0]
	for quiet := o.Woken(); ; s.again() {
		r := newRun(e, plan, s, o.Now, ownersEars{o}, quiet)
		r.pausePlan, r.requested, r.giveTurns = o.Pause, o.Asked, o.GiveTurns
		e.enter(r)
		e.opts.Observer.PickedUp(ctx, PickedUpEvent{r.plan})
		err := e.obey(ctx, r, o)
		goesOn := false
		switch {
		case errors.Is(err, errDozing) && (work.Err() != nil || !r.maySleep()):
			goesOn, err = true, nil // at once
		case errors.Is(err, fleet.ErrPaused):
			r.wakeAt = o.Now()
			fallthrough
		case errors.Is(err, errDozing):
			err = e.letSleep(ctx, o, r)
		case errors.Is(err, ErrDraining) && r.plan.External.Name != "" && !errors.Is(context.Cause(r.owned), ErrDraining):
			// All writes are answered, so whoever places the plan next needs no epoch, and no fence.
			r.wakeAt = o.Now()
			if err = e.letSleep(ctx, o, r); errors.Is(err, fleet.ErrAsleep) {
				err = ErrDraining
			}
		}
		plan, quiet = r.plan, goesOn
		if mayGoOn(err) {
			plan, err = e.takeAgain(ctx, r.plan.ID, o)
			goesOn = err == nil && !plan.State.Status.Final()
		}
		if e.exit(ctx, r, err); !goesOn {
			return plan, err
		}
	}
}

// letSleep lets the plan of a run sleep, which has ended because it only waits, is paused, or a process ends. It returns
// fleet.ErrAsleep if the plan sleeps.
func (e *Engine) letSleep(ctx context.Context, o owner, r *run) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opts.Patience/4)
	defer cancel()
	if err := o.Sleep(ctx, r.plan, r.wakeAt, lastSignal(r.plan)); err != nil {
		return err
	}
	e.opts.Observer.Changed(ctx, ChangedEvent{r.plan})
	return fleet.ErrAsleep
}

// obey works on a plan as long as its owner may.
func (e *Engine) obey(ctx context.Context, r *run, o owner) error {
	for _, c := range o.ends() {
		obey := func() {
			switch cause := context.Cause(c); {
			case errors.Is(cause, fleet.ErrStopRequested):
				_ = r.stop(r.owned, attributionOf(cause)) // unless the plan is ending, or is given up
			case errors.Is(cause, fleet.ErrPaused):
				r.die(cause)
				r.slot.hurry()
			case errors.Is(cause, fleet.ErrSuspended):
				if r.plan.External.Name == "" { // else nobody notes that the vault is open again
					e.suspended.Store(true)
				}
				r.drain()
			default:
				r.giveUp(cause)
			}
		}
		if cause := context.Cause(c); errors.Is(cause, fleet.ErrStopRequested) {
			if r.own.TryAcquire(1) { // the run may end before the function above stores it
				r.asked(attributionOf(cause))
				r.own.Release(1)
			}
			r.halt() // before anything begins
		} else if errors.Is(cause, fleet.ErrPaused) {
			r.die(cause)
		} else if cause != nil {
			r.giveUp(cause)
		}
		defer context.AfterFunc(c, obey)()
	}
	err := r.work(ctx)
	if cause := context.Cause(o.ends()[0]); errors.Is(err, ErrDraining) && errors.Is(cause, fleet.ErrSuspended) {
		return cause
	}
	return err
}

// attributionOf returns who asked for the stop that is the cause.
func attributionOf(cause error) workflow.Attribution {
	if asked, ok := errors.AsType[*fleet.StopError](cause); ok {
		return asked.Attribution
	}
	return workflow.Attribution{}
}

// mayGoOn reports whether work that ended with this error goes on if the node takes the plan again.
func mayGoOn(err error) bool { return errors.Is(err, storage.ErrConflict) || repeatable(err) }

// takeAgain fences off whoever has written to the plan, and reads it. The plan may be final.
func (e *Engine) takeAgain(ctx context.Context, id uuid.UUID, o owner) (*workflow.Plan, error) {
	for pause := e.opts.RetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		plan, err := o.Take(ctx)
		switch {
		case err == nil && plan.State.Status.Final():
			e.opts.Observer.Changed(ctx, ChangedEvent{plan})
			e.waits.ended(plan)
			return plan, nil
		case err == nil:
			return plan, nil
		case ctx.Err() != nil:
			return nil, ErrDraining // whoever takes the plan next finishes the fence
		case !mayGoOn(err):
			return nil, err
		}
		e.hindered(ctx, id, err)
		sleep.For(ctx, min(pause, max(longestPause(err), e.opts.RetryDelay)))
	}
}
