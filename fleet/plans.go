package fleet

import (
	"cmp"
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
	fullInterval = time.Hour        // between two searches of all days
	lookInterval = time.Minute      // the longest time until a failed search is repeated, and between two looks at a plan that was let go
	mostAhead    = 15 * time.Minute // how far clocks that make the IDs of new plans may be ahead of the store's
)

// Plans yields the plans that the node is to run, until ctx ends, the node drains or is no longer a member:
//
//   - Plans that had not begun, claimed for this node. They are Running, and nothing of them has run.
//   - Plans that slept, see [Node.Sleep], woken for this node. Nothing of them ran meanwhile.
//   - Plans of members that died, left or let them go, taken over for this node. They are Running and fenced, and
//     continue where they stopped.
//
// The node owns each plan that is yielded, and the caller calls [Node.Work] for it. The body of the loop starts a
// goroutine for the plan, because Plans looks for more only between yields. While the node owns Options.Capacity plans,
// Plans waits for one of them to be done or to rest. When the loop ends, it lets go plans that it acquired but did not
// yield, and the next loop of this or another node yields them.
//
// An error does not end the loop. Plans yields the error of a plan that can't be read once
// ([storage.ErrCorrupt], [storage.ErrSchema]), and the error of a search that fails for good once until a search
// succeeds ([storage.ErrDenied], [storage.ErrClosed]). It retries after [storage.ErrUnavailable].
//
// A plan that is done before it is final stays the node's, and is yielded again within an hour. [Node.LetGo] lets
// others take it at once.
func (n *Node) Plans(ctx context.Context) iter.Seq[storage.Stream[*workflow.Plan]] {
	return func(yield func(storage.Stream[*workflow.Plan]) bool) {
		ctx, cancel := join(ctx, n.looks)
		f := &finder{
			n: n, ctx: ctx, yield: yield, open: map[uuid.UUID]*candidate{}, reported: map[uuid.UUID]bool{}, passed: map[letting]time.Time{},
			full: map[string]time.Time{}, taking: map[string]bool{}, unsuited: map[uuid.UUID]time.Time{},
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
	yield    func(storage.Stream[*workflow.Plan]) bool
	over     bool                     // yield has ended the loop
	open     map[uuid.UUID]*candidate // what the searches found for this node
	unsuited map[uuid.UUID]time.Time  // plans that sleep, for others to wake, and until when they are listed; zero if not yet
	passed   map[letting]time.Time    // what other members have let go, and when this loop looks at it again
	reported map[uuid.UUID]bool       // plans whose errors were yielded; uuid.Nil stands for a failed search

	nextNew, nextFull time.Time     // when the searches are due
	patience          time.Duration // the time until a full search that failed is made again
	departures        int           // those that a full search has been made for
	again             bool          // whether the next full search follows soon

	acquired  chan acquisition
	acquiring int
	most      int                  // how many plans are acquired at a time
	backlog   bool                 // a plan is due that there was no place for
	full      map[string]time.Time // the keys that had no room, and when to look at them again
	taking    map[string]bool      // the keys of plans that are being acquired
	hold      bool                 // what is due waits for the end of a search, which may find plans that have begun
}

// candidate is a plan that this node may claim or take.
type candidate struct {
	due     time.Time
	etag    string    // of the listing's result
	slept   time.Time // when a plan that sleeps was due
	paused  bool      // this node has let the plan go
	begun   bool      // the plan was Running when it was found
	second  bool      // another node had its turn first, and may have taken the plan
	busy    bool      // being claimed or taken
	retried bool      // the outcome of a claim or take is unknown; the plan may be this node's
	broken  bool      // the plan can't be read; only a full search looks at it again, or a new version
	offered bool      // claimed without a search
	alien   bool      // the process lacks plugins for the plan; only a new version is looked at again

	turns    []turn // that the plan takes, as far as a listing shows them, unless it may have them
	turnless bool   // the plan sleeps because there was no turn for it
	awaits   string // the key that had no room for it
	failures int    // how often in turn it could not be found out whether there is room
}

func (c *candidate) isDue(at time.Time) bool { return c.waits() && !c.due.After(at) }

// waits reports whether the candidate has a time at which it is due.
func (c *candidate) waits() bool { return !c.busy && !c.broken && !c.alien }

// waitsForTurns reports whether the candidate has to take turns.
func (c *candidate) waitsForTurns() bool { return c.waits() && !c.second && len(c.turns) > 0 }

// ready returns the time since which the plan could run. Who has waited longest goes first.
func (c *candidate) ready(id uuid.UUID) time.Time {
	if c.slept.IsZero() || c.turnless {
		return workflow.Time(id)
	}
	return c.slept
}

// step makes the searches that are due, and begins to claim and take what is due. It reports whether to go on,
// and returns a channel that is closed when the node's state changes.
func (f *finder) step() (more bool, changed <-chan struct{}) {
	v := f.n.view()
	if v.departures != f.departures {
		f.departures, f.nextFull, f.again = v.departures, time.Now(), true
	}
	at := time.Now()
	f.offerUnsuited(at)
	f.noteLetGo(at, v)
	f.noteFreed(at)
	f.noteEnding(at, v)
	more = f.recheck(at, v)
	if more && !at.Before(f.nextFull) && f.n.free() { // without a free place, nothing is looked for
		if more = f.searchAll(at, v); f.n.view().departures != f.departures {
			return more, v.changed // search again first
		}
	}
	if due, any := f.n.nextSleeper(); more && any && !due.After(at) && !at.Before(f.nextNew) && f.n.free() {
		more = f.searchNew(at, v) // or plans that wake would come before new ones for as long as there are any
	}
	f.wakeDue(at)
	more = more && f.recheck(time.Now(), v)
	if more && f.acquire(time.Now()) && !at.Before(f.nextNew) && f.oldest(at) == uuid.Nil {
		more = f.searchNew(at, v)
		f.acquire(time.Now())
	}
	return more, v.changed
}

// noteLetGo notes the plans that other members and this node have let go. A recheck confirms that nobody has taken them.
func (f *finder) noteLetGo(at time.Time, v view) {
	maps.DeleteFunc(f.passed, func(r letting, _ time.Time) bool { _, there := v.letGo[r]; return !there })
	for r := range v.letGo {
		c := f.open[r.plan]
		if at.Before(f.passed[r]) || c != nil && (c.busy || c.second || c.broken || c.alien) {
			continue // finish looks again at a busy plan that turns out to be owned
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

// next returns when the next step is due, unless something changes earlier.
func (f *finder) next() time.Time {
	next := time.Now().Add(fullInterval)
	if f.acquiring == f.most || !f.n.free() {
		if due, any := f.n.nextSleeper(); any && f.acquiring < f.most {
			return later(due, time.Now()).Add(f.n.o.Interval) // others are offered it then
		}
		return next // a change ends the wait
	}
	for _, due := range []time.Time{f.nextNew, f.nextFull} {
		if due.Before(next) {
			next = due
		}
	}
	if due, any := f.n.nextSleeper(); any && due.Before(next) && f.waking() < f.most {
		next = due
	}
	now := time.Now()
	first := f.nextOf(now)
	for id, c := range f.open {
		if c.waitsForTurns() && !c.turns[0].deadline.IsZero() {
			next = earlier(next, now.Add(c.turns[0].deadline.Sub(f.n.Now())))
		}
		if due := f.dueTurns(c); c.waits() && due.Before(next) && (due.After(now) || f.mayTakeTurns(id, c, first)) {
			next = due
		}
	}
	return next
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// oldest returns the plan to claim or take now, or uuid.Nil: the oldest that has begun, or else the oldest.
func (f *finder) oldest(at time.Time) (oldest uuid.UUID) {
	before := func(id uuid.UUID, c *candidate) bool {
		o := f.open[oldest]
		switch {
		case o == nil:
			return true
		case o.begun != c.begun:
			return c.begun
		}
		return cmp.Or(c.ready(id).Compare(o.ready(oldest)), driver.NewestFirst(oldest, id)) < 0
	}
	next := f.nextOf(at)
	for id, c := range f.open {
		if !c.second && c.isDue(at) && before(id, c) && f.mayTakeTurns(id, c, next) {
			oldest = id
		}
	}
	return oldest
}

// emit yields a plan or an error. It reports whether to go on.
func (f *finder) emit(plan *workflow.Plan, err error) bool {
	f.over = f.over || !f.yield(storage.Stream[*workflow.Plan]{Result: plan, Err: err})
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

// mostAcquiring is the most plans that one loop over Plans claims or takes at a time.
const mostAcquiring = 64

// acquisition is the outcome of a claim or take.
type acquisition struct {
	id   uuid.UUID
	plan *workflow.Plan
	err  error
}

// acquire begins to claim and take the plans that are due: first those that have begun, then the oldest. It reports
// whether a place is left.
func (f *finder) acquire(at time.Time) bool {
	for !f.hold && f.acquiring < f.most {
		id := f.oldest(at)
		begun := id != uuid.Nil && f.open[id].begun
		if !f.n.reserve() {
			f.backlog = id != uuid.Nil || f.n.hasOffers()
			return false
		}
		offer := f.n.nextOffer(func(offer uuid.UUID) bool {
			return !begun && (id == uuid.Nil || !workflow.Time(offer).After(f.open[id].ready(id)))
		})
		switch {
		case offer != nil:
			f.claimOffer(offer)
		case id != uuid.Nil:
			turns, every := f.open[id].turns, max(f.n.o.Interval, DefaultInterval)
			if f.open[id].retried {
				every = 0 // it may fail again, and holds nobody up
			}
			f.begin(id, func() (*workflow.Plan, error) {
				if err := f.n.store.lookAtTurns(f.ctx, turns, every); err != nil {
					return nil, err
				}
				return f.n.acquire(f.ctx, id, nil)
			})
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
	f.takes(id, true)
	go func() {
		plan, err := acquire()
		f.n.unreserve()
		f.acquired <- acquisition{id, plan, err}
	}()
}

// claimOffers begins to claim the plans that were offered, as far as there are free places.
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
	if len(plan.Keys) > 0 { // older plans come first
		f.n.unreserve()
		_ = f.consider(f.ctx, driver.Listed(plan), f.n.view(), false) // it asks only about owners
		return
	}
	f.open[plan.ID] = &candidate{offered: true}
	f.begin(plan.ID, func() (*workflow.Plan, error) { return f.n.acquire(f.ctx, plan.ID, plan) })
}

// finish handles the outcome of a claim or take. It reports whether to go on.
func (f *finder) finish(a acquisition) bool {
	f.acquiring--
	c := f.open[a.id]
	c.busy = false
	f.takes(a.id, false)
	switch no, _ := errors.AsType[*NoTurnError](a.err); {
	case no != nil:
		f.await(a.id, c, no, errors.Is(a.err, ErrAsleep))
		f.n.taken(a.id)
	case errors.Is(a.err, ErrOwned):
		f.concede(c)
		delete(f.open, a.id)
		f.lookAgain(a.id)
	case a.err == nil, errors.Is(a.err, storage.ErrNotFound), errors.Is(a.err, ErrFenced), errors.Is(a.err, ErrAsleep), errors.Is(a.err, ErrPaused):
		if errors.Is(a.err, ErrFenced) || errors.Is(a.err, ErrAsleep) {
			f.concede(c)
		}
		delete(f.open, a.id)
		f.n.taken(a.id) // or it would be due again at once
	case c.offered && !errors.Is(a.err, storage.ErrUnknown) && !f.n.owns(a.id):
		delete(f.open, a.id) // a search finds it if nobody else has claimed it
	case errors.Is(a.err, ErrUnsuited):
		if c.alien = true; !c.slept.IsZero() && !f.isListed(a.id) {
			f.unsuited[a.id] = time.Time{}
		}
		return f.report(a.id, a.err)
	case unreadable(a.err) && !f.n.owns(a.id):
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

// lookAgain makes the loop look again at a plan whose owner had let it go and is taking it again.
func (f *finder) lookAgain(plan uuid.UUID) {
	if f.isListed(plan) {
		f.open[plan] = &candidate{due: time.Now().Add(f.n.o.Interval), second: true}
	}
}

// isListed reports whether another member's record lists a plan.
func (f *finder) isListed(plan uuid.UUID) bool {
	for r := range f.passed {
		if r.plan == plan {
			return true
		}
	}
	return false
}

// abandon unlists what was left to others, waits for the claims and takes in progress, and gives their plans back. Even a
// failed take may have made the node the owner.
func (f *finder) abandon() {
	for id := range f.unsuited {
		f.n.unlist(id)
	}
	for ; f.acquiring > 0; f.acquiring-- {
		a := <-f.acquired
		if a.plan != nil || a.err != nil && (f.n.owns(a.id) || !lacks(a.err)) {
			f.n.GiveBack(a.id)
		}
	}
}

// lacks reports whether an acquisition that failed with err certainly did not make the node the owner.
func lacks(err error) bool {
	return errors.Is(err, storage.ErrNotFound) || errors.Is(err, ErrOwned) || errors.Is(err, ErrFenced) || errors.Is(err, ErrSuspended) || errors.Is(err, ErrAsleep) || errors.Is(err, ErrPaused) || errors.Is(err, ErrUnsuited) || errors.Is(err, ErrNoTurn) || unreadable(err)
}

// Offer makes the loop over [Node.Plans] claim a new plan at once, without searching or reading. The caller passes the plan
// as Create left it, and no longer uses it. Without a free place, the plan waits for one, or until another node finds it.
// A plan with a NotBefore waits for that first. Offer ignores a plan that is nil or has begun, and one that meets no such
// loop, a draining node or a thousand waiting plans: searches find it.
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

// looping notes that loops over Plans begin or end.
func (n *Node) looping(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.loopsOver += by; n.loopsOver == 0 {
		n.offered = nil
	}
}
