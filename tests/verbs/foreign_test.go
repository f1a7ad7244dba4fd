package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestPlansOfAnotherProgram puts plans of another program, whole and half, beside those of a vault: into a day of the
// vault, and into one of their own. Each verb leaves them alone and tells them apart.
func TestPlansOfAnotherProgram(t *testing.T) {
	for _, status := range []int{0, 2, -1} {
		vaulttest.InBubble(t, fmt.Sprint("status ", status), func(t *testing.T, server *emulator.Server) {
			v, ctx := vaulttest.OnEmulator(t, server, azblob.Options{UnversionedUpdates: true}), t.Context()
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
				outcome := azblob.OutcomeFailed
				observed := vaulttest.OnEmulator(t, server, azblob.Options{Observer: azblob.Observer{
					OperationStart: func(ctx context.Context, _ azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
						return ctx, func(e azblob.OperationEnd) { outcome = e.Outcome }
					},
				}})
				found, err := storage.Collect(observed.List(ctx, 0))
				if outcome != azblob.OutcomeOK {
					t.Errorf("the outcome of List is %s", outcome)
				}
				if ids := vaulttest.IDs(found); !slices.Equal(ids, []uuid.UUID{open.ID, ours.ID}) || strings.Count(fmt.Sprint(err), "another program") != 2 {
					t.Errorf("List: %v, %v", ids, err)
				}
			})
			step("Count", func() {
				var left *storage.ForeignError
				if n, err := v.Count(ctx, storage.Filters{}); n != 2 || !errors.As(err, &left) || left.Plans != 2 {
					t.Errorf("Count: %d, %v", n, err)
				}
			})
			step("Stats", func() {
				days, err := storage.Collect(v.Admin().Stats(ctx, azblob.StatsOptions{}))
				vaulttest.Must(t, err)
				for i, want := range []struct{ own, others int }{{1, 0}, {0, 1}, {1, 1}} {
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
					report, err := v.Admin().Repair(audited.Mark(ctx), o)
					if want := map[bool]int{true: 8, false: 3}[o.Thorough]; err != nil || report.Foreign != want || len(report.Plans) > 0 {
						t.Errorf("Recovery %+v: %+v, %v", o, report, err)
					}
				})
			}
			step("Catalogue", func() {
				report, err := v.Admin().Catalogue(ctx, azblob.CatalogueOptions{})
				if err != nil || len(report.Built) > 0 || len(report.Skipped) != 2 || report.Skipped[1].Reason != azblob.SkipForeign {
					t.Errorf("Catalogue: %+v, %v", report, err)
				}
			})
			for _, day := range []time.Time{mixed, theirs} {
				step("Hold", func() {
					vaulttest.Must(t, v.Admin().Hold(audited.Mark(ctx), storage.DayOf(day), workflow.Attribution{}))
					vaulttest.Must(t, v.Admin().Release(audited.Mark(ctx), storage.DayOf(day), workflow.Attribution{}))
				})
			}
			step("Purge", func() {
				all := storage.SelectWhere(storage.Filters{Before: time.Now()})
				report, err := storage.Purge(ctx, v, all, storage.PurgeOptions{IncludeOpen: true, DryRun: true})
				if err != nil || report.Deleted != 1 || report.Failed != 0 || report.Foreign != 2 {
					t.Errorf("Purge: %+v, %v", report, err)
				}
				_, err = storage.Purge(ctx, v, all, storage.PurgeOptions{By: workflow.Attribution{By: "operator"}, IncludeOpen: true})
				vaulttest.Must(t, err)
			})
			for _, dry := range []bool{true, false} {
				step("Expire", func() {
					report, err := v.Admin().Expire(audited.Mark(ctx), azblob.ExpireOptions{OlderThanDays: 1, Empty: true, DryRun: dry})
					if err != nil || len(report.Days) != 2 || report.Days[0].Result != azblob.ExpireForeign || !slices.Contains(others[0].IDs(), report.Days[0].Plans[0]) ||
						report.Days[1].Result != azblob.ExpireUnmarked {
						t.Errorf("Expire: %+v, %v", report, err)
					}
				})
			}
		})
	}
}

// TestForeignRemains: what could pass for remains or damage of a vault's plan is not removed if another program may have
// written a part of it.
func TestForeignRemains(t *testing.T) {
	for what, test := range map[string]func(t *testing.T, server *emulator.Server, v *azblob.Vault, others *vaulttest.Foreign){
		"sub-objects to which a marker leads": func(t *testing.T, server *emulator.Server, v *azblob.Vault, others *vaulttest.Foreign) {
			server.Put(others.Container, "open/"+others.PartsAlone.String(), nil, map[string]string{"writeid": "w"})
			time.Sleep(vaulttest.PastGrace)
			if report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{}); err != nil || report.Foreign != 1 || len(report.Plans) > 0 {
				t.Errorf("%+v, %v", report, err)
			}
		},
		"sub-objects in the way of a Create": func(t *testing.T, server *emulator.Server, v *azblob.Vault, others *vaulttest.Foreign) {
			plan := vaulttest.PlanOf(vaulttest.DaysAgo(9))
			plan.ID = others.PartsAlone
			for b := range server.Blobs(others.Container) {
				if _, part, ok := strings.Cut(b.Name, "blocks/"+plan.ID.String()+"/"); ok {
					plan.Blocks[0].ID = uuid.MustParse(strings.TrimSuffix(part, ".json"))
				}
			}
			vaulttest.Fails(t, v.Create(t.Context(), plan), storage.ErrForeign)
		},
		"an entry beside a damaged object": func(t *testing.T, server *emulator.Server, v *azblob.Vault, others *vaulttest.Foreign) {
			object := "plans/" + others.EntryAlone.String() + "-object.json"
			server.Put(others.Container, object, []byte("{}"), nil)
			vaulttest.Fails(t, v.Delete(t.Context(), others.EntryAlone), storage.ErrForeign)
			server.Remove(others.Container, object)
		},
		"a bare sub-object of a vault's plan": func(t *testing.T, server *emulator.Server, v *azblob.Vault, others *vaulttest.Foreign) {
			plan := vaulttest.Created(t, v, vaulttest.PlanOf(vaulttest.DaysAgo(9)))
			name := "blocks/" + plan.ID.String() + "/" + uuid.NewString() + ".json"
			server.Put(others.Container, name, []byte(`{"type":3}`), nil)
			time.Sleep(vaulttest.PastGrace)
			vaulttest.Must(t, vaulttest.ErrOf(v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)))
			if _, there := server.Blob(others.Container, name); !there {
				t.Error("it was removed")
			}
		},
		"IDs without a time, names and states of great length": func(t *testing.T, server *emulator.Server, v *azblob.Vault, others *vaulttest.Foreign) {
			long := map[string]string{"PLANID": "x", "STATE": `{"Status":1,"More":"` + strings.Repeat("[", 7000) + `"}`}
			server.Put(others.Container, "plans/"+uuid.NewString()+"-entry.json", nil, long)
			if report := vaulttest.Sound(t, v); report.Foreign != 5 {
				t.Errorf("%+v", report)
			}
		},
		"a day of which a listing is short": func(t *testing.T, server *emulator.Server, _ *azblob.Vault, _ *vaulttest.Foreign) {
			short := &vaulttest.ShortLister{Transport: server.Transport(), Name: "plans/", Cached: true, Times: 1}
			v := vaulttest.OnEmulator(t, server, settings.Over(short))
			report, err := v.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 1})
			if err != nil || report.Days[0].Result != azblob.ExpireForeign || short.Query == "" {
				t.Errorf("%+v, %v", report, err)
			}
		},
		"a day whose catalogue was built before": func(t *testing.T, server *emulator.Server, v *azblob.Vault, others *vaulttest.Foreign) {
			server.PutContainer(others.Container, map[string]string{"planvaultlayout": "1", "planvaultcatalogue": "1"})
			for i, want := range []azblob.ExpireResult{azblob.ExpireDropped, azblob.ExpireForeign} { // the catalogue has not seen it
				before := len(server.Requests())
				report, err := v.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 1, Verify: i == 1, DryRun: i == 0})
				if err != nil || report.Days[0].Result != want || len(server.Requests())-before > 3 {
					t.Errorf("%+v, %v, %d requests", report, err, len(server.Requests())-before)
				}
			}
		},
		"a day that another Expire has dropped": func(t *testing.T, server *emulator.Server, _ *azblob.Vault, _ *vaulttest.Foreign) {
			vaulttest.PutDay(server, vaulttest.DaysAgo(12))
			meanwhile := emulator.On(emulator.ListBlobs).Where(func(r emulator.Request) bool { return r.Prefix == "plans/" }).Nth(1).
				Do(emulator.Before(func() { server.RemoveContainer(vaulttest.ContainerOf(vaulttest.DaysAgo(12))) }))
			report, err := vaulttest.Faulty(t, server, meanwhile).Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 10})
			if err != nil || report.Dropped() != 1 || meanwhile.Fired() != 1 {
				t.Errorf("%+v, %v", report, err)
			}
		},
	} {
		vaulttest.InBubble(t, what, func(t *testing.T, server *emulator.Server) {
			server.PutContainer(vaulttest.ContainerOf(vaulttest.DaysAgo(9)), map[string]string{"planvaultlayout": "1"})
			others := vaulttest.PutForeign(server, vaulttest.DaysAgo(9), 1)
			test(t, server, vaulttest.OnEmulator(t, server), others)
			if changed := others.Changed(); slices.ContainsFunc(changed, func(name string) bool { return !strings.HasPrefix(name, "open/") }) {
				t.Errorf("%v changed", changed)
			}
		})
	}
}
