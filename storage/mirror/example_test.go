package mirror_test

import (
	"context"
	"fmt"

	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// A copy is brought up to date, again and again. A dry run says how far it is behind.
func ExampleRun() {
	ctx := context.Background()
	source, replica := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
	pair := mirror.Pair{Source: source, Copy: replica}
	by := workflow.Attribution{By: "nightly mirror"}
	plan := &workflow.Plan{Name: "rollout"}
	err := source.Create(ctx, plan)
	fmt.Println(err)
	for range 2 {
		report, err := mirror.Run(ctx, pair, mirror.Options{By: by})
		fmt.Println("copied:", report.Copied, "unchanged:", report.Unchanged, err)
	}
	plan.State.Status = workflow.Completed
	err = source.UpdatePlan(ctx, plan)
	fmt.Println(err)
	report, err := mirror.Run(ctx, pair, mirror.Options{DryRun: true})
	fmt.Println("behind by", report.Updated, "plan", err)
	// Output:
	// <nil>
	// copied: 1 unchanged: 0 <nil>
	// copied: 0 unchanged: 1 <nil>
	// <nil>
	// behind by 1 plan <nil>
}
