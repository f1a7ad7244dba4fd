package driver_test

import (
	"context"
	"fmt"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// A vault checks and completes a new plan, and gives each object a version. The version of the plan says
// which children it has, so the vault finds a lost block before it stores anything.
func Example() {
	plan := &workflow.Plan{Name: "rollout", Blocks: []*workflow.Block{{Name: "west"}, {Name: "east"}}}
	if err := driver.Accept(context.Background(), plan, nil); err != nil {
		fmt.Println(err)
	}
	for o := range workflow.Walk(plan) {
		o.Header().State.ETag = driver.Version("1", o) // "1" is the name that this vault gives to what it stored
	}

	plan.State.Status = workflow.Running
	fmt.Println(driver.CheckUpdate(plan, nil, false))
	plan.Blocks = plan.Blocks[:1]
	fmt.Println(driver.CheckUpdate(plan, nil, false))
	// Output:
	// <nil>
	// invalid: Blocks: the children of the plan differ from the version in State.ETag: they can't be added, removed, replaced or moved
}
