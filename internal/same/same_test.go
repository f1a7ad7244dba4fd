package same_test

import (
	"testing"
	"time"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/same"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// raw returns a plan as a vault without a registry would read it.
func raw(t *testing.T, p *workflow.Plan) *workflow.Plan {
	t.Helper()
	text, err := workflow.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	read := new(workflow.Plan)
	if err := workflow.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	return read
}

func TestPlan(t *testing.T) {
	plan := plantest.Full()
	driver.Complete(plan)
	plantest.Finish(plan)
	compare := func(what string, other *workflow.Plan, want bool) {
		t.Helper()
		for _, pair := range [][2]*workflow.Plan{{plan, other}, {other, plan}} {
			if got, err := same.Plan(pair[0], pair[1]); err != nil || got != want {
				t.Errorf("%s: %t, %v, want %t", what, got, err, want)
			}
		}
	}
	other := plantest.Clone(plan)
	for o := range workflow.Walk(other) {
		o.Header().State.ETag = "another version"
	}
	compare("a copy", other, true)
	compare("a raw copy", raw(t, other), true)
	if ok, err := same.Plan(raw(t, plan), raw(t, other)); !ok || err != nil {
		t.Errorf("raw copies: %t, %v", ok, err)
	}
	n := len(workflow.Parts(plan))
	for i := range n {
		changed := plantest.Clone(plan)
		workflow.Parts(changed)[i].Header().State.Start = plan.SubmitTime
		compare(workflow.Parts(plan)[i].Kind().String(), changed, false)
	}
	changed := plantest.Clone(plan)
	changed.Blocks[0].Sequences[0].Actions[0].Req = nil
	compare("another request", changed, false)
	compare("another raw request", raw(t, changed), false)
	changed = plantest.Clone(plan)
	changed.Blocks = changed.Blocks[1:]
	compare("another tree", changed, false)
}

func TestListed(t *testing.T) {
	r := storage.ListResult{ID: workflow.NewV7(), SubmitTime: time.Now(), State: workflow.State{Start: time.Now()}}
	zoned, other := r, r
	zoned.SubmitTime, zoned.State.Start = r.SubmitTime.In(time.FixedZone("", 3600)), r.State.Start.UTC()
	if other.Epoch++; !same.Listed(r, zoned) || same.Listed(r, other) {
		t.Errorf("the same %t, another %t", same.Listed(r, zoned), same.Listed(r, other))
	}
}
