package engine

import (
	"slices"

	"github.com/planvault/azblob/workflow"
)

// runDeferred runs the batches for the outcome, one after the other. It reports whether a batch failed that
// fails the plan.
func (r *run) runDeferred(outcome workflow.FailureReason) (failed bool, err error) {
	d := r.plan.DeferredActions
	if d == nil {
		return false, nil
	}
	if !d.State.Status.Final() {
		if _, err := r.halted(r.life); err != nil {
			return false, err
		}
		if err := r.begin(d, true); err != nil { // the outcome is fixed now
			return false, err
		}
		status := workflow.Completed
		for _, b := range d.Batches {
			if !due(b.When, outcome) {
				continue
			}
			if err := r.runInOrder(r.life, b, b.Actions); err != nil {
				return false, err
			}
			if b.State.Status == workflow.Failed {
				status = workflow.Failed
			}
		}
		if err := r.end(d, status); err != nil {
			return false, err
		}
	}
	return slices.ContainsFunc(d.Batches, func(b *workflow.DeferBatch) bool {
		return b.FailElement && b.State.Status == workflow.Failed
	}), nil
}

// due reports whether a batch runs at an outcome.
func due(when workflow.When, outcome workflow.FailureReason) bool {
	switch when {
	case workflow.OnSuccess:
		return outcome == workflow.NoFailure
	case workflow.OnFailure:
		return outcome != workflow.NoFailure
	}
	return true
}
