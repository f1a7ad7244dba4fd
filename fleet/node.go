package fleet

import (
	"context"
	"errors"
	"iter"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Node is a member of a fleet. Its methods are safe for concurrent use.
//
// A Node has goroutines of its own, which end with [Node.Leave] or when the node is fenced.
type Node struct {
	id  uuid.UUID
	ctx context.Context
}

// errTodo is the error of what is not written yet.
var errTodo = errors.New("fleet: not implemented yet")

// Join makes the process a member of the fleet that shares the store. It returns after the node's record is
// stored and the other members are known. ctx bounds Join alone: the node stays a member until [Node.Leave].
// If Join fails, the process is not a member, and may call Join again.
//
// Errors: [storage.ErrInvalid] for wrong options, and for a vault that accepts updates without versions, since
// such updates would ignore a fence; otherwise those of the store.
func Join(ctx context.Context, store Store, o Options) (*Node, error) { return nil, errTodo }

// ID returns the node's ID, a UUIDv7 that Join made. It is the Owner of the node's plans.
func (n *Node) ID() uuid.UUID { return n.id }

// Context returns a context that ends when the node is no longer a member, with the cause [ErrFenced] or
// [ErrLeft]. A fenced node does not come back: the process may join again, as a new node.
func (n *Node) Context() context.Context { return n.ctx }

// Plans yields the plans that the node is to run, until ctx ends or the node is no longer a member:
//
//   - Plans that had not begun, claimed for this node. They are Running, and nothing of them has run.
//   - Plans of members that died or left, taken over for this node. They are Running and fenced, and go on
//     where they stand.
//
// The node owns each plan that is yielded, and the caller calls [Node.Work] for it. Plans looks for more while
// the loop's body runs elsewhere, so the body starts a goroutine. While the node owns Options.Capacity plans,
// Plans waits for one of them to be done.
//
// An error comes with a nil plan and does not end the loop. It is a plan that can't be read, yielded once
// ([storage.ErrCorrupt], [storage.ErrSchema]), or a search that failed, yielded once until a search succeeds.
//
// A plan that was let go before it was final is yielded again by this node within an hour, or by another node
// after this one left.
func (n *Node) Plans(ctx context.Context) iter.Seq2[*workflow.Plan, error] {
	return func(yield func(*workflow.Plan, error) bool) {}
}

// Claim makes the node the owner of a plan that has not begun, with the UpdatePlan that moves it to Running.
// It takes the plan as Read or Create left it. When Claim returns nil, the plan is Running, and its Owner,
// Epoch and State.Start are set. If Claim fails, the plan is as it was.
//
// Errors: [storage.ErrInvalid] for a plan that is not NotStarted; [storage.ErrConflict] if somebody else has
// claimed or changed it; [ErrFenced] or [ErrLeft] if the node is no longer a member; otherwise those of
// UpdatePlan. Claim repeats an update whose outcome is unknown until ctx ends. If the error is
// [storage.ErrUnknown] even so, [Node.Take] settles it.
func (n *Node) Claim(ctx context.Context, plan *workflow.Plan) error { return errTodo }

// Take makes the node the owner of a running plan whose owner is no longer a member, or is the node itself,
// and fences the plan: no write of a former owner, or of this node from before Take, takes effect any more.
// An owner that met [storage.ErrConflict] calls Take too, after its requests in flight have ended. It goes on
// from the plan that Take returns.
//
// A plan that is final needs no owner. Take stores it again, which completes an end that was interrupted, and
// returns it: the caller looks at State.Status. A plan that has not begun is claimed, as [Node.Claim] does.
//
// Take costs a Read, an update of the plan and one of each sub-object. It begins again when the former owner
// still writes. If ctx ends, or Take fails, the plan may be half fenced; the next Take finishes it.
//
// Errors: [ErrOwned] if another member works on the plan, or if it was begun by an engine without claims;
// [ErrFenced] if this node owned the plan and another one does now, or if this node is no longer a member;
// [ErrLeft]; [storage.ErrConflict] if the plan kept changing; otherwise those of Read and the updates.
func (n *Node) Take(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	return nil, errTodo
}

// Work returns the context for the work on a plan that the node owns: for calls of plugins, not for updates.
// It ends with the cause [ErrFenced] when the plan or the node is fenced, [ErrStopRequested] when somebody
// called [Stop], or [ErrLeft]. If the node does not own the plan, the context has ended with ErrFenced.
//
// The caller calls done when it is finished with the plan, for whatever reason. The plan then no longer counts
// against Options.Capacity. All calls of Work for a plan return the same context, and the first done counts.
func (n *Node) Work(plan uuid.UUID) (ctx context.Context, done func()) {
	return n.ctx, func() {}
}

// Leave removes the node from the fleet. Other nodes take its plans over when they look at the members next,
// within their Interval. Call Leave after the engine's calls have ended: Leave ends all contexts of the node
// with the cause [ErrLeft]. It returns when the node's goroutines have ended and its record is removed. If ctx
// ends before, others remove the record after the TTL. Calling Leave again is allowed.
func (n *Node) Leave(ctx context.Context) error { return errTodo }

// Stop asks the owner of a plan to stop it. The request reaches the owner within its Interval and ends the
// context of [Node.Work]; whoever claims the plan or takes it over later gets it too. Stop does not wait for the
// plan to stop, and does not look at the plan. The fleet removes requests for plans that are final or gone.
//
// Stop repeats a request whose outcome is unknown until ctx ends. Its errors are those of RequestStop.
func Stop(ctx context.Context, store storage.Members, plan uuid.UUID) error { return errTodo }
