package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// maxRetryDelay is the largest delay before a retry.
const maxRetryDelay = time.Minute

// runAction makes attempts at an action that is not final, until one succeeds or no retry is left. Attempts
// before the index since do not count. After a success the action has the status passed.
func (r *run) runAction(scope context.Context, a *workflow.Action, passed workflow.Status, since int) error {
	for !a.State.Status.Final() {
		failures, last := failed(a.Attempts[since:])
		if failures > 0 {
			sleepUntil(scope, last.Add(min(r.engine.opts.RetryDelay<<min(failures-1, 16), maxRetryDelay)))
		}
		halted, err := r.halted(scope)
		switch {
		case err != nil:
			return err
		case halted && a.State.Status == workflow.NotStarted:
			return nil
		case halted:
			return r.end(a, workflow.Stopped)
		}
		succeeded, err := r.attempt(a, passed, failures >= a.Retries)
		if err != nil || succeeded {
			return err
		}
	}
	return nil
}

// failed counts the failed attempts and returns the time of the last failure.
func failed(attempts []workflow.Attempt) (n int, last time.Time) {
	for _, t := range attempts {
		if t.Err != nil {
			n, last = n+1, t.End
		}
	}
	return n, last
}

// attempt runs an action once. It stores the attempt before the action runs, and the outcome with the
// action's new state.
func (r *run) attempt(a *workflow.Action, passed workflow.Status, final bool) (succeeded bool, err error) {
	now := time.Now().UTC()
	if a.State.Status == workflow.NotStarted {
		a.State.Status, a.State.Start = workflow.Running, now
	}
	a.Attempts = append(a.Attempts, workflow.Attempt{Start: now})
	if err := r.write(a); err != nil {
		return false, err
	}
	t := &a.Attempts[len(a.Attempts)-1]
	t.Resp, t.Err = r.call(a)
	t.End = time.Now().UTC()
	status := workflow.Running
	switch {
	case t.Err == nil:
		status = passed
	case t.Err.Permanent || final:
		status = workflow.Failed
	}
	become := func(status workflow.Status) {
		if a.State.Status = status; status.Final() {
			a.State.End = t.End
		}
	}
	become(status)
	err = r.store(a) // fails if the plan was given up and the plugin cancelled
	if errors.Is(err, storage.ErrInvalid) {
		// A response that can't be stored is the plugin's mistake. Without a failure the action would run
		// again at each start.
		t.Resp, t.Err = nil, &plugins.Error{Message: "the vault refuses the plugin's response: " + err.Error(), Permanent: true}
		become(workflow.Failed)
		err = r.write(a)
	} else if err != nil {
		r.giveUp(err)
	}
	return t.Err == nil, err
}

// call runs the plugin within the timeout.
func (r *run) call(a *workflow.Action) (resp any, failure *plugins.Error) {
	plugin, err := r.engine.plugin(a)
	if err != nil {
		return nil, &plugins.Error{Message: err.Error(), Permanent: true}
	}
	timeout := cmp.Or(a.Timeout, r.engine.opts.Timeout)
	ctx, cancel := context.WithTimeout(r.owned, timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // one plugin must not end all plans
			resp, failure = nil, &plugins.Error{Message: fmt.Sprintf("the plugin panicked: %v", p), Permanent: true}
		}
		if failure != nil {
			failure.Message = strings.ToValidUTF8(failure.Message, "\uFFFD") // the vault requires UTF-8
		}
	}()
	resp, err = plugin.Run(ctx, Call{Action: a.ID, Plan: r.plan.ID, Epoch: r.plan.Epoch, Attempt: len(a.Attempts)}, a.Req)
	if err == nil {
		return resp, nil
	}
	own, ok := errors.AsType[*plugins.Error](err)
	switch {
	case ok:
		failure = new(*own)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		failure = &plugins.Error{Message: fmt.Sprintf("timed out after %v", timeout)}
	default:
		failure = &plugins.Error{Message: err.Error()}
	}
	return resp, failure
}
