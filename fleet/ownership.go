package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// An ownership has one life. The node finds a plan (search.go) and has a free place for it. It acquires the plan: it claims
// one that has not begun, and takes one whose owner is gone. It then owns the plan and works on it. The ownership ends when
// the plan is done, when the node lets it go, or when another node fences it. The steps follow in this order.

// free reports whether the node may own another plan.
func (n *Node) free() bool {
	if !n.reserve() {
		return false
	}
	n.unreserve()
	return true
}

// reserve takes a place for one more plan, if the node's capacity allows it. unreserve frees it when the plan is owned, or
// acquiring it failed.
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

// acquire claims or takes a plan that the node does not own yet. offered is the plan if it is new, and otherwise nil. It returns no
// plan if there is none to run.
func (n *Node) acquire(ctx context.Context, id uuid.UUID, offered *workflow.Plan) (plan *workflow.Plan, err error) {
	began := false
	err = n.exclusive(ctx, "take", id, func(ctx context.Context) error {
		began = true
		switch {
		case n.owns(id): // the caller took it by itself, or a search had found what was offered
			return nil
		case offered != nil:
			plan = offered
			return n.claimWithTurns(ctx, plan)
		}
		plan, err = n.take(ctx, id)
		return err
	})
	switch {
	case !began && n.isCallers(id): // that call decides what becomes of the plan
		return nil, nil
	case err != nil, plan == nil, plan.State.Status.Final():
		return nil, err
	}
	return plan, nil
}

// isCallers reports whether the plan is the node's, or a call of its caller may make it so.
func (n *Node) isCallers(plan uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.work[plan] != nil || n.locked[plan] != nil
}

// exclusive calls do if the node is a member, while no other call of it acquires the plan.
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

// Claim makes the node the owner of a plan that has not begun, with the UpdatePlan that moves it to Running. It takes the plan as
// Read or Create left it. A plan that takes turns also gets its turns, or is stored as asleep: see [TakeTurns]. When Claim returns
// nil, the plan is Running, and its Owner, Epoch and State.Start are set. If Claim fails, the plan is unchanged, unless the error
// is [ErrNoTurn].
//
// Errors: [storage.ErrInvalid] for a plan that is not NotStarted; [ErrOwned] if an engine of another kind places it;
// [ErrAsleep] before its NotBefore, and [ErrPaused] while it is paused, unless it was asked to stop; [storage.ErrConflict] if
// somebody else has claimed or changed it; [ErrFenced] or [ErrLeft] if the node is no longer a member; otherwise those of
// UpdatePlan. Claim repeats an update whose outcome is unknown until ctx ends. If the error is
// [storage.ErrUnknown] even so, [Node.Take] settles it.
func (n *Node) Claim(ctx context.Context, plan *workflow.Plan) error {
	if plan == nil {
		return &storage.Error{Op: "Claim", Err: driver.Invalid("Plan", "is nil")}
	}
	if plan.State.Status != workflow.NotStarted {
		return &storage.Error{Op: "Claim", Plan: plan.ID, Err: driver.Invalid("State.Status", "is %s: only a plan that is NotStarted can be claimed", plan.State.Status)}
	}
	return n.exclusive(ctx, "claim", plan.ID, func(ctx context.Context) error { return n.claimWithTurns(ctx, plan) })
}

// claimWithTurns claims a plan and takes its turns.
func (n *Node) claimWithTurns(ctx context.Context, plan *workflow.Plan) error {
	if err := n.claim(ctx, plan); err != nil {
		return err
	}
	return n.takeTurns(ctx, plan, false)
}

// claim moves a plan to Running with this node as its owner. It needs no fence: a plan that is NotStarted has
// had no owner.
func (n *Node) claim(ctx context.Context, plan *workflow.Plan) error {
	if err := n.mayPlace(plan); err != nil {
		return err
	}
	if err := n.mayGoOn(plan, plan.NotBefore, MaxSignals); err != nil {
		return err
	}
	if err := n.looksFirst(ctx, plan); err != nil {
		return err
	}
	before := *plan
	plan.State.Status, plan.State.Start = workflow.Running, n.Now()
	plan.Owner, plan.Epoch, plan.External = n.id, plan.Epoch+1, n.o.external
	if err := settle(ctx, func() error { return n.store.UpdatePlan(ctx, plan) }); err != nil {
		*plan = before
		return err
	}
	n.own(plan, false)
	notify(ctx, n.o.Observer.Claim, ClaimEvent{n.id, plan.ID, plan.Epoch})
	return nil
}

// Take makes the node the owner of a running plan whose owner is no longer a member, or is the node itself,
// and fences the plan: no write of a former owner, or of this node from before Take, takes effect any more.
// An owner that met [storage.ErrConflict] calls Take too, after its requests in flight have ended. It goes on
// from the plan that Take returns. Attempts that never ended are stored as Interrupted if their owner was draining, or a
// person evicted it.
//
// A plan that sleeps is woken without a fence if it is due, or was asked to stop; see [Node.Sleep].
//
// A plan that is final needs no owner. Take stores it again, which completes an end that was interrupted, and
// returns it: the caller looks at State.Status. A plan that has not begun is claimed, as [Node.Claim] does.
//
// Take costs a Read, an update of the plan and one of each sub-object. It begins again when the former owner
// still writes. If ctx ends, or Take fails, the plan may be half fenced; the next Take finishes it.
//
// Errors: [ErrAsleep] and [ErrPaused], beside the plan as it is stored; [ErrOwned] if another member works on the plan, if it was
// begun by an engine without claims, or if an engine of another kind places it; [ErrFenced] if this node owned the plan and another
// one does now, or if this node is no longer a member; [ErrLeft]; [storage.ErrConflict] if the plan kept changing; otherwise those
// of Read and the updates.
func (n *Node) Take(ctx context.Context, id uuid.UUID) (plan *workflow.Plan, err error) {
	err = n.exclusive(ctx, "take", id, func(ctx context.Context) error {
		plan, err = n.take(ctx, id)
		return err
	})
	if errors.Is(err, ErrFenced) {
		n.fenced(id)
	}
	if err != nil && !errors.Is(err, ErrAsleep) && !errors.Is(err, ErrPaused) {
		return nil, err
	}
	return plan, err
}

// maxRounds bounds how often a take begins again. Each round fences more of what a former owner still writes.
const maxRounds = 16

// take reads a plan and does what its state calls for. After a conflict it begins again with the read, because what it
// read before does not belong to the next epoch. Beside an error, the plan is only as it is stored if it waits.
func (n *Node) take(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	began := time.Now()
	for round := 1; ; round++ {
		plan, err := n.store.Read(ctx, id)
		if err != nil {
			return nil, err
		}
		from, had := plan.Owner, hasTurns(plan)
		switch {
		case plan.State.Status.Final():
			// The owner may have died during its last update. Repeating it completes it.
			if n.completes(plan) {
				err = settle(ctx, func() error { return n.store.UpdatePlan(ctx, plan) })
			}
		case n.o.handsOver && plan.Owner == uuid.Nil && (plan.State.Status == workflow.NotStarted || plan.Asleep()):
			plan.External = workflow.External{} // it stays what it is, and nodes may claim or wake it
			err = settle(ctx, func() error { return n.store.UpdatePlan(ctx, plan) })
		case plan.State.Status == workflow.NotStarted:
			err = n.claim(ctx, plan)
		case plan.Asleep() && n.passed(plan):
			err = fmt.Errorf("%w: others have taken it since, and it sleeps in epoch %d", ErrFenced, plan.Epoch)
		case plan.Asleep():
			if err := n.mayWake(ctx, plan); err != nil {
				return plan, err
			}
			err = n.rouse(ctx, plan)
		default:
			if err := n.mayTake(ctx, plan); err != nil {
				return nil, err
			}
			n.interrupt(plan)
			if err = n.fence(ctx, plan); err == nil {
				n.own(plan, false)
				notify(ctx, n.o.Observer.Takeover, TakeoverEvent{n.id, id, from, plan.Epoch, round, time.Since(began)})
			}
		}
		switch {
		case err == nil && (plan.State.Status.Final() || n.o.handsOver):
			return plan, nil
		case err == nil:
			return plan, n.takeTurns(ctx, plan, had)
		case !conflicted(err) || ctx.Err() != nil:
			return plan, err
		case round == maxRounds:
			return nil, fmt.Errorf("the plan changed in each of %d rounds, so try again later: %w", round, err)
		}
	}
}

// mayTake returns an error unless this node may take a running plan.
func (n *Node) mayTake(ctx context.Context, plan *workflow.Plan) error {
	switch standingOf(driver.Listed(plan), n.id, n.owns(plan.ID), n.o) {
	case free:
		return nil
	case outside:
		return ownedError(plan)
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
		err = ownedError(plan)
	}
	return err
}

// standing is how a running plan stands to a node.
type standing int

const (
	free      standing = iota // the node may take it
	unclaimed                 // begun by an engine without claims, which may still run
	lost                      // the node owned it, and somebody else does now
	owned                     // by another node: free if that is no member
	outside                   // placed by an engine of another kind, or by the fleet if the node is of that kind
)

// standingOf decides how a running plan stands to the node self. held says that the node has owned it.
func standingOf(p storage.ListResult, self uuid.UUID, held bool, o Options) standing {
	switch {
	case p.Owner == self:
		return free // an earlier take or claim did not finish, or the node met a conflict
	case held:
		return lost
	case p.External != "" && o.handsOver:
		return free
	case p.External != "" && p.External == o.external.Name && p.Epoch == o.former && p.Epoch > 0:
		return free
	case p.External != "":
		return outside
	case p.Owner == uuid.Nil && p.Epoch == 0 && !o.TakeUnclaimed:
		return unclaimed
	case p.Owner == uuid.Nil && p.Epoch == 0:
		return free
	case o.external.Name != "":
		return outside
	case p.Owner == uuid.Nil:
		return free
	}
	return owned
}

// interrupt marks attempts of excused owners that never ended as interrupted, so that they don't count as crashes. These
// may be earlier owners, too: a node that took the plan may have died before it finished the fence.
func (n *Node) interrupt(plan *workflow.Plan) {
	for o := range workflow.Walk(plan) {
		a, ok := o.(*workflow.Action)
		if !ok || a.State.Status.Final() || len(a.Attempts) == 0 {
			continue
		}
		last := &a.Attempts[len(a.Attempts)-1]
		if ran := last.Later == nil || last.Later.Called; last.End.IsZero() && ran && n.excuses(last.Owner) {
			last.Interrupted = true
		}
	}
}

// fence makes the node the owner of a plan as it was read. First it updates the entry: success proves that nobody took
// the plan since it was read, so all versions in it are older than the new epoch. Then it stores each sub-object once
// more, including NotStarted and final ones. From then on, no write that names an older version takes effect. Epoch 1 is
// that of a claim, so a plan that began without a claim continues with epoch 2.
func (n *Node) fence(ctx context.Context, plan *workflow.Plan) error {
	plan.Owner, plan.Epoch, plan.External, plan.Alone = n.id, max(plan.Epoch, 1)+1, n.o.external, false
	return n.store.rewrite(ctx, plan)
}

// rewrite stores the entry of a plan, and then each of its sub-objects.
func (s store) rewrite(ctx context.Context, plan *workflow.Plan) error {
	if err := settle(ctx, func() error { return s.UpdatePlan(ctx, plan) }); err != nil {
		return err
	}
	return atOnce(workflow.Parts(plan), func(o workflow.Object) error {
		return settle(ctx, func() error { return storage.Update(ctx, s, o) })
	})
}

// work is a plan that the node owns and works on.
type work struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	epoch int64
	rests int // calls of Rest whose wake was not called
	woken bool
	// signalled is closed when the plan has more signals. It is nil if nobody waits for that.
	signalled chan struct{}
}

// own notes that the node owns a plan, and ends the work on it if the plan was asked to stop.
func (n *Node) own(p *workflow.Plan, woken bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	plan := p.ID
	delete(n.asleep.known, plan)
	if w := n.work[plan]; w != nil {
		w.epoch, w.woken = p.Epoch, woken
		return
	}
	w := &work{epoch: p.Epoch, woken: woken}
	w.ctx, w.end = context.WithCancelCause(n.ctx)
	if n.suspended {
		w.end(ErrSuspended)
	}
	if by, asked := n.stopLocked(plan); asked {
		w.end(&StopError{by})
	} else if n.paused[plan] {
		w.end(ErrPaused)
	}
	n.work[plan] = w
}

func (n *Node) owns(plan uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.work[plan] != nil
}

// passed reports whether the node owned a plan in another epoch.
func (n *Node) passed(plan *workflow.Plan) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.work[plan.ID]
	return w != nil && w.epoch != plan.Epoch
}

// Work returns the context for the work on a plan that the node owns: for calls of plugins, not for updates. It ends
// with the cause [ErrFenced] when the plan or the node is fenced, [ErrStopRequested] when somebody called [Stop], [ErrPaused] after [PausePlan],
// [ErrSuspended] when the store is suspended, or [ErrLeft]. If the node does not own the plan, the context has ended with
// ErrFenced.
//
// The caller calls done when it stops working on the plan, for whatever reason. The plan then no longer counts
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
	return w.ctx, func() { n.done(plan, w) }
}

// Rest says that the plan is only waiting for a time. It does not count against Options.Capacity until wake is called, so
// the node may own more plans for a while. Only the first call of wake counts. Rest does nothing if the node does not own
// the plan.
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

// fenced ends the work on a plan that belongs to somebody else now.
func (n *Node) fenced(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.work[plan]; w != nil {
		w.end(ErrFenced)
	}
}

// letting is a plan, and the owner that let it go.
type letting struct{ owner, plan uuid.UUID }

// LetGo gives up a plan that the node owns. The work's context ends, the plan no longer counts against
// Options.Capacity, and the node's record lists the plan at once, so that another node takes it within its Interval. A
// record lists at most 100 plans, the most recent. Others take the rest when the node has left.
//
// The node takes the plan again if nobody else has within a minute. The pause doubles each time, up to an hour, unless
// somebody called [Stop]. LetGo does nothing if the node does not own the plan.
func (n *Node) LetGo(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.work[plan]
	if w == nil {
		return
	}
	wait := min(max(2*n.pauses[plan].wait, firstPause), longestPause)
	n.forgetLocked(plan, w)
	n.listLocked(plan, pause{time.Now().Add(wait), wait})
}

// GiveBack is LetGo without a pause, for a plan that needs nothing but a free place. It also lists a plan that the node may
// own although acquiring it failed.
func (n *Node) GiveBack(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgetLocked(plan, n.work[plan])
	n.listLocked(plan, pause{time.Now(), n.pauses[plan].wait})
}

// listLocked lets others take a plan, and makes this node wait before it does.
func (n *Node) listLocked(plan uuid.UUID, p pause) {
	n.pauses[plan] = p
	self := &n.record.self
	list := append(slices.DeleteFunc(slices.Clone(self.LetGo), func(id uuid.UUID) bool { return id == plan }), plan)
	self.LetGo = list[max(0, len(list)-storage.MaxLetGo):]
	n.record.announce()
	n.notifyLocked()
}

// pause is how long a node leaves a plan that it has let go to others.
type pause struct {
	until time.Time // zero after another node has taken the plan
	wait  time.Duration
}

// The first pause, and the longest.
const (
	firstPause   = time.Minute
	longestPause = time.Hour
)

// taken ends the pause of a plan that another node has taken, or that is final.
func (n *Node) taken(plan uuid.UUID) {
	n.unlist(plan)
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, there := n.pauses[plan]; there {
		n.pauses[plan] = pause{wait: p.wait}
	}
}

// forgetPauses forgets the pauses of plans that are not open any more.
func (n *Node) forgetPauses(open map[uuid.UUID]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.pauses, func(id uuid.UUID, p pause) bool { return !open[id] && p.until.IsZero() })
}

// done forgets a plan that the node has finished.
func (n *Node) done(plan uuid.UUID, w *work) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.work[plan] == w {
		delete(n.pauses, plan)
		n.forgetLocked(plan, w)
	}
}

// forget ends the work on a plan that is gone, and frees its place.
func (n *Node) forget(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgetLocked(plan, n.work[plan])
}

// forgetLocked ends the work on a plan, if there is any, and forgets it.
func (n *Node) forgetLocked(plan uuid.UUID, w *work) {
	if w == nil {
		return
	}
	w.end(context.Canceled)
	if w.signalled != nil {
		close(w.signalled)
	}
	if w.rests > 0 {
		n.resting--
	}
	delete(n.work, plan)
	n.notifyLocked()
}
