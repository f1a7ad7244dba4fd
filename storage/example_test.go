package storage_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

func ExampleError() {
	var err error = &storage.Error{
		Op:    "Read",
		Plan:  uuid.MustParse("018f0000-0000-7000-8000-000000000001"),
		Blob:  "prod-20240420/plans/018f0000-0000-7000-8000-000000000001",
		Doing: "read entry",
		Err:   storage.ErrNotFound,
	}
	fmt.Println(err)
	fmt.Printf("%+v\n", err)

	var e *storage.Error
	if errors.As(err, &e) && errors.Is(err, storage.ErrNotFound) {
		fmt.Println("there is no plan", e.Plan)
	}
	// Output:
	// Read plan 018f0000-0000-7000-8000-000000000001: read entry (plans/018f0000-0000-7000-8000-000000000001): not found
	// Read plan 018f0000-0000-7000-8000-000000000001: read entry (prod-20240420/plans/018f0000-0000-7000-8000-000000000001): not found
	// there is no plan 018f0000-0000-7000-8000-000000000001
}

func ExampleCollect() {
	ctx := context.Background()
	vault := memvault.New(nil, memvault.Options{})
	for _, name := range []string{"first", "second", "third"} {
		if err := vault.Create(ctx, &workflow.Plan{Name: name}); err != nil {
			fmt.Println(err)
		}
	}

	newest, err := storage.Collect(vault.List(ctx, 2))
	fmt.Println(len(newest), "plans, the newest is the", newest[0].Name, err)

	_, err = storage.Collect(vault.Search(ctx, storage.Filters{}))
	fmt.Println(errors.Is(err, storage.ErrInvalid))
	// Output:
	// 2 plans, the newest is the third <nil>
	// true
}

// A service says who sent a request, with the name that the login proved. Searches find what they submitted.
func ExampleWithActor() {
	vault := memvault.New(nil, memvault.Options{})
	for _, user := range []string{"ana@example.com", "ben@example.com"} {
		ctx := storage.WithActor(context.Background(), workflow.Actor{By: user, From: "orders-2"})
		if err := vault.Create(ctx, &workflow.Plan{Name: "order of " + user}); err != nil {
			fmt.Println(err)
		}
	}

	ctx := context.Background()
	found, err := storage.Collect(vault.Search(ctx, storage.Filters{BySubmitter: []string{"ana@example.com"}}))
	for _, r := range found {
		plan, _ := vault.Read(ctx, r.ID)
		fmt.Println(r.Name, r.SubmittedBy, plan.Submitted.From)
	}
	fmt.Println(err)
	// Output:
	// order of ana@example.com ana@example.com orders-2
	// <nil>
}
