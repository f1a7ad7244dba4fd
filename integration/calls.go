package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// calls is the ledger of a fleet: what its nodes reported. It finds what is lost, left or run again after real deaths. What
// the store accepts from whom is checked in virtual time, by tests/week, which sees every request.
type calls struct {
	mu     sync.Mutex
	plans  map[uuid.UUID]*career
	died   map[int64]int64 // when processes had ended
	limits []message       // that were set for the first key
	turns  turns           // after compare
	// settled is the time in which all nodes know a new plan, and have noticed a death.
	settled time.Duration
}

func newCalls(settled time.Duration) *calls {
	return &calls{plans: map[uuid.UUID]*career{}, died: map[int64]int64{}, settled: settled}
}

// career is what was reported of a plan. No order of reports of different processes counts, because each has a
// pipe of its own; epochs order them.
type career struct {
	created bool // its Create returned nil
	known   bool // its Create was announced
	missed  bool // an owner did not find it

	calls  map[int64]message // of the plugin
	stored []outcome         // of actions
	ended  []message         // outcomes of the plan

	times
}

// outcome is that of an action. Its owner was told that it is stored.
type outcome struct {
	message
	after map[int64]message // the calls that were reported before
}

// note records a message.
func (l *calls) note(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case m.What == died:
		l.died[processOf(m.Call)] = m.At
	case m.What == limited:
		l.limits = append(l.limits, m)
	}
	if m.Plan == uuid.Nil {
		return
	}
	c := l.plans[m.Plan]
	if c == nil {
		c = &career{calls: map[int64]message{}, times: times{calls: map[int64]timed{}, epochs: map[int64]span{}}}
		l.plans[m.Plan] = c
	}
	c.times.note(m)
	switch m.What {
	case created:
		c.known = true
		c.created = c.created || m.fate() == done
	case called:
		c.calls[m.Call] = m
	case stored:
		c.stored = append(c.stored, outcome{m, maps.Clone(c.calls)})
	case left:
		c.missed = c.missed || m.Told == "not found"
	case ended:
		c.ended = append(c.ended, m)
	}
}

// compare compares the plans of the vault with the reports. A plan is certainly stored if its Create returned nil or
// if it ended: a Create that took longer than the grace period takes its plan back, also when a node has begun it.
func (l *calls) compare(there map[uuid.UUID]*workflow.Plan) (found []finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(l.plans), driver.NewestFirst) {
		c := l.plans[id]
		if _, is := there[id]; !is && (c.created || len(c.ended) > 0) {
			found = append(found, finding{lost, id, "its Create returned nil, or a node ended it, but it is not stored"})
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(there), driver.NewestFirst) {
		c := l.plans[id]
		switch p := there[id]; {
		case c == nil || !c.known:
			found = append(found, finding{leftOver, id, "it is stored, but no node created it"})
		case p != nil:
			c.judge(p, func(what, detail string, args ...any) {
				found = append(found, finding{what, id, fmt.Sprintf(detail, args...)})
			})
		}
	}
	return append(found, l.judgeTurns(there)...)
}

// judge reports how the plan as it was read at the end contradicts what was reported. A call of an action whose outcome was
// stored in a later epoch is allowed: its owner may have slept between the store that begins an attempt and the call, and no
// fence reaches a plugin.
func (c *career) judge(end *workflow.Plan, report func(what, detail string, args ...any)) {
	if !end.State.Status.Final() {
		report(orphan, "it is %s in epoch %d, WakeAt %v, WaitsFor %q", end.State.Status, end.Epoch, end.WakeAt, end.WaitsFor)
	}
	if c.missed {
		report(half, "an owner did not find it")
	}
	for _, e := range c.ended {
		if e.Status != end.State.Status || e.Epoch > end.Epoch {
			report(lost, "epoch %d ended it as %s, but it is %s in epoch %d", e.Epoch, e.Status, end.State.Status, end.Epoch)
		}
	}
	statuses := map[uuid.UUID]workflow.Status{}
	for o := range workflow.Walk(end) {
		statuses[*o.Header().ID] = o.Header().State.Status
	}
	for _, o := range c.stored {
		if is := statuses[o.Object]; is != o.Status {
			report(lost, "action %s became %s in epoch %d, and is %s", o.Object, o.Status, o.Epoch, is)
		}
		for _, k := range c.calls {
			_, before := o.after[k.Call]
			if o.Object == k.Object && (k.Epoch > o.Epoch || k.Epoch == o.Epoch && !before) {
				report(rerun, "action %s was stored as %s in epoch %d, and ran again in epoch %d", k.Object, o.Status, o.Epoch, k.Epoch)
			}
		}
	}
}
