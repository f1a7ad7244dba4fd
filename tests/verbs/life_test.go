package verbs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestLife takes a plan through its whole life.
func TestLife(t *testing.T) {
	vaulttest.OnServices(t, func(t *testing.T, open func(opts ...azblob.Option) *azblob.Vault) {
		ctx := t.Context()
		v := open()
		plan := plantest.Full()
		vaulttest.Must(t, v.Create(ctx, plan))
		vaulttest.Same(t, v, plan)
		if err := v.Create(ctx, plan); !errors.Is(err, storage.ErrExists) {
			t.Errorf("a second Create: %v", err)
		}
		plan, err := v.Read(ctx, plan.ID)
		vaulttest.Must(t, err)

		plan.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdatePlan(ctx, plan))
		vaulttest.Same(t, v, plan)
		finished := vaulttest.FinishParts(t, v, plan)
		vaulttest.Same(t, v, plan)
		plan.State = finished
		vaulttest.Must(t, v.UpdatePlan(ctx, plan))
		vaulttest.Same(t, v, plan)
		vaulttest.Sound(t, v)
		vaulttest.Must(t, v.Delete(ctx, plan.ID))
		if _, err := v.Read(ctx, plan.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Read after Delete: %v", err)
		}
		if r := vaulttest.Sound(t, v); r.Blobs != 0 {
			t.Errorf("%d blobs are left after Delete", r.Blobs)
		}
	})
}

// TestCloseOfAnIdleVault closes an idle vault with an ended context. Close has nothing to wait for and
// succeeds.
func TestCloseOfAnIdleVault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 64 { // a choice by chance would be right as often
		v, err := azblob.NewFromConnectionString(t.Context(), "test", emulator.New().ConnectionString(), nil)
		vaulttest.Must(t, err)
		vaulttest.Must(t, v.Close(ctx))
	}
}
