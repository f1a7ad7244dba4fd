package driver_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestCheckNewForks checks that a fork may have Completed sub-objects, and that an authored plan may not.
func TestCheckNewForks(t *testing.T) {
	p := plantest.Fork()
	if err := driver.CheckNew(p, plantest.Register()); err != nil {
		t.Error(err)
	}
	p.Blocks[0].ToleratedFailures = 0 // but the block is bypassed
	if err := driver.CheckNew(p, plantest.Register()); err != nil {
		t.Error(err)
	}
	p.ForkedFrom = uuid.Nil
	wantField(t, "CheckNew", plantest.BadPlan{Field: "BypassChecks.State.Status", Problem: "all statuses of a new plan are NotStarted"}, driver.CheckNew(p, plantest.Register()))

	authored := plantest.Full()
	authored.ForkedFrom = workflow.NewV7() // what ran before may be deleted, and nothing may have completed
	if err := driver.CheckNew(authored, plantest.Register()); err != nil {
		t.Error(err)
	}
}

func TestCheckNewBadForks(t *testing.T) {
	for _, bad := range plantest.BadForks() {
		p := plantest.Fork()
		bad.Edit(p)
		wantField(t, "CheckNew", bad, driver.CheckNew(p, plantest.Register()))
	}
}
