package crash_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/tests/vaulttest"
)

// closedDays are the calls on a closed day. If the day has a catalogue, a change must remove it.
func closedDays() []scenario {
	type do = func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error
	type prepare = func(t *testing.T, v *azblob.Vault, plan *workflow.Plan)
	// of makes a call on a closed day with a final plan, after some others. Without before there is no plan then.
	of := func(name string, prepare prepare, before, after func(*workflow.Plan) *workflow.Plan, done error, do do) scenario {
		return scenario{name, func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
			plan, _ := vaulttest.Final(t, w, shape())
			time.Sleep(vaulttest.UntilClosed)
			prepare(t, w.Vault(t), plan)
			return func() *call {
				mine := *plan
				c := &call{plan: plan, before: before(plan), after: after(plan), done: done, blocked: storage.ErrConflict}
				c.do = func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return do(ctx, v, &mine) }
				return c
			}
		}}
	}
	nothing := func(*testing.T, *azblob.Vault, *workflow.Plan) {}
	catalogued := func(t *testing.T, v *azblob.Vault, _ *workflow.Plan) { vaulttest.Build(t, v) }
	emptied := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		vaulttest.Build(t, v)
	}
	held := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
		vaulttest.Build(t, v)
		vaulttest.Must(t, v.Hold(t.Context(), workflow.Time(plan.ID)))
	}
	same := func(p *workflow.Plan) *workflow.Plan { return p }
	gone := func(*workflow.Plan) *workflow.Plan { return nil }
	later := func(p *workflow.Plan) *workflow.Plan {
		p2 := *p
		p2.State.End = p2.State.End.Add(time.Second)
		return &p2
	}
	catalogue := func(verify bool) do {
		return func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
			return vaulttest.ErrOf(v.Catalogue(ctx, azblob.CatalogueOptions{Verify: verify}))
		}
	}
	expire := func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		report, err := v.Expire(ctx, azblob.ExpireOptions{OlderThan: time.Hour})
		if err == nil && report.Dropped() != 1 {
			err = errNoDay
		}
		return err
	}
	return []scenario{
		of("Catalogue", nothing, same, same, nil, catalogue(false)),
		of("Catalogue with Verify", catalogued, same, same, nil, catalogue(true)),
		of("Restore", emptied, gone, same, storage.ErrExists, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.Restore(ctx, p)
		}),
		of("update of a final plan", catalogued, same, later, storage.ErrConflict, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.UpdatePlan(ctx, later(p))
		}),
		of("Delete", catalogued, same, gone, storage.ErrNotFound, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Delete(ctx, p.ID) }),
		of("Hold", catalogued, same, same, nil, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.Hold(ctx, workflow.Time(p.ID))
		}),
		of("Release", held, same, same, nil, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.Release(ctx, workflow.Time(p.ID))
		}),
		of("Expire", catalogued, same, gone, errNoDay, expire),
	}
}

// errNoDay says that an Expire had nothing to drop.
var errNoDay = errors.New("no day was dropped")

// TestCrashOnAClosedDay crashes each call on a closed day before and after each of its requests.
func TestCrashOnAClosedDay(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	everywhere(t, plainWorld, closedDays(), smallOnly, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w vaulttest.World, c *call, err error) {
			vaulttest.EqualListings(t, w.Server)
			c.judge(t, w, err)
			v := w.Vault(t)
			vaulttest.Build(t, v)
			vaulttest.EqualListings(t, w.Server)
		})
	})
}

func TestCrashAgainOnAClosedDay(t *testing.T) { callAgain(t, closedDays(), smallOnly) }
