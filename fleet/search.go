package fleet

import (
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
	f.n.forgetSleepers(at)
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

// recheck looks at the plans whose first node has had its turn. This node takes those that still have no owner. Without a
// free place they stay due, so they come before new plans when there is one.
func (f *finder) recheck(at time.Time, v view) (more bool) {
	var ids []uuid.UUID
	free := f.n.free()
	for id, c := range f.open {
		switch {
		case !c.second || !c.isDue(at):
		case f.n.owns(id):
			delete(f.open, id) // a former owner still lists it
		case free:
			ids = append(ids, id)
			c.due, c.paused = at.Add(f.n.o.Interval), false // if the search fails
		}
	}
	if len(ids) == 0 {
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

// scan calls each for the plans that the filters select. It yields the errors of plans, and that of an incomplete
// listing. more says whether the loop goes on. Plans that wait for a place also wait for the end of the search, because
// it may find plans that have begun, but no longer than an Interval.
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

// meanwhile yields the results of a search. A search of many open plans takes long, so meanwhile the loop claims plans
// that are offered, and yields plans that it has acquired.
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

// planOf returns the plan that an error is about.
func planOf(err error) uuid.UUID {
	if e, ok := errors.AsType[*storage.Error](err); ok {
		return e.Plan
	}
	return uuid.Nil
}

// transient reports whether the same call may succeed later by itself.
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
		if (c.turnless || !c.slept.IsZero()) && !searched.After.IsZero() {
			return false // such a search is for plans that have not begun
		}
		return gone(id) && !c.busy && !c.retried && !c.second && (!c.alien || searched.After.IsZero())
	})
	if searched.After.IsZero() {
		maps.DeleteFunc(f.reported, func(id uuid.UUID, _ bool) bool { return id != uuid.Nil && gone(id) && f.open[id] == nil })
	}
}

// consider notes a plan that was found, if this node may acquire it. If spread is set, the first node of the plan has its
// turn before the others.
func (f *finder) consider(ctx context.Context, r storage.ListResult, v view, spread bool) error {
	switch c := f.open[r.ID]; {
	case r.External != "":
		if c != nil && !c.busy {
			delete(f.open, r.ID)
		}
		return nil
	case c != nil && !c.slept.IsZero() && !c.alien && r.Asleep():
		return nil // its turn has come
	case c == nil, (c.broken || c.alien) && c.etag != r.State.ETag:
	case r.State.Status == workflow.Running && !c.busy && !c.second && !c.retried && c.etag != r.State.ETag:
		delete(f.open, r.ID) // it has begun while this node waited
	case c.paused && r.Owner != f.n.id:
		f.n.taken(r.ID) // since this node let it go
		delete(f.open, r.ID)
	default:
		return nil
	}
	waits := r.WaitsFor != "" && !r.WakeAt.After(v.now)
	if r.Asleep() && !waits || (waits || r.State.Status == workflow.NotStarted) && f.n.isPaused(r.ID) {
		delete(f.open, r.ID)
		f.considerSleeper(r, v, spread)
		return nil
	}
	c := &candidate{due: time.Now(), etag: r.State.ETag, begun: r.State.Status == workflow.Running && !waits, turnless: waits, awaits: r.WaitsFor, turns: turnsIn(r)}
	wait := spread && !f.n.isHome(r.ID, c.turns, v)
	if waits {
		if wait {
			c.due = c.due.Add(2 * f.n.o.Interval)
		}
		f.open[r.ID] = c
		return nil
	}
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
	switch standingOf(r, f.n.id, held, f.n.o) {
	case free:
		return !held, nil
	case owned:
		if f.n.letsGo(r.Owner, r.ID) {
			return true, nil
		}
		return f.n.isAbsent(ctx, r.Owner)
	}
	return false, nil
}

// yields reports whether others may take a running plan before this node: the process was removed from the fleet while it
// worked on the plan. An operator may have handed the plan over since, so a process that has just rejoined leaves all
// plans to the others.
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
