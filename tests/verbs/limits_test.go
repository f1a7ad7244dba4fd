package verbs_test

import (
	"testing"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestBatchesAreFull deletes as many sub-objects in one request as the service accepts.
func TestBatchesAreFull(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for parts, want := range map[int]int{256: 1, 257: 2} {
		vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			plan := vaulttest.Created(t, v, plantest.Sized(1, 1, parts-2)) // a block, a sequence, and actions
			server.ResetRequests()
			if err := v.Delete(t.Context(), plan.ID); err != nil {
				t.Fatal(err)
			}
			got := -1 // for the batch that takes the markers
			for _, r := range server.Requests() {
				if r.Op == emulator.BatchDelete {
					got++
				}
			}
			if got != want {
				t.Errorf("%d sub-objects: %d batches, want %d", parts, got, want)
			}
		})
	}
}
