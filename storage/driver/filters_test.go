package driver_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
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
		ID: workflow.NewV7(), GroupID: uuid.New(), Name: "deploy west", Labels: map[string]string{"a": "1", "b": "2"},
		State: workflow.State{Status: workflow.Failed, End: now},
	}
	f := storage.Filters{
		ByIDs: []uuid.UUID{uuid.New(), r.ID}, ByGroupIDs: []uuid.UUID{uuid.New(), r.GroupID}, ByStatus: []workflow.Status{workflow.Running, workflow.Failed},
		NamePrefix: "deploy", NameContains: "west", Labels: map[string]string{"b": "2"}, After: now.Add(-time.Hour), Before: now.Add(time.Hour),
		EndedAfter: now.Add(-time.Hour), EndedBefore: now.Add(time.Hour),
	}
	if err := driver.CheckCount(f); err != nil || !driver.Choose(f, r) {
		t.Fatalf("Choose %t, CheckCount %v", driver.Choose(f, r), err)
	}
	if n := testing.AllocsPerRun(100, func() { driver.Choose(f, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestEveryFilterSelects fails if a field of the filters has no row in the table, or selects nothing.
func TestEveryFilterSelects(t *testing.T) {
	now := time.Now()
	at := func(ago time.Duration) uuid.UUID { return workflow.NewV7At(now.Add(-ago)) }
	chosen := storage.ListResult{
		ID: at(time.Hour), GroupID: uuid.New(), Name: "deploy west", Labels: map[string]string{"env": "prod", "a": ""}, State: workflow.State{Status: workflow.Failed, End: now},
	}
	other := storage.ListResult{ID: at(3 * time.Hour), Name: "remove east", Labels: map[string]string{"env": "test"}, State: workflow.State{Status: workflow.Running, End: now}}
	later := chosen
	later.ID = at(-time.Hour)
	missing := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[storage.Filters]()) {
		missing[f.Name] = true
	}
	for field, test := range map[string]struct {
		f     storage.Filters
		reads string
		not   storage.ListResult
	}{
		"ByIDs":        {storage.Filters{ByIDs: []uuid.UUID{chosen.ID}}, "", later},
		"ByGroupIDs":   {storage.Filters{ByGroupIDs: []uuid.UUID{chosen.GroupID}}, "GroupID", other},
		"ByStatus":     {storage.Filters{ByStatus: []workflow.Status{workflow.Failed}}, "State", other},
		"NamePrefix":   {storage.Filters{NamePrefix: "de"}, "Name", other},
		"NameContains": {storage.Filters{NameContains: "west"}, "Name", other},
		"Labels":       {storage.Filters{Labels: map[string]string{"env": "prod"}}, "Labels", other},
		"After":        {storage.Filters{After: now.Add(-2 * time.Hour)}, "", other},
		"Before":       {storage.Filters{Before: now}, "", later},
		"EndedAfter":   {storage.Filters{EndedAfter: now.Add(-time.Hour)}, "State", other},
		"EndedBefore":  {storage.Filters{EndedBefore: now.Add(time.Hour)}, "State", other},
		"BeforeID":     {storage.Filters{BeforeID: at(0)}, "", later},
		"Limit":        {storage.Filters{Limit: 1}, "", storage.ListResult{}}, // the listing counts
	} {
		if got := test.f.Fields(); len(got) != 1 || got[0] != field {
			t.Errorf("%s: the fields that are set are %v", field, got)
		}
		if err := driver.CheckFilters(test.f); err != nil {
			t.Errorf("%s: %v", field, err)
		}
		if !driver.Choose(test.f, chosen) || driver.Choose(test.f, test.not) {
			t.Errorf("%s: chosen %t, and the other %t", field, driver.Choose(test.f, chosen), driver.Choose(test.f, test.not))
		}
		if got := strings.Join(driver.Reads(test.f), " "); got != test.reads {
			t.Errorf("%s reads %q, want %q", field, got, test.reads)
		}
		delete(missing, field)
	}
	for field := range missing {
		t.Errorf("%s is not tested", field)
	}
	var empty storage.Filters
	for _, field := range reflect.ValueOf(&empty).Elem().Fields() {
		switch field.Kind() {
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 0, 1))
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		}
	}
	if got := empty.Fields(); len(got) > 0 {
		t.Errorf("%v are set, but empty", got)
	}
	if chosen.ID = uuid.New(); driver.Choose(storage.Filters{}, chosen) {
		t.Error("an ID that is not a UUIDv7 is chosen")
	}
}

// TestListedIsWhole fails if Listed or SameListed overlooks a field of a result.
func TestListedIsWhole(t *testing.T) {
	p := plantest.Full()
	driver.Complete(p)
	p.Owner, p.Epoch, p.State = workflow.NewV7(), 1, workflow.State{Status: workflow.Failed, Start: time.Now(), End: time.Now(), ETag: "1"}
	r := driver.Listed(p)
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Name != "_" && v.Field(i).IsZero() {
			t.Errorf("%s is not set", f.Name)
		}
	}
	same := r
	same.SubmitTime, same.State.Start = r.SubmitTime.In(time.FixedZone("", 3600)), r.State.Start.UTC()
	other := r
	if other.Epoch++; !driver.SameListed(r, same) || driver.SameListed(r, other) {
		t.Errorf("the same %t, another %t", driver.SameListed(r, same), driver.SameListed(r, other))
	}
}
