package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A plan that ran is restored into another prefix, with its IDs and states. Restore refuses an ID that is taken.
func ExampleVault_Restore() {
	ctx := context.Background()
	server := emulator.New()
	open := func(prefix string) *azblob.Vault {
		v, err := azblob.NewFromConnectionString(ctx, prefix, server.ConnectionString(), nil, azblob.WithTransport(server.Transport()))
		if err != nil {
			log.Fatal(err)
		}
		return v
	}
	vault, other := open("prod"), open("copy")
	plan := &workflow.Plan{Name: "rollout"}
	if err := vault.Create(ctx, plan); err != nil {
		log.Fatal(err)
	}
	plan.State.Status = workflow.Stopped
	if err := vault.UpdatePlan(ctx, plan); err != nil {
		log.Fatal(err)
	}

	fmt.Println(other.Restore(ctx, plan))
	restored, err := other.Read(ctx, plan.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(restored.ID == plan.ID, restored.State.Status)
	fmt.Println(errors.Is(other.Restore(ctx, restored), storage.ErrExists))
	// Output:
	// <nil>
	// true Stopped
	// true
}
