package fleet

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Claim makes the node the owner of a plan that has not begun, with the UpdatePlan that moves it to Running.
// It takes the plan as Read or Create left it. When Claim returns nil, the plan is Running, and its Owner,
// Epoch and State.Start are set. If Claim fails, the plan is as it was.
//
// Errors: [storage.ErrInvalid] for a plan that is not NotStarted; [storage.ErrConflict] if somebody else has
// claimed or changed it; [ErrFenced] or [ErrLeft] if the node is no longer a member; otherwise those of
// UpdatePlan. Claim repeats an update whose outcome is unknown until ctx ends. If the error is
// [storage.ErrUnknown] even so, [Node.Take] settles it.
func (n *Node) Claim(ctx context.Context, plan *workflow.Plan) error {
	if plan == nil {
		return &storage.Error{Op: "Claim", Err: driver.Invalid("Plan", "is nil")}
	}
	if plan.State.Status != workflow.NotStarted {
		return &storage.Error{Op: "Claim", Plan: plan.ID, Err: driver.Invalid("State.Status", "is %s: only a plan that is NotStarted can be claimed", plan.State.Status)}
	}
	return n.exclusive(ctx, "claim", plan.ID, func(ctx context.Context) error { return n.claim(ctx, plan) })
}

// exclusive runs do while the node is a member and does nothing else with the ownership of the plan.
func (n *Node) exclusive(ctx context.Context, op string, plan uuid.UUID, do func(context.Context) error) error {
	if n.ctx.Err() != nil {
		return n.failed(op, plan, context.Cause(n.ctx))
	}
	ctx, cancel := n.bind(ctx)
	defer cancel()
	unlock, err := n.lock(ctx, plan)
	if err != nil {
		return n.failed(op, plan, err)
	}
	defer unlock()
	if err := n.admitted(ctx); err != nil {
		return n.failed(op, plan, err)
	}
	if err := n.withdraw(ctx, plan); err != nil {
		return n.failed(op, plan, err)
	}
	return n.failed(op, plan, do(ctx))
}

// claim moves a plan to Running with this node as its owner. It needs no fence: a plan that is NotStarted has
// had no owner.
func (n *Node) claim(ctx context.Context, plan *workflow.Plan) error {
	before := *plan
	plan.State.Status, plan.State.Start = workflow.Running, n.Now()
	plan.Owner, plan.Epoch = n.id, plan.Epoch+1
	if err := settle(ctx, func() error { return n.store.UpdatePlan(ctx, plan) }); err != nil {
		*plan = before
		return err
	}
	n.own(plan.ID)
	notify(ctx, n.o.Observer.Claim, ClaimEvent{n.id, plan.ID, plan.Epoch})
	return nil
}
