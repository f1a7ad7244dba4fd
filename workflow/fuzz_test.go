package workflow_test

import (
	"encoding/json"
	"testing"

	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// FuzzPlanJSON checks that reading never panics, and that a valid plan is the same after it was written and
// read again.
func FuzzPlanJSON(f *testing.F) {
	f.Add([]byte(`{}`))
	for _, p := range []*workflow.Plan{plantest.Small(), plantest.Random(1), plantest.Random(2)} {
		plantest.Finish(p)
		f.Add(mustMarshal(f, p))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := new(workflow.Plan)
		if json.Unmarshal(data, p) != nil {
			return
		}
		for range workflow.Walk(p) { // nil children and all
		}
		if workflow.Validate(p, workflow.Encodable) != nil {
			return
		}
		text := mustMarshal(t, p)
		again := new(workflow.Plan)
		if err := json.Unmarshal(text, again); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if d := plantest.Diff(p, again); d != "" {
			t.Error(d)
		}
		if second := mustMarshal(t, again); string(second) != string(text) {
			t.Errorf("the JSON changed when it was read and written again:\n%s\n%s", text, second)
		}
		if err := workflow.Validate(again); err != nil {
			t.Errorf("the plan is no longer valid: %v", err)
		}
	})
}

// FuzzActionJSON is FuzzPlanJSON for actions, whose JSON differs most from that of encoding/json.
func FuzzActionJSON(f *testing.F) {
	f.Add([]byte(`{}`))
	for o := range workflow.Walk(stored()) {
		if a, ok := o.(*workflow.Action); ok {
			f.Add(mustMarshal(f, a))
			break
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := new(workflow.Action)
		if json.Unmarshal(data, a) != nil || workflow.Validate(a, workflow.Encodable) != nil {
			return
		}
		text := mustMarshal(t, a)
		again := new(workflow.Action)
		if err := json.Unmarshal(text, again); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if d := plantest.Diff(planOf(a), planOf(again)); d != "" {
			t.Error(d)
		}
		if second := mustMarshal(t, again); string(second) != string(text) {
			t.Errorf("the JSON changed when it was read and written again:\n%s\n%s", text, second)
		}
		if (a.Req == nil) != (again.Req == nil) {
			t.Errorf("the request %v became %v", a.Req, again.Req)
		}
		if a.State.ETag != again.State.ETag {
			t.Errorf("the ETag %q became %q", a.State.ETag, again.State.ETag)
		}
	})
}

func planOf(a *workflow.Action) *workflow.Plan {
	return &workflow.Plan{PreChecks: &workflow.Checks{Actions: []*workflow.Action{a}}}
}

func mustMarshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
