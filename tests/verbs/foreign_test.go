package verbs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestPlansOfAnotherProgram puts plans of another program, whole and half, beside those of a vault: into a day of the
// vault, and into one of their own. Each verb leaves them alone and tells them apart.
func TestPlansOfAnotherProgram(t *testing.T) {
	for _, status := range []int{0, 2, -1} {
		vaulttest.InBubble(t, fmt.Sprint("status ", status), func(t *testing.T, server *emulator.Server) {
			v, ctx := vaulttest.OnEmulator(t, server, azblob.WithUnversionedUpdates()), t.Context()
			mixed, theirs := vaulttest.DaysAgo(20), vaulttest.DaysAgo(10)
			ours := vaulttest.Created(t, v, vaulttest.PlanOf(mixed))
			ours.State = workflow.State{Status: workflow.Running, Start: time.Now()}
			vaulttest.Must(t, v.UpdatePlan(ctx, ours))
			ours.State = workflow.State{Status: workflow.Failed, Start: ours.State.Start, End: time.Now()}
			vaulttest.Must(t, v.UpdatePlan(ctx, ours))
			open := vaulttest.Created(t, v, vaulttest.PlanOf(vaulttest.DaysAgo(0)))
			server.PutContainer(vaulttest.ContainerOf(theirs), nil)
			others := []*vaulttest.Foreign{vaulttest.PutForeign(server, mixed, status), vaulttest.PutForeign(server, theirs, status)}
			time.Sleep(vaulttest.PastGrace)

			step := func(name string, do func()) {
				t.Helper()
				do()
				for _, f := range others {
					if changed := f.Changed(); len(changed) > 0 {
						t.Fatalf("%s changed %v in %s", name, changed, f.Container)
					}
				}
			}
			for _, f := range others {
				for i, id := range f.IDs() {
					whole, object := i == 0, i == 0 || i == 2
					step("Read", func() {
						err := vaulttest.ErrOf(v.Read(ctx, id))
						if errors.Is(err, storage.ErrCorrupt) || !errors.Is(err, storage.ErrForeign) && (whole || !errors.Is(err, storage.ErrNotFound)) {
							t.Errorf("Read of %d: %v", i, err)
						}
						if whole && (azblob.OutcomeOf(err) != azblob.OutcomeForeign || !errors.Is(err, storage.ErrSchema)) {
							t.Errorf("outcome %s of %v", azblob.OutcomeOf(err), err)
						}
					})
					step("Exists", func() {
						if found, err := v.Exists(ctx, id); found || object != errors.Is(err, storage.ErrForeign) {
							t.Errorf("Exists of %d: %t, %v", i, found, err)
						}
					})
					step("Search by ID", func() {
						if err := vaulttest.ErrOf(storage.Collect(v.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{id}}))); whole != errors.Is(err, storage.ErrForeign) {
							t.Errorf("Search of %d: %v", i, err)
						}
					})
					step("Delete", func() {
						if err := v.Delete(ctx, id); !errors.Is(err, storage.ErrForeign) && !errors.Is(err, storage.ErrNotFound) {
							t.Errorf("Delete of %d: %v", i, err)
						}
					})
					step("UpdatePlan", func() {
						plan := vaulttest.Reread(t, v, ours)
						for o := range workflow.Walk(plan) {
							*o.Header().PlanID = id
						}
						plan.ID, plan.State.ETag = id, ""
						if err := v.UpdatePlan(ctx, plan); !errors.Is(err, storage.ErrForeign) && !errors.Is(err, storage.ErrNotFound) {
							t.Errorf("UpdatePlan of %d: %v", i, err)
						}
					})
				}
			}
			step("List", func() {
				found, err := storage.Collect(v.List(ctx, 0))
				if ids := vaulttest.IDs(found); !slices.Equal(ids, []uuid.UUID{open.ID, ours.ID}) || strings.Count(fmt.Sprint(err), "another program") != 2 {
					t.Errorf("List: %v, %v", ids, err)
				}
			})
			step("Count", func() {
				var left *storage.ForeignError
				if n, err := v.Count(ctx, storage.Filters{}); n != 3 || !errors.As(err, &left) || left.Plans != 1 { // by names in the vault's day
					t.Errorf("Count: %d, %v", n, err)
				}
				if n, err := v.Count(ctx, storage.Filters{NamePrefix: " "}); n != 0 || !errors.As(err, &left) || left.Plans != 2 {
					t.Errorf("Count by name: %d, %v", n, err)
				}
			})
			step("Stats", func() {
				days, err := storage.Collect(v.Stats(ctx, azblob.StatsOptions{}))
				vaulttest.Must(t, err)
				for i, want := range []struct{ own, others int64 }{{1, 0}, {0, 1}, {1, 1}} {
					if days[i].Total() != want.own || days[i].Foreign != want.others || days[i].Unreadable != 0 {
						t.Errorf("Stats of day %d: %+v", i, days[i])
					}
				}
			})
			step("Check", func() {
				report := vaulttest.Sound(t, v)
				if report.Foreign != 8 || report.Plans != 2 {
					t.Errorf("Check: %+v", report)
				}
			})
			for _, o := range []azblob.RepairOptions{{}, {Thorough: true, DryRun: true}, {Thorough: true}} {
				step("Recovery", func() {
					report, err := v.Repair(ctx, o)
					if want := map[bool]int{true: 8, false: 3}[o.Thorough]; err != nil || report.Foreign != want || len(report.Plans) > 0 {
						t.Errorf("Recovery %+v: %+v, %v", o, report, err)
					}
				})
			}
			step("Catalogue", func() {
				report, err := v.Catalogue(ctx, azblob.CatalogueOptions{})
				if err != nil || len(report.Built) > 0 || len(report.Skipped) != 2 || !strings.Contains(report.Skipped[1].Reason, "another program") {
					t.Errorf("Catalogue: %+v, %v", report, err)
				}
			})
			for _, day := range []time.Time{mixed, theirs} {
				step("Hold", func() {
					vaulttest.Must(t, v.Hold(ctx, day))
					vaulttest.Must(t, v.Release(ctx, day))
				})
			}
			step("Purge", func() {
				report, err := storage.Purge(ctx, v, storage.PurgeOptions{Select: storage.Filters{Before: time.Now()}, IncludeOpen: true, DryRun: true})
				if err != nil || report.Deleted != 1 || report.Failed != 0 || report.Foreign != 2 {
					t.Errorf("Purge: %+v, %v", report, err)
				}
				_, err = storage.Purge(ctx, v, storage.PurgeOptions{Select: storage.Filters{Before: time.Now()}, IncludeOpen: true})
				vaulttest.Must(t, err)
			})
			for _, dry := range []bool{true, false} {
				step("Expire", func() {
					report, err := v.Expire(ctx, azblob.ExpireOptions{OlderThan: 24 * time.Hour, Empty: true, DryRun: dry})
					if err != nil || len(report.Days) != 2 || report.Days[0].Result != azblob.DayForeign || !slices.Contains(others[0].IDs(), report.Days[0].Plans[0]) ||
						report.Days[1].Result != azblob.DayUnmarked {
						t.Errorf("Expire: %+v, %v", report, err)
					}
				})
			}
		})
	}
}
