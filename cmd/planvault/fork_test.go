package main

import (
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// TestForkEachLeavesOut forks the failed plans of a search: those that are forks and failed again are left out, and so are those
// whose compensation has begun.
func TestForkEachLeavesOut(t *testing.T) {
	s := newStage(t)
	at := time.Now().Add(-time.Hour)
	s.store(t, workflow.NewV7At(at), workflow.Failed, "plan")
	again := planOf(workflow.NewV7At(at.Add(time.Minute)), workflow.Failed, "again")
	again.ForkedFrom = workflow.NewV7At(at)
	refunded := planOf(workflow.NewV7At(at.Add(2*time.Minute)), workflow.Failed, "refunded")
	refund := &workflow.DeferBatch{ID: workflow.NewV7(), PlanID: refunded.ID, When: workflow.OnFailure, State: refunded.State}
	refunded.DeferredActions = &workflow.DeferredActions{ID: workflow.NewV7(), PlanID: refunded.ID, State: refunded.State, Batches: []*workflow.DeferBatch{refund}}
	for _, p := range []*workflow.Plan{again, refunded} {
		must(t, s.vault.Restore(t.Context(), p))
	}
	fork := []string{"fork", "--from-failure", "--status", "failed", "--yes"}
	s.says(t, exitFound, "1 plan forked, 1 are forks and were left out, 1 can't be forked like this\n", fork...)
	s.says(t, exitFound, "has run after the failure", fork...)
	s.says(t, exitFound, "1 plan forked, 1 had a fork, 1 can't be forked like this\n", append(fork, "--include-forks")...)
	s.says(t, exitDone, "1 plan forked, 2 had a fork\n", append(fork, "--include-forks", "--after-compensation")...)
}

// TestForkEachBesideItself forks the plans of a search by two commands at once: both succeed, and each plan has one fork.
func TestForkEachBesideItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.fill(t, 1, 5)
		s.slow(10 * time.Millisecond)
		var both sync.WaitGroup
		var reports [2]forkedEach
		for i := range reports {
			both.Go(func() {
				r := s.run(t.Context(), "fork", "--from-start", "--status", "completed", "--yes", "--output", "json")
				if err := json.Unmarshal([]byte(r.stdout), &reports[i]); err != nil || r.code != exitDone {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		both.Wait()
		if a, b := reports[0], reports[1]; a.Forked+b.Forked != 5 || a.Existing+b.Existing != 5 {
			t.Errorf("%+v", reports)
		}
	})
}

// TestNoName looks for an action without a name and a key: neither an empty argument nor an empty key names it.
func TestNoName(t *testing.T) {
	p := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{{}}}}}}}
	for _, text := range []string{"", uuid.Nil.String()} {
		p.Blocks[0].Sequences[0].Actions[0].ID = workflow.NewV7()
		if a, err := findAction(p, text); err == nil {
			t.Errorf("%q names %v", text, a)
		}
	}
}
