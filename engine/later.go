package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// MaxState is the most bytes of JSON that the state of [Later] may have.
const MaxState = 64 << 10

// Later is the error with which a plugin says that its attempt is not over, and that it wants to be called again after d: it
// polls, or waits for something outside. The action stays Running, and takes neither a place nor a goroutine of the plugin.
// [Call.State] gives the next call the state, which is anything that encoding/json can encode, or nil.
//
// The next call is one of the same attempt, on any node, with a context of its own. A signal for the plan brings it forward, see
// [Call.Signals]. It comes a second after the last one at the earliest, and at the latest when the timeout of the action is over,
// which counts from the first call: then the attempt fails without a call. Set [workflow.Action.Timeout], for the default is five
// minutes. After a death or a loss of the plan, the plugin may be called again with a state that it has had, as any other attempt
// is made again; each call of an action with AtMost is made once.
//
// A wait costs one update of the action, and two for an action with AtMost. A plan of which nothing else runs for five minutes
// sleeps, see package fleet. The attempt fails for good if d is negative, if the state can't be encoded, or if it is larger
// than [MaxState]. A response beside Later is ignored.
func Later(d time.Duration, state any) error {
	l := &later{after: d}
	if d < 0 {
		l.unfit = fmt.Errorf("engine.Later: %v is negative", d)
		return l
	}
	if state == nil {
		return l
	}
	text, err := workflow.MarshalValue(state)
	switch {
	case err != nil:
		l.unfit = fmt.Errorf("engine.Later: the state can't be stored: %w", err)
	case len(text) > MaxState:
		l.unfit = fmt.Errorf("engine.Later: the state has %d bytes, at most %d are allowed", len(text), MaxState)
	case !jsontext.Value(text).IsValid():
		l.unfit = errors.New("engine.Later: the state has two members of one name")
	default:
		l.state = text
	}
	return l
}

// LaterFor is [Later] with a text that says for people what the plugin waits for, such as "approval by ops". Tools show it. Of
// a text with more than [workflow.MaxWhy] bytes, the beginning is stored.
func LaterFor(what string, d time.Duration, state any) error {
	err := Later(d, state)
	if l, ok := errors.AsType[*later](err); ok {
		l.what = what
	}
	return err
}

// later is what Later returns.
type later struct {
	after      time.Duration
	what       string // it waits for
	state      json.RawMessage
	lastSignal int   // the last one that the call could see
	unfit      error // why it fails the attempt
}

// Error says when the plugin wants to be called again.
func (l *later) Error() string {
	if l.unfit != nil {
		return l.unfit.Error()
	}
	return fmt.Sprintf("call again in %v", l.after)
}

// later returns what the plugin wants to be called again with, or why that can't be. The methods of its error may panic.
func (o *outcome) later() (again *later, unfit error) {
	panicked := plugins.Guard(func() error {
		if l, ok := errors.AsType[*later](o.err); ok {
			if again = l; l.unfit != nil {
				again, unfit = nil, l.unfit
			}
		}
		return nil
	})
	if panicked != nil {
		return nil, nil // it is a failure, which says so
	}
	return again, unfit
}

// State reads the state that the last call of the same attempt gave to [Later] into v. It reports whether there was such a
// call; if not, v is left as it is. The error is that of encoding/json.
func (c Call) State(v any) (again bool, err error) {
	if c.later == nil || len(c.later.State) == 0 {
		return c.later != nil, nil
	}
	return true, workflow.UnmarshalValue(c.later.State, v)
}

// waiting reports whether the last attempt of an action is not over and its plugin is to be called again.
func waiting(a *workflow.Action) bool { l := a.Later(); return l != nil && !l.Called }

// mayCall reports whether AtMost allows another call of an action. The calls of one attempt count as one.
func mayCall(a *workflow.Action) bool { return waiting(a) || left(a) != 0 }

// lastAttempt reports whether AtMost allows no attempt after the next call.
func lastAttempt(a *workflow.Action) bool { return left(a) == 0 || left(a) == 1 && !waiting(a) }

// beginAttempt makes the attempt of the next call: one that waits goes on, otherwise it is a new one. It is stored before if a
// death in the call must be seen. What a call that never ended knew is not lost.
func (r *run) beginAttempt(a *workflow.Action) (stored bool, err error) {
	now := r.now()
	if a.State.Status == workflow.NotStarted {
		a.State.Status, a.State.Start = workflow.Running, now
	}
	_, doubtful := r.doubts.Load(a)
	if waiting(a) {
		if !doubtful && a.AtMost == 0 {
			return false, nil
		}
		t := &a.Attempts[len(a.Attempts)-1]
		called := *t.Later
		called.Called = true
		t.Later, t.Owner = &called, r.plan.Owner
		return true, r.write(a)
	}
	next := workflow.Attempt{Start: now, Owner: r.plan.Owner}
	if l := a.Later(); l != nil {
		next.Later, a.Attempts[len(a.Attempts)-1].Later = l, nil
	}
	a.Attempts = append(a.Attempts, next)
	if !doubtful && a.Idempotent {
		return false, nil
	}
	if err := r.write(a); err != nil {
		return false, err
	}
	if t, now := &a.Attempts[len(a.Attempts)-1], r.now(); now.Sub(t.Start) > time.Second {
		t.Start = now // the write was refused for a while, and the timeout counts from the call
	}
	return true, nil
}

// postpone stores that the plugin is to be called again.
func (r *run) postpone(a *workflow.Action, l *later) error {
	t := &a.Attempts[len(a.Attempts)-1]
	now := r.now()
	wait := min(max(l.after, time.Second), max(0, r.timeLeft(a)))
	t.Later = &workflow.Later{At: now.Add(wait), State: l.state, LastSignal: l.lastSignal, For: lineOf(a.RedactText(l.what))}
	err := r.store(r.owned, a)
	switch {
	case errors.Is(err, storage.ErrInvalid):
		t.Later, t.End, t.Err = nil, r.now(), failureOf(fmt.Errorf("the vault refuses the plugin's state: %w", err), true, a.RedactText)
		return r.end(a, workflow.Failed)
	case err != nil:
		r.giveUp(err)
	default:
		r.doubts.Delete(a)
	}
	return err
}

// timeLeft returns the rest of the timeout of the last attempt, which counts from its first call.
func (r *run) timeLeft(a *workflow.Action) time.Duration {
	spent := max(0, r.now().Sub(a.Attempts[len(a.Attempts)-1].Start))
	return r.timeout(a) - spent
}

func (r *run) timeout(a *workflow.Action) time.Duration {
	return cmp.Or(a.Timeout, r.engine.opts.Timeout)
}

// abandon ends an attempt that waits, because nothing more begins. The state of a call that never ended is dropped.
func (r *run) abandon(a *workflow.Action) {
	l := a.Later()
	if l == nil {
		return
	}
	t := &a.Attempts[len(a.Attempts)-1]
	if t.Later = nil; !l.Called {
		t.End, t.Interrupted, t.Err = r.now(), true, &plugins.Error{Message: "the plan went no further while the attempt waited to be called again"}
	}
}
