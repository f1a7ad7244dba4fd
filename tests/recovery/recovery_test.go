package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestRecovery checks that Recovery repairs everything that a crash can leave, and changes nothing else.
func TestRecovery(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "each state", func(t *testing.T, server *emulator.Server) {
		found, whole := vaulttest.Wreck(t, server)
		time.Sleep(vaulttest.PastGrace)
		v := vaulttest.OnEmulator(t, server)

		before := vaulttest.Contents(server)
		report, err := v.Repair(t.Context(), azblob.RepairOptions{DryRun: true})
		vaulttest.Must(t, err)
		if !maps.Equal(before, vaulttest.Contents(server)) {
			t.Error("a dry run changed something")
		}
		check := func(what string, report azblob.RepairReport, did bool) {
			t.Helper()
			got := map[uuid.UUID]string{}
			for _, p := range report.Plans {
				got[p.ID] = p.Found
				if (p.Did != "") != did || p.Err != nil {
					t.Errorf("%s: %+v", what, p)
				}
			}
			for id, want := range found {
				if !strings.HasPrefix(got[id], want) {
					t.Errorf("%s found %q, want %q", what, got[id], want)
				}
			}
			if len(got) != len(found) || report.Open != 3 && did || report.Recent != 0 || report.Days != 1 {
				t.Errorf("%s: %+v", what, report)
			}
			if !slices.IsSortedFunc(report.Plans, func(a, b azblob.RepairedPlan) int { return strings.Compare(b.ID.String(), a.ID.String()) }) {
				t.Errorf("%s: the plans are not newest first", what)
			}
		}
		check("a dry run", report, false)
		if report, err = v.Repair(t.Context(), azblob.RepairOptions{}); err != nil {
			t.Fatal(err)
		}
		check("Recover", report, true)
		for _, p := range whole {
			vaulttest.Same(t, v, p)
		}
		if report := vaulttest.Sound(t, v); report.Plans != len(whole) || report.InProgress != 0 {
			t.Errorf("%+v", report)
		}
		before = vaulttest.Contents(server)
		report, err = v.Repair(t.Context(), vaulttest.Thorough)
		if err != nil || len(report.Plans) != 0 || report.Open != 3 || !maps.Equal(before, vaulttest.Contents(server)) {
			t.Errorf("once more: %+v, %v", report, err)
		}
	})
	vaulttest.InBubble(t, "on many nodes at once", func(t *testing.T, server *emulator.Server) {
		_, whole := vaulttest.Wreck(t, server)
		time.Sleep(vaulttest.PastGrace)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				vaulttest.Should(t, vaulttest.OnEmulator(t, server).Recovery(t.Context()))
			})
		}
		wg.Wait()
		v := vaulttest.OnEmulator(t, server)
		vaulttest.Settled(t, v)
		for _, p := range whole {
			vaulttest.Same(t, v, p)
		}
	})
	vaulttest.InBubble(t, "under faults", func(t *testing.T, server *emulator.Server) {
		_, whole := vaulttest.Wreck(t, server)
		time.Sleep(vaulttest.PastGrace)
		v := vaulttest.Faulty(t, server,
			emulator.On().Chance(0.1, 1).Do(emulator.LostAnswer()), emulator.On().Chance(0.1, 2).Do(emulator.Answer(503, "ServerBusy")),
			emulator.On().Chance(0.05, 3).Do(emulator.Duplicate(2)), emulator.On().Chance(0.05, 4).Do(emulator.LostRequest()))
		vaulttest.Must(t, v.Recovery(t.Context()))
		server.DeliverLate()
		vaulttest.Settled(t, vaulttest.OnEmulator(t, server))
		for _, p := range whole {
			vaulttest.Same(t, vaulttest.OnEmulator(t, server), p)
		}
	})
	vaulttest.InBubble(t, "in a container that was made by hand", func(t *testing.T, server *emulator.Server) {
		_, whole := vaulttest.Wreck(t, server)
		other := emulator.New() // the same blobs, without markers and container metadata
		for c := range server.Containers() {
			other.PutContainer(c, nil)
			for b := range server.Blobs(c) {
				if strings.HasPrefix(b.Name, "plans/") || !strings.HasPrefix(b.Name, "open/") {
					other.Put(c, b.Name, b.Body, b.Metadata)
				}
			}
		}
		// Remove the debris that only markers led to.
		time.Sleep(vaulttest.PastGrace)
		v := vaulttest.OnEmulator(t, other)
		vaulttest.Must(t, v.Recovery(t.Context()))
		report, err := v.Check(t.Context(), azblob.CheckOptions{})
		vaulttest.Must(t, err)
		for _, p := range report.Problems {
			if p.Kind != azblob.Orphan {
				t.Error(p)
			}
		}
		for _, p := range whole {
			vaulttest.Same(t, v, p)
		}
	})
}

// TestRecoveryLeavesRecentBlobsAlone waits for grace period and margin, by the service's clock alone.
func TestRecoveryLeavesRecentBlobsAlone(t *testing.T) {
	for _, skew := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour, 15 * time.Minute} {
		t.Run(fmt.Sprintf("with a clock %v off", skew), func(t *testing.T) {
			// The vaults use the bubble's clock, and the service's clock is off. They use tokens, because
			// signatures would be refused.
			vaulttest.InBubbleOf(t, emulator.New(emulator.WithClock(func() time.Time { return time.Now().Add(skew) })), func(t *testing.T, server *emulator.Server) {
				open := func() *azblob.Vault { return vaulttest.WithToken(t, server) }
				diesAtOnce(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), vaulttest.EachKind())
				before := vaulttest.Contents(server)
				for _, wait := range []time.Duration{0, 10 * time.Minute, 2 * time.Minute} { // together less than grace and margin
					time.Sleep(wait)
					report, err := open().Repair(t.Context(), azblob.RepairOptions{})
					if err != nil || report.Recent != 1 || len(report.Plans) != 0 {
						t.Fatalf("%+v, %v", report, err)
					}
					if !maps.Equal(before, vaulttest.Contents(server)) {
						t.Fatal("Recovery touched recent blobs")
					}
				}
				time.Sleep(40 * time.Second)
				report, err := open().Repair(t.Context(), azblob.RepairOptions{})
				if err != nil || report.Recent != 0 || len(report.Plans) != 1 || vaulttest.Stored(server) != 0 {
					t.Errorf("%+v, %v; %d blobs are left", report, err, vaulttest.Stored(server))
				}
			})
		})
	}
}

// TestRecoveryOfLostParts reports lost blobs, and rewrites them only when asked to.
func TestRecoveryOfLostParts(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		// Another plan follows the one that Recovery can't repair, in whatever order it works.
		others := []*workflow.Plan{vaulttest.EachKind(), vaulttest.EachKind()}
		broken := func(plan *workflow.Plan) {
			vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
			time.Sleep(time.Millisecond)
		}
		broken(others[0])
		plan := vaulttest.Created(t, v, vaulttest.EachKind())
		time.Sleep(time.Millisecond)
		broken(others[1])
		time.Sleep(vaulttest.PastGrace)
		for c := range server.Containers() {
			for o, parent := range workflow.Walk(plan) {
				if parent != nil && o.Kind() != workflow.KindAction {
					for b := range server.Blobs(c) {
						if strings.Contains(b.Name, o.Header().ID.String()) {
							server.Remove(c, b.Name)
						}
					}
				}
			}
		}
		one := vaulttest.OnEmulator(t, server, azblob.WithConcurrency(1)) // so that one plan comes after the other
		report, err := one.Repair(t.Context(), azblob.RepairOptions{})
		if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), plan.ID.String()) || len(report.Plans) != 3 {
			t.Errorf("%+v, %v", report, err)
		}
		for b := range vaulttest.Contents(server) {
			if strings.Contains(b, others[0].ID.String()) || strings.Contains(b, others[1].ID.String()) {
				t.Fatalf("a plan that can't be mended kept Recovery from another: %s is left", b)
			}
		}
		if report, err = v.Repair(t.Context(), vaulttest.Thorough); err != nil || len(report.Plans) != 1 {
			t.Errorf("%+v, %v", report, err)
		}
		vaulttest.Same(t, v, plan)
		vaulttest.Sound(t, v)
		plan.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
		for o := range workflow.Walk(vaulttest.Reread(t, v, plan)) { // the versions are those of the rewritten sub-objects
			vaulttest.Should(t, storage.Update(t.Context(), v, o))
		}
	})
}

// TestRecoveryBesideACreate starts a Create of the same ID at every point of a Recovery that removes the
// remains of an earlier one.
func TestRecoveryBesideACreate(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, left := range []string{"plans/*-entry.json", "plans/*-object.json"} {
		vaulttest.BeforeEach(t, "before "+left, func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
			plan := plantest.Small()
			vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path(left), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
			time.Sleep(vaulttest.PastGrace)
			again := plantest.Small()
			again.ID = plan.ID
			var err error
			v := at.Vault(t, server, func() { err = vaulttest.OnEmulator(t, server).Create(t.Context(), again) })
			vaulttest.Must(t, v.Recovery(t.Context()))
			v = vaulttest.OnEmulator(t, server)
			switch {
			case !at.Came():
			case err == nil:
				vaulttest.Same(t, v, again)
			case !errors.Is(err, storage.ErrConflict):
				t.Errorf("Create: %v", err)
			}
			report := vaulttest.Settled(t, v)
			if at.Came() && err == nil {
				vaulttest.Same(t, v, again)
			} else if report.Blobs != 0 {
				t.Errorf("%d blobs are left", report.Blobs)
			}
		})
	}
}

// TestRecoveryLooksTwice changes a plan between Recovery's listing and its second look. Recovery acts on what
// it finds then.
func TestRecoveryLooksTwice(t *testing.T) {
	vaulttest.InBubble(t, "the plan is created, and grows old", func(t *testing.T, server *emulator.Server) {
		plan := plantest.Small()
		driver.Complete(plan)
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-entry.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
		time.Sleep(vaulttest.PastGrace)
		slow := server.Transport()
		slow.SetGate(vaulttest.Before(emulator.HeadBlob, "-object.json", func() {
			vaulttest.Should(t, vaulttest.OnEmulator(t, server).Create(t.Context(), plan))
			time.Sleep(vaulttest.PastGrace)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 3*vaulttest.PastGrace)
		defer cancel()
		vaulttest.Should(t, vaulttest.OnEmulator(t, server, azblob.WithTransport(slow), azblob.WithConcurrency(1)).Recovery(ctx))
		vaulttest.Same(t, vaulttest.OnEmulator(t, server), plan)
		vaulttest.Sound(t, vaulttest.OnEmulator(t, server))
	})
	vaulttest.InBubble(t, "the plan is another one of its ID", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan, again := vaulttest.Created(t, v, vaulttest.EachKind()), vaulttest.EachKind()
		again.ID = plan.ID
		transport := server.Transport()
		transport.SetGate(vaulttest.Before(emulator.HeadBlob, "blocks/", func() {
			vaulttest.Should(t, errors.Join(v.Delete(t.Context(), plan.ID), v.Create(t.Context(), again)))
		}))
		report, err := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).Repair(t.Context(), azblob.RepairOptions{})
		if err != nil || len(report.Plans) > 0 {
			t.Errorf("it reports %+v, %v", report, err)
		}
		vaulttest.Same(t, v, again)
		vaulttest.Sound(t, v)
	})
}

// TestRecoveryBesideAnUpdate updates a sub-object between Recovery's listing and its removal. The sub-object
// is not left behind without anything that leads to it.
func TestRecoveryBesideAnUpdate(t *testing.T) {
	vaulttest.InBubble(t, "a sub-object", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan, _ := vaulttest.Running(t, v, plantest.Small())
		vaulttest.Dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
		time.Sleep(vaulttest.PastGrace)
		action := plan.Blocks[0].Sequences[0].Actions[0]
		transport := server.Transport()
		transport.SetGate(vaulttest.Before(emulator.BatchDelete, "", func() {
			action.Descr = "written late"
			vaulttest.Should(t, v.UpdateAction(t.Context(), action))
		}))
		vaulttest.Should(t, vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).Recovery(t.Context()))
		vaulttest.Sound(t, v)
		vaulttest.Settled(t, v)
		vaulttest.Empty(t, server)
	})
}

// TestEntrySetBack gives Recovery a final object beside an entry that is not final, as after a failover that
// lost the newest write of one blob. The plan was final, so a thorough Recovery restores it. Any other reports it.
func TestEntrySetBack(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, vaulttest.EachKind())
		vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
		for c := range server.Containers() {
			vaulttest.RewriteStatus(server, c, plan, "entry", "Running")
			server.Put(c, "open/"+plan.ID.String(), nil, nil)
		}
		before := vaulttest.Contents(server)
		if _, err := v.Read(t.Context(), plan.ID); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("Read: %v, want ErrCorrupt", err)
		}
		report, err := v.Repair(t.Context(), azblob.RepairOptions{})
		if !errors.Is(err, storage.ErrCorrupt) || len(report.Plans) != 1 || report.Plans[0].Err == nil {
			t.Errorf("Recover: %+v, %v", report, err)
		}
		if !maps.Equal(before, vaulttest.Contents(server)) {
			t.Error("Recovery changed something")
		}
		if report, err := v.Repair(t.Context(), vaulttest.Thorough); err != nil {
			t.Errorf("thorough: %+v, %v", report, err)
		}
		vaulttest.Same(t, v, plan)
		vaulttest.Sound(t, v)
	})
}

// TestEntrySetBackBesideAnUpdate stores a final plan again before the restoration of its entry, which was set back.
func TestEntrySetBackBesideAnUpdate(t *testing.T) {
	vaulttest.BeforeEach(t, "in the same status", func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
		_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Small())
		vaulttest.Must(t, vaulttest.OnEmulator(t, server).UpdatePlan(t.Context(), plan))
		for c := range server.Containers() {
			vaulttest.RewriteStatus(server, c, plan, "entry", "Running")
		}
		mine := *plan
		mine.State.ETag, mine.Descr = "", "stored again"
		recovering := at.Vault(t, server, func() {
			vaulttest.Should(t, vaulttest.OnEmulator(t, server, azblob.WithUnversionedUpdates()).UpdatePlan(t.Context(), &mine))
		})
		_, err := recovering.Repair(t.Context(), vaulttest.Thorough)
		vaulttest.Must(t, err)
		if !at.Came() {
			return
		}
		v := vaulttest.OnEmulator(t, server)
		vaulttest.Same(t, v, &mine)
		vaulttest.Settled(t, v)
	})
}

// TestRecoveryBesideACompletion completes and deletes a plan before each request of a Recovery. Recovery
// reports nothing, because nothing is wrong.
func TestRecoveryBesideACompletion(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, deletes := range []bool{false, true} {
		vaulttest.BeforeEach(t, fmt.Sprint("deletes ", deletes), func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
			v := vaulttest.OnEmulator(t, server)
			_, plan := vaulttest.Running(t, v, plantest.Small())
			if deletes { // the completion was broken off, so that Recovery has something to do
				vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) {
					mine := *plan
					_ = v.UpdatePlan(t.Context(), &mine)
				})
			}
			recovering := at.Vault(t, server, func() {
				var err error
				if deletes {
					err = v.Delete(t.Context(), plan.ID)
				} else {
					err = v.UpdatePlan(t.Context(), plan)
				}
				vaulttest.Should(t, err)
			})
			vaulttest.Must(t, recovering.Recovery(t.Context()))
			vaulttest.Settled(t, v)
		})
	}
}

// TestRecoveryConfirmsNothingWithoutAnAnswer denies a healthy plan permanently, and fails the listing that
// would confirm it.
func TestRecoveryConfirmsNothingWithoutAnAnswer(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Full())
		time.Sleep(vaulttest.PastGrace)
		before := vaulttest.Contents(server)
		transport := server.Transport()
		transport.Inject(
			emulator.On(emulator.HeadBlob).Path(plan.ID.String()).Do(emulator.Answer(404, "BlobNotFound")),
			emulator.On(emulator.ListBlobs).Where(func(r emulator.Request) bool { return strings.HasPrefix(r.Prefix, "plans/") }).Do(emulator.Answer(503, "ServerBusy")),
		)
		v := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Minute}))
		vaulttest.Fails(t, v.Recovery(t.Context()), storage.ErrUnavailable)
		if !maps.Equal(before, vaulttest.Contents(server)) {
			t.Error("a healthy plan was touched")
		}
	})
}

// TestRecoveryMeetsEachPlanOnce recovers containers that the vault did not make, where Recovery lists markers
// and plans.
func TestRecoveryMeetsEachPlanOnce(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		server.PutContainer("test-"+time.Now().UTC().Format(time.DateOnly), nil)
		v := vaulttest.OnEmulator(t, server)
		for range 3 {
			vaulttest.Running(t, v, plantest.Small())
		}
		time.Sleep(vaulttest.PastGrace)
		report, err := v.Repair(t.Context(), azblob.RepairOptions{})
		if err != nil || report.Open != 3 {
			t.Errorf("%+v, %v, want 3 open plans", report, err)
		}
	})
}

// TestRecoveryConfirmsNothingThatIsRefused refuses the second request for a missing object. One answer is not
// enough to conclude that it is gone.
func TestRecoveryConfirmsNothingThatIsRefused(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		vaulttest.CreateBroken("plans/*-object.json", 1)(t, vaulttest.WorldOf(server), plantest.Small())
		time.Sleep(vaulttest.PastGrace)
		before := vaulttest.Contents(server)
		rule := emulator.On(emulator.HeadBlob).Path("-object.json").Nth(2).Do(vaulttest.Denied)
		vaulttest.Fails(t, vaulttest.Faulty(t, server, rule).Recovery(t.Context()), storage.ErrDenied)
		if !maps.Equal(before, vaulttest.Contents(server)) {
			t.Error("something was removed")
		}
	})
}

// TestRecoveryNamesWhatItCantExamine fails the requests for one plan. The report and the observer name it,
// and Recovery repairs the other plan.
func TestRecoveryNamesWhatItCantExamine(t *testing.T) {
	setBack := func(t *testing.T, w vaulttest.World, plan *workflow.Plan) (about, shown *workflow.Plan) {
		before, after := vaulttest.Running(t, w.Vault(t), plan)
		for c := range w.Server.Containers() {
			open := slices.Collect(w.Server.Blobs(c))
			vaulttest.Must(t, w.Vault(t).UpdatePlan(t.Context(), after))
			for _, b := range open {
				if strings.HasPrefix(b.Name, "open/") || strings.HasSuffix(b.Name, "-entry.json") {
					w.Server.Put(c, b.Name, b.Body, b.Metadata)
				}
			}
		}
		return before, nil
	}
	look := func(path string) *emulator.Rule { return emulator.On(emulator.HeadBlob).Path(path) }
	listing := func() *emulator.Rule { return emulator.On(emulator.ListBlobs) }
	busy := emulator.Answer(503, "ServerBusy")
	type faults = []*emulator.Rule
	for name, c := range map[string]struct {
		in    vaulttest.State
		rules faults
	}{
		"a contradiction":        {vaulttest.NotStarted, faults{look("-object.json").Do(vaulttest.Absences[0])}},
		"a look at the entry":    {vaulttest.AtWork, faults{look("-entry.json").Do(busy)}},
		"a listing":              {vaulttest.NotStarted, faults{listing().Do(busy)}},
		"a look at a sub-object": {vaulttest.NotStarted, faults{look("actions/").Do(busy), listing().Do(emulator.Answer(404, "ContainerNotFound"))}},
		"a second look":          {setBack, faults{look("-entry.json").Range(2, 1000).Do(busy)}},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan, _ := c.in(t, vaulttest.WorldOf(server), vaulttest.EachKind())
			half := plantest.Small()
			for _, rule := range c.rules {
				rule.Where(func(r emulator.Request) bool { return strings.Contains(r.Blob+r.Prefix, plan.ID.String()) })
			}
			vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), half) })
			time.Sleep(vaulttest.PastGrace)
			transport := server.Transport()
			transport.Inject(c.rules...)
			told := map[uuid.UUID]azblob.RepairedPlan{}
			var mu sync.Mutex
			v := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Second}), azblob.WithObserver(azblob.Observer{Repair: func(_ context.Context, p azblob.RepairEvent) {
				mu.Lock()
				defer mu.Unlock()
				told[p.ID] = p.RepairedPlan
			}}))
			report, err := v.Repair(t.Context(), azblob.RepairOptions{})
			if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), plan.ID.String()) || len(report.Plans) != 2 {
				t.Fatalf("%+v, %v: want both plans in the report", report, err)
			}
			for _, p := range report.Plans {
				failed := p.ID == plan.ID
				if p.Found == "" || failed != (p.Err != nil) || failed != (p.Did == "") || told[p.ID].Found != p.Found {
					t.Errorf("the report says %+v, the observer was told %+v", p, told[p.ID])
				}
				var e *storage.Error
				if failed && (!errors.As(p.Err, &e) || e.Plan != plan.ID) {
					t.Errorf("the error in the report does not name the plan: %v", p.Err)
				}
			}
		})
	}
	vaulttest.InBubble(t, "cancelled", func(t *testing.T, server *emulator.Server) {
		vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		time.Sleep(vaulttest.PastGrace)
		ctx, cancel := context.WithCancel(t.Context())
		transport := server.Transport()
		transport.SetGate(vaulttest.Gate(func(r emulator.Request) {
			if r.Op == emulator.HeadBlob {
				cancel()
			}
		}))
		report, err := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).Repair(ctx, azblob.RepairOptions{})
		if !errors.Is(err, context.Canceled) || len(report.Plans) != 0 {
			t.Errorf("%+v, %v: the context's end says nothing about a plan", report, err)
		}
	})
}
