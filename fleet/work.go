package fleet

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// work is a plan that the node owns and works on.
type work struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	rests int // how many calls of Rest have not been woken
}

// Work returns the context for the work on a plan that the node owns: for calls of plugins, not for updates. It ends
// with the cause [ErrFenced] when the plan or the node is fenced, [ErrStopRequested] when somebody called [Stop],
// [ErrSuspended] when the store is suspended, or [ErrLeft]. If the node does not own the plan, the context has ended with
// ErrFenced.
//
// The caller calls done when it is finished with the plan, for whatever reason. The plan then no longer counts
// against Options.Capacity. All calls of Work for a plan return the same context, and the first done counts.
func (n *Node) Work(plan uuid.UUID) (ctx context.Context, done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.work[plan]
	if w == nil {
		ctx, end := context.WithCancelCause(n.ctx)
		end(ErrFenced)
		return ctx, func() {}
	}
	return w.ctx, func() { n.release(plan, w) }
}

// Rest says that the plan only waits for a time, so that it does not count against Options.Capacity until wake is
// called. The node may then own more plans than that for a while. Only the first call of wake counts. Rest does nothing
// if the node does not own the plan.
func (n *Node) Rest(plan uuid.UUID) (wake func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.work[plan]
	if w == nil {
		return func() {}
	}
	if w.rests++; w.rests == 1 {
		n.resting++
		n.notifyLocked()
	}
	return sync.OnceFunc(func() { n.wake(plan, w) })
}

func (n *Node) wake(plan uuid.UUID, w *work) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.rests--; w.rests == 0 && n.work[plan] == w {
		n.resting--
	}
}

// own notes that the node owns a plan, and ends the work on it if the plan was asked to stop.
func (n *Node) own(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.work[plan] != nil {
		return
	}
	w := new(work)
	w.ctx, w.end = context.WithCancelCause(n.ctx)
	if n.suspended {
		w.end(ErrSuspended)
	}
	if by, asked := n.stops[plan]; asked {
		w.end(&StopError{by})
	}
	n.work[plan] = w
}

// fenced ends the work on a plan that belongs to somebody else now.
func (n *Node) fenced(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.work[plan]; w != nil {
		w.end(ErrFenced)
	}
}

func (n *Node) owns(plan uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.work[plan] != nil
}

// release forgets a plan that the node is finished with, unless it has been forgotten before.
func (n *Node) release(plan uuid.UUID, w *work) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.work[plan] == w {
		delete(n.pauses, plan)
		n.releaseLocked(plan, w)
	}
}

// releaseLocked forgets the work on a plan. w may be nil, if there is none.
func (n *Node) releaseLocked(plan uuid.UUID, w *work) {
	if w == nil {
		return
	}
	w.end(context.Canceled)
	if w.rests > 0 {
		n.resting--
	}
	delete(n.work, plan)
	n.notifyLocked()
}

// lock waits until no other call of this node claims or takes the plan.
func (n *Node) lock(ctx context.Context, plan uuid.UUID) (unlock func(), err error) {
	for {
		mine, others := n.tryLock(plan)
		if mine != nil {
			return mine, nil
		}
		select {
		case <-others:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (n *Node) tryLock(plan uuid.UUID) (unlock func(), others <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if others := n.locked[plan]; others != nil {
		return nil, others
	}
	mine := make(chan struct{})
	n.acquires = true
	n.locked[plan] = mine
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.locked, plan)
		close(mine)
	}, nil
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
