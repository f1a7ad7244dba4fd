package engine

import (
	"context"

	"github.com/planvault/azblob/workflow"
)

// runPlan runs the plan to its end: its blocks within its checks, then its deferred actions.
func (r *run) runPlan() error {
	if err := r.beginPlan(); err != nil {
		return err
	}
	reason, err := r.within(r.scope, r.plan, r.runBlocks)
	if err != nil {
		return err
	}
	if reason, err = r.outcome(reason); err != nil {
		return err
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
	defer r.own.Release(1)
	if r.plan.Reason == workflow.StopRequested {
		r.halt()
	}
	return r.begin(r.plan)
}

// outcome fixes the outcome, which chooses the deferred actions. From here on the plan can't be stopped.
func (r *run) outcome(reason workflow.FailureReason) (workflow.FailureReason, error) {
	if err := r.own.Acquire(r.owned, 1); err != nil {
		return reason, err
	}
	defer r.own.Release(1)
	r.ending = true
	if reason == workflow.NoFailure && r.plan.Reason == workflow.StopRequested {
		reason = workflow.StopRequested
	}
	return reason, nil
}

func (r *run) endPlan(reason workflow.FailureReason) error {
	r.plan.Reason = reason
	return r.end(r.plan, statusOf(reason))
}

// stop stores the request to stop the plan, and then halts it.
func (r *run) stop(ctx context.Context) error {
	if err := r.own.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.own.Release(1)
	if r.ending || r.owned.Err() != nil {
		return ErrNotRunning
	}
	r.plan.Reason = workflow.StopRequested
	if err := r.write(r.plan); err != nil {
		return err
	}
	r.halt()
	return nil
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
		sleepUntil(scope, b.State.End.Add(b.ExitDelay))
	}
	// A halt during the last exit delay counts.
	halted, err := r.halted(scope)
	if halted {
		return workflow.StopRequested, err
	}
	return workflow.NoFailure, err
}
