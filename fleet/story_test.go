package fleet_test

import (
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestZombie is the story of an owner that freezes: A has completed the first action and freezes. B takes the
// plan. A wakes up and tries to begin the second action, which is refused. B finishes the plan.
func TestZombie(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		frozen, survivor := open(store), open(store)
		a := join(t, frozen, fleet.Options{Name: "a"})
		created := create(t, frozen, 2)
		plan := within(t, plans(t.Context(), t, a), time.Minute)
		if plan.ID != created.ID || plan.Owner != a.ID() || plan.Epoch != 1 {
			t.Fatalf("claimed %s for %s with epoch %d", plan.ID, plan.Owner, plan.Epoch)
		}
		work, done := a.Work(plan.ID)
		defer done()
		must(t, moves(t.Context(), frozen, actions(plan)[0], workflow.Running))
		must(t, moves(t.Context(), frozen, actions(plan)[0], workflow.Completed))

		b := join(t, survivor, fleet.Options{Name: "b"})
		found := plans(t.Context(), t, b)
		time.Sleep(5 * time.Second)
		frozen.Freeze()
		taken := within(t, found, 45*time.Second)
		if taken.Owner != b.ID() || taken.Epoch != 2 || actions(taken)[0].State.Status != workflow.Completed {
			t.Errorf("taken for %s with epoch %d, the first action is %s", taken.Owner, taken.Epoch, actions(taken)[0].State.Status)
		}

		frozen.Thaw()
		begin := moves(t.Context(), frozen, actions(plan)[1], workflow.Running)
		if !errors.Is(begin, storage.ErrConflict) {
			t.Errorf("the zombie's update returned %v, want ErrConflict", begin)
		}
		if _, err := a.Take(t.Context(), plan.ID); !errors.Is(err, fleet.ErrFenced) {
			t.Errorf("the zombie's Take returned %v, want ErrFenced", err)
		}
		must(t, finish(t.Context(), survivor, taken))
		if p := read(t, survivor, plan.ID); p.State.Status != workflow.Completed {
			t.Errorf("the plan is %s", p.State.Status)
		}
		<-work.Done()
	})
}

// TestStoringWhatRunsIsNoFence shows what happens without a fence: B takes over by storing what is Running
// again. A wakes up and begins the second action. Then each of them meets a conflict and lets the plan go.
func TestStoringWhatRunsIsNoFence(t *testing.T) {
	store := memvault.NewStore()
	a, b := open(store), open(store)
	plan := create(t, a, 2)
	must(t, moves(t.Context(), a, plan, workflow.Running))
	must(t, finishFirst(t, a, plan))

	taken := read(t, b, plan.ID)
	for o := range workflow.Walk(taken) {
		if o.Header().State.Status == workflow.Running {
			must(t, storage.Update(t.Context(), b, o))
		}
	}
	must(t, moves(t.Context(), a, actions(plan)[1], workflow.Running)) // the zombie's write takes effect
	if err := finish(t.Context(), b, taken); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the new owner: %v", err)
	}
	if err := finish(t.Context(), a, plan); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the former owner: %v", err)
	}
	if p := read(t, b, plan.ID); p.State.Status != workflow.Running {
		t.Errorf("the plan is %s", p.State.Status)
	}
}

func finishFirst(t testing.TB, v storage.Vault, plan *workflow.Plan) error {
	first := actions(plan)[0]
	must(t, moves(t.Context(), v, first, workflow.Running))
	return moves(t.Context(), v, first, workflow.Completed)
}
