package storagetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// Searches by name and by time of end, and Count.

func countPromises() []promise {
	return slices.Concat([]promise{
		{"the zero value counts all plans, and of each day", countAll},
		{"Limit, BeforeID and contradictory filters are ErrInvalid", countInvalid},
		{"a plan that exists throughout is counted, whatever is written meanwhile", countDuringWrites},
		{"a count whose service dies is an error", countServiceDies},
	}, contextPromises("count"))
}

// count checks that Count agrees with what a search without a limit should find.
func (s *stage) count(want int, f storage.Filters) {
	s.Helper()
	if n, err := s.vault.Count(s.ctx, f); n != int64(want) || err != nil {
		s.Errorf("Count %+v: got %d, %v, want %d", f, n, err, want)
	}
}

func countAll(s *stage) {
	s.count(0, storage.Filters{})
	plans := s.motley(20)
	s.count(len(plans), storage.Filters{})
	at := workflow.Time(plans[8].ID)
	s.count(8, storage.Filters{After: at})
	s.count(11, storage.Filters{Before: at})
	s.count(1, storage.Filters{ByIDs: []uuid.UUID{plans[3].ID, plans[3].ID, uuid.New()}})
	s.must(s.vault.Delete(s.ctx, plans[3].ID))
	s.count(len(plans)-1, storage.Filters{})
	s.count(0, storage.Filters{ByIDs: []uuid.UUID{plans[3].ID}})
}

func countInvalid(s *stage) {
	s.create(bare("one"))
	for _, f := range append([]storage.Filters{{Limit: 1}, {Limit: -1}, {BeforeID: workflow.NewV7()}}, contradictions()...) {
		n, err := s.vault.Count(s.ctx, f)
		s.want(storage.ErrInvalid, "Count", uuid.Nil, err)
		if n != 0 {
			s.Errorf("Count %+v: %d", f, n)
		}
	}
}

func countDuringWrites(s *stage) {
	stay := s.ages(15)
	done, stop := s.disturb()
	for rounds := 0; rounds < 5 || !done() && rounds < 50; rounds++ {
		for _, f := range []storage.Filters{{}, {NamePrefix: ""}, {After: workflow.Time(stay[14].ID).Add(-time.Second)}} {
			n, err := s.vault.Count(s.ctx, f)
			if s.must(err); n < int64(len(stay)) {
				s.Errorf("Count %+v: %d plans, and at least %d exist", f, n, len(stay))
			}
		}
	}
	stop()
}

func countServiceDies(s *stage) {
	plans := s.ages(12)
	for _, f := range []storage.Filters{{}, everyFilter(plans)[0], everyFilter(plans)[1]} {
		for d := range s.deaths() {
			var n int64
			err := d.run(func(ctx context.Context, v storage.Vault) (err error) {
				n, err = v.Count(ctx, f)
				return err
			})
			if err == nil && n != int64(len(plans)) || err != nil && n != 0 {
				s.Errorf("Count %+.60v: %d plans, %v", f, n, err)
			}
		}
	}
}

// contradictions are filters that neither Search nor Count takes.
func contradictions() []storage.Filters {
	return []storage.Filters{
		{ByStatus: []workflow.Status{workflow.Running, 99}},
		{ByGroupIDs: []uuid.UUID{uuid.Nil}},
		{After: moment, Before: moment.Add(-time.Hour)},
		{After: moment, Before: moment},
		{EndedAfter: moment, EndedBefore: moment},
		{EndedAfter: moment, EndedBefore: moment.Add(-time.Nanosecond), ByStatus: []workflow.Status{workflow.Failed}},
		{EndedAfter: moment, ByStatus: []workflow.Status{workflow.Running}},
		{EndedBefore: moment, ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}},
		{NamePrefix: "half a rune: \xc3"},
		{NameContains: "\xff"},
	}
}

// searchNames searches for names and parts of them. Some are too long for what listings of a store may show of a
// plan, and differ only at their ends.
func searchNames(s *stage) {
	long := strings.Repeat("a long name ", 1000)
	names := append(slices.Collect(plantest.Strange()), "", "deploy west", "deploy east", "Deploy west", "redeploy west", "деплой запад",
		long, long+"west", long+"east", "west "+long, strings.Repeat("ж", 5000)+"west")
	now := time.Now()
	plans := make([]*workflow.Plan, len(names))
	s.must(atOnce(len(names), func(i int) error {
		plans[i] = bareAt(names[i], now.Add(-time.Duration(i)*time.Minute))
		if err := s.vault.Create(s.ctx, plans[i]); err != nil || i%3 > 0 {
			return err
		}
		plans[i].State.Status = statuses[1+i%4]
		return s.vault.UpdatePlan(s.ctx, plans[i])
	}))
	open := []workflow.Status{workflow.NotStarted, workflow.Running}
	for i, name := range names {
		runes := []rune(name)
		half := string(runes[:len(runes)/2])
		rest := string(runes[len(runes)/2:])
		s.finds(plans, []storage.Filters{ // each takes its turn, because a listing of long names takes time
			{NamePrefix: name, Limit: 1 + i},
			{NamePrefix: half, NameContains: rest, ByStatus: open},
			{NameContains: rest, Limit: 100},
			{NamePrefix: half, NameContains: rest, Limit: 100},
			{NameContains: rest, ByIDs: ids(plans)},
		}[i%5])
	}
	for _, f := range []storage.Filters{
		{NamePrefix: "deploy"},
		{NameContains: "west"},
		{NamePrefix: long},
		{NamePrefix: long, NameContains: "eas"},
		{NamePrefix: long + "west of all"},
		{NameContains: "nowhere"},
		{NameContains: "west", ByStatus: statuses[2:]},
	} {
		s.finds(plans, f)
		s.onceEach(fmt.Sprintf("pages of %.60v", f), s.foundBy(plans, f), s.pages(limited(f, 2)))
	}
}

// searchEnded searches for plans by the time of their end.
func searchEnded(s *stage) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	var plans []*workflow.Plan // newest first
	for i, end := range []time.Time{
		{}, now, now, now.Add(time.Nanosecond), now.Add(-time.Nanosecond), now.Add(-30 * time.Hour), now.Add(24 * time.Hour), now.Add(-50 * time.Hour),
	} {
		plan := s.create(bareAt(fmt.Sprint(i), now.Add(-time.Duration(i)*time.Hour)))
		plan.State.Status, plan.State.End = statuses[2+i%3], end
		s.must(s.vault.UpdatePlan(s.ctx, plan))
		plans = append(plans, plan)
	}
	running := s.create(bareAt("running", now.Add(-9*time.Hour)))
	running.State.Status, running.State.End = workflow.Running, now
	s.must(s.vault.UpdatePlan(s.ctx, running))
	plans = append(plans, running, s.create(bareAt("new", now.Add(-10*time.Hour))))
	zone := time.FixedZone("", -7*3600)
	for i := range plans[1:8] {
		end := plans[1+i].State.End
		for _, f := range []storage.Filters{
			{EndedAfter: end},
			{EndedBefore: end},
			{EndedAfter: end.Add(-1).In(zone), EndedBefore: end.Add(1).In(zone)},
			{EndedAfter: end, ByStatus: []workflow.Status{workflow.Running, workflow.Failed}},
			{EndedBefore: end.Add(1), ByStatus: statuses[2:], NameContains: "3"},
			{EndedBefore: end.Add(1), ByIDs: ids(plans)},
			{EndedBefore: end, After: now.Add(-4 * time.Hour), Before: now.Add(time.Hour)},
			{EndedAfter: now.Add(-time.Hour), EndedBefore: end.Add(time.Hour), After: now.Add(-6 * time.Hour)},
		} {
			if f.EndedAfter.IsZero() || f.EndedBefore.IsZero() || f.EndedAfter.Before(f.EndedBefore) {
				s.finds(plans, f)
				s.onceEach(fmt.Sprintf("pages of %+v", f), s.foundBy(plans, f), s.pages(limited(f, 2)))
			}
		}
	}
	for _, at := range []time.Time{time.Unix(-1<<61, 0), time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Unix(1<<61, 0), time.Unix(1<<63-62135596801, 999_999_999)} {
		s.finds(plans, storage.Filters{EndedAfter: at})
		s.finds(plans, storage.Filters{EndedBefore: at})
	}
}

func limited(f storage.Filters, limit int) storage.Filters {
	f.Limit = limit
	return f
}
