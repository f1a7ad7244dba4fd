package driver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// TestCheckRestored checks a plan as an engine has it, as it is read without a registry, and as Bind makes it, and plans
// of any time.
func TestCheckRestored(t *testing.T) {
	p := plantest.Full()
	driver.Complete(p)
	plantest.Finish(p)
	read := raw(t, p)
	for _, stored := range []error{
		driver.CheckRestored(p, plantest.Register()), driver.CheckRestored(read, nil), driver.CheckRestored(read, plantest.Register()),
		driver.Bind(read, plantest.Register()), driver.CheckRestored(read, plantest.Register()),
	} {
		if stored != nil {
			t.Error(stored)
		}
	}
	for ms, allowed := range map[int64]bool{0: true, 253402300799999: true, 253402300800000: false, 1<<48 - 1: false} {
		p := plantest.Small()
		p.ID = workflow.NewV7At(time.UnixMilli(ms))
		driver.Complete(p)
		if err := driver.CheckRestored(p, nil); (err == nil) != allowed || err != nil && !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a plan of %v: %v", workflow.Time(p.ID), err)
		}
	}
	if err := driver.CheckRestored(plantest.Full(), nil); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a plan without IDs: %v", err)
	}
	if err := driver.CheckRestored(nil, nil); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
}

// raw returns a plan as a vault without a registry would read it.
func raw(t *testing.T, p *workflow.Plan) *workflow.Plan {
	t.Helper()
	text, err := workflow.Marshal(p)
	must(t, err)
	read := new(workflow.Plan)
	must(t, workflow.Unmarshal(text, read))
	return read
}
