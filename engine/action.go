package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/secrets"
	"github.com/planvault/azblob/internal/values"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

const (
	// lastWords is how long a plugin has to return after its context has ended at a shutdown.
	lastWords = time.Second
	// maxMessage is the most bytes of a failure's message, and maxStack those of a stack in it.
	maxMessage, maxStack = 64 << 10, 8 << 10
)

// runAction makes attempts at an action that is not final, until one succeeds or no retry is left. Failures
// before the index since do not count. After a success the action has the status passed.
func (r *run) runAction(scope context.Context, a *workflow.Action, passed workflow.Status, since int) error {
	if crashes := unended(a.Attempts); crashes > r.engine.opts.Crashes && !a.State.Status.Final() {
		return r.exceed(a, crashes)
	}
	policy := r.engine.policyOf(a)
	for !a.State.Status.Final() {
		failures, last := failed(a.Attempts[max(since, sincePause(a.Attempts)):])
		switch {
		case waiting(a):
			r.awaitCall(scope, a)
		case failures > 0:
			r.wait(scope, last.End, policy.wait(a.ID, failures, last.Err))
		}
		if r.life.Err() != nil { // without a place
			return context.Cause(r.life)
		}
		over, err := r.step(scope, a, passed, failures >= policy.retries || lastAttempt(a))
		if over || err != nil {
			return err
		}
	}
	return nil
}

// step makes an attempt, once the plan has a place, unless nothing more may begin. It reports whether the action is over.
func (r *run) step(scope context.Context, a *workflow.Action, passed workflow.Status, final bool) (over bool, err error) {
	if err := r.slot.begin(r.owned); err != nil {
		r.giveUp(err)
		return false, err
	}
	defer r.slot.end()
	halted, err := r.halted(scope)
	switch {
	case err != nil:
		return false, err
	case halted && a.State.Status == workflow.NotStarted:
		return true, nil
	case halted:
		r.abandon(a)
		return true, r.end(a, workflow.Stopped)
	case !mayCall(a):
		return true, r.exhaust(a)
	}
	return r.attempt(a, passed, final)
}

// failed counts the failed attempts and returns the last one.
func failed(attempts []workflow.Attempt) (n int, last workflow.Attempt) {
	for _, t := range attempts {
		if t.Err != nil && !t.Interrupted {
			n, last = n+1, t
		}
	}
	return n, last
}

// unended counts the attempts during which the process died or the node was fenced, unless it drained or was evicted. A
// round of a continuous check that succeeded shows that those before it were not the action's fault.
func unended(attempts []workflow.Attempt) (n int) {
	for _, t := range attempts {
		switch {
		case t.Interrupted, t.Later != nil && !t.Later.Called:
		case t.End.IsZero():
			n++
		case t.Err == nil:
			n = 0
		}
	}
	return n
}

// exceed lets an action fail that has ended too many processes, or seems to have.
func (r *run) exceed(a *workflow.Action, crashes int) error {
	t := &a.Attempts[len(a.Attempts)-1]
	t.Later = nil
	if t.Err == nil {
		t.Err = &plugins.Error{Permanent: true, Message: fmt.Sprintf(
			"%s: %d attempts never ended, because their process died or lost the plan; Options.Crashes allows %d", workflow.ExceededRecovery, crashes, r.engine.opts.Crashes)}
	}
	return r.end(a, workflow.Failed)
}

// left returns how often an action may still run, or -1 if there is no bound.
func left(a *workflow.Action) int {
	if a.AtMost == 0 {
		return -1
	}
	return max(0, a.AtMost-len(a.Attempts))
}

// exhaust lets an action fail whose last attempt was interrupted or never ended, and that may not run again.
func (r *run) exhaust(a *workflow.Action) error {
	t, became := &a.Attempts[len(a.Attempts)-1], "never ended"
	if t.Interrupted {
		became = "was interrupted"
	}
	t.Later, t.Err = nil, &plugins.Error{Permanent: true, Wrapped: t.Err, Message: fmt.Sprintf(
		"attempt %d %s, and AtMost allows no other one: the action may have had its effect", len(a.Attempts), became)}
	return r.end(a, workflow.Failed)
}

// attempt runs an action once. It stores the attempt before the action runs, unless that is idempotent and has not begun
// before, and the outcome with the action's new state.
func (r *run) attempt(a *workflow.Action, passed workflow.Status, final bool) (succeeded bool, err error) {
	stored, err := r.beginAttempt(a)
	if err != nil {
		return false, err
	}
	t := &a.Attempts[len(a.Attempts)-1]
	resp, failure, again, err := r.call(a, stored)
	t.Interrupted = false
	switch {
	case err != nil:
		return false, err
	case again != nil:
		return false, r.postpone(a, again)
	case failure != nil && t.Later != nil && r.plugins.Err() != nil && !failure.Permanent:
		if a.AtMost > 0 { // only another attempt may make the call again, with the state that this one keeps
			t.Interrupted = true
			return false, r.write(a)
		}
		return false, r.postpone(a, &later{state: t.Later.State, lastSignal: t.Later.LastSignal, what: t.Later.For}) // the call is made again, not the attempt
	}
	t.Resp, t.Err, t.End, t.Later = resp, failure, r.now(), nil
	status := workflow.Running
	switch {
	case t.Err == nil:
		status = passed
		r.doubts.Delete(a)
	case r.plugins.Err() != nil && !t.Err.Permanent:
		t.Interrupted = true
	case t.Err.Permanent || final:
		if t.Paused = r.pauseInstead(a, t.Err.Message); !t.Paused {
			status = workflow.Failed
		}
	}
	become := func(status workflow.Status) {
		if a.State.Status = status; status.Final() {
			a.State.End = t.End
		}
	}
	become(status)
	err = r.store(r.owned, a) // fails if the plan was given up
	if errors.Is(err, storage.ErrInvalid) {
		// A response that can't be stored is the plugin's mistake. Without a failure the action would run
		// again at each start.
		r.results.drop([]workflow.Attempt{*t})
		t.Resp, t.Err = nil, failureOf(fmt.Errorf("the vault refuses the plugin's response: %w", err), true, a.RedactText)
		become(workflow.Failed)
		err = r.write(a)
	} else if err != nil {
		r.giveUp(err)
	}
	return t.Err == nil, err
}

// outcome is what a call of a plugin returned.
type outcome struct {
	resp    any             // as it is stored; the plugin may go on to change what it returned
	text    json.RawMessage // its JSON
	secrets []string        // where there are secrets in it
	unfit   error
	err     error
	// permanent says that no other attempt can do better, whatever err is.
	permanent bool
}

// call runs the plugin within the timeout, and returns what became of the attempt, or that the plugin is to be called again.
// stored says that the vault has the attempt. An error means that the plan was given up while it ran.
func (r *run) call(a *workflow.Action, stored bool) (resp any, failure *plugins.Error, again *later, err error) {
	plugin, err := r.engine.plugin(a)
	if err != nil {
		return nil, failureOf(err, true, a.RedactText), nil, nil
	}
	timeout, rest := r.timeout(a), r.timeLeft(a)
	if rest <= 0 {
		return nil, failureOf(fmt.Errorf("timed out after %v", timeout), false, a.RedactText), nil, nil
	}
	ctx, cancel := context.WithTimeout(r.plugins, rest)
	defer cancel()
	done := make(chan outcome, 1)
	sight := r.sightOf(ctx, a)
	go r.callPlugin(ctx, plugin, a, Call{a.ID, r.plan.ID, r.plan.Epoch, len(a.Attempts), r.plan.Submitted, a.Later(), &r.results, sight, r.now}, done)
	o, ended := outcome{}, false
	select {
	case o = <-done:
		ended = true
	case <-r.life.Done():
		if stored {
			r.excuse(a)
		}
	}
	if !ended {
		o = r.lastWords(done)
	}
	if r.owned.Err() != nil {
		return nil, nil, nil, context.Cause(r.owned)
	}
	if again, unfit := o.later(); again != nil {
		again.lastSignal = int(sight.first.Load())
		return nil, nil, again, nil
	} else if unfit != nil {
		o = outcome{err: unfit, permanent: true}
	}
	if o.unfit == nil {
		o.unfit = r.results.admit(len(o.text), r.engine.opts.MaxResult, r.engine.opts.MaxResults)
	}
	a.Secrets = secrets.Merge(a.Secrets, o.secrets)
	told := o.told(a)
	redact := func(text string) string { return r.results.redact(told.RedactText(text)) }
	if o.unfit != nil {
		o.resp, o.permanent = nil, true
		o.err = errors.Join(o.err, fmt.Errorf("the plugin's response can't be stored: %w", o.unfit))
	}
	if o.err == nil {
		return o.resp, nil, nil, nil
	}
	late := ctx.Err() != nil && r.plugins.Err() == nil
	var panicked *plugins.Panic
	// The methods of the plugin's error may panic, such as those of a nil pointer.
	if err := plugins.Guard(func() error {
		if late && errors.Is(o.err, context.DeadlineExceeded) {
			o.err = fmt.Errorf("timed out after %v", timeout)
		}
		failure = failureOf(o.err, o.permanent, redact)
		panicked, _ = errors.AsType[*plugins.Panic](o.err)
		return nil
	}); err != nil {
		failure = failureOf(fmt.Errorf("the plugin's error can't be read: %w", err), true, redact)
		panicked, _ = errors.AsType[*plugins.Panic](err)
	}
	if panicked != nil {
		r.engine.opts.Observer.Panicked(r.owned, PanickedEvent{a, redactPanic(panicked, redact)})
	}
	return o.resp, failure, nil, nil
}

// lastWords returns the outcome of a call that was under way when the life of the run ended.
func (r *run) lastWords(done <-chan outcome) (o outcome) {
	select {
	case o = <-done:
		return o
	case <-r.plugins.Done():
	}
	words := time.NewTimer(lastWords)
	defer words.Stop()
	select {
	case o = <-done:
	case <-words.C:
		o.err = fmt.Errorf("the plugin did not return: %w", ErrDraining)
	case <-r.owned.Done():
	}
	return o
}

// excuse stores that an attempt was interrupted, which runs while an engine shuts down: if the process is killed before the attempt
// has ended, that is no crash. Nodes of a fleet have records that say so, and owners of another kind have none.
func (r *run) excuse(a *workflow.Action) {
	if r.plan.External.Name != "" && errors.Is(context.Cause(r.life), ErrDraining) {
		a.Attempts[len(a.Attempts)-1].Interrupted = true
		_ = r.write(a) // if it fails, the plan is given up
	}
}

// told returns an action that has all the secrets that a text about the outcome may quote.
func (o outcome) told(a *workflow.Action) *workflow.Action {
	if len(a.Secrets) == 0 {
		return a
	}
	told := new(*a)
	if o.text != nil || o.unfit != nil { // without its JSON, nothing of the text is left
		told.Attempts = append(slices.Clone(a.Attempts), workflow.Attempt{Resp: o.text})
	}
	return told
}

// redactPanic returns a panic without secrets. It is p if that has none.
func redactPanic(p *plugins.Panic, redact func(string) string) *plugins.Panic {
	value, stack := fmt.Sprint(p.Value), string(p.Stack)
	shown := plugins.Panic{Value: redact(value), Stack: []byte(redact(stack))}
	if p.Blocked() || shown.Value == value && string(shown.Stack) == stack {
		return p
	}
	return &shown
}

// callPlugin calls the plugin with a request of its own and sends the outcome, whatever the plugin does: it panics, or ends
// its goroutine.
func (r *run) callPlugin(ctx context.Context, plugin Plugin, a *workflow.Action, call Call, done chan<- outcome) {
	var o outcome
	returned := false
	defer func() {
		if !returned {
			o.err = &plugins.Panic{Value: "runtime.Goexit", Stack: debug.Stack()}
		}
		done <- o
	}()
	o.err = plugins.Guard(func() error {
		req, _, err := values.Fresh(a.Req, plugin.Request())
		if err != nil {
			return err
		}
		resp, err := plugin.Run(ctx, call, req)
		var wrong error
		o.secrets, wrong = secrets.Find("/resp", resp, plugin.Response())
		o.resp, o.text, o.unfit = values.Fresh(resp, plugin.Response())
		o.unfit = cmp.Or(wrong, o.unfit)
		return err
	})
	returned = true
}

// failureOf returns the failure of an attempt, with the stack of a panic, which is permanent. A plugin's own error is stored
// as it is, or with the text of what wraps it, all of them redacted.
func failureOf(err error, permanent bool, redact func(string) string) *plugins.Error {
	if own, ok := err.(*plugins.Error); ok && own != nil && !permanent {
		return bounded(*own, redact)
	}
	f := plugins.Error{Message: err.Error(), Permanent: permanent}
	if own, ok := errors.AsType[*plugins.Error](err); ok && own != nil {
		f.Code, f.After, f.Permanent = own.Code, own.After, own.Permanent || permanent
	}
	if p, ok := errors.AsType[*plugins.Panic](err); ok {
		f.Permanent = true
		if len(p.Stack) > 0 {
			stack := redact(string(p.Stack))
			f.Message = redact(f.Message) + "\n\n" + stack[:min(len(stack), maxStack)]
		}
	}
	return bounded(f, redact)
}

// maxWrapped is how many errors a failure may wrap. A plugin's error may wrap itself.
const maxWrapped = 100

// bounded returns a failure as it is stored.
func bounded(e plugins.Error, redact func(string) string) *plugins.Error {
	first := &e
	for at, depth := first, 0; ; at, depth = at.Wrapped, depth+1 {
		if at.Message == "" && at.Cause != nil {
			at.Message = at.Cause.Error()
		}
		at.Cause, at.After = nil, max(0, min(at.After, maxAfter))
		at.Message = redact(at.Message)
		at.Message = strings.ToValidUTF8(at.Message[:min(len(at.Message), maxMessage)], "\uFFFD")
		if at.Wrapped == nil || depth == maxWrapped {
			at.Wrapped = nil
			return first
		}
		at.Wrapped = new(*at.Wrapped)
	}
}
