package memvault_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// An engine's unit test gives the engine a vault in memory. It opens another vault on the same store to see
// what the engine would find after a restart.
func Example() {
	ctx := context.Background()
	store := memvault.NewStore()

	engine := store.Open(nil, memvault.Options{})
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	if err := engine.Create(ctx, plan); err != nil {
		fmt.Println(err)
	}
	plan.State.Status = workflow.Running
	if err := engine.UpdatePlan(ctx, plan); err != nil {
		fmt.Println(err)
	}

	restarted := store.Open(nil, memvault.Options{})
	running, err := storage.Collect(restarted.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.Running}}))
	for _, r := range running {
		fmt.Println(r.Name, r.State.Status, err)
	}

	plan.State.ETag = driver.Version("another version", plan)
	fmt.Println(errors.Is(restarted.UpdatePlan(ctx, plan), storage.ErrConflict))
	// Output:
	// rollout Running <nil>
	// true
}
