package days_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestNoHoldIsMissedBecauseOfAFalse404 answers what a Delete asks for the hold of its day with 404, once and then always.
// Nothing is deleted. TestWrongAnswers has the other requests of closed days.
func TestNoHoldIsMissedBecauseOfAFalse404(t *testing.T) {
	for _, effect := range vaulttest.Absences[:2] {
		for _, times := range []int{1, 1 << 20} {
			vaulttest.InBubble(t, fmt.Sprintf("%v, %d times", effect, times), func(t *testing.T, server *emulator.Server) {
				v := vaulttest.OnEmulator(t, server)
				plan := finished(t, v, oldPlan())
				vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{}))
				rule := emulator.On(emulator.GetContainerProperties).Times(times).Do(effect)
				err := vaulttest.Faulty(t, server, rule).Delete(t.Context(), plan.ID)
				if rule.Fired() == 0 || !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrHeld) {
					t.Errorf("%d false responses, %v", rule.Fired(), err)
				}
				vaulttest.Same(t, v, plan)
			})
		}
	}
}

// TestNoDayLooksEmptyBecauseOfAFalse404 answers the listings of a closed day with 404. Expire drops no open plan,
// Hold does not overlook a Delete, and no catalogue lacks a plan.
func TestNoDayLooksEmptyBecauseOfAFalse404(t *testing.T) {
	const listing = emulator.ListBlobs
	vaulttest.InBubble(t, "Expire", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, oldPlan())
		rule := emulator.On(listing).Nth(1).Do(vaulttest.Absences[1])
		report, err := vaulttest.Faulty(t, server, rule).Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 1})
		if rule.Fired() != 1 || !errors.Is(err, storage.ErrUnavailable) || report.Dropped() != 0 {
			t.Errorf("%d false responses, %+v, %v", rule.Fired(), report, err)
		}
		vaulttest.Same(t, v, plan)
		vaulttest.Must(t, v.Create(t.Context(), oldPlan()))
	})
	vaulttest.InBubble(t, "Hold", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		vaulttest.Dies(t, server, emulator.On(emulator.DeleteBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
		rule := emulator.On(listing).Nth(1).Do(vaulttest.Absences[1])
		if err := vaulttest.Faulty(t, server, rule).Admin().Hold(audited.Mark(t.Context()), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{}); rule.Fired() != 1 || !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%d false responses, %v", rule.Fired(), err)
		}
	})
	vaulttest.InBubble(t, "Catalogue", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		for nth := 1; nth <= 2; nth++ { // open/, plans/
			rule := emulator.On(listing).Nth(nth).Do(vaulttest.Absences[1])
			report, err := vaulttest.Faulty(t, server, rule).Admin().Catalogue(t.Context(), azblob.CatalogueOptions{})
			if rule.Fired() != 1 || err != nil || len(report.Built) != 0 || len(report.Skipped) != 1 {
				t.Errorf("%d false responses, %+v, %v", rule.Fired(), report, err)
			}
		}
		vaulttest.Must(t, vaulttest.ErrOf(v.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{})))
		if found, err := storage.Collect(vaulttest.OnEmulator(t, server).List(t.Context(), 0)); err != nil || len(found) != 1 || found[0].ID != plan.ID {
			t.Errorf("List: %v, %v", found, err)
		}
	})
}

// TestNoDayIsJudgedByOneListing omits blobs from one listing of a closed day, the first or the second, also in each of its
// answers as a cache does. Nothing is dropped, held or catalogued that the other listing contradicts.
func TestNoDayIsJudgedByOneListing(t *testing.T) {
	type do = func(t *testing.T, v *azblob.Vault, plan *workflow.Plan)
	expire := func(o azblob.ExpireOptions, want ...azblob.ExpireResult) do {
		return func(t *testing.T, v *azblob.Vault, _ *workflow.Plan) {
			report, err := v.Admin().Expire(audited.Mark(t.Context()), o)
			var got []azblob.ExpireResult
			for _, d := range report.Days {
				got = append(got, d.Result)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%+v, %v, want %v", report, err, want)
			}
		}
	}
	catalogue := func(t *testing.T, v *azblob.Vault, _ *workflow.Plan) {
		report, err := v.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{})
		if err != nil || len(report.Built) > 0 || len(report.Skipped) != 1 {
			t.Errorf("%+v, %v", report, err)
		}
	}
	unchanged := func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan {
		plan := finished(t, v, oldPlan())
		finished(t, v, oldPlan())
		return plan
	}
	dead := func(op emulator.Op, path string, change func(*azblob.Vault, context.Context, *workflow.Plan) error) func(*testing.T, *emulator.Server, *azblob.Vault) *workflow.Plan {
		return func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan {
			plan := finished(t, v, oldPlan())
			vaulttest.Dies(t, server, emulator.On(op).Path(path), func(v *azblob.Vault) { _ = change(v, t.Context(), plan) })
			return plan
		}
	}
	for name, row := range map[string]struct {
		omitted string
		prepare func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan
		do      do
	}{
		"Expire of an open plan": {"open/[^d]", func(t *testing.T, _ *emulator.Server, v *azblob.Vault) *workflow.Plan {
			return vaulttest.Created(t, v, oldPlan())
		}, expire(azblob.ExpireOptions{OlderThanDays: 1}, azblob.ExpireOpen)},
		"Expire of an empty day": {"", unchanged, expire(azblob.ExpireOptions{OlderThanDays: 90, Empty: true})},
		"Hold": {
			"open/", dead(emulator.DeleteBlob, "-object.json", func(v *azblob.Vault, ctx context.Context, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) }),
			func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
				ctx := vaulttest.Within(t, time.Millisecond)
				vaulttest.Fails(t, v.Admin().Hold(audited.Mark(ctx), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{}), context.DeadlineExceeded)
			},
		},
		"Catalogue of a day that changes": {"open/", dead(emulator.PutBlob, "-entry.json", (*azblob.Vault).UpdatePlan), catalogue},
		"Catalogue":                       {"plans/.*-entry", unchanged, catalogue},
		"Verify": {"plans/.*-entry", func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan {
			plan := unchanged(t, server, v)
			vaulttest.Build(t, v)
			return plan
		}, func(t *testing.T, v *azblob.Vault, _ *workflow.Plan) {
			report, err := v.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{Verify: true})
			if err != nil || report.Present != 1 {
				t.Errorf("%+v, %v", report, err)
			}
		}},
	} {
		for _, cached := range []bool{false, true} {
			vaulttest.InBubble(t, fmt.Sprintf("%s/%t", name, cached), func(t *testing.T, server *emulator.Server) {
				v := vaulttest.OnEmulator(t, server)
				plan := row.prepare(t, server, v)
				short := &vaulttest.ShortLister{Transport: server.Transport(), Name: row.omitted, Cached: cached, Times: 1}
				row.do(t, vaulttest.OnEmulator(t, server, settings.Over(short)), plan)
				if short.Query == "" {
					t.Error("no listing was short")
				}
				vaulttest.Same(t, v, plan)
				vaulttest.EqualListings(t, server)
			})
		}
	}
}

// TestExpireBelievesNoFalse404 answers each request of an Expire for the container with 404. The day is not dropped, and
// Expire does not say so.
func TestExpireBelievesNoFalse404(t *testing.T) {
	for _, op := range []emulator.Op{emulator.HeadBlob, emulator.LeaseContainer, emulator.DeleteContainer, emulator.GetContainerProperties} {
		for _, lasting := range []bool{false, true} {
			vaulttest.InBubble(t, fmt.Sprintf("%s/%t", op, lasting), func(t *testing.T, server *emulator.Server) {
				v := vaulttest.OnEmulator(t, server)
				plan := finished(t, v, oldPlan())
				rules := []*emulator.Rule{emulator.On(op).Do(vaulttest.Absences[1])}
				if op == emulator.GetContainerProperties { // it is asked when the lease is another's
					rules = append(rules, emulator.On(emulator.LeaseContainer).Do(emulator.Answer(409, "LeaseAlreadyPresent")))
				}
				if !lasting {
					rules[0].Nth(1)
				}
				report, err := vaulttest.Faulty(t, server, rules...).Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 1})
				if rules[0].Fired() == 0 || !errors.Is(err, storage.ErrUnavailable) || report.Dropped() != 0 {
					t.Errorf("%d false responses, %+v, %v", rules[0].Fired(), report, err)
				}
				vaulttest.Same(t, v, plan)
				noMark(t, server, workflow.Time(plan.ID).UTC())
				if report := expired(t, v, azblob.ExpireOptions{}); report.Dropped() != 1 {
					t.Errorf("again: %+v", report)
				}
			})
		}
	}
}

// TestClosedDayBesideLies gives false answers of all kinds to the calls that drop, hold, catalogue and recover a day with an
// open plan and one with a final plan. The open plan stays, Expire drops what it says, and no call sends requests without end.
func TestClosedDayBesideLies(t *testing.T) {
	for seed := range efforttest.Seeds(t, 10, 40, 1000) {
		vaulttest.InBubble(t, fmt.Sprint(seed), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			open, ended := vaulttest.Created(t, v, oldPlan()), vaulttest.PlanOf(vaulttest.DaysAgo(8))
			ended = finished(t, v, ended)
			vaulttest.Build(t, v)
			container := vaulttest.ContainerOf(vaulttest.DaysAgo(8))
			absent := emulator.On(emulator.LeaseContainer, emulator.DeleteContainer, emulator.GetContainerProperties, emulator.ListBlobs).
				Chance(0.2, seed).Do(vaulttest.Absences[1])
			transport := server.Transport()
			transport.Inject(emulator.Lies(0.1, seed), emulator.FalseAbsences(0.1, seed), absent)
			short := &vaulttest.ShortLister{Transport: transport, Name: []string{"", "open/", "plans/"}[seed%3], Cached: seed%2 == 0, Times: 1}
			liar := vaulttest.OnEmulator(t, server, settings.Over(short))
			day := workflow.Time(ended.ID)
			for what, do := range []func(ctx context.Context) error{
				func(ctx context.Context) error {
					return vaulttest.ErrOf(liar.Admin().Catalogue(ctx, azblob.CatalogueOptions{}))
				},
				func(ctx context.Context) error {
					return vaulttest.ErrOf(liar.Admin().Catalogue(ctx, azblob.CatalogueOptions{Verify: true}))
				},
				func(ctx context.Context) error {
					return vaulttest.ErrOf(liar.Admin().Repair(audited.Mark(ctx), vaulttest.Thorough))
				},
				func(ctx context.Context) error {
					return errors.Join(liar.Admin().Hold(audited.Mark(ctx), storage.DayOf(day), workflow.Attribution{}), v.Admin().Release(audited.Mark(ctx), storage.DayOf(day), workflow.Attribution{}))
				},
				func(ctx context.Context) error {
					report, err := liar.Admin().Expire(audited.Mark(ctx), azblob.ExpireOptions{OlderThanDays: 1})
					if gone := server.Len(container) == 0; report.Dropped() == 1 && !gone {
						t.Errorf("%+v, %v, and the day is there", report, err)
					}
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				server.ResetRequests()
				err := do(ctx)
				cancel()
				if n := len(server.Requests()); n > 400 {
					t.Errorf("call %d sent %d requests: %v", what, n, err)
				}
			}
			vaulttest.Same(t, v, open)
			time.Sleep(vaulttest.PastGrace)
			vaulttest.Must(t, vaulttest.ErrOf(v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)))
			vaulttest.Sound(t, v)
		})
	}
}

// TestWrongCatalogueBesideOneFalseAnswer gives Check and a thorough Repair one false answer to each request, of a day whose
// catalogue lacks a plan. Neither says that the day is sound.
func TestWrongCatalogueBesideOneFalseAnswer(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		wrong := wrongs()["lacks a plan"]
		v := vaulttest.OnEmulator(t, server)
		plan := finished(t, v, oldPlan())
		vaulttest.Build(t, v)
		built, _ := server.Blob(oldContainer(), "catalogue")
		wrong(t, server, v, plan, built)
		server.Put(oldContainer(), "catalogue", built.Body, built.Metadata)
		finds := func(what string, liar *azblob.Vault) {
			if report, err := liar.Admin().Check(t.Context(), azblob.CheckOptions{}); err == nil && len(report.Problems) == 0 {
				t.Errorf("%s: Check finds nothing", what)
			}
			if report, err := liar.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{Thorough: true, DryRun: true}); err == nil && len(report.Catalogues) == 0 {
				t.Errorf("%s: Recover finds nothing", what)
			}
		}
		finds("a page without the catalogue", vaulttest.OnEmulator(t, server, settings.Over(&vaulttest.ShortLister{Transport: server.Transport(), Name: "catalogue", Times: 9})))
		server.ResetRequests()
		finds("no lie", v)
		for n := range len(server.Requests()) {
			for _, effect := range vaulttest.Absences {
				rule := emulator.On(emulator.HeadBlob, emulator.GetContainerProperties, emulator.ListBlobs).Nth(n + 1).Do(effect)
				finds(fmt.Sprint(effect, " at ", n+1), vaulttest.Faulty(t, server, rule))
			}
		}
	})
}

// TestCreateSeesAnExpiry creates a plan in a day of which an Expire may still be about to remove the container.
// A false 404 for the mark of the expiry does not hide it.
func TestCreateSeesAnExpiry(t *testing.T) {
	for _, effect := range vaulttest.Absences[:2] {
		vaulttest.InBubble(t, fmt.Sprint(effect), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			finished(t, v, oldPlan())
			vaulttest.Dies(t, server, emulator.On(emulator.DeleteContainer), func(v *azblob.Vault) {
				_, _ = v.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 1})
			})
			rule := emulator.On(emulator.HeadBlob).Path("open/dropping").Do(effect)
			plan := oldPlan()
			if err := vaulttest.Faulty(t, server, rule).Create(t.Context(), plan); rule.Fired() == 0 || !errors.Is(err, storage.ErrConflict) {
				t.Errorf("%d false responses, %v", rule.Fired(), err)
			}
			time.Sleep(2 * time.Minute) // the lease is over
			vaulttest.Must(t, v.Create(t.Context(), plan))
			vaulttest.Sound(t, v)
		})
	}
}
