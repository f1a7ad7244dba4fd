package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// span is a time in which something was so, in nanoseconds of the clock that all processes share.
type span struct{ from, to int64 }

// timed is a call of the plugin.
type timed struct {
	span   // to is 0 if its end was not reported
	object uuid.UUID
	epoch  int64
}

// times are those of a plan. Each is 0 if it was not reported.
type times struct {
	created span // the call of Create
	calls   map[int64]timed
	epochs  map[int64]span // from the first to the last report of each
}

func (t *times) note(m message) {
	switch {
	case m.What == created && m.Begin:
		t.created.from = m.At
	case m.What == created && m.fate() == done:
		t.created.to = m.At
	case m.What == called && m.Begin:
		t.calls[m.Call] = timed{span{from: m.At}, m.Object, m.Epoch}
	case m.What == called:
		c := t.calls[m.Call]
		c.to = m.At
		t.calls[m.Call] = c
	}
	if m.Epoch > 0 {
		e, heard := t.epochs[m.Epoch]
		if !heard || m.At < e.from {
			e.from = m.At
		}
		e.to = max(e.to, m.At)
		t.epochs[m.Epoch] = e
	}
}

// tenure is a time in which a plan works with its turns.
type tenure struct {
	span
	plan  *workflow.Plan
	since int64 // its turns were not taken before
}

// tenures returns when a plan worked, in order. A call counts from its begin until its end, the end of its process, or the next
// epoch: a process that was frozen may go on with a call, but is fenced. The plan also works between two calls, unless it may
// have slept there without its turns. What is deferred needs no turn after a stop.
func (t *times) tenures(p *workflow.Plan, died map[int64]int64) []tenure {
	deferred := map[uuid.UUID]bool{}
	for o, parent := range workflow.Walk(p) {
		deferred[*o.Header().ID] = o.Kind() == workflow.KindDeferredActions || o == workflow.Object(p.DeferredChecks) ||
			parent != nil && deferred[*parent.Header().ID]
	}
	all := map[int64]tenure{}
	for number, c := range t.calls {
		fence, since := int64(math.MaxInt64), t.created.from
		for epoch, heard := range t.epochs {
			if epoch > c.epoch {
				fence = min(fence, heard.from)
			} else if epoch < c.epoch && p.KeepTurn != workflow.KeepAlways {
				since = max(since, heard.to)
			}
		}
		to := min(cmp.Or(c.to, died[processOf(number)], math.MaxInt64), fence)
		if to <= c.from || deferred[c.object] {
			continue
		}
		epoch := c.epoch
		if p.KeepTurn == workflow.KeepAlways {
			epoch = 0
		}
		k, there := all[epoch]
		if !there {
			k = tenure{span{c.from, to}, p, since}
		}
		k.from, k.to = min(k.from, c.from), max(k.to, to)
		all[epoch] = k
	}
	return slices.SortedFunc(maps.Values(all), func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
}

// limit is one that an operator set for the first key, and when it may have held. 0 means no limit.
type limit struct {
	span
	most int
}

// limitsOf returns the limits that reports tell of.
func limitsOf(set []message) (all []limit) {
	all = []limit{{span{0, math.MaxInt64}, 0}}
	for _, m := range set {
		if m.Begin {
			all = append(all, limit{span{m.At, math.MaxInt64}, m.Limit})
			continue
		}
		for i := range all[:len(all)-1] {
			all[i].to = min(all[i].to, m.At)
		}
	}
	return all
}

// mostFor returns how many plans may work with a key beside each other, if these do now. A limit counts if it held when the
// first of them may have taken its turn, or later: whoever has a turn keeps it.
func mostFor(key string, now []tenure, at int64, set []limit) int {
	most, since := workflow.MaxKeyLimit, at
	for _, t := range now {
		for _, k := range t.plan.Keys {
			if k.Name == key {
				most = min(most, cmp.Or(k.Limit, 1))
			}
		}
		since = min(since, t.since)
	}
	operator := 0
	for _, l := range set {
		if l.from <= at && l.to >= since {
			operator = max(operator, cmp.Or(l.most, workflow.MaxKeyLimit))
		}
	}
	return min(most, cmp.Or(operator, workflow.MaxKeyLimit))
}

// turns is what the calls of a fleet show of turns.
type turns struct {
	taken int // for each key
	// overtaken counts for each plan the younger ones with a common key that began while it waited, and late those of a plan with
	// one key that were created more than some intervals later.
	overtaken, late map[uuid.UUID]int
	free            time.Duration // the longest that a plan waited for its only key while nobody worked with it
}

// judgeTurns reports when more plans worked with a key than may.
func (l *calls) judgeTurns(there map[uuid.UUID]*workflow.Plan) (found []finding) {
	all, first := map[string][]tenure{}, map[uuid.UUID]int64{}
	l.turns = turns{overtaken: map[uuid.UUID]int{}, late: map[uuid.UUID]int{}}
	for id, p := range there {
		if c := l.plans[id]; p != nil && c != nil && len(p.Keys) > 0 {
			of := c.times.tenures(p, l.died)
			if l.turns.taken += len(of) * len(p.Keys); len(of) > 0 {
				first[id] = of[0].from
			}
			for _, k := range p.Keys {
				all[k.Name] = append(all[k.Name], of...)
			}
		}
	}
	set := limitsOf(l.limits)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		slices.SortFunc(all[key], func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
		var now []tenure
		for _, t := range all[key] {
			now = append(slices.DeleteFunc(now, func(o tenure) bool { return o.to <= t.from }), t)
			of := set
			if key != keyName(0) {
				of = nil
			}
			if most := mostFor(key, now, t.from, of); len(now) > most {
				found = append(found, finding{crowded, t.plan.ID, fmt.Sprintf("%d plans work with %q, at most %d may; another is %s", len(now), key, most, now[0].plan.ID)})
			}
		}
		l.measure(key, all[key], there, first)
	}
	return found
}

// measure notes who overtook whom for a key, and how long it was free while a plan waited for nothing else.
func (l *calls) measure(key string, all []tenure, there map[uuid.UUID]*workflow.Plan, first map[uuid.UUID]int64) {
	free := int64(math.MaxInt64) // since when
	for _, t := range all {
		id := t.plan.ID
		for other, began := range first {
			p, made := there[other], l.plans[other].times.created.to
			if made == 0 || made > t.from || began < t.from || !slices.ContainsFunc(p.Keys, func(k workflow.Key) bool { return k.Name == key }) {
				continue
			}
			if len(p.Keys) == 1 {
				l.turns.free = max(l.turns.free, time.Duration(t.from-max(min(free, t.from), made)))
			}
			if began > t.from && t.from == first[id] && driver.NewestFirst(id, other) < 0 {
				if l.turns.overtaken[other]++; len(p.Keys) == 1 && l.plans[id].times.created.from-made > int64(l.settled) {
					l.turns.late[other]++
				}
			}
		}
		if free == math.MaxInt64 {
			free = t.to
		}
		free = max(free, t.to)
	}
}

func (t turns) String() string {
	sum := func(of map[uuid.UUID]int) string {
		all, most := 0, 0
		for _, n := range of {
			all, most = all+n, max(most, n)
		}
		return fmt.Sprintf("%d of %d plans, at most %d of one", all, len(of), most)
	}
	return fmt.Sprintf("%d turns; overtaken: %s; plans with one key, by much younger ones: %s; a key was free for %v while one waited for it",
		t.taken, sum(t.overtaken), sum(t.late), t.free.Round(time.Millisecond))
}
