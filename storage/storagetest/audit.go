package storagetest

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func auditPromises() []promise {
	return []promise{
		{"entries come back newest first, as they were recorded last", auditFound},
		{"filters select by plan, day and time, up to a limit", auditSelected},
		{"an entry that is too long, and a negative limit, are ErrInvalid", auditInvalid},
		{"entries are no plans and no members", auditApart},
	}
}

// entries returns the audit entries that the filters select.
func (s *stage) entries(f storage.AuditFilters) []storage.AuditEntry {
	s.Helper()
	found, err := storage.Collect(s.control(s.open()).AuditEntries(s.ctx, f))
	s.must(err)
	return found
}

// entryAt returns an audit entry that began at a time.
func entryAt(at time.Time) storage.AuditEntry {
	id := workflow.NewV7()
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (8 * (5 - i)))
	}
	return storage.AuditEntry{ID: id, What: "purge"}
}

func auditFound(s *stage) {
	log := s.control(s.vault)
	if found := s.entries(storage.AuditFilters{}); len(found) > 0 {
		s.Errorf("a new store has the entries %+v", found)
	}
	day := storage.DayOf(moment)
	plain, full := entryAt(moment), entryAt(moment.Add(time.Millisecond))
	full.By = workflow.Attribution{By: " Ω <ops@example.com>", Why: `"quoted" & =?utf-8?b?`}
	full.From, full.To, full.Detail, full.Result = day, day, "status=failed", "24 plans  removed"
	full.Plans = []uuid.UUID{workflow.NewV7(), workflow.NewV7()}
	long := entryAt(moment.Add(time.Hour))
	long.By.By, long.By.Why, long.Detail = strings.Repeat("ö", workflow.MaxBy/2), strings.Repeat("€", workflow.MaxWhy/3), strings.Repeat(`"`, storage.MaxDetail)
	long.Result, long.Plans = strings.Repeat("é", storage.MaxDetail/2), slices.Repeat(full.Plans[:1], storage.MaxAuditPlans)
	begun := full
	begun.Result = ""
	for _, d := range []storage.AuditEntry{long, begun, plain, full, full} {
		s.must(log.Record(s.ctx, d))
	}
	found := s.entries(storage.AuditFilters{})
	for i, want := range []storage.AuditEntry{long, full, plain} {
		if i >= len(found) {
			s.Fatalf("there are %d entries, want 3", len(found))
		}
		got := found[i]
		if got.Stored.IsZero() || !got.By.At.Equal(workflow.Time(want.ID)) {
			s.Errorf("entry %s was stored at %v and began at %v", got.ID, got.Stored, got.By.At)
		}
		if got.Stored, got.By.At = want.Stored, want.By.At; !reflect.DeepEqual(got, want) {
			s.Errorf("the entry %+v came back as %+v", want, got)
		}
	}
}

func auditSelected(s *stage) {
	log := s.control(s.vault)
	date := storage.DayOf(moment)
	day := date.Start()
	plan := entryAt(day.Add(time.Hour)).ID
	ofPlan, ofDay, ofOther, ofAll := entryAt(day), entryAt(day.Add(time.Hour)), entryAt(day.Add(2*time.Hour)), entryAt(day.Add(3*time.Hour))
	ofPlan.Plans = []uuid.UUID{plan}
	ofDay.From, ofDay.To = date.Add(-2), date
	ofOther.From, ofOther.To = date.Add(1), date.Add(2)
	for _, d := range []storage.AuditEntry{ofAll, ofPlan, ofOther, ofDay} {
		s.must(log.Record(s.ctx, d))
	}
	for _, test := range []struct {
		f    storage.AuditFilters
		want []storage.AuditEntry
	}{
		{storage.AuditFilters{}, []storage.AuditEntry{ofAll, ofOther, ofDay, ofPlan}},
		{storage.AuditFilters{Limit: 2}, []storage.AuditEntry{ofAll, ofOther}},
		{storage.AuditFilters{Plan: plan}, []storage.AuditEntry{ofAll, ofDay, ofPlan}},
		{storage.AuditFilters{Plan: entryAt(day).ID}, []storage.AuditEntry{ofAll, ofDay}},
		{storage.AuditFilters{Day: date}, []storage.AuditEntry{ofAll, ofDay, ofPlan}},
		{storage.AuditFilters{Day: date.Add(2)}, []storage.AuditEntry{ofAll, ofOther}},
		{storage.AuditFilters{Day: date.Add(-3)}, []storage.AuditEntry{ofAll}},
		{storage.AuditFilters{After: day, Before: day.Add(3 * time.Hour)}, []storage.AuditEntry{ofOther, ofDay}},
		{storage.AuditFilters{Before: day.Add(3 * time.Hour), Limit: 1}, []storage.AuditEntry{ofOther}},
	} {
		same := func(a, b storage.AuditEntry) bool { return a.ID == b.ID }
		if got := s.entries(test.f); !slices.EqualFunc(got, test.want, same) {
			s.Errorf("%+v select %+v, want %+v", test.f, got, test.want)
		}
	}
}

func auditInvalid(s *stage) {
	log := s.control(s.vault)
	for field, edit := range map[string]func(d *storage.AuditEntry){
		"ID":     func(d *storage.AuditEntry) { d.ID = uuid.New() },
		"What":   func(d *storage.AuditEntry) { d.What = "a purge" },
		"By":     func(d *storage.AuditEntry) { d.By.By = strings.Repeat("x", workflow.MaxBy+1) },
		"Why":    func(d *storage.AuditEntry) { d.By.Why = "two\nlines" },
		"Plans":  func(d *storage.AuditEntry) { d.Plans = make([]uuid.UUID, storage.MaxAuditPlans+1) },
		"From":   func(d *storage.AuditEntry) { d.From = storage.DayOf(moment) },
		"Detail": func(d *storage.AuditEntry) { d.Detail = "\xff" },
		"Result": func(d *storage.AuditEntry) { d.Result = strings.Repeat("x", storage.MaxDetail+1) },
	} {
		d := entryAt(moment)
		edit(&d)
		err := log.Record(s.ctx, d)
		s.want(storage.ErrInvalid, "Record", uuid.Nil, err)
		if err != nil && !strings.Contains(err.Error(), field+": ") {
			s.Errorf("a wrong %s is refused with %v", field, err)
		}
	}
	_, err := s.control(s.vault).AuditEntries(s.ctx, storage.AuditFilters{Limit: -1})
	s.names("AuditFilters.Limit", "AuditEntries", uuid.Nil, err)
	if found := s.entries(storage.AuditFilters{}); len(found) > 0 {
		s.Errorf("bad entries were stored: %+v", found)
	}
}

func auditApart(s *stage) {
	s.must(s.control(s.vault).Record(s.ctx, entryAt(time.Now())))
	s.must(s.vault.Recovery(s.ctx))
	if found := s.list(s.vault); len(found) > 0 {
		s.Errorf("there are plans: %+v", found)
	}
	if len(s.roster(s.vault).Members) > 0 {
		s.Errorf("there are members")
	}
	if found := s.entries(storage.AuditFilters{}); len(found) != 1 {
		s.Errorf("there are the entries %+v", found)
	}
}
