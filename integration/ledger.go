package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// fate is what is known of a write.
type fate int

const (
	unknown fate = iota // it may have taken effect
	done                // it returned nil
	failed              // it returned an error and had no effect
)

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

// event is what a client reports before and after an operation.
type event struct {
	Op   string    `json:"op,omitempty"`
	Plan uuid.UUID `json:"plan,omitzero"`
	// Objects are the objects of the plan that is created.
	Objects []uuid.UUID `json:"objects,omitempty"`
	// Object is updated from one stamp to another.
	Object uuid.UUID `json:"object,omitzero"`
	From   stamp     `json:"from,omitempty"`
	To     stamp     `json:"to,omitempty"`

	// End is set when the operation has ended. Told is the kind of its error, "" for nil, and Error its text.
	End   bool   `json:"end,omitempty"`
	Told  string `json:"told,omitempty"`
	Error string `json:"error,omitempty"`
	// Requests and Faults count those of the client so far.
	Requests int `json:"requests,omitempty"`
	Faults   int `json:"faults,omitempty"`
}

// kinds are the errors of operations. The first one that matches decides.
var kinds = []struct {
	err  error
	name string
}{
	{storage.ErrUnknown, "unknown"},
	{storage.ErrNotFound, "not found"},
	{storage.ErrConflict, "conflict"},
	{storage.ErrUnavailable, "unavailable"},
}

// kind returns the kind of an error; "wrong" for an error that no client should see.
func kind(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return "wrong"
}

func (e event) fate() fate {
	switch e.Told {
	case "":
		return done
	case "unknown":
		return unknown
	}
	return failed
}

// ledger records what the clients did and were told. The vault is compared with it in the end. It forgets
// deleted plans, so its size follows the vault's.
type ledger struct {
	mu    sync.Mutex
	plans map[uuid.UUID]*account
	// early holds plans whose Delete was reported before their Create: each client has a pipe of its own.
	early map[uuid.UUID]bool
}

func newLedger() *ledger {
	return &ledger{plans: map[uuid.UUID]*account{}, early: map[uuid.UUID]bool{}}
}

// account is what is known of a plan.
type account struct {
	created fate
	objects []uuid.UUID
	// deleting is set after a Delete whose outcome is not known.
	deleting bool
	writes   map[uuid.UUID]map[stamp]write
}

// write is an update of an object.
type write struct {
	from stamp
	fate fate
}

// note records an operation, first with an unknown fate and again when its fate is known.
func (l *ledger) note(e event, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.plans[e.Plan]
	switch e.Op {
	case "create":
		switch {
		case l.early[e.Plan]:
			if f != unknown {
				delete(l.early, e.Plan)
			}
		case a == nil:
			l.plans[e.Plan] = &account{created: f, objects: e.Objects, writes: map[uuid.UUID]map[stamp]write{}}
		default:
			a.created = f
		}
	case "update":
		if a == nil {
			return // the plan was deleted
		}
		if a.writes[e.Object] == nil {
			a.writes[e.Object] = map[stamp]write{}
		}
		a.writes[e.Object][e.To] = write{e.From, f}
	case "delete":
		switch {
		case f == done && a == nil:
			l.early[e.Plan] = true
		case f == done:
			delete(l.plans, e.Plan)
			if a.created == unknown {
				l.early[e.Plan] = true
			}
		case a != nil && f == unknown:
			a.deleting = true
		}
	}
}

// giveUp records that the fate of an operation will never be known.
func (l *ledger) giveUp(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Op == "create" {
		delete(l.early, e.Plan)
	}
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.plans)
}

// finding is a contradiction between the vault and the ledger.
type finding struct {
	// What is lost, half or leftOver.
	What   string    `json:"what"`
	Plan   uuid.UUID `json:"plan,omitzero"`
	Detail string    `json:"detail"`
}

func (f finding) String() string {
	if f.Plan == uuid.Nil {
		return f.What + ": " + f.Detail
	}
	return fmt.Sprintf("%s: plan %s: %s", f.What, f.Plan, f.Detail)
}

// The kinds of findings.
const (
	lost     = "lost"
	half     = "half"
	leftOver = "left over"
)

// findings counts what is found by kind, and holds the first of it.
type findings struct {
	Violations map[string]int `json:"violations"`
	Findings   []finding      `json:"findings,omitempty"`
}

func (f *findings) add(found ...finding) {
	const most = 50 // that are printed
	for _, one := range found {
		f.Violations[one.What]++
		if len(f.Findings) < most {
			f.Findings = append(f.Findings, one)
		}
	}
}

// err returns an error if anything was found.
func (f *findings) err(in string) error {
	if len(f.Findings) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s, such as %s", in, counts(f.Violations), f.Findings[0])
}

// counts describes numbers by kind.
func counts(of map[string]int) string {
	var text []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		text = append(text, fmt.Sprintf("%d %s", of[what], what))
	}
	return cmp.Or(strings.Join(text, ", "), "none")
}

// compare compares the plans of the vault with the ledger. A plan that could not be read is nil.
func (l *ledger) compare(there map[uuid.UUID]*workflow.Plan) []finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []finding
	report := func(what string, plan uuid.UUID, detail string, args ...any) {
		found = append(found, finding{what, plan, fmt.Sprintf(detail, args...)})
	}
	byID := func(a, b uuid.UUID) int { return driver.NewestFirst(a, b) }
	for _, id := range slices.SortedFunc(maps.Keys(l.plans), byID) {
		a := l.plans[id]
		if _, is := there[id]; !is && a.created == done && !a.deleting {
			report(lost, id, "its Create returned nil, but it is not stored")
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(there), byID) {
		a := l.plans[id]
		if a == nil || a.created == failed {
			report(leftOver, id, "it is stored, but no client created it, its Create failed, or its Delete returned nil")
			continue
		}
		if there[id] == nil {
			continue
		}
		objects := map[uuid.UUID]bool{}
		for o := range workflow.Walk(there[id]) {
			h := o.Header()
			objects[*h.ID] = true
			if !slices.Contains(a.objects, *h.ID) {
				report(half, id, "%s %s belongs to another plan", o.Kind(), h.ID)
			}
			if problem := explain(a.writes[*h.ID], stampOf(o), h.State.Status); problem != "" {
				report(lost, id, "%s %s: %s", o.Kind(), h.ID, problem)
			}
		}
		for _, object := range a.objects {
			if !objects[object] {
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
