package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// TestRecovery checks that Recovery repairs everything that a crash can leave, and changes nothing else.
func TestRecovery(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "each state", func(t *testing.T, server *emulator.Server) {
		found, whole := vaulttest.Wreck(t, server)
		time.Sleep(vaulttest.PastGrace)
		v := vaulttest.OnEmulator(t, server)

		untouched := vaulttest.Untouched(t, server)
		report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{DryRun: true})
		vaulttest.Must(t, err)
		untouched()
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
		report, err = v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
		vaulttest.Must(t, err)
		check("Recover", report, true)
		for _, p := range whole {
			vaulttest.Same(t, v, p)
		}
		if report := vaulttest.Sound(t, v); report.Plans != len(whole) || report.InProgress != 0 {
			t.Errorf("%+v", report)
		}
		untouched = vaulttest.Untouched(t, server)
		report, err = v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)
		if err != nil || len(report.Plans) != 0 || report.Open != 3 {
			t.Errorf("once more: %+v, %v", report, err)
		}
		untouched()
	})
	for _, marked := range []bool{false, true} {
		vaulttest.InBubble(t, fmt.Sprint("in a container that was made by hand, with markers ", marked), func(t *testing.T, server *emulator.Server) {
			_, whole := vaulttest.Wreck(t, server)
			time.Sleep(time.Second)                   // so that no copy has the ETag of an original, which an object may name
			other := emulator.New(emulator.Options{}) // the same blobs, without container metadata
			for c := range server.Containers() {
				other.PutContainer(c, nil)
				for b := range server.Blobs(c) {
					if marked || !strings.HasPrefix(b.Name, "open/") {
						other.Put(c, b.Name, b.Body, b.Metadata)
					}
				}
			}
			time.Sleep(vaulttest.PastGrace)
			v := vaulttest.OnEmulator(t, other)
			report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
			if err != nil || report.Open != 3 {
				t.Errorf("%+v, %v, want 3 open plans, each met once", report, err)
			}
			check, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
			vaulttest.Must(t, err)
			for _, p := range check.Problems {
				if marked || p.Kind != azblob.ProblemOrphan { // only markers lead to some debris
					t.Error(p)
				}
			}
			for _, p := range whole {
				vaulttest.Same(t, v, p)
			}
		})
	}
}

// TestRecoveryLeavesRecentBlobsAlone pins how long Recovery waits, by the service's clock alone: it leaves alone what is as old as
// the grace period and a quarter of it, and acts on what is a second older.
func TestRecoveryLeavesRecentBlobsAlone(t *testing.T) {
	for grace, skew := range map[time.Duration]time.Duration{
		40 * time.Second: 0, 10 * time.Minute: 24 * time.Hour, 10*time.Minute - 4: -24 * time.Hour, 10*time.Minute - 8: 15 * time.Minute,
	} {
		t.Run(fmt.Sprintf("%v with a clock %v off", grace, skew), func(t *testing.T) {
			// The vaults use the bubble's clock, and the service's clock is off. They use tokens, because
			// signatures would be refused.
			vaulttest.InBubbleOf(t, emulator.New(emulator.Options{Clock: func() time.Time { return time.Now().Add(skew) }}), func(t *testing.T, server *emulator.Server) {
				v, began := vaulttest.WithToken(t, server, azblob.Options{GracePeriod: grace}), time.Now()
				vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), vaulttest.EachKind()) }, azblob.Options{GracePeriod: grace})
				untouched := vaulttest.Untouched(t, server)
				for _, age := range []time.Duration{0, grace, grace + grace/4 + time.Second} {
					time.Sleep(time.Until(began.Add(age)))
					if report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{}); err != nil || report.Recent != 1 || len(report.Plans) != 0 {
						t.Fatalf("after %v: %+v, %v", age, report, err)
					}
					untouched()
				}
				time.Sleep(time.Second)
				if report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{}); err != nil || report.Recent != 0 || len(report.Plans) != 1 {
					t.Errorf("a second older: %+v, %v", report, err)
				}
				vaulttest.Empty(t, server)
			})
		})
	}
}

// TestRecoveryLooksTwice changes a plan between Recovery's listing and its second look. Recovery acts on what
// it finds then.
func TestRecoveryLooksTwice(t *testing.T) {
	vaulttest.InBubble(t, "the plan is created, and grows old", func(t *testing.T, server *emulator.Server) {
		plan, other := plantest.Small(), vaulttest.OnEmulator(t, server)
		driver.Complete(plan)
		vaulttest.CreateBroken("plans/*-entry.json", 1)(t, vaulttest.WorldOf(server), plan)
		time.Sleep(vaulttest.PastGrace)
		v := vaulttest.Meanwhile(t, server, emulator.HeadBlob, "-object.json", func() {
			vaulttest.Should(t, other.Create(t.Context(), plan))
			time.Sleep(vaulttest.PastGrace)
		})
		ctx := vaulttest.Within(t, 3*vaulttest.PastGrace)
		vaulttest.Should(t, v.Recovery(ctx))
		vaulttest.Same(t, other, plan)
		vaulttest.Sound(t, other)
	})
	vaulttest.InBubble(t, "the plan is completed between the looks at its entry and its object", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, ending := vaulttest.Running(t, v, plantest.Small())
		time.Sleep(vaulttest.PastGrace)
		meets := vaulttest.Meets(server, vaulttest.Before(emulator.HeadBlob, "-object.json", func() {
			vaulttest.Should(t, v.UpdatePlan(t.Context(), ending))
		}))
		report, err := vaulttest.OnEmulator(t, server, meets, azblob.Options{Concurrency: 1}).Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
		if err != nil || len(report.Plans) > 0 {
			t.Errorf("it reports %+v, %v", report, err)
		}
		vaulttest.Same(t, v, ending)
		vaulttest.Sound(t, v)
	})
	vaulttest.InBubble(t, "the plan is another one of its ID", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, vaulttest.EachKind())
		again := vaulttest.CopyOf(plan)
		d := vaulttest.DamagedOf(server, plan)
		d.Lose(d.Parts()...) // so that Recovery looks for them
		report, err := vaulttest.Meanwhile(t, server, emulator.HeadBlob, "blocks/", func() {
			vaulttest.Should(t, errors.Join(v.Delete(t.Context(), plan.ID), v.Create(t.Context(), again)))
		}).Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)
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
		plan, _ := vaulttest.DeleteBroken(emulator.BatchDelete, "")(t, vaulttest.WorldOf(server), plantest.Small())
		time.Sleep(vaulttest.PastGrace)
		action := vaulttest.ActionsOf(plan)[0]
		vaulttest.Should(t, vaulttest.Meanwhile(t, server, emulator.BatchDelete, "", func() {
			action.Descr = "written late"
			vaulttest.Should(t, v.UpdateAction(t.Context(), action))
		}).Recovery(t.Context()))
		vaulttest.Sound(t, v)
		vaulttest.Settled(t, v)
		vaulttest.Empty(t, server)
	})
}

// TestEntrySetBack gives Recovery a final object beside an entry that is not final, as after a failover that
// lost the newest write of one blob. The plan was final, so a thorough Repair restores it. Any other reports it.
func TestEntrySetBack(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan, _ := vaulttest.Final(t, vaulttest.WorldOf(server), vaulttest.EachKind())
		d := vaulttest.DamagedOf(server, plan)
		vaulttest.RewriteStatus(server, d.Container, plan, "entry", "Running")
		d.Put(d.Container, d.Marker(), nil, nil)
		vaulttest.Fails(t, vaulttest.ErrOf(v.Read(t.Context(), plan.ID)), storage.ErrCorrupt)
		secondLook := vaulttest.Faulty(t, server, emulator.On(emulator.GetBlob).Nth(3).Do(vaulttest.Denied))
		vaulttest.Fails(t, vaulttest.ErrOf(secondLook.Read(t.Context(), plan.ID)), storage.ErrDenied)
		leavesAlone(t, server, v, azblob.RepairOptions{}, storage.ErrCorrupt, "")
		vaulttest.Should(t, vaulttest.ErrOf(v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)))
		vaulttest.Same(t, v, plan)
		vaulttest.Sound(t, v)
	})
}

// TestEntrySetBackBesideAnUpdate stores a final plan again before the restoration of its entry, which was set back.
func TestEntrySetBackBesideAnUpdate(t *testing.T) {
	vaulttest.BeforeEach(t, "in the same status", func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
		plan, _ := vaulttest.Final(t, vaulttest.WorldOf(server), plantest.Small())
		vaulttest.RewriteStatus(server, vaulttest.DamagedOf(server, plan).Container, plan, "entry", "Running")
		mine, v := *plan, vaulttest.OnEmulator(t, server, azblob.Options{UnversionedUpdates: true})
		mine.State.ETag, mine.Descr = "", "stored again"
		vaulttest.Must(t, vaulttest.ErrOf(at.Vault(t, server, func() { vaulttest.Should(t, v.UpdatePlan(t.Context(), &mine)) }).Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)))
		if at.Came() {
			vaulttest.Same(t, v, &mine)
			vaulttest.Settled(t, v)
		}
	})
}

// TestRecoveryNamesWhatItCantExamine fails the requests for one plan. The report and the observer name it,
// and Recovery repairs the others.
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
	busy := emulator.Answer(503, "ServerBusy")
	type faults = []*emulator.Rule
	for name, c := range map[string]struct {
		in    vaulttest.State
		rules faults
	}{
		"a contradiction":     {vaulttest.NotStarted, faults{look("-object.json").Do(vaulttest.Absences[0])}},
		"a look at the entry": {vaulttest.AtWork, faults{look("-entry.json").Do(busy)}},
		"a second look":       {setBack, faults{look("-entry.json").Range(2, 1000).Do(busy)}},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			half := func() { // in whatever order Recovery works, one follows the plan that it can't examine
				vaulttest.CreateBroken("plans/*-object.json", 1)(t, vaulttest.WorldOf(server), plantest.Small())
				time.Sleep(time.Millisecond)
			}
			half()
			plan, _ := c.in(t, vaulttest.WorldOf(server), vaulttest.EachKind())
			time.Sleep(time.Millisecond)
			half()
			for _, rule := range c.rules {
				rule.Where(func(r emulator.Request) bool { return strings.Contains(r.Blob+r.Prefix, plan.ID.String()) })
			}
			time.Sleep(vaulttest.PastGrace)
			told := map[uuid.UUID]azblob.RepairedPlan{}
			var mu sync.Mutex
			v := vaulttest.OnEmulator(t, server, vaulttest.Meets(server, c.rules...), azblob.Options{Concurrency: 1, Backoff: azblob.Backoff{MaxElapsed: time.Second}, Observer: azblob.Observer{Repair: func(_ context.Context, p azblob.RepairEvent) {
				mu.Lock()
				defer mu.Unlock()
				told[p.ID] = p.RepairedPlan
			}}})
			report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
			if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), plan.ID.String()) || len(report.Plans) != 3 {
				t.Fatalf("%+v, %v: want all plans in the report", report, err)
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
		report, err := vaulttest.Faulty(t, server, emulator.On(emulator.HeadBlob).Do(emulator.Before(cancel))).Admin().Repair(audited.Mark(ctx), azblob.RepairOptions{})
		if !errors.Is(err, context.Canceled) || len(report.Plans) != 0 {
			t.Errorf("%+v, %v: the context's end says nothing about a plan", report, err)
		}
	})
}
