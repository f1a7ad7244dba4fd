package fleet_test

import (
	"errors"
	"testing"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestPlacer says whom a plan belongs to that an engine of another kind places, from its claim on.
func TestPlacer(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		vault := open(store)
		placer, err := fleet.NewPlacer(vault, fleet.PlacerOptions{})
		must(t, err)
		queue := fleet.ClaimOptions{External: workflow.External{Name: "queue", Ask: "queue show"}}
		plan := create(t, vault, 2)
		claim := func(o fleet.ClaimOptions) (*fleet.Claim, *workflow.Plan, error) {
			c, err := placer.Claim(plan.ID, o)
			must(t, err)
			t.Cleanup(c.Release)
			claimed, err := c.Take(t.Context())
			return c, claimed, err
		}
		first, claimed, err := claim(queue)
		must(t, err)
		if claimed.Epoch != 1 || claimed.External != queue.External || claimed.State.Status != workflow.Running {
			t.Fatalf("it was claimed as %+v", claimed)
		}
		_, _, err = claim(queue)
		if owned, ok := errors.AsType[*fleet.OwnedError](err); !ok || owned.Epoch != 1 || owned.External != queue.External {
			t.Errorf("a second claim returned %v", err)
		}
		other := queue
		other.External.Name, other.Epoch = "another queue", 1
		if _, _, err := claim(other); !errors.Is(err, fleet.ErrOwned) {
			t.Errorf("a claim of another engine returned %v", err)
		}
		queue.Epoch = 1
		second, _, err := claim(queue)
		must(t, err)
		if _, err := first.Take(t.Context()); !errors.Is(err, fleet.ErrFenced) || first.Work().Err() == nil {
			t.Errorf("the first owner took it again: %v", err)
		}
		first.Release()
		if again, err := second.Take(t.Context()); err != nil || again.Epoch != 3 {
			t.Errorf("the second owner took it again: %+v, %v", again, err)
		}
	})
}
