package races_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/tests/vaulttest"
)

// restorer restores the plan with a name and a status.
func restorer(name, plan string, status workflow.Status) actor {
	return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		return v.Restore(ctx, inUse(small(plan), status))
	}}
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
	return observer("open searcher", func(ctx context.Context, v *azblob.Vault, _ *testing.T) (bool, workflow.Status, error) {
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
	running, failed, fresh := inUse(small("one"), workflow.Running), inUse(small("one"), workflow.Failed), small("second")
	judge := func(plans map[string]*workflow.Plan) func(r *run, v *azblob.Vault) {
		return func(r *run, v *azblob.Vault) {
			r.creators(v, plans, storage.ErrUnknown, storage.ErrUnavailable)
			for _, a := range r.actors {
				if strings.HasPrefix(a.name, "recovery") {
					r.returned(a.name)
				}
			}
		}
	}
	lost := []emulator.Effect{emulator.LostAnswer(), emulator.Crash(), emulator.Crash().Applied()}
	var spaces []space
	for _, plan := range []*workflow.Plan{running, failed} {
		status := plan.State.Status
		first, only := restorer("first", "one", status), judge(map[string]*workflow.Plan{"first": plan})
		observers := []actor{reader(&plan), prober(), searcher()}
		if !status.Final() {
			observers = append(observers, openSearcher())
		}
		for _, o := range observers {
			spaces = append(spaces, space{name: fmt.Sprintf("a restore of %s and a %s", status, o.name), actors: []actor{first, o}, judge: only})
		}
		both := judge(map[string]*workflow.Plan{"first": plan, "second": fresh})
		spaces = append(
			spaces,
			space{name: fmt.Sprintf("a restore of %s and a creator", status), actors: []actor{first, creator("second", "second")}, judge: both},
			space{name: fmt.Sprintf("a restore of %s and a recovery", status), actors: []actor{first, recoverer("recovery")}, judge: only},
			space{name: fmt.Sprintf("a frozen restore of %s and a recovery", status), actors: []actor{first, recoverer("recovery")}, clock: grace, effects: lost, judge: only},
			space{name: fmt.Sprintf("a restore of %s, a creator and a recovery", status), actors: []actor{first, creator("second", "second"), recoverer("recovery")}, clock: long, judge: both},
		)
	}
	for i, s := range spaces {
		t.Run(s.name, func(t *testing.T) {
			if !vaulttest.Sampled(3, 0, i) {
				t.Skip("left out without PLANVAULT_LONG")
			}
			s.explore(t)
		})
	}
}
