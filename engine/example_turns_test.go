package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// Upgrade is a request.
type Upgrade struct{ Cluster string }

// Plans that change a cluster take turns, one at a time, in the order of their submission. And an order is shipped by one plan at
// a time: a second one is not accepted while the first is open.
func Example_turns() {
	var now, most atomic.Int32
	upgrade := engine.Task("upgrade", func(context.Context, engine.Call, Upgrade) (string, error) {
		defer now.Add(-1)
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		return "done", nil
	})
	vault := memvault.New(registry.Must(upgrade), memvault.Options{})
	e, err := engine.New(vault, engine.Options{UntilIdle: true, NoRetention: true})
	check(err)
	ctx := context.Background()
	submit := func(order string) {
		action := upgrade.Action("upgrade", Upgrade{"west"})
		handle, err := e.Submit(ctx, &workflow.Plan{
			Name: "upgrade west", Keys: []workflow.Key{{Name: "cluster west"}}, Unique: order,
			Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}},
		})
		if errors.Is(err, storage.ErrExists) {
			plan, err := vault.Read(ctx, handle.ID())
			check(err)
			fmt.Println(order, "has a plan already:", plan.Name, plan.State.Status)
			return
		}
		check(err)
	}
	submit("order 7")
	submit("order 8")
	submit("order 7")
	check(e.Run(ctx))
	fmt.Println("at once:", most.Load())
	// Output:
	// order 7 has a plan already: upgrade west NotStarted
	// at once: 1
}
