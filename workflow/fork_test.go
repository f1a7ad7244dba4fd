package workflow_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// set gives objects a status.
func set(status workflow.Status, objects ...workflow.Object) {
	for _, o := range objects {
		o.Header().State.Status = status
	}
}

// reruns returns the paths of the objects that a fork does not carry over. It leaves out the plan itself, and
// counts those that belong to each run of it.
func reruns(p *workflow.Plan) (paths []string, ofRun int) {
	carried := maps.Collect(workflow.CarriedOver(p))
	for _, again := range workflow.Parts(p) {
		if carried[again] {
			continue
		}
		err := workflow.Validate(p, func(o workflow.Object, bad workflow.Report) {
			if o == again {
				bad("", "")
			}
		})
		found, _ := errors.AsType[*workflow.FieldError](err)
		if path := found.Field; strings.HasPrefix(path, "ContChecks") || strings.HasPrefix(path, "Deferred") {
			ofRun++
		} else {
			paths = append(paths, path)
		}
	}
	return paths, ofRun
}

// TestCarriedOver checks what a fork carries over of a plan in which all sub-objects are Completed, but for
// those of the case.
func TestCarriedOver(t *testing.T) {
	group := func(path string) []string { return []string{path, path + ".Actions[0]"} }
	sameRun := func(path string) []string {
		return slices.Concat([]string{path}, group(path+".ContChecks"), group(path+".PostChecks"), group(path+".DeferredChecks"))
	}
	post := group("PostChecks")
	for _, test := range []struct {
		name string
		edit func(p *workflow.Plan)
		want []string
	}{
		{"deferred work failed", func(p *workflow.Plan) { set(workflow.Failed, p.DeferredActions, p.DeferredChecks) }, nil},
		{"an action failed", func(p *workflow.Plan) {
			b := p.Blocks[1]
			set(workflow.Failed, b, b.Sequences[0], b.Sequences[0].Actions[1])
		}, slices.Concat(post, sameRun("Blocks[1]"), []string{"Blocks[1].Sequences[0]", "Blocks[1].Sequences[0].Actions[1]"})},
		{"a tolerated failure is carried over with its block", func(p *workflow.Plan) {
			set(workflow.Failed, p.Blocks[0].Sequences[0], p.Blocks[0].Sequences[0].Actions[0], p.Blocks[0].BypassChecks)
			set(workflow.NotStarted, p.Blocks[0].Sequences[0].Actions[1])
		}, nil},
		{"post checks of a block failed, after a tolerated failure", func(p *workflow.Plan) {
			b := p.Blocks[0]
			set(workflow.Failed, b, b.PostChecks, b.Sequences[1], b.Sequences[1].Actions[0])
		}, slices.Concat(post, sameRun("Blocks[0]"), []string{"Blocks[0].Sequences[1]", "Blocks[0].Sequences[1].Actions[0]"})},
		{"post checks failed after all work", func(p *workflow.Plan) {
			p.PostChecks.Actions = append(p.PostChecks.Actions, &workflow.Action{Plugin: "p"})
			set(workflow.Failed, p.PostChecks, p.PostChecks.Actions[0])
			set(workflow.Completed, p.PostChecks.Actions[1])
		}, post},
		{"pre checks failed", func(p *workflow.Plan) {
			p.PreChecks.Actions = append(p.PreChecks.Actions, &workflow.Action{Plugin: "p"})
			set(workflow.Failed, p.PreChecks, p.PreChecks.Actions[1])
			p.Blocks = nil
		}, []string{"PreChecks", "PreChecks.Actions[1]"}},
		{"bypassed, and deferred checks failed", func(p *workflow.Plan) {
			set(workflow.Failed, p.DeferredChecks)
			set(workflow.NotStarted, p.PreChecks, p.PreChecks.Actions[0])
			p.Blocks, p.PostChecks = nil, nil
		}, []string{"PreChecks", "PreChecks.Actions[0]"}},
		{"stopped in a block", func(p *workflow.Plan) {
			b := p.Blocks[1]
			set(workflow.Stopped, p, b, b.Sequences[1], b.Sequences[1].Actions[0])
			set(workflow.NotStarted, b.Sequences[1].Actions[1], b.PostChecks, b.PostChecks.Actions[0])
		}, slices.Concat(post, sameRun("Blocks[1]"), []string{"Blocks[1].Sequences[1]", "Blocks[1].Sequences[1].Actions[0]", "Blocks[1].Sequences[1].Actions[1]"})},
		{"a Completed sequence of a block that never began, in a fork", func(p *workflow.Plan) {
			b := p.Blocks[1]
			set(workflow.Stopped, p)
			set(workflow.NotStarted, b, b.Sequences[0], b.Sequences[0].Actions[0], b.Sequences[0].Actions[1])
		}, slices.Concat(post, sameRun("Blocks[1]"), []string{"Blocks[1].Sequences[0]", "Blocks[1].Sequences[0].Actions[0]", "Blocks[1].Sequences[0].Actions[1]"})},
	} {
		p := plantest.Full()
		plantest.Finish(p)
		p.State.Status = workflow.Failed
		test.edit(p)
		if got, ofRun := reruns(p); !slices.Equal(got, test.want) || ofRun != 2+2+7 { // the checks, and the deferred actions
			t.Errorf("%s: runs again, beside %d that always do:\n%s\nwant\n%s", test.name, ofRun, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// failedAtRandom returns a random plan with random statuses, which is final but not Completed.
func failedAtRandom(seed uint64) *workflow.Plan {
	r := rand.New(rand.NewPCG(seed, 2))
	p := plantest.Random(seed)
	plantest.Finish(p)
	for o, parent := range workflow.Walk(p) {
		h := o.Header()
		*h.ID, *h.PlanID = workflow.NewV7(), p.ID
		h.State.ETag = "version"
		if parent != nil && r.IntN(3) == 0 {
			h.State.Status = workflow.Status(r.IntN(5))
		}
	}
	p.State.Status = workflow.Failed + workflow.Status(r.IntN(2))
	p.Owner, p.Epoch, p.Reason, p.ForkedFrom = workflow.NewV7(), 7, workflow.BlockFailed, workflow.NewV7()
	p.Submitted = workflow.Actor{By: "who submitted it", From: "there"}
	p.Forked, p.Stopped = workflow.Attribution{By: "who forked the other"}, workflow.Attribution{By: "who stopped it"}
	p.Ending.Trouble = "the hook was given up"
	p.SubmitTime, p.RuntimeUpdate = time.Now(), time.Now()
	p.NotBefore, p.Paused = p.SubmitTime, p.Stopped
	return p
}

// TestFork forks random plans, from where they ended and from their start: the original is unchanged, what is carried over
// is equal, and the rest is as an author writes it.
func TestFork(t *testing.T) {
	for seed := range uint64(60) {
		p := failedAtRandom(seed)
		before := plantest.Clone(p)
		f, err := workflow.Fork(p, workflow.ForkOptions{AfterCompensation: true})
		must(t, err)
		isFork(t, seed, p, f, maps.Collect(workflow.CarriedOver(p)))
		p.State.Status = workflow.Completed + workflow.Status(seed%3)
		if f, err = workflow.Fork(p, workflow.ForkOptions{FromStart: true}); err != nil {
			t.Fatal(err)
		}
		isFork(t, seed, p, f, nil)
		p.State.Status = before.State.Status
		if diff := plantest.Diff(before, p); diff != "" {
			t.Errorf("seed %d: a change of the fork changed the plan: %s", seed, diff)
		}
	}
}

// TestForkDeadline forks a plan that ended before its deadline, at it, and later.
func TestForkDeadline(t *testing.T) {
	for after, kept := range map[time.Duration]bool{-1: true, 0: false, 1: false} {
		p := failedAtRandom(1)
		p.Deadline = time.Now()
		p.State.End = p.Deadline.Add(after)
		f, err := workflow.Fork(p, workflow.ForkOptions{AfterCompensation: true})
		must(t, err)
		if f.Deadline.Equal(p.Deadline) != kept || f.Deadline.IsZero() == kept {
			t.Errorf("a fork of a plan that ended %v after its deadline has the deadline %v", after, f.Deadline)
		}
	}
}

// isFork checks that f is a fork of p, with the objects that are carried over. It then changes all of f that p must not
// share.
func isFork(t *testing.T, seed uint64, p, f *workflow.Plan, carried map[workflow.Object]bool) {
	t.Helper()
	want := plantest.Clone(p) // with the fork's own fields
	want.Submitted, want.Forked, want.Stopped, want.Paused, want.NotBefore, want.Ending = workflow.Actor{}, workflow.Attribution{}, workflow.Attribution{}, workflow.Attribution{}, time.Time{}, workflow.Ending{}
	want.ForkedFrom, want.Owner, want.Epoch, want.Reason, want.SubmitTime, want.RuntimeUpdate = p.ID, uuid.Nil, 0, 0, time.Time{}, time.Time{}
	was, objects, ids := objectsOf(p), objectsOf(f), map[uuid.UUID]bool{}
	for i, o := range objectsOf(want) {
		h, had := objects[i].Header(), o.Header()
		if !workflow.IsV7(*h.ID) || ids[*h.ID] || *h.ID == *had.ID || *h.PlanID != f.ID || h.State.ETag != "" {
			t.Errorf("seed %d: %s has %s of %s, %q", seed, o.Kind(), *h.ID, *h.PlanID, h.State.ETag)
		}
		ids[*h.ID] = true
		*had.ID, *had.PlanID = *h.ID, *h.PlanID
		if a, ok := o.(*workflow.Action); ok && !carried[was[i]] {
			a.Attempts = nil
		}
		switch {
		case !carried[was[i]]:
			had.State.Reset()
		case had.State.Status == workflow.Running:
			had.State.Status = workflow.Stopped
		}
	}
	if diff := plantest.Diff(want, f); diff != "" {
		t.Errorf("seed %d: %s", seed, diff)
	}
	scribble(f)
}

func objectsOf(p *workflow.Plan) []workflow.Object {
	return append([]workflow.Object{p}, workflow.Parts(p)...)
}

// scribble changes all that a plan does not share with the plan that it was forked from.
func scribble(p *workflow.Plan) {
	for i := range p.Meta {
		p.Meta[i]++
	}
	for o := range workflow.Walk(p) {
		*o.Header().State = workflow.State{Status: workflow.Running}
		switch o := o.(type) {
		case *workflow.Action:
			o.Name, o.Req = "scribbled", nil
			for i := range o.Attempts {
				o.Attempts[i] = workflow.Attempt{Err: &plugins.Error{Message: "scribbled"}}
			}
		}
	}
	for o := range workflow.Walk(p) { // last, because the walk ends at what is cleared
		switch o := o.(type) {
		case *workflow.Sequence:
			defer clear(o.Actions)
		case *workflow.Block:
			defer clear(o.Sequences)
		case *workflow.Checks:
			defer clear(o.Actions)
		case *workflow.DeferredActions:
			defer clear(o.Batches)
		case *workflow.DeferBatch:
			defer clear(o.Actions)
		}
	}
	defer clear(p.Blocks)
}

func TestForkRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		opts    workflow.ForkOptions
		refused []workflow.Status
	}{
		"from the failure":   {workflow.ForkOptions{}, []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed}},
		"after compensation": {workflow.ForkOptions{AfterCompensation: true}, []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed}},
		"from the start":     {workflow.ForkOptions{FromStart: true}, []workflow.Status{workflow.NotStarted, workflow.Running}},
	} {
		for _, status := range test.refused {
			f, err := workflow.Fork(&workflow.Plan{State: workflow.State{Status: status}}, test.opts)
			wrong, ok := errors.AsType[*workflow.FieldError](err)
			if f != nil || !ok || wrong.Field != "State.Status" || !strings.HasPrefix(wrong.Problem, "is "+status.String()+": only") {
				t.Errorf("%s, %s: %v, %v", name, status, f, err)
			}
		}
		if f, err := workflow.Fork(nil, test.opts); f != nil || err == nil {
			t.Errorf("%s of nil: %v, %v", name, f, err)
		}
	}
	_, err := workflow.Fork(failedAtRandom(1), workflow.ForkOptions{Number: -1})
	if wrong, ok := errors.AsType[*workflow.FieldError](err); !ok || wrong.Field != "ForkOptions.Number" {
		t.Errorf("a negative number: %v", err)
	}
}

// TestForkRepairs skips one random action of a random plan, and changes the request of another: the fork is otherwise the
// one without repairs, exactly what is left is NotStarted, and vaults accept it.
func TestForkRepairs(t *testing.T) {
	by := workflow.Attribution{By: "ana", Why: "paid by hand"}
	done := 0
	for seed := range uint64(600) {
		p := failedAtRandom(seed)
		driver.Complete(p)
		before := plantest.Clone(p)
		opts := workflow.ForkOptions{AfterCompensation: true, FromStart: seed%4 == 0, By: by}
		plain, err := workflow.Fork(p, opts)
		must(t, err)
		was, objects := objectsOf(p), objectsOf(plain)
		if !slices.ContainsFunc(objects, func(o workflow.Object) bool { return o.Kind() == workflow.KindAction }) {
			continue
		}
		skip, change := pick(seed, objects), pick(seed+1000, objects)
		opts.Skip = map[uuid.UUID]any{*was[skip].Header().ID: "stated"}
		opts.Requests = map[uuid.UUID]any{*was[change].Header().ID: "changed"}
		if skip == change {
			opts.Requests = nil
		}
		f, err := workflow.Fork(p, opts)
		if err != nil {
			if _, ok := errors.AsType[*workflow.FieldError](err); !ok {
				t.Errorf("seed %d: %v", seed, err)
			}
			continue
		}
		done++
		sameIDs(plain, f)
		accepted := driver.CheckNew(plain, nil) == nil // a random plan may have statuses that contradict each other
		end := workflow.Time(p.ID)
		if p.State.End.After(end) {
			end = p.State.End
		}
		a := objects[skip].(*workflow.Action)
		a.State = workflow.State{Status: workflow.Completed, Start: end, End: end}
		a.Attempts = []workflow.Attempt{{Start: end, End: end, Resp: "stated", Skipped: &by}}
		got := objectsOf(f)[skip].(*workflow.Action)
		if since := time.Since(got.Attempts[0].Skipped.At); since < 0 || since > time.Minute {
			t.Errorf("seed %d: skipped %v ago", seed, since)
		}
		a.Attempts[0].Skipped.At = got.Attempts[0].Skipped.At
		if opts.Requests != nil {
			objects[change].(*workflow.Action).Req = "changed"
		}
		if diff := plantest.Diff(plain, f); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
		if err := driver.CheckNew(f, nil); err != nil && accepted {
			t.Errorf("seed %d: %v", seed, err)
		}
		if diff := plantest.Diff(before, p); diff != "" {
			t.Errorf("seed %d: the plan changed: %s", seed, diff)
		}
	}
	if done < 60 {
		t.Errorf("only %d forks were made", done)
	}
}

// pick returns the index of a random action that is NotStarted, or of any.
func pick(seed uint64, objects []workflow.Object) int {
	r := rand.New(rand.NewPCG(seed, 1))
	for {
		i := r.IntN(len(objects))
		if a, ok := objects[i].(*workflow.Action); ok && (a.State.Status == workflow.NotStarted || r.IntN(50) == 0) {
			return i
		}
	}
}

// sameIDs gives a fork the IDs of another one of the same plan.
func sameIDs(f, other *workflow.Plan) {
	from := objectsOf(other)
	for i, o := range objectsOf(f) {
		*o.Header().ID, *o.Header().PlanID = *from[i].Header().ID, other.ID
	}
}

// TestForkRefusesRepairs names actions that can't be skipped, or can't have another request.
func TestForkRefusesRepairs(t *testing.T) {
	p := plantest.Full()
	driver.Complete(p)
	plantest.Finish(p)
	b := p.Blocks[1]
	for _, o := range []workflow.Object{p, b, b.BypassChecks, b.BypassChecks.Actions[0], b.Sequences[0], b.Sequences[0].Actions[1]} {
		o.Header().State.Status = workflow.Failed
	}
	failed, done := b.Sequences[0].Actions[1].ID, b.Sequences[0].Actions[0].ID
	one := func(id uuid.UUID) map[uuid.UUID]any { return map[uuid.UUID]any{id: nil} }
	for name, test := range map[string]struct {
		opts           workflow.ForkOptions
		field, problem string // none if it is allowed
	}{
		"failed":                     {opts: workflow.ForkOptions{Skip: one(failed)}},
		"another request":            {opts: workflow.ForkOptions{Requests: one(failed)}},
		"request of a check":         {opts: workflow.ForkOptions{Requests: one(p.ContChecks.Actions[0].ID)}},
		"from the start":             {opts: workflow.ForkOptions{FromStart: true, Skip: one(done)}},
		"done":                       {workflow.ForkOptions{Skip: one(done)}, "Skip", "does not run again"},
		"done, request":              {workflow.ForkOptions{Requests: one(done)}, "Requests", "does not run again"},
		"both":                       {workflow.ForkOptions{Skip: one(failed), Requests: one(failed)}, "Skip", "another request"},
		"continuous":                 {workflow.ForkOptions{Skip: one(p.ContChecks.Actions[0].ID)}, "Skip", "each run"},
		"post, and work is left":     {workflow.ForkOptions{Skip: one(p.PostChecks.Actions[0].ID)}, "Skip", "each run"},
		"deferred check":             {workflow.ForkOptions{Skip: one(p.DeferredChecks.Actions[0].ID)}, "Skip", "each run"},
		"deferred action":            {workflow.ForkOptions{Skip: one(p.DeferredActions.Batches[0].Actions[0].ID)}, "Skip", "each run"},
		"bypass":                     {workflow.ForkOptions{Skip: one(b.BypassChecks.Actions[0].ID)}, "Skip", "bypass"},
		"no action":                  {workflow.ForkOptions{Skip: one(b.ID)}, "Skip", "no action of plan"},
		"of another plan, a request": {workflow.ForkOptions{Requests: one(workflow.NewV7())}, "Requests", "no action of plan"},
	} {
		test.opts.AfterCompensation = !test.opts.FromStart
		f, err := workflow.Fork(p, test.opts)
		wrong, _ := errors.AsType[*workflow.FieldError](err)
		switch {
		case test.field == "" && err == nil:
			if err := driver.CheckNew(f, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case f != nil || wrong == nil || wrong.Field != "ForkOptions."+test.field || !strings.Contains(wrong.Problem, test.problem):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestForkAfterCompensation forks a plan that has given the money back.
func TestForkAfterCompensation(t *testing.T) {
	for _, when := range []workflow.When{workflow.OnSuccess, workflow.OnFailure, workflow.Always} {
		refund := &workflow.DeferBatch{When: when, State: workflow.State{Status: workflow.Failed}} // perhaps it took effect
		p := &workflow.Plan{State: workflow.State{Status: workflow.Failed}, DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{When: workflow.OnFailure}, refund}}}
		_, err := workflow.Fork(p, workflow.ForkOptions{})
		refused, _ := errors.AsType[*workflow.FieldError](err)
		if (when == workflow.OnFailure) != (refused != nil && refused.Field == "DeferredActions.Batches[1]") {
			t.Errorf("%v: %v", when, err)
		}
		if f, err := workflow.Fork(p, workflow.ForkOptions{AfterCompensation: true}); err != nil || f == nil {
			t.Errorf("%v: %v", when, err)
		}
	}
}

// TestForkKeepsUnknownMembers checks that a fork keeps what newer code wrote into objects, and into the states
// and attempts that are carried over.
func TestForkKeepsUnknownMembers(t *testing.T) {
	p := new(workflow.Plan)
	const text = `{"id":"018f0000-0000-7000-8000-000000000001","blocks":[{"sequences":[{"actions":[` +
		`{"plugin":"p","attempts":[{"new1":1}],"state":{"status":"Completed","new2":1},"new3":1},` +
		`{"plugin":"p","attempts":[{"old1":1}],"state":{"status":"Failed","old2":1},"new4":1}],"new5":1}],"new6":1}],` +
		`"state":{"status":"Failed"},"new7":1}`
	must(t, workflow.Unmarshal([]byte(text), p))
	f, err := workflow.Fork(p, workflow.ForkOptions{AfterCompensation: true})
	must(t, err)
	got, err := workflow.Marshal(f)
	must(t, err)
	for _, name := range []string{"new1", "new2", "new3", "new4", "new5", "new6", "new7"} {
		if !strings.Contains(string(got), name) {
			t.Errorf("the fork lacks %s: %s", name, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Errorf("the fork has members of what runs again: %s", got)
	}
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestForkID checks that forks of a plan from the same place have the same ID, which lies in the day in which the plan
// ended, and other forks others.
func TestForkID(t *testing.T) {
	p := plantest.Full()
	plantest.Finish(p)
	p.ID = workflow.NewV7At(time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC))
	p.State.Status, p.State.End = workflow.Failed, time.Date(2026, 11, 22, 23, 59, 59, 0, time.UTC)
	seen := map[uuid.UUID]string{}
	for name, opts := range map[string]workflow.ForkOptions{"failure": {AfterCompensation: true}, "start": {FromStart: true}} {
		for number := range 3 {
			opts.Number = number + 1
			ids := map[uuid.UUID]bool{}
			for range 2 {
				f, err := workflow.Fork(p, opts)
				must(t, err)
				ids[f.ID] = true
				if err := workflow.Validate(f); err != nil {
					t.Error(err)
				}
			}
			for id := range ids {
				name := fmt.Sprint(name, number)
				if at := p.State.End.Add(time.Duration(number+1) * time.Millisecond); len(ids) > 1 || seen[id] != "" || !workflow.Time(id).Equal(at) || !workflow.IsV7(id) {
					t.Errorf("%s: %d IDs, %s of %v as %q, want %v", name, len(ids), id, workflow.Time(id), seen[id], at)
				}
				seen[id] = name
			}
		}
	}
	action := workflow.NewV7()
	for _, golden := range []struct { // as every program makes them
		opts workflow.ForkOptions
		want string
	}{
		{workflow.ForkOptions{}, "018f0000-0001-7652-bd8e-bedaec423e89"},
		{workflow.ForkOptions{Number: 1}, "018f0000-0001-7652-bd8e-bedaec423e89"},
		{workflow.ForkOptions{Number: 2}, "018f0000-0002-7e49-84bd-83424785b3b5"},
		{workflow.ForkOptions{FromStart: true, Number: 3}, "018f0000-0003-7d1f-8200-533cf4beab79"},
		{workflow.ForkOptions{Skip: map[uuid.UUID]any{action: 1}}, "018f0000-0001-7652-bd8e-bedaec423e89"},
		{workflow.ForkOptions{Requests: map[uuid.UUID]any{action: 1}, Number: 2}, "018f0000-0002-7e49-84bd-83424785b3b5"},
	} {
		old := &workflow.Plan{
			ID: uuid.MustParse("018f0000-0000-7000-8000-000000000001"), State: workflow.State{Status: workflow.Failed},
			PreChecks: &workflow.Checks{Actions: []*workflow.Action{{ID: action}}},
		}
		if f, err := workflow.Fork(old, golden.opts); err != nil || f.ID.String() != golden.want {
			t.Errorf("%+v: %v, %v, want %s", golden.opts, f, err, golden.want)
		}
	}
	plain, err := workflow.Fork(&workflow.Plan{ID: p.ID, State: workflow.State{Status: workflow.Stopped}}, workflow.ForkOptions{})
	if err != nil || !workflow.Time(plain.ID).After(workflow.Time(p.ID)) {
		t.Errorf("the fork of a plan without an end is of %v, %v", workflow.Time(plain.ID), err)
	}
}

// TestCopySharesNoMemory changes everything in a copy that is not a request, a response or an error. The original stays.
func TestCopySharesNoMemory(t *testing.T) {
	plan := plantest.Full()
	want := plantest.Clone(plan)
	c := workflow.Copy(plan)
	plantest.EachField(c, func(_ string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Interface, reflect.Map: // what they lead to changes
		default:
			v.SetZero()
		}
	})
	clear(c.Meta)
	clear(c.Labels)
	if d := plantest.Diff(want, plan); d != "" {
		t.Errorf("a change of the copy changed the plan: %s", d)
	}
}
