package workflow_test

import (
	"testing"

	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// benchPlan returns a plan with 60 actions and 81 sub-objects, which has run.
func benchPlan() *workflow.Plan {
	p := plantest.Sized(1, 20, 3)
	plantest.Finish(p)
	p.ID = workflow.NewV7()
	for o, parent := range workflow.Walk(p) {
		h := o.Header()
		h.State.ETag = "0x8DE49A7C5A1C800@Completed"
		if parent != nil {
			*h.ID, *h.PlanID = workflow.NewV7(), p.ID
		}
	}
	return p
}

func BenchmarkMarshal(b *testing.B) {
	p := benchPlan()
	for b.Loop() {
		text, err := workflow.Marshal(p)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(text)))
	}
	b.ReportAllocs()
}

func BenchmarkUnmarshal(b *testing.B) {
	text := mustMarshal(b, benchPlan())
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := workflow.Unmarshal(text, new(workflow.Plan)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
}

func BenchmarkValidate(b *testing.B) {
	p := benchPlan()
	for b.Loop() {
		if err := workflow.Validate(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
}
