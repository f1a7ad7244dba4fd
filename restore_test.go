package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// copied gives a plan a status, as a Read of another store would return it.
func copied(plan *workflow.Plan, status workflow.Status) *workflow.Plan {
	driver.Complete(plan)
	plantest.Finish(plan)
	plan.State.Status = status
	if !status.Final() {
		plan.State.End = time.Time{}
	}
	return plan
}

func restoration(status workflow.Status) scenario {
	return scenario{"Restore of a plan that is " + status.String(), func(_ *testing.T, _ world, shape shape) func() *call {
		return func() *call {
			plan := copied(shape(), status)
			return &call{
				do:   func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.Restore(ctx, plan) },
				plan: plan, after: plan, done: storage.ErrExists, blocked: storage.ErrConflict,
			}
		}
	}}
}

// restorations are Restores of plans whose entries look like those of plans in use, or are final.
var restorations = []scenario{restoration(workflow.Running), restoration(workflow.Failed)}

// TestCrashInRestore crashes a Restore before and after each request: the plan is there or not, and Recovery
// finishes or removes it.
func TestCrashInRestore(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashEverywhere(t, plainWorld, restorations, shapes)
}

// TestRestoreAgain calls a Restore that died again, at once and after the grace period.
func TestRestoreAgain(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	everywhere(t, plainWorld, restorations, smallOnly, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w world, c *call, first error) {
			v := w.vault(t)
			there := c.find(t, v) != nil
			switch err := c.do(t.Context(), t, v); {
			case there && !errors.Is(err, storage.ErrExists), !there && err != nil && !errors.Is(err, storage.ErrConflict):
				t.Fatalf("Restore again after %v: %v", first, err)
			case errors.Is(err, storage.ErrConflict):
				time.Sleep(pastGrace)
				if err := c.do(t.Context(), t, v); err != nil {
					t.Fatalf("Restore after the grace period: %v", err)
				}
			}
			settled(t, v)
			if c.find(t, v) == nil {
				t.Error("the plan is gone")
			}
		})
	})
}

// TestCostOfRestore compares the requests and round trips with the budget: those of a Create, and one for a final
// plan, whose marker it removes.
func TestCostOfRestore(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	const latency = time.Second
	for status := workflow.NotStarted; status.Valid(); status++ {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.WithLatency(latency))
			v := onEmulator(t, server)
			created(t, v, plantest.Small()) // the day is there
			plan := copied(plantest.Sized(4, 4, 4), status)
			server.ResetRequests()
			began := time.Now()
			must(t, v.Restore(t.Context(), plan))
			requests, trips := len(subObjects(plan))+3, 4
			if status.Final() {
				requests, trips = requests+1, trips+1
			}
			if n := len(server.Requests()); n > requests {
				t.Errorf("%s: %d requests, %d are the budget", status, n, requests)
			}
			if n := int(time.Since(began) / latency); n > trips {
				t.Errorf("%s: %d round trips, %d are the budget", status, n, trips)
			}
			if _, marked := server.Blob(containerOf(time.Now()), "open/"+plan.ID.String()); marked == status.Final() {
				t.Errorf("%s: has a marker: %t", status, marked)
			}
		})
	}
}

// TestHalfRestoredPlan looks at a Running plan whose Restore died before the commit, in every way.
func TestHalfRestoredPlan(t *testing.T) {
	inBubble(t, "died before the object", func(t *testing.T, server *emulator.Server) {
		ctx, v, plan := t.Context(), onEmulator(t, server), copied(plantest.Small(), workflow.Running)
		dies(t, server, emulator.On(emulator.PutBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.Restore(ctx, plan) })
		for _, status := range []workflow.Status{workflow.NotStarted, workflow.Running} {
			if found := collect(t, v, storage.Filters{ByStatus: []workflow.Status{status}}); len(found) > 0 {
				t.Errorf("a search for %s finds %v", status, found)
			}
		}
		if found := collect(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}); len(found) > 0 {
			t.Errorf("a search for open plans finds %v", found)
		}
		for name, err := range map[string]error{
			"Read": second(v.Read(ctx, plan.ID)), "Delete": v.Delete(ctx, plan.ID), "UpdatePlan": v.UpdatePlan(ctx, listed(plan)),
		} {
			if !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", name, err)
			}
		}
		if err := v.Restore(ctx, plan); !errors.Is(err, storage.ErrConflict) || !strings.Contains(err.Error(), "call again in") {
			t.Errorf("Restore beside recent remains: %v", err)
		}
		settled(t, v)
		if n := stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
		must(t, v.Restore(ctx, plan))
		same(t, v, plan)
	})
}

func second[T any](_ T, err error) error { return err }

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
		inBubble(t, tt.name, func(t *testing.T, server *emulator.Server) {
			v, plan := onEmulator(t, server), copied(plantest.Small(), tt.status)
			must(t, v.Restore(t.Context(), plan))
			if tt.update {
				must(t, v.UpdatePlan(t.Context(), plan))
			}
			for c := range server.Containers() {
				server.Remove(c, "plans/"+plan.ID.String()+"-object.json")
			}
			time.Sleep(pastGrace)
			err := v.Recovery(t.Context())
			if left := stored(server) > 0; left != tt.left {
				t.Errorf("something is left: %t, want %t; %v", left, tt.left, err)
			}
			if report, err := v.Check(t.Context(), azblob.CheckOptions{}); err != nil || (len(report.Problems) > 0) != tt.left {
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
		inBubble(t, tt.name, func(t *testing.T, server *emulator.Server) {
			v, plan := onEmulator(t, server), copied(plantest.Small(), workflow.Running)
			slow := server.Transport()
			slow.Inject(emulator.On(emulator.PutBlob).Path("actions/").Nth(1).Do(emulator.Answer(503, "ServerBusy").RetryAfter(590 * time.Second)))
			var before map[string]string
			transport := after{slow, func(req *http.Request) {
				if req.Method != http.MethodPut || !strings.HasSuffix(req.URL.Path, "-object.json") {
					return
				}
				before = etags(server)
				for c := range server.Containers() {
					for b := range server.Blobs(c) {
						if tt.gone != "" && strings.Contains(b.Name, tt.gone) {
							server.Remove(c, b.Name)
						}
					}
				}
				time.Sleep(20 * time.Second)
			}}
			err := onEmulator(t, server, azblob.WithTransport(transport)).Restore(t.Context(), plan)
			if tt.kept && !errors.Is(err, storage.ErrUnknown) || !tt.kept && !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("Restore: %v", err)
			}
			if tt.kept {
				for name, etag := range etags(server) {
					if old := before[name]; old == etag && !strings.Contains(name, "open/") && !strings.Contains(name, "-object.json") {
						t.Errorf("a Recovery that has begun can remove %s", name)
					}
				}
			}
			settled(t, v)
			if tt.kept {
				same(t, v, plan)
			} else if n := stored(server); n != 0 {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
}

// etags returns the version of each stored blob.
func etags(server *emulator.Server) map[string]string {
	all := map[string]string{}
	for c := range server.Containers() {
		for b := range server.Blobs(c) {
			all[c+"/"+b.Name] = b.ETag
		}
	}
	return all
}

// TestCheckOfRestoredPlans checks that Check finds nothing wrong with restored entries, also if their names do
// not fit into metadata.
func TestCheckOfRestoredPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inBubble(t, "long names", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		for n := 7600; n < 8192; n += 37 {
			plan := copied(&workflow.Plan{Name: strings.Repeat("n", n)}, workflow.Completed)
			must(t, v.Restore(t.Context(), plan))
		}
		sound(t, v)
	})
}

// restorer restores the plan with a name and a status.
func restorer(name, plan string, status workflow.Status) actor {
	return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		return v.Restore(ctx, inUse(small(plan), status))
	}}
}

// inUse gives a plan of the tests of interleavings a status; it is the same in each run.
func inUse(plan *workflow.Plan, status workflow.Status) *workflow.Plan {
	for o := range workflow.Walk(plan) {
		o.Header().State.Status = workflow.Completed
	}
	plan.State.Status = status
	return plan
}

// openSearcher searches for open plans, as engines do.
func openSearcher() actor {
	return observer("open searcher", func(ctx context.Context, v *azblob.Vault, _ *testing.T) (bool, workflow.Status, error) {
		found, err := storage.Collect(v.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}))
		for _, r := range found {
			if r.ID == target {
				return true, r.State.Status, err
			}
		}
		return false, unsaid, err
	})
}

// TestRestoreInterleavings explores a Restore beside readers, Creates, Deletes and Recovery.
func TestRestoreInterleavings(t *testing.T) {
	efforttest.NotShort(t, "a scheduler lets one request go at a time")
	running, failed, fresh := inUse(small("one"), workflow.Running), inUse(small("one"), workflow.Failed), small("second")
	judge := func(plans map[string]*workflow.Plan) func(r *run, v *azblob.Vault) {
		return func(r *run, v *azblob.Vault) {
			r.creators(v, plans, storage.ErrUnknown, storage.ErrUnavailable)
			for _, a := range r.actors {
				if strings.HasPrefix(a.name, "recovery") {
					r.returned(a.name)
				}
			}
		}
	}
	lost := []emulator.Effect{emulator.LostAnswer(), emulator.Crash(), emulator.Crash().Applied()}
	var spaces []space
	for _, plan := range []*workflow.Plan{running, failed} {
		status := plan.State.Status
		first, only := restorer("first", "one", status), judge(map[string]*workflow.Plan{"first": plan})
		observers := []actor{reader(&plan), prober(), searcher()}
		if !status.Final() {
			observers = append(observers, openSearcher())
		}
		for _, o := range observers {
			spaces = append(spaces, space{name: fmt.Sprintf("a restore of %s and a %s", status, o.name), actors: []actor{first, o}, judge: only})
		}
		both := judge(map[string]*workflow.Plan{"first": plan, "second": fresh})
		spaces = append(
			spaces,
			space{name: fmt.Sprintf("a restore of %s and a creator", status), actors: []actor{first, creator("second", "second")}, judge: both},
			space{name: fmt.Sprintf("a restore of %s and a recovery", status), actors: []actor{first, recoverer("recovery")}, judge: only},
			space{name: fmt.Sprintf("a frozen restore of %s and a recovery", status), actors: []actor{first, recoverer("recovery")}, clock: grace, effects: lost, judge: only},
			space{name: fmt.Sprintf("a restore of %s, a creator and a recovery", status), actors: []actor{first, creator("second", "second"), recoverer("recovery")}, clock: long, judge: both},
		)
	}
	for i, s := range spaces {
		t.Run(s.name, func(t *testing.T) {
			if !sampled(3, 0, i) {
				t.Skip("left out without PLANVAULT_LONG")
			}
			s.explore(t)
		})
	}
}
