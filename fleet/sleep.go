package fleet

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A plan that only waits may sleep: it has no owner, takes no memory, and its entry says when it is due. The node that let
// it sleep wakes it then. If that node has left or died, the first by hash does, which has found the plan by the searches
// that each departure starts. If that one lacks plugins for the plan, it lists the plan for the others. If all of this fails, the
// hourly search of any node finds the plan.
//
// A plan that has not begun and has a NotBefore is awaited in the same way, by the first by hash.

// Sleep gives up a plan that the node owns and that only waits, until a time by the store's clock. The caller has no update
// of the plan in flight, and the plan as it is stored. Then a node wakes the plan: [Node.Plans] yields it, with the next
// epoch and without a fence, since nothing was in flight. [Stop] wakes it earlier, and so does a signal with a number above
// lastSignal, also if it came before Sleep. With [MaxSignals], no signal does. A plan that is paused is marked as such, and is
// woken when it is due and has been resumed.
//
// Sleep is one update of the plan, and ends the plan's [Node.Work]. If it fails, the plan is unchanged, and still this
// node's unless the error says otherwise; after [storage.ErrUnknown], [Node.Take] settles it. Sleep repeats an update whose
// outcome is unknown until ctx ends.
//
// Errors: [ErrFenced] if the node does not own the plan; [storage.ErrConflict]; otherwise those of UpdatePlan.
func (n *Node) Sleep(ctx context.Context, plan *workflow.Plan, until time.Time, lastSignal int) error {
	ctx, cancel := n.bind(ctx)
	defer cancel()
	if !n.owns(plan.ID) {
		return n.failed("put to sleep", plan.ID, ErrFenced)
	}
	by, err := n.mark(ctx, plan.ID)
	if err != nil {
		return n.failed("put to sleep", plan.ID, err)
	}
	before, awaited := *plan, plan.WaitsFor
	if plan.KeepTurn == workflow.KeepWhileAwake && plan.WaitsFor == "" {
		plan.WaitsFor = plan.FirstKey()
	}
	plan.Owner, plan.WakeAt, plan.LastSignal, plan.Paused = uuid.Nil, until.UTC(), lastSignal, by
	if err := settle(ctx, func() error { return n.store.UpdatePlan(ctx, plan) }); err != nil {
		*plan = before
		return n.failed("put to sleep", plan.ID, err)
	}
	n.asleepNow(plan)
	if plan.WaitsFor != "" {
		n.giveTurns(ctx, plan, awaited)
	}
	return nil
}

// asleepNow notes that a plan sleeps, which this node is to wake.
func (n *Node) asleepNow(plan *workflow.Plan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pauses, plan.ID)
	n.forgetLocked(plan.ID, n.work[plan.ID])
	later := time.Duration(0)
	if plan.WaitsFor != "" && !plan.WakeAt.After(n.clock.when(time.Now())) {
		later = n.o.Interval // it waits for a turn
	}
	n.noteSleeperLocked(plan.ID, sleeper{wakeAt: plan.WakeAt, lastSignal: plan.LastSignal, own: true, turns: turnsAhead(plan)}, later)
}

// Woken reports whether the node owns a plan because it woke it: nothing of the plan ran when it was let go.
func (n *Node) Woken(plan uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.work[plan]
	return w != nil && w.woken
}

// mayWake returns an error unless this node may wake a plan that sleeps.
func (n *Node) mayWake(ctx context.Context, plan *workflow.Plan) error {
	if err := n.mayPlace(plan); err != nil {
		return err
	}
	if plan.Epoch == 0 && !n.o.TakeUnclaimed {
		return fmt.Errorf("%w: an engine without claims let it sleep; set Options.TakeUnclaimed once none runs any more", ErrOwned)
	}
	if err := n.mayGoOn(plan, plan.WakeAt, plan.LastSignal); err != nil {
		return err
	}
	if err := n.resumed(ctx, plan); err != nil {
		return err
	}
	return n.looksFirst(ctx, plan)
}

// mayGoOn returns an error unless a plan that waits for a time, or a signal after the last one, is due and not paused, or was
// asked to stop.
func (n *Node) mayGoOn(plan *workflow.Plan, at time.Time, lastSignal int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, asked := n.stopLocked(plan.ID)
	if due := n.signals[plan.ID] > lastSignal || !n.clock.when(time.Now()).Before(at); asked || due && !n.paused[plan.ID] {
		return nil
	}
	n.noteSleeperLocked(plan.ID, sleeper{wakeAt: at, lastSignal: lastSignal, own: true, turns: turnsAhead(plan)}, 0)
	if n.paused[plan.ID] {
		return ErrPaused
	}
	return fmt.Errorf("%w until %s", ErrAsleep, at.UTC().Format(time.RFC3339))
}

// rouse makes the node the owner of a plan that sleeps. The plan was read as it is: its entry first, and nothing below it
// has changed since its owner let it sleep. So the versions are the stored ones, and need no fence.
func (n *Node) rouse(ctx context.Context, plan *workflow.Plan) error {
	before := *plan
	plan.Owner, plan.Epoch, plan.External, plan.Alone = n.id, max(plan.Epoch, 1)+1, n.o.external, false
	plan.WakeAt, plan.LastSignal, plan.Paused, plan.WaitsFor = time.Time{}, 0, workflow.Attribution{}, ""
	if err := settle(ctx, func() error { return n.store.UpdatePlan(ctx, plan) }); err != nil {
		*plan = before
		return err
	}
	n.own(plan, true)
	notify(ctx, n.o.Observer.Claim, ClaimEvent{n.id, plan.ID, plan.Epoch})
	return nil
}

// sleeper is a plan that sleeps, as this node knows it.
type sleeper struct {
	due        time.Time // by this machine's clock: when this node's turn comes
	wakeAt     time.Time // as it is stored
	lastSignal int       // the same
	own        bool      // this node is the first to wake it
	turns      []turn    // that it sleeps without
	noted      time.Time
}

// sleepers are the plans that a node is to wake, in order of their times. An entry of order that no longer agrees with
// known is left over.
type sleepers struct {
	known   map[uuid.UUID]*sleeper
	order   naps
	stopped []uuid.UUID // were asked to stop, and may be no longer known
}

func (s *sleepers) put(id uuid.UUID, p sleeper) {
	if s.known == nil {
		s.known = map[uuid.UUID]*sleeper{}
	}
	s.known[id] = &p
	heap.Push(&s.order, nap{p.due, id})
	if len(s.order) > 2*len(s.known)+64 {
		s.tidy()
	}
}

// tidy drops what is left over.
func (s *sleepers) tidy() {
	s.order = s.order[:0]
	for id, p := range s.known {
		s.order = append(s.order, nap{p.due, id})
	}
	heap.Init(&s.order)
}

// first returns the plan that is due first.
func (s *sleepers) first() (uuid.UUID, *sleeper) {
	for len(s.order) > 0 {
		if p := s.known[s.order[0].id]; p != nil && p.due.Equal(s.order[0].due) {
			return s.order[0].id, p
		}
		heap.Pop(&s.order)
	}
	return uuid.Nil, nil
}

// nap is a plan in the order of waking.
type nap struct {
	due time.Time
	id  uuid.UUID
}

// naps is a heap.
type naps []nap

func (h naps) Len() int           { return len(h) }
func (h naps) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h naps) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *naps) Push(x any)        { *h = append(*h, x.(nap)) }
func (h *naps) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// noteSleeperLocked makes the node wake a plan at its time and a while later. If the plan was asked to stop, or has a new
// signal, it is due now; if it is paused, when it is resumed.
func (n *Node) noteSleeperLocked(plan uuid.UUID, p sleeper, later time.Duration) {
	p.noted = time.Now()
	p.due = p.noted.Add(p.wakeAt.Sub(n.clock.when(p.noted)) + later)
	if n.paused[plan] {
		p.due = p.noted.Add(whilePaused)
	}
	if _, asked := n.stops[plan]; asked {
		p.due = p.noted
		n.asleep.stopped = append(n.asleep.stopped, plan)
	}
	n.asleep.put(plan, p)
	n.wakeSignalledLocked(plan)
	n.notifyLocked()
}

// hastenLocked wakes a plan now, if this node is to wake it.
func (n *Node) hastenLocked(plan uuid.UUID) {
	if n.soonerLocked(plan, time.Now()) {
		n.asleep.stopped = append(n.asleep.stopped, plan)
	}
}

// wakeSignalledLocked wakes a plan if this node is to wake it and it has a new signal. The node that let it sleep goes first.
func (n *Node) wakeSignalledLocked(plan uuid.UUID) {
	p := n.asleep.known[plan]
	switch {
	case p == nil || n.paused[plan] || n.signals[plan] <= p.lastSignal:
	case p.own:
		n.soonerLocked(plan, time.Now())
	default:
		n.soonerLocked(plan, time.Now().Add(n.o.Interval/2))
	}
}

// soonerLocked brings the waking of a plan forward, and reports whether that was needed.
func (n *Node) soonerLocked(plan uuid.UUID, due time.Time) bool {
	p := n.asleep.known[plan]
	if p == nil || !p.due.After(due) {
		return false
	}
	next := *p
	next.due = due
	n.asleep.put(plan, next)
	return true
}

// stoppedSleeper returns a plan that sleeps and was asked to stop, and forgets it. A place is reserved for it even if there
// is none: a stop needs no place.
func (n *Node) stoppedSleeper() (id uuid.UUID, p sleeper, any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.asleep.stopped) > 0 {
		id, n.asleep.stopped = n.asleep.stopped[0], n.asleep.stopped[1:]
		if known := n.asleep.known[id]; known != nil {
			delete(n.asleep.known, id)
			n.reserved++
			return id, *known, true
		}
	}
	return id, p, false
}

// nextSleeper returns when the first plan that sleeps is due.
func (n *Node) nextSleeper() (due time.Time, any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, p := n.asleep.first()
	if p == nil {
		return due, false
	}
	return p.due, true
}

// dueSleeper returns the first plan that sleeps and is due, and forgets it.
func (n *Node) dueSleeper(at time.Time) (id uuid.UUID, p sleeper, any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, first := n.asleep.first()
	if first == nil || first.due.After(at) {
		return id, p, false
	}
	delete(n.asleep.known, id)
	return id, *first, true
}

// keepSleeper notes a plan again that is a candidate now.
func (n *Node) keepSleeper(id uuid.UUID, p sleeper, due time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.due, p.noted = due, time.Now()
	n.asleep.put(id, p)
}

// forgetSleepers forgets the plans that a search since a time has not found asleep.
func (n *Node) forgetSleepers(since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.asleep.known, func(_ uuid.UUID, p *sleeper) bool { return p.noted.Before(since) })
}

// offerSleepers lists plans that have been due for an interval on the record of the node, which is full, so that others
// take them.
func (n *Node) offerSleepers(at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	self := &n.record.self
	for id, p := n.asleep.first(); p != nil && !p.due.Add(n.o.Interval).After(at) && len(self.LetGo) < storage.MaxLetGo; id, p = n.asleep.first() {
		heap.Pop(&n.asleep.order)
		p.due, p.own = at.Add(lookInterval), false
		heap.Push(&n.asleep.order, nap{p.due, id})
		self.LetGo = append(self.LetGo[:len(self.LetGo):len(self.LetGo)], id)
		n.record.announce()
	}
}

// offerUnsuited lists the plans that sleep and are due, and that the process lacks plugins for, on the record of the node, so
// that others wake them. Each is listed until all members have looked.
func (f *finder) offerUnsuited(at time.Time) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	self := &f.n.record.self
	for id, until := range f.unsuited {
		if !until.IsZero() && !until.After(at) {
			self.LetGo = slices.DeleteFunc(slices.Clone(self.LetGo), func(listed uuid.UUID) bool { return listed == id })
			delete(f.unsuited, id)
		}
	}
	for id, until := range f.unsuited {
		if until.IsZero() && len(self.LetGo) < storage.MaxLetGo {
			self.LetGo = append(slices.Clip(self.LetGo), id)
			f.unsuited[id] = at.Add(max(lookInterval, 3*f.n.o.Interval))
		}
	}
	f.n.record.announce()
}

// wakeDue makes candidates of the plans that sleep and are due, no more than the loop takes at a time: the others may wait
// for long, and a new plan that is older goes first.
func (f *finder) wakeDue(at time.Time) {
	for f.acquiring < f.most {
		id, p, any := f.n.stoppedSleeper()
		if !any {
			break
		}
		if f.open[id] != nil {
			f.n.unreserve()
			continue
		}
		f.open[id] = &candidate{due: at, slept: p.wakeAt}
		f.begin(id, func() (*workflow.Plan, error) { return f.n.acquire(f.ctx, id, nil) })
	}
	if !f.n.free() {
		f.n.offerSleepers(at)
		return
	}
	for pending := f.waking(); pending < f.most; pending++ {
		id, p, any := f.n.dueSleeper(at)
		if !any {
			return
		}
		if f.open[id] == nil {
			slept := p.wakeAt
			if slept.After(at) {
				slept = at // a signal wakes it
			}
			f.open[id] = &candidate{due: at, slept: slept, second: !p.own, turns: p.turns}
		}
		if len(p.turns) > 0 {
			f.n.keepSleeper(id, p, at.Add(f.n.o.Interval)) // it may have to wait, and this node may become full meanwhile
		}
	}
}

// waking counts the plans that are being acquired, or are about to be because they have slept.
func (f *finder) waking() int {
	n := f.acquiring
	for _, c := range f.open {
		if !c.slept.IsZero() && c.waits() {
			n++
		}
	}
	return n
}

// considerSleeper notes a plan that sleeps, if this node is to wake it. If spread is set, the node that let it sleep has its
// turn first, then the first by hash, and then, when the plan is overdue, any node.
func (f *finder) considerSleeper(r storage.ListResult, v view, spread bool) {
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	_, asked := n.stops[r.ID]
	now := time.Now()
	wait := r.WakeAt.Sub(n.clock.when(now))
	last := r.LastSignal
	if r.State.Status == workflow.NotStarted {
		last = MaxSignals // it waits for its time
	}
	switch p := n.asleep.known[r.ID]; {
	case r.State.Status == workflow.Running && r.Epoch == 0 && !n.o.TakeUnclaimed:
	case !spread && (asked || (n.signals[r.ID] > last || wait <= 0) && !n.paused[r.ID]):
		f.open[r.ID] = &candidate{due: now, etag: r.State.ETag, slept: r.WakeAt, turns: turnsIn(r)}
	case p != nil && p.wakeAt.Equal(r.WakeAt) && p.lastSignal == last:
		p.noted = now
	case first(r.ID, n.id, maps.Keys(v.takers)):
		n.noteSleeperLocked(r.ID, sleeper{wakeAt: r.WakeAt, lastSignal: last, turns: turnsIn(r)}, n.o.Interval/2)
	case wait < -2*n.o.Interval && !n.paused[r.ID]:
		n.noteSleeperLocked(r.ID, sleeper{wakeAt: r.WakeAt, lastSignal: last, turns: turnsIn(r)}, -wait+2*n.o.Interval)
	}
}
