package engine

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// Plugin is a plugin that the engine can run. [Task] makes one from a function.
type Plugin interface {
	plugins.Plugin
	// Run makes one attempt at an action. It must be safe for concurrent use, and must return soon after ctx
	// ends. ctx ends at the attempt's timeout, when a shutdown takes longer than Options.Drain, and when the engine
	// gives the plan up; context.Cause tells why. The engine waits for Run unless the plan is no longer its own, or
	// a second has passed since a shutdown ended ctx. A panic, and a call of runtime.Goexit, is a Permanent error.
	//
	// An action without AtMost runs at least once: an action that was running when the engine died is rerun.
	//
	// req has the type of Request or is nil, and resp must have the type of Response or be nil. req is decoded for each
	// attempt from what is stored, so Run may keep and change it, and what encoding/json leaves out is not in it: unexported
	// fields, and numbers in an any are float64s. The engine decodes its own copy of resp as soon as Run returns. An error that
	// is a *plugins.Error is stored as it is, one that wraps it with its Code, its After and the whole text; of any other error
	// the text is stored, at most 64 KiB of it. A Permanent error is not retried, see [plugins.Permanent].
	Run(ctx context.Context, call Call, req any) (resp any, err error)
}

// Call says on whose behalf a plugin runs.
type Call struct {
	// Action is the action's ID. It is unique, and the same in each attempt: use it as an idempotency key.
	Action uuid.UUID
	// Plan is the ID of the action's plan.
	Plan uuid.UUID
	// Epoch grows each time a node takes the plan over. It is a fencing token: a service that remembers the
	// largest epoch of a plan can refuse calls with a smaller one, which come from a former owner. It is 0 if
	// the plan has no owner, because the engine is not part of a fleet.
	Epoch int64
	// Attempt counts the attempts that the action keeps, including this one. It is 1 in the first, and after a death may
	// be the same again if the action is Idempotent.
	Attempt int
	// Submitted says who submitted the plan, and from where, as they said.
	Submitted workflow.Actor

	later   *workflow.Later // of the attempt, for State; nil in its first call
	results *results        // for Result
	signals *sight          // for Signals
	now     func() time.Time
}

// Now returns the time by the clock of the times that are stored, which all engines of the vault share. Without an engine it is
// the time of this computer.
func (c Call) Now() time.Time {
	if c.now == nil {
		return time.Now().UTC()
	}
	return c.now()
}

// Task returns a plugin that runs a function. The vault stores its requests and responses as Req and Resp,
// which encoding/json must be able to encode and decode; they can't be interface types. The rules of
// [Plugin.Run] apply to run. An action without a request passes the zero value of Req. A zero Resp is not
// stored beside an error. Task panics if run is nil, or if Req or Resp is an interface type.
//
// The method of a value that holds what the plugin needs is a function too:
//
//	deploy := engine.Task("deploy", deployer.Run)
func Task[Req, Resp any](name string, run func(ctx context.Context, call Call, req Req) (Resp, error)) *TypedPlugin[Req, Resp] {
	for what, t := range map[string]reflect.Type{"requests": reflect.TypeFor[Req](), "responses": reflect.TypeFor[Resp]()} {
		if t.Kind() == reflect.Interface {
			panic(fmt.Sprintf("engine: Task %q: %s are the interface %v, which can't be decoded", name, what, t))
		}
	}
	if run == nil {
		panic(fmt.Sprintf("engine: Task %q: the function is nil", name))
	}
	return &TypedPlugin[Req, Resp]{Typed: plugins.Typed[Req, Resp](name), run: run}
}

// TaskOptions are what a plugin that [Task] made says about itself. The zero value says nothing.
type TaskOptions[Req any] struct {
	// Check looks at a request before its plan is stored. An action without a request passes the zero value. errors.AsType finds
	// what it returned in the error of Submit, see [plugins.Checker]. Default: any request is accepted.
	Check func(Req) error
	// IsCheck says that the plugin only looks and changes nothing, see [plugins.Looker]. Once one plugin of a registry says
	// so, Checks accept no other.
	IsCheck bool
	// Retries and Backoff are how actions of the plugin are retried that don't say it themselves, see [plugins.Retrier].
	// Register refuses what can't be. Default: no retries, and waits by [Options.RetryDelay].
	Retries int
	Backoff plugins.Backoff
	// Init is called once in each [Engine.Run] before it takes plans, see [plugins.Initer]. Default: nothing is.
	Init func(context.Context) error
}

// TypedPlugin is a [Plugin] that [Task] returns. It also makes actions of the plugin and finds their results, with the types
// that the compiler checks.
type TypedPlugin[Req, Resp any] struct {
	plugins.Typed[Req, Resp]
	run  func(context.Context, Call, Req) (Resp, error)
	opts TaskOptions[Req]
}

// With returns the plugin with options, which replace those of an earlier With. Methods of the request are functions, too:
//
//	charge := engine.Task("charge", card.Charge).With(engine.TaskOptions[Charge]{Check: Charge.Check})
func (p *TypedPlugin[Req, Resp]) With(opts TaskOptions[Req]) *TypedPlugin[Req, Resp] {
	return &TypedPlugin[Req, Resp]{p.Typed, p.run, opts}
}

// Check implements [plugins.Checker].
func (p *TypedPlugin[Req, Resp]) Check(req any) error {
	if p.opts.Check == nil {
		return nil
	}
	typed, _ := req.(Req)
	return p.opts.Check(typed)
}

// HasCheck reports whether the plugin has [TaskOptions.Check].
func (p *TypedPlugin[Req, Resp]) HasCheck() bool { return p.opts.Check != nil }

// IsCheck implements [plugins.Looker].
func (p *TypedPlugin[Req, Resp]) IsCheck() bool { return p.opts.IsCheck }

// Init implements [plugins.Initer].
func (p *TypedPlugin[Req, Resp]) Init(ctx context.Context) error {
	if p.opts.Init == nil {
		return nil
	}
	return p.opts.Init(ctx)
}

// Retries implements [plugins.Retrier].
func (p *TypedPlugin[Req, Resp]) Retries() int { return p.opts.Retries }

// Backoff implements [plugins.Retrier].
func (p *TypedPlugin[Req, Resp]) Backoff() plugins.Backoff { return p.opts.Backoff }

// Action returns an action of the plugin with a name and a request. The caller may set its other fields.
func (p *TypedPlugin[Req, Resp]) Action(name string, req Req) *workflow.Action {
	return &workflow.Action{Name: name, Plugin: p.Name(), Req: req}
}

// Result returns the response of an action of the same plan, by the name of the action, which no other action of the plan
// may have. Otherwise it is like the function [Result].
func (p *TypedPlugin[Req, Resp]) Result(call Call, action string) (Resp, error) {
	return result[Resp](call, handle{name: action})
}

// ResultByKey returns the response of an action of the same plan by its Key, like the function [Result].
func (p *TypedPlugin[Req, Resp]) ResultByKey(call Call, key uuid.UUID) (Resp, error) {
	return result[Resp](call, handle{key: key})
}

// Run implements [Plugin].
func (p *TypedPlugin[Req, Resp]) Run(ctx context.Context, call Call, req any) (any, error) {
	typed, ok := req.(Req)
	if !ok && req != nil {
		return nil, &plugins.Error{Message: fmt.Sprintf("plugin %q takes a %T, not a %T", p.Name(), typed, req), Permanent: true}
	}
	resp, err := p.run(ctx, call, typed)
	if err != nil && reflect.ValueOf(&resp).Elem().IsZero() {
		return nil, err
	}
	return resp, err
}
