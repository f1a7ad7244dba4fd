package driver_test

import (
	"testing"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// raw returns a plan as a vault without a registry would read it.
func raw(t *testing.T, p *workflow.Plan) *workflow.Plan {
	t.Helper()
	text, err := workflow.Marshal(p)
	must(t, err)
	read := new(workflow.Plan)
	must(t, workflow.Unmarshal(text, read))
	return read
}

func TestSamePlan(t *testing.T) {
	plan := plantest.Full()
	driver.Complete(plan)
	plantest.Finish(plan)
	same := func(what string, other *workflow.Plan, want bool) {
		t.Helper()
		for _, pair := range [][2]*workflow.Plan{{plan, other}, {other, plan}} {
			if got, err := driver.SamePlan(pair[0], pair[1]); err != nil || got != want {
				t.Errorf("%s: %t, %v, want %t", what, got, err, want)
			}
		}
	}
	other := plantest.Clone(plan)
	for o := range workflow.Walk(other) {
		o.Header().State.ETag = "another version"
	}
	same("a copy", other, true)
	same("a raw copy", raw(t, other), true)
	if ok, err := driver.SamePlan(raw(t, plan), raw(t, other)); !ok || err != nil {
		t.Errorf("raw copies: %t, %v", ok, err)
	}
	n := len(workflow.Parts(plan))
	for i := range n {
		changed := plantest.Clone(plan)
		workflow.Parts(changed)[i].Header().State.Start = plan.SubmitTime
		same(workflow.Parts(plan)[i].Kind().String(), changed, false)
	}
	changed := plantest.Clone(plan)
	changed.Blocks[0].Sequences[0].Actions[0].Req = nil
	same("another request", changed, false)
	same("another raw request", raw(t, changed), false)
	changed = plantest.Clone(plan)
	changed.Blocks = changed.Blocks[1:]
	same("another tree", changed, false)
}
