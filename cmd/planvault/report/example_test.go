package report_test

import (
	"fmt"
	"time"

	"github.com/planvault/azblob/cmd/planvault/report"
	"github.com/planvault/azblob/workflow"
)

// plan is what Read returns.
var plan = &workflow.Plan{
	Name: "nightly report", State: workflow.State{Status: workflow.Running, Start: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)},
	Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Name: "europe", Actions: []*workflow.Action{
		{Name: "collect", State: workflow.State{Status: workflow.Completed}},
		{Name: "render", State: workflow.State{Status: workflow.Running}},
	}}}}},
}

func ExampleNewOutline() {
	for n := range report.NewOutline(plan, time.Now()).All() {
		fmt.Printf("%s %s (%s)\n", n.Label().Mark, n.Title, n.Label().Word)
	}
	// Output:
	// ▶ nightly report (running)
	// ○ block 1 (not started)
	// ○ europe (not started)
	// ✓ collect (completed)
	// ▶ render (running)
}
