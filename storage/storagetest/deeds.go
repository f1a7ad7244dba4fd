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

func deedPromises() []promise {
	return slices.Concat([]promise{
		{"deeds come back newest first, as they were recorded last", deedsFound},
		{"filters select by plan, day and time, up to a limit", deedsSelected},
		{"a deed that is too long is ErrInvalid and not stored", deedsInvalid},
		{"deeds are no plans and no members", deedsApart},
	}, contextPromises("deeds"))
}

// journal returns a vault's Journal. It skips the case if the vault has none.
func (s *stage) journal(v storage.Vault) storage.Journal {
	s.Helper()
	j, ok := v.(storage.Journal)
	s.needs(ok, "vault with storage.Journal")
	return j
}

// deeds returns the deeds that the filters select.
func (s *stage) deeds(f storage.DeedFilters) []storage.Deed {
	s.Helper()
	found, err := s.journal(s.open()).Deeds(s.ctx, f)
	s.must(err)
	return found
}

// deedAt returns a deed that began at a time.
func deedAt(at time.Time) storage.Deed {
	id := workflow.NewV7()
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (8 * (5 - i)))
	}
	return storage.Deed{ID: id, What: "purge"}
}

func deedsFound(s *stage) {
	j := s.journal(s.vault)
	if found := s.deeds(storage.DeedFilters{}); len(found) > 0 {
		s.Errorf("a new store has the deeds %+v", found)
	}
	day := moment.UTC().Truncate(24 * time.Hour)
	plain, full := deedAt(moment), deedAt(moment.Add(time.Millisecond))
	full.Deed = workflow.Deed{By: " Ω <ops@example.com>", Why: `"quoted" & =?utf-8?b?`}
	full.From, full.To, full.Detail, full.Result = day, day, "status=failed", "24 plans  removed"
	full.Plans = []uuid.UUID{workflow.NewV7(), workflow.NewV7()}
	long := deedAt(moment.Add(time.Hour))
	long.By, long.Why, long.Detail = strings.Repeat("ö", workflow.MaxBy/2), strings.Repeat("€", workflow.MaxWhy/3), strings.Repeat(`"`, storage.MaxDetail)
	long.Result, long.Plans = strings.Repeat("é", storage.MaxDetail/2), slices.Repeat(full.Plans[:1], storage.MaxDeedPlans)
	begun := full
	begun.Result = ""
	for _, d := range []storage.Deed{long, begun, plain, full, full} {
		s.must(j.Record(s.ctx, d))
	}
	found := s.deeds(storage.DeedFilters{})
	for i, want := range []storage.Deed{long, full, plain} {
		if i >= len(found) {
			s.Fatalf("there are %d deeds, want 3", len(found))
		}
		got := found[i]
		if got.Stored.IsZero() || !got.At.Equal(workflow.Time(want.ID)) {
			s.Errorf("deed %s was stored at %v and began at %v", got.ID, got.Stored, got.At)
		}
		if got.Stored, got.At = want.Stored, want.At; !reflect.DeepEqual(got, want) {
			s.Errorf("the deed %+v came back as %+v", want, got)
		}
	}
}

func deedsSelected(s *stage) {
	j := s.journal(s.vault)
	day := moment.UTC().Truncate(24 * time.Hour)
	plan := deedAt(day.Add(time.Hour)).ID
	ofPlan, ofDay, ofOther, ofAll := deedAt(day), deedAt(day.Add(time.Hour)), deedAt(day.Add(2*time.Hour)), deedAt(day.Add(3*time.Hour))
	ofPlan.Plans = []uuid.UUID{plan}
	ofDay.From, ofDay.To = day.AddDate(0, 0, -2), day
	ofOther.From, ofOther.To = day.AddDate(0, 0, 1), day.AddDate(0, 0, 2)
	for _, d := range []storage.Deed{ofAll, ofPlan, ofOther, ofDay} {
		s.must(j.Record(s.ctx, d))
	}
	for _, test := range []struct {
		f    storage.DeedFilters
		want []storage.Deed
	}{
		{storage.DeedFilters{}, []storage.Deed{ofAll, ofOther, ofDay, ofPlan}},
		{storage.DeedFilters{Limit: 2}, []storage.Deed{ofAll, ofOther}},
		{storage.DeedFilters{Plan: plan}, []storage.Deed{ofAll, ofDay, ofPlan}},
		{storage.DeedFilters{Plan: deedAt(day).ID}, []storage.Deed{ofAll, ofDay}},
		{storage.DeedFilters{Day: day.Add(5 * time.Hour)}, []storage.Deed{ofAll, ofDay, ofPlan}},
		{storage.DeedFilters{Day: day.AddDate(0, 0, 2)}, []storage.Deed{ofAll, ofOther}},
		{storage.DeedFilters{Day: day.AddDate(0, 0, -3)}, []storage.Deed{ofAll}},
		{storage.DeedFilters{After: day, Before: day.Add(3 * time.Hour)}, []storage.Deed{ofOther, ofDay}},
		{storage.DeedFilters{Before: day.Add(3 * time.Hour), Limit: 1}, []storage.Deed{ofOther}},
	} {
		same := func(a, b storage.Deed) bool { return a.ID == b.ID }
		if got := s.deeds(test.f); !slices.EqualFunc(got, test.want, same) {
			s.Errorf("%+v select %+v, want %+v", test.f, got, test.want)
		}
	}
}

func deedsInvalid(s *stage) {
	j := s.journal(s.vault)
	for field, edit := range map[string]func(d *storage.Deed){
		"ID":     func(d *storage.Deed) { d.ID = uuid.New() },
		"What":   func(d *storage.Deed) { d.What = "a purge" },
		"By":     func(d *storage.Deed) { d.By = strings.Repeat("x", workflow.MaxBy+1) },
		"Why":    func(d *storage.Deed) { d.Why = "two\nlines" },
		"Plans":  func(d *storage.Deed) { d.Plans = make([]uuid.UUID, storage.MaxDeedPlans+1) },
		"From":   func(d *storage.Deed) { d.From = moment.UTC().Truncate(24 * time.Hour) },
		"Detail": func(d *storage.Deed) { d.Detail = "\xff" },
		"Result": func(d *storage.Deed) { d.Result = strings.Repeat("x", storage.MaxDetail+1) },
	} {
		d := deedAt(moment)
		edit(&d)
		err := j.Record(s.ctx, d)
		s.want(storage.ErrInvalid, "Record", uuid.Nil, err)
		if err != nil && !strings.Contains(err.Error(), field+": ") {
			s.Errorf("a wrong %s is refused with %v", field, err)
		}
	}
	if found := s.deeds(storage.DeedFilters{}); len(found) > 0 {
		s.Errorf("bad deeds were stored: %+v", found)
	}
}

func deedsApart(s *stage) {
	s.must(s.journal(s.vault).Record(s.ctx, deedAt(time.Now())))
	s.must(s.vault.Recovery(s.ctx))
	if found := s.list(s.vault); len(found) > 0 {
		s.Errorf("there are plans: %+v", found)
	}
	if _, ok := s.vault.(storage.Members); ok && len(s.roster(s.vault).Members) > 0 {
		s.Errorf("there are members")
	}
	if found := s.deeds(storage.DeedFilters{}); len(found) != 1 {
		s.Errorf("there are the deeds %+v", found)
	}
}
