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
	vault := memvault.New(nil, memvault.Options{}) // or an azblob.Vault
	check(vault.Create(ctx, &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}))

	node, err := fleet.Join(ctx, vault, fleet.Options{Name: "example"})
	check(err)
	var running sync.WaitGroup
	for next := range node.Plans(ctx) {
		if next.Err != nil {
			log.Print(next.Err) // for example a plan that can't be read; the loop continues
			continue
		}
		plan := next.Result
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

// operator is who asks in these examples.
var operator = workflow.Attribution{By: "ana@ops"}

// Any process that can reach the store may ask for a plan to be stopped. Whoever claims the plan gets the request.
func ExampleStop() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	vault := memvault.New(nil, memvault.Options{})
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	check(vault.Create(ctx, plan))
	check(fleet.Stop(ctx, vault, plan.ID, operator))

	node, err := fleet.Join(ctx, vault, fleet.Options{Name: "example"})
	check(err)
	for next := range node.Plans(ctx) {
		plan := next.Result
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
	vault := memvault.New(nil, memvault.Options{})
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

// owned returns a vault with a plan that a node has claimed.
func owned(ctx context.Context) (*memvault.Vault, *workflow.Plan, *fleet.Node) {
	vault := memvault.New(nil, memvault.Options{}) // or an azblob.Vault
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	check(vault.Create(ctx, plan))
	node, err := fleet.Join(ctx, vault, fleet.Options{Name: "host-1"})
	check(err)
	check(node.Claim(ctx, plan))
	return vault, plan, node
}

// An operator asks what is stuck, before and after the plan's owner is removed. No other node is alive.
func ExampleInspect() {
	ctx := context.Background()
	vault, _, node := owned(ctx)
	inspect := func() {
		i, err := fleet.Inspect(ctx, vault, fleet.InspectOptions{})
		check(err)
		for _, p := range i.Plans {
			fmt.Printf("nodes alive: %d; %s is %s; stuck: %t\n", i.Alive(), p.Plan.Name, p.Condition, p.Stuck)
		}
	}
	inspect()
	check(fleet.Evict(ctx, vault, node.ID(), fleet.EvictOptions{By: operator}))
	inspect()
	// Output:
	// nodes alive: 1; rollout is working; stuck: false
	// nodes alive: 0; rollout is orphaned; stuck: true
}

// A node hangs although its heartbeats continue. An operator removes it from the fleet, and starts another one, which
// takes its plan.
func ExampleEvict() {
	ctx := context.Background()
	vault, plan, hangs := owned(ctx)
	check(fleet.Evict(ctx, vault, hangs.ID(), fleet.EvictOptions{By: operator}))
	next, err := fleet.Join(ctx, vault, fleet.Options{Name: "host-2"})
	check(err)
	taken, err := next.Take(ctx, plan.ID) // Plans does so by itself
	check(err)
	fmt.Println("taken in epoch", taken.Epoch)
	fmt.Println("the former owner is refused:", errors.Is(vault.UpdatePlan(ctx, plan), storage.ErrConflict))
	fmt.Println("there is no such member any more:", errors.Is(fleet.Evict(ctx, vault, hangs.ID(), fleet.EvictOptions{By: operator}), storage.ErrNotFound))
	// Output:
	// taken in epoch 2
	// the former owner is refused: true
	// there is no such member any more: true
}

// A node's heartbeats continue, but it works no more. An operator removes it from the fleet and hands its plan over.
// Nobody else is alive, so the plan waits for the next node.
func ExampleHandOver() {
	ctx := context.Background()
	vault, plan, hangs := owned(ctx)
	_, err := fleet.HandOver(ctx, vault, plan.ID, fleet.HandOverOptions{By: operator, Name: "operator"})
	fmt.Println("the owner is alive:", errors.Is(err, fleet.ErrOwned))
	check(fleet.Evict(ctx, vault, hangs.ID(), fleet.EvictOptions{By: operator}))
	h, err := fleet.HandOver(ctx, vault, plan.ID, fleet.HandOverOptions{By: operator, Name: "operator"})
	check(err)
	fmt.Println("fenced in epoch", h.Epoch, "beside", len(h.Live), "live nodes")
	fmt.Println("the former owner is refused:", errors.Is(vault.UpdatePlan(ctx, plan), storage.ErrConflict))
	// Output:
	// the owner is alive: true
	// fenced in epoch 2 beside 0 live nodes
	// the former owner is refused: true
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
