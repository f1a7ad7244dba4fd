package main

import (
	"testing"
	"time"

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
