package engine

import (
	"context"

	"github.com/planvault/azblob/workflow"
)

// runInOrder runs a sequence or a batch of deferred actions: one action after the other, until one fails.
func (r *run) runInOrder(scope context.Context, o workflow.Object, actions []*workflow.Action) error {
	state := o.Header().State
	if state.Status.Final() {
		return nil
	}
	if halted, err := r.halted(scope); err != nil || halted && state.Status == workflow.NotStarted {
		return err
	}
	_ = r.begin(o, false)
	for _, a := range actions {
		if err := r.runAction(scope, a, workflow.Completed, 0); err != nil {
			return err
		}
		if a.State.Status == workflow.Failed {
			break
		}
	}
	return r.end(o, verdict(actions))
}
