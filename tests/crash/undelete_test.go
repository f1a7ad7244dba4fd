package crash_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// keeping returns a world whose account keeps what is deleted.
func keeping(t *testing.T) vaulttest.World {
	w := vaulttest.WorldOf(emulator.New(emulator.WithoutLog(), emulator.WithSoftDelete()))
	vaulttest.Strict(t, w.Server)
	return w
}

// again returns a plan that can be restored.
func again(plan *workflow.Plan) *workflow.Plan { return plantest.Clone(plan) }

// undeleted undeletes a plan until it is there, as often as something of another call may be in the way.
func undeleted(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
	t.Helper()
	err := v.Undelete(t.Context(), plan.ID)
	if err != nil && !errors.Is(err, storage.ErrExists) {
		t.Fatal(err)
	}
	vaulttest.Same(t, v, plan)
}

// TestCrashInUndelete lets an Undelete die at each request. The plan is then there as a whole or not at all. The same call
// again restores it at once, also after a Recovery has removed what was left. It can then be deleted as any other.
func TestCrashInUndelete(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for name, state := range map[string]vaulttest.State{"final": vaulttest.Final, "running": vaulttest.AtWork, "new": vaulttest.NotStarted} {
		for _, crash := range vaulttest.Crashes {
			synctest.Test(t, func(t *testing.T) {
				w := keeping(t)
				_, plan := state(t, w, vaulttest.EachKind())
				vaulttest.Must(t, w.Vault(t).Delete(t.Context(), plan.ID))
				for n, died := 1, true; died && !t.Failed(); n++ {
					w := w.Clone()
					died, _ = w.Dying(t, n, crash, func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.Undelete(ctx, plan.ID) })
					v := w.Vault(t)
					found := vaulttest.WholeOrGone(t, v, plan)
					if !died && found == nil {
						t.Errorf("%s: the plan is not there", name)
					}
					later, instead := w.Clone(), w.Clone()
					undeleted(t, v, plan)
					vaulttest.Must(t, v.Delete(t.Context(), plan.ID))

					if v = instead.Vault(t); found == nil {
						if err := v.Delete(t.Context(), plan.ID); err != nil && !errors.Is(err, storage.ErrNotFound) {
							t.Error(err)
						}
						vaulttest.Settled(t, v)
					}
					v = later.Vault(t)
					if vaulttest.Settled(t, v); vaulttest.WholeOrGone(t, v, plan) != nil {
						vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
					}
					undeleted(t, v, plan)
					vaulttest.Settled(t, v)
				}
				if t.Failed() {
					t.Logf("%s, %s", name, crash)
				}
			})
		}
	}
}

// unfinished restores a plan with other states, but for its object, some time after it was deleted.
func unfinished(t *testing.T, w vaulttest.World, plan *workflow.Plan, change func(*workflow.State)) {
	t.Helper()
	time.Sleep(2 * time.Second)
	earlier := again(plan)
	for o := range workflow.Walk(earlier) {
		change(o.Header().State)
	}
	v := vaulttest.Faulty(t, w.Server, emulator.On(emulator.PutBlob).Path("-object").Do(emulator.Answer(403, "AuthorizationFailure")))
	vaulttest.Fails(t, v.Restore(t.Context(), earlier), storage.ErrDenied)
	time.Sleep(vaulttest.PastGrace)
}

// TestUndeleteBesideADelete deletes the plan before each request of an Undelete. Nobody sees half of it then, and the same
// call again restores it.
func TestUndeleteBesideADelete(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		start := keeping(t)
		_, plan := vaulttest.AtWork(t, start, vaulttest.EachKind())
		vaulttest.Must(t, start.Vault(t).Delete(t.Context(), plan.ID))
		for n := 1; !t.Failed(); n++ {
			w := start.Clone()
			v := w.Vault(t)
			var deleted error
			at := &vaulttest.NthRequest{N: n}
			_ = at.Vault(t, w.Server, func() { deleted = v.Delete(t.Context(), plan.ID) }).Undelete(t.Context(), plan.ID)
			if !at.Came() {
				return
			}
			time.Sleep(vaulttest.PastGrace) // until no delete marker looks as if a Delete was under way
			if deleted == nil || errors.Is(deleted, storage.ErrNotFound) {
				vaulttest.WholeOrGone(t, v, plan)
				vaulttest.Settled(t, v)
			}
			undeleted(t, v, plan)
			vaulttest.Settled(t, v)
			if t.Failed() {
				t.Logf("at request %d", n)
			}
		}
	})
}

// TestUndeleteBesideARestore undeletes a plan that was open before each request of a Restore of its end. The plan is one of
// the two, and an open one has a marker.
func TestUndeleteBesideARestore(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		start := keeping(t)
		_, plan := vaulttest.AtWork(t, start, vaulttest.EachKind())
		vaulttest.Must(t, start.Vault(t).Delete(t.Context(), plan.ID))
		ended := again(plan)
		for o := range workflow.Walk(ended) {
			h := o.Header()
			h.State.Status, h.State.Start, h.State.End = workflow.Completed, plan.State.Start, time.Now()
		}
		for n := 1; !t.Failed(); n++ {
			w := start.Clone()
			v := w.Vault(t)
			var undeleted error
			at := &vaulttest.NthRequest{N: n}
			restored := at.Vault(t, w.Server, func() { undeleted = v.Undelete(t.Context(), plan.ID) }).Restore(t.Context(), again(ended))
			if !at.Came() {
				return
			}
			if found := vaulttest.WholeOrGone(t, v, plan, ended); found == nil && (restored == nil || undeleted == nil) {
				t.Errorf("at request %d, the plan is gone: %v, %v", n, restored, undeleted)
			}
			vaulttest.Settled(t, v)
		}
	})
}

// TestUndeleteWhatIsNotWhole undeletes plans that the account does not keep, or only in part. They stay invisible.
func TestUndeleteWhatIsNotWhole(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(t *testing.T, w vaulttest.World, plan *workflow.Plan)
		opts []emulator.Option
		want error
		text string
	}{
		"soft delete is off": {want: storage.ErrNotFound, text: "--enable-delete-retention"},
		"too late": {
			do:   func(_ *testing.T, _ vaulttest.World, _ *workflow.Plan) { time.Sleep(7 * 24 * time.Hour) },
			opts: []emulator.Option{emulator.WithSoftDelete()}, want: storage.ErrNotFound, text: "keeps deleted blobs for 7 days",
		},
		"versions": {
			opts: []emulator.Option{emulator.WithSoftDelete(), emulator.WithVersioning()}, want: storage.ErrNotFound, text: "or the account has versioning",
		},
		"there again": {
			do: func(t *testing.T, w vaulttest.World, plan *workflow.Plan) {
				vaulttest.Must(t, w.Vault(t).Restore(t.Context(), again(plan)))
			}, opts: []emulator.Option{emulator.WithSoftDelete()}, want: storage.ErrExists,
		},
		"a part is written over": {
			do: func(t *testing.T, w vaulttest.World, plan *workflow.Plan) {
				a := vaulttest.ActionsOf(plan)[0]
				w.Server.Put(vaulttest.ContainerOf(workflow.Time(plan.ID)), "actions/"+plan.ID.String()+"/"+a.ID.String()+".json", []byte("{}"), nil)
			}, opts: []emulator.Option{emulator.WithSoftDelete()}, want: storage.ErrCorrupt,
		},
		"a part was lost before": {
			do: func(t *testing.T, w vaulttest.World, plan *workflow.Plan) {
				vaulttest.Must(t, w.Vault(t).Restore(t.Context(), again(plan)))
				vaulttest.Must(t, w.Vault(t).Delete(t.Context(), plan.ID))
				time.Sleep(6 * 24 * time.Hour)
				undeleted(t, w.Vault(t), plan)
				vaulttest.DamagedOf(w.Server, plan).Lose(vaulttest.DamagedOf(w.Server, plan).Parts()[0])
				vaulttest.Must(t, w.Vault(t).Delete(t.Context(), plan.ID))
			}, opts: []emulator.Option{emulator.WithSoftDelete()}, want: storage.ErrCorrupt, text: "does not keep this part",
		},
		"a Restore of an earlier state did not finish": {
			do: func(t *testing.T, w vaulttest.World, plan *workflow.Plan) {
				unfinished(t, w, plan, func(s *workflow.State) { s.Status, s.End = workflow.Running, time.Time{} })
			}, opts: []emulator.Option{emulator.WithSoftDelete()}, want: storage.ErrCorrupt, text: "after the plan was deleted",
		},
		"a Restore with other times did not finish": {
			do: func(t *testing.T, w vaulttest.World, plan *workflow.Plan) {
				unfinished(t, w, plan, func(s *workflow.State) { s.Start = s.Start.Add(-time.Hour) })
			}, opts: []emulator.Option{emulator.WithSoftDelete()}, want: storage.ErrCorrupt, text: "after the plan was deleted",
		},
		"a Delete did not finish": {
			do: func(t *testing.T, w vaulttest.World, plan *workflow.Plan) {
				vaulttest.Must(t, w.Vault(t).Restore(t.Context(), again(plan)))
				vaulttest.Dies(t, w.Server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
			}, opts: []emulator.Option{emulator.WithSoftDelete()}, want: storage.ErrConflict, text: "call again in 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := vaulttest.WorldOf(emulator.New(test.opts...))
				_, plan := vaulttest.Final(t, w, vaulttest.EachKind())
				v := w.Vault(t)
				vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
				if test.do != nil {
					test.do(t, w, plan)
				}
				err := v.Undelete(t.Context(), plan.ID)
				vaulttest.Fails(t, err, test.want)
				if err != nil && !strings.Contains(err.Error(), test.text) {
					t.Errorf("the error is %v, want %q", err, test.text)
				}
				if found := vaulttest.WholeOrGone(t, v, plan); (found != nil) != errors.Is(err, storage.ErrExists) {
					t.Errorf("the plan is there: %v", found != nil)
				}
				if test.want == storage.ErrConflict {
					time.Sleep(vaulttest.PastGrace)
					undeleted(t, v, plan)
				}
			})
		})
	}
}

// TestUndeleteOfAClosedDay undeletes a plan of a day whose catalogue does not have it.
func TestUndeleteOfAClosedDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keeping(t)
		v, day := w.Vault(t), vaulttest.DaysAgo(3)
		gone, stays := vaulttest.Copied(vaulttest.PlanOf(day), workflow.Completed), vaulttest.Copied(vaulttest.PlanOf(day), workflow.Failed)
		for _, p := range []*workflow.Plan{gone, stays} {
			vaulttest.Must(t, v.Restore(t.Context(), p))
		}
		vaulttest.Must(t, v.Delete(t.Context(), gone.ID))
		vaulttest.Build(t, v)
		deleted, err := v.Deleted(t.Context(), day)
		if vaulttest.Must(t, err); len(deleted) != 1 || deleted[0].ID != gone.ID || deleted[0].Name != gone.Name || deleted[0].State.Status != workflow.Completed {
			t.Errorf("the account keeps %+v", deleted)
		}
		vaulttest.Must(t, v.Undelete(t.Context(), gone.ID))
		vaulttest.Same(t, v, gone) // no catalogue without it is left
		vaulttest.Settled(t, v)
	})
}

// TestCrashInUndeleteDay drops a day, and lets its restoration die at each request. The same call again restores it, and
// nothing is in the way of a new plan.
func TestCrashInUndeleteDay(t *testing.T) {
	for _, crash := range vaulttest.Crashes {
		synctest.Test(t, func(t *testing.T) {
			w := keeping(t)
			v, day := w.Vault(t), vaulttest.DaysAgo(9)
			plan := vaulttest.Copied(vaulttest.PlanOf(day), workflow.Completed)
			vaulttest.Must(t, v.Restore(t.Context(), plan))
			vaulttest.Build(t, v)
			report, err := v.Expire(t.Context(), azblob.ExpireOptions{OlderThan: 24 * time.Hour})
			if vaulttest.Must(t, err); report.Dropped() != 1 || vaulttest.WholeOrGone(t, v, plan) != nil {
				t.Fatalf("%+v", report)
			}
			vaulttest.Fails(t, v.Undelete(t.Context(), plan.ID), storage.ErrNotFound)
			for n, died := 1, true; died && !t.Failed(); n++ {
				w := w.Clone()
				died, _ = w.Dying(t, n, crash, func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.UndeleteDay(ctx, day) })
				v := w.Vault(t)
				if died {
					if err := v.UndeleteDay(t.Context(), day); err != nil && !errors.Is(err, storage.ErrExists) {
						t.Fatal(err)
					}
				}
				vaulttest.Same(t, v, plan)
				if _, dropping := w.Server.Blob(vaulttest.ContainerOf(day), "open/dropping"); dropping {
					t.Error("the mark of the expiry is left")
				}
				vaulttest.Must(t, v.Create(t.Context(), vaulttest.PlanOf(day)))
				vaulttest.Sound(t, v)
			}
		})
	}
}

func TestUndeleteDayThatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keeping(t)
		v, day := w.Vault(t), vaulttest.DaysAgo(9)
		vaulttest.Fails(t, v.UndeleteDay(t.Context(), day), storage.ErrNotFound)
		vaulttest.Must(t, v.Restore(t.Context(), vaulttest.Copied(vaulttest.PlanOf(day), workflow.Completed)))
		vaulttest.Fails(t, v.UndeleteDay(t.Context(), day), storage.ErrExists)
		_, err := v.Expire(t.Context(), azblob.ExpireOptions{OlderThan: 24 * time.Hour})
		vaulttest.Must(t, err)
		time.Sleep(7 * 24 * time.Hour)
		vaulttest.Fails(t, v.UndeleteDay(t.Context(), day), storage.ErrNotFound)
	})
}
