package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// runPlan runs the plan to its end: its blocks within its checks, then its deferred actions.
func (r *run) runPlan() error {
	if err := r.beginPlan(); err != nil {
		return err
	}
	if e := r.plan.Ending; !e.At.IsZero() {
		return r.endPlan(e.Reason)
	}
	var reason workflow.FailureReason
	var err error
	turnless := r.turnless()
	if !turnless {
		reason, err = r.within(r.scope, r.plan, r.runBlocks)
	}
	if err == nil {
		reason, err = r.outcome(reason)
	}
	if err != nil {
		return err
	}
	if turnless {
		return r.endPlan(reason)
	}
	failed, err := r.runDeferred(reason)
	if err != nil {
		return err
	}
	if failed && !failure(reason) {
		reason = workflow.DeferredActionFailed
	}
	return r.endPlan(reason)
}

func (r *run) beginPlan() error {
	if _, err := r.halted(r.scope); err != nil {
		return err // shut down before the plan's turn
	}
	if err := r.own.Acquire(r.owned, 1); err != nil {
		return err
	}
	err := r.beginOwned()
	r.own.Release(1) // a stop need not wait for the turns
	if err != nil || r.takeTurns == nil || r.scope.Err() != nil || fleet.OnlyEnds(r.plan, r.now()) {
		return err
	}
	return r.takeTurnsAlone()
}

// beginOwned begins the plan. The caller holds own.
func (r *run) beginOwned() error {
	switch r.plan.Reason {
	case workflow.StopRequested:
		r.halt()
	case workflow.DeadlineExceeded:
		r.expire()
	}
	if r.plan.Owner == uuid.Nil && (r.plan.Asleep() || !r.plan.Alone) { // nobody else wakes or claims it
		r.plan.WakeAt, r.plan.LastSignal, r.plan.WaitsFor, r.plan.Alone = time.Time{}, 0, "", true
		if r.plan.State.Status == workflow.Running {
			if err := r.write(r.plan); err != nil {
				return err
			}
		}
	}
	return r.begin(r.plan, true)
}

// turnless reports whether the plan ends before it has begun, perhaps without turns: then nothing of it runs, not even what is
// deferred.
func (r *run) turnless() bool {
	if cause := context.Cause(r.scope); !fleet.TakesTurns(r.plan) || !errors.Is(cause, fleet.ErrStopRequested) && !errors.Is(cause, errDeadline) {
		return false
	}
	for o := range workflow.Walk(r.plan) {
		if o != workflow.Object(r.plan) && o.Header().State.Status != workflow.NotStarted {
			return false
		}
	}
	return true
}

// outcome fixes the outcome, which chooses the deferred actions. From here on the plan can't be stopped. A stop that has
// halted the work is stored first: whoever takes the plan while the deferred actions run must not go on with the work.
func (r *run) outcome(reason workflow.FailureReason) (workflow.FailureReason, error) {
	if err := r.own.Acquire(r.owned, 1); err != nil {
		return reason, err
	}
	defer r.own.Release(1)
	r.ending = true
	if !stops(r.plan.Reason) {
		switch cause := context.Cause(r.scope); {
		case errors.Is(cause, fleet.ErrStopRequested):
			r.plan.Reason = workflow.StopRequested
		case errors.Is(cause, errDeadline):
			r.plan.Reason = workflow.DeadlineExceeded
		default:
			return reason, nil
		}
		if r.plan.DeferredActions != nil {
			if err := r.write(r.plan); err != nil {
				return reason, err
			}
		}
	}
	if !failure(reason) {
		reason = r.plan.Reason
	}
	return reason, nil
}

// endPlan ends the plan, also if its results have become too large for the vault.
func (r *run) endPlan(reason workflow.FailureReason) error {
	if err := r.tellEnded(reason); err != nil {
		return err
	}
	r.plan.Reason = reason
	s := &r.plan.State
	if s.Status, s.End = statusOf(reason), r.plan.Ending.At; s.End.IsZero() {
		s.End = r.now()
	}
	err := r.store(r.owned, r.plan)
	if errors.Is(err, storage.ErrInvalid) && r.shrink(err) {
		err = r.store(r.owned, r.plan)
	}
	if err != nil {
		r.giveUp(err)
		return err
	}
	r.engine.waits.ended(r.plan)
	r.removeSignals()
	ctx, cancel := context.WithTimeout(r.writing, r.engine.opts.Patience/4)
	defer cancel()
	r.giveTurns(ctx, r.plan)
	return nil
}

// shrink drops results of a plan that is too large to end, which an engine with other limits has stored. It reports whether
// it dropped any.
func (r *run) shrink(because error) (shrunk bool) {
	for o := range workflow.Walk(r.plan) {
		a, ok := o.(*workflow.Action)
		if !ok || r.results.size() <= r.engine.opts.MaxResults/2 {
			continue
		}
		r.results.drop(a.Attempts)
		r.engine.opts.Observer.Problem(r.owned, ProblemEvent{fmt.Errorf("end plan %s: drop the results of action %s: %w", r.plan.ID, a.ID, because)})
		for i := range a.Attempts {
			a.Attempts[i].Resp = nil
		}
		if r.store(r.owned, a) != nil {
			return false
		}
		shrunk = true
	}
	return shrunk
}

// stop stores the request to stop the plan, and then halts it. If the request can't be stored until ctx ends, the plan
// is halted all the same, and the write goes on.
func (r *run) stop(ctx context.Context, by workflow.Attribution) error {
	r.slot.hurry()
	if err := r.own.Acquire(ctx, 1); err != nil {
		r.halt() // the plan itself is being stored
		return err
	}
	if r.ending || r.owned.Err() != nil {
		r.own.Release(1)
		return fleet.ErrNotRunning
	}
	r.plan.Reason = workflow.StopRequested
	r.asked(by)
	stored := make(chan error, 1)
	go func() { // until the outcome is known: only the same write again settles it
		defer r.own.Release(1)
		stored <- r.write(r.plan)
	}()
	defer r.halt()
	select {
	case err := <-stored:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// asked notes who asked the plan to stop, if that is known. The first one counts. The caller holds own.
func (r *run) asked(by workflow.Attribution) {
	if r.ending || by.By+by.Why == "" || r.plan.Stopped.By+r.plan.Stopped.Why != "" {
		return
	}
	if by.At.IsZero() {
		by.At = r.now()
	}
	r.plan.Stopped = by
}

// runBlocks runs the blocks one after the other, until one fails.
func (r *run) runBlocks(scope context.Context) (workflow.FailureReason, error) {
	for _, b := range r.plan.Blocks {
		if err := r.runBlock(scope, b); err != nil {
			return 0, err
		}
		switch b.State.Status {
		case workflow.Completed:
		case workflow.Failed:
			return workflow.BlockFailed, nil
		default:
			return workflow.StopRequested, nil
		}
		r.wait(scope, b.State.End, b.ExitDelay)
	}
	// A halt during the last exit delay counts.
	halted, err := r.halted(scope)
	if halted {
		return workflow.StopRequested, err
	}
	return workflow.NoFailure, err
}
