package bundle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// A backup is written, verified and restored into another vault. A second import finds that everything is there.
func Example() {
	ctx := context.Background()
	vault, other := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
	plan := &workflow.Plan{Name: "rollout"}
	err := vault.Create(ctx, plan)
	check(err)
	plan.State.Status = workflow.Completed
	check(vault.UpdatePlan(ctx, plan))

	by := workflow.Attribution{By: "ana", Why: "move to the new cluster"}
	var backup bytes.Buffer // usually a file
	exported, err := bundle.Export(ctx, vault, &backup, bundle.ExportOptions{Source: "my-cluster"})
	check(err)
	fmt.Println("exported:", exported.Plans)
	for range 2 {
		imported, err := bundle.Import(ctx, other, bytes.NewReader(backup.Bytes()), bundle.ImportOptions{By: by})
		check(err)
		fmt.Println("restored:", imported.Restored, "present:", imported.Present)
	}
	restored, err := other.Read(ctx, plan.ID)
	check(err)
	fmt.Println(restored.Name, restored.State.Status)
	// Output:
	// exported: 1
	// restored: 1 present: 0
	// restored: 0 present: 1
	// rollout Completed
}

// A truncated bundle is refused. The error names the byte.
func ExampleVerify() {
	ctx := context.Background()
	vault := memvault.New(nil, memvault.Options{})
	check(vault.Create(ctx, &workflow.Plan{Name: "rollout"}))
	var backup bytes.Buffer
	_, err := bundle.Export(ctx, vault, &backup, bundle.ExportOptions{})
	check(err)

	_, err = bundle.Verify(ctx, bytes.NewReader(backup.Bytes()[:50]), bundle.ImportOptions{})
	damage, _ := errors.AsType[*bundle.DamageError](err)
	fmt.Println(errors.Is(err, storage.ErrCorrupt), damage.Byte)
	// Output: true 50
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
