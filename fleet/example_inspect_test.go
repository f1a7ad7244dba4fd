package fleet_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// An operator asks what is stuck, before and after the plan's owner is removed. No other node is alive.
func ExampleInspect() {
	ctx := context.Background()
	vault := memvault.New(nil) // or an azblob.Vault
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	check(vault.Create(ctx, plan))
	node, err := fleet.Join(ctx, vault, fleet.Options{Name: "host-1"})
	check(err)
	check(node.Claim(ctx, plan))

	inspect := func() {
		i, err := fleet.Inspect(ctx, vault, fleet.InspectOptions{})
		check(err)
		for _, p := range i.Plans {
			fmt.Printf("nodes alive: %d; %s is %s; stuck: %t\n", i.Alive(), p.Name, p.Condition, p.Stuck)
		}
	}
	inspect()
	check(fleet.Evict(ctx, vault, node.ID()))
	inspect()
	// Output:
	// nodes alive: 1; rollout is working; stuck: false
	// nodes alive: 0; rollout is orphaned; stuck: true
}

// A node hangs although its heartbeats continue. An operator removes it from the fleet, and starts another one, which
// takes its plan.
func ExampleEvict() {
	ctx := context.Background()
	vault := memvault.New(nil)
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	check(vault.Create(ctx, plan))
	hangs, err := fleet.Join(ctx, vault, fleet.Options{Name: "host-1"})
	check(err)
	check(hangs.Claim(ctx, plan))

	check(fleet.Evict(ctx, vault, hangs.ID()))
	next, err := fleet.Join(ctx, vault, fleet.Options{Name: "host-2"})
	check(err)
	taken, err := next.Take(ctx, plan.ID) // Plans does so by itself
	check(err)
	fmt.Println("taken in epoch", taken.Epoch)
	fmt.Println("the former owner is refused:", errors.Is(vault.UpdatePlan(ctx, plan), storage.ErrConflict))
	fmt.Println("there is no such member any more:", errors.Is(fleet.Evict(ctx, vault, hangs.ID()), storage.ErrNotFound))
	// Output:
	// taken in epoch 2
	// the former owner is refused: true
	// there is no such member any more: true
}

// A node's heartbeats continue, but it works no more. An operator removes it from the fleet and hands its plan over.
// Nobody else is alive, so the plan waits for the next node.
func ExampleHandOver() {
	ctx := context.Background()
	vault := memvault.New(nil)
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	check(vault.Create(ctx, plan))
	hangs, err := fleet.Join(ctx, vault, fleet.Options{Name: "host-1"})
	check(err)
	check(hangs.Claim(ctx, plan))

	_, err = fleet.HandOver(ctx, vault, plan.ID, fleet.HandOverOptions{Name: "operator"})
	fmt.Println("the owner is alive:", errors.Is(err, fleet.ErrOwned))
	check(fleet.Evict(ctx, vault, hangs.ID()))
	h, err := fleet.HandOver(ctx, vault, plan.ID, fleet.HandOverOptions{Name: "operator"})
	check(err)
	fmt.Println("fenced in epoch", h.Epoch, "beside", len(h.Live), "live nodes")
	fmt.Println("the former owner is refused:", errors.Is(vault.UpdatePlan(ctx, plan), storage.ErrConflict))
	// Output:
	// the owner is alive: true
	// fenced in epoch 2 beside 0 live nodes
	// the former owner is refused: true
}
