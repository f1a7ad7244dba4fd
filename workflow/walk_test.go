package workflow_test

import (
	"reflect"
	"testing"

	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// visited is one step of a walk.
type visited struct{ object, parent workflow.Object }

func walk(p *workflow.Plan) []visited {
	var steps []visited
	for o, parent := range workflow.Walk(p) {
		steps = append(steps, visited{o, parent})
	}
	return steps
}

func sameSteps(t *testing.T, got, want []visited) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("the walk ends after %d objects, want %d", i, len(want))
		case i >= len(want):
			t.Fatalf("after %d objects the walk continues with a %v", i, got[i].object.Kind())
		case got[i] != want[i]:
			t.Fatalf("step %d of the walk is a %v, want another object (a %v) or another parent", i, got[i].object.Kind(), want[i].object.Kind())
		}
	}
}

func TestWalkOrder(t *testing.T) {
	checks := func() *workflow.Checks { return &workflow.Checks{Actions: []*workflow.Action{{}, {}}} }
	sequence := func() *workflow.Sequence { return &workflow.Sequence{Actions: []*workflow.Action{{}, {}}} }
	p := &workflow.Plan{
		BypassChecks: checks(), PreChecks: checks(), ContChecks: checks(), PostChecks: checks(), DeferredChecks: checks(),
		Blocks: []*workflow.Block{
			{
				BypassChecks: checks(), PreChecks: checks(), ContChecks: checks(), PostChecks: checks(), DeferredChecks: checks(),
				Sequences: []*workflow.Sequence{sequence(), sequence()},
			},
			{Sequences: []*workflow.Sequence{sequence()}},
		},
		DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
			{Actions: []*workflow.Action{{}, {}}},
			{Actions: []*workflow.Action{{}}},
		}},
	}

	want := []visited{{p, nil}}
	add := func(parent workflow.Object, objects ...workflow.Object) {
		for _, o := range objects {
			want = append(want, visited{o, parent})
		}
	}
	addChecks := func(parent workflow.Object, all ...*workflow.Checks) {
		for _, c := range all {
			add(parent, c)
			add(c, c.Actions[0], c.Actions[1])
		}
	}
	addChecks(p, p.BypassChecks, p.PreChecks, p.ContChecks, p.PostChecks, p.DeferredChecks)
	b, last := p.Blocks[0], p.Blocks[1]
	add(p, b)
	addChecks(b, b.BypassChecks, b.PreChecks, b.ContChecks, b.PostChecks, b.DeferredChecks)
	add(b, b.Sequences[0])
	add(b.Sequences[0], b.Sequences[0].Actions[0], b.Sequences[0].Actions[1])
	add(b, b.Sequences[1])
	add(b.Sequences[1], b.Sequences[1].Actions[0], b.Sequences[1].Actions[1])
	add(p, last)
	add(last, last.Sequences[0])
	add(last.Sequences[0], last.Sequences[0].Actions[0], last.Sequences[0].Actions[1])
	d := p.DeferredActions
	add(p, d)
	add(d, d.Batches[0])
	add(d.Batches[0], d.Batches[0].Actions[0], d.Batches[0].Actions[1])
	add(d, d.Batches[1])
	add(d.Batches[1], d.Batches[1].Actions[0])

	sameSteps(t, walk(p), want)
	sameSteps(t, walk(p), want) // a sequence can be ranged over again
}

// TestWalkFindsAll compares the walk with a search through the structs by reflection.
func TestWalkFindsAll(t *testing.T) {
	plans := []*workflow.Plan{{}, plantest.Small(), plantest.Full(), plantest.Sized(3, 2, 4)}
	for seed := range uint64(200) {
		plans = append(plans, plantest.Random(seed))
	}
	for i, p := range plans {
		want := map[workflow.Object]workflow.Object{}
		search(reflect.ValueOf(p), nil, want)
		met := map[workflow.Object]bool{}
		for o, parent := range workflow.Walk(p) {
			switch wantParent, ok := want[o]; {
			case !ok:
				t.Fatalf("plan %d: a %v is not in the plan", i, o.Kind())
			case met[o]:
				t.Fatalf("plan %d: the walk visits a %v twice", i, o.Kind())
			case parent != wantParent:
				t.Fatalf("plan %d: a %v has the wrong parent %v", i, o.Kind(), parent)
			case parent != nil && !met[parent]:
				t.Fatalf("plan %d: the walk visits a %v before its parent", i, o.Kind())
			}
			met[o] = true
		}
		if len(met) != len(want) {
			t.Errorf("plan %d: the walk visits %d objects of %d", i, len(met), len(want))
		}
	}
}

// search finds all objects below v, with their parents.
func search(v reflect.Value, parent workflow.Object, found map[workflow.Object]workflow.Object) {
	switch v.Kind() {
	case reflect.Pointer:
		o, ok := v.Interface().(workflow.Object)
		if v.IsNil() || !ok {
			return
		}
		found[o] = parent
		for i := range v.Elem().NumField() {
			search(v.Elem().Field(i), o, found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			search(v.Index(i), parent, found)
		}
	}
}

func TestWalkNil(t *testing.T) {
	if steps := walk(nil); steps != nil {
		t.Errorf("a walk of nil visits %d objects", len(steps))
	}

	checks := &workflow.Checks{Actions: []*workflow.Action{nil}}
	sequence := &workflow.Sequence{Actions: []*workflow.Action{nil, {}, nil}}
	block := &workflow.Block{PostChecks: checks, Sequences: []*workflow.Sequence{nil, sequence}}
	batch := &workflow.DeferBatch{Actions: []*workflow.Action{nil}}
	deferred := &workflow.DeferredActions{Batches: []*workflow.DeferBatch{nil, batch}}
	p := &workflow.Plan{Blocks: []*workflow.Block{nil, block, nil}, DeferredActions: deferred}
	sameSteps(t, walk(p), []visited{
		{p, nil},
		{block, p},
		{checks, block},
		{sequence, block},
		{sequence.Actions[1], sequence},
		{deferred, p},
		{batch, deferred},
	})
}

func TestWalkBreak(t *testing.T) {
	p := plantest.Full()
	all := walk(p)
	for n := range all {
		var got []visited
		for o, parent := range workflow.Walk(p) {
			got = append(got, visited{o, parent})
			if len(got) == n+1 {
				break // a walk that continued would panic here
			}
		}
		sameSteps(t, got, all[:n+1])
	}
}

func TestHeader(t *testing.T) {
	p := stored()
	for o := range workflow.Walk(p) {
		v, h := reflect.ValueOf(o).Elem(), o.Header()
		if h.ID != v.FieldByName("ID").Addr().Interface() {
			t.Errorf("%v: the header has the wrong ID", o.Kind())
		}
		if h.State != v.FieldByName("State").Addr().Interface() {
			t.Errorf("%v: the header has the wrong state", o.Kind())
		}
		planID := "PlanID"
		if o == p {
			planID = "ID"
		}
		if h.PlanID != v.FieldByName(planID).Addr().Interface() {
			t.Errorf("%v: the header has the wrong PlanID", o.Kind())
		}
	}
}

func TestKind(t *testing.T) {
	for _, test := range []struct {
		object workflow.Object
		kind   workflow.Kind
		name   string
	}{
		{&workflow.Plan{}, workflow.KindPlan, "plan"},
		{&workflow.Checks{}, workflow.KindChecks, "checks"},
		{&workflow.Block{}, workflow.KindBlock, "block"},
		{&workflow.Sequence{}, workflow.KindSequence, "sequence"},
		{&workflow.Action{}, workflow.KindAction, "action"},
		{&workflow.DeferredActions{}, workflow.KindDeferredActions, "deferredActions"},
		{&workflow.DeferBatch{}, workflow.KindDeferBatch, "deferBatch"},
	} {
		if got := test.object.Kind(); got != test.kind || got.String() != test.name {
			t.Errorf("%T: the kind is %v (%d), want %s (%d)", test.object, got, got, test.name, test.kind)
		}
	}
}

func TestChecksOf(t *testing.T) {
	names := []string{"BypassChecks", "PreChecks", "ContChecks", "PostChecks", "DeferredChecks"}
	for o := range workflow.Walk(plantest.Full()) {
		places := workflow.ChecksOf(o)
		if k := o.Kind(); k != workflow.KindPlan && k != workflow.KindBlock {
			if places != nil {
				t.Errorf("a %v has %d checks", k, len(places))
			}
			continue
		}
		if len(places) != len(names) {
			t.Fatalf("a %v has %d checks, want %d", o.Kind(), len(places), len(names))
		}
		for i, name := range names {
			if places[i] != reflect.ValueOf(o).Elem().FieldByName(name).Addr().Interface() {
				t.Errorf("check %d of a %v is not its %s", i, o.Kind(), name)
			}
		}
	}
}

// TestFingerprint checks that a fingerprint depends on the tree below an object, and on nothing else.
func TestFingerprint(t *testing.T) {
	seen := map[string]string{}
	for o := range workflow.Walk(stored()) {
		f := workflow.Fingerprint(o)
		if (f == "") != (o.Kind() == workflow.KindAction) {
			t.Errorf("the fingerprint of a %s is %q", o.Kind(), f)
		}
		if other := seen[f]; f != "" && other != "" {
			t.Errorf("%s and %s have the same fingerprint", other, o.Header().ID)
		}
		seen[f] = o.Header().ID.String()
	}
	// Stored versions contain the fingerprint, so it must never change.
	if got, want := workflow.Fingerprint(stored()), "uH37Y5QU-Cs"; got != want {
		t.Errorf("the fingerprint of a plan is %q, want %q", got, want)
	}
	if f := workflow.Fingerprint(new(workflow.Plan)); f != "" {
		t.Errorf("the fingerprint of an empty plan is %q", f)
	}
	for name, same := range map[string]func(p *workflow.Plan){
		"the states": func(p *workflow.Plan) { p.Blocks[0].State = workflow.State{}; p.State.ETag = "" },
		"the texts":  func(p *workflow.Plan) { p.Name, p.Blocks[0].Name = "", "" },
		"its own ID": func(p *workflow.Plan) { p.ID = id(9999) },
	} {
		p := stored()
		if same(p); workflow.Fingerprint(p) != workflow.Fingerprint(stored()) {
			t.Errorf("the fingerprint depends on %s", name)
		}
	}
	for name, other := range map[string]func(p *workflow.Plan){
		"a lost block":            func(p *workflow.Plan) { p.Blocks = p.Blocks[:1] },
		"a nil block":             func(p *workflow.Plan) { p.Blocks[1] = nil },
		"blocks in another order": func(p *workflow.Plan) { p.Blocks[0], p.Blocks[1] = p.Blocks[1], p.Blocks[0] },
		"another ID":              func(p *workflow.Plan) { p.Blocks[1].Sequences[0].Actions[1].ID = id(9999) },
		"checks in another place": func(p *workflow.Plan) { p.PreChecks, p.ContChecks = p.ContChecks, p.PreChecks },
		"an action that moved on": func(p *workflow.Plan) {
			a, b := p.Blocks[0].Sequences[0], p.Blocks[0].Sequences[1]
			a.Actions, b.Actions = a.Actions[:1], append([]*workflow.Action{a.Actions[1]}, b.Actions...)
		},
		"a sequence that moved on": func(p *workflow.Plan) {
			a, b := p.Blocks[0], p.Blocks[1]
			a.Sequences, b.Sequences = a.Sequences[:1], append([]*workflow.Sequence{a.Sequences[1]}, b.Sequences...)
		},
	} {
		p := stored()
		if other(p); workflow.Fingerprint(p) == workflow.Fingerprint(stored()) {
			t.Errorf("the fingerprint is the same after %s", name)
		}
	}
}
