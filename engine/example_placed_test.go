package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// Something else decides which process runs a plan, and when: here it is a loop, elsewhere a queue, which would keep the epoch
// beside the plan and hand it out again at WakeAt.
func ExampleEngine_RunPlan() {
	ctx := context.Background()
	vault := memvault.New(registry.Must(greet), memvault.Options{})
	e, err := engine.New(vault, engine.Options{})
	check(err)
	queue := workflow.External{Name: "queue", Ask: "queue show ID"}
	plan := &workflow.Plan{
		External: queue, NotBefore: time.Now().Add(100 * time.Millisecond),
		Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{greet.Action("say hello", Greet{"world"})}}}}},
	}
	check(vault.Create(ctx, plan))
	var epoch int64
	for {
		placed, err := e.RunPlan(ctx, plan.ID, engine.RunOptions{External: queue, Epoch: epoch, Heartbeat: func(b engine.Beat) { epoch = b.Epoch }})
		check(err)
		if placed.Plan.State.Status.Final() {
			fmt.Println("it is", placed.Plan.State.Status, "in epoch", epoch)
			return
		}
		fmt.Println("it waits")
		time.Sleep(time.Until(placed.WakeAt))
	}
	// Output:
	// it waits
	// it is Completed in epoch 1
}
