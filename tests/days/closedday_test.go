package days_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// nineDays is an age at which a day is closed.
const nineDays = 9 * 24 * time.Hour

// oldPlan makes a plan with the ID of a day that is closed.
func oldPlan() *workflow.Plan { return vaulttest.PlanOf(vaulttest.DaysAgo(9)) }

// oldContainer is the container of the plans of oldPlan.
func oldContainer() string { return vaulttest.ContainerOf(vaulttest.DaysAgo(9)) }

// finished stores a plan and completes it.
func finished(t *testing.T, v *azblob.Vault, plan *workflow.Plan) *workflow.Plan {
	t.Helper()
	plan = vaulttest.Created(t, v, plan)
	vaulttest.Moved(plan, workflow.Completed)
	vaulttest.Must(t, storage.Update(t.Context(), v, plan.Blocks[0].Sequences[0].Actions[0]))
	vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
	return vaulttest.Reread(t, v, plan)
}

// change is an operation that changes what listings show of a closed day.
type change struct {
	prepare func(t *testing.T, v *azblob.Vault) *workflow.Plan
	do      func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error
	// requests and trips are what it costs beyond the same in a young day.
	requests, trips int
}

func changes() map[string]change {
	return map[string]change{
		"Create": {
			func(t *testing.T, v *azblob.Vault) *workflow.Plan { return oldPlan() },
			func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.Create(ctx, plan) }, 5, 2,
		},
		"Delete": {
			func(t *testing.T, v *azblob.Vault) *workflow.Plan { return finished(t, v, oldPlan()) },
			func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) }, 4, 2,
		},
		"UpdatePlan": {
			func(t *testing.T, v *azblob.Vault) *workflow.Plan { return finished(t, v, oldPlan()) },
			func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.UpdatePlan(ctx, plan) }, 2, 1,
		},
	}
}

// TestCostOfClosedDays counts what a change of a closed day costs more than one of a young day.
func TestCostOfClosedDays(t *testing.T) {
	for name, c := range changes() {
		var counts, trips [2]int
		for i, age := range []time.Duration{0, nineDays} {
			synctest.Test(t, func(t *testing.T) {
				server := emulator.New(emulator.Options{Latency: time.Second})
				var end azblob.OperationEnd
				v := vaulttest.OnEmulator(t, server, azblob.Options{Observer: azblob.Observer{OperationStart: func(ctx context.Context, _ azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
					return ctx, func(e azblob.OperationEnd) { end = e }
				}}})
				plan := plantest.Small()
				plan.ID = workflow.NewV7At(time.Now().Add(-age))
				if name != "Create" {
					plan = finished(t, v, plan)
				} else {
					vaulttest.Must(t, v.Create(t.Context(), vaulttest.PlanOf(workflow.Time(plan.ID)))) // makes the container
				}
				vaulttest.Must(t, c.do(t.Context(), v, plan))
				counts[i], trips[i] = end.Requests, end.RoundTrips
			})
		}
		if more, tripsMore := counts[1]-counts[0], trips[1]-trips[0]; more != c.requests || tripsMore != c.trips {
			t.Errorf("%s: %d requests and %d round trips more, want %d and %d", name, more, tripsMore, c.requests, c.trips)
		}
	}
}

// TestHold holds a day: its plans can't be deleted and the day can't be dropped, until it is released.
func TestHold(t *testing.T) {
	vaulttest.InBubble(t, "closed", func(t *testing.T, server *emulator.Server) {
		v, other := vaulttest.OnEmulator(t, server), vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		server.Put(oldContainer(), "catalogue", []byte("catalogue"), nil)
		day := workflow.Time(plan.ID)
		for range 2 {
			vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
		}
		if held, err := other.Admin().Holds(t.Context()); err != nil || !slices.Equal(held, []storage.Day{storage.DayOf(day)}) {
			t.Errorf("Holds: %v, %v", held, err)
		}
		untouched := vaulttest.Untouched(t, server)
		err := other.Delete(t.Context(), plan.ID)
		if !errors.Is(err, storage.ErrHeld) || azblob.OutcomeOf(err) != azblob.OutcomeHeld {
			t.Errorf("Delete: %v", err)
		}
		report, err := other.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 1})
		if err != nil || len(report.Days) != 1 || report.Days[0].Result != azblob.ExpireHeld {
			t.Errorf("Expire: %+v, %v", report, err)
		}
		untouched()
		vaulttest.Must(t, v.Create(t.Context(), oldPlan()))
		vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
		for range 2 {
			vaulttest.Must(t, other.Admin().Release(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
		}
		if held, err := v.Admin().Holds(t.Context()); err != nil || len(held) != 0 {
			t.Errorf("Holds: %v, %v", held, err)
		}
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
	})
	vaulttest.InBubble(t, "refused", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		young := vaulttest.Created(t, v, plantest.Small())
		vaulttest.Fails(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(workflow.Time(young.ID)), workflow.Attribution{}), storage.ErrInvalid)
		vaulttest.Must(t, v.Create(t.Context(), &workflow.Plan{Name: "yesterday", ID: workflow.NewV7At(time.Now().Add(-24 * time.Hour))}))
		vaulttest.Fails(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(time.Now().Add(-24*time.Hour)), workflow.Attribution{}), storage.ErrInvalid)
		missing := time.Now().Add(-nineDays)
		vaulttest.Fails(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(missing), workflow.Attribution{}), storage.ErrNotFound)
		vaulttest.Fails(t, v.Admin().Release(audited.Mark(t.Context()), storage.DayOf(missing), workflow.Attribution{}), storage.ErrNotFound)
	})
}

// TestHoldWaitsForDeletes begins a Delete before the hold and lets it go on after it. Hold returns when the Delete
// can no longer take effect, or when its context ends.
func TestHoldWaitsForDeletes(t *testing.T) {
	vaulttest.InBubble(t, "a delete that goes on", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		vaulttest.Dies(t, server, emulator.On(emulator.DeleteBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
		ctx := vaulttest.Within(t, time.Minute)
		if err := v.Admin().Hold(audited.Mark(ctx), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), plan.ID.String()) {
			t.Errorf("Hold beside a Delete: %v", err)
		}
		held := make(chan error, 1)
		go func() {
			held <- v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{})
		}()
		time.Sleep(vaulttest.PastGrace)
		select {
		case err := <-held:
			t.Errorf("Hold did not wait: %v", err)
		default:
		}
		vaulttest.Must(t, vaulttest.OnEmulator(t, server).Recovery(t.Context()))
		vaulttest.Must(t, <-held)
		vaulttest.Same(t, v, plan)
		vaulttest.Must(t, v.Admin().Release(audited.Mark(t.Context()), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{}))
	})
}

// TestDeleteMeetsAHold lets a Delete see no hold before its marker and one after it. It takes the marker back, and
// an earlier Delete that shares the marker can't commit either. If it can't take the marker back, the error says so.
func TestDeleteMeetsAHold(t *testing.T) {
	vaulttest.InBubble(t, "late", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		second := vaulttest.Faulty(t, server, meetsAHold(t, v, plan))
		first := vaulttest.Meanwhile(t, server, emulator.DeleteBlob, "-object.json", func() {
			vaulttest.Fails(t, second.Delete(t.Context(), plan.ID), storage.ErrHeld)
		})
		vaulttest.Fails(t, first.Delete(t.Context(), plan.ID), storage.ErrHeld)
		vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{}))
		if got := vaulttest.Reread(t, v, plan); got.State.Status != workflow.Completed {
			t.Errorf("the plan is %s", got.State.Status)
		}
		vaulttest.Sound(t, v)
	})
	vaulttest.InBubble(t, "late, without the right to write", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		denied := emulator.On(emulator.PutBlob).Path("plans/*-object.json").Do(vaulttest.Denied)
		vaulttest.Fails(t, vaulttest.Faulty(t, server, meetsAHold(t, v, plan), denied).Delete(t.Context(), plan.ID), storage.ErrHeld, storage.ErrDenied)
		vaulttest.Settled(t, v)
	})
}

// meetsAHold is a rule that holds the plan's day before the second look for a hold.
func meetsAHold(t *testing.T, v *azblob.Vault, plan *workflow.Plan) *emulator.Rule {
	return emulator.On(emulator.GetContainerProperties).Nth(2).Do(emulator.Before(func() {
		ctx := vaulttest.Within(t, time.Millisecond)
		vaulttest.Fails(t, v.Admin().Hold(audited.Mark(ctx), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{}), context.DeadlineExceeded)
	}))
}

// wrong makes the catalogue of a closed day wrong. It returns the blob that replaces it.
type wrong func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan, built emulator.Blob) emulator.Blob

// behind changes a day and leaves its catalogue.
func behind(change func(t *testing.T, v *azblob.Vault, plan *workflow.Plan)) wrong {
	return func(t *testing.T, _ *emulator.Server, v *azblob.Vault, plan *workflow.Plan, built emulator.Blob) emulator.Blob {
		change(t, v, plan)
		return built
	}
}

const isAnotherDays, isOlder = "is another day's", "is of an older schema"

func wrongs() map[string]wrong {
	return map[string]wrong{
		"lacks a plan":       behind(func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) { finished(t, v, oldPlan()) }),
		"lacks an open plan": behind(func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) { vaulttest.Created(t, v, oldPlan()) }),
		"has a deleted plan": behind(func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
			vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		}),
		"has an old version": behind(func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
			vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
		}),
		isAnotherDays: func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan, _ emulator.Blob) emulator.Blob {
			other := finished(t, v, vaulttest.PlanOf(vaulttest.DaysAgo(10)))
			vaulttest.Build(t, v)
			built, _ := server.Blob(vaulttest.ContainerOf(workflow.Time(other.ID).UTC()), "catalogue")
			return built
		},
		"is another day's, beside an open plan": func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan, built emulator.Blob) emulator.Blob {
			built = wrongs()[isAnotherDays](t, server, v, plan, built)
			vaulttest.Created(t, v, oldPlan())
			return built
		},
		"is another day's, renamed": func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan, built emulator.Blob) emulator.Blob {
			return emulator.Blob{Body: wrongs()[isAnotherDays](t, server, v, plan, built).Body, Metadata: built.Metadata}
		},
		"is damaged": func(_ *testing.T, _ *emulator.Server, _ *azblob.Vault, _ *workflow.Plan, built emulator.Blob) emulator.Blob {
			built.Body = slices.Clone(built.Body)
			built.Body[len(built.Body)-1] ^= 1
			return built
		},
		isOlder: func(_ *testing.T, _ *emulator.Server, _ *azblob.Vault, _ *workflow.Plan, built emulator.Blob) emulator.Blob {
			built.Metadata = maps.Clone(built.Metadata)
			built.Metadata["schema"] = "1"
			return built
		},
	}
}

// TestWrongCatalogues stores a wrong catalogue, and lets Check, Catalogue with Verify or a thorough Repair find it: in a dry run,
// and after a crash at each request of an earlier one. No listing reads a catalogue that does not name its day.
func TestWrongCatalogues(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	menders := map[string]func(ctx context.Context, v *azblob.Vault, dry bool) (days int, err error){
		"Verify": func(ctx context.Context, v *azblob.Vault, dry bool) (int, error) {
			report, err := v.Admin().Catalogue(ctx, azblob.CatalogueOptions{Verify: true, DryRun: dry})
			return len(report.Built), err
		},
		"Recover": func(ctx context.Context, v *azblob.Vault, dry bool) (int, error) {
			report, err := v.Admin().Repair(audited.Mark(ctx), azblob.RepairOptions{Thorough: true, DryRun: dry})
			return len(report.Catalogues), err
		},
	}
	for how, wrong := range wrongs() {
		for by, mend := range menders {
			// Recovery leaves to Catalogue what it takes for a placeholder.
			want, open, kind := 1, strings.HasSuffix(how, "open plan"), azblob.ProblemDisagreement
			if strings.HasPrefix(how, "is ") {
				kind = azblob.ProblemUnreadable
			}
			if by == "Recover" && (strings.HasPrefix(how, isAnotherDays) && !strings.HasSuffix(how, "renamed") || how == isOlder) {
				want = 0
			}
			for n, more := 0, true; more && !t.Failed(); n++ {
				more = n == 0 && !testing.Short() && !strings.HasPrefix(how, "is ")
				for _, effect := range vaulttest.Crashes[:efforttest.Pick(1, 1, 2)] {
					vaulttest.InBubble(t, fmt.Sprintf("%s/%s/%d/%s", how, by, n, effect), func(t *testing.T, server *emulator.Server) {
						v := vaulttest.OnEmulator(t, server)
						plan := finished(t, v, oldPlan())
						vaulttest.Build(t, v)
						built, _ := server.Blob(oldContainer(), "catalogue")
						built = wrong(t, server, v, plan, built)
						server.Put(oldContainer(), "catalogue", built.Body, built.Metadata)
						right := func() {
							bare := server.Clone()
							if bare.Remove(oldContainer(), "catalogue"); !slices.Equal(vaulttest.ShownBy(t, server), vaulttest.ShownBy(t, bare)) {
								t.Error("a listing believes a wrong catalogue")
							}
						}
						if strings.HasPrefix(how, "is ") {
							right()
						}
						report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
						vaulttest.Must(t, err)
						problems := slices.DeleteFunc(report.Problems, func(p azblob.Problem) bool { return p.Blob != oldContainer()+"/catalogue" })
						if len(problems) > 0 != (how != isOlder) || len(problems) > 0 && problems[0].Kind != kind {
							t.Errorf("Check: %v, want %s", problems, kind)
						}
						before := vaulttest.Contents(server)
						if found, err := mend(t.Context(), v, true); err != nil || found != want || !maps.Equal(before, vaulttest.Contents(server)) {
							t.Errorf("a dry run: %d days, %v", found, err)
						}
						if n > 0 {
							died, _ := vaulttest.WorldOf(server).Dying(t, n, effect, func(ctx context.Context, _ *testing.T, v *azblob.Vault) error {
								return vaulttest.ErrOf(mend(ctx, v, false))
							})
							more = more || died
						}
						found, err := mend(t.Context(), v, false)
						vaulttest.Must(t, err)
						if n == 0 && found != want && !open {
							t.Errorf("%d days", found)
						}
						right()
						vaulttest.Build(t, v)
						right()
						if b, _ := server.Blob(oldContainer(), "catalogue"); (b.Metadata["container"] == oldContainer() && b.Metadata["state"] == "built") == open {
							t.Errorf("there is a catalogue: %t", !open)
						}
						if how != "is another day's, beside an open plan" {
							vaulttest.Sound(t, v)
						}
					})
				}
			}
		}
	}
}

// changeMarkers counts the markers of changes of closed days.
func changeMarkers(server *emulator.Server) (n int) {
	for name := range vaulttest.Contents(server) {
		if strings.Contains(name, "-change-") {
			n++
		}
	}
	return n
}

// TestLeftChangeMarker leaves the marker of an update that died. Searches for open plans do not see it, Check
// reports it, and Recovery removes it when it is not recent.
func TestLeftChangeMarker(t *testing.T) {
	vaulttest.InBubble(t, "left", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, plantest.Small())
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-entry.json"), func(v *azblob.Vault) { _ = v.UpdatePlan(t.Context(), plan) })
		if open := vaulttest.Collect(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}); len(open) > 0 {
			t.Errorf("open: %v", open)
		}
		vaulttest.Sound(t, v) // the update may be under way
		vaulttest.Must(t, v.Recovery(t.Context()))
		if n := changeMarkers(server); n != 1 {
			t.Errorf("%d change markers while it is recent", n)
		}
		time.Sleep(vaulttest.PastGrace)
		report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
		if err != nil || len(report.Problems) != 1 || report.Problems[0].Kind != azblob.ProblemLeftMarker {
			t.Errorf("Check: %+v, %v", report, err)
		}
		vaulttest.Must(t, v.Recovery(t.Context()))
		if n := changeMarkers(server); n != 0 {
			t.Errorf("%d change markers after Recovery", n)
		}
		vaulttest.Sound(t, v)
	})
}

// TestUpdatesOfFinalPlansBesideEachOther lets an update run within another one of the same version. Each has its own
// marker: that of the first is there until its end.
func TestUpdatesOfFinalPlansBesideEachOther(t *testing.T) {
	vaulttest.InBubble(t, "two", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		again := vaulttest.Reread(t, v, plan)
		first := vaulttest.Meanwhile(t, server, emulator.PutBlob, "-entry.json", func() {
			vaulttest.Should(t, v.UpdatePlan(t.Context(), again))
			if n := changeMarkers(server); n != 1 {
				t.Errorf("%d change markers are there before the first update commits", n)
			}
		})
		vaulttest.Fails(t, first.UpdatePlan(t.Context(), plan), storage.ErrConflict)
		vaulttest.Sound(t, v)
	})
}

// TestSlowChangeOfAClosedDay stops an update of a final plan for longer than its grace period, between its marker and
// its commit. It does not commit: Recovery has removed the marker, and the day has a catalogue again.
func TestSlowChangeOfAClosedDay(t *testing.T) {
	vaulttest.InBubble(t, "update", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		vaulttest.Build(t, v)
		slow := vaulttest.Meanwhile(t, server, emulator.DeleteBlob, "catalogue", func() { time.Sleep(vaulttest.PastGrace) })
		err := slow.UpdatePlan(t.Context(), plan) // retries end as late as the grace period, so the error has to name the cause
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) || !strings.Contains(err.Error(), "not changed within the grace period") {
			t.Errorf("the slow update: %v", err)
		}
		vaulttest.EqualListings(t, server)
		vaulttest.Must(t, v.Recovery(t.Context()))
		vaulttest.Build(t, v)
		vaulttest.EqualListings(t, server)
		vaulttest.Sound(t, v)
	})
}

// TestCreateInADayMadeAnew drops a day between the marker of a Create and its look for an expiry, and makes the day
// anew. The Create commits nothing, since its marker is gone, also if another Create of the ID has written one.
func TestCreateInADayMadeAnew(t *testing.T) {
	for _, rival := range []bool{false, true} {
		vaulttest.InBubble(t, fmt.Sprintf("rival %t", rival), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			plan := oldPlan()
			marker := "open/" + plan.ID.String()
			late := vaulttest.Meanwhile(t, server, emulator.HeadBlob, "open/dropping", func() {
				server.RemoveContainer(oldContainer())
				vaulttest.Must(t, v.Create(t.Context(), oldPlan()))
				if rival {
					server.Put(oldContainer(), marker, nil, map[string]string{"writeid": "rival", "grace": "10m0s"})
				}
			})
			vaulttest.Fails(t, late.Create(t.Context(), plan), storage.ErrConflict)
			for b := range server.Blobs(oldContainer()) {
				if strings.Contains(b.Name, plan.ID.String()) && !(rival && b.Name == marker) {
					t.Errorf("%s is left", b.Name)
				}
			}
			if _, there := server.Blob(oldContainer(), marker); there != rival {
				t.Errorf("there is a marker: %t", there)
			}
			time.Sleep(vaulttest.PastGrace)
			vaulttest.Must(t, v.Recovery(t.Context()))
			vaulttest.Sound(t, v)
		})
	}
}
