package crash_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// restoration restores a plan with a status.
func restoration(status workflow.Status) scenario {
	copied := func(shape vaulttest.Shape) *workflow.Plan { return vaulttest.Copied(shape(), status) }
	return making("Restore of a plan that is "+status.String(), copied, (*azblob.Vault).Restore)
}

// restorations are Restores of plans whose entries look like those of plans in use, or are final.
var restorations = []scenario{restoration(workflow.Running), restoration(workflow.Failed)}

// TestCrashInRestore crashes a Restore before and after each request: the plan is there or not, and Recovery
// finishes or removes it.
func TestCrashInRestore(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashEverywhere(t, plainWorld, restorations, vaulttest.Shapes)
}

func TestRestoreAgain(t *testing.T) { callAgain(t, restorations, smallOnly) }

// TestHalfRestoredPlan looks at a Running plan whose Restore died before the commit, in every way.
func TestHalfRestoredPlan(t *testing.T) {
	vaulttest.InBubble(t, "died before the object", func(t *testing.T, server *emulator.Server) {
		ctx, v, plan := t.Context(), vaulttest.OnEmulator(t, server), vaulttest.Copied(plantest.Small(), workflow.Running)
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.Restore(ctx, plan) })
		for _, of := range [][]workflow.Status{{workflow.NotStarted}, {workflow.Running}, {workflow.NotStarted, workflow.Running}} {
			if found := vaulttest.Collect(t, v, storage.Filters{ByStatus: of}); len(found) > 0 {
				t.Errorf("a search for %v finds %v", of, found)
			}
		}
		for name, err := range map[string]error{
			"Read": vaulttest.ErrOf(v.Read(ctx, plan.ID)), "Delete": v.Delete(ctx, plan.ID), "UpdatePlan": v.UpdatePlan(ctx, listed(plan)),
		} {
			if !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", name, err)
			}
		}
		if err := v.Restore(ctx, plan); !errors.Is(err, storage.ErrConflict) || !strings.Contains(err.Error(), "call again in") {
			t.Errorf("Restore beside recent remains: %v", err)
		}
		vaulttest.Settled(t, v)
		vaulttest.Empty(t, server)
		vaulttest.Must(t, v.Restore(ctx, plan))
		vaulttest.Same(t, v, plan)
	})
}

// listed returns a plan with a version as a listing would have it.
func listed(plan *workflow.Plan) *workflow.Plan {
	p := *plan
	p.State.ETag = driver.Version("0x1", &p)
	return &p
}

// TestRestoredPlanThatLostItsObject removes the object of plans that were restored. Until the first update, beside
// its marker, that looks like a Restore that died. Otherwise the rest of the plan stays.
func TestRestoredPlanThatLostItsObject(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status workflow.Status
		update bool
		left   bool
	}{
		{"Running", workflow.Running, false, false},
		{"Running and updated", workflow.Running, true, true},
		{"final", workflow.Completed, false, true},
	} {
		vaulttest.InBubble(t, tt.name, func(t *testing.T, server *emulator.Server) {
			v, plan := vaulttest.OnEmulator(t, server), vaulttest.Copied(plantest.Small(), tt.status)
			vaulttest.Must(t, v.Restore(t.Context(), plan))
			if _, marked := server.Blob(vaulttest.ContainerOf(time.Now()), "open/"+plan.ID.String()); marked == tt.status.Final() {
				t.Errorf("it has a marker: %t", marked)
			}
			if tt.update {
				vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
			}
			for c := range server.Containers() {
				server.Remove(c, "plans/"+plan.ID.String()+"-object.json")
			}
			time.Sleep(vaulttest.PastGrace)
			err := v.Recovery(t.Context())
			if left := vaulttest.Stored(server) > 0; left != tt.left {
				t.Errorf("something is left: %t, want %t; %v", left, tt.left, err)
			}
			if report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{}); err != nil || (len(report.Problems) > 0) != tt.left {
				t.Errorf("Check: %+v, %v", report, err)
			}
		})
	}
}

// TestLateRestore freezes a Restore between the write of its object and the answer until the grace period is
// over. An open plan may run by then, so it stays if it is whole, and no Recovery that has begun can remove it.
func TestLateRestore(t *testing.T) {
	for _, tt := range []struct {
		name string
		gone string // what a Recovery has removed meanwhile
		kept bool
	}{
		{"whole", "", true},
		{"without an action", "actions/", false},
		{"without its entry", "-entry.json", false},
	} {
		vaulttest.InBubble(t, tt.name, func(t *testing.T, server *emulator.Server) {
			v, plan := vaulttest.OnEmulator(t, server), vaulttest.Copied(plantest.Small(), workflow.Running)
			var before map[string]string
			slow := vaulttest.Faulty(t, server, vaulttest.AlmostLate(), emulator.On(emulator.PutBlob).Path("-object.json").Do(emulator.After(func() {
				before = vaulttest.Contents(server)
				for c := range server.Containers() {
					for b := range server.Blobs(c) {
						if tt.gone != "" && strings.Contains(b.Name, tt.gone) {
							server.Remove(c, b.Name)
						}
					}
				}
				time.Sleep(20 * time.Second)
			})))
			err := slow.Restore(t.Context(), plan)
			if tt.kept && !errors.Is(err, storage.ErrUnknown) || !tt.kept && !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("Restore: %v", err)
			}
			if tt.kept {
				for name, etag := range vaulttest.Contents(server) {
					if old := before[name]; old == etag && !strings.Contains(name, "open/") && !strings.Contains(name, "-object.json") {
						t.Errorf("a Recovery that has begun can remove %s", name)
					}
				}
			}
			vaulttest.Settled(t, v)
			if tt.kept {
				vaulttest.Same(t, v, plan)
			} else {
				vaulttest.Empty(t, server)
			}
		})
	}
}

// TestCheckOfRestoredPlans checks that Check finds nothing wrong with restored entries, also if their names do
// not fit into metadata.
func TestCheckOfRestoredPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "long names", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		for n := 7600; n < 8192; n += 37 {
			plan := vaulttest.Copied(&workflow.Plan{Name: strings.Repeat("n", n)}, workflow.Completed)
			vaulttest.Must(t, v.Restore(t.Context(), plan))
		}
		vaulttest.Sound(t, v)
	})
}
