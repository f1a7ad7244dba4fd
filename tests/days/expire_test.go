package days_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// week is the retention of most tests, in days.
const week = 7

// expired drops the days that are older than a week.
func expired(t *testing.T, v *azblob.Vault, o azblob.ExpireOptions) azblob.ExpireReport {
	t.Helper()
	o.OlderThanDays = week
	report, err := v.Admin().Expire(audited.Mark(t.Context()), o)
	vaulttest.Must(t, err)
	return report
}

// TestExpire drops the days that are due, and says of the others why it does not.
func TestExpire(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		for _, n := range []int{30, 20, 19, 18, 17, 9, 8, 7, 5, 2, 1, 0} {
			vaulttest.PutDay(server, vaulttest.DaysAgo(n))
		}
		server.PutContainer(vaulttest.ContainerOf(vaulttest.DaysAgo(16)), nil)                                      // not the vault's
		server.PutContainer(vaulttest.ContainerOf(vaulttest.DaysAgo(6)), map[string]string{"planvaultlayout": "1"}) // empty
		server.PutContainer("test-2-"+vaulttest.DaysAgo(25).Format(time.DateOnly), map[string]string{"planvaultlayout": "1"})
		server.PutContainer("test-control", map[string]string{"planvaultlayout": "1"})
		var open []uuid.UUID
		for range 12 {
			plan := vaulttest.PlanOf(vaulttest.DaysAgo(19))
			vaulttest.Must(t, v.Create(t.Context(), plan))
			open = append(open, plan.ID)
		}
		slices.SortFunc(open, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
		server.Put(vaulttest.ContainerOf(vaulttest.DaysAgo(19)), "open/"+open[0].String()+"-delete", nil, nil)
		vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(vaulttest.DaysAgo(18)), workflow.Attribution{}))
		server.Put(vaulttest.ContainerOf(vaulttest.DaysAgo(17)), "open/"+uuid.NewString()+"-change-"+uuid.NewString(), nil, nil)

		want := []string{"30 dropped", "20 dropped", "19 open 12", "18 held", "17 open 1", "16 unmarked", "9 dropped", "8 dropped"}
		text := func(days []azblob.ExpiredDay) (all []string) {
			for _, d := range days {
				line := fmt.Sprintf("%d %s", int(vaulttest.DaysAgo(0).Sub(d.Day.Start())/(24*time.Hour)), d.Result)
				if d.Open > 0 {
					line += fmt.Sprintf(" %d", d.Open)
				}
				if d.Open == 12 && !slices.Equal(d.Plans, open[:10]) {
					t.Errorf("the first open plans are %v", d.Plans)
				}
				all = append(all, line)
			}
			return all
		}
		before := vaulttest.Stored(server)
		for _, dry := range []bool{true, false} {
			var progress storage.Progress
			report := expired(t, v, azblob.ExpireOptions{DryRun: dry, Progress: func(p storage.Progress) { progress = p }})
			if got := text(report.Days); !slices.Equal(got, want) || progress.Done != len(want) || report.Dropped() != 4 {
				t.Errorf("dry run: %t: %v and %+v, want %v", dry, got, progress, want)
			}
			if dry && vaulttest.Stored(server) != before {
				t.Error("a dry run removed something")
			}
		}
		want = []string{"19 open 12", "18 held", "17 open 1", "16 unmarked", "6 dropped"}
		report := expired(t, v, azblob.ExpireOptions{Empty: true})
		if got := text(report.Days); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		var left []string
		for c := range server.Containers() {
			left = append(left, c)
		}
		wantLeft := []string{"test-2-" + vaulttest.DaysAgo(25).Format(time.DateOnly), "test-control"}
		for _, n := range []int{19, 18, 17, 16, 7, 5, 2, 1, 0} {
			wantLeft = append(wantLeft, vaulttest.ContainerOf(vaulttest.DaysAgo(n)))
		}
		slices.Sort(wantLeft)
		if slices.Sort(left); !slices.Equal(left, wantLeft) {
			t.Errorf("left: %v, want %v", left, wantLeft)
		}
		for c := range server.Containers() {
			for b := range server.Blobs(c) {
				if b.Name == "open/dropping" {
					t.Errorf("%s is left in %s", b.Name, c)
				}
			}
		}
		for _, days := range []int{0, -1, math.MaxInt} {
			vaulttest.Fails(t, vaulttest.ErrOf(v.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: days})), storage.ErrInvalid)
		}
	})
}

// TestCostOfExpire drops a year.
func TestCostOfExpire(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	vaulttest.InBubble(t, "365 days", func(t *testing.T, server *emulator.Server) {
		for n := range 365 {
			vaulttest.PutDay(server, vaulttest.DaysAgo(n+9))
		}
		before := len(server.Requests())
		report := expired(t, vaulttest.OnEmulator(t, server), azblob.ExpireOptions{})
		if n := len(server.Requests()) - before; report.Dropped() != 365 || n != 1+8*365 {
			t.Errorf("%d days with %d requests", report.Dropped(), n)
		}
	})
}

// TestExpireRidesOutFaults loses each request and each answer of an Expire. It drops the day, unless that has an open plan.
// A Create finds nothing in its way.
func TestExpireRidesOutFaults(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for n := 1; n <= 7; n++ {
		for _, open := range []bool{false, true} {
			for _, effect := range []emulator.Effect{emulator.LostAnswer(), emulator.LostRequest()} {
				vaulttest.InBubble(t, fmt.Sprintf("%d/%t/%s", n, open, effect), func(t *testing.T, server *emulator.Server) {
					v, day := vaulttest.OnEmulator(t, server), vaulttest.DaysAgo(9)
					vaulttest.PutDay(server, day)
					kept := vaulttest.PlanOf(day)
					if open {
						vaulttest.Must(t, v.Create(t.Context(), kept))
					}
					report := expired(t, vaulttest.Faulty(t, server, emulator.On().Nth(n).Do(effect)), azblob.ExpireOptions{})
					if gone := server.Len(vaulttest.ContainerOf(day)) == 0; gone == open || report.Dropped() == 1 == open {
						t.Errorf("the day is gone: %t; %+v", gone, report)
					}
					noMark(t, server, day)
					if open {
						vaulttest.Same(t, v, kept)
					}
					vaulttest.Created(t, v, vaulttest.PlanOf(day))
				})
			}
		}
	}
}

// noMark fails the test if the mark of an expiry is left.
func noMark(t *testing.T, server *emulator.Server, day time.Time) {
	t.Helper()
	for b := range server.Blobs(vaulttest.ContainerOf(day)) {
		if b.Name == "open/dropping" {
			t.Error("open/dropping is left")
		}
	}
}

// TestExpireTooSlow stops an Expire for longer than its lease before each request. The service refuses its
// removal of the container, and a plan that was created meanwhile stays.
func TestExpireTooSlow(t *testing.T) {
	for _, op := range []emulator.Op{emulator.PutBlob, emulator.ListBlobs, emulator.DeleteContainer} {
		vaulttest.InBubble(t, string(op), func(t *testing.T, server *emulator.Server) {
			v, day := vaulttest.OnEmulator(t, server), vaulttest.DaysAgo(9)
			vaulttest.PutDay(server, day)
			plan := vaulttest.PlanOf(day)
			report := expired(t, vaulttest.Meanwhile(t, server, op, "", func() {
				time.Sleep(61 * time.Second)
				vaulttest.Should(t, v.Create(t.Context(), plan))
			}), azblob.ExpireOptions{})
			if report.Dropped() != 0 {
				t.Errorf("%+v", report)
			}
			vaulttest.Reread(t, v, plan)
			noMark(t, server, day)
		})
	}
}

// TestExpireWithoutRights lets the service refuse each of the requests. Expire stops at the first days and names
// the right that is missing.
func TestExpireWithoutRights(t *testing.T) {
	for _, op := range []emulator.Op{emulator.LeaseContainer, emulator.DeleteContainer} {
		vaulttest.InBubble(t, string(op), func(t *testing.T, server *emulator.Server) {
			for n := range 20 {
				vaulttest.PutDay(server, vaulttest.DaysAgo(n+9))
			}
			v := vaulttest.Faulty(t, server, emulator.On(op).Do(vaulttest.Denied))
			report, err := v.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: week})
			if !errors.Is(err, storage.ErrDenied) || !strings.Contains(err.Error(), "right") || len(report.Days) != 8 || report.Days[0].Result != azblob.ExpireFailed {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

// TestProtectedDays keeps days whose container or plan the service does not remove, whoever asks. Each is reported, and
// Expire and a step of a policy go on with the others.
func TestProtectedDays(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		op     emulator.Op
	}{
		{409, "ContainerHasLegalHold", emulator.DeleteContainer},
		{409, "ContainerImmutabilityPolicyLocked", emulator.DeleteContainer},
		{412, "LeaseIdMissing", emulator.DeleteContainer},
		{409, "SnapshotsPresent", emulator.DeleteBlob},
		{409, "BlobImmutableDueToPolicy", emulator.DeleteBlob},
		{412, "LeaseIdMissing", emulator.DeleteBlob},
	} {
		vaulttest.InBubble(t, fmt.Sprint(c.op, " ", c.code), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			const days = 20
			for n := range days {
				ended(t, v, vaulttest.DaysAgo(n+9), workflow.Completed)
				if c.op == emulator.DeleteBlob {
					endedAt(t, v, vaulttest.DaysAgo(n+9), workflow.Running, time.Time{}) // so that the day can't be dropped
				}
			}
			protected := vaulttest.ContainerOf(vaulttest.DaysAgo(days + 8))
			rule := emulator.On(c.op).Where(func(r emulator.Request) bool { return r.Container == protected }).Do(emulator.Answer(c.status, c.code))
			v = vaulttest.Faulty(t, server, rule)
			if c.op == emulator.DeleteContainer {
				report, err := v.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 10})
				if !errors.Is(err, storage.ErrProtected) || report.More || report.Dropped() != len(report.Days)-1 || report.Days[0].Result != azblob.ExpireFailed {
					t.Errorf("%+v, %v", report, err)
				}
			}
			vaulttest.Must(t, vaulttest.ErrOf(retention.Set(t.Context(), v, retention.Policy{KeepDays: 7}, retention.Change{By: workflow.Attribution{By: "operator"}})))
			time.Sleep(26 * time.Hour)
			_, report, err := retention.NewEnforcer(vaulttest.Offered[retention.Vault](v), "test").Look(t.Context())
			if report == nil || !errors.Is(err, storage.ErrProtected) || storage.LacksRight(err) || report.Removed+report.Dropped < 2 || !strings.Contains(report.Error, "denied: protected") {
				t.Errorf("%+v, %v", report, err)
			}
			if rule.Fired() == 0 || server.Len(protected) == 0 {
				t.Error("the day is gone")
			}
		})
	}
}

// TestCancelledExpire ends the context after the first day of the first eight. The days that Expire has not begun did not
// fail: they are left.
func TestCancelledExpire(t *testing.T) {
	vaulttest.InBubble(t, "20 days", func(t *testing.T, server *emulator.Server) {
		for n := range 20 {
			vaulttest.PutDay(server, vaulttest.DaysAgo(n+9))
		}
		ctx, cancel := context.WithCancel(t.Context())
		report, err := vaulttest.OnEmulator(t, server).Admin().Expire(audited.Mark(ctx), azblob.ExpireOptions{OlderThanDays: week, Progress: func(storage.Progress) { cancel() }})
		if !errors.Is(err, context.Canceled) || len(report.Days) != 8 || report.Dropped() != 8 || !report.More {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// TestLeftExpiry leaves the mark of an Expire that died. It stops no Create for longer than its lease, Check
// reports it after that, another Expire leaves the day alone, and a hold does not keep it there.
func TestLeftExpiry(t *testing.T) {
	for remover, remove := range map[string]func(ctx context.Context, v *azblob.Vault, day time.Time) error{
		"Create": func(ctx context.Context, v *azblob.Vault, day time.Time) error {
			return v.Create(ctx, vaulttest.PlanOf(day))
		},
		"Recovery": func(ctx context.Context, v *azblob.Vault, _ time.Time) error { return v.Recovery(ctx) },
		"thorough Repair": func(ctx context.Context, v *azblob.Vault, _ time.Time) error {
			return vaulttest.ErrOf(v.Admin().Repair(audited.Mark(ctx), vaulttest.Thorough))
		},
		"Recovery of a held day": func(ctx context.Context, v *azblob.Vault, day time.Time) error {
			return errors.Join(v.Admin().Hold(audited.Mark(ctx), storage.DayOf(day), workflow.Attribution{}), v.Recovery(ctx))
		},
	} {
		vaulttest.InBubble(t, remover, func(t *testing.T, server *emulator.Server) {
			v, day := vaulttest.OnEmulator(t, server), vaulttest.DaysAgo(9)
			vaulttest.PutDay(server, day)
			vaulttest.Dies(t, server, emulator.On(emulator.ListBlobs).Nth(3), func(v *azblob.Vault) {
				_, _ = v.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: week})
			})
			if report := expired(t, v, azblob.ExpireOptions{}); len(report.Days) != 1 || report.Days[0].Result != azblob.ExpireBusy {
				t.Errorf("another Expire: %+v", report)
			}
			vaulttest.Fails(t, v.Create(t.Context(), vaulttest.PlanOf(day)), storage.ErrConflict)
			// The lease is looked at again before the mark is removed, because the first response may be false.
			lie := emulator.On(emulator.GetContainerProperties).Nth(1).Do(vaulttest.Absences[1])
			if err := vaulttest.Faulty(t, server, lie).Create(t.Context(), vaulttest.PlanOf(day)); !errors.Is(err, storage.ErrConflict) || lie.Fired() != 1 {
				t.Errorf("Create beside an Expire, %d false responses: %v", lie.Fired(), err)
			}
			vaulttest.Must(t, v.Recovery(t.Context()))
			problems := func(want int) {
				t.Helper()
				report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
				left := slices.DeleteFunc(report.Problems, func(p azblob.Problem) bool { return p.Kind != azblob.ProblemLeftMarker })
				if err != nil || len(left) != want {
					t.Errorf("Check: %v, %v", left, err)
				}
			}
			problems(0)
			time.Sleep(time.Minute)
			problems(1)
			vaulttest.Must(t, remove(t.Context(), v, day))
			noMark(t, server, day)
			problems(0)
		})
	}
}

// TestHoldAndExpireOnServices holds, releases and drops a day on the emulator and on Azurite.
func TestHoldAndExpireOnServices(t *testing.T) {
	vaulttest.OnServices(t, func(t *testing.T, open func(opts ...azblob.Options) *azblob.Vault) {
		v := open()
		day := vaulttest.DaysAgo(9)
		plan := finished(t, v, vaulttest.PlanOf(day))
		vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
		vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
		if held, err := v.Admin().Holds(t.Context()); err != nil || len(held) != 1 || held[0] != storage.DayOf(day) {
			t.Errorf("Holds: %v, %v", held, err)
		}
		vaulttest.Fails(t, open().Delete(t.Context(), plan.ID), storage.ErrHeld)
		if report := expired(t, v, azblob.ExpireOptions{}); len(report.Days) != 1 || report.Days[0].Result != azblob.ExpireHeld {
			t.Errorf("%+v", report)
		}
		vaulttest.Must(t, open().Admin().Release(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
		vaulttest.Must(t, open().Admin().Release(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
		if report := expired(t, v, azblob.ExpireOptions{}); report.Dropped() != 1 {
			t.Errorf("%+v", report)
		}
		vaulttest.Fails(t, vaulttest.ErrOf(v.Read(t.Context(), plan.ID)), storage.ErrNotFound)
	})
}

// TestBudgets expires and catalogues days within a budget that is used up at once. Each call does what it has begun, and
// says that more is left.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{Latency: time.Second})
		v := vaulttest.OnEmulator(t, server)
		for n := range 20 {
			vaulttest.PutDay(server, vaulttest.DaysAgo(9+n))
		}
		catalogue := azblob.CatalogueOptions{Budget: time.Nanosecond}
		for i := range 3 {
			report, err := v.Admin().Catalogue(t.Context(), catalogue)
			if vaulttest.Must(t, err); len(report.Built) != 1 || report.Present != i || !report.More {
				t.Errorf("%d: %+v", i, report)
			}
		}
		catalogue.Budget = time.Hour
		if report, err := v.Admin().Catalogue(t.Context(), catalogue); err != nil || len(report.Built) != 17 || report.More {
			t.Errorf("%+v, %v", report, err)
		}
		server.ResetRequests()
		expire := azblob.ExpireOptions{OlderThanDays: 1, Budget: time.Nanosecond}
		for i, want := range []int{8, 8, 4, 0} {
			report, err := v.Admin().Expire(audited.Mark(t.Context()), expire)
			if vaulttest.Must(t, err); report.Dropped() != want || report.More != (i < 2) {
				t.Errorf("%d: %+v", i, report)
			}
		}
		if n := len(server.Requests()); n != 4+6*20 { // their catalogues say that no plan is another program's
			t.Errorf("4 Expires drop 20 days with %d requests", n)
		}
		expire.Budget, catalogue.Budget = -1, -1
		_, expireErr := v.Admin().Expire(audited.Mark(t.Context()), expire)
		_, catalogueErr := v.Admin().Catalogue(t.Context(), catalogue)
		if !errors.Is(expireErr, storage.ErrInvalid) || !errors.Is(catalogueErr, storage.ErrInvalid) {
			t.Errorf("negative budgets: %v, %v", expireErr, catalogueErr)
		}
	})
}

func TestMain(m *testing.M) { os.Exit(vaulttest.Azurite.Run(m)) }

// TestExpireKeeps asks to keep days before they are dropped. A day that can't be kept stays, and one with an open plan is not
// asked for.
func TestExpireKeeps(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		for ago, status := range map[int]workflow.Status{19: workflow.Completed, 18: workflow.Running, 17: workflow.Failed, 1: workflow.Completed} {
			ended(t, v, vaulttest.DaysAgo(ago), status)
		}
		server.PutContainer(vaulttest.ContainerOf(vaulttest.DaysAgo(3)), map[string]string{"planvaultlayout": "1"})
		var mu sync.Mutex
		asked := map[storage.Day]bool{}
		o := azblob.ExpireOptions{OlderThanDays: week, Empty: true, Keep: func(_ context.Context, day storage.Day) error {
			mu.Lock()
			defer mu.Unlock()
			asked[day] = true
			if day == storage.DayOf(vaulttest.DaysAgo(17)) {
				return io.ErrShortWrite
			}
			return nil
		}}
		o.DryRun = true
		if report := expired(t, v, o); report.Dropped() != 3 || len(asked) > 0 {
			t.Errorf("a dry run drops %d days, and asks for %v", report.Dropped(), asked)
		}
		o.DryRun = false
		report, err := v.Admin().Expire(audited.Mark(t.Context()), o)
		left := dayText(t, v, server, 19) + " " + dayText(t, v, server, 18) + " " + dayText(t, v, server, 17) + " " + dayText(t, v, server, 3)
		if !errors.Is(err, io.ErrShortWrite) || report.Dropped() != 2 || left != "gone R F gone" || len(asked) != 2 {
			t.Errorf("%+v, %v: %s are left, asked for %v", report, err, left, asked)
		}
		if o.Keep = nil; expired(t, v, o).Dropped() != 1 {
			t.Error("without Keep, the day stays")
		}
	})
}

// TestAdminSaysWhoAsked makes each change twice. The log has it once: the second time there is nothing to do. A vault
// without the day gets no log.
func TestAdminSaysWhoAsked(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		elsewhere := emulator.New(emulator.Options{})
		wrong := vaulttest.OnEmulator(t, elsewhere)
		plan := finished(t, v, oldPlan())
		day := storage.DayOf(workflow.Time(plan.ID))
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), oldPlan()) })
		time.Sleep(vaulttest.PastGrace)
		var logged []string
		for _, change := range []struct {
			entry string
			do    func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error
		}{
			{"repair", func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error {
				return vaulttest.ErrOf(a.Repair(ctx, azblob.RepairOptions{By: by}))
			}},
			{"hold", func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error { return a.Hold(ctx, day, by) }},
			{"release", func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error {
				return a.Release(ctx, day, by)
			}},
			{"expire older than 1 day", func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error {
				return vaulttest.ErrOf(a.Expire(ctx, azblob.ExpireOptions{By: by, OlderThanDays: 1}))
			}},
		} {
			untouched := vaulttest.Untouched(t, server)
			vaulttest.Fails(t, change.do(t.Context(), v.Admin(), workflow.Attribution{}), storage.ErrInvalid)
			untouched()
			_ = change.do(t.Context(), wrong.Admin(), workflow.Attribution{By: "ana"})
			vaulttest.Empty(t, elsewhere)
			time.Sleep(time.Second)
			vaulttest.Must(t, change.do(t.Context(), v.Admin(), workflow.Attribution{By: "ana", Why: change.entry}))
			logged = append(logged, change.entry)
			_ = change.do(t.Context(), v.Admin(), workflow.Attribution{By: "bob"})
			entries, err := storage.Collect(v.Control().AuditEntries(t.Context(), storage.AuditFilters{}))
			vaulttest.Must(t, err)
			var got []string
			for _, e := range slices.Backward(entries) {
				if got = append(got, e.By.Why); e.By.By != "ana" || e.Result != "done" || e.By.Why != strings.TrimSpace(e.What+" "+e.Detail) {
					t.Errorf("the entry %+v", e)
				}
			}
			if !slices.Equal(got, logged) {
				t.Errorf("the log has %q, want %q", got, logged)
			}
		}
	})
}

// TestLeaseOfAnotherProgram: neither Hold nor Release returns nil for a day whose lease is another's.
func TestLeaseOfAnotherProgram(t *testing.T) {
	vaulttest.InBubble(t, "infinite", func(t *testing.T, server *emulator.Server) {
		day := vaulttest.DaysAgo(5)
		ended(t, vaulttest.OnEmulator(t, server), day, workflow.Completed)
		vaulttest.Must(t, vaulttest.OnEmulator(t, server).Admin().Hold(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
		v := vaulttest.Faulty(t, server, emulator.On(emulator.LeaseContainer).Do(emulator.Answer(409, "LeaseIdMismatchWithLeaseOperation")))
		vaulttest.Fails(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}), storage.ErrConflict)
		vaulttest.Fails(t, v.Admin().Release(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}), storage.ErrConflict)
	})
}

// TestRefusedRoster: without a roster nobody knows whether there is a policy.
func TestRefusedRoster(t *testing.T) {
	vaulttest.InBubble(t, "denied", func(t *testing.T, server *emulator.Server) {
		vaulttest.Must(t, vaulttest.ErrOf(retention.Set(t.Context(), vaulttest.OnEmulator(t, server), retention.Policy{KeepDays: 7}, retention.Change{By: workflow.Attribution{By: "operator"}, AtOnce: true})))
		v := vaulttest.Faulty(t, server, emulator.On(emulator.ListBlobs).Do(vaulttest.Denied))
		policy, report, err := retention.NewEnforcer(vaulttest.Offered[retention.Vault](v), "a").Look(t.Context())
		if vaulttest.Fails(t, err, storage.ErrDenied); policy != nil || report != nil {
			t.Errorf("%+v, %+v", policy, report)
		}
	})
}
