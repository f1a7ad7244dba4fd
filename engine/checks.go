package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/workflow"
)

// keptAttempts is the number of attempts that an action of a continuous check keeps.
const keptAttempts = 10

// within does the work of a plan or block inside its checks. It returns why the plan or block fails, if it
// does.
func (r *run) within(scope context.Context, o workflow.Object, work func(context.Context) (workflow.FailureReason, error)) (workflow.FailureReason, error) {
	checks := workflow.ChecksOf(o)
	bypass, pre, cont, post, deferred := *checks[0], *checks[1], *checks[2], *checks[3], *checks[4]
	reason, err := r.guarded(scope, bypass, pre, cont, post, work)
	if err != nil {
		return reason, err
	}
	status, err := r.runChecks(r.life, deferred) // even if the scope was halted
	if status == workflow.Failed && !failure(reason) {
		reason = workflow.DeferredCheckFailed
	}
	return reason, err
}

// guarded is within without the deferred checks.
func (r *run) guarded(scope context.Context, bypass, pre, cont, post *workflow.Checks, work func(context.Context) (workflow.FailureReason, error)) (workflow.FailureReason, error) {
	if bypass != nil {
		status, err := r.runChecks(scope, bypass)
		if err != nil || status == workflow.Completed {
			return workflow.NoFailure, err
		}
	}
	status, err := r.runChecks(scope, pre)
	if reason := reasonOf(status, workflow.PreCheckFailed); err != nil || reason != workflow.NoFailure {
		return reason, err
	}
	reason, err := r.beside(scope, cont, work)
	if err != nil || failure(reason) {
		return reason, err
	}
	// After a stop these are the checks that ran before a restart, if there are any.
	status, err = r.runChecks(scope, post)
	return cmp.Or(reasonOf(status, workflow.PostCheckFailed), reason), err
}

// reasonOf returns the failure reason of a plan or block whose checks end with a status.
func reasonOf(status workflow.Status, failure workflow.FailureReason) workflow.FailureReason {
	switch status {
	case workflow.Completed:
		return workflow.NoFailure
	case workflow.Failed:
		return failure
	}
	return workflow.StopRequested
}

// runChecks runs all actions of a group concurrently. A missing group counts as Completed.
func (r *run) runChecks(scope context.Context, c *workflow.Checks) (workflow.Status, error) {
	if c == nil {
		return workflow.Completed, nil
	}
	if c.State.Status.Final() {
		return c.State.Status, nil
	}
	if halted, err := r.halted(scope); err != nil || halted && c.State.Status == workflow.NotStarted {
		return c.State.Status, err
	}
	if err := r.begin(c, c.Delay > 0); err != nil {
		return c.State.Status, err
	}
	r.wait(scope, c.State.Start, c.Delay)
	if err := r.runAtOnce(scope, c, workflow.Completed, false); err != nil {
		return c.State.Status, err
	}
	err := r.end(c, verdict(c.Actions))
	return c.State.Status, err
}

// runAtOnce runs the actions of a group. If begun is set, they go on with a round of continuous checks.
func (r *run) runAtOnce(scope context.Context, c *workflow.Checks, passed workflow.Status, begun bool) error {
	var g errgroup.Group
	for _, a := range c.Actions {
		if n := len(a.Attempts); begun && n > 0 && succeeded(a.Attempts[n-1]) {
			continue
		}
		since := 0
		if passed != workflow.Completed {
			for since = len(a.Attempts); since > 0 && !succeeded(a.Attempts[since-1]); since-- { // each round is judged alone
			}
		}
		g.Go(func() error { return r.runAction(scope, a, passed, since) })
	}
	return g.Wait()
}

// beside does the work while the continuous checks run.
func (r *run) beside(scope context.Context, cont *workflow.Checks, work func(context.Context) (workflow.FailureReason, error)) (workflow.FailureReason, error) {
	if cont == nil {
		return work(scope)
	}
	scope, halt := context.WithCancel(scope)
	defer halt()
	if verdict(cont.Actions) == workflow.Failed {
		halt() // it failed before a restart
	}
	var checks errgroup.Group
	done := make(chan struct{})
	checks.Go(func() error {
		err := r.runRounds(scope, cont, done)
		if cont.State.Status == workflow.Failed {
			halt()
		}
		return err
	})
	reason, err := work(scope)
	if err == nil && reason != workflow.StopRequested {
		close(done)
	} else {
		halt() // the work ended early; the checks end too
	}
	if checksErr := checks.Wait(); err == nil {
		err = checksErr
	}
	if cont.State.Status == workflow.Failed && !failure(reason) {
		reason = workflow.ContCheckFailed
	}
	return reason, err
}

// runRounds repeats checks until the work is done or a check fails.
func (r *run) runRounds(scope context.Context, c *workflow.Checks, done <-chan struct{}) error {
	pause := cmp.Or(c.Delay, r.engine.opts.ContDelay)
	last := lastRound(c)
	if r.quiet && !last.IsZero() && r.restBeside(scope, done, pause-max(0, r.now().Sub(last))) {
		return r.endRounds(c, workflow.Completed, workflow.Completed)
	}
	for begun := r.quiet && last.IsZero(); !c.State.Status.Final(); begun = false {
		if verdict(c.Actions) == workflow.Failed {
			return r.endRounds(c, workflow.Completed, workflow.Failed)
		}
		halted, err := r.halted(scope)
		switch {
		case err != nil:
			return err
		case halted && c.State.Status == workflow.NotStarted:
			return nil
		case halted:
			return r.endRounds(c, workflow.Stopped, workflow.Stopped)
		}
		_ = r.begin(c, false)
		for _, a := range c.Actions {
			over := max(0, len(a.Attempts)-keptAttempts+1)
			r.results.drop(a.Attempts[:over])
			a.Attempts = slices.Delete(a.Attempts, 0, over)
		}
		if err := r.runAtOnce(scope, c, workflow.Running, begun); err != nil {
			return err
		}
		if verdict(c.Actions) == workflow.Failed {
			continue
		}
		if r.restBeside(scope, done, pause) {
			return r.endRounds(c, workflow.Completed, workflow.Completed)
		}
	}
	return nil
}

// restBeside rests for d, but no longer than scope and the work last. It reports whether the work is done.
func (r *run) restBeside(scope context.Context, done <-chan struct{}, d time.Duration) bool {
	defer r.rests.begin(time.Now().Add(d))()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-scope.Done():
	case <-done:
		return true
	}
	return false
}

// lastRound returns when the last round ended, or the zero time if one is open or none has been made.
func lastRound(c *workflow.Checks) (last time.Time) {
	for _, a := range c.Actions {
		if len(a.Attempts) == 0 || !succeeded(a.Attempts[len(a.Attempts)-1]) {
			return time.Time{}
		}
		if end := a.Attempts[len(a.Attempts)-1].End; end.After(last) {
			last = end
		}
	}
	return last
}

// succeeded reports whether an attempt has succeeded, which ends the part of an action in a round.
func succeeded(t workflow.Attempt) bool { return !t.End.IsZero() && t.Err == nil && !t.Interrupted }

// endRounds ends continuous checks and their open actions.
func (r *run) endRounds(c *workflow.Checks, actions, checks workflow.Status) error {
	for _, a := range c.Actions {
		if a.State.Status == workflow.Running {
			r.abandon(a)
			if err := r.end(a, actions); err != nil {
				return err
			}
		}
	}
	return r.end(c, checks)
}
