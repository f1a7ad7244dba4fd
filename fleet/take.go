package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Take makes the node the owner of a running plan whose owner is no longer a member, or is the node itself,
// and fences the plan: no write of a former owner, or of this node from before Take, takes effect any more.
// An owner that met [storage.ErrConflict] calls Take too, after its requests in flight have ended. It goes on
// from the plan that Take returns. Attempts that never ended are stored as Interrupted if their owner was draining, or a
// person evicted it.
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
func (n *Node) Take(ctx context.Context, id uuid.UUID) (plan *workflow.Plan, err error) {
	err = n.exclusive(ctx, "take", id, func(ctx context.Context) error {
		plan, err = n.take(ctx, id)
		return err
	})
	if errors.Is(err, ErrFenced) {
		n.fenced(id)
	}
	return plan, err
}

// maxRounds bounds how often a take begins again. A former owner that writes meets the fence at its next write
// of the same object, so each round has less of it.
const maxRounds = 16

// take reads a plan and does what its state calls for. A write that meets another version begins it again with
// the read: what was read before does not belong to the epoch that would follow. It returns no plan with an
// error.
func (n *Node) take(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	began := time.Now()
	for round := 1; ; round++ {
		plan, err := n.store.Read(ctx, id)
		if err != nil {
			return nil, err
		}
		from := plan.Owner
		switch {
		case plan.State.Status.Final():
			// Whoever ended the plan may have died before the end was complete. The same update completes it.
			err = settle(ctx, func() error { return n.store.UpdatePlan(ctx, plan) })
		case plan.State.Status == workflow.NotStarted:
			err = n.claim(ctx, plan)
		default:
			if err := n.mayTake(ctx, plan); err != nil {
				return nil, err
			}
			n.interrupt(plan)
			if err = n.fence(ctx, plan); err == nil {
				n.own(id)
				notify(ctx, n.o.Observer.Takeover, TakeoverEvent{n.id, id, from, plan.Epoch, round, time.Since(began)})
			}
		}
		switch {
		case err == nil:
			return plan, nil
		case !conflicted(err) || ctx.Err() != nil:
			return nil, err
		case round == maxRounds:
			return nil, fmt.Errorf("the plan changed in each of %d rounds, so try again later: %w", round, err)
		}
	}
}

// mayTake returns an error unless this node may take a running plan.
func (n *Node) mayTake(ctx context.Context, plan *workflow.Plan) error {
	switch standingOf(plan.Owner, plan.Epoch, n.id, n.owns(plan.ID), n.o.TakeUnclaimed) {
	case free:
		return nil
	case unclaimed:
		return fmt.Errorf("%w: an engine without claims began it; set Options.TakeUnclaimed once none runs any more", ErrOwned)
	case lost:
		return fmt.Errorf("%w: its owner is node %s, with epoch %d", ErrFenced, plan.Owner, plan.Epoch)
	}
	free, err := n.isAbsent(ctx, plan.Owner)
	if err == nil && !free {
		free, err = n.hasLetGo(ctx, plan.Owner, plan.ID)
	}
	if err == nil && !free {
		err = fmt.Errorf("%w: node %s, with epoch %d", ErrOwned, plan.Owner, plan.Epoch)
	}
	return err
}

// standing is how a running plan stands to a node.
type standing int

const (
	free      standing = iota // the node may take it
	unclaimed                 // begun by an engine without claims, which may still run
	lost                      // the node owned it, and somebody else does now
	foreign                   // the node may take it if the owner is no member
)

// standingOf decides how a running plan stands to the node self. held says that the node has owned it.
func standingOf(owner uuid.UUID, epoch int64, self uuid.UUID, held, takeUnclaimed bool) standing {
	switch {
	case owner == self:
		return free // an earlier take or claim did not finish, or the node met a conflict
	case held:
		return lost
	case owner == uuid.Nil && epoch == 0 && !takeUnclaimed:
		return unclaimed
	case owner == uuid.Nil:
		return free
	}
	return foreign
}

// fence makes the node the owner of a plan as it was read. First it claims the entry: success proves that
// nobody took the plan since it was read, so all versions in it are older than the new epoch. Then it stores
// each sub-object once more, NotStarted and final ones too. Once all of them have new versions, no write that
// names an older one takes effect. Epoch 1 is that of a claim: a plan that was begun without one goes on with 2.
func (n *Node) fence(ctx context.Context, plan *workflow.Plan) error {
	plan.Owner, plan.Epoch = n.id, max(plan.Epoch, 1)+1
	if err := settle(ctx, func() error { return n.store.UpdatePlan(ctx, plan) }); err != nil {
		return err
	}
	return atOnce(workflow.Parts(plan), func(o workflow.Object) error {
		return settle(ctx, func() error { return storage.Update(ctx, n.store, o) })
	})
}

// maxAtOnce bounds the sub-objects of a plan that are stored at once. It is above the usual limit of a store,
// which has one of its own.
const maxAtOnce = 256

// atOnce calls do for all elements, many at a time.
func atOnce[T any](all []T, do func(T) error) error { return atMost(maxAtOnce, all, do) }

// atMost calls do for all elements, at most n at a time. After an error it begins no more, waits for those in
// progress, and returns the first error.
func atMost[T any](n int, all []T, do func(T) error) error {
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(n)
	for _, each := range all {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil // another call has failed
			}
			return do(each)
		})
	}
	return g.Wait()
}
