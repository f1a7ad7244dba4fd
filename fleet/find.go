package fleet

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

const (
	fullInterval = time.Hour        // between two searches of all days
	lookInterval = time.Minute      // the longest time until a search that failed is repeated, and between two looks at a plan that stays let go
	mostAhead    = 15 * time.Minute // how far clocks that make the IDs of new plans may be ahead of the store's
)

// Plans yields the plans that the node is to run, until ctx ends, the node drains or is no longer a member:
//
//   - Plans that had not begun, claimed for this node. They are Running, and nothing of them has run.
//   - Plans of members that died, left or let them go, taken over for this node. They are Running and fenced, and
//     go on where they stand.
//
// The node owns each plan that is yielded, and the caller calls [Node.Work] for it. Plans looks for more while
// the plan is worked on elsewhere, so the body of the loop starts a goroutine. While the node owns
// Options.Capacity plans, Plans waits for one of them to be done or to rest. Plans that were claimed or taken and
// not yielded when the loop ends are let go, and the next loop of this or another node yields them.
//
// An error comes with a nil plan and does not end the loop. It is a plan that can't be read, yielded once
// ([storage.ErrCorrupt], [storage.ErrSchema]), or a search that fails for good, yielded once until a search
// succeeds ([storage.ErrDenied], [storage.ErrClosed]). Plans retries what is only unavailable.
//
// A plan that is done before it is final stays the node's, and is yielded again within an hour. [Node.LetGo] lets
// others take it at once.
func (n *Node) Plans(ctx context.Context) iter.Seq2[*workflow.Plan, error] {
	return func(yield func(*workflow.Plan, error) bool) {
		ctx, cancel := join(ctx, n.looks)
		f := &finder{
			n: n, ctx: ctx, yield: yield, open: map[uuid.UUID]*candidate{}, reported: map[uuid.UUID]bool{}, passed: map[release]time.Time{},
			most: min(cmp.Or(n.o.Capacity, mostAcquiring), mostAcquiring), acquired: make(chan acquisition),
		}
		n.looping(1)
		defer f.abandon()
		defer n.looping(-1)
		defer cancel()
		for ctx.Err() == nil {
			more, changed := f.step()
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
	ctx      context.Context // of the loop
	yield    func(*workflow.Plan, error) bool
	over     bool                     // yield has ended the loop
	open     map[uuid.UUID]*candidate // what the searches found for this node
	passed   map[release]time.Time    // what other members have let go and this loop has seen, and when it looks again
	reported map[uuid.UUID]bool       // plans whose errors were yielded; uuid.Nil stands for a failed search

	nextNew, nextFull time.Time     // when the searches are due
	patience          time.Duration // the time until a full search that failed is made again
	departures        int           // those that a full search has been made for
	again             bool          // whether the next full search follows soon

	acquired  chan acquisition
	acquiring int
	most      int  // how many plans are acquired at a time
	backlog   bool // a plan is due that there was no place for
	hold      bool // what is due waits for the end of a search, which may find plans that have begun
}

// candidate is a plan that this node may claim or take.
type candidate struct {
	due     time.Time
	etag    string // of the listing's result
	paused  bool   // this node has let the plan go
	begun   bool   // the plan was Running when it was found
	second  bool   // another node came first, and may have taken the plan by now
	busy    bool   // being claimed or taken
	retried bool   // a claim or take failed without an outcome; the plan may already be this node's
	broken  bool   // the plan can't be read; only a full search looks at it again, or a new version
	offered bool   // claimed without a search
	alien   bool   // the process has no plugins for the plan; it is looked at again in a new version
}

func (c *candidate) isDue(at time.Time) bool { return c.waits() && !c.due.After(at) }

// waits reports whether the candidate has a time at which it is due.
func (c *candidate) waits() bool { return !c.busy && !c.broken && !c.alien }

// step makes the searches that are due, and begins to claim and take what is due. It reports whether to go on,
// and returns a channel that is closed when the node's state changes.
func (f *finder) step() (more bool, changed <-chan struct{}) {
	v := f.n.view()
	if v.departures != f.departures {
		f.departures, f.nextFull, f.again = v.departures, time.Now(), true
	}
	at := time.Now()
	f.noteReleases(at, v)
	more = f.recheck(at, v)
	if more && !at.Before(f.nextFull) && f.n.free() { // without a free place, nothing is looked for
		if more = f.searchAll(at, v); f.n.view().departures != f.departures {
			return more, v.changed // search again first
		}
	}
	if more && f.acquire(time.Now()) && !at.Before(f.nextNew) && f.oldest(at) == uuid.Nil {
		more = f.searchNew(at, v)
		f.acquire(time.Now())
	}
	return more, v.changed
}

// noteReleases notes the plans that other members have let go since the last step, and those that this node has let go.
// A recheck confirms that nobody has taken them.
func (f *finder) noteReleases(at time.Time, v view) {
	maps.DeleteFunc(f.passed, func(r release, _ time.Time) bool { _, there := v.letGo[r]; return !there })
	for r := range v.letGo {
		c := f.open[r.plan]
		if at.Before(f.passed[r]) || c != nil && (c.busy || c.second || c.broken || c.alien) {
			continue // what is busy and turns out to be owned is looked at then
		}
		f.passed[r] = at.Add(lookInterval)
		due := at
		if !first(r.plan, f.n.id, maps.Keys(v.takers)) {
			due = due.Add(f.n.o.Interval / 2)
		}
		f.open[r.plan] = &candidate{due: due, second: true}
	}
	for id, p := range v.pauses {
		switch c := f.open[id]; {
		case p.until.IsZero():
		case c == nil:
			f.open[id] = &candidate{due: p.until, second: true, paused: true}
		case c.paused && c.due.After(p.until):
			c.due = p.until
		}
	}
}

// next returns when the next step is due if nothing changes before.
func (f *finder) next() time.Time {
	next := time.Now().Add(fullInterval)
	if f.acquiring == f.most || !f.n.free() {
		return next // a change ends the wait
	}
	for _, due := range []time.Time{f.nextNew, f.nextFull} {
		if due.Before(next) {
			next = due
		}
	}
	for _, c := range f.open {
		if c.waits() && c.due.Before(next) {
			next = c.due
		}
	}
	return next
}

// oldest returns the plan to claim or take now, or uuid.Nil: the oldest that has begun, or else the oldest.
func (f *finder) oldest(at time.Time) (oldest uuid.UUID) {
	before := func(id uuid.UUID, c *candidate) bool {
		if o := f.open[oldest]; o != nil && o.begun != c.begun {
			return c.begun
		}
		return oldest == uuid.Nil || driver.NewestFirst(id, oldest) > 0
	}
	for id, c := range f.open {
		if !c.second && c.isDue(at) && before(id, c) {
			oldest = id
		}
	}
	return oldest
}

// searchAll searches all days for plans that had not begun, and for running ones without an owner.
func (f *finder) searchAll(at time.Time, v view) (more bool) {
	f.nextNew = at.Add(f.n.o.Interval)
	f.patience = max(min(2*f.patience, lookInterval), f.n.o.Interval)
	f.nextFull = at.Add(f.patience)
	filters := storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}
	seen, complete, more := f.scan(f.ctx, filters, func(r storage.ListResult) error {
		if c := f.open[r.ID]; c != nil && c.broken {
			delete(f.open, r.ID) // it may have been repaired
		}
		return f.consider(f.ctx, r, v, true)
	})
	if !complete {
		return more
	}
	f.forget(seen, storage.Filters{})
	f.n.forgetPauses(seen)
	f.patience, f.nextFull = 0, at.Add(fullInterval)
	if f.again {
		// A request that a departed member sent late may claim a plan after this search.
		f.nextFull, f.again = at.Add(f.n.o.TTL), false
	}
	return more
}

// searchNew searches today and yesterday, by the store's clock, for plans that had not begun, and tomorrow if it is near.
func (f *finder) searchNew(at time.Time, v view) (more bool) {
	f.nextNew = at.Add(f.n.o.Interval)
	ctx, cancel := context.WithTimeout(f.ctx, f.n.o.Interval)
	defer cancel()
	today := v.now.UTC().Truncate(day)
	filters := storage.Filters{
		ByStatus: []workflow.Status{workflow.NotStarted},
		After:    today.Add(-day - time.Millisecond), Before: v.now.UTC().Add(mostAhead).Truncate(day).Add(day), // exclusive
	}
	seen, complete, more := f.scan(ctx, filters, func(r storage.ListResult) error {
		return f.consider(ctx, r, v, true)
	})
	if complete {
		f.forget(seen, filters)
	}
	return more
}

const day = 24 * time.Hour

// recheck looks at the plans whose first node has had its time. This node takes the plans that still have no owner.
func (f *finder) recheck(at time.Time, v view) (more bool) {
	var ids []uuid.UUID
	for id, c := range f.open {
		switch {
		case !c.second || !c.isDue(at):
		case f.n.owns(id):
			delete(f.open, id) // a former owner still lists it
		default:
			ids = append(ids, id)
			c.due, c.paused = at.Add(f.n.o.Interval), false // if the search fails
		}
	}
	if len(ids) == 0 || !f.n.free() {
		return true
	}
	found := map[uuid.UUID]storage.ListResult{}
	_, complete, more := f.scan(f.ctx, storage.Filters{ByIDs: ids}, func(r storage.ListResult) error {
		found[r.ID] = r
		return nil
	})
	for _, id := range ids {
		r, there := found[id]
		if there || complete {
			delete(f.open, id)
		}
		if there && f.consider(f.ctx, r, v, false) != nil {
			f.open[id] = &candidate{due: at.Add(f.n.o.Interval), second: true}
		}
		if f.open[id] == nil {
			f.n.taken(id)
		}
	}
	return more
}

// scan calls each for the plans that the filters select. It yields the errors of plans, and one for a listing
// that is incomplete. more says whether the loop goes on. If plans are waiting for a place, they wait
// for the end of the search, which may find some that have begun, but no longer than an Interval.
func (f *finder) scan(ctx context.Context, filters storage.Filters, each func(storage.ListResult) error) (seen map[uuid.UUID]bool, complete, more bool) {
	ctx, cancel := context.WithCancel(ctx)
	results := f.n.search(ctx, filters)
	f.hold = f.backlog
	defer func() {
		f.hold = false
		cancel()
		for range results { // until the search has ended
		}
	}()
	seen = map[uuid.UUID]bool{}
	var err error
	for r := range f.meanwhile(results) {
		id := planOf(r.Err)
		switch {
		case errors.Is(r.Err, storage.ErrForeign): // the plan is of no engine of this fleet
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
	if f.over {
		return seen, false, false
	}
	if err == nil {
		err = ctx.Err() // the search may have been cut
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

// search returns a channel with the results of a search. It is closed after the last one, or when ctx ends.
func (n *Node) search(ctx context.Context, filters storage.Filters) <-chan storage.Stream[storage.ListResult] {
	results := make(chan storage.Stream[storage.ListResult])
	go func() {
		defer close(results)
		found, err := n.store.Search(ctx, filters)
		if err != nil {
			found = func(yield func(storage.Stream[storage.ListResult]) bool) {
				yield(storage.Stream[storage.ListResult]{Err: err})
			}
		}
		for r := range found {
			select {
			case results <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return results
}

// meanwhile iterates over the results of a search. While it waits for them, it claims the plans that are offered, and
// yields those that were claimed and taken, because a search of many open plans takes long.
func (f *finder) meanwhile(results <-chan storage.Stream[storage.ListResult]) iter.Seq[storage.Stream[storage.ListResult]] {
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		held := time.After(f.n.o.Interval)
		for {
			changed := f.n.changes()
			if !f.backlog {
				f.claimOffers()
			}
			select {
			case r, more := <-results:
				if !more || !yield(r) {
					return
				}
			case a := <-f.acquired:
				if !f.finish(a) {
					return
				}
				f.acquire(time.Now())
			case <-held:
				f.hold = false
				f.acquire(time.Now())
			case <-changed:
				if f.backlog {
					f.acquire(time.Now())
				}
			}
		}
	}
}

// emit yields a plan or an error. It reports whether to go on.
func (f *finder) emit(plan *workflow.Plan, err error) bool {
	f.over = f.over || !f.yield(plan, err)
	return !f.over
}

// report yields an error once.
func (f *finder) report(id uuid.UUID, err error) bool {
	if f.reported[id] {
		return true
	}
	f.reported[id] = true
	return f.emit(nil, err)
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
		return gone(id) && !c.busy && !c.retried && !c.second && (!c.alien || searched.After.IsZero())
	})
	if searched.After.IsZero() {
		maps.DeleteFunc(f.reported, func(id uuid.UUID, _ bool) bool { return id != uuid.Nil && gone(id) && f.open[id] == nil })
	}
}

// consider notes a plan that was found, if it is one for this node. If spread is set, the first node of the
// plan has some time before the others.
func (f *finder) consider(ctx context.Context, r storage.ListResult, v view, spread bool) error {
	switch c := f.open[r.ID]; {
	case c == nil, (c.broken || c.alien) && c.etag != r.State.ETag:
	case r.State.Status == workflow.Running && !c.busy && !c.second && !c.retried && c.etag != r.State.ETag:
		delete(f.open, r.ID) // it has begun while this node waited for the first one
	case c.paused && r.Owner != f.n.id:
		f.n.taken(r.ID) // since this node let it go
		delete(f.open, r.ID)
	default:
		return nil
	}
	c := &candidate{due: time.Now(), etag: r.State.ETag, begun: r.State.Status == workflow.Running}
	wait := spread && !first(r.ID, f.n.id, maps.Keys(v.takers))
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
		switch {
		case spread && f.yields(r.Owner, v):
			c.due, c.second = c.due.Add(2*f.n.o.Interval), true
		case wait && r.Owner != f.n.id:
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
		if f.n.letsGo(r.Owner, r.ID) {
			return true, nil
		}
		return f.n.isAbsent(ctx, r.Owner)
	}
	return false, nil
}

// yields reports whether others may take a running plan before this node, because the process was removed from the
// fleet while it worked on the plan. An operator may have handed the plan over since, so a process that has just
// joined again leaves all plans to the others.
func (f *finder) yields(owner uuid.UUID, v view) bool {
	former := f.n.o.Former
	if len(former) == 0 || !slices.Contains(former, owner) && time.Since(f.n.joined) > 2*f.n.o.Interval {
		return false
	}
	for id := range v.takers {
		if id != f.n.id {
			return true
		}
	}
	return false
}
