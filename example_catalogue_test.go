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
		fmt.Println("skipped:", day.Reason[:len("1 blobs say that plans are open")])
	}
	// Output:
	// 3 closed days
	// built, plans: 1
	// built, plans: 1
	// skipped: 1 blobs say that plans are open
}
