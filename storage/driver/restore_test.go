package driver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestCheckRestored checks plans of each status and of any time, and what Bind makes of a stored plan.
func TestCheckRestored(t *testing.T) {
	for status := workflow.NotStarted; status.Valid(); status++ {
		p := plantest.Full()
		driver.Complete(p)
		plantest.Finish(p)
		p.State.Status = status
		if err := driver.CheckRestored(p, plantest.Register()); err != nil {
			t.Errorf("%s: %v", status, err)
		}
		text, err := workflow.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		read := new(workflow.Plan)
		if err := workflow.Unmarshal(text, read); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(driver.CheckRestored(read, nil), driver.CheckRestored(read, plantest.Register()), driver.Bind(read, plantest.Register())); err != nil {
			t.Errorf("%s, raw: %v", status, err)
		}
		if err := driver.CheckRestored(read, plantest.Register()); err != nil {
			t.Errorf("%s, as read: %v", status, err)
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
