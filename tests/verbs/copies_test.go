package verbs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// sameVaults checks that a vault has exactly the plans of another one.
func sameVaults(t *testing.T, want, got *azblob.Vault) {
	t.Helper()
	all, err := storage.Collect(want.List(t.Context(), 0))
	vaulttest.Must(t, err)
	there, err := storage.Collect(got.List(t.Context(), 0))
	vaulttest.Must(t, err)
	if len(all) != len(there) {
		t.Errorf("there are %d plans, want %d", len(there), len(all))
	}
	for _, r := range all {
		plan, err := want.Read(t.Context(), r.ID)
		vaulttest.Must(t, err)
		vaulttest.Same(t, got, plan)
	}
}

// operator is who runs mirrors.
var operator = workflow.Attribution{By: "operator"}

// TestCostOfMirror counts the requests of a run over plans that have not changed: the listings, two reads of the note that
// would say that the source is a copy, and of a Running plan the reads at both sides.
func TestCostOfMirror(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "unchanged", func(t *testing.T, server *emulator.Server) {
		copied := emulator.New(emulator.Options{NoLog: true})
		from, to := vaulttest.OnEmulator(t, server), vaulttest.OnEmulator(t, copied)
		for range 20 {
			vaulttest.Final(t, vaulttest.WorldOf(server), plantest.Small())
		}
		for range 2 {
			server.ResetRequests()
			copied.ResetRequests()
			vaulttest.Must(t, vaulttest.ErrOf(mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to}, mirror.Options{By: operator})))
		}
		for _, s := range []*emulator.Server{server, copied} {
			for _, r := range s.Requests() {
				if r.Op != emulator.ListContainers && r.Op != emulator.ListBlobs && r.Blob != "notes/origin" {
					t.Errorf("%v", r)
				}
			}
			if n := len(s.Requests()); n > 4+2 {
				t.Errorf("%d requests for 20 plans of a day", n)
			}
		}
	})
}

// TestCopyTakenMeanwhile lets somebody update a plan of a copy at each request of its removal by a mirror, and the mirror
// remove it at each request of the update. Either the update fails, or the plan is there as updated.
func TestCopyTakenMeanwhile(t *testing.T) {
	calls := map[string]func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error{
		"removal": func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return vaulttest.Offered[storage.Copier](v).DeleteCopy(ctx, p)
		},
		"update": func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			p.Owner, p.Epoch = workflow.NewV7(), p.Epoch+1
			return v.UpdatePlan(ctx, p)
		},
	}
	for outer, inner := range map[string]string{"removal": "update", "update": "removal"} {
		for k, reached := 1, true; reached; k++ {
			vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
				v := vaulttest.OnEmulator(t, server)
				p := plantest.Clone(vaulttest.Created(t, v, plantest.Small()))
				vaulttest.Must(t, v.Delete(t.Context(), p.ID))
				p.State.Status = workflow.Running
				vaulttest.Must(t, vaulttest.Offered[storage.Copier](v).RestoreCopy(t.Context(), p))
				plans := map[string]*workflow.Plan{outer: p, inner: plantest.Clone(p)}
				errs := map[string]error{}
				reached = false
				transport := server.Transport()
				transport.Inject(emulator.On().Nth(k).Do(emulator.Before(func() {
					reached = true
					errs[inner] = calls[inner](t.Context(), vaulttest.OnEmulator(t, server), plans[inner])
				})))
				first, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), nil, settings.Over(transport))
				vaulttest.Must(t, err)
				errs[outer] = calls[outer](t.Context(), first, plans[outer])
				if !reached {
					return
				}
				switch there, err := v.Exists(t.Context(), p.ID); {
				case err != nil || errs["update"] == nil && !there || errs["removal"] == nil && there || (errs["update"] == nil) == (errs["removal"] == nil):
					t.Errorf("%s at request %d of the %s: the plan is there: %t, %v; %v", inner, k, outer, there, err, errs)
				case there:
					vaulttest.Same(t, v, plans["update"])
				}
			})
		}
	}
}

// TestCrashInMirror kills a run of a mirror at each of its requests to the copy. After each, the copy is sound but for
// what is in progress; the next run after the grace period makes it equal.
func TestCrashInMirror(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	source := emulator.New(emulator.Options{NoLog: true})
	base := emulator.New(emulator.Options{NoLog: true})
	var at time.Time
	synctest.Test(t, func(t *testing.T) {
		from := vaulttest.OnEmulator(t, source)
		create := func() *workflow.Plan { return vaulttest.Created(t, from, plantest.Small()) }
		started := func(plan *workflow.Plan) (before, after *workflow.Plan) {
			plan.State.Status = workflow.Running
			vaulttest.Must(t, from.UpdatePlan(t.Context(), plan))
			ended := *plan
			ended.State = vaulttest.FinishParts(t, from, plan)
			return plan, &ended
		}
		fresh := create()
		_, ending := started(create())
		gone := create()
		vaulttest.Must(t, vaulttest.ErrOf(mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: vaulttest.OnEmulator(t, base)}, mirror.Options{By: operator})))
		_, ended := started(fresh) // was NotStarted, becomes final
		vaulttest.Must(t, from.UpdatePlan(t.Context(), ended))
		vaulttest.Must(t, from.UpdatePlan(t.Context(), ending)) // was Running, becomes final
		vaulttest.Must(t, from.Delete(t.Context(), gone.ID))
		started(create()) // is copied
		_, whole := started(create())
		vaulttest.Must(t, from.UpdatePlan(t.Context(), whole))
		at = time.Now().Round(0)
	})
	options := mirror.Options{By: operator, Delete: true, Concurrency: 1}
	for _, crash := range vaulttest.Crashes {
		for n, done := 1, false; !done && !t.Failed(); n += efforttest.Pick(5, 3, 1) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("%v at %d", crash, n)
					}
				})
				time.Sleep(time.Until(at))
				from := vaulttest.OnEmulator(t, source.Clone())
				w := vaulttest.WorldOf(base.Clone())
				died, err := w.Dying(t, n, crash, func(ctx context.Context, _ *testing.T, v *azblob.Vault) error {
					ctx = audited.Mark(ctx) // who dies when it logs the end has done all
					return vaulttest.ErrOf(mirror.Run(ctx, mirror.Pair{Source: from, Copy: v}, options))
				})
				if done = !died; done {
					vaulttest.Must(t, err)
				}
				to := w.Clone().Vault(t)
				all, err := storage.Collect(to.List(t.Context(), 0))
				vaulttest.Must(t, err)
				for _, r := range all {
					vaulttest.Must(t, vaulttest.ErrOf(to.Read(t.Context(), r.ID)))
				}
				if _, err := mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to}, options); err != nil && !errors.Is(err, storage.ErrConflict) {
					t.Errorf("the next run, at once: %v", err)
				}
				time.Sleep(vaulttest.PastGrace)
				vaulttest.Must(t, vaulttest.ErrOf(mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to}, options)))
				sameVaults(t, from, to)
				vaulttest.Sound(t, to)
			})
		}
	}
}
