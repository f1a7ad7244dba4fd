package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/planvault/azblob/workflow"
)

// tellEnded stores the outcome of a plan that is about to end, and calls Options.Ended until it returns nil. The order is the
// model's of package protocol:
//
//  1. The outcome is stored. This is the commit point: no stop changes it any more, on whichever node.
//  2. The hook returns. After a death in between, the next owner finds the outcome and calls it again.
//  3. The plan is stored as final.
//
// An engine without the hook goes on with the stored outcome. An error means that the plan was left.
func (r *run) tellEnded(reason workflow.FailureReason) error {
	if r.plan.Ending.At.IsZero() {
		if r.engine.opts.Ended == nil {
			return nil
		}
		r.plan.Ending = workflow.Ending{Reason: reason, At: r.now()}
		if err := r.write(r.plan); err != nil {
			return err
		}
	}
	if r.engine.opts.Ended == nil {
		return nil
	}
	for tries := 1; ; tries++ {
		err := r.callEnded()
		switch {
		case err == nil:
			return nil
		case r.life.Err() != nil:
			return context.Cause(r.life)
		case r.now().Sub(r.plan.Ending.At) >= endedPatience:
			err = withoutSecrets(err, r.plan)
			r.plan.Ending.Trouble = lineOf(fmt.Sprintf("the hook was given up after %v: %v", endedPatience, err))
			r.engine.opts.Observer.Problem(r.owned, ProblemEvent{fmt.Errorf("end plan %s: Options.Ended was given up after %v: %w", r.plan.ID, endedPatience, err)})
			return nil
		}
		r.wait(r.life, r.now(), min(min(r.engine.opts.RetryDelay, maxRetryDelay)<<min(tries-1, 16), maxRetryDelay))
	}
}

// endedPatience is how long after the outcome was fixed Options.Ended is tried, by the stored time: a takeover does not
// prolong it.
const endedPatience = time.Hour

// lineOf returns a text as [workflow.Ending] takes it.
func lineOf(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.ToValidUTF8(text[:min(len(text), workflow.MaxWhy)], "")
}

// withoutSecrets returns an error of the hook, which has the whole plan, without the secrets in it.
func withoutSecrets(err error, p *workflow.Plan) error {
	said := fmt.Sprint(err) // its methods may panic
	text := said
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok {
			text = a.RedactText(text)
		}
	}
	if text == said {
		return err
	}
	return errors.New(text)
}

// callEnded calls the hook once, with a place, and with a plan that shares nothing with this one. A hook that does not return
// soon after its context has ended has failed, and is left alone.
func (r *run) callEnded() error {
	if err := r.slot.begin(r.owned); err != nil {
		r.giveUp(err)
		return err
	}
	defer r.slot.end()
	if _, err := r.halted(r.life); err != nil {
		return err
	}
	last := *r.plan
	last.Reason, last.State.Status, last.State.End = r.plan.Ending.Reason, statusOf(r.plan.Ending.Reason), r.plan.Ending.At
	plan, err := r.engine.asStored(&last)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.plugins, r.engine.opts.Timeout, fmt.Errorf("timed out after %v", r.engine.opts.Timeout))
	defer cancel()
	return callWithin(ctx, func(ctx context.Context) error { return r.engine.opts.Ended(ctx, plan) })
}
