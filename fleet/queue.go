package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Plans that take turns wait in no queue of their own: each node goes through those that it knows, the oldest first. The first
// node by the hash of a key has a head start for all plans of the key, so that others seldom try for the same turn. What nobody
// knows of all plans is in the record: see waiters.go.

// takeTurns takes the turns of a plan that the node has just come to own. If there is none, it lets the plan sleep, and the error
// is ErrAsleep and ErrNoTurn. It does the same after any other error if the plan had none before: it waits for its turns, and
// takes no place meanwhile. A plan that only ends needs no turn.
func (n *Node) takeTurns(ctx context.Context, plan *workflow.Plan, had bool) error {
	if !TakesTurns(plan) || n.onlyEnds(plan) {
		return nil
	}
	err := n.store.takeTurns(ctx, plan)
	no, waits := errors.AsType[*NoTurnError](err)
	switch {
	case err == nil:
		return nil
	case !waits && (had || ctx.Err() != nil):
		return err
	case !waits:
		no = &NoTurnError{Name: cmp.Or(plan.FirstKey(), plan.Unique), Unique: len(plan.Keys) == 0, Err: err}
	}
	plan.WaitsFor = no.Name
	if asleep := n.Sleep(ctx, plan, n.Now(), MaxSignals); asleep != nil {
		if errors.Is(asleep, storage.ErrNotFound) {
			n.forget(plan.ID) // it was deleted since it was claimed
		}
		return fmt.Errorf("%w, because %v", asleep, no)
	}
	return fmt.Errorf("%w: %w", ErrAsleep, no)
}

// looksFirst returns an error if a plan that an engine of another kind places has to wait for a turn. Nodes look before they read
// a plan. The first claim of a plan that nobody places yet needs no look: from then on, nodes leave it alone.
func (n *Node) looksFirst(ctx context.Context, plan *workflow.Plan) error {
	if plan.External.Name == "" || n.onlyEnds(plan) {
		return nil
	}
	err := n.store.lookAtTurns(ctx, turnsAhead(plan), DefaultInterval)
	if no, _ := errors.AsType[*NoTurnError](err); no != nil && errors.Is(no.Err, storage.ErrClosed) {
		return no.Err // another look through this vault fails, too
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrAsleep, err)
	}
	return nil
}

// hasTurns reports whether a plan had turns before this node came to own it.
func hasTurns(plan *workflow.Plan) bool {
	return plan.State.Status == workflow.Running && plan.WaitsFor == ""
}

// onlyEnds is [OnlyEnds], and also of a plan whose stop this node has seen.
func (n *Node) onlyEnds(plan *workflow.Plan) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, asked := n.stopLocked(plan.ID)
	return asked || OnlyEnds(plan, n.clock.when(time.Now()))
}

// GiveTurns is the function [GiveTurns] for a plan that the node has ended. Plans here that wait for these turns try at once. An
// error is reported to Observer.Failure: whoever waits mends it.
func (n *Node) GiveTurns(ctx context.Context, plan *workflow.Plan) { n.giveTurns(ctx, plan, "") }

// giveTurns is GiveTurns for a plan that may wait for a key, which it does not give back.
func (n *Node) giveTurns(ctx context.Context, plan *workflow.Plan, awaited string) {
	if !TakesTurns(plan) {
		return
	}
	if err := GiveTurns(ctx, n.store, plan); err != nil {
		n.retries("give back turns", err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range turnsOf(plan) {
		if t.name != awaited {
			n.freed = append(n.freed, t.record())
		}
	}
	n.notifyLocked()
}

// takeFreed returns the keys whose turns were given back here since the last call.
func (n *Node) takeFreed() (freed []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	freed, n.freed = n.freed, nil
	return freed
}

// turnsIn returns the turns that a plan has to take before it goes on, as far as a listing shows them. The limits that it names
// are not there.
func turnsIn(r storage.ListResult) (all []turn) {
	if r.State.Status != workflow.NotStarted && r.WaitsFor == "" {
		return nil
	}
	for _, name := range r.Keys {
		all = append(all, turn{r.ID, name, false, workflow.MaxKeyLimit, r.Deadline})
	}
	if r.WaitsFor != "" && (r.WaitsFor == r.Unique || !slices.Contains(r.Keys, r.WaitsFor)) {
		all = append(all, turn{r.ID, r.WaitsFor, true, 1, r.Deadline})
	}
	return all
}

// turnsAhead is turnsIn for a plan that was read, with the limits that it names.
func turnsAhead(plan *workflow.Plan) []turn {
	if hasTurns(plan) {
		return nil
	}
	return turnsOf(plan)
}

// isHome reports whether this node has a head start for a plan: it is the first by the hash of the plan's ID, or of its first key.
func (n *Node) isHome(plan uuid.UUID, turns []turn, v view) bool {
	if len(turns) > 0 {
		plan = uuid.NewSHA1(uuid.Nil, []byte(turns[0].record()))
	}
	return first(plan, n.id, maps.Keys(v.takers))
}

// nextOf returns the oldest plan for each key among those that may now try to take turns.
func (f *finder) nextOf(at time.Time) map[string]uuid.UUID {
	next := map[string]uuid.UUID{}
	for id, c := range f.open {
		if failed := c.retried && c.due.After(at); !c.waits() || c.paused || failed || len(c.turns) == 0 {
			continue
		}
		if slices.ContainsFunc(c.turns, func(t turn) bool { return f.full[t.record()].After(at) }) {
			continue
		}
		for _, t := range c.turns {
			if other, there := next[t.record()]; !there || driver.NewestFirst(id, other) > 0 {
				next[t.record()] = id
			}
		}
	}
	return next
}

// dueTurns returns when a plan is due, and there may be room for it.
func (f *finder) dueTurns(c *candidate) time.Time {
	due := c.due
	for _, t := range c.turns {
		due = later(due, f.full[t.record()])
	}
	return due
}

// mayTakeTurns reports whether a plan takes no turns, or is the next for each of them.
func (f *finder) mayTakeTurns(id uuid.UUID, c *candidate, next map[string]uuid.UUID) bool {
	return !slices.ContainsFunc(c.turns, func(t turn) bool { return f.taking[t.record()] || next[t.record()] != id })
}

// takes notes that the turns of a plan are being taken, or no longer are.
func (f *finder) takes(id uuid.UUID, begins bool) {
	for _, t := range f.open[id].turns {
		if f.taking[t.record()] = true; !begins {
			delete(f.taking, t.record())
		}
	}
}

// await makes a plan wait for a key that had no room for it, and all others that want the key.
func (f *finder) await(id uuid.UUID, c *candidate, no *NoTurnError, sleeps bool) {
	t := turn{plan: id, name: no.Name, unique: no.Unique, limit: workflow.MaxKeyLimit}
	v := f.n.view()
	pause := f.n.o.Interval
	if !f.n.isHome(id, c.turns, v) {
		pause *= 3
	}
	if left := no.PausedUntil.Sub(f.n.Now()); left > pause {
		pause = min(left, 6*pause) // somebody may end it
	}
	if c.failures++; no.Err == nil {
		c.failures = 0
	} else {
		f.n.retries("take turns", no)
		pause = max(pause, min(lookInterval, f.n.o.Interval<<min(c.failures-1, 16)))
	}
	f.full[t.record()] = time.Now().Add(pause)
	c.due, c.awaits, c.offered, c.second = f.full[t.record()], t.record(), false, false
	if c.turnless = c.turnless || sleeps; sleeps {
		c.turns = f.n.turnsOf(id)
	}
	if !slices.ContainsFunc(c.turns, func(has turn) bool { return has.record() == t.record() }) {
		c.turns = append(slices.Clip(c.turns), t)
	}
}

// concede makes the plans wait that need a turn for a key of a plan which another node claimed first: that node is taking the turn,
// and the next plan would lose its place in the order by a claim that finds no room.
func (f *finder) concede(c *candidate) {
	for _, t := range c.turns {
		f.full[t.record()] = time.Now().Add(f.n.o.Interval)
	}
}

// turnsOf returns the turns that a plan sleeps without here.
func (n *Node) turnsOf(plan uuid.UUID) []turn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.asleep.known[plan]; p != nil {
		return p.turns
	}
	return nil
}

// noteEnding lets plans go on that wait for turns, and that were asked to stop or whose deadline has passed: they end without. The
// first by hash has a head start.
func (f *finder) noteEnding(at time.Time, v view) {
	f.n.mu.Lock()
	stops, now := f.n.stops, f.n.clock.when(at) // the map does not change
	f.n.mu.Unlock()
	for id, c := range f.open {
		if !c.waitsForTurns() {
			continue
		}
		if _, asked := stops[id]; !asked && !overdue(c.turns[0].deadline, now) {
			continue
		}
		due := at
		if !f.n.isHome(id, c.turns, v) {
			due = at.Add(f.n.o.Interval)
		}
		c.due, c.turns, c.awaits = due, nil, ""
	}
}

// noteFreed lets the plans try that wait for turns which were given back.
func (f *finder) noteFreed(at time.Time) {
	maps.DeleteFunc(f.full, func(_ string, until time.Time) bool { return !until.After(at) })
	for _, record := range f.n.takeFreed() {
		delete(f.full, record)
		for _, c := range f.open {
			if c.awaits == record && c.due.After(at) && !c.second {
				c.due = at
			}
		}
	}
}
