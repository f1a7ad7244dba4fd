package driver_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
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
		ID: workflow.NewV7(), GroupID: uuid.New(), ForkedFrom: uuid.New(), Name: "deploy west", SubmittedBy: "ops", Keys: []string{"API", "west"}, Labels: map[string]string{"a": "1", "b": "2"},
		State: workflow.State{Status: workflow.Failed, End: now},
	}
	f := storage.Filters{
		ByIDs: []uuid.UUID{uuid.New(), r.ID}, IDContains: strings.ToUpper(r.ID.String()[4:]), ByGroupIDs: []uuid.UUID{uuid.New(), r.GroupID}, ByStatus: []workflow.Status{workflow.Running, workflow.Failed},
		ByForkedFrom: []uuid.UUID{uuid.New(), r.ForkedFrom}, BySubmitter: []string{"dev", "ops"}, ByKey: "west", NamePrefix: "deploy", NameContains: "west", Labels: map[string]string{"b": "2"}, After: now.Add(-time.Hour), Before: now.Add(time.Hour),
		EndedAfter: now.Add(-time.Hour), EndedBefore: now.Add(time.Hour),
	}
	if err := driver.CheckCount(f); err != nil || !driver.Choose(f, r) {
		t.Fatalf("Choose %t, CheckCount %v", driver.Choose(f, r), err)
	}
	if n := testing.AllocsPerRun(100, func() { driver.Choose(f, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestEveryFilterSelects fails if a field of the filters is not tested here, or does not select by the field of a result
// that it reads. What it selects is tested in internal/oracle.
func TestEveryFilterSelects(t *testing.T) {
	now := time.Now()
	missing := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[storage.Filters]()) {
		missing[f.Name] = true
	}
	for field, test := range map[string]struct {
		f     storage.Filters
		reads string
	}{
		"ByIDs":        {storage.Filters{ByIDs: []uuid.UUID{workflow.NewV7()}}, ""},
		"IDContains":   {storage.Filters{IDContains: "0"}, "ID"},
		"ByGroupIDs":   {storage.Filters{ByGroupIDs: []uuid.UUID{uuid.New()}}, "GroupID"},
		"ByForkedFrom": {storage.Filters{ByForkedFrom: []uuid.UUID{uuid.New()}}, "ForkedFrom"},
		"BySubmitter":  {storage.Filters{BySubmitter: []string{"ops"}}, "SubmittedBy"},
		"ByKey":        {storage.Filters{ByKey: "west"}, "Keys"},
		"ByStatus":     {storage.Filters{ByStatus: []workflow.Status{workflow.Failed}}, "State"},
		"NamePrefix":   {storage.Filters{NamePrefix: "de"}, "Name"},
		"NameContains": {storage.Filters{NameContains: "west"}, "Name"},
		"Labels":       {storage.Filters{Labels: map[string]string{"env": "prod"}}, "Labels"},
		"After":        {storage.Filters{After: now}, ""},
		"Before":       {storage.Filters{Before: now}, ""},
		"EndedAfter":   {storage.Filters{EndedAfter: now}, "State"},
		"EndedBefore":  {storage.Filters{EndedBefore: now}, "State"},
		"BeforeID":     {storage.Filters{BeforeID: workflow.NewV7()}, ""},
		"Limit":        {storage.Filters{Limit: 1}, ""}, // the listing counts
	} {
		if got := test.f.Fields(); len(got) != 1 || got[0] != field {
			t.Errorf("%s: the fields that are set are %v", field, got)
		}
		if got := strings.Join(driver.Reads(test.f), " "); got != test.reads {
			t.Errorf("%s reads %q, want %q", field, got, test.reads)
		}
		delete(missing, field)
	}
	if len(missing) > 0 {
		t.Errorf("%v are not tested", missing)
	}
	if set := (storage.Filters{ByIDs: []uuid.UUID{}, ByGroupIDs: []uuid.UUID{}, ByForkedFrom: []uuid.UUID{}, BySubmitter: []string{}, ByStatus: []workflow.Status{}, Labels: map[string]string{}}).Fields(); len(set) != 6 {
		t.Errorf("of six lists without values, %v are set", set)
	}
	if driver.Choose(storage.Filters{}, storage.ListResult{ID: uuid.New()}) {
		t.Error("an ID that is not a UUIDv7 is chosen")
	}
}

// TestListedIsWhole fails if Listed or SameListed overlooks a field of a result.
func TestListedIsWhole(t *testing.T) {
	p := plantest.Full()
	driver.Complete(p)
	p.Submitted.By = "ops"
	p.External.Name, p.Keys, p.WaitsFor = "queue", []workflow.Key{{Name: "k"}}, "k"
	p.KeepTurn, p.Unique, p.Deadline = workflow.KeepWhileAwake, "u", time.Now()
	p.Owner, p.Epoch, p.WakeAt, p.LastSignal, p.ForkedFrom, p.State = workflow.NewV7(), 1, time.Now(), 1, workflow.NewV7(), workflow.State{Status: workflow.Running, Start: time.Now(), End: time.Now(), ETag: "1"}
	r := driver.Listed(p)
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Name != "_" && v.Field(i).IsZero() {
			t.Errorf("%s is not set", f.Name)
		}
	}
}
