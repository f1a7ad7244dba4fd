package driver_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// TestCreatedBefore checks how the time of end bounds the time of creation.
func TestCreatedBefore(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	last := time.Unix(1<<63-62135596801, 999_999_999)
	for _, c := range []struct{ before, ended, want time.Time }{
		{},
		{before: at, want: at},
		{ended: at, want: at.Add(storage.MaxAhead)},
		{before: at, ended: at, want: at},
		{before: at.Add(48 * time.Hour), ended: at, want: at.Add(storage.MaxAhead)},
		{ended: last, want: last},
		{before: at, ended: last, want: at},
	} {
		f := storage.Filters{Before: c.before, EndedBefore: c.ended}
		if got := driver.CreatedBefore(f); !got.Equal(c.want) {
			t.Errorf("Before %v, EndedBefore %v: got %v, want %v", c.before, c.ended, got, c.want)
		}
	}
}

// TestChooseAllocatesNothing applies all filters at once to a plan that they select, as listings do for each plan.
func TestChooseAllocatesNothing(t *testing.T) {
	now := time.Now()
	r := storage.ListResult{
		ID: workflow.NewV7(), GroupID: uuid.New(), Name: "deploy west",
		State: workflow.State{Status: workflow.Failed, End: now},
	}
	f := storage.Filters{
		ByIDs: []uuid.UUID{uuid.New(), r.ID}, ByGroupIDs: []uuid.UUID{uuid.New(), r.GroupID}, ByStatus: []workflow.Status{workflow.Running, workflow.Failed},
		NamePrefix: "deploy", NameContains: "west", After: now.Add(-time.Hour), Before: now.Add(time.Hour),
		EndedAfter: now.Add(-time.Hour), EndedBefore: now.Add(time.Hour),
	}
	if err := driver.CheckCount(f); err != nil || !driver.Choose(f, r) {
		t.Fatalf("Choose %t, CheckCount %v", driver.Choose(f, r), err)
	}
	if n := testing.AllocsPerRun(100, func() { driver.Choose(f, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
