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

// An engine's unit test gives the engine a vault in memory, and opens another one on the same store to see what a restarted
// process would find.
func Example() {
	ctx := context.Background()
	store := memvault.NewStore()

	engine := store.Open(nil)
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	if err := engine.Create(ctx, plan); err != nil {
		fmt.Println(err)
	}
	plan.State.Status = workflow.Running
	if err := engine.UpdatePlan(ctx, plan); err != nil {
		fmt.Println(err)
	}

	restarted := store.Open(nil)
	open, err := restarted.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.Running}})
	if err != nil {
		fmt.Println(err)
	}
	for r := range open {
		fmt.Println(r.Result.Name, r.Result.State.Status, r.Err)
	}

	plan.State.ETag = driver.Version("one that is not stored", plan)
	fmt.Println(errors.Is(restarted.UpdatePlan(ctx, plan), storage.ErrConflict))
	// Output:
	// rollout Running <nil>
	// true
}
