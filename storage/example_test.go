package storage_test

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
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

	var e *storage.Error
	if errors.As(err, &e) && errors.Is(err, storage.ErrNotFound) {
		fmt.Println("there is no plan", e.Plan)
	}
	// Output:
	// Read plan 018f0000-0000-7000-8000-000000000001: read entry (prod-20240420/plans/018f0000-0000-7000-8000-000000000001): not found
	// there is no plan 018f0000-0000-7000-8000-000000000001
}
