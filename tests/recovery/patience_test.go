package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// This file tests slow services, lasting refusals, and calls that are repeated many times.

// TestDeleteEndsAtALastingRefusal refuses the removal of the object permanently. Delete sends a few requests
// and then gives up, without waiting for its context to end.
func TestDeleteEndsAtALastingRefusal(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, c := range []struct {
		status int
		code   string
		want   error
		most   int
	}{
		{409, "SnapshotsPresent", storage.ErrDenied, 5},
		{412, "ConditionNotMet", storage.ErrConflict, 4 * 6},
		{412, "LeaseIdMissing", storage.ErrDenied, 5},
		{403, "AuthorizationPermissionMismatch", storage.ErrDenied, 5},
	} {
		vaulttest.InBubble(t, c.code, func(t *testing.T, server *emulator.Server) {
			healthy := vaulttest.OnEmulator(t, server)
			plan := vaulttest.Created(t, healthy, plantest.Small())
			v := vaulttest.Faulty(t, server, emulator.On(emulator.DeleteBlob).Path("-object.json").Do(emulator.Answer(c.status, c.code)))
			server.ResetRequests()
			vaulttest.Fails(t, v.Delete(t.Context(), plan.ID), c.want)
			if n := len(server.Requests()); n > c.most {
				t.Errorf("%d requests, want %d at the most", n, c.most)
			}
			vaulttest.Settled(t, healthy)
			vaulttest.Same(t, healthy, plan)
		})
	}
}

// TestRecoveryReportsNoRemovalThatDidNotHappen changes a marker just before its removal.
func TestRecoveryReportsNoRemovalThatDidNotHappen(t *testing.T) {
	vaulttest.InBubble(t, "a marker", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.CompletionBroken(emulator.DeleteBlob, "open/")(t, vaulttest.WorldOf(server), plantest.Small())
		d := vaulttest.DamagedOf(server, plan)
		v := vaulttest.Meanwhile(t, server, emulator.DeleteBlob, "open/", func() { d.Put(d.Container, d.Marker(), nil, nil) })
		report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
		if err != nil || len(report.Plans) != 0 || report.Recent != 1 {
			t.Errorf("%+v, %v, want that it is left to the next run", report, err)
		}
	})
}

// TestCreateUntilItSucceeds repeats a Create that was broken off, without Recovery. Its error says when to call again. At that
// time, soon after the grace period of the first attempt, it succeeds, however often it was repeated.
func TestCreateUntilItSucceeds(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, broken := range []string{"plans/*-entry.json", "blocks/", "plans/*-object.json"} {
		vaulttest.InBubble(t, "broken off at "+broken, func(t *testing.T, server *emulator.Server) {
			plan := vaulttest.EachKind()
			driver.Complete(plan)
			diesAtOnce(t, server, emulator.On(emulator.PutBlob).Path(broken), plan)
			v := vaulttest.OnEmulator(t, server)
			if broken != "plans/*-entry.json" { // a marker alone is taken over at once
				time.Sleep(3 * time.Minute)
				err := v.Create(t.Context(), plan)
				vaulttest.Fails(t, err, storage.ErrConflict)
				text := regexp.MustCompile(`call again in (\S+)$`).FindStringSubmatch(err.Error())
				if text == nil {
					t.Fatalf("it does not say when: %v", err)
				}
				wait, err := time.ParseDuration(text[1])
				if err != nil || wait > 10*time.Minute {
					t.Fatalf("%q, %v", text[1], err)
				}
				time.Sleep(wait - 3*time.Second)
				vaulttest.Fails(t, v.Create(t.Context(), plan), storage.ErrConflict)
				time.Sleep(3 * time.Second)
			}
			vaulttest.Must(t, v.Create(t.Context(), plan))
			vaulttest.Same(t, v, plan)
			vaulttest.Sound(t, v)
			vaulttest.Fails(t, v.Create(t.Context(), plan), storage.ErrExists)
			vaulttest.Settled(t, v)
			vaulttest.Same(t, v, plan)
		})
	}
}

// diesAtOnce breaks a Create off without letting time pass.
func diesAtOnce(t *testing.T, server *emulator.Server, at *emulator.Rule, plan *workflow.Plan) {
	t.Helper()
	vaulttest.Dies(t, server, at, func(v *azblob.Vault) {
		ctx := vaulttest.Within(t, time.Second)
		_ = v.Create(ctx, plan)
	})
}

// TestCreateThatIsTakenBackBesideAnUpdate updates a plan between its late object and the Create's withdrawal
// of it, which then dies. Recovery handles the remains correctly.
func TestCreateThatIsTakenBackBesideAnUpdate(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "to Running", func(t *testing.T, server *emulator.Server) {
		plan, other := plantest.Small(), vaulttest.OnEmulator(t, server)
		meets := vaulttest.Meets(server,
			vaulttest.AlmostLate(), vaulttest.Frozen("-object.json", 20*time.Second), emulator.On(emulator.BatchDelete).Do(emulator.Crash()),
			vaulttest.Before(emulator.DeleteBlob, "-object.json", func() {
				now := vaulttest.Reread(t, other, plan)
				now.State.Status = workflow.Running
				vaulttest.Should(t, other.UpdatePlan(t.Context(), now))
			}))
		v := vaulttest.OnEmulator(t, server, meets, azblob.Options{Backoff: azblob.Backoff{MaxElapsed: time.Minute}})
		vaulttest.Fails(t, v.Create(t.Context(), plan), storage.ErrUnknown)
		vaulttest.Settled(t, other)
		vaulttest.Empty(t, server)
	})
}

// TestSlowDelete freezes a Delete between its marker and its commit until Recovery has removed the delete
// marker, and kills it after the commit. A marker leads to everything that is left.
func TestSlowDelete(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for name, in := range map[string]vaulttest.State{"not started": vaulttest.NotStarted, "running": vaulttest.AtWork, "final": vaulttest.Final} {
		for _, dies := range []bool{false, true} {
			vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
				plan, shown := in(t, vaulttest.WorldOf(server), plantest.Full())
				v, transport, slept := vaulttest.OnEmulator(t, server), server.Transport(), false
				if dies {
					transport.Inject(emulator.On(emulator.BatchDelete).Do(emulator.Crash()))
				}
				sleeps := vaulttest.Send(func(req *http.Request) (*http.Response, error) { // as a machine that slept
					if req.Method == http.MethodDelete && strings.HasSuffix(req.URL.Path, "-object.json") && !slept {
						slept = true
						time.Sleep(vaulttest.PastGrace)
						report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
						if err != nil || len(report.Plans) != 1 || report.Plans[0].Did == "" {
							t.Errorf("Recover: %+v, %v", report, err)
						}
						vaulttest.Same(t, v, shown)
						req = req.WithContext(context.WithoutCancel(req.Context())) // it was on its way
					}
					return transport.Do(req)
				})
				slow := vaulttest.OnEmulator(t, server, azblob.Options{ClientOptions: policy.ClientOptions{Transport: sleeps}, Backoff: azblob.Backoff{MaxElapsed: time.Minute}})
				vaulttest.Fails(t, slow.Delete(t.Context(), plan.ID), storage.ErrUnknown)
				vaulttest.Settled(t, v)
				if vaulttest.WholeOrGone(t, v, shown) != nil {
					vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
				}
				vaulttest.Empty(t, server)
			})
		}
	}
	vaulttest.InBubble(t, "with answers that never come", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		began := time.Now()
		busy := emulator.On(emulator.DeleteBlob).Path("-object.json").Do(emulator.Answer(429, "TooManyRequests").RetryAfter(time.Minute))
		ctx := vaulttest.Within(t, 10*time.Hour)
		err := vaulttest.Faulty(t, server, busy).Delete(ctx, plan.ID)
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) || !strings.Contains(err.Error(), "call again") {
			t.Errorf("got %v, want ErrUnavailable alone", err)
		}
		if took := time.Since(began); took > time.Hour {
			t.Errorf("it went on for %v", took)
		}
		markers := slices.DeleteFunc(server.Requests(), func(r emulator.Request) bool {
			return r.Op != emulator.PutBlob || !strings.HasSuffix(r.Blob, "-delete")
		})
		if len(markers) != 4 {
			t.Errorf("the delete marker was written %d times, want once for each attempt", len(markers))
		}
		vaulttest.Settled(t, vaulttest.OnEmulator(t, server))
		vaulttest.Same(t, vaulttest.OnEmulator(t, server), plan)
	})
}

// TestDeleteOfAnObjectThatKeepsChanging rewrites the object before each removal. Delete gives up and says so.
func TestDeleteOfAnObjectThatKeepsChanging(t *testing.T) {
	vaulttest.InBubble(t, "for ever", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, plantest.Small())
		transport := server.Transport()
		changes := emulator.On(emulator.DeleteBlob).Path("-object.json").Do(emulator.Before(func() {
			container := vaulttest.ContainerOf(time.Now())
			b, _ := server.Blob(container, "plans/"+plan.ID.String()+"-object.json")
			server.Put(container, b.Name, b.Body, b.Metadata)
		}))
		transport.Inject(changes)
		vaulttest.Fails(t, vaulttest.OnEmulator(t, server, settings.Over(transport)).Delete(t.Context(), plan.ID), storage.ErrConflict)
		if n := changes.Fired(); n != 4 {
			t.Errorf("it gave up after %d attempts, want 4", n)
		}
		vaulttest.Same(t, v, plan)
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		vaulttest.Empty(t, server)
	})
}

// TestCreateOfAMarkerThatKeepsChanging rewrites the marker of a broken Create before each attempt to take it
// over. Create gives up and says so.
func TestCreateOfAMarkerThatKeepsChanging(t *testing.T) {
	vaulttest.InBubble(t, "for ever", func(t *testing.T, server *emulator.Server) {
		plan, v, transport := plantest.Small(), vaulttest.OnEmulator(t, server), server.Transport()
		driver.Complete(plan)
		diesAtOnce(t, server, emulator.On(emulator.PutBlob).Path("plans/*-entry.json"), plan)
		takesOver := func(r emulator.Request) bool { return strings.HasPrefix(r.Blob, "open/") && r.IfMatch != "" }
		transport.Inject(emulator.On(emulator.PutBlob).Where(takesOver).Do(emulator.Before(func() {
			server.Put(vaulttest.ContainerOf(time.Now()), "open/"+plan.ID.String(), nil, map[string]string{"writeid": "another"})
		})))
		err := vaulttest.OnEmulator(t, server, settings.Over(transport)).Create(t.Context(), plan)
		if vaulttest.Fails(t, err, storage.ErrConflict); !strings.HasSuffix(err.Error(), "call again") {
			t.Errorf("got %v", err)
		}
		vaulttest.Must(t, v.Create(t.Context(), plan))
		vaulttest.Same(t, v, plan)
	})
}

// TestGracePeriodsThatDiffer lets a vault with a short grace period recover, create and check beside one with
// a long grace period.
func TestGracePeriodsThatDiffer(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const short = time.Second
	// At each request of a Create, Recovery of the other vault runs, after its own grace period and before
	// the Create's.
	vaulttest.BeforeEach(t, "Recovery beside a Create", func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
		hasty := vaulttest.OnEmulator(t, server, azblob.Options{GracePeriod: short})
		plan := vaulttest.EachKind()
		patient := at.Vault(t, server, func() {
			time.Sleep(25 * time.Second) // a try's limit is 30s
			if report, err := hasty.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{Thorough: at.N%2 == 0}); err != nil || len(report.Plans) > 0 {
				t.Errorf("Recover: %+v, %v", report, err)
			}
			if err := hasty.Create(t.Context(), vaulttest.CopyOf(plan)); err == nil && at.N > 3 {
				t.Error("a Create of the same ID succeeded")
			}
			vaulttest.Sound(t, hasty)
		})
		err := patient.Create(t.Context(), plan)
		if err == nil {
			vaulttest.Same(t, hasty, plan)
		} else if !errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrExists) {
			t.Error(err)
		}
		vaulttest.Settled(t, hasty)
	})
	vaulttest.InBubble(t, "Recovery beside a marker taken over", func(t *testing.T, server *emulator.Server) {
		// The Create with the long grace period is at its entry. Another one with the short period takes the
		// marker over and dies there.
		plan, v := vaulttest.EachKind(), vaulttest.OnEmulator(t, server)
		driver.Complete(plan)
		other := *plan
		vaulttest.Must(t, vaulttest.Meanwhile(t, server, emulator.PutBlob, "-entry.json", func() {
			vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-entry.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), &other) }, azblob.Options{GracePeriod: short})
			time.Sleep(20 * time.Second)
			if report, err := vaulttest.OnEmulator(t, server, azblob.Options{GracePeriod: short}).Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{}); err != nil || report.Recent != 1 {
				t.Errorf("Recover: %+v, %v", report, err)
			}
		}).Create(t.Context(), plan))
		vaulttest.Same(t, v, plan)
		vaulttest.Sound(t, v)
	})
	vaulttest.InBubble(t, "a grace period that can't be read", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.CreateBroken("-object.json", 1)(t, vaulttest.WorldOf(server), vaulttest.EachKind())
		d, v := vaulttest.DamagedOf(server, plan), vaulttest.OnEmulator(t, server)
		d.Put(d.Container, d.Marker(), nil, map[string]string{"grace": "soon"})
		time.Sleep(vaulttest.PastGrace)
		leavesAlone(t, server, v, vaulttest.Thorough, storage.ErrCorrupt, "")
		if check, err := v.Admin().Check(t.Context(), azblob.CheckOptions{}); err != nil || len(check.Problems) != 1 || check.Problems[0].Kind != azblob.ProblemUnreadable {
			t.Errorf("Check: %+v, %v", check, err)
		}
		d.Lose(d.Name("entry")) // without which a Create would take the marker over
		untouched := vaulttest.Untouched(t, server)
		vaulttest.Fails(t, v.Create(t.Context(), plan), storage.ErrCorrupt)
		untouched()
	})
}

// TestCallersDeadlineIsNotTheGracePeriods ends a Create by its caller's deadline while the service works. The
// error is not ErrUnavailable.
func TestCallersDeadlineIsNotTheGracePeriods(t *testing.T) {
	vaulttest.InBubble(t, "waiting for a slot", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server, vaulttest.Meets(server, vaulttest.Before(emulator.HeadBlob, "", func() { time.Sleep(20 * time.Second) })), azblob.Options{Concurrency: 1})
		var busy sync.WaitGroup
		busy.Go(func() {
			vaulttest.Should(t, vaulttest.ErrOf(v.Exists(t.Context(), workflow.NewV7())))
		})
		time.Sleep(time.Second)
		ctx := vaulttest.Within(t, 5*time.Second)
		err := v.Create(ctx, plantest.Small())
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrUnavailable) || strings.Contains(err.Error(), "grace period") {
			t.Errorf("got %v, want the caller's deadline alone", err)
		}
		busy.Wait()
	})
}

// TestThoroughRecoveryBesideADroppedDay drops the middle one of three days before it is listed, or only says so, or refuses
// its listing. Recovery goes on with the others, and reports that it has not looked at that day.
func TestThoroughRecoveryBesideADroppedDay(t *testing.T) {
	for name, c := range map[string]struct {
		answer   emulator.Effect // none drops the day
		thorough bool
		want     error
	}{
		"dropped":          {emulator.Effect{}, true, nil},
		"a false 404":      {vaulttest.Absences[1], true, storage.ErrUnavailable},
		"denied":           {vaulttest.Denied, false, storage.ErrDenied},
		"denied, thorough": {vaulttest.Denied, true, storage.ErrDenied},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			for n := 9; n <= 11; n++ {
				vaulttest.CreateBroken("-object.json", 1)(t, vaulttest.WorldOf(server), vaulttest.PlanOf(vaulttest.DaysAgo(n)))
			}
			time.Sleep(vaulttest.PastGrace)
			middle := vaulttest.ContainerOf(vaulttest.DaysAgo(10))
			broken := func() *azblob.Vault {
				listed := emulator.On(emulator.ListBlobs).Where(func(r emulator.Request) bool { return r.Container == middle && r.Prefix != "" })
				if c.want == nil {
					return vaulttest.Faulty(t, server, listed.Nth(1).Do(emulator.Before(func() { server.RemoveContainer(middle) })))
				}
				return vaulttest.Faulty(t, server, listed.Do(c.answer))
			}
			server.ResetRequests()
			report, err := broken().Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{Thorough: c.thorough})
			if len(report.Plans) != 2 || !errors.Is(err, c.want) {
				t.Errorf("%+v, %v", report, err)
			}
			for _, r := range server.Requests() {
				if r.Container == "" && r.Op != emulator.ListContainers || strings.Contains(r.Blob, "00000000-0000") {
					t.Errorf("a request about no plan: %v", r)
				}
			}
			if report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{}); err != nil || (len(report.Problems) == 0) != (c.want == nil) {
				t.Errorf("Check: %+v, %v", report, err)
			}
			if _, err := broken().Admin().Check(t.Context(), azblob.CheckOptions{}); !errors.Is(err, c.want) {
				t.Errorf("Check of that day: %v", err)
			}
			vaulttest.Settled(t, v)
			vaulttest.Empty(t, server)
		})
	}
}

// TestRecoveryThatMayNotConfirm answers that a blob is not there, and refuses the request that would confirm it. One answer is
// not enough to conclude that it is gone, or that another process has removed it.
func TestRecoveryThatMayNotConfirm(t *testing.T) {
	absent := vaulttest.Absences[0]
	type rules = []*emulator.Rule
	for name, c := range map[string]struct {
		in    vaulttest.State
		rules rules
		want  error
	}{
		"a marker": {
			vaulttest.CompletionBroken(emulator.DeleteBlob, "open/"),
			rules{emulator.On(emulator.DeleteBlob).Path("open/").Do(absent), emulator.On(emulator.HeadBlob).Path("open/").Do(vaulttest.Denied)},
			storage.ErrDenied,
		},
		"an object": {vaulttest.CreateBroken("plans/*-object.json", 1), rules{emulator.On(emulator.HeadBlob).Path("-object.json").Nth(2).Do(vaulttest.Denied)}, storage.ErrDenied},
		"a healthy plan": {vaulttest.AtWork, rules{
			emulator.On(emulator.HeadBlob).Path("plans/").Do(absent), emulator.On(emulator.HeadBlob).Path("open/").Do(absent),
			emulator.On(emulator.ListBlobs).Where(func(r emulator.Request) bool { return strings.HasPrefix(r.Prefix, "plans/") }).Do(emulator.Answer(503, "ServerBusy")),
		}, storage.ErrUnavailable},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan, _ := c.in(t, vaulttest.WorldOf(server), plantest.Small())
			time.Sleep(vaulttest.PastGrace)
			untouched := vaulttest.Untouched(t, server)
			report, err := vaulttest.Faulty(t, server, c.rules...).Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
			vaulttest.Fails(t, err, c.want)
			if len(report.Plans) != 1 || report.Plans[0].ID != plan.ID || report.Plans[0].Did != "" || report.Recent != 0 {
				t.Errorf("%+v", report)
			}
			untouched()
			vaulttest.Settled(t, vaulttest.OnEmulator(t, server))
		})
	}
}

// TestCheckBesideADroppedDay drops a day before each request of a Check that has found something. Check
// returns no error.
func TestCheckBesideADroppedDay(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.BeforeEach(t, "between two looks", func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
		d := vaulttest.DamagedOf(server, vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small()))
		d.Lose(d.Parts()[0])
		time.Sleep(vaulttest.PastGrace)
		report, err := at.Vault(t, server, func() { server.RemoveContainer(d.Container) }).Admin().Check(t.Context(), azblob.CheckOptions{})
		if err != nil || !at.Came() && len(report.Problems) != 1 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// TestCreateBesideALatePart delivers a late copy of a sub-object after a refused Create has undone itself. No
// marker leads to the copy. The next Create removes it once it is old enough, with or without Recovery, and
// also beside a marker of another Create.
func TestCreateBesideALatePart(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for run := range 4 {
		marker, recovers := run%2 == 1, run/2 == 1
		vaulttest.InBubble(t, fmt.Sprintf("marker %t, Recovery %t", marker, recovers), func(t *testing.T, server *emulator.Server) {
			plan := plantest.Full()
			driver.Complete(plan)
			late := emulator.On(emulator.PutBlob).Path("actions/").Nth(1).Do(emulator.Duplicate(1 << 20))
			refused := emulator.On(emulator.PutBlob).Path("-object.json").Do(vaulttest.Denied)
			vaulttest.Fails(t, vaulttest.Faulty(t, server, late, refused).Create(t.Context(), plan), storage.ErrDenied)
			server.DeliverLate()
			if n := vaulttest.Stored(server); n != 1 {
				t.Fatalf("%d blobs are stored, want the late sub-object", n)
			}
			if marker {
				diesAtOnce(t, server, emulator.On(emulator.PutBlob).Path("-entry.json"), plan)
			}
			v, began, stored := vaulttest.OnEmulator(t, server), time.Now(), vaulttest.Stored(server)
			err := v.Create(t.Context(), plan)
			for ; err != nil && time.Since(began) < 20*time.Minute; err = v.Create(t.Context(), plan) {
				if vaulttest.Fails(t, err, storage.ErrConflict); !strings.Contains(err.Error(), "call again in") {
					t.Fatal(err)
				}
				if n := vaulttest.Stored(server); n != stored {
					t.Fatalf("%d blobs were stored, now %d", stored, n)
				}
				if recovers {
					vaulttest.Must(t, v.Recovery(t.Context()))
					stored = vaulttest.Stored(server)
				}
				time.Sleep(5 * time.Minute)
			}
			vaulttest.Must(t, err)
			if time.Since(began) < 10*time.Minute {
				t.Errorf("it removed what was %v old", time.Since(began))
			}
			vaulttest.Same(t, v, plan)
			vaulttest.Sound(t, v)
		})
	}
}

// TestCreateTouchesNoPlan creates plans that are there, in whole or in part. One wrong answer is not enough to remove anything.
func TestCreateTouchesNoPlan(t *testing.T) {
	vaulttest.InBubble(t, "a final one gets no marker", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.Final(t, vaulttest.WorldOf(server), plantest.Small())
		untouched := vaulttest.Untouched(t, server)
		vaulttest.Fails(t, vaulttest.OnEmulator(t, server).Create(t.Context(), vaulttest.CopyOf(plan)), storage.ErrExists)
		untouched()
	})
	vaulttest.InBubble(t, "one that it may not look at keeps its marker", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		untouched := vaulttest.Untouched(t, server)
		server.ResetRequests()
		vaulttest.Fails(t, vaulttest.Faulty(t, server, emulator.On(emulator.HeadBlob).Path("plans/").Do(vaulttest.Denied)).Create(t.Context(), plan), storage.ErrDenied)
		untouched()
		if n := vaulttest.Sent(server, emulator.PutBlob, ""); n != 1 {
			t.Errorf("%d blobs were written after the look was refused", n-1)
		}
	})
	vaulttest.InBubble(t, "one that has lost all but its object", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		d := vaulttest.DamagedOf(server, vaulttest.Created(t, v, plantest.Small()))
		d.Lose(d.Marker(), d.Name("entry"))
		time.Sleep(vaulttest.PastGrace)
		untouched := vaulttest.Untouched(t, server)
		vaulttest.Fails(t, v.Create(t.Context(), d.Plan), storage.ErrConflict)
		untouched()
		// Beside a recent marker it does not wait for the plan's age.
		diesAtOnce(t, server, emulator.On(emulator.PutBlob).Path("-entry.json"), d.Plan)
		untouched = vaulttest.Untouched(t, server)
		lies := emulator.On(emulator.HeadBlob).Path("-object.json").Nth(2).Do(vaulttest.Absences[0])
		vaulttest.Fails(t, vaulttest.Faulty(t, server, lies).Create(t.Context(), d.Plan), storage.ErrConflict)
		untouched()
	})
}
