package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// stamped sets the state of an object to that of a write.
func stamped(o workflow.Object, s stamp) {
	st := o.Header().State
	st.Status, st.Start = s.status(), s.time()
}

func TestStamps(t *testing.T) {
	plan := plantest.Small()
	if got := stampOf(plan); got != 0 {
		t.Errorf("a new plan has the stamp %d", got)
	}
	for _, s := range []stamp{newStamp(1, workflow.Running), newStamp(int64(maxClients)<<40|0xffff<<24|0xffffff, workflow.Stopped)} {
		stamped(plan, s)
		text, err := plan.State.Start.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.State.Start.UnmarshalJSON(text); err != nil || stampOf(plan) != s {
			t.Errorf("%d came back as %d, %v", s, stampOf(plan), err)
		}
	}
}

func TestExplain(t *testing.T) {
	a, b, c := newStamp(1, workflow.Running), newStamp(2, workflow.Running), newStamp(3, workflow.Completed)
	for _, test := range []struct {
		name   string
		writes map[stamp]write
		last   stamp
		want   string // in what is wrong
	}{
		{"never written", nil, 0, ""},
		{"all done", map[stamp]write{a: {0, done}, b: {a, done}, c: {b, done}}, c, ""},
		{"the last one unknown, and not applied", map[stamp]write{a: {0, done}, b: {a, unknown}}, a, ""},
		{"the last one unknown, and applied", map[stamp]write{a: {0, done}, b: {a, unknown}}, b, ""},
		{"an unknown one that another is based on", map[stamp]write{a: {0, unknown}, b: {a, done}}, b, ""},
		{"one that failed", map[stamp]write{a: {0, done}, b: {0, failed}}, a, ""},
		{"a lost write", map[stamp]write{a: {0, done}, b: {a, done}}, a, "returned nil"},
		{"all that were lost", map[stamp]write{a: {0, done}}, 0, "returned nil"},
		{"a write that was overwritten unseen", map[stamp]write{a: {0, done}, b: {0, done}}, b, "returned nil"},
		{"one that failed, and was applied", map[stamp]write{a: {0, failed}}, a, "its call failed"},
		{"an unknown write", map[stamp]write{a: {0, done}}, b, "no client made"},
		{"a ring", map[stamp]write{a: {b, done}, b: {a, done}}, a, "follows itself"},
	} {
		got := explain(test.writes, test.last, test.last.status())
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if got := explain(map[stamp]write{a: {0, done}}, a, workflow.Completed); !strings.Contains(got, "status") {
		t.Errorf("another status: %q", got)
	}
}

// told is an operation that the ledger notes.
type told struct {
	op   string
	fate fate
}

// comparison is what a client was told about a plan, and what compare must find.
type comparison struct {
	name  string
	said  []told
	there func(plan *workflow.Plan) *workflow.Plan // nil when it is not
	want  []string
	size  int // of the ledger
}

func comparisons(to stamp) []comparison {
	const created, deleted, updated = "create", "delete", "update"
	return []comparison{
		{"created", []told{{created, unknown}, {created, done}}, whole, nil, 1},
		{"created, and gone", []told{{created, unknown}, {created, done}}, nil, []string{lost}, 1},
		{"perhaps created, and gone", []told{{created, unknown}}, nil, nil, 1},
		{"perhaps created, and there", []told{{created, unknown}}, whole, nil, 1},
		{"not created", []told{{created, unknown}, {created, failed}}, nil, nil, 1},
		{"not created, and there", []told{{created, unknown}, {created, failed}}, whole, []string{leftOver}, 1},
		{"never created", nil, whole, []string{leftOver}, 0},
		{"deleted", []told{{created, unknown}, {created, done}, {deleted, unknown}, {deleted, done}}, nil, nil, 0},
		{"deleted, and there", []told{{created, unknown}, {created, done}, {deleted, unknown}, {deleted, done}}, whole, []string{leftOver}, 0},
		{"perhaps deleted, and gone", []told{{created, done}, {deleted, unknown}}, nil, nil, 1},
		{"perhaps deleted, and there", []told{{created, done}, {deleted, unknown}}, whole, nil, 1},
		{"deleted before its Create was told", []told{{created, unknown}, {deleted, unknown}, {deleted, done}, {created, done}}, nil, nil, 0},
		{"deleted before its Create was begun", []told{{deleted, unknown}, {deleted, done}, {created, unknown}, {created, done}}, nil, nil, 0},
		{"updated", []told{{created, done}, {updated, unknown}, {updated, done}}, func(p *workflow.Plan) *workflow.Plan { stamped(p, to); return p }, nil, 1},
		{"updated, and lost", []told{{created, done}, {updated, unknown}, {updated, done}}, whole, []string{lost}, 1},
		{"updated after it was deleted", []told{{created, done}, {deleted, done}, {updated, unknown}, {updated, failed}}, nil, nil, 0},
		{"half", []told{{created, done}}, func(p *workflow.Plan) *workflow.Plan { p.Blocks = nil; return p }, []string{half, half, half}, 1},
		{"more than was created", []told{{created, done}}, func(p *workflow.Plan) *workflow.Plan {
			more := plantest.Small()
			driver.Complete(more)
			p.Blocks = append(p.Blocks, more.Blocks...)
			return p
		}, []string{half, half, half}, 1},
		{"unreadable", []told{{created, done}}, func(*workflow.Plan) *workflow.Plan { return nil }, nil, 1}, // readAll reports it
	}
}

func TestCompare(t *testing.T) {
	to := newStamp(1, workflow.Running)
	for _, test := range comparisons(to) {
		plan := plantest.Small()
		driver.Complete(plan)
		e := event{Plan: plan.ID, Object: plan.ID, To: to}
		for o := range workflow.Walk(plan) {
			e.Objects = append(e.Objects, *o.Header().ID)
		}
		l := newLedger()
		for _, s := range test.said {
			e.Op = s.op
			l.note(e, s.fate)
		}
		there := map[uuid.UUID]*workflow.Plan{}
		if test.there != nil {
			there[plan.ID] = test.there(plan)
		}
		var got []string
		for _, f := range l.compare(there) {
			got = append(got, f.What)
			if f.Plan != plan.ID || f.Detail == "" {
				t.Errorf("%s: %v", test.name, f)
			}
		}
		if !slices.Equal(got, test.want) || l.len() != test.size || len(l.early) != 0 {
			t.Errorf("%s: found %q, want %q; the ledger has %d plans, %d early", test.name, got, test.want, l.len(), len(l.early))
		}
	}
}

func whole(p *workflow.Plan) *workflow.Plan { return p }

func TestGiveUp(t *testing.T) {
	l := newLedger()
	e := event{Op: "create", Plan: workflow.NewV7()}
	l.note(e, unknown)
	l.note(event{Op: "delete", Plan: e.Plan}, done)
	if len(l.early) != 1 {
		t.Fatal("the ledger does not wait for the Create")
	}
	if l.giveUp(e); len(l.early) != 0 {
		t.Error("the ledger waits for the Create of a dead client")
	}
}
