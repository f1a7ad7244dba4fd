package azblob_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// closedDays are the calls on a closed day. If the day has a catalogue, a change must remove it.
func closedDays() []scenario {
	type do = func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error
	// of makes a call on a day with a final plan, or without one. If catalogued is set, the day has a catalogue.
	of := func(name string, without, catalogued bool, after func(before *workflow.Plan) *workflow.Plan, done error, do do) scenario {
		return scenario{name, func(t *testing.T, w world, shape shape) func() *call {
			plan, _ := final(t, w, shape())
			before := plan
			time.Sleep(untilClosed)
			v := w.vault(t)
			if without {
				if err := v.Delete(t.Context(), plan.ID); err != nil {
					t.Fatal(err)
				}
				before = nil
			}
			if catalogued {
				build(t, v)
			}
			return func() *call {
				mine := *plan
				c := &call{plan: plan, before: before, after: after(plan), done: done, blocked: storage.ErrConflict}
				c.do = func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return do(ctx, v, &mine) }
				return c
			}
		}}
	}
	same := func(p *workflow.Plan) *workflow.Plan { return p }
	gone := func(*workflow.Plan) *workflow.Plan { return nil }
	later := func(p *workflow.Plan) *workflow.Plan {
		p2 := *p
		p2.State.End = p2.State.End.Add(time.Second)
		return &p2
	}
	catalogue := func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		_, err := v.Catalogue(ctx, azblob.CatalogueOptions{})
		return err
	}
	day := func(p *workflow.Plan) time.Time {
		sec, nsec := p.ID.Time().UnixTime()
		return time.Unix(sec, nsec).UTC().Truncate(24 * time.Hour)
	}
	expire := func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		report, err := v.Expire(ctx, azblob.ExpireOptions{OlderThan: time.Hour})
		if err == nil && report.Dropped() != 1 {
			err = errNoDay
		}
		return err
	}
	return []scenario{
		of("Catalogue", false, false, same, nil, catalogue),
		of("Restore", true, true, same, storage.ErrExists, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Restore(ctx, p) }),
		of("update of a final plan", false, true, later, storage.ErrConflict, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			p2 := later(p)
			return v.UpdatePlan(ctx, p2)
		}),
		of("Delete", false, true, gone, storage.ErrNotFound, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Delete(ctx, p.ID) }),
		of("Hold", false, true, same, nil, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Hold(ctx, day(p)) }),
		of("Expire", false, true, gone, errNoDay, expire),
	}
}

// errNoDay says that an Expire had nothing to drop.
var errNoDay = errors.New("no day was dropped")

// TestCrashOnAClosedDay crashes each call on a closed day before and after each of its requests.
func TestCrashOnAClosedDay(t *testing.T) {
	everywhere(t, plainWorld, closedDays(), smallOnly, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w world, c *call, err error) {
			equalListings(t, w.server)
			c.judge(t, w, err)
			v := w.vault(t)
			build(t, v)
			equalListings(t, w.server)
		})
	})
}

// TestCrashAgainOnAClosedDay calls each call again after it died, without a Recovery and after one.
func TestCrashAgainOnAClosedDay(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	everywhere(t, plainWorld, closedDays(), smallOnly, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w world, c *call, first error) {
			v := w.vault(t)
			err := c.do(t.Context(), t, v)
			equalListings(t, w.server)
			if err != nil && errors.Is(err, c.blocked) {
				settled(t, v)
				err = c.do(t.Context(), t, v)
			}
			if err != nil && !errors.Is(err, c.done) {
				t.Errorf("again: %v; the first one: %v", err, first)
			}
			if c.find(t, v) != c.after {
				t.Error("the call again had no effect")
			}
			settled(t, v)
			build(t, v)
			equalListings(t, w.server)
		})
	})
}
