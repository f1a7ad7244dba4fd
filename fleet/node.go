package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Node is a member of a fleet. Its methods are safe for concurrent use.
//
// A Node has goroutines of its own, which end with [Node.Leave] or when the node is fenced.
type Node struct {
	store Store
	o     Options
	id    uuid.UUID
	since time.Time       // when its record was stored first
	shows time.Duration   // the time until all others have seen its record
	ctx   context.Context // ends when the node is no longer a member
	end   context.CancelCauseFunc
	loops sync.WaitGroup
	judge judge // used by look alone

	mu         sync.Mutex
	self       storage.Member         // the record as last stored
	now        time.Time              // the store's clock at the last look
	members    map[uuid.UUID]struct{} // those of the last look, and owners that were found since
	absent     map[uuid.UUID]struct{} // owners that were found to be no members
	departures int                    // how many members have gone so far
	stops      map[uuid.UUID]struct{} // the plans that were asked to stop, at the last look
	tidied     map[uuid.UUID]time.Time
	work       map[uuid.UUID]*work // the plans that the node owns
	acquires   bool                // whether it has tried to claim or take a plan
	reserved   int                 // places for plans that are being acquired
	locked     map[uuid.UUID]chan struct{}
	changed    chan struct{} // closed, and made anew, when any of this changes
}

// Join makes the process a member of the fleet that shares the store. It returns after the node's record is
// stored and the other members are known. ctx bounds Join alone: the node stays a member until [Node.Leave].
// If Join fails, the process is not a member, and may call Join again.
//
// Errors: [storage.ErrInvalid] for wrong options, and for a vault that accepts updates without versions, since
// such updates would ignore a fence; otherwise those of the store.
func Join(ctx context.Context, store Store, o Options) (*Node, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	n := &Node{
		store: store, o: o, id: workflow.NewV7(), shows: o.Interval,
		members: map[uuid.UUID]struct{}{}, absent: map[uuid.UUID]struct{}{}, stops: map[uuid.UUID]struct{}{},
		tidied: map[uuid.UUID]time.Time{}, work: map[uuid.UUID]*work{}, locked: map[uuid.UUID]chan struct{}{},
		changed: make(chan struct{}),
	}
	n.judge = judge{self: n.id, ttl: o.TTL}
	n.self = storage.Member{ID: n.id, Name: o.Name, Started: time.Now().UTC(), TTL: o.TTL}
	err = settle(ctx, func() (err error) {
		n.self.Version, err = store.AddMember(ctx, n.self)
		return err
	})
	n.since = time.Now()
	n.ctx, n.end = context.WithCancelCause(context.WithoutCancel(ctx))
	if err != nil {
		return nil, n.abandon(ctx, err)
	}
	n.loops.Go(func() { n.every(o.Interval, n.heartbeat) })
	r, err := store.Roster(ctx)
	if err != nil {
		return nil, n.abandon(ctx, err)
	}
	next := n.see(ctx, r)
	n.loops.Go(func() { n.every(next, n.look) })
	return n, nil
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
		n.renewed(m.Version)
		return n.Leave(ctx)
	}
}

// ID returns the node's ID, a UUIDv7 that Join made. It is the Owner of the node's plans.
func (n *Node) ID() uuid.UUID { return n.id }

// Context returns a context that ends when the node is no longer a member, with the cause [ErrFenced] or
// [ErrLeft]. A fenced node does not come back: the process may join again, as a new node.
func (n *Node) Context() context.Context { return n.ctx }

// every calls do while the node is a member, each time after the wait that do asked for, and sooner after a
// failure. The waits begin with the calls, so calls of any length do not delay each other.
func (n *Node) every(first time.Duration, do func(context.Context) (next time.Duration, err error)) {
	for wait := first; sleep.For(n.ctx, wait); {
		began := time.Now()
		next, err := do(n.ctx)
		if err != nil {
			next = n.o.retry()
		}
		wait = next - time.Since(began)
	}
}

// heartbeat renews the node's record. Only an answer which says that the record is no longer the node's fences
// the node. A renewal that took effect without an answer is recognised by the store when it is repeated.
func (n *Node) heartbeat(ctx context.Context) (next time.Duration, err error) {
	began := time.Now()
	try, cancel := context.WithTimeout(ctx, n.o.patience())
	defer cancel()
	version, err := n.store.RenewMember(try, n.self)
	if n.ctx.Err() != nil {
		return 0, err // leaving
	}
	notify(ctx, n.o.Observer.Heartbeat, HeartbeatEvent{n.id, time.Since(began), err})
	switch {
	case err == nil:
		n.renewed(version)
	case overtaken(err):
		n.end(ErrFenced)
		notify(ctx, n.o.Observer.Fenced, FencedEvent{n.id})
	}
	return n.o.Interval, err
}

func (n *Node) renewed(version string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.self.Version = version
}

func (n *Node) version() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.self.Version
}

// Leave removes the node from the fleet. Other nodes take its plans over when they look at the members next,
// within their Interval. Call Leave after the engine's calls have ended: Leave ends all contexts of the node
// with the cause [ErrLeft]. It returns when the node's goroutines have ended and its record is removed. Give ctx a
// deadline: in an outage Leave goes on trying until ctx ends. Others then remove the record after the TTL.
//
// A node that has claimed or taken plans and leaves within an Interval also leaves its record: the others have not
// seen the node, would not notice its departure, and would not take its plans. Calling Leave again is allowed.
func (n *Node) Leave(ctx context.Context) error {
	n.end(ErrLeft)
	n.loops.Wait() // their requests have ended with the node's context
	if n.unseen() {
		return nil
	}
	return n.resign(ctx)
}

// resign removes the record of a node whose goroutines have ended.
func (n *Node) resign(ctx context.Context) error {
	for {
		err := n.store.RemoveMember(ctx, n.id, n.version())
		switch {
		case err == nil, overtaken(err) && !conflicted(err):
			return nil
		case conflicted(err):
			// A heartbeat whose answer did not arrive has changed the record. Nobody else renews it.
			m, findErr := n.store.FindMember(ctx, n.id)
			if errors.Is(findErr, storage.ErrNotFound) {
				return nil
			}
			if findErr == nil && m.Version != n.version() {
				n.renewed(m.Version)
				continue
			}
			err = cmp.Or(findErr, err)
		}
		if !errors.Is(err, storage.ErrUnknown) || !sleep.For(ctx, settlePause) {
			return fmt.Errorf("leave as node %s: %w", n.id, err)
		}
	}
}

// unseen reports whether the node may own plans although the others may not have looked at the members since
// it joined.
func (n *Node) unseen() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.acquires && time.Since(n.since) < n.shows
}

// bind returns a context that ends with ctx, or when the node is no longer a member.
func (n *Node) bind(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(n.ctx, func() { cancel(context.Cause(n.ctx)) })
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

// snapshot returns what a search depends on.
func (n *Node) snapshot() (members map[uuid.UUID]struct{}, now time.Time, departures int, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.members), n.now, n.departures, n.changed
}
