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

// The kinds of messages that the ledger of a soak records.
const (
	created = "created"
	updated = "updated"
	deleted = "deleted"
)

// fate is what is known of a write.
type fate int

const (
	unknown fate = iota // it may have taken effect
	done                // it returned nil
	failed              // it returned an error and had no effect
)

// fate returns what a message says of its call.
func (m message) fate() fate {
	switch {
	case m.Begin || m.Told == "unknown":
		return unknown
	case m.Told == "":
		return done
	}
	return failed
}

// stamp identifies a write of an object. It is stored in State.Start, and its last digits are the status. The
// stamp of a new object is 0.
type stamp int64

var stampZero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newStamp(number int64, status workflow.Status) stamp { return stamp(number<<3 | int64(status)) }

func (s stamp) status() workflow.Status { return workflow.Status(s & 7) }

func (s stamp) time() time.Time { return stampZero.Add(time.Duration(s)) }

func stampOf(o workflow.Object) stamp {
	start := o.Header().State.Start
	if start.IsZero() {
		return 0
	}
	return stamp(start.Sub(stampZero))
}

// ledger records what the clients of a soak did and were told. The vault is compared with it in the end.
type ledger struct {
	mu    sync.Mutex
	plans map[uuid.UUID]*entry
}

func newLedger() *ledger { return &ledger{plans: map[uuid.UUID]*entry{}} }

// entry is what is known of a plan. Little is kept of a deleted one, so that the ledger's size follows the vault's.
type entry struct {
	created fate
	objects []uuid.UUID
	deleted fate // failed, unless a Delete has begun
	writes  map[uuid.UUID]map[stamp]write
}

// write is an update of an object.
type write struct {
	from stamp
	fate fate
}

// note records a message. The order of messages of different clients does not count, because each has a pipe of its own:
// the Delete of a plan may be reported before its Create.
func (l *ledger) note(m message) {
	if m.Plan == uuid.Nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.plans[m.Plan]
	if e == nil {
		e = &entry{created: failed, deleted: failed, writes: map[uuid.UUID]map[stamp]write{}}
		l.plans[m.Plan] = e
	}
	switch {
	case e.deleted == done:
	case m.What == created:
		e.created, e.objects = m.fate(), m.Objects
	case m.What == updated:
		if e.writes[m.Object] == nil {
			e.writes[m.Object] = map[stamp]write{}
		}
		e.writes[m.Object][m.To] = write{m.From, m.fate()}
	case m.What == deleted:
		switch m.fate() {
		case done:
			*e = entry{deleted: done}
		case unknown:
			e.deleted = unknown
		}
	}
}

// compare compares the plans of the vault with the ledger.
func (l *ledger) compare(there map[uuid.UUID]*workflow.Plan) (found []finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	report := func(what string, plan uuid.UUID, detail string, args ...any) {
		found = append(found, finding{what, plan, fmt.Sprintf(detail, args...)})
	}
	for _, id := range slices.SortedFunc(maps.Keys(l.plans), driver.NewestFirst) {
		e := l.plans[id]
		if _, is := there[id]; !is && e.created == done && e.deleted == failed {
			report(lost, id, "its Create returned nil, but it is not stored")
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(there), driver.NewestFirst) {
		e, plan := l.plans[id], there[id]
		if e == nil || e.created == failed || e.deleted == done {
			report(leftOver, id, "it is stored, but no client created it, its Create failed, or its Delete returned nil")
			continue
		}
		if plan == nil {
			continue
		}
		objects := objectsOf(plan)
		for o := range workflow.Walk(plan) {
			h := o.Header()
			if !slices.Contains(e.objects, *h.ID) {
				report(half, id, "%s %s belongs to another plan", o.Kind(), h.ID)
			}
			if problem := explain(e.writes[*h.ID], stampOf(o), h.State.Status); problem != "" {
				report(lost, id, "%s %s: %s", o.Kind(), h.ID, problem)
			}
		}
		for _, object := range e.objects {
			if !slices.Contains(objects, object) {
				report(half, id, "object %s is missing", object)
			}
		}
	}
	return found
}

// explain returns what is wrong with the last state of an object, or "". A write replaces the write that it
// knows. The writes that took effect are therefore a chain from the last one back to the object's creation.
// It holds all writes that returned nil, and none that failed.
func explain(writes map[stamp]write, last stamp, status workflow.Status) string {
	if last.status() != status {
		return fmt.Sprintf("its status is %s, but the last write set %s", status, last.status())
	}
	chain := map[stamp]bool{}
	for at := last; at != 0; {
		w, known := writes[at]
		switch {
		case !known:
			return fmt.Sprintf("no client made the write %d, which took effect", at)
		case w.fate == failed:
			return fmt.Sprintf("the write %d took effect, but its call failed", at)
		case chain[at]:
			return fmt.Sprintf("the write %d follows itself", at)
		}
		chain[at] = true
		at = w.from
	}
	for _, to := range slices.Sorted(maps.Keys(writes)) {
		if writes[to].fate == done && !chain[to] {
			return fmt.Sprintf("the write %d returned nil, but the last write %d does not follow it", to, last)
		}
	}
	return ""
}
