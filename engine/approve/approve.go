// Package approve has a plugin that waits until people approve an action. While it waits, it takes no place, and its plan sleeps:
// see [engine.Later].
//
// People approve and reject with [Approve], [Reject] and the commands of the same names of planvault. Those are signals, see
// [fleet.Send]. Whoever may write to the vault may send one under any name: Options.Allowed can't tell more than what they say.
package approve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Options are the rules of a service. A plan's author can't change them.
type Options struct {
	// Allowed reports whether somebody may decide about an action. It must be safe for concurrent use, and give the same answer
	// each time. Default: everybody may.
	Allowed func(call engine.Call, by string) bool
	// SubmitterMay lets the submitter of a plan approve it. Default: the submitter can't approve, but reject. Who submitted a plan
	// that does not say so may approve it.
	SubmitterMay bool
}

// Request is what an action waits for.
type Request struct {
	// Of is how many people must approve. Default: 1.
	Of int `json:",omitzero"`
	// Within is how long they have, from the first call of the plugin. Default: any time.
	Within time.Duration `json:",omitzero"`
	// Else is what becomes of the action after that. Default: Fail.
	Else Else `json:",omitzero"`
}

// Else is what becomes of an action that was not approved in time.
type Else string

// The outcomes.
const (
	Fail Else = ""
	Pass Else = "pass"
)

// Response says who approved, when and why, in the order of the approvals.
type Response struct {
	By []workflow.Attribution `json:",omitzero"`
	// Expired means that the time was over, and the request said Pass.
	Expired bool `json:",omitzero"`
}

// Plugin is the plugin that [Task] returns.
type Plugin struct {
	*engine.TypedPlugin[Request, Response]
}

// Task returns a plugin that waits for approvals. It ends when as many people have approved as the request says; each counts
// once, and names that differ in case or outer space alone are one. The first rejection before that fails the action for good,
// with an error that says who rejected and why.
func Task(name string, o Options) Plugin {
	task := engine.Task(name, o.run).With(engine.TaskOptions[Request]{Check: Request.check})
	return Plugin{task}
}

// Action returns an action that waits, with a timeout that leaves the people the time that they have.
func (p Plugin) Action(name string, req Request) *workflow.Action {
	a := p.TypedPlugin.Action(name, req)
	a.Timeout = cmp.Or(req.Within, anyTime) + time.Hour
	return a
}

// anyTime is ten years.
const anyTime = 10 * 365 * 24 * time.Hour

func (r Request) check() error {
	switch {
	case r.Of < 0 || r.Of > fleet.MaxSignals:
		return driver.Invalid("Of", "is %d, 0 to %d are allowed", r.Of, fleet.MaxSignals)
	case r.Within < 0 || r.Within > anyTime:
		return driver.Invalid("Within", "%v is negative or longer than %v", r.Within, anyTime)
	case r.Else != Fail && r.Else != Pass:
		return driver.Invalid("Else", "%.20q is none of the outcomes", r.Else)
	}
	return nil
}

// grace is how long after its time the plugin looks for decisions that were stored in time: nodes hear of a signal within an
// interval.
const grace = 30 * time.Second

// state is what the plugin keeps between two calls.
type state struct{ Until time.Time }

func (o Options) run(_ context.Context, call engine.Call, req Request) (resp Response, err error) {
	now, of := call.Now(), max(1, req.Of)
	var s state
	if again, err := call.State(&s); err != nil {
		return resp, err
	} else if !again && req.Within > 0 {
		s.Until = now.Add(req.Within)
	}
	decided, err := decisions(call)
	if err != nil {
		return resp, err
	}
	for _, d := range decided {
		switch {
		case !s.Until.IsZero() && d.By.At.After(s.Until), !o.counts(call, d):
		case d.Name == reject:
			return resp, plugins.Permanent(fmt.Errorf("rejected by %s: %s", d.By.By, cmp.Or(d.By.Why, "no reason given")))
		case !slices.ContainsFunc(resp.By, func(a workflow.Attribution) bool { return same(a.By, d.By.By) }):
			if resp.By = append(resp.By, d.By); len(resp.By) == of {
				return resp, nil
			}
		}
	}
	what := fmt.Sprintf("approvals, has %d of %d", len(resp.By), of)
	switch left := s.Until.Sub(now); {
	case s.Until.IsZero():
		return Response{}, engine.LaterFor(what, anyTime, s)
	case left > -grace:
		return Response{}, engine.LaterFor(what, left+grace, s)
	case req.Else == Pass:
		resp.Expired = true
		return resp, nil
	}
	return resp, plugins.Permanent(fmt.Errorf("not approved within %v: %d of %d", req.Within, len(resp.By), of))
}

// counts reports whether a decision is one of somebody who may decide.
func (o Options) counts(call engine.Call, d fleet.Signal) bool {
	submitter := same(d.By.By, call.Submitted.By)
	switch {
	case strings.TrimSpace(d.By.By) == "":
		return false
	case submitter && d.Name == reject:
		return true
	case submitter && !o.SubmitterMay:
		return false
	}
	return o.Allowed == nil || o.Allowed(call, d.By.By)
}

// same reports whether two names are those of one person, who may write their name in several ways.
func same(a, b string) bool { return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b)) }

// decisions returns the decisions about the action of a call, in their order.
func decisions(call engine.Call) (list []fleet.Signal, err error) {
	for _, name := range []string{approve, reject} {
		signals, err := call.Signals(name)
		if err != nil {
			return nil, err
		}
		for _, s := range signals {
			var d decision
			if json.Unmarshal(s.Payload, &d) == nil && d.Action == call.Action {
				list = append(list, s)
			}
		}
	}
	slices.SortFunc(list, func(a, b fleet.Signal) int { return cmp.Compare(a.Number, b.Number) })
	return list, nil
}

// The names of the signals.
const (
	approve = "approve"
	reject  = "reject"
)

// decision is the payload of the signals.
type decision struct {
	Action uuid.UUID `json:"action"`
}

// Approve approves an action of a plan, for by.By. It returns the number of the signal, which is that of the first one if
// somebody approves twice. The costs and the errors are those of [fleet.Send] with a key, and [storage.ErrInvalid] if by does
// not say who approves. Whether the action waits for an approval, and by may give it, only the plugin decides.
func Approve(ctx context.Context, vault storage.Vault, plan, action uuid.UUID, by workflow.Attribution) (number int, err error) {
	return send(ctx, vault, approve, plan, action, by)
}

// Reject is like [Approve], and makes the action fail.
func Reject(ctx context.Context, vault storage.Vault, plan, action uuid.UUID, by workflow.Attribution) (number int, err error) {
	return send(ctx, vault, reject, plan, action, by)
}

func send(ctx context.Context, vault storage.Vault, name string, plan, action uuid.UUID, by workflow.Attribution) (int, error) {
	if err := storage.CheckBy(by); err != nil {
		return 0, &storage.Error{Op: name, Plan: plan, Err: err}
	}
	payload, err := json.Marshal(decision{action})
	if err != nil {
		return 0, err
	}
	key := sha256.Sum256(append(action[:], by.By...))
	return fleet.Send(ctx, vault, plan, fleet.Signal{Name: name, Payload: payload, By: by, Key: fmt.Sprintf("%x", key[:16])})
}
