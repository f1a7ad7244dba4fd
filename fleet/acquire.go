package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// mostAcquiring is the most plans that one loop over Plans claims or takes at a time.
const mostAcquiring = 64

// acquisition is the outcome of a claim or take.
type acquisition struct {
	id   uuid.UUID
	plan *workflow.Plan
	err  error
}

// acquire begins to claim or take the plans that are due, those that have begun first, then the oldest. It reports whether
// there is a free place left.
func (f *finder) acquire(at time.Time) bool {
	for !f.hold && f.acquiring < f.most {
		id := f.oldest(at)
		begun := id != uuid.Nil && f.open[id].begun
		if !f.n.reserve() {
			f.backlog = id != uuid.Nil || f.n.hasOffers()
			return false
		}
		offer := f.n.nextOffer(func(offer uuid.UUID) bool {
			return !begun && (id == uuid.Nil || driver.NewestFirst(offer, id) >= 0)
		})
		switch {
		case offer != nil:
			f.claimOffer(offer)
		case id != uuid.Nil:
			f.begin(id, func() (*workflow.Plan, error) { return f.n.acquire(f.ctx, id) })
		default:
			f.n.unreserve()
			f.backlog = false
			return true
		}
	}
	return f.n.free()
}

// begin claims or takes a plan for which there is a place.
func (f *finder) begin(id uuid.UUID, acquire func() (*workflow.Plan, error)) {
	f.open[id].busy = true
	f.acquiring++
	go func() {
		plan, err := acquire()
		f.n.unreserve()
		f.acquired <- acquisition{id, plan, err}
	}()
}

// claimOffers begins to claim the plans that were offered, as far as there are free places. The others wait for places,
// or until another node has found them.
func (f *finder) claimOffers() {
	for f.acquiring < f.most && f.n.reserve() {
		plan := f.n.nextOffer(func(uuid.UUID) bool { return true })
		if plan == nil {
			f.n.unreserve()
			return
		}
		f.claimOffer(plan)
	}
}

// claimOffer begins to claim a plan that was offered, for which there is a place.
func (f *finder) claimOffer(plan *workflow.Plan) {
	if c := f.open[plan.ID]; c != nil && c.busy {
		f.n.unreserve()
		return
	}
	f.open[plan.ID] = &candidate{offered: true}
	f.begin(plan.ID, func() (*workflow.Plan, error) {
		err := f.n.exclusive(f.ctx, "claim", plan.ID, func(ctx context.Context) error { return f.n.claim(ctx, plan) })
		if err != nil {
			return nil, err
		}
		return plan, nil
	})
}

// acquire claims or takes a plan that the node does not own yet. It returns no plan if there is none to run.
func (n *Node) acquire(ctx context.Context, id uuid.UUID) (plan *workflow.Plan, err error) {
	err = n.exclusive(ctx, "take", id, func(ctx context.Context) error {
		if n.owns(id) {
			return nil // the caller took it by itself
		}
		plan, err = n.take(ctx, id)
		return err
	})
	if err != nil || plan == nil || plan.State.Status.Final() {
		return nil, err
	}
	return plan, nil
}

// finish takes over the outcome of a claim or take. It reports whether to go on.
func (f *finder) finish(a acquisition) bool {
	f.acquiring--
	c := f.open[a.id]
	c.busy = false
	switch {
	case errors.Is(a.err, ErrOwned):
		delete(f.open, a.id)
		f.lookAgain(a.id)
	case a.err == nil, errors.Is(a.err, storage.ErrNotFound), errors.Is(a.err, ErrFenced):
		delete(f.open, a.id)
		f.n.taken(a.id) // or it would be due again at once
	case c.offered && !errors.Is(a.err, storage.ErrUnknown):
		delete(f.open, a.id) // a search finds it if nobody else has claimed it
	case errors.Is(a.err, ErrUnsuited):
		c.alien = true
		return f.report(a.id, a.err)
	case unreadable(a.err):
		c.broken = true
		return f.report(a.id, a.err)
	default:
		// The node may own the plan now. Others may be able to take it, and have the time for that.
		f.n.GiveBack(a.id)
		c.retried, c.offered, c.due = true, false, time.Now().Add(2*f.n.o.Interval)
		f.n.retries("take a plan", a.err)
	}
	return a.plan == nil || f.emit(a.plan, nil)
}

// lookAgain makes the loop look again at a plan whose owner had let it go, and is just trying to take it again.
func (f *finder) lookAgain(plan uuid.UUID) {
	for r := range f.passed {
		if r.plan == plan {
			f.open[plan] = &candidate{due: time.Now().Add(f.n.o.Interval), second: true}
		}
	}
}

// abandon waits for the claims and takes in progress, and gives their plans back. A take that failed may have made the
// node the owner all the same.
func (f *finder) abandon() {
	for ; f.acquiring > 0; f.acquiring-- {
		a := <-f.acquired
		if a.plan != nil || a.err != nil && !lacks(a.err) {
			f.n.GiveBack(a.id)
		}
	}
}

// lacks reports whether an acquisition that failed with this error certainly left the node without the plan.
func lacks(err error) bool {
	return errors.Is(err, storage.ErrNotFound) || errors.Is(err, ErrOwned) || errors.Is(err, ErrFenced) || errors.Is(err, ErrSuspended) || errors.Is(err, ErrUnsuited) || unreadable(err)
}

// Offer makes the loop over [Node.Plans] claim a plan that has not begun at once, without a search and without reading
// it. The caller passes the plan as Create left it, and uses it no more. If the node has no free place, the plan waits its
// turn for one, or until another node has found it. If the node drains, has no such loop, or a thousand plans wait, Offer
// forgets the plan, and searches find it. Offer does nothing with a plan that is nil or has begun.
func (n *Node) Offer(plan *workflow.Plan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if plan != nil && plan.State.Status == workflow.NotStarted && n.loopsOver > 0 && len(n.offered) < maxOffers {
		n.offered = append(n.offered, plan)
		n.notifyLocked()
	}
}

// maxOffers bounds the plans that wait to be claimed at once.
const maxOffers = 1000

// nextOffer returns the plan that was offered first, if it is wanted.
func (n *Node) nextOffer(wanted func(uuid.UUID) bool) (plan *workflow.Plan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.offered) > 0 && wanted(n.offered[0].ID) {
		plan, n.offered = n.offered[0], n.offered[1:]
	}
	return plan
}

func (n *Node) hasOffers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.offered) > 0
}

// loops notes that a loop over Plans begins or ends.
func (n *Node) looping(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.loopsOver += by; n.loopsOver == 0 {
		n.offered = nil
	}
}

// free reports whether the node may own another plan.
func (n *Node) free() bool {
	if !n.reserve() {
		return false
	}
	n.unreserve()
	return true
}

// reserve takes a place for one more plan, if the node's capacity allows it. unreserve gives it back, after the
// plan is owned or could not be had.
func (n *Node) reserve() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.o.Capacity > 0 && len(n.work)-n.resting+n.reserved >= n.o.Capacity {
		return false
	}
	n.reserved++
	return true
}

func (n *Node) unreserve() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reserved--
}
