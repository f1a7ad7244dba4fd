package azblob_test

import (
	"context"
	"errors"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestLife takes a plan through its whole life.
func TestLife(t *testing.T) {
	onServices(t, func(t *testing.T, open func(opts ...azblob.Option) *azblob.Vault) {
		ctx := t.Context()
		v := open()
		plan := plantest.Full()
		must(t, v.Create(ctx, plan))
		same(t, v, plan)
		if err := v.Create(ctx, plan); !errors.Is(err, storage.ErrExists) {
			t.Errorf("a second Create: %v", err)
		}
		plan, err := v.Read(ctx, plan.ID)
		must(t, err)

		plan.State.Status = workflow.Running
		must(t, v.UpdatePlan(ctx, plan))
		same(t, v, plan)
		finished := finishParts(t, v, plan)
		same(t, v, plan)
		plan.State = finished
		must(t, v.UpdatePlan(ctx, plan))
		same(t, v, plan)
		sound(t, v)
		must(t, v.Delete(ctx, plan.ID))
		if _, err := v.Read(ctx, plan.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Read after Delete: %v", err)
		}
		if r := sound(t, v); r.Blobs != 0 {
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
		must(t, err)
		must(t, v.Close(ctx))
	}
}

// same compares what the vault shows of a plan with the plan.
func same(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
	t.Helper()
	got, err := v.Read(t.Context(), plan.ID)
	must(t, err)
	if d := plantest.Diff(plan, got); d != "" {
		t.Fatal(d)
	}
	list, err := v.List(t.Context(), 0)
	must(t, err)
	n := 0
	for r := range list {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if r.Result.ID != plan.ID {
			continue
		}
		n++
		if r.Result.Name != plan.Name || r.Result.Descr != plan.Descr || r.Result.GroupID != plan.GroupID ||
			r.Result.State.Status != plan.State.Status || !r.Result.SubmitTime.Equal(plan.SubmitTime) {
			t.Errorf("List shows %+v of %+v", r.Result, plan)
		}
	}
	if n != 1 {
		t.Errorf("List shows the plan %d times", n)
	}
	if ok, err := v.Exists(t.Context(), plan.ID); !ok || err != nil {
		t.Errorf("Exists: %v, %v", ok, err)
	}
}

// sound fails the test if Check finds a problem.
func sound(t *testing.T, v *azblob.Vault) azblob.CheckReport {
	t.Helper()
	report, err := v.Check(t.Context(), azblob.CheckOptions{})
	must(t, err)
	for _, p := range report.Problems {
		t.Error(p)
	}
	return report
}

func updateObject(t *testing.T, v *azblob.Vault, o workflow.Object) error {
	t.Helper()
	return storage.Update(t.Context(), v, o)
}
