package storagetest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// restoring is a vault whose Restore is another function.
type restoring struct {
	*memvault.Vault
	restore func(ctx context.Context, v *memvault.Vault, plan *workflow.Plan) error
}

func (r restoring) Restore(ctx context.Context, plan *workflow.Plan) error {
	err := r.restore(ctx, r.Vault, plan)
	if err != nil {
		return &storage.Error{Op: "Restore", Plan: plan.ID, Err: err}
	}
	return nil
}

// TestBrokenRestorersAreCaught breaks one promise of Restore after the other.
func TestBrokenRestorersAreCaught(t *testing.T) {
	for _, b := range []struct {
		breakage string
		restore  func(ctx context.Context, v *memvault.Vault, plan *workflow.Plan) error
		caughtBy string
	}{
		{"times are lost", func(ctx context.Context, v *memvault.Vault, plan *workflow.Plan) error {
			plan.State.Start = time.Time{}
			return v.Restore(ctx, plan)
		}, "restore/a plan of any status comes back as it was"},
		{"owners are lost", func(ctx context.Context, v *memvault.Vault, plan *workflow.Plan) error {
			plan.Owner, plan.Epoch = [16]byte{}, 0
			return v.Restore(ctx, plan)
		}, "restore/plans of any shape and text come back as they were"},
		{"versions are not set", func(ctx context.Context, v *memvault.Vault, plan *workflow.Plan) error {
			old := plan.Blocks[0].State.ETag
			err := v.Restore(ctx, plan)
			plan.Blocks[0].State.ETag = old
			return err
		}, "restore/a restored plan goes on to its end, with its own versions"},
		{"a plan is replaced", func(ctx context.Context, v *memvault.Vault, plan *workflow.Plan) error {
			_ = v.Delete(ctx, plan.ID)
			return v.Restore(ctx, plan)
		}, "restore/an ID that is taken is ErrExists, and the plan stays as it is"},
		{"each node wins", func(ctx context.Context, v *memvault.Vault, plan *workflow.Plan) error {
			_ = v.Restore(ctx, plan)
			return nil
		}, "restore/if two nodes restore one ID at once, one wins"},
		{"bad plans are stored", func(ctx context.Context, v *memvault.Vault, plan *workflow.Plan) error { return nil }, "restore/bad input is ErrInvalid with the field, and nothing is stored"},
	} {
		t.Run(b.breakage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fails(t, b.caughtBy, harness(func(v storage.Vault) storage.Vault { return restoring{v.(*memvault.Vault), b.restore} }))
			})
		})
	}
}
