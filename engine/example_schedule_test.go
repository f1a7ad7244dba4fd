package engine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// A schedule is a timer of the service's own, such as cron on two hosts. The plan's ID follows from the time of the tick, so
// whoever fires, and however often, there is one plan for each tick. A Deadline keeps a late one out of the next tick.
func Example_schedule() {
	ctx := context.Background()
	vault := memvault.New(registry.Must(greet), memvault.Options{})
	fire := func(host string, at time.Time) {
		tick := at.Truncate(24 * time.Hour)
		action := greet.Action("say good night", Greet{"world"})
		err := vault.Create(ctx, &workflow.Plan{
			ID: workflow.NewV7From(tick, "nightly"), Name: "nightly " + tick.Format(time.DateOnly), Deadline: tick.Add(23 * time.Hour),
			Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}},
		})
		if errors.Is(err, storage.ErrExists) {
			err = nil // another host was first
		}
		check(err)
		fmt.Println(host, "fires")
	}
	now := time.Now()
	fire("host 1", now)
	fire("host 2", now)
	plans, err := storage.Collect(vault.List(ctx, 0))
	check(err)
	fmt.Println("plans:", len(plans))
	// Output:
	// host 1 fires
	// host 2 fires
	// plans: 1
}
