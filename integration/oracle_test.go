package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

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

// TestLedger notes what clients of a soak report about a plan: calls that begin, "!" calls that returned nil, "?" calls that
// returned ErrUnknown, and "-" calls that failed. Then it compares what is stored.
func TestLedger(t *testing.T) {
	to := newStamp(1, workflow.Running)
	whole := func(*workflow.Plan) {}
	for _, test := range []struct {
		name  string
		said  string
		there func(plan *workflow.Plan) // changes what is stored; nil when it is not
		want  []string
	}{
		{"created", "created created!", whole, nil},
		{"created, and gone", "created created!", nil, []string{lost}},
		{"perhaps created, and gone", "created", nil, nil},
		{"perhaps created, and there", "created created?", whole, nil},
		{"not created", "created created-", nil, nil},
		{"not created, and there", "created created-", whole, []string{leftOver}},
		{"never created", "", whole, []string{leftOver}},
		{"deleted", "created created! deleted deleted!", nil, nil},
		{"deleted, and there", "created created! deleted deleted!", whole, []string{leftOver}},
		{"perhaps deleted, and gone", "created! deleted", nil, nil},
		{"perhaps deleted, and there", "created! deleted deleted?", whole, nil},
		{"deleted before its Create was told", "created deleted deleted! created!", nil, nil},
		{"deleted before its Create was begun", "deleted deleted! created created!", nil, nil},
		{"updated", "created! updated updated!", func(p *workflow.Plan) { p.State.Status, p.State.Start = to.status(), to.time() }, nil},
		{"updated before its Create was told", "updated! created!", func(p *workflow.Plan) { p.State.Status, p.State.Start = to.status(), to.time() }, nil},
		{"updated, and lost", "created! updated updated!", whole, []string{lost}},
		{"updated after it was deleted", "created! deleted! updated updated-", nil, nil},
		{"half", "created!", func(p *workflow.Plan) { p.Blocks = nil }, []string{half, half, half}},
		{"more than was created", "created!", func(p *workflow.Plan) {
			more := plantest.Small()
			driver.Complete(more)
			p.Blocks = append(p.Blocks, more.Blocks...)
		}, []string{half, half, half}},
	} {
		plan := plantest.Small()
		driver.Complete(plan)
		l := newLedger()
		for _, said := range strings.Fields(test.said) {
			m := message{What: strings.TrimRight(said, "!?-"), Plan: plan.ID, Object: plan.ID, To: to, Objects: objectsOf(plan)}
			m.Begin = m.What == said
			switch said[len(said)-1] {
			case '?':
				m.Told = "unknown"
			case '-':
				m.Told = "conflict"
			}
			l.note(m)
		}
		there := map[uuid.UUID]*workflow.Plan{}
		if test.there != nil {
			test.there(plan)
			there[plan.ID] = plan
		}
		var got []string
		for _, f := range l.compare(there) {
			got = append(got, f.What)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
	}
}

// TestCalls forges reports of a fleet about a plan of one action, and the plan. A node claims it, calls the plugin and dies;
// another takes it over, calls the plugin again and ends it. Each forgery must be found.
func TestCalls(t *testing.T) {
	said := map[string]message{
		"create":  {What: created, Begin: true},
		"created": {What: created},
		"call1":   {What: called, Epoch: 1, Call: 1},
		"stored1": {What: stored, Epoch: 1, Status: workflow.Completed},
		"call2":   {What: called, Epoch: 2, Call: 2},
		"stored":  {What: stored, Epoch: 2, Status: workflow.Completed},
		"ended":   {What: ended, Epoch: 2, Status: workflow.Completed},
		"zombie":  {What: called, Epoch: 1, Call: 3},
		"again":   {What: called, Epoch: 2, Call: 3},
		"missed":  {What: left, Told: "not found"},
	}
	const all = "create created call1 call2 stored ended"
	const completed, failed, running, gone = workflow.Completed, workflow.Failed, workflow.Running, workflow.NotStarted
	for _, test := range []struct {
		name         string
		order        string
		plan, action workflow.Status // in the end
		want         []string
	}{
		{"nothing", all, completed, completed, nil},
		{"a call of a frozen owner after the end", all + " zombie", completed, completed, nil},
		{"an outcome that was not reported", "create created call1 call2", completed, completed, nil},
		{"a Create without an answer", "create call1 call2 stored ended", completed, completed, nil},
		{"a Create that had no effect", "create", gone, gone, nil},

		{"a lost plan", "create created", gone, gone, []string{lost}},
		{"a lost plan that was ended", "create call1 ended", gone, gone, []string{lost}},
		{"a plan that nobody created", "call1 call2 stored ended", completed, completed, []string{leftOver}},
		{"an open plan", "create created call1", running, running, []string{orphan}},
		{"a Completed action that runs in a later epoch", "create created call1 stored1 call2 ended", completed, completed, []string{rerun}},
		{"a Completed action that runs again in the same epoch", all + " again", completed, completed, []string{rerun}},
		{"an outcome that is undone", all, completed, running, []string{lost}},
		{"an outcome that another replaced", all, completed, failed, []string{lost}},
		{"a plan that ended otherwise", all, failed, completed, []string{lost}},
		{"a plan that an owner did not find", all + " missed", completed, completed, []string{half}},
	} {
		plan := plantest.Small()
		driver.Complete(plan)
		action := plan.Blocks[0].Sequences[0].Actions[0]
		plan.State.Status, plan.Epoch, action.State.Status = test.plan, 2, test.action
		there := map[uuid.UUID]*workflow.Plan{}
		if test.plan != gone {
			there[plan.ID] = plan
		}
		l := newCalls(0)
		for _, name := range strings.Fields(test.order) {
			m := said[name]
			m.Plan, m.Object = plan.ID, action.ID
			l.note(m)
		}
		kinds := map[string]bool{}
		for _, f := range l.compare(there) {
			kinds[f.What] = true
		}
		if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, test.want) {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
	}
}

// TestTurnsOfCalls forges the calls of plans with keys, by the second. At most the limit of them may work at any moment.
func TestTurnsOfCalls(t *testing.T) {
	const a, b, zombie = 1, 2, 3 // processes
	call := func(plan int, epoch int64, process, begin, end int) []message {
		m := message{What: called, Plan: uuid.UUID{15: byte(plan)}, Epoch: epoch, Call: int64(process)<<24 | int64(begin), Begin: true, At: int64(begin)}
		over := m
		if over.Begin, over.At = false, int64(end); end == 0 {
			return []message{m}
		}
		return []message{m, over}
	}
	set := func(limit, begin, end int) []message {
		return []message{{What: limited, Begin: true, At: int64(begin), Limit: limit}, {What: limited, At: int64(end), Limit: limit}}
	}
	for _, test := range []struct {
		name    string
		said    [][]message
		limits  [2]int
		sleeps  bool // they give their turns back while they sleep
		crowded int
	}{
		{"one after the other", [][]message{call(1, 1, a, 10, 20), call(2, 1, b, 20, 30)}, [2]int{1, 1}, false, 0},
		{"at once", [][]message{call(1, 1, a, 10, 20), call(2, 1, b, 19, 30)}, [2]int{1, 1}, false, 1},
		{"at once, as both allow", [][]message{call(1, 1, a, 10, 20), call(2, 1, b, 15, 30)}, [2]int{2, 2}, false, 0},
		{"at once, as one of them does not allow", [][]message{call(1, 1, a, 10, 20), call(2, 1, b, 15, 30)}, [2]int{1, 2}, false, 1},
		{"between two calls", [][]message{call(1, 1, a, 10, 20), call(1, 1, a, 40, 50), call(2, 1, b, 25, 30)}, [2]int{1, 1}, false, 1},
		{"between two epochs", [][]message{call(1, 1, a, 10, 20), call(1, 2, b, 40, 50), call(2, 1, b, 25, 30)}, [2]int{1, 1}, false, 1},
		{"while the other sleeps", [][]message{call(1, 1, a, 10, 20), call(1, 2, b, 40, 50), call(2, 1, b, 25, 30)}, [2]int{1, 1}, true, 0},
		{"after a death", [][]message{call(1, 1, zombie, 10, 0), {{What: died, Call: zombie << 24, At: 20}}, call(2, 1, b, 21, 30)}, [2]int{1, 1}, false, 0},
		{"a call without an end", [][]message{call(1, 1, a, 10, 0), call(2, 1, b, 21, 30)}, [2]int{1, 1}, false, 1},
		{"a fenced call goes on", [][]message{call(1, 1, zombie, 10, 90), call(1, 2, a, 20, 30), call(2, 1, b, 31, 40)}, [2]int{1, 1}, false, 0},
		{"a fenced call begins", [][]message{call(1, 1, zombie, 35, 90), call(1, 2, a, 20, 30), call(2, 1, b, 31, 40)}, [2]int{1, 1}, false, 0},
		{"an operator's limit", [][]message{set(1, 1, 2), call(1, 1, a, 10, 20), call(2, 1, b, 15, 30)}, [2]int{3, 3}, false, 1},
		{"an operator's limit that is not yet set", [][]message{set(1, 1, 12), call(1, 1, a, 10, 20), call(2, 1, b, 15, 30)}, [2]int{3, 3}, false, 0},
		{"an operator's limit that was lifted", [][]message{set(1, 1, 2), set(0, 5, 6), call(1, 1, a, 10, 20), call(2, 1, b, 15, 30)}, [2]int{3, 3}, false, 0},
	} {
		l, there := newCalls(0), map[uuid.UUID]*workflow.Plan{}
		for i, limit := range test.limits {
			p := plantest.Small()
			p.ID, p.Keys = uuid.UUID{15: byte(i + 1)}, []workflow.Key{{Name: keyName(0), Limit: limit}}
			if test.sleeps {
				p.KeepTurn = workflow.KeepWhileAwake
			}
			l.note(message{What: created, Plan: p.ID, Begin: true, At: 3})
			there[p.ID] = p
		}
		for _, m := range slices.Concat(test.said...) {
			l.note(m)
		}
		if got := l.judgeTurns(there); len(got) != test.crowded {
			t.Errorf("%s: found %v", test.name, got)
		}
	}
}
