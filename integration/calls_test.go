package main

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// tale is the story of one plan of one action: a node claims it, calls the plugin and dies; another takes the
// plan, calls the plugin again and ends it.
type tale struct {
	plan    *workflow.Plan
	action  *workflow.Action
	a, b    uuid.UUID // the nodes
	r1, r2  result    // of their calls
	notices map[string]notice
	order   []string
}

func newTale() *tale {
	t := &tale{plan: plantest.Small(), a: workflow.NewV7(), b: workflow.NewV7()}
	driver.Complete(t.plan)
	t.action = t.plan.Blocks[0].Sequences[0].Actions[0]
	t.r1, t.r2 = result{1, t.a, 1}, result{2, t.b, 2}
	t.plan.State.Status, t.plan.Owner, t.plan.Epoch = workflow.Completed, t.b, 2
	t.ends(workflow.Completed, t.r2)
	id, action := t.plan.ID, t.action.ID
	t.order = []string{"create", "created", "claim", "call 1", "end 1", "take", "call 2", "end 2", "stored", "ended"}
	t.notices = map[string]notice{
		"create":  {What: created, Plan: id},
		"created": {What: created, Plan: id, End: true},
		"claim":   t.picks(1, t.a, workflow.NotStarted),
		"call 1":  {What: called, Plan: id, Object: action, Node: t.a, Epoch: 1, Call: 1},
		"end 1":   {What: called, Plan: id, Object: action, Node: t.a, Epoch: 1, Call: 1, End: true},
		"take":    t.picks(2, t.b, workflow.Running),
		"call 2":  {What: called, Plan: id, Object: action, Node: t.b, Epoch: 2, Call: 2},
		"end 2":   {What: called, Plan: id, Object: action, Node: t.b, Epoch: 2, Call: 2, End: true},
		"stored":  {What: stored, Plan: id, Object: action, Epoch: 2, Status: workflow.Completed, Results: []result{t.r2}},
		"ended":   {What: ended, Plan: id, Epoch: 2, Status: workflow.Completed},
	}
	return t
}

// picks returns the notice of a node that picks the plan up.
func (t *tale) picks(epoch int64, node uuid.UUID, status workflow.Status, results ...result) notice {
	return notice{What: picked, Plan: t.plan.ID, Node: node, Epoch: epoch, Picture: &picture{
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

// drop removes notices.
func (t *tale) drop(names ...string) {
	t.order = slices.DeleteFunc(t.order, func(name string) bool { return slices.Contains(names, name) })
}

// add adds a notice at the end.
func (t *tale) add(n notice) {
	t.order = append(t.order, "more")
	t.notices["more"] = n
}

// judged returns the kinds of what the judge finds.
func (t *tale) judged(there map[uuid.UUID]*workflow.Plan) []string {
	l := newCalls()
	for _, name := range t.order {
		l.note(t.notices[name])
	}
	kinds := map[string]bool{}
	for _, f := range l.judge(there) {
		kinds[f.What] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// TestJudgeFleet forges reports and plans. The judge must find each forgery.
func TestJudgeFleet(t *testing.T) {
	for _, test := range []struct {
		name  string
		forge func(t *tale)
		want  []string
	}{
		{"nothing", func(*tale) {}, nil},
		{"a call of a frozen owner after the end", func(t *tale) {
			t.add(notice{What: called, Plan: t.plan.ID, Object: t.action.ID, Node: t.a, Epoch: 1, Call: 3})
		}, nil},
		{"a failed attempt before the fence", func(t *tale) {
			t.notices["take"] = t.picks(2, t.b, workflow.Running, t.r1)
			t.notices["stored"] = notice{What: stored, Plan: t.plan.ID, Object: t.action.ID, Epoch: 2, Status: workflow.Completed, Results: []result{t.r1, t.r2}}
			t.ends(workflow.Completed, t.r1, t.r2)
		}, nil},
		{"an outcome before the fence", func(t *tale) {
			t.notices["take"] = t.picks(2, t.b, workflow.Completed, t.r1)
			t.drop("call 2", "end 2", "stored")
			t.ends(workflow.Completed, t.r1)
		}, nil},
		{"an outcome that was not reported", func(t *tale) { t.drop("stored", "ended") }, nil},
		{"a Create without an answer", func(t *tale) { t.drop("created") }, nil},

		{"an open plan", func(t *tale) { t.plan.State.Status = workflow.Running; t.drop("ended") }, []string{orphan}},
		{"a result of the former owner after the fence", func(t *tale) {
			t.drop("stored", "call 2", "end 2")
			t.ends(workflow.Completed, t.r1)
		}, []string{stale}},
		{"the former owner's outcome over the owner's", func(t *tale) { t.ends(workflow.Completed, t.r1) }, []string{lost, stale}},
		{"a stale result between two fences", func(t *tale) {
			t.add(t.picks(3, t.a, workflow.Completed, t.r1))
			t.plan.Epoch = 3
			t.drop("stored", "call 2", "end 2")
			t.ends(workflow.Completed, t.r1)
		}, []string{stale}},
		{"a result of the epoch before it began", func(t *tale) { t.notices["take"] = t.picks(2, t.b, workflow.Running, t.r2) }, []string{stale}},
		{"a result of an epoch after the last", func(t *tale) {
			t.plan.Epoch = 1
			t.notices["ended"] = notice{What: ended, Plan: t.plan.ID, Epoch: 1, Status: workflow.Completed}
		}, []string{lost, stale}},
		{"a Completed action that runs in a later epoch", func(t *tale) {
			t.notices["take"] = t.picks(2, t.b, workflow.Completed, t.r1)
			t.ends(workflow.Completed, t.r1)
			t.drop("stored")
		}, []string{rerun}},
		{"a Completed action that runs again in the same epoch", func(t *tale) {
			t.add(notice{What: called, Plan: t.plan.ID, Object: t.action.ID, Node: t.b, Epoch: 2, Call: 3})
		}, []string{rerun}},
		{"an acknowledged outcome of epoch 1 that runs in epoch 2", func(t *tale) {
			t.add(notice{What: stored, Plan: t.plan.ID, Object: t.action.ID, Epoch: 1, Status: workflow.Completed, Results: []result{t.r1}})
		}, []string{lost, rerun}},
		{"an outcome that is undone", func(t *tale) { t.ends(workflow.Running); t.plan.State.Status = workflow.Completed }, []string{lost}},
		{"an outcome that another replaced", func(t *tale) { t.ends(workflow.Failed, t.r2) }, []string{lost}},
		{"an outcome that was lost in a takeover", func(t *tale) {
			t.notices["take"] = t.picks(2, t.b, workflow.Completed, t.r1)
			t.ends(workflow.Completed, t.r2)
			t.drop("stored", "call 2", "end 2")
		}, []string{forged, lost}},
		{"a result that nobody returned", func(t *tale) { t.drop("end 2") }, []string{forged}},
		{"a result of another node", func(t *tale) { t.ends(workflow.Completed, result{2, t.a, 2}); t.drop("stored") }, []string{forged}},
		{"two owners of an epoch", func(t *tale) { t.add(t.picks(2, t.a, workflow.Running)) }, []string{forged}},
		{"a plan that ended otherwise", func(t *tale) { t.plan.State.Status = workflow.Failed }, []string{lost}},
		{"a plan that an owner did not find", func(t *tale) { t.add(notice{What: left, Plan: t.plan.ID, Told: "not found"}) }, []string{half}},
		{"a plan that nobody created", func(t *tale) { t.drop("create", "created") }, []string{leftOver}},
	} {
		tale := newTale()
		test.forge(tale)
		if got := tale.judged(map[uuid.UUID]*workflow.Plan{tale.plan.ID: tale.plan}); !slices.Equal(got, test.want) {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
	}
	for name, test := range map[string]struct {
		there map[uuid.UUID]*workflow.Plan
		drop  []string
		want  []string
	}{
		"a lost plan":                    {nil, []string{"claim", "call 1", "end 1", "take", "call 2", "end 2", "stored", "ended"}, []string{lost}},
		"a lost plan that was ended":     {nil, []string{"created"}, []string{lost}},
		"a plan that was taken back":     {nil, []string{"created", "stored", "ended"}, nil},
		"a Create that had no effect":    {nil, []string{"created", "claim", "call 1", "end 1", "take", "call 2", "end 2", "stored", "ended"}, nil},
		"a plan that nobody knows about": {map[uuid.UUID]*workflow.Plan{workflow.NewV7(): nil}, newTale().order, []string{leftOver}},
	} {
		tale := newTale()
		tale.drop(test.drop...)
		if got := tale.judged(test.there); !slices.Equal(got, test.want) {
			t.Errorf("%s: found %q, want %q", name, got, test.want)
		}
	}
}

// TestNoticesSurviveJSON checks that a picture arrives as it was sent.
func TestNoticesSurviveJSON(t *testing.T) {
	tale := newTale()
	sent := notice{What: picked, Plan: tale.plan.ID, Picture: new(pictureOf(tale.plan))}
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var got notice
	if err := json.Unmarshal(text, &got); err != nil || got.Plan != sent.Plan {
		t.Fatalf("%s: %v", text, err)
	}
	a := got.Picture.Actions[tale.action.ID]
	if !a.is(workflow.Completed, []result{tale.r2}) || !a.has(2) || a.has(1) {
		t.Errorf("%s: %+v", text, a)
	}
}

func TestQuantile(t *testing.T) {
	var times []time.Duration
	if got := quantile(times, 99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 200 {
		times = append(times, time.Duration(i+1)*time.Second)
	}
	for n, want := range map[int]float64{50: 100, 99: 198, 100: 200} {
		if got := quantile(times, n); got != want {
			t.Errorf("quantile %d: %v, want %v", n, got, want)
		}
	}
}

func TestPlansOfASeed(t *testing.T) {
	shapes := map[string]bool{}
	for seed := range uint64(100) {
		a, b := planOf(seed, time.Second), planOf(seed, time.Second)
		if a.ID == b.ID {
			t.Errorf("seed %d: two plans have one ID", seed)
		}
		var actions []task
		for _, p := range []*workflow.Plan{a, b} {
			for o := range workflow.Walk(p) {
				if a, ok := o.(*workflow.Action); ok {
					actions = append(actions, a.Req.(task))
				}
			}
		}
		if n := len(actions) / 2; !slices.Equal(actions[:n], actions[n:]) {
			t.Errorf("seed %d gives two plans: %v", seed, actions)
		}
		shapes[a.Descr] = true
	}
	if len(shapes) < 10 {
		t.Errorf("%d shapes", len(shapes))
	}
}
