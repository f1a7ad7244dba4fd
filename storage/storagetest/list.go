package storagetest

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

func listPromises() []promise {
	return []promise{
		{"the newest plan comes first, the limit is the largest number, 0 means all, and a negative one is ErrInvalid", listLimit},
		{"strange names and descriptions of any length come back unchanged", listStrangeNames},
		{"each of many plans is yielded once", listMany},
		{"a sequence can be ranged over again, and queries the store each time", listAgain},
		{"a break leaves no goroutine, and the vault is still usable", listBreak},
		{"the body of the loop may use the vault", listBody},
		{"a listing whose context ends is never taken for a short list", listContextEnds},
		{"a listing whose service dies is never taken for a short list", listServiceDies},
		{"a plan that exists throughout is yielded once, on one page, and counted, whatever is written meanwhile", listDuringWrites},
	}
}

func listLimit(s *stage) {
	s.yields("List of an empty store", nil, s.list(s.vault))
	want := ids(s.ages(7))
	for _, limit := range []int{0, 1, 2, 6, 7, 8, 1000, math.MaxInt / 2, math.MaxInt} {
		n := limit
		if n == 0 {
			n = len(want)
		}
		s.yields(fmt.Sprint("List with limit ", limit), want[:min(n, len(want))], s.collect(s.vault.List(s.ctx, limit)))
	}
	for _, limit := range []int{-1, math.MinInt} {
		_, err := s.vault.List(s.ctx, limit)
		s.want(storage.ErrInvalid, "List", uuid.Nil, err)
	}
}

func listStrangeNames(s *stage) {
	texts := slices.Collect(plantest.Strange())
	texts = append(texts, fmt.Sprintf("%0100000d", 1), fmt.Sprintf("ж%0100000d", 1))
	plans := map[uuid.UUID]*workflow.Plan{}
	for i, text := range texts {
		plan := s.create(&workflow.Plan{Name: texts[len(texts)-1-i], Descr: text})
		if i%2 == 0 { // every second plan is updated
			s.runs(plan)
		}
		plans[plan.ID] = plan
	}
	var all []uuid.UUID
	for _, r := range s.list(s.vault) {
		all = append(all, r.ID)
		s.agrees("List", plans[r.ID], r)
	}
	if len(all) != len(plans) {
		s.Errorf("List yields %d plans, want %d", len(all), len(plans))
	}
	for _, r := range s.search(s.vault, storage.Filters{ByIDs: all}) {
		s.agrees("Search by ID", plans[r.ID], r)
	}
}

func listMany(s *stage) {
	plans := make([]*workflow.Plan, 150)
	s.must(atOnce(len(plans), func(i int) error {
		plans[i] = bare(fmt.Sprint(i)) // many share a millisecond
		return s.vault.Create(s.ctx, plans[i])
	}))
	s.onceEach("List", ids(plans), s.list(s.vault))
}

func listAgain(s *stage) {
	old := s.ages(5)
	for i, f := range append(everyFilter(old), storage.Filters{}) {
		list, err := s.vault.Search(s.ctx, f)
		if len(f.Fields()) == 0 {
			list, err = s.vault.List(s.ctx, 0)
		}
		s.must(err)
		what := fmt.Sprintf("Search %+v again", f)
		before := s.collect(list, nil)
		for range list {
			break
		}
		s.yields(what, resultIDs(before), s.collect(list, nil))
		plan := s.create(bare("new"))
		if after := s.collect(list, nil); i > 0 && f.Limit == 0 && len(after) != len(before)+1 {
			s.Errorf("%s yields %d plans, then %d", what, len(before), len(after))
		}
		s.must(s.vault.Delete(s.ctx, plan.ID))
		s.yields(what, resultIDs(before), s.collect(list, nil))
	}
}

func listBreak(s *stage) {
	want := s.ages(20)
	s.leavesNoGoroutine(func() {
		v := s.Open(s.T)
		for _, f := range everyFilter(want) {
			for stop := 1; stop < 4; stop++ {
				n := 0
				seq, err := v.Search(s.ctx, f)
				s.must(err)
				for r := range seq {
					s.must(r.Err)
					if n++; n == stop {
						break
					}
				}
			}
			s.yields("Search afterwards", ids(want)[:3], s.search(v, storage.Filters{Limit: 3}))
		}
		s.must(v.Close(s.ctx))
	})
}

func listBody(s *stage) {
	s.ages(10)
	for range s.list(s.vault) {
		seq, err := s.vault.List(s.ctx, 3)
		s.must(err)
		for r := range seq {
			s.must(r.Err)
			plan := s.read(s.vault, r.Result.ID)
			plan.Descr += "seen "
			s.must(s.vault.UpdatePlan(s.ctx, plan))
			s.create(bareAt("old", time.Now().Add(-time.Hour)))
			s.list(s.vault)
		}
	}
}

func listContextEnds(s *stage) {
	all := s.ages(20)
	s.leavesNoGoroutine(func() {
		v := s.Open(s.T)
		for _, f := range everyFilter(all) {
			for _, stop := range []int{1, 10, 19} {
				ctx, cancel := context.WithCancel(s.ctx)
				seq, err := v.Search(ctx, f)
				s.must(err)
				n := 0
				var last storage.Stream[storage.ListResult]
				for last = range seq {
					if n++; n == stop {
						cancel()
					}
				}
				cancel()
				if n < stop {
					s.Fatalf("only %d plans match %+v", n, f)
				}
				if last.Err == nil {
					s.Errorf("the context ended after %d plans; the listing yielded %d elements and no Err", stop, n)
					continue
				}
				s.want(context.Canceled, "Search", uuid.Nil, last.Err)
			}
		}
		s.must(v.Close(s.ctx))
	})
}

func listServiceDies(s *stage) {
	plans := s.ages(12)
	s.deadListing("List", ids(plans), func(ctx context.Context, v storage.Vault) (hits, error) { return v.List(ctx, 0) })
	for _, f := range everyFilter(plans)[:3] {
		s.deadListing(fmt.Sprintf("Search %+.60v", f), ids(plans), func(ctx context.Context, v storage.Vault) (hits, error) {
			return v.Search(ctx, f)
		})
	}
}

type hits = iter.Seq[storage.Stream[storage.ListResult]]

// deadListing checks that a listing whose service dies has an Err, and yields the beginning of what it should.
func (s *stage) deadListing(name string, want []uuid.UUID, list func(ctx context.Context, v storage.Vault) (hits, error)) {
	s.Helper()
	for d := range s.deaths() {
		var got []storage.ListResult
		err := d.run(func(ctx context.Context, v storage.Vault) (err error) {
			got, err = storage.Collect(list(ctx, v))
			return err
		})
		n := len(want)
		if err != nil {
			n = min(n, len(got))
		}
		s.yields(name, want[:n], got)
	}
}

func listDuringWrites(s *stage) {
	stay := s.ages(15)
	after := storage.Filters{After: workflow.Time(stay[14].ID).Add(-time.Second)}
	v := s.open()
	s.during(s.disturb, func(bool) {
		s.onceEach("List", ids(stay), keep(stay, s.list(v)))
		all := s.pages(storage.Filters{Limit: 4})
		s.onceEach("all pages", ids(stay), keep(stay, slices.Clone(all)))
		pages := resultIDs(all)
		slices.SortFunc(pages, driver.NewestFirst)
		if len(slices.Compact(pages)) < len(all) {
			s.Errorf("a plan is on two pages")
		}
		for _, f := range []storage.Filters{{}, after} {
			if n, err := v.Count(s.ctx, f); err != nil || n < len(stay) {
				s.Errorf("Count %+v: %d plans, %v, and at least %d exist", f, n, err, len(stay))
			}
		}
	})
}

// ages creates n plans over several days and returns them newest first.
func (s *stage) ages(n int) []*workflow.Plan {
	s.Helper()
	now := time.Now()
	plans := make([]*workflow.Plan, n)
	s.must(atOnce(n, func(i int) error {
		plans[i] = bareAt(fmt.Sprint(i), now.Add(-time.Duration(i)*7*time.Hour))
		return s.vault.Create(s.ctx, plans[i])
	}))
	return plans
}

func ids(plans []*workflow.Plan) (list []uuid.UUID) {
	for _, p := range plans {
		list = append(list, p.ID)
	}
	return list
}

func resultIDs(results []storage.ListResult) (list []uuid.UUID) {
	for _, r := range results {
		list = append(list, r.ID)
	}
	return list
}

// everyFilter returns filters of each kind that select all of the plans, which are NotStarted and sorted
// newest first.
func everyFilter(plans []*workflow.Plan) []storage.Filters {
	oldest := workflow.Time(plans[len(plans)-1].ID)
	return []storage.Filters{
		{ByIDs: ids(plans)},
		{ByStatus: []workflow.Status{workflow.NotStarted}},
		{After: oldest.Add(-time.Hour)},
		{BeforeID: latest},
		{Limit: len(plans)},
	}
}

// yields checks that a listing returned these plans in this order.
func (s *stage) yields(what string, want []uuid.UUID, got []storage.ListResult) {
	s.Helper()
	if !slices.Equal(resultIDs(got), want) {
		s.Errorf("%s yields\n%v, want\n%v", what, resultIDs(got), want)
	}
}

// onceEach checks that a listing returned each of these plans once, newest first. Plans may have the same
// time.
func (s *stage) onceEach(what string, want []uuid.UUID, got []storage.ListResult) {
	s.Helper()
	if !slices.IsSortedFunc(got, func(a, b storage.ListResult) int { return workflow.Time(b.ID).Compare(workflow.Time(a.ID)) }) {
		s.Errorf("%s does not yield the newest first", what)
	}
	n := map[uuid.UUID]int{}
	for _, r := range got {
		n[r.ID]++
	}
	for _, id := range want {
		if n[id] != 1 {
			s.Errorf("%s yields plan %s %d times", what, id, n[id])
		}
		delete(n, id)
	}
	for id := range n {
		s.Errorf("%s yields the wrong plan %s", what, id)
	}
}

// keep returns the results that belong to these plans.
func keep(plans []*workflow.Plan, results []storage.ListResult) []storage.ListResult {
	own := ids(plans)
	return slices.DeleteFunc(results, func(r storage.ListResult) bool { return !slices.Contains(own, r.ID) })
}

// disturb creates, updates and deletes other plans, new and old ones.
func (s *stage) disturb() error {
	var left []*workflow.Plan
	for i := range 40 {
		plan := bareAt("disturbs", time.Now().Add(-time.Duration(i*5%70)*time.Hour))
		left = append(left, plan)
		if err := start(s.ctx, s.vault, plan); err != nil {
			return err
		}
		if i%3 > 0 {
			if err := s.vault.Delete(s.ctx, left[0].ID); err != nil {
				return err
			}
			left = left[1:]
		}
	}
	return nil
}
