package workflow_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// visited is one step of a walk.
type visited struct{ object, parent workflow.Object }

func walk(p *workflow.Plan) (steps []visited) {
	for o, parent := range workflow.Walk(p) {
		steps = append(steps, visited{o, parent})
	}
	return steps
}

// search finds all objects below v by reflection, in the order of the fields, which is that of Walk. TestPaths names the
// objects in this order.
func search(v reflect.Value, parent workflow.Object, found *[]visited) {
	switch v.Kind() {
	case reflect.Pointer:
		o, ok := v.Interface().(workflow.Object)
		if v.IsNil() || !ok {
			return
		}
		*found = append(*found, visited{o, parent})
		for i := range v.Elem().NumField() {
			search(v.Elem().Field(i), o, found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			search(v.Index(i), parent, found)
		}
	}
}

// TestWalk compares walks of plans, with and without nil children, with a search by reflection.
func TestWalk(t *testing.T) {
	holes := plantest.Full()
	holes.Blocks = append([]*workflow.Block{nil}, holes.Blocks...)
	holes.Blocks[1].Sequences = []*workflow.Sequence{nil, holes.Blocks[1].Sequences[0], {Actions: []*workflow.Action{nil, {}, nil}}}
	holes.PostChecks.Actions = []*workflow.Action{nil}
	holes.DeferredActions.Batches[1] = nil
	plans := []*workflow.Plan{nil, {}, plantest.Small(), plantest.Full(), plantest.Sized(3, 2, 4), holes}
	for seed := range uint64(100) {
		plans = append(plans, plantest.Random(seed))
	}
	for i, p := range plans {
		var want []visited
		search(reflect.ValueOf(p), nil, &want)
		for range 2 { // a sequence can be ranged over again
			if got := walk(p); !slices.Equal(got, want) {
				t.Errorf("plan %d: the walk visits %d objects, want %d in the order of the fields", i, len(got), len(want))
			}
		}
	}
	all := walk(holes)
	for n := range all {
		met := 0
		for range workflow.Walk(holes) {
			if met++; met == n+1 {
				break // a walk that continued would panic here
			}
		}
	}
}

func TestHeaderAndKind(t *testing.T) {
	kinds := []string{"Plan", "Checks", "Block", "Sequence", "Action", "DeferredActions", "DeferBatch"}
	p := stored()
	for o := range workflow.Walk(p) {
		v, h := reflect.ValueOf(o).Elem(), o.Header()
		field := func(name string) any { return v.FieldByName(name).Addr().Interface() }
		planID := "PlanID"
		if o == p {
			planID = "ID"
		}
		if h.ID != field("ID") || h.State != field("State") || h.PlanID != field(planID) {
			t.Errorf("the header of a %v has other fields", o.Kind())
		}
		if name := v.Type().Name(); kinds[o.Kind()] != name || !strings.EqualFold(o.Kind().String(), name) {
			t.Errorf("the kind of a %s is %v (%d)", name, o.Kind(), o.Kind())
		}
	}
}

func TestChecksOf(t *testing.T) {
	names := []string{"BypassChecks", "PreChecks", "ContChecks", "PostChecks", "DeferredChecks"}
	for o := range workflow.Walk(plantest.Full()) {
		var want []**workflow.Checks
		if k := o.Kind(); k == workflow.KindPlan || k == workflow.KindBlock {
			for _, name := range names {
				want = append(want, reflect.ValueOf(o).Elem().FieldByName(name).Addr().Interface().(**workflow.Checks))
			}
		}
		if got := workflow.ChecksOf(o); !slices.Equal(got, want) {
			t.Errorf("the checks of a %v are not %v in this order", o.Kind(), names)
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
