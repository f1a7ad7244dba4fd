package workflow_test

import (
	"encoding/json"
	"testing"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// FuzzPlanJSON checks that reading never panics, and that a valid plan is the same after it was written and
// read again.
func FuzzPlanJSON(f *testing.F) {
	f.Add([]byte(`{}`))
	for _, p := range []*workflow.Plan{plantest.Small(), plantest.Random(1), plantest.Random(2)} {
		plantest.Finish(p)
		f.Add(mustMarshal(f, p))
	}
	for o := range workflow.Walk(stored()) {
		if a, ok := o.(*workflow.Action); ok {
			f.Add(mustMarshal(f, &workflow.Plan{PreChecks: &workflow.Checks{Actions: []*workflow.Action{a}}}))
			break
		}
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
		text, again := mustMarshal(t, p), new(workflow.Plan)
		if err := json.Unmarshal(text, again); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if second := mustMarshal(t, again); string(second) != string(text) {
			t.Errorf("the JSON changed when it was read and written again:\n%s\n%s", text, second)
		}
		if err := workflow.Validate(again); err != nil {
			t.Errorf("the plan is no longer valid: %v", err)
		}
		if d := plantest.Diff(p, again); d != "" {
			t.Error(d)
		}
	})
}

func mustMarshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return text
}
