package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/tee"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// Observer holds functions that an engine calls. Each may be nil. They are called by the goroutine that does
// the work, which waits for them; calls may be concurrent. They must neither change what the events hold nor panic.
// The context is the context of the work, and may already have ended.
type Observer struct {
	// Joined is called when the engine has become a member of a fleet.
	Joined func(ctx context.Context, e JoinedEvent)
	// PickedUp is called before any work on a plan. In a fleet the plan is Running already, and PickedUp is called again
	// when the node takes its own plan again.
	PickedUp func(ctx context.Context, e PickedUpEvent)
	// Changed is called when an object's new state is stored, which for most objects is their end alone.
	Changed func(ctx context.Context, e ChangedEvent)
	// Left is called when the engine leaves an unfinished plan.
	Left func(ctx context.Context, e LeftEvent)
	// Problem is called with failures that belong to no running plan: of Recovery, of a search, of reading a
	// plan, of the membership in a fleet.
	Problem func(ctx context.Context, e ProblemEvent)
	// Hindered is called when the writes of a plan have failed for ten seconds because the vault is unavailable or
	// refuses the engine, each minute while they go on failing, and without an Err when one has succeeded. The plan
	// stands meanwhile; no result is lost.
	Hindered func(ctx context.Context, e HinderedEvent)
	// Panicked is called when a plugin, or a method of its request or response, has panicked or ended its goroutine, or such
	// a method did not return within ten seconds, before the failed attempt is stored.
	Panicked func(ctx context.Context, e PanickedEvent)
	// Draining is called once when the context of Run ends, before Run waits for running actions.
	Draining func(ctx context.Context, e DrainingEvent)
}

// JoinedEvent is an engine that has become a member of a fleet.
type JoinedEvent struct{ Node uuid.UUID }

// PickedUpEvent is a plan that the engine is about to work on.
type PickedUpEvent struct {
	// Plan is the whole plan. It is changed after the call returns.
	Plan *workflow.Plan
}

// ChangedEvent is an object whose new state is stored.
type ChangedEvent struct {
	// Object may be read during the call alone, and of it only its own fields, because other goroutines may change its
	// children.
	Object workflow.Object
}

// LeftEvent is an unfinished plan that the engine leaves.
type LeftEvent struct {
	Plan uuid.UUID
	// Err is the reason: [ErrDraining], [ErrFull], fleet.ErrFenced if another node owns the plan or may take it,
	// fleet.ErrAsleep if the plan only waits, or is paused, fleet.ErrSuspended if the vault was suspended, or a failure.
	Err error
}

// ProblemEvent is a failure that belongs to no running plan.
type ProblemEvent struct{ Err error }

// HinderedEvent is a plan whose writes fail.
type HinderedEvent struct {
	Plan uuid.UUID
	// Err is nil if a write has succeeded again.
	Err error
}

// PanickedEvent is an action whose plugin has panicked.
type PanickedEvent struct {
	// Action may be read during the call alone, and of it only its own fields.
	Action *workflow.Action
	Panic  *plugins.Panic
}

// DrainingEvent is the end of the context of Run.
type DrainingEvent struct{}

// LogObserver returns an observer that writes to a logger, with the contexts of the events: what a person must know at level
// warn or error, the start and the end of plans and of Run at info, and other changes at debug.
func LogObserver(l *slog.Logger) Observer {
	log := func(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
		l.LogAttrs(ctx, level, msg, attrs...)
	}
	return Observer{
		Joined: func(ctx context.Context, e JoinedEvent) { log(ctx, slog.LevelInfo, "joined", slog.Any("node", e.Node)) },
		PickedUp: func(ctx context.Context, e PickedUpEvent) {
			log(ctx, slog.LevelInfo, "picked up", slog.Any("plan", e.Plan.ID), slog.String("name", e.Plan.Name))
		},
		Changed: func(ctx context.Context, e ChangedEvent) {
			level, h := slog.LevelDebug, e.Object.Header()
			if e.Object.Kind() == workflow.KindPlan && h.State.Status.Final() {
				level = slog.LevelInfo
			}
			attrs := []slog.Attr{slog.Any("plan", *h.PlanID), slog.String("kind", e.Object.Kind().String())}
			if e.Object.Kind() != workflow.KindPlan {
				attrs = append(attrs, slog.Any("id", *h.ID))
			}
			log(ctx, level, "changed", append(attrs, slog.String("status", h.State.Status.String()))...)
		},
		Left: func(ctx context.Context, e LeftEvent) {
			level := slog.LevelWarn
			if passes(e.Err) {
				level = slog.LevelInfo
			}
			log(ctx, level, "left", slog.Any("plan", e.Plan), slog.Any("err", e.Err))
		},
		Problem: func(ctx context.Context, e ProblemEvent) { log(ctx, slog.LevelWarn, "problem", slog.Any("err", e.Err)) },
		Hindered: func(ctx context.Context, e HinderedEvent) {
			level := slog.LevelWarn
			if e.Err == nil {
				level = slog.LevelInfo
			}
			log(ctx, level, "hindered", slog.Any("plan", e.Plan), slog.Any("err", e.Err))
		},
		Panicked: func(ctx context.Context, e PanickedEvent) {
			log(ctx, slog.LevelError, "panic", slog.Any("plan", e.Action.PlanID), slog.String("action", e.Action.Name), slog.String("plugin", e.Action.Plugin),
				slog.Any("value", e.Panic.Value), slog.String("stack", string(e.Panic.Stack)))
		},
		Draining: func(ctx context.Context, _ DrainingEvent) { log(ctx, slog.LevelInfo, "draining") },
	}
}

// passes reports whether a plan was left because that is how engines stop or share work.
func passes(err error) bool {
	return errors.Is(err, ErrDraining) || errors.Is(err, ErrFull) || errors.Is(err, fleet.ErrFenced) || errors.Is(err, fleet.ErrSuspended) || errors.Is(err, fleet.ErrAsleep)
}

// warnings returns an observer that logs what a person must know, and nothing else.
func warnings(l *slog.Logger) Observer {
	all := LogObserver(l)
	return Observer{
		Problem: all.Problem, Panicked: all.Panicked,
		Left: func(ctx context.Context, e LeftEvent) {
			if !passes(e.Err) {
				all.Left(ctx, e)
			}
		},
		Hindered: func(ctx context.Context, e HinderedEvent) { all.Hindered(ctx, e) },
	}
}

// withLogger adds the logger of the options to their observer.
func (o *Options) withLogger() {
	if o.Logger != nil || o.Observer.Problem == nil {
		o.Observer = Tee(o.Observer, warnings(cmp.Or(o.Logger, slog.Default())))
	}
	o.Observer = o.Observer.whole()
}

// whole returns the observer with functions that do nothing in the place of those that are nil.
func (o Observer) whole() Observer {
	return Tee(o, Observer{
		Joined: none[JoinedEvent], PickedUp: none[PickedUpEvent], Changed: none[ChangedEvent], Left: none[LeftEvent],
		Problem: none[ProblemEvent], Hindered: none[HinderedEvent], Panicked: none[PanickedEvent], Draining: none[DrainingEvent],
	})
}

func none[E any](context.Context, E) {}

// Tee returns an observer that calls all of these, in order. Fields that are nil are left out.
func Tee(observers ...Observer) Observer {
	return Observer{
		Joined:   tee.Of(observers, func(o Observer) func(context.Context, JoinedEvent) { return o.Joined }),
		PickedUp: tee.Of(observers, func(o Observer) func(context.Context, PickedUpEvent) { return o.PickedUp }),
		Changed:  tee.Of(observers, func(o Observer) func(context.Context, ChangedEvent) { return o.Changed }),
		Left:     tee.Of(observers, func(o Observer) func(context.Context, LeftEvent) { return o.Left }),
		Problem:  tee.Of(observers, func(o Observer) func(context.Context, ProblemEvent) { return o.Problem }),
		Hindered: tee.Of(observers, func(o Observer) func(context.Context, HinderedEvent) { return o.Hindered }),
		Panicked: tee.Of(observers, func(o Observer) func(context.Context, PanickedEvent) { return o.Panicked }),
		Draining: tee.Of(observers, func(o Observer) func(context.Context, DrainingEvent) { return o.Draining }),
	}
}
