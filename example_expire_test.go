package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A daily job drops the days that are older than 90 days, and reports those that it had to skip.
func ExampleVault_Expire() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	for _, age := range []int{120, 110, 100, 1} {
		plan := &workflow.Plan{Name: "empty", ID: workflow.NewV7At(time.Now().AddDate(0, 0, -age))}
		check(vault.Create(ctx, plan))
		if age == 110 {
			continue // it is still open
		}
		plan.State.Status, plan.State.Start = workflow.Completed, time.Now()
		plan.State.End = plan.State.Start
		check(vault.UpdatePlan(ctx, plan))
	}
	check(vault.Hold(ctx, time.Now().AddDate(0, 0, -100)))

	report, err := vault.Expire(ctx, azblob.ExpireOptions{OlderThan: 90 * 24 * time.Hour})
	check(err)
	for _, day := range report.Days {
		fmt.Println(day.Result, day.Open)
	}
	// Output:
	// dropped 0
	// open 1
	// held 0
}

// A held day keeps its plans until it is released.
func ExampleVault_Hold() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	plan := &workflow.Plan{Name: "evidence", ID: workflow.NewV7At(day.Add(time.Hour))}
	check(vault.Create(ctx, plan))

	check(vault.Hold(ctx, day))
	held, err := vault.Holds(ctx)
	check(err)
	fmt.Println(held[0].Format(time.DateOnly))
	fmt.Println(errors.Is(vault.Delete(ctx, plan.ID), storage.ErrHeld))
	check(vault.Release(ctx, day))
	fmt.Println(vault.Delete(ctx, plan.ID))
	// Output:
	// 2026-03-01
	// true
	// <nil>
}
