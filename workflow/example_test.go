package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// deploy returns a plan as an author builds it.
func deploy() *workflow.Plan {
	return &workflow.Plan{
		Name: "deploy",
		PreChecks: &workflow.Checks{
			Delay:   90 * time.Second,
			Actions: []*workflow.Action{{Name: "healthy", Plugin: "probe"}},
		},
		Blocks: []*workflow.Block{{
			Name: "west",
			Sequences: []*workflow.Sequence{{
				Name: "host 1",
				Actions: []*workflow.Action{
					{Name: "drain", Plugin: "drain", Timeout: time.Minute},
					{Name: "install", Plugin: "install", Retries: 2, Req: map[string]string{"version": "1.2.3"}},
				},
			}},
		}},
	}
}

// A test can create a plan that looks as if it were created yesterday.
func ExampleNewV7At() {
	yesterday := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	plan := deploy()
	plan.ID = workflow.NewV7At(yesterday)
	fmt.Println(workflow.Time(plan.ID))
	// Output: 2026-03-01 12:00:00 +0000 UTC
}

func ExampleParts() {
	kinds := map[workflow.Kind]int{}
	for _, o := range workflow.Parts(deploy()) {
		kinds[o.Kind()]++
	}
	fmt.Println(kinds[workflow.KindBlock], "block with", kinds[workflow.KindAction], "actions in all")
	// Output: 1 block with 3 actions in all
}

func ExampleWalk() {
	for o, parent := range workflow.Walk(deploy()) {
		switch o := o.(type) {
		case *workflow.Plan:
			fmt.Println("plan", o.Name)
		case *workflow.Action:
			fmt.Printf("action %s of a %v\n", o.Name, parent.Kind())
		default:
			fmt.Printf("%v of a %v\n", o.Kind(), parent.Kind())
		}
	}
	// Output:
	// plan deploy
	// checks of a plan
	// action healthy of a checks
	// block of a plan
	// sequence of a block
	// action drain of a sequence
	// action install of a sequence
}

func ExampleValidate() {
	p := deploy()
	p.Blocks[0].Sequences[0].Actions[0].Timeout = -time.Second
	p.Blocks[0].Sequences[0].Actions[1].Plugin = ""
	err := workflow.Validate(p)
	fmt.Println(err)

	var first *workflow.FieldError
	if errors.As(err, &first) {
		fmt.Println("first:", first.Field)
	}
	// Output:
	// Blocks[0].Sequences[0].Actions[0].Timeout: -1s is negative
	// Blocks[0].Sequences[0].Actions[1].Plugin: is empty: an action needs a plugin
	// first: Blocks[0].Sequences[0].Actions[0].Timeout
}

// A rule is a check of one's own.
func ExampleValidate_rule() {
	named := func(o workflow.Object, bad workflow.Report) {
		if b, ok := o.(*workflow.Block); ok && b.Descr == "" {
			bad("Descr", "a block needs a description here")
		}
	}
	fmt.Println(workflow.Validate(deploy(), named))
	// Output:
	// Blocks[0].Descr: a block needs a description here
}

func ExampleChecks_MarshalJSON() {
	text, err := json.MarshalIndent(deploy().PreChecks, "", "  ")
	fmt.Println(string(text), err)
	// Output:
	// {
	//   "actions": [
	//     {
	//       "name": "healthy",
	//       "plugin": "probe"
	//     }
	//   ],
	//   "delay": "1m30s"
	// } <nil>
}

// An action failed for a reason outside, and somebody has done its work by hand. A fork counts it as done, and runs the rest.
func ExampleFork() {
	failed := deploy()
	plantest.Finish(failed)
	sequence := failed.Blocks[0].Sequences[0]
	drain, install := sequence.Actions[0], sequence.Actions[1]
	drain.ID, install.ID = workflow.NewV7(), workflow.NewV7()
	for _, o := range []workflow.Object{failed, failed.Blocks[0], sequence, drain} {
		o.Header().State.Status = workflow.Failed
	}
	install.State, install.Attempts = workflow.State{}, nil

	fork, err := workflow.Fork(failed, workflow.ForkOptions{
		By:   workflow.Attribution{By: "ana", Why: "the host was drained by hand"},
		Skip: map[uuid.UUID]any{drain.ID: "drained"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range fork.Blocks[0].Sequences[0].Actions {
		fmt.Println(a.Name, "is", a.State.Status)
	}
	stated := fork.Blocks[0].Sequences[0].Actions[0].Attempts[0]
	fmt.Printf("%v, says %s: %s\n", stated.Resp, stated.Skipped.By, stated.Skipped.Why)
	// Output:
	// drain is Completed
	// install is NotStarted
	// drained, says ana: the host was drained by hand
}

// A plan that Completed is run again as a whole.
func ExampleFork_fromStart() {
	done := deploy()
	plantest.Finish(done)
	again, err := workflow.Fork(done, workflow.ForkOptions{FromStart: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again.Name, "is", again.State.Status, "and forked from the other:", again.ForkedFrom == done.ID)
	// Output: deploy is NotStarted and forked from the other: true
}

// An engine stored that an action runs, and nothing of what is above it.
func ExampleInferRunning() {
	plan := deploy()
	plan.State.Status = workflow.Running
	drain := plan.Blocks[0].Sequences[0].Actions[0]
	drain.State = workflow.State{Status: workflow.Running, Start: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}

	host := workflow.InferRunning(plan).Blocks[0].Sequences[0]
	fmt.Println(host.Name, "is", host.State.Status, "since", host.State.Start.Format(time.TimeOnly))
	// Output: host 1 is Running since 12:00:00
}
