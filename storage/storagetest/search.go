package storagetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

func searchPromises() []promise {
	return slices.Concat([]promise{
		{"empty or contradictory filters are ErrInvalid", searchInvalid},
		{"values of one field are alternatives, and all fields must match", searchCombined},
		{"times are exclusive bounds, compared to the millisecond", searchTimes},
		{"any time may be a bound", searchAnyTime},
		{"days are separated at midnight", searchMidnight},
		{"a search by IDs yields each plan once and skips IDs without a plan", searchIDs},
		{"a search by many IDs yields all plans", searchManyIDs},
		{"BeforeID need not belong to a plan", searchBeforeID},
		{"pages of any size cover everything once, and only the last is not full", searchPages},
		{"pages miss nothing and repeat nothing while plans are written", searchPagesDuringWrites},
		{"names match by prefix and substring, byte by byte, however long they are", searchNames},
		{"times of end are exclusive bounds, to the nanosecond, of plans that have ended", searchEnded},
		{"a search by status follows a plan through its life", searchStatus},
		{"a repeated search for new plans shows each until it starts, and again when its ID is used again", searchNew},
		{"a search whose service dies is never taken for a short list", searchServiceDies},
	}, contextPromises("search"))
}

func searchInvalid(s *stage) {
	for _, f := range append([]storage.Filters{
		{},
		{ByIDs: []uuid.UUID{}, ByStatus: []workflow.Status{}},
		{BeforeID: uuid.New(), Limit: 1},
		{Limit: -1},
		{ByStatus: []workflow.Status{workflow.Running}, Limit: -1},
	}, contradictions()...) {
		_, err := storage.Collect(s.vault.Search(s.ctx, f))
		s.want(storage.ErrInvalid, "Search", uuid.Nil, err)
	}
}

// searchNew repeats a search on one vault while others create, start, end and delete plans. A vault may
// remember what it has seen.
func searchNew(s *stage) {
	other := s.open()
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	filters := []storage.Filters{
		{ByStatus: []workflow.Status{workflow.NotStarted}},
		{ByStatus: []workflow.Status{workflow.NotStarted}, After: midnight.Add(-24 * time.Hour), Before: midnight.Add(48 * time.Hour)},
	}
	plans := map[uuid.UUID]*workflow.Plan{}
	r := rand.New(rand.NewPCG(1, 0))
	for round := range 40 {
		ids := slices.SortedFunc(maps.Keys(plans), func(a, b uuid.UUID) int { return cmp.Compare(a.String(), b.String()) })
		if len(ids) < 5 {
			plan := bare("new")
			s.must(other.Create(s.ctx, plan))
			plans[plan.ID] = plan
		} else {
			id := ids[r.IntN(len(ids))]
			plan := plans[id]
			switch {
			case plan.State.Status.Final() || r.IntN(4) == 0:
				s.must(other.Delete(s.ctx, id))
				again := &workflow.Plan{ID: id, Name: "again"}
				s.must(other.Create(s.ctx, again))
				plans[id] = again
			default:
				plan.State.Status++ // to Running, or to Completed
				s.must(other.UpdatePlan(s.ctx, plan))
			}
		}
		var want []uuid.UUID
		for id, plan := range plans {
			if plan.State.Status == workflow.NotStarted {
				want = append(want, id)
			}
		}
		slices.SortFunc(want, driver.NewestFirst)
		var got []uuid.UUID
		for _, found := range s.search(s.vault, filters[round%2]) {
			got = append(got, found.ID)
		}
		if !slices.Equal(got, want) {
			s.Fatalf("round %d: found %v, want %v", round, got, want)
		}
	}
}

func searchCombined(s *stage) {
	plans := s.motley(24)
	for _, f := range []storage.Filters{
		{ByStatus: []workflow.Status{workflow.Running}},
		{ByStatus: []workflow.Status{workflow.Stopped, workflow.NotStarted}},
		{ByStatus: []workflow.Status{workflow.Completed, workflow.Completed}},
		{ByStatus: statuses},
		{ByGroupIDs: []uuid.UUID{plans[1].GroupID}},
		{ByGroupIDs: []uuid.UUID{plans[1].GroupID, plans[2].GroupID, uuid.New()}},
		{ByGroupIDs: []uuid.UUID{uuid.New()}},
		{After: workflow.Time(plans[9].ID)},
		{Before: workflow.Time(plans[9].ID)},
		{BeforeID: plans[9].ID},
		{Limit: 5},
		{Limit: 100},
	} {
		s.finds(plans, f)
	}
	for seed := range uint64(60) {
		s.finds(plans, randomFilters(seed, plans))
	}
}

func searchTimes(s *stage) {
	at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var plans []*workflow.Plan // newest first
	for i := range 5 {
		plans = append(plans, s.create(bareAt(fmt.Sprint(i), at.Add(-time.Duration(i)*time.Millisecond))))
	}
	for i := range plans {
		after := storage.Filters{After: workflow.Time(plans[i].ID)}
		s.yields(fmt.Sprintf("%+v", after), ids(plans[:i]), s.search(s.vault, after))
		before := storage.Filters{Before: workflow.Time(plans[i].ID)}
		s.yields(fmt.Sprintf("%+v", before), ids(plans[i+1:]), s.search(s.vault, before))
		zone := time.FixedZone("", 5*3600)
		both := storage.Filters{After: at.Add(-time.Duration(i+1) * time.Millisecond).In(zone), Before: at.Add(time.Millisecond).In(zone)}
		s.yields(fmt.Sprintf("%+v", both), ids(plans[:i+1]), s.search(s.vault, both))
	}
}

func searchAnyTime(s *stage) {
	plans := s.ages(3)
	past := []time.Time{time.Unix(-1<<61, 0), time.Date(-500, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(-1, 999_999_999), time.Unix(0, 0)}
	future := []time.Time{time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Unix(1<<61, 0), time.Unix(1<<63-62135596801, 999_999_999)}
	for _, at := range past {
		s.yields(fmt.Sprintf("After %v", at), ids(plans), s.search(s.vault, storage.Filters{After: at}))
		s.yields(fmt.Sprintf("Before %v", at), nil, s.search(s.vault, storage.Filters{Before: at}))
	}
	for _, at := range future {
		s.yields(fmt.Sprintf("After %v", at), nil, s.search(s.vault, storage.Filters{After: at}))
		s.yields(fmt.Sprintf("Before %v", at), ids(plans), s.search(s.vault, storage.Filters{Before: at}))
	}
}

func searchMidnight(s *stage) {
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	late, early := s.create(bareAt("early", midnight)), s.create(bareAt("late", midnight.Add(-time.Millisecond)))
	s.yields("After midnight less 1 ms", []uuid.UUID{late.ID}, s.search(s.vault, storage.Filters{After: midnight.Add(-time.Millisecond)}))
	s.yields("Before midnight", []uuid.UUID{early.ID}, s.search(s.vault, storage.Filters{Before: midnight}))
	s.yields("After midnight", nil, s.search(s.vault, storage.Filters{After: midnight}))
	s.yields("BeforeID of midnight", []uuid.UUID{early.ID}, s.search(s.vault, storage.Filters{BeforeID: late.ID}))
	s.yields("both", []uuid.UUID{late.ID, early.ID}, s.search(s.vault, storage.Filters{
		After: midnight.Add(-time.Hour), Before: midnight.Add(time.Hour),
	}))
}

func searchIDs(s *stage) {
	plans := s.ages(10)
	deleted := s.create(bare("deleted"))
	s.must(s.vault.Delete(s.ctx, deleted.ID))
	asked := []uuid.UUID{deleted.ID}
	for i, id := range ids(plans) {
		asked = append(asked, workflow.NewV7(), id, id)
		if i%2 == 0 {
			asked = slices.Insert(asked, 0, id, workflow.NewV7At(time.Now().AddDate(0, 0, -i)))
		}
	}
	s.yields("Search by IDs", ids(plans), s.search(s.vault, storage.Filters{ByIDs: asked}))
	s.yields("Search by IDs with a limit", ids(plans[:3]), s.search(s.vault, storage.Filters{ByIDs: asked, Limit: 3}))
	s.yields("Search by IDs of no plan", nil, s.search(s.vault, storage.Filters{ByIDs: []uuid.UUID{deleted.ID, workflow.NewV7()}}))
	noPlans := []uuid.UUID{uuid.Nil, uuid.New(), uuid.Max}
	s.yields("Search by IDs that are not UUIDv7s", nil, s.search(s.vault, storage.Filters{ByIDs: noPlans}))
	s.yields("Search by such IDs and others", ids(plans), s.search(s.vault, storage.Filters{ByIDs: append(noPlans, asked...)}))
}

func searchManyIDs(s *stage) {
	plans := s.ages(5)
	asked := ids(plans)
	for range 300 {
		asked = append(asked, workflow.NewV7())
	}
	s.yields("Search by 305 IDs", ids(plans), s.search(s.vault, storage.Filters{ByIDs: asked}))
}

func searchBeforeID(s *stage) {
	plans := s.ages(4)
	for i := range plans {
		between := workflow.NewV7At(workflow.Time(plans[i].ID).Add(-time.Second))
		s.yields("Search", ids(plans[i+1:]), s.search(s.vault, storage.Filters{BeforeID: between}))
	}
	gone := plans[1]
	s.must(s.vault.Delete(s.ctx, gone.ID))
	s.yields("Search", ids(plans[2:]), s.search(s.vault, storage.Filters{BeforeID: gone.ID}))
}

func searchPages(s *stage) {
	plans := s.motley(20)
	at := workflow.NewV7At(time.Now().Add(-30 * time.Hour))
	for i := range 60 { // a burst of one millisecond, and some that came a second apart
		same, earlier := at, workflow.NewV7At(workflow.Time(at).Add(-time.Duration(i+1)*time.Second))
		same[15] ^= byte(i)
		plans = append(plans, s.create(&workflow.Plan{ID: same, GroupID: plans[1].GroupID}))
		if i%2 == 0 {
			plans = append(plans, s.create(&workflow.Plan{ID: earlier}))
		}
	}
	for _, size := range []int{1, 2, 5, 10, 28, 50} {
		s.onceEach(fmt.Sprintf("pages of %d", size), ids(plans), s.pages(storage.Filters{Limit: size}))
	}
	var group []*workflow.Plan
	for _, p := range plans {
		if p.GroupID == plans[1].GroupID {
			group = append(group, p)
		}
	}
	s.onceEach("pages of a group", ids(group), s.pages(storage.Filters{ByGroupIDs: []uuid.UUID{plans[1].GroupID}, Limit: 3}))
}

func searchPagesDuringWrites(s *stage) {
	stay := s.ages(15)
	done, stop := s.disturb()
	for rounds := 0; rounds < 5 || !done() && rounds < 50; rounds++ {
		all := s.pages(storage.Filters{Limit: 4})
		s.onceEach("all pages", ids(stay), keep(stay, slices.Clone(all)))
		seen := map[uuid.UUID]bool{}
		for _, r := range all {
			if seen[r.ID] {
				s.Errorf("plan %s is on two pages", r.ID)
			}
			seen[r.ID] = true
		}
	}
	stop()
}

func searchStatus(s *stage) {
	plan := plantest.Small()
	is := func(want workflow.Status) {
		s.Helper()
		for _, status := range statuses {
			var ids []uuid.UUID
			if status == want {
				ids = []uuid.UUID{plan.ID}
			}
			s.yields(fmt.Sprintf("Search for what is %s, of a plan that is %s,", status, want), ids,
				s.search(s.vault, storage.Filters{ByStatus: []workflow.Status{status}}))
		}
	}
	s.create(plan)
	is(workflow.NotStarted)
	s.runs(plan)
	is(workflow.Running)
	s.must(finishParts(s.ctx, s.vault, plan))
	is(workflow.Running)
	s.must(complete(s.ctx, s.vault, plan))
	is(workflow.Completed)
	s.must(s.vault.Delete(s.ctx, plan.ID))
	is(-1)
}

func searchServiceDies(s *stage) {
	plans := s.ages(12)
	for _, f := range everyFilter(plans)[:3] {
		for d := range s.deaths() {
			var got []storage.ListResult
			err := d.run(func(ctx context.Context, v storage.Vault) (err error) {
				got, err = storage.Collect(v.Search(ctx, f))
				return err
			})
			want := ids(plans)
			if err != nil {
				want = want[:min(len(got), len(want))]
			}
			s.yields(fmt.Sprintf("Search %+.60v", f), want, got)
		}
	}
}

// motley creates n plans over several days, in three groups or none, with all statuses; most final ones have an
// end. It returns them newest first.
func (s *stage) motley(n int) []*workflow.Plan {
	s.Helper()
	groups := []uuid.UUID{uuid.Nil, uuid.New(), uuid.New(), uuid.New()}
	now := time.Now()
	plans := make([]*workflow.Plan, n)
	s.must(atOnce(n, func(i int) error {
		p := bareAt(fmt.Sprint(i), now.Add(-time.Duration(i)*5*time.Hour))
		p.GroupID = groups[i%4]
		plans[i] = p
		if err := s.vault.Create(s.ctx, p); err != nil {
			return err
		}
		if p.State.Status = statuses[i%5]; p.State.Status == workflow.NotStarted {
			return nil
		}
		if p.State.Status.Final() && i%7 > 0 {
			p.State.End = workflow.Time(p.ID).Add(time.Duration(i%6) * 10 * time.Hour)
		}
		return s.vault.UpdatePlan(s.ctx, p)
	}))
	return plans
}

// finds checks a search over plans, sorted newest first, against the contract of the filters. The results have
// the states and names of the plans. Count agrees.
func (s *stage) finds(plans []*workflow.Plan, f storage.Filters) {
	s.Helper()
	want := s.foundBy(plans, f)
	all := len(want)
	if f.Limit > 0 {
		want = want[:min(all, f.Limit)]
	}
	got := s.search(s.vault, f)
	s.yields(fmt.Sprintf("Search %+.500v", f), want, got)
	for _, r := range got {
		if i := slices.IndexFunc(plans, func(p *workflow.Plan) bool { return p.ID == r.ID }); i >= 0 {
			s.agrees("Search", plans[i], r)
		}
	}
	if f.BeforeID == uuid.Nil {
		f.Limit = 0
		s.count(all, f)
	}
}

// foundBy returns the plans that the filters select, without their limit.
func (s *stage) foundBy(plans []*workflow.Plan, f storage.Filters) (found []uuid.UUID) {
	for _, p := range plans {
		if chosen(f, p) {
			found = append(found, p.ID)
		}
	}
	return found
}

func chosen(f storage.Filters, p *workflow.Plan) bool {
	at := workflow.Time(p.ID)
	switch {
	case len(f.ByIDs) > 0 && !slices.Contains(f.ByIDs, p.ID):
	case len(f.ByGroupIDs) > 0 && !slices.Contains(f.ByGroupIDs, p.GroupID):
	case len(f.ByStatus) > 0 && !slices.Contains(f.ByStatus, p.State.Status):
	case !f.After.IsZero() && !at.After(f.After):
	case !f.Before.IsZero() && !at.Before(f.Before):
	case f.BeforeID != uuid.Nil && !at.Before(workflow.Time(f.BeforeID)):
	case f.NamePrefix != "" && (len(p.Name) < len(f.NamePrefix) || p.Name[:len(f.NamePrefix)] != f.NamePrefix):
	case f.NameContains != "" && strings.Count(p.Name, f.NameContains) == 0:
	case !f.EndedAfter.IsZero() && !(p.State.Status >= workflow.Completed && !p.State.End.IsZero() && p.State.End.After(f.EndedAfter)):
	case !f.EndedBefore.IsZero() && !(p.State.Status >= workflow.Completed && !p.State.End.IsZero() && p.State.End.Before(f.EndedBefore)):
	case !f.EndedBefore.IsZero() && at.Sub(f.EndedBefore) >= 24*time.Hour:
	default:
		return true
	}
	return false
}

// randomFilters combines at least two filters. No two of the plans have the same millisecond.
func randomFilters(seed uint64, plans []*workflow.Plan) (f storage.Filters) {
	r := rand.New(rand.NewPCG(seed, 0))
	some := func() *workflow.Plan { return plans[r.IntN(len(plans))] }
	set := []func(){
		func() {
			for range 1 + r.IntN(15) {
				f.ByIDs = append(f.ByIDs, some().ID)
			}
		},
		func() {
			for range 1 + r.IntN(3) {
				if g := some().GroupID; g != uuid.Nil {
					f.ByGroupIDs = append(f.ByGroupIDs, g)
				}
			}
		},
		func() {
			for range 1 + r.IntN(3) {
				f.ByStatus = append(f.ByStatus, some().State.Status)
			}
		},
		func() { f.After = workflow.Time(plans[len(plans)/2+r.IntN(len(plans)/2)].ID) },
		func() { f.Before = workflow.Time(plans[r.IntN(len(plans)/2)].ID) },
		func() { f.BeforeID = some().ID },
		func() { f.Limit = 1 + r.IntN(10) },
		func() { f.NamePrefix = some().Name[:1] },
		func() { f.NameContains = fmt.Sprint(r.IntN(10)) },
		func() { f.EndedAfter = some().State.End },
		func() { f.EndedBefore = some().State.End },
	}
	for _, i := range r.Perm(len(set))[:2+r.IntN(3)] {
		set[i]()
	}
	if ended := !f.EndedAfter.IsZero() || !f.EndedBefore.IsZero(); ended && len(f.ByStatus) > 0 {
		f.ByStatus = append(f.ByStatus, workflow.Stopped)
	}
	if !f.EndedAfter.IsZero() && !f.EndedBefore.IsZero() && !f.EndedAfter.Before(f.EndedBefore) {
		f.EndedBefore = time.Time{}
	}
	return f
}

// pages returns the results of all pages of a search. Only the last page may be less than full.
func (s *stage) pages(f storage.Filters) (all []storage.ListResult) {
	s.Helper()
	for {
		page := s.search(s.vault, f)
		if len(page) > f.Limit {
			s.Fatalf("a page of %d has %d plans", f.Limit, len(page))
		}
		all = append(all, page...)
		if len(page) < f.Limit {
			f.BeforeID = uuid.Nil
			if len(all) > 0 {
				f.BeforeID = all[len(all)-1].ID
			}
			return all
		}
		f.BeforeID = page[len(page)-1].ID
	}
}
