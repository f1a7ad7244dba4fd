package fleet

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

const (
	// fullInterval is the time between two searches of all days.
	fullInterval = time.Hour
	// maxAcquiring is the number of plans that one loop over Plans claims or takes at a time.
	maxAcquiring = 8
)

// Plans yields the plans that the node is to run, until ctx ends or the node is no longer a member:
//
//   - Plans that had not begun, claimed for this node. They are Running, and nothing of them has run.
//   - Plans of members that died or left, taken over for this node. They are Running and fenced, and go on
//     where they stand.
//
// The node owns each plan that is yielded, and the caller calls [Node.Work] for it. Plans looks for more while
// the plan is worked on elsewhere, so the body of the loop starts a goroutine. While the node owns
// Options.Capacity plans, Plans waits for one of them to be done. Plans that were claimed or taken and not
// yielded when the loop ends belong to the node, and the next loop yields them.
//
// An error comes with a nil plan and does not end the loop. It is a plan that can't be read, yielded once
// ([storage.ErrCorrupt], [storage.ErrSchema]), or a search that fails for good, yielded once until a search
// succeeds ([storage.ErrDenied], [storage.ErrClosed]). Plans retries what is only unavailable.
//
// A plan that was let go before it was final is yielded again by this node within an hour, or by another node
// after this one left.
func (n *Node) Plans(ctx context.Context) iter.Seq2[*workflow.Plan, error] {
	return func(yield func(*workflow.Plan, error) bool) {
		ctx, cancel := n.bind(ctx)
		f := &finder{n: n, yield: yield, open: map[uuid.UUID]*candidate{}, reported: map[uuid.UUID]bool{}, acquired: make(chan acquisition)}
		defer f.abandon()
		defer cancel()
		for ctx.Err() == nil {
			more, changed := f.step(ctx)
			if !more {
				return
			}
			wake := time.NewTimer(time.Until(f.next()))
			select {
			case a := <-f.acquired:
				if !f.finish(a) {
					return
				}
			case <-changed:
			case <-wake.C:
			case <-ctx.Done():
			}
			wake.Stop()
		}
	}
}

// finder is the state of one loop over Plans. Its methods are called by the loop's goroutine alone.
type finder struct {
	n        *Node
	yield    func(*workflow.Plan, error) bool
	open     map[uuid.UUID]*candidate // what the searches found for this node
	reported map[uuid.UUID]bool       // plans whose errors were yielded; uuid.Nil stands for a failed search

	nextNew, nextFull time.Time     // when the searches are due
	patience          time.Duration // the time until a full search that failed is made again
	departures        int           // those that a full search has been made for
	again             bool          // whether the next full search follows soon

	acquired  chan acquisition
	acquiring int
}

// candidate is a plan that this node may claim or take.
type candidate struct {
	due     time.Time
	etag    string // of the listing's result
	second  bool   // another node came first, and may have taken the plan by now
	busy    bool   // being claimed or taken
	retried bool   // a claim or take failed without an outcome; the plan may already be this node's
	broken  bool   // the plan can't be read; only a full search looks at it again, or a new version
}

func (c *candidate) isDue(at time.Time) bool { return !c.busy && !c.broken && !c.due.After(at) }

// acquisition is the outcome of a claim or take.
type acquisition struct {
	id   uuid.UUID
	plan *workflow.Plan
	err  error
}

// step makes the searches that are due, and begins to claim and take what is due. It reports whether to go on,
// and returns a channel that is closed when the node's state changes.
func (f *finder) step(ctx context.Context) (more bool, changed <-chan struct{}) {
	members, now, departures, changed := f.n.snapshot()
	if departures != f.departures {
		f.departures, f.nextFull, f.again = departures, time.Now(), true
	}
	at := time.Now()
	more = f.recheck(ctx, at, members)
	if !more || !f.acquire(ctx, at) {
		return more, changed // without a free place, nothing is looked for
	}
	switch {
	case !at.Before(f.nextFull):
		more = f.searchAll(ctx, at, members)
	case !at.Before(f.nextNew) && f.oldest(at) == uuid.Nil:
		more = f.searchNew(ctx, at, members, now)
	}
	f.acquire(ctx, time.Now())
	return more, changed
}

// next returns when the next step is due if nothing changes before.
func (f *finder) next() time.Time {
	next := time.Now().Add(fullInterval)
	if f.acquiring == maxAcquiring || !f.n.free() {
		return next // a change ends the wait
	}
	for _, due := range []time.Time{f.nextNew, f.nextFull} {
		if due.Before(next) {
			next = due
		}
	}
	for _, c := range f.open {
		if !c.busy && !c.broken && c.due.Before(next) {
			next = c.due
		}
	}
	return next
}

// oldest returns the oldest plan to claim or take now, or uuid.Nil.
func (f *finder) oldest(at time.Time) (oldest uuid.UUID) {
	for id, c := range f.open {
		if !c.second && c.isDue(at) && (oldest == uuid.Nil || driver.NewestFirst(id, oldest) > 0) {
			oldest = id
		}
	}
	return oldest
}

// searchAll searches all days for plans that had not begun, and for running ones without an owner.
func (f *finder) searchAll(ctx context.Context, at time.Time, members map[uuid.UUID]struct{}) (more bool) {
	f.nextNew = at.Add(f.n.o.Interval)
	f.patience = min(max(2*f.patience, f.n.o.Interval), fullInterval)
	f.nextFull = at.Add(f.patience)
	filters := storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}
	seen, complete, more := f.scan(ctx, filters, func(r storage.ListResult) error {
		if c := f.open[r.ID]; c != nil && c.broken {
			delete(f.open, r.ID) // it may have been repaired
		}
		return f.consider(ctx, r, members, true)
	})
	if !complete {
		return more
	}
	f.forget(seen, storage.Filters{})
	f.patience, f.nextFull = 0, at.Add(fullInterval)
	if f.again {
		// A request that a departed member sent late may claim a plan after this search.
		f.nextFull, f.again = at.Add(f.n.o.TTL), false
	}
	return more
}

// searchNew searches today and yesterday, by the store's clock, for plans that had not begun.
func (f *finder) searchNew(ctx context.Context, at time.Time, members map[uuid.UUID]struct{}, now time.Time) (more bool) {
	f.nextNew = at.Add(f.n.o.Interval)
	ctx, cancel := context.WithTimeout(ctx, f.n.o.Interval)
	defer cancel()
	today := now.UTC().Truncate(day)
	filters := storage.Filters{
		ByStatus: []workflow.Status{workflow.NotStarted},
		After:    today.Add(-day - time.Millisecond), Before: today.Add(day), // exclusive
	}
	seen, complete, more := f.scan(ctx, filters, func(r storage.ListResult) error {
		return f.consider(ctx, r, members, true)
	})
	if complete {
		f.forget(seen, filters)
	}
	return more
}

const day = 24 * time.Hour

// recheck looks at the plans whose first node has had its time. This node takes the plans that still have no owner.
func (f *finder) recheck(ctx context.Context, at time.Time, members map[uuid.UUID]struct{}) (more bool) {
	var ids []uuid.UUID
	for id, c := range f.open {
		if c.second && c.isDue(at) {
			ids = append(ids, id)
			c.due = at.Add(f.n.o.Interval) // if the search fails
		}
	}
	if len(ids) == 0 || !f.n.free() {
		return true
	}
	found := map[uuid.UUID]storage.ListResult{}
	_, complete, more := f.scan(ctx, storage.Filters{ByIDs: ids}, func(r storage.ListResult) error {
		found[r.ID] = r
		return nil
	})
	for _, id := range ids {
		r, there := found[id]
		if there || complete {
			delete(f.open, id)
		}
		if there && f.consider(ctx, r, members, false) != nil {
			f.open[id] = &candidate{due: at.Add(f.n.o.Interval), second: true}
		}
	}
	return more
}

// scan calls each for the plans that the filters select. It yields the errors of plans, and one for a listing
// that is incomplete. more says whether the loop goes on.
func (f *finder) scan(ctx context.Context, filters storage.Filters, each func(storage.ListResult) error) (seen map[uuid.UUID]bool, complete, more bool) {
	seen = map[uuid.UUID]bool{}
	found, err := f.n.store.Search(ctx, filters)
	if err == nil {
		for r := range found {
			if !f.keepUp(ctx) {
				return seen, false, false
			}
			id := planOf(r.Err)
			switch {
			case unreadable(r.Err) && id != uuid.Nil:
				seen[id] = true
				if !f.report(id, r.Err) {
					return seen, false, false
				}
			case r.Err != nil:
				err = r.Err
			default:
				seen[r.Result.ID] = true
				if failed := each(r.Result); failed != nil {
					err = failed
				}
			}
		}
	}
	switch {
	case err == nil:
	case transient(err) || ctx.Err() != nil:
		f.n.retries("search for plans", err)
		return seen, false, true
	default:
		return seen, false, f.report(uuid.Nil, err)
	}
	delete(f.reported, uuid.Nil)
	return seen, true, true
}

// keepUp yields the plans that were claimed and taken meanwhile, because a search of many open plans takes long.
// It reports whether to go on.
func (f *finder) keepUp(ctx context.Context) bool {
	for {
		select {
		case a := <-f.acquired:
			if !f.finish(a) {
				return false
			}
			f.acquire(ctx, time.Now())
		default:
			return true
		}
	}
}

// planOf returns the plan that an error is about.
func planOf(err error) uuid.UUID {
	if e, ok := errors.AsType[*storage.Error](err); ok {
		return e.Plan
	}
	return uuid.Nil
}

// transient reports whether the same call may succeed later without anybody doing anything.
func transient(err error) bool {
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// unreadable reports whether a plan can't be read until somebody repairs it or updates the program.
func unreadable(err error) bool {
	return errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrSchema) || errors.Is(err, storage.ErrInvalid)
}

// forget drops the plans that a search within these times no longer found.
func (f *finder) forget(seen map[uuid.UUID]bool, searched storage.Filters) {
	gone := func(id uuid.UUID) bool { return !seen[id] && driver.ChooseID(searched, id) }
	maps.DeleteFunc(f.open, func(id uuid.UUID, c *candidate) bool {
		return gone(id) && !c.busy && !c.retried && !c.second
	})
	if searched.After.IsZero() {
		maps.DeleteFunc(f.reported, func(id uuid.UUID, _ bool) bool { return id != uuid.Nil && gone(id) && f.open[id] == nil })
	}
}

// consider notes a plan that was found, if it is one for this node. If spread is set, the first node of the
// plan has some time before the others.
func (f *finder) consider(ctx context.Context, r storage.ListResult, members map[uuid.UUID]struct{}, spread bool) error {
	if c := f.open[r.ID]; c != nil && (!c.broken || c.etag == r.State.ETag) {
		return nil
	}
	c := &candidate{due: time.Now(), etag: r.State.ETag}
	wait := spread && !first(r.ID, f.n.id, maps.Keys(members))
	switch r.State.Status {
	case workflow.NotStarted:
		if wait {
			c.due = c.due.Add(2 * f.n.o.Interval) // by then, a search has shown that nobody else claimed it
		}
	case workflow.Running:
		absent, err := f.ownerless(ctx, r)
		if err != nil || !absent {
			return err
		}
		if wait && r.Owner != f.n.id {
			// All members see a death within an interval of each other.
			c.due, c.second = c.due.Add(f.n.o.Interval/2), true
		}
	default:
		return nil
	}
	f.open[r.ID] = c
	return nil
}

// ownerless reports whether this node may take a running plan.
func (f *finder) ownerless(ctx context.Context, r storage.ListResult) (bool, error) {
	held := f.n.owns(r.ID)
	switch standingOf(r.Owner, r.Epoch, f.n.id, held, f.n.o.TakeUnclaimed) {
	case free:
		return !held, nil
	case foreign:
		return f.n.isAbsent(ctx, r.Owner)
	}
	return false, nil
}

// acquire begins to claim or take the plans that are due. It reports whether there is a free place left.
func (f *finder) acquire(ctx context.Context, at time.Time) bool {
	for f.acquiring < maxAcquiring {
		id := f.oldest(at)
		if id == uuid.Nil {
			break
		}
		if !f.n.reserve() {
			return false
		}
		f.open[id].busy = true
		f.acquiring++
		go func() {
			plan, err := f.n.acquire(ctx, id)
			f.n.unreserve()
			f.acquired <- acquisition{id, plan, err}
		}()
	}
	return f.n.free()
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
	case a.err == nil, errors.Is(a.err, storage.ErrNotFound), errors.Is(a.err, ErrOwned), errors.Is(a.err, ErrFenced):
		delete(f.open, a.id)
	case unreadable(a.err):
		c.broken = true
		return f.report(a.id, a.err)
	default:
		c.retried, c.due = true, time.Now().Add(f.n.o.Interval)
		f.n.retries("take a plan", a.err)
	}
	return a.plan == nil || f.yield(a.plan, nil)
}

// report yields an error once.
func (f *finder) report(id uuid.UUID, err error) bool {
	if f.reported[id] {
		return true
	}
	f.reported[id] = true
	return f.yield(nil, err)
}

// abandon waits for the claims and takes in progress. The node lets go of their plans, and the next search of
// all days finds them.
func (f *finder) abandon() {
	for ; f.acquiring > 0; f.acquiring-- {
		if a := <-f.acquired; a.plan != nil {
			_, done := f.n.Work(a.id)
			done()
		}
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
