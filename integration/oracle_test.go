package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
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

// tale is the story of one plan of one action: a node claims it, calls the plugin and dies; another takes the
// plan, calls the plugin again and ends it.
type tale struct {
	plan   *workflow.Plan
	action *workflow.Action
	a, b   uuid.UUID // the nodes
	r1, r2 result    // of their calls
	said   map[string]message
	order  []string
}

func newTale() *tale {
	t := &tale{plan: plantest.Small(), a: workflow.NewV7(), b: workflow.NewV7()}
	driver.Complete(t.plan)
	t.action = t.plan.Blocks[0].Sequences[0].Actions[0]
	t.r1, t.r2 = result{1, t.a, 1}, result{2, t.b, 2}
	t.plan.State.Status, t.plan.Owner, t.plan.Epoch = workflow.Completed, t.b, 2
	t.ends(workflow.Completed, t.r2)
	t.order = strings.Fields("create created claim call1 end1 take call2 end2 stored ended")
	t.said = map[string]message{
		"create":  {What: created, Begin: true},
		"created": {What: created},
		"claim":   t.picks(1, t.a, workflow.NotStarted),
		"call1":   {What: called, Node: t.a, Epoch: 1, Call: 1, Begin: true},
		"end1":    {What: called, Node: t.a, Epoch: 1, Call: 1},
		"take":    t.picks(2, t.b, workflow.Running),
		"call2":   {What: called, Node: t.b, Epoch: 2, Call: 2, Begin: true},
		"end2":    {What: called, Node: t.b, Epoch: 2, Call: 2},
		"stored":  {What: stored, Epoch: 2, Status: workflow.Completed, Results: []result{t.r2}},
		"ended":   {What: ended, Epoch: 2, Status: workflow.Completed},
	}
	return t
}

// picks returns the message of a node that picks the plan up.
func (t *tale) picks(epoch int64, node uuid.UUID, status workflow.Status, results ...result) message {
	return message{What: picked, Node: node, Epoch: epoch, Picture: &picture{
		Status: workflow.Running, Epoch: epoch, Actions: map[uuid.UUID]actionView{t.action.ID: {status, results}},
	}}
}

// ends sets what is stored of the action in the end.
func (t *tale) ends(status workflow.Status, results ...result) {
	t.action.State.Status, t.action.Attempts = status, []workflow.Attempt{{}} // an interrupted one
	for _, r := range results {
		t.action.Attempts = append(t.action.Attempts, workflow.Attempt{Resp: r})
	}
}

// drop removes messages.
func (t *tale) drop(names string) {
	t.order = slices.DeleteFunc(t.order, func(name string) bool { return slices.Contains(strings.Fields(names), name) })
}

// add adds a message at the end.
func (t *tale) add(m message) {
	t.order = append(t.order, "more")
	t.said["more"] = m
}

// TestCalls forges reports and plans of a fleet. Each forgery must be found.
func TestCalls(t *testing.T) {
	gone := func(t *tale) { t.plan = nil }
	for _, test := range []struct {
		name  string
		drop  string
		forge func(t *tale)
		want  []string
	}{
		{"nothing", "", func(*tale) {}, nil},
		{"a call of a frozen owner after the end", "", func(t *tale) { t.add(message{What: called, Node: t.a, Epoch: 1, Call: 3, Begin: true}) }, nil},
		{"a failed attempt before the fence", "", func(t *tale) {
			t.said["take"] = t.picks(2, t.b, workflow.Running, t.r1)
			t.said["stored"] = message{What: stored, Epoch: 2, Status: workflow.Completed, Results: []result{t.r1, t.r2}}
			t.ends(workflow.Completed, t.r1, t.r2)
		}, nil},
		{"an outcome before the fence", "call2 end2 stored", func(t *tale) {
			t.said["take"] = t.picks(2, t.b, workflow.Completed, t.r1)
			t.ends(workflow.Completed, t.r1)
		}, nil},
		{"an outcome that was not reported", "stored ended", func(*tale) {}, nil},
		{"a Create without an answer", "created", func(*tale) {}, nil},
		{"a plan that was taken back", "created stored ended", gone, nil},
		{"a Create that had no effect", "created claim call1 end1 take call2 end2 stored ended", gone, nil},

		{"a lost plan", "claim call1 end1 take call2 end2 stored ended", gone, []string{lost}},
		{"a lost plan that was ended", "created", gone, []string{lost}},
		{"a plan that nobody created", "create created", func(*tale) {}, []string{leftOver}},
		{"an open plan", "ended", func(t *tale) { t.plan.State.Status = workflow.Running }, []string{orphan}},
		{"a result of the former owner after the fence", "stored call2 end2", func(t *tale) { t.ends(workflow.Completed, t.r1) }, []string{stale}},
		{"the former owner's outcome over the owner's", "", func(t *tale) { t.ends(workflow.Completed, t.r1) }, []string{lost, stale}},
		{"a stale result between two fences", "stored call2 end2", func(t *tale) {
			t.add(t.picks(3, t.a, workflow.Completed, t.r1))
			t.plan.Epoch = 3
			t.ends(workflow.Completed, t.r1)
		}, []string{stale}},
		{"a result of the epoch before it began", "", func(t *tale) { t.said["take"] = t.picks(2, t.b, workflow.Running, t.r2) }, []string{stale}},
		{"a result of an epoch after the last", "", func(t *tale) {
			t.plan.Epoch = 1
			t.said["ended"] = message{What: ended, Epoch: 1, Status: workflow.Completed}
		}, []string{lost, stale}},
		{"a Completed action that runs in a later epoch", "stored", func(t *tale) {
			t.said["take"] = t.picks(2, t.b, workflow.Completed, t.r1)
			t.ends(workflow.Completed, t.r1)
		}, []string{rerun}},
		{"a Completed action that runs again in the same epoch", "", func(t *tale) {
			t.add(message{What: called, Node: t.b, Epoch: 2, Call: 3, Begin: true})
		}, []string{rerun}},
		{"an acknowledged outcome of epoch 1 that runs in epoch 2", "", func(t *tale) {
			t.add(message{What: stored, Epoch: 1, Status: workflow.Completed, Results: []result{t.r1}})
		}, []string{lost, rerun}},
		{"an outcome that is undone", "", func(t *tale) { t.ends(workflow.Running) }, []string{lost}},
		{"an outcome that another replaced", "", func(t *tale) { t.ends(workflow.Failed, t.r2) }, []string{lost}},
		{"an outcome that was lost in a takeover", "stored call2 end2", func(t *tale) {
			t.said["take"] = t.picks(2, t.b, workflow.Completed, t.r1)
			t.ends(workflow.Completed, t.r2)
		}, []string{forged, lost}},
		{"an outcome that was lost for an epoch", "stored call2 end2", func(t *tale) {
			t.said["take"] = t.picks(2, t.b, workflow.Completed, t.r1)
			t.add(t.picks(3, t.a, workflow.Running, t.r1))
			t.plan.Epoch = 3
			t.ends(workflow.Completed, t.r1)
		}, []string{lost}},
		{"a result that nobody returned", "end2", func(*tale) {}, []string{forged}},
		{"a result of another node", "stored", func(t *tale) { t.ends(workflow.Completed, result{2, t.a, 2}) }, []string{forged}},
		{"two owners of an epoch", "", func(t *tale) { t.add(t.picks(2, t.a, workflow.Running)) }, []string{forged}},
		{"a plan that ended otherwise", "", func(t *tale) { t.plan.State.Status = workflow.Failed }, []string{lost}},
		{"a plan that an owner did not find", "", func(t *tale) { t.add(message{What: left, Told: "not found"}) }, []string{half}},
	} {
		tale := newTale()
		id, there := tale.plan.ID, map[uuid.UUID]*workflow.Plan{}
		tale.drop(test.drop)
		if test.forge(tale); tale.plan != nil {
			there[id] = tale.plan
		}
		l := newCalls()
		for _, name := range tale.order {
			m := tale.said[name]
			m.Plan, m.Object = id, tale.action.ID
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
