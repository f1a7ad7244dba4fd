package week_test

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// progress is for how long a plan has waited.
type progress struct {
	since  time.Time     // its last progress, or the last event of its owner
	kind   string        // what it waits after
	by     *process      // who submitted it
	ttl    time.Duration // the longest of its owners since
	active map[*call]bool
	passed map[*process]time.Time // who began another plan while this one waited for too long, and when first
}

// slack is for the requests of a takeover, and for the whole seconds of the store's clock.
const slack = 8 * time.Second

// bound is the longest that a plan waits for a process that can run it after an event, by docs/fleet.md.
func bound(kind string, interval, ttl time.Duration) time.Duration {
	switch kind {
	case "later", "sleep":
		return 2*interval + slack
	case "submit":
		return 3*interval + slack
	case "evict":
		return 3*interval + slack
	case "deploy": // the deadline of Run comes first
		return 30*time.Second + 3*interval/2 + slack
	case "denied", "denied writes", "denied once", "denied plans", "outage":
		return max(time.Minute, ttl+3*interval/2) + slack // the longest backoff
	}
	return ttl + 3*interval/2 + slack
}

// moves notes progress of a plan.
func (c *career) moves() {
	c.since, c.kind, c.ttl = time.Now(), "progress", 0
}

// cause returns the kind of a wait that is too long.
func (w *week) cause(c *career) string {
	if p := w.nodes[c.owner]; p != nil && p.full {
		return "wait for a place"
	}
	return "wait after " + c.kind
}

// look compares what waits with the bounds.
func (w *week) look() {
	w.catchUp()
	now := time.Now()
	open := w.openPlans()
	has := map[uuid.UUID]int{} // how many plans the nodes work on
	for _, c := range open {
		if len(c.active) > 0 || now.Sub(c.since) < slack {
			has[c.owner]++
		}
	}
	for _, p := range w.alive {
		w.lookAt(p, now)
		if p.full = p.node != uuid.Nil && has[p.node] >= p.o.Capacity; p.full {
			p.since = now
		}
	}
	w.givesBack(now)
	for _, c := range open {
		w.lookFor(c, now)
		w.lookForLaters(c, now)
	}
}

// lookAt looks at a process: it joins and leaves in time.
func (w *week) lookAt(p *process, now time.Time) {
	if len(p.lasting) > 0 || p.dead {
		return
	}
	if p.node == uuid.Nil && p.leaving.IsZero() && now.Sub(p.since) > time.Minute+3*p.o.Interval {
		w.find("rejoin", nil, "%s has been no member for %v", p.name, now.Sub(p.since))
		p.since = now
	}
	if !p.leaving.IsZero() && now.Sub(p.leaving) > 75*time.Second && now.Sub(p.hit) > 75*time.Second {
		w.find("leave", nil, "%s has been told to leave %v ago", p.name, now.Sub(p.leaving))
		p.hit = now
	}
}

// lookFor looks for a process that could have made progress with a plan.
func (w *week) lookFor(c *career, now time.Time) {
	switch {
	case c.paused && c.stopped.IsZero():
		c.since, c.kind = now, "resume"
		return
	case len(c.plan.Keys) > 0: // it may wait for a turn; that all end shows that it gets one
		c.since = now
		return
	}
	owner := w.nodes[c.owner] // may be nil
	if owner != nil && owner.node == c.owner && !owner.dead {
		for k := range c.active {
			if k.p == owner && k.node == c.owner && k.Epoch == c.epoch && len(owner.lasting) == 0 {
				c.moves()
				return
			}
		}
		for _, f := range owner.lasting {
			if !f.mute {
				c.since = now // it is a member, and does what it can
			}
		}
	}
	if owner != nil {
		c.ttl = max(c.ttl, owner.o.TTL)
	}
	if id := workflow.Time(c.plan.ID).Truncate(day); id.After(now) {
		c.kind = "tomorrow"
	}
	waits, kind := c.waits()
	asleep, known := !c.wakeAt.IsZero(), waits
	if asleep && w.stirred.After(waits) { // the first by hash may be hit
		waits, kind = w.stirred, "stir"
	}
	for _, p := range w.alive {
		if !p.able() || c.rare && !p.rare || p.ahead != 0 && now.Add(half).Truncate(day).After(now.Add(-half)) {
			continue
		}
		since := waits
		since = later(since, p.since)
		interval, ttl := p.o.Interval, max(p.o.TTL, c.ttl)
		if asleep { // another one is the first by hash
			interval, ttl = longestInterval, longestTTL
		}
		if kind == "sleep" && now.Sub(later(c.since, p.since)) <= bound(c.kind, interval, ttl) {
			continue
		}
		waits, bound := now.Sub(since), bound(kind, interval, ttl)
		if c.stopped.IsZero() && !asleep {
			bound += c.delay
		}
		if all := min(now.Sub(known), now.Sub(p.since)); asleep && (c.rare || all > time.Hour+bound || slices.ContainsFunc(w.alive, (*process).suffers)) {
			waits, bound = all, time.Hour+bound
		}
		if asleep && slices.ContainsFunc(w.alive, func(p *process) bool { return p.full }) {
			bound += 2 * longestInterval
		}
		if kind == "sleep" && owner != nil && owner.full {
			bound += time.Minute
		}
		if c.kind == "submit" && c.by == p && since.Equal(c.since) && c.since.Sub(p.hit) > p.o.TTL {
			bound = slack
		}
		if waits > bound {
			w.find(w.cause(c), c, "%s could have run it for %v, and the bound is %v; it is %s, of %s", p.name, waits, bound, c.status, owner)
			c.since = now
			return
		}
	}
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// waits returns since when a plan waits for a process, and after what.
func (c *career) waits() (since time.Time, kind string) {
	since, kind = c.since, c.kind
	var due time.Time
	for id, l := range c.laters {
		if !c.stopped.IsZero() && !c.ending[id] {
			continue
		}
		if at := c.due(l); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	switch {
	case c.wakeAt.IsZero(), !c.stopped.IsZero():
	case due.IsZero(), due.After(c.wakeAt):
		due = c.wakeAt
	}
	if due.After(since) {
		since, kind = due, "sleep"
	}
	return since, kind
}

// due returns when an action that waits is to be called again.
func (c *career) due(l workflow.Later) time.Time {
	at := l.At
	for n, stored := range c.signals {
		if n > l.LastSignal && stored.Before(at) {
			at = stored
		}
	}
	return at
}

// lookForLaters looks for actions that their owner has forgotten to call again.
func (w *week) lookForLaters(c *career, now time.Time) {
	p := w.nodes[c.owner]
	if c.paused || p == nil || p.node != c.owner || !p.able() || p.full || !c.stopped.IsZero() {
		return
	}
	for id, l := range c.laters {
		since, kind := later(c.due(l), c.owned), "later"
		if p.since.After(since) {
			since, kind = p.since, p.after
		}
		if waits := now.Sub(since); waits > max(bound(kind, p.o.Interval, p.o.TTL), bound("later", p.o.Interval, p.o.TTL)) {
			w.find("forgotten", c, "%s has not called action %s again for %v after %v", p.name, id, waits, kind)
			delete(c.laters, id)
		}
	}
}

// passes looks for plans of former members that have waited for too long when a process begins another one. A node may do
// so once, because the first by hash has a head start.
func (w *week) passes(p *process) {
	now := time.Now()
	for _, c := range w.openPlans() {
		owner := w.nodes[c.owner]
		if c.paused || c.status != workflow.Running || !c.wakeAt.IsZero() || owner != nil && !owner.dead && owner.node == c.owner || !p.able() || c.rare && !p.rare {
			continue
		}
		waits := min(now.Sub(c.since), now.Sub(p.hit), now.Sub(p.joined))
		if waits <= max(time.Minute+slack, bound(c.kind, p.o.Interval, max(p.o.TTL, c.ttl))) {
			continue
		}
		switch first := c.passed[p]; {
		case first.IsZero():
			c.passed[p] = now
		case now.Sub(first) > p.o.Interval/2+slack:
			w.find("order", c, "%s begins another plan, although this one of %s has waited for %v", p.name, owner, waits)
			c.since = now
		}
	}
}

const (
	day  = 24 * time.Hour
	half = 20 * time.Minute // around midnight, IDs are of another day than a clock that is off
)

// obeys checks that no work of a plan begins after the request to stop or pause it has reached its owner.
func (w *week) obeys(k *call) {
	c, reaches := k.c, k.c.stopped
	if c.paused && reaches.IsZero() {
		reaches = later(c.pausedAt, c.owned)
	}
	if reaches.IsZero() || c.ending[k.Action] || len(k.p.lasting) > 0 || k.node != c.owner {
		return
	}
	if k.p.hit.After(reaches) {
		reaches = k.p.hit
	}
	if late := time.Since(reaches); late > 2*k.p.o.Interval+slack {
		w.find("stop", c, "%s begins action %s %v after the request to stop or pause the plan", k.p.name, k.Action, late)
	}
}
