package storage

import (
	"context"

	"github.com/planvault/azblob/workflow"
)

type actorKey struct{}

// WithActor returns a context that says who submits the plans that are created with it, and from where. Create fills in
// [workflow.Plan].Submitted of a plan that has none. It refuses an actor whose texts can't be stored ([workflow.CheckActor])
// as [ErrInvalid], before it sends anything. Restore ignores the actor.
//
// A service calls WithActor once for each request that it serves, with the name that its login proved. The vault proves
// nothing.
func WithActor(ctx context.Context, a workflow.Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns the actor that [WithActor] put into a context, or the zero value.
func ActorOf(ctx context.Context) workflow.Actor {
	a, _ := ctx.Value(actorKey{}).(workflow.Actor)
	return a
}
