package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// runAgain forks the plans of a group that failed or were stopped. It leaves out those that were forked before.
func runAgain(ctx context.Context, vault storage.Vault, group uuid.UUID) error {
	found, err := storage.Collect(vault.Search(ctx, storage.Filters{
		ByGroupIDs: []uuid.UUID{group}, ByStatus: []workflow.Status{workflow.Failed, workflow.Stopped},
	}))
	if err != nil {
		return err
	}
	for _, f := range found {
		plan, err := vault.Read(ctx, f.ID)
		if err != nil {
			return err
		}
		fork, err := workflow.Fork(plan, workflow.ForkOptions{})
		if err != nil {
			return err
		}
		switch err := vault.Create(ctx, fork); {
		case errors.Is(err, storage.ErrExists): // it was forked before
		case err != nil:
			return err
		default:
			fmt.Printf("%s was %s: what is left of it runs again\n", plan.Name, plan.State.Status)
		}
	}
	return nil
}

// addPast restores plans of a group that began at a time and are one second apart.
func addPast(vault *azblob.Vault, group uuid.UUID, began time.Time, statuses ...workflow.Status) {
	for i, status := range statuses {
		at := began.Add(time.Duration(i) * time.Second)
		plan := &workflow.Plan{ID: workflow.NewV7At(at), GroupID: group, Name: fmt.Sprintf("release %d", i+1)}
		plan.State = workflow.State{Status: status, Start: at}
		if status.Final() {
			plan.State.End = at.Add(time.Minute)
		}
		check(vault.Restore(context.Background(), plan))
	}
}

// ago returns the time that was some days ago.
func ago(days int) time.Time { return time.Now().AddDate(0, 0, -days) }

func Example_runAgain() {
	group := uuid.New()
	ctx, vault := example()
	addPast(vault, group, ago(1), workflow.Failed, workflow.Completed, workflow.Stopped)
	check(errors.Join(runAgain(ctx, vault, group), runAgain(ctx, vault, group))) // the second time, there is nothing to do
	// Output:
	// release 3 was Stopped: what is left of it runs again
	// release 1 was Failed: what is left of it runs again
}
