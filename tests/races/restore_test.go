package races_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/tests/vaulttest"
)

// restorer restores the plan with a name and a status.
func restorer(name, plan string, status workflow.Status) actor {
	return creatorOf(name, func() *workflow.Plan { return inUse(small(plan), status) }, (*azblob.Vault).Restore)
}

// inUse gives a plan a status. It is the same in each run.
func inUse(plan *workflow.Plan, status workflow.Status) *workflow.Plan {
	for o := range workflow.Walk(plan) {
		o.Header().State.Status = workflow.Completed
	}
	plan.State.Status = status
	return plan
}

// openSearcher searches for open plans, as engines do.
func openSearcher() actor {
	return observer("open searcher", func(ctx context.Context, v *azblob.Vault, _ *run) (bool, workflow.Status, error) {
		found, err := storage.Collect(v.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}))
		for _, r := range found {
			if r.ID == target {
				return true, r.State.Status, err
			}
		}
		return false, unsaid, err
	})
}

// TestRestoreInterleavings explores a Restore beside readers, Creates, Deletes and Recovery.
func TestRestoreInterleavings(t *testing.T) {
	efforttest.NotShort(t, "a scheduler lets one request go at a time")
	second := creator("second", "second").returns(storage.ErrUnknown, storage.ErrUnavailable)
	recovery := recoverer("recovery")
	var spaces []space
	for _, status := range []workflow.Status{workflow.Running, workflow.Failed} {
		first := restorer("first", "one", status).returns(storage.ErrUnknown, storage.ErrUnavailable)
		observers := []actor{reader(), prober(), searcher()}
		if !status.Final() {
			observers = append(observers, openSearcher())
		}
		for _, o := range observers {
			spaces = append(spaces, space{name: fmt.Sprintf("a restore of %s and a %s", status, o.name), actors: []actor{first, o}})
		}
		spaces = append(
			spaces,
			space{name: fmt.Sprintf("a restore of %s and a creator", status), actors: []actor{first, second}},
			space{name: fmt.Sprintf("a restore of %s and a recovery", status), actors: []actor{first, recovery}},
			space{name: fmt.Sprintf("a frozen restore of %s and a recovery", status), actors: []actor{first, recovery}, clock: grace, effects: frozen},
			space{name: fmt.Sprintf("a restore of %s, a creator and a recovery", status), actors: []actor{first, second, recovery}, clock: long},
		)
	}
	more := efforttest.More(t)
	for i, s := range spaces {
		t.Run(s.name, func(t *testing.T) {
			if !more() {
				t.Skip("there is no time left")
			}
			if !vaulttest.Sampled(3, 0, i) {
				t.Skip("left out without PLANVAULT_LONG")
			}
			s.explore(t)
		})
	}
}
