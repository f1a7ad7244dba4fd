package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// A process joins the fleet, runs the plans that it gets, and leaves. Here it leaves after the first plan.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	vault := memvault.New(nil) // or an azblob.Vault
	check(vault.Create(ctx, &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}))

	node, err := fleet.Join(ctx, vault, fleet.Options{Name: "example"})
	check(err)
	var running sync.WaitGroup
	for plan, err := range node.Plans(ctx) {
		if err != nil {
			log.Print(err) // for example a plan that can't be read; the loop continues
			continue
		}
		running.Go(func() {
			defer stop()
			work, done := node.Work(plan.ID)
			defer done()
			fmt.Println("runs", plan.Name, "with epoch", plan.Epoch)
			if err := runPlan(context.Background(), work, node, vault, plan); err != nil {
				log.Print(err)
			}
		})
	}
	running.Wait()
	if err := node.Leave(context.Background()); err != nil { // give it a deadline
		log.Print(err)
	}
	fmt.Println("the node's context ended because", context.Cause(node.Context()))
	// Output:
	// runs rollout with epoch 1
	// ended as Completed
	// the node's context ended because the node has left the fleet
}

// runPlan ends a plan, as an engine does after it has run the plan's actions. After a conflict it goes on only
// from the plan that Take returns.
func runPlan(ctx, work context.Context, node *fleet.Node, vault storage.Vault, plan *workflow.Plan) error {
	for {
		plan.State.Status = workflow.Completed
		if errors.Is(context.Cause(work), fleet.ErrStopRequested) {
			plan.State.Status = workflow.Stopped
		}
		err := vault.UpdatePlan(ctx, plan)
		if err == nil {
			fmt.Println("ended as", plan.State.Status)
		}
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
		if plan, err = node.Take(ctx, plan.ID); err != nil || plan.State.Status.Final() {
			return err // with ErrFenced, the plan belongs to somebody else
		}
	}
}

// Any process that can reach the store may ask for a plan to be stopped. Whoever claims the plan gets the request.
func ExampleStop() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	vault := memvault.New(nil)
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	check(vault.Create(ctx, plan))
	check(fleet.Stop(ctx, vault, plan.ID))

	node, err := fleet.Join(ctx, vault, fleet.Options{Name: "example"})
	check(err)
	for plan := range node.Plans(ctx) {
		work, done := node.Work(plan.ID)
		fmt.Println(context.Cause(work))
		if err := runPlan(ctx, work, node, vault, plan); err != nil {
			log.Print(err)
		}
		done()
		break
	}
	if err := node.Leave(ctx); err != nil {
		log.Print(err)
	}
	// Output:
	// the plan was asked to stop
	// ended as Stopped
}

// An observer sees what a node does. LogObserver and Tee are like those of the vault.
func ExampleObserver() {
	ctx := context.Background()
	vault := memvault.New(nil)
	plan := &workflow.Plan{Name: "rollout"}
	check(vault.Create(ctx, plan))
	node, err := fleet.Join(ctx, vault, fleet.Options{Observer: fleet.Tee(
		fleet.LogObserver(slog.New(slog.DiscardHandler)), // or slog.Default()
		fleet.Observer{Claim: func(_ context.Context, e fleet.ClaimEvent) { fmt.Println("claimed in epoch", e.Epoch) }},
	)})
	check(err)
	check(node.Claim(ctx, plan))
	check(node.Leave(ctx))
	// Output: claimed in epoch 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
