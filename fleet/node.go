package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Node is a member of a fleet. Its methods are safe for concurrent use.
//
// A Node has goroutines of its own, which end with [Node.Leave] or when the node is fenced.
type Node struct {
	store   store
	o       Options
	id      uuid.UUID
	ctx     context.Context // ends when the node is no longer a member
	end     context.CancelCauseFunc
	fencing sync.Once
	looks   context.Context // ends with ctx, or when the node drains
	drain   context.CancelFunc
	loops   sync.WaitGroup
	judge   judge // used by look alone
	joined  time.Time
	gauges  gauger

	mu         sync.Mutex
	record     record
	clock      clock
	now        time.Time                          // the store's clock at the last look
	looked     time.Time                          // the time of the last look, by this machine's wall clock
	suspended  bool                               // the store was suspended when the node looked
	members    map[uuid.UUID]struct{}             // those of the last look, and owners that were found since
	takers     map[uuid.UUID]struct{}             // the members of the last look that take plans; it does not change
	left       map[uuid.UUID]struct{}             // those of the last look that were marked as left
	absent     map[uuid.UUID]struct{}             // owners that were found to be no members
	excused    map[uuid.UUID]struct{}             // members whose plugins are not to blame for their end
	departures int                                // how many members have gone so far
	letGo      map[letting]struct{}               // what the other members of the last look have let go; it does not change
	gauger     uuid.UUID                          // the member that looked after the gauges at the last look
	stops      map[uuid.UUID]workflow.Attribution // the plans that were asked to stop, at the last look
	ordered    *workflow.Attribution              // the stop of the plan of a claim, by Claim.Stop
	signals    map[uuid.UUID]int                  // the largest number of a signal of each plan, at the last look
	paused     map[uuid.UUID]bool                 // the plans that are paused, at the last look
	tidied     map[uuid.UUID]time.Time
	work       map[uuid.UUID]*work // the plans that the node owns
	pauses     map[uuid.UUID]pause // the plans that the node has let go
	freed      []string            // the keys whose turns were given back here
	asleep     sleepers            // the plans that the node is to wake
	loopsOver  int                 // how many loops over Plans there are
	offered    []*workflow.Plan    // plans that they are to claim at once
	acquires   bool                // whether it has tried to claim or take a plan
	resting    int                 // how many of them only wait
	reserved   int                 // places for plans that are being acquired
	locked     map[uuid.UUID]chan struct{}
	changed    chan struct{} // closed, and made anew, when any of this changes
}

// Join makes the process a member of the fleet that shares the vault. It returns after the node's record is
// stored and the other members are known. ctx bounds Join alone: the node stays a member until [Node.Leave].
// If Join fails, the process is not a member, and may call Join again.
//
// Errors: [ErrSuspended] if the store is suspended; [storage.ErrInvalid] for wrong options, and for a vault that accepts
// updates without versions, since such updates would ignore a fence; [errors.ErrUnsupported] for a vault that does not offer
// [storage.Control]; otherwise those of the vault.
func Join(ctx context.Context, vault storage.Vault, o Options) (*Node, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	s, err := storeOf("Join", vault)
	if err != nil {
		return nil, err
	}
	n, err := joinOnce(ctx, s, o)
	if errors.Is(err, storage.ErrExists) {
		// The process was frozen: its record was stored, but others marked it as left before the call was repeated.
		n, err = joinOnce(ctx, s, o)
	}
	return n, err
}

// joinOnce makes the process a member with a new ID.
func joinOnce(ctx context.Context, s store, o Options) (*Node, error) {
	n := newNode(ctx, s, o)
	n.gauges = gauger{n: n, wake: make(chan struct{}, 1)}
	n.judge = judge{self: n.id, ttl: o.TTL}
	self := storage.Member{ID: n.id, Name: o.Name, Started: time.Now().UTC(), TTL: o.TTL}
	if was := len(o.Former); was > 0 {
		self.Former = o.Former[was-1]
	}
	n.record = record{self: self, beat: n.joined, wake: make(chan struct{}, 1), writing: make(chan struct{}, 1)}
	err := settle(ctx, func() (err error) {
		n.record.self.Version, err = s.AddMember(ctx, self)
		return err
	})
	if err != nil {
		return nil, n.abandon(ctx, err)
	}
	n.loops.Go(func() { n.every(o.Interval, n.record.wake, n.heartbeat) })
	r, err := n.roster(ctx)
	if err != nil {
		return nil, n.abandon(ctx, err)
	}
	if err := suspendedBy(ctx, s, r); err != nil && !o.suspended {
		return nil, n.abandon(ctx, err)
	}
	next := n.see(ctx, r)
	n.loops.Go(func() { n.every(next, nil, n.look) })
	n.loops.Go(n.sweepsTurns)
	if o.gauges() {
		n.loops.Go(n.gauges.run)
	}
	return n, nil
}

// newNode returns a node that is no member yet.
func newNode(ctx context.Context, s store, o Options) *Node {
	n := &Node{
		store: s, o: o, id: workflow.NewV7(), joined: time.Now(), clock: clock{at: time.Now()},
		members: map[uuid.UUID]struct{}{}, absent: map[uuid.UUID]struct{}{}, excused: map[uuid.UUID]struct{}{}, stops: map[uuid.UUID]workflow.Attribution{},
		tidied: map[uuid.UUID]time.Time{}, work: map[uuid.UUID]*work{}, pauses: map[uuid.UUID]pause{}, paused: map[uuid.UUID]bool{},
		locked: map[uuid.UUID]chan struct{}{}, changed: make(chan struct{}),
	}
	n.ctx, n.end = context.WithCancelCause(context.WithoutCancel(ctx))
	n.looks, n.drain = context.WithCancel(n.ctx)
	return n
}

// abandon removes the record of a node that could not join, also if it is not known whether the record was stored. It
// returns the error of Join.
func (n *Node) abandon(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.o.patience())
	defer cancel()
	var left error
	if n.version() != "" {
		left = n.Leave(ctx)
	} else if errors.Is(err, storage.ErrUnknown) {
		left = n.leaveIfStored(ctx)
	}
	if left != nil {
		err = fmt.Errorf("%w; then %w", err, left)
	}
	return fmt.Errorf("join as node %s: %w", n.id, err)
}

// leaveIfStored removes the record of a node that does not know whether it was stored.
func (n *Node) leaveIfStored(ctx context.Context) error {
	switch m, err := n.store.FindMember(ctx, n.id); {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("look for node %s: %w", n.id, err)
	default:
		n.adopt(m.Version)
		return n.Leave(ctx)
	}
}

// ID returns the node's ID, a UUIDv7 that Join made. It is the Owner of the node's plans.
func (n *Node) ID() uuid.UUID { return n.id }

// Context returns a context that ends when the node is no longer a member, with the cause [ErrFenced] or
// [ErrLeft]. A fenced node does not come back: the process may join again, as a new node.
func (n *Node) Context() context.Context { return n.ctx }

// every calls do while the node is a member, each time after the wait that do asked for, and sooner after a
// failure or when somebody wakes it. The waits begin with the calls, so calls of any length do not delay each other.
func (n *Node) every(first time.Duration, wake <-chan struct{}, do func(context.Context) (next time.Duration, err error)) {
	for wait := first; n.await(wait, wake); {
		began := time.Now()
		next, err := do(n.ctx)
		if err != nil {
			next = n.o.retry()
		}
		wait = next - time.Since(began)
	}
}

// await returns after d, or when it is woken. It returns false when the node is no longer a member.
func (n *Node) await(d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-n.ctx.Done():
	}
	return n.ctx.Err() == nil
}

// bind returns a context that ends with ctx, or when the node is no longer a member.
func (n *Node) bind(ctx context.Context) (context.Context, func()) { return join(ctx, n.ctx) }

// join returns a context that ends with either context.
func join(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// failed returns the error of an operation on a plan. If the node is no longer a member, the error says so.
func (n *Node) failed(op string, plan uuid.UUID, err error) error {
	if err == nil {
		return nil
	}
	if gone := context.Cause(n.ctx); gone != nil && !errors.Is(err, gone) {
		err = fmt.Errorf("%w: %w", gone, err)
	}
	return fmt.Errorf("%s plan %s for node %s: %w", op, plan, n.id, err)
}

// retries reports that something failed and is tried again.
func (n *Node) retries(doing string, err error) {
	if n.ctx.Err() == nil {
		notify(n.ctx, n.o.Observer.Failure, FailureEvent{n.id, doing, err})
	}
}

// notifyLocked wakes all who wait for a change.
func (n *Node) notifyLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// view is what a search depends on.
type view struct {
	takers     map[uuid.UUID]struct{}
	now        time.Time
	departures int
	letGo      map[letting]struct{}
	pauses     map[uuid.UUID]pause // without those of plans that the node has taken again
	changed    <-chan struct{}
}

func (n *Node) view() view {
	n.mu.Lock()
	defer n.mu.Unlock()
	pauses := map[uuid.UUID]pause{}
	for id, p := range n.pauses {
		if n.work[id] != nil {
			continue
		}
		if _, asked := n.stops[id]; asked && p.wait > firstPause && !p.until.IsZero() {
			p.until = p.until.Add(firstPause - p.wait) // whoever asked must not wait for an hour
		}
		pauses[id] = p
	}
	return view{n.takers, n.now, n.departures, n.letGo, pauses, n.changed}
}

// changes returns a channel that is closed when the node's state changes.
func (n *Node) changes() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}
