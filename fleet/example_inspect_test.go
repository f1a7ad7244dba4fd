package fleet_test

import (
	"context"
	"fmt"
	"log"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// An operator asks what is stuck. The plan's owner has left, and no other node is alive.
func ExampleInspect() {
	ctx := context.Background()
	vault := memvault.New(nil) // or an azblob.Vault
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "first region"}}}
	if err := vault.Create(ctx, plan); err != nil {
		log.Fatal(err)
	}
	node, err := fleet.Join(ctx, vault, fleet.Options{Name: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	if err := node.Claim(ctx, plan); err != nil {
		log.Fatal(err)
	}

	for range 2 {
		i, err := fleet.Inspect(ctx, vault, fleet.InspectOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(i.Alive(), "nodes are alive")
		for _, p := range i.Plans {
			fmt.Println(p.Name, "is", p.Condition, "and stuck:", p.Stuck)
		}
		if err := fleet.Evict(ctx, vault, node.ID()); err != nil && len(i.Members) > 0 {
			log.Fatal(err)
		}
	}
	// Output:
	// 1 nodes are alive
	// rollout is working and stuck: false
	// 0 nodes are alive
	// rollout is orphaned and stuck: true
}
