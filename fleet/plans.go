package fleet

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"time"

	"github.com/google/uuid"

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
