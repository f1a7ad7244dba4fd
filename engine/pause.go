package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/workflow"
)

// pausable returns the actions whose failure pauses the plan, with their paths: none of a bypass check, whose failure is an
// answer, of a block that tolerates failures, or of deferred work, which cleans up.
func pausable(plan *workflow.Plan) map[*workflow.Action]string {
	all, spared := map[*workflow.Action]string{}, map[workflow.Object]bool{}
	above := map[workflow.Object]workflow.Object{}
	for o, parent := range workflow.Walk(plan) {
		above[o] = parent
	}
	for o, path := range workflow.Paths(plan) {
		spared[o] = spared[above[o]] || o.Kind() == workflow.KindDeferredActions
		switch o := o.(type) {
		case *workflow.Block:
			spared[o] = spared[o] || o.ToleratedFailures != 0
		case *workflow.Checks:
			checks := workflow.ChecksOf(above[o])
			spared[o] = spared[o] || *checks[0] == o || *checks[4] == o
		case *workflow.Action:
			if !spared[o] {
				all[o] = path
			}
		}
	}
	return all
}

// pauseInstead pauses the plan because an action that may run again has failed, and reports whether it has. The note is stored
// before the attempt: after a death in between, the plan is paused all the same.
func (r *run) pauseInstead(a *workflow.Action, message string) bool {
	path, may := r.pausable[a]
	cause := context.Cause(r.scope)
	if !may || left(a) == 0 || errors.Is(cause, fleet.ErrStopRequested) || errors.Is(cause, errDeadline) {
		return false
	}
	by := workflow.Attribution{By: "engine", Why: lineOf(fmt.Sprintf("action %s failed: %s", path, message))}
	for wait := firstPause; ; wait = min(2*wait, 5*time.Second) {
		err := r.pausePlan(r.owned, by)
		if err == nil {
			r.die(fleet.ErrPaused) // before anything else begins
			return true
		}
		if r.owned.Err() != nil {
			return false
		}
		if !repeatable(err) {
			r.engine.opts.Observer.Problem(r.owned, ProblemEvent{fmt.Errorf("%w; the action fails", err)})
			return false
		}
		sleep.For(r.owned, wait)
	}
}

// sincePause returns where the attempts begin that count: after the last one that paused the plan.
func sincePause(attempts []workflow.Attempt) int {
	for i := len(attempts); i > 0; i-- {
		if attempts[i-1].Paused {
			return i
		}
	}
	return 0
}
