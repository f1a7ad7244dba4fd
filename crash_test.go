package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// pastGrace is long enough for Recovery to touch what was left at its beginning.
const pastGrace = 15 * time.Minute

// shapes are the plans that crashes are tried on.
var shapes = map[string]func() *workflow.Plan{
	"empty": func() *workflow.Plan { return &workflow.Plan{Name: "empty"} },
	"small": plantest.Small,
	"kinds": eachKind,
}

// eachKind is the smallest plan that has an object of each kind.
func eachKind() *workflow.Plan {
	plan := plantest.Small()
	action := func() *workflow.Action { return &workflow.Action{Name: "more", Plugin: plantest.PluginName} }
	plan.PreChecks = &workflow.Checks{Actions: []*workflow.Action{action()}}
	plan.Blocks[0].PostChecks = &workflow.Checks{}
	plan.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{Name: "batch", Actions: []*workflow.Action{action()}}}}
	return plan
}

// atEveryCrash runs a scenario once for each request of its operation and each of "before" and "after it took effect", with
// the process dying there: prepare on a healthy vault, operate on the one that dies, then judge on a clone of the store with a
// new vault, as the restarted process finds it. died is nil for the run without a crash, which ends it all.
func atEveryCrash(
	t *testing.T,
	prepare func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan,
	operate func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error,
	judge func(t *testing.T, v *azblob.Vault, plan *workflow.Plan, err error, crashed bool),
) {
	for _, crash := range []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()} {
		for n := 1; ; n++ {
			crashed := true
			t.Run(fmt.Sprintf("%v at %d", crash, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := emulator.New()
					strict(t, server)
					plan := prepare(t, server, onEmulator(t, server))

					dying := server.Transport()
					dying.Inject(emulator.On().Nth(n).Do(crash))
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					err := operate(ctx, onEmulator(t, server, azblob.WithTransport(dying)), plan)
					crashed = dying.Crashed()

					judge(t, onEmulator(t, server.Clone()), plan, err, crashed)
				})
			})
			if t.Failed() {
				return
			}
			if !crashed {
				t.Logf("%v: %d requests", crash, n-1)
				break
			}
		}
	}
}

// settled is what every store must be after the grace period and a Recovery.
func settled(t *testing.T, v *azblob.Vault) azblob.CheckReport {
	t.Helper()
	time.Sleep(pastGrace)
	if err := v.Recovery(t.Context()); err != nil {
		t.Fatalf("Recovery: %v", err)
	}
	report := sound(t, v)
	if report.InProgress != 0 {
		t.Errorf("%d plans are in progress after Recovery", report.InProgress)
	}
	return report
}

// wholeOrGone reads a plan and fails the test unless it is one of the wanted ones, or absent where that is nil.
func wholeOrGone(t *testing.T, v *azblob.Vault, wanted ...*workflow.Plan) (found *workflow.Plan) {
	t.Helper()
	id := wanted[0].ID
	got, err := v.Read(t.Context(), id)
	shown := false
	list, listErr := v.List(t.Context(), 0)
	if listErr != nil {
		t.Fatal(listErr)
	}
	for r := range list {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		shown = shown || r.Result.ID == id
	}
	exists, existsErr := v.Exists(t.Context(), id)
	if existsErr != nil {
		t.Fatal(existsErr)
	}
	if errors.Is(err, storage.ErrNotFound) {
		if shown || exists {
			t.Errorf("Read does not find the plan; List shows it: %v, Exists: %v", shown, exists)
		}
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if !shown || !exists {
		t.Errorf("Read finds the plan; List shows it: %v, Exists: %v", shown, exists)
	}
	var d string
	for _, plan := range wanted {
		if d = plantest.Diff(plan, got); d == "" {
			return plan
		}
	}
	t.Fatalf("the plan is none of those it may be: %s", d)
	return nil
}

func TestCrashInCreate(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			atEveryCrash(t,
				func(*testing.T, *emulator.Server, *azblob.Vault) *workflow.Plan { return shape() },
				func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.Create(ctx, plan) },
				func(t *testing.T, v *azblob.Vault, plan *workflow.Plan, err error, crashed bool) {
					if (err == nil) == crashed {
						t.Errorf("crashed: %v, Create: %v", crashed, err)
					}
					if err != nil && !errors.Is(err, storage.ErrUnknown) {
						t.Errorf("Create: %v, want ErrUnknown", err)
					}
					early := wholeOrGone(t, v, plan)
					// A restarted process may well call Recovery at once: it must leave all as it is.
					if err := v.Recovery(t.Context()); err != nil {
						t.Fatal(err)
					}
					if again := wholeOrGone(t, v, plan); again != early {
						t.Errorf("Recovery within the grace period changed what Read finds")
					}
					report := settled(t, v)
					late := wholeOrGone(t, v, plan)
					if late != early {
						t.Errorf("Recovery changed whether the plan is there")
					}
					if err == nil && late == nil {
						t.Error("Create returned nil, and the plan is not there")
					}
					if late == nil && report.Blobs != 0 {
						t.Errorf("%d blobs are left", report.Blobs)
					}
				})
		})
	}
}

// running prepares a plan that is about to end: Running, with all its parts finished. It returns the plan as it will be.
func running(t *testing.T, v *azblob.Vault, plan *workflow.Plan) (before, after *workflow.Plan) {
	t.Helper()
	ctx := t.Context()
	if err := v.Create(ctx, plan); err != nil {
		t.Fatal(err)
	}
	plan.State.Status = workflow.Running
	if err := v.UpdatePlan(ctx, plan); err != nil {
		t.Fatal(err)
	}
	state := plan.State
	plantest.Finish(plan)
	done := plan.State
	plan.State = state
	for o, parent := range workflow.Walk(plan) {
		if parent == nil {
			continue
		}
		if err := updateObject(t, v, o); err != nil {
			t.Fatal(err)
		}
	}
	done.ETag = plan.State.ETag
	finished := *plan
	finished.State = done
	return plan, &finished
}

func TestCrashInCompletion(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			var before, after *workflow.Plan
			atEveryCrash(t,
				func(t *testing.T, _ *emulator.Server, v *azblob.Vault) *workflow.Plan {
					before, after = running(t, v, shape())
					plan := *after
					return &plan
				},
				func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.UpdatePlan(ctx, plan) },
				func(t *testing.T, v *azblob.Vault, _ *workflow.Plan, err error, crashed bool) {
					if (err == nil) == crashed || err != nil && !errors.Is(err, storage.ErrUnknown) {
						t.Errorf("crashed: %v, UpdatePlan: %v", crashed, err)
					}
					early := wholeOrGone(t, v, before, after)
					settled(t, v)
					if late := wholeOrGone(t, v, before, after); late != early || late == nil {
						t.Errorf("Recovery changed what Read finds")
					}
				})
		})
	}
}

func TestCrashInDelete(t *testing.T) {
	for name, shape := range shapes {
		for _, final := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s final %v", name, final), func(t *testing.T) {
				atEveryCrash(t,
					func(t *testing.T, _ *emulator.Server, v *azblob.Vault) *workflow.Plan {
						before, after := running(t, v, shape())
						if !final {
							return before
						}
						if err := v.UpdatePlan(t.Context(), after); err != nil {
							t.Fatal(err)
						}
						return after
					},
					func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) },
					func(t *testing.T, v *azblob.Vault, plan *workflow.Plan, err error, crashed bool) {
						if (err == nil) == crashed {
							t.Errorf("crashed: %v, Delete: %v", crashed, err)
						}
						early := wholeOrGone(t, v, plan)
						report := settled(t, v)
						if late := wholeOrGone(t, v, plan); late != early {
							t.Errorf("Recovery changed whether the plan is there")
						}
						if early == nil && report.Blobs != 0 {
							t.Errorf("%d blobs are left", report.Blobs)
						}
					})
			})
		}
	}
}

// TestDeleteAgain finishes a Delete that died by calling it again, without any Recovery.
func TestDeleteAgain(t *testing.T) {
	atEveryCrash(t,
		func(t *testing.T, _ *emulator.Server, v *azblob.Vault) *workflow.Plan {
			before, _ := running(t, v, eachKind())
			return before
		},
		func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) },
		func(t *testing.T, v *azblob.Vault, plan *workflow.Plan, first error, _ bool) {
			err := v.Delete(t.Context(), plan.ID)
			if err != nil && !errors.Is(err, storage.ErrNotFound) {
				t.Fatalf("Delete again after %v: %v", first, err)
			}
			if report := sound(t, v); report.Blobs != 0 {
				t.Errorf("%d blobs are left", report.Blobs)
			}
		})
}

// TestCrashInRecovery lets Recovery die everywhere, on everything that other crashes leave.
func TestCrashInRecovery(t *testing.T) {
	leave := map[string]func(t *testing.T, server *emulator.Server) *workflow.Plan{
		"create without object": func(t *testing.T, server *emulator.Server) *workflow.Plan {
			plan := eachKind()
			dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
			return plan
		},
		"create with a marker alone": func(t *testing.T, server *emulator.Server) *workflow.Plan {
			plan := eachKind()
			dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-entry.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
			return plan
		},
		"completion without object": func(t *testing.T, server *emulator.Server) *workflow.Plan {
			_, after := running(t, onEmulator(t, server), eachKind())
			dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) {
				plan := *after
				_ = v.UpdatePlan(t.Context(), &plan)
			})
			return after
		},
		"delete with a delete marker alone": func(t *testing.T, server *emulator.Server) *workflow.Plan {
			before, _ := running(t, onEmulator(t, server), eachKind())
			dies(t, server, emulator.On(emulator.DeleteBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Delete(t.Context(), before.ID) })
			return before
		},
		"delete without object": func(t *testing.T, server *emulator.Server) *workflow.Plan {
			before, _ := running(t, onEmulator(t, server), eachKind())
			dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), before.ID) })
			return before
		},
		"delete without entry": func(t *testing.T, server *emulator.Server) *workflow.Plan {
			before, _ := running(t, onEmulator(t, server), eachKind())
			dies(t, server, emulator.On(emulator.BatchDelete).Nth(2), func(v *azblob.Vault) { _ = v.Delete(t.Context(), before.ID) })
			return before
		},
	}
	for name, leave := range leave {
		t.Run(name, func(t *testing.T) {
			atEveryCrash(t,
				func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan {
					plan := leave(t, server)
					time.Sleep(pastGrace)
					return plan
				},
				func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error { return v.Recovery(ctx) },
				func(t *testing.T, v *azblob.Vault, plan *workflow.Plan, err error, crashed bool) {
					if (err == nil) == crashed {
						t.Errorf("crashed: %v, Recovery: %v", crashed, err)
					}
					early := wholeOrGone(t, v, plan)
					report := settled(t, v)
					if late := wholeOrGone(t, v, plan); late != early {
						t.Error("a second Recovery changed whether the plan is there")
					}
					if early == nil && report.Blobs != 0 {
						t.Errorf("%d blobs are left", report.Blobs)
					}
				})
		})
	}
}

// dies runs do on a vault that dies at the request the rule says, before it takes effect.
func dies(t *testing.T, server *emulator.Server, at *emulator.Rule, do func(v *azblob.Vault)) {
	t.Helper()
	dying := server.Transport()
	dying.Inject(at.Do(emulator.Crash()))
	do(onEmulator(t, server, azblob.WithTransport(dying), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Second})))
	if !dying.Crashed() {
		t.Fatalf("the process did not die: %v", at)
	}
}
