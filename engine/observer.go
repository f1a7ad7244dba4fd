package engine

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// Observer holds functions that an engine calls. Each may be nil. They are called by the goroutine that does
// the work, which waits for them; calls may be concurrent. They must neither change their arguments nor panic.
// The context is the context of the work, and may already have ended.
type Observer struct {
	// Joined is called when the engine has become a member of a fleet, with its node's ID.
	Joined func(ctx context.Context, node uuid.UUID)
	// PickedUp is called with a whole plan, before any work on it. In a fleet the plan is Running already, and
	// PickedUp is called again when the node takes its own plan again. The plan is changed after the call
	// returns.
	PickedUp func(ctx context.Context, plan *workflow.Plan)
	// Changed is called when an object's new state is stored, which for most objects is their end alone. Only the object's
	// own fields may be read, and only during the call, because other goroutines may change its children.
	Changed func(ctx context.Context, o workflow.Object)
	// Left is called when the engine leaves an unfinished plan, with the reason: ErrDraining, ErrFull,
	// fleet.ErrFenced if another node owns it or may take it, fleet.ErrSuspended if the vault was suspended, or a failure.
	Left func(ctx context.Context, plan uuid.UUID, err error)
	// Problem is called with failures that belong to no running plan: of Recovery, of a search, of reading a
	// plan, of the membership in a fleet.
	Problem func(ctx context.Context, err error)
	// Hindered is called when the writes of a plan have failed for ten seconds because the vault is unavailable or
	// refuses the engine, each minute while they go on failing, and with nil when one has succeeded. The plan
	// stands meanwhile; no result is lost.
	Hindered func(ctx context.Context, plan uuid.UUID, err error)
	// Panicked is called when a plugin, or a method of its request or response, has panicked or ended its goroutine, or such
	// a method did not return within ten seconds, before the failed attempt is stored. Only the action's own fields may be read.
	Panicked func(ctx context.Context, a *workflow.Action, p *plugins.Panic)
	// Draining is called once when the context of Run ends, before Run waits for running actions.
	Draining func(ctx context.Context)
}

// Tee returns an observer that calls all of these, in order. Fields that are nil are left out.
func Tee(observers ...Observer) Observer {
	return Observer{
		Joined:   tee(observers, func(o Observer) func(context.Context, uuid.UUID) { return o.Joined }),
		PickedUp: tee(observers, func(o Observer) func(context.Context, *workflow.Plan) { return o.PickedUp }),
		Changed:  tee(observers, func(o Observer) func(context.Context, workflow.Object) { return o.Changed }),
		Left:     teeAbout(observers, func(o Observer) func(context.Context, uuid.UUID, error) { return o.Left }),
		Hindered: teeAbout(observers, func(o Observer) func(context.Context, uuid.UUID, error) { return o.Hindered }),
		Panicked: teeAbout(observers, func(o Observer) func(context.Context, *workflow.Action, *plugins.Panic) { return o.Panicked }),
		Problem:  tee(observers, func(o Observer) func(context.Context, error) { return o.Problem }),
		Draining: func(ctx context.Context) {
			for _, o := range observers {
				if o.Draining != nil {
					o.Draining(ctx)
				}
			}
		},
	}
}

// teeAbout is tee for functions that are called with a second argument.
func teeAbout[S, E any](observers []Observer, pick func(Observer) func(context.Context, S, E)) func(context.Context, S, E) {
	return func(ctx context.Context, about S, e E) {
		for _, o := range observers {
			if f := pick(o); f != nil {
				f(ctx, about, e)
			}
		}
	}
}

// tee calls one function of each observer.
func tee[E any](observers []Observer, pick func(Observer) func(context.Context, E)) func(context.Context, E) {
	return func(ctx context.Context, e E) {
		for _, o := range observers {
			if f := pick(o); f != nil {
				f(ctx, e)
			}
		}
	}
}
