package azblob_test

import (
	"context"
	"fmt"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/workflow"
)

// A daily job builds the catalogues of the days that have been closed since it last ran.
func ExampleVault_Catalogue() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	for _, age := range []int{5, 4, 3} {
		plan := &workflow.Plan{Name: "release", ID: workflow.NewV7At(time.Now().AddDate(0, 0, -age))}
		check(vault.Create(ctx, plan))
		if age == 4 {
			continue // it is still open
		}
		plan.State.Status, plan.State.Start = workflow.Completed, time.Now()
		plan.State.End = plan.State.Start
		check(vault.UpdatePlan(ctx, plan))
	}

	report, err := vault.Catalogue(ctx, azblob.CatalogueOptions{})
	check(err)
	fmt.Println(report.Closed, "closed days")
	for _, day := range report.Built {
		fmt.Println("built, plans:", day.Plans)
	}
	for _, day := range report.Skipped {
		fmt.Println("skipped:", day.Reason[:len("1 marker of open plans")])
	}
	// Output:
	// 3 closed days
	// built, plans: 1
	// built, plans: 1
	// skipped: 1 marker of open plans
}

// The numbers of plans by day, newest day first, and what it takes to store them.
func ExampleVault_Stats() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	for _, age := range []int{5, 4, 4} {
		check(vault.Create(ctx, &workflow.Plan{Name: "release", ID: workflow.NewV7At(time.Now().AddDate(0, 0, -age))}))
	}

	days, err := vault.Stats(ctx, azblob.StatsOptions{Bytes: true})
	check(err)
	for day := range days {
		check(day.Err)
		fmt.Println(day.Result.Total(), "plans, not started:", day.Result.Plans[workflow.NotStarted], "blobs:", day.Result.Blobs)
	}
	// Output:
	// 2 plans, not started: 2 blobs: 6
	// 1 plans, not started: 1 blobs: 3
}
