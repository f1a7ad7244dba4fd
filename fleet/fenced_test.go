package fleet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestFencedOwnerOfASleeper: a plan was taken from an owner that lives, and sleeps by now, due or not. The former owner learns
// that it is fenced, and does not wake the plan for itself.
func TestFencedOwnerOfASleeper(t *testing.T) {
	onStores(t, []time.Duration{0, time.Hour}, func(t *testing.T, store *memvault.Store, d time.Duration) {
		v := open(store)
		p, err := fleet.NewPlacer(v, fleet.PlacerOptions{})
		must(t, err)
		id := create(t, v, 1).ID
		take := func(epoch int64) (*fleet.Claim, *workflow.Plan) {
			c, err := p.Claim(id, fleet.ClaimOptions{External: workflow.External{Name: "queue"}, Epoch: epoch})
			must(t, err)
			t.Cleanup(c.Release)
			plan, err := c.Take(t.Context())
			must(t, err)
			return c, plan
		}
		former, first := take(0)
		owner, plan := take(first.Epoch)
		must(t, owner.Sleep(t.Context(), plan, owner.Now().Add(d), 0))
		if _, err := former.Take(t.Context()); !errors.Is(err, fleet.ErrFenced) || !errors.Is(context.Cause(former.Work()), fleet.ErrFenced) {
			t.Errorf("asleep for %v: the former owner's Take returned %v, and its work ended with %v", d, err, context.Cause(former.Work()))
		}
		if now := read(t, v, id); !now.Asleep() || now.Epoch != plan.Epoch {
			t.Errorf("asleep for %v: it is stored as %+v", d, now)
		}
	})
}
