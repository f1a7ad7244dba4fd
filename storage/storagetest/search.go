package storagetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/oracle"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

func searchPromises() []promise {
	promises := []promise{{"empty or contradictory filters are ErrInvalid, and so are those for pages in Count", searchInvalid}}
	for _, c := range selections {
		promises = append(promises, promise{c.name, c.test})
	}
	return slices.Concat(promises, []promise{
		{"pages of any size cover everything once, and only the last is not full", searchPages},
		{"a search by status follows a plan through its life", searchStatus},
		{"a repeated search for new plans shows each until it starts, and again when its ID is used again", searchNew},
	})
}

func countPromises() []promise {
	return []promise{
		{"the zero value counts all plans, and of each day", countAll},
		{"a count whose service dies is an error", countServiceDies},
	}
}

// selection is a promise about what filters select.
type selection struct {
	name string
	// plans creates the plans, and returns those that exist, newest first.
	plans   func(s *stage) []*workflow.Plan
	filters func(plans []*workflow.Plan) []storage.Filters
	// paged also reads pages of two.
	paged bool
}

func (c selection) test(s *stage) {
	plans := c.plans(s)
	for _, f := range c.filters(plans) {
		s.finds(plans, f)
		if c.paged && f.Limit == 0 {
			f.Limit = 2
			s.onceEach(fmt.Sprintf("pages of %.200v", f), s.foundBy(plans, f), s.pages(f))
		}
	}
}

var selections = []selection{
	{
		name:  "values of one field are alternatives, and all fields must match",
		plans: func(s *stage) []*workflow.Plan { return s.motley(24) },
		filters: func(plans []*workflow.Plan) []storage.Filters {
			list := []storage.Filters{
				{ByStatus: []workflow.Status{workflow.Completed, workflow.Completed}},
				{ByStatus: statuses},
				{ByGroupIDs: []uuid.UUID{plans[1].GroupID, plans[2].GroupID, uuid.New()}},
				{ByGroupIDs: []uuid.UUID{uuid.New()}},
				{Limit: 100},
				{ByIDs: []uuid.UUID{}}, // a list without values has no alternative
				{ByIDs: []uuid.UUID{}, ByStatus: statuses},
				{ByGroupIDs: []uuid.UUID{}},
				{ByGroupIDs: []uuid.UUID{}, ByIDs: ids(plans)},
				{ByStatus: []workflow.Status{}},
				{ByStatus: []workflow.Status{}, EndedBefore: time.Now().Add(time.Hour)},
				{Labels: map[string]string{}},
				{Labels: map[string]string{}, Limit: 2},
			}
			r := rand.New(rand.NewPCG(0, 0))
			for i := range 70 {
				if f := oracle.Draw(r, plans, 1+i%4); len(f.Fields()) > 0 {
					list = append(list, f)
				}
			}
			return list
		},
	},
	{
		name: "times are exclusive bounds, compared to the millisecond",
		plans: func(s *stage) []*workflow.Plan {
			at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
			return s.createdAt(at, at.Add(-time.Millisecond), at.Add(-2*time.Millisecond), at.Add(-3*time.Millisecond))
		},
		filters: func(plans []*workflow.Plan) (list []storage.Filters) {
			zone := time.FixedZone("", 5*3600)
			for _, p := range plans {
				at := workflow.Time(p.ID)
				list = append(list, storage.Filters{After: at}, storage.Filters{Before: at},
					storage.Filters{After: at.Add(-2 * time.Millisecond).In(zone), Before: at.Add(time.Millisecond).In(zone)})
			}
			return list
		},
	},
	{
		name:  "any time may be a bound",
		plans: func(s *stage) []*workflow.Plan { return s.ages(3) },
		filters: func([]*workflow.Plan) (list []storage.Filters) {
			for _, at := range []time.Time{
				time.Unix(-1<<61, 0), time.Date(-500, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(-1, 999_999_999), time.Unix(0, 0),
				time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Unix(1<<61, 0), time.Unix(1<<63-62135596801, 999_999_999),
			} {
				list = append(list, storage.Filters{After: at}, storage.Filters{Before: at}, storage.Filters{EndedAfter: at}, storage.Filters{EndedBefore: at})
			}
			return list
		},
	},
	{
		name: "days are separated at midnight",
		plans: func(s *stage) []*workflow.Plan {
			midnight := time.Now().UTC().Truncate(24 * time.Hour)
			return s.createdAt(midnight, midnight.Add(-time.Millisecond))
		},
		filters: func(plans []*workflow.Plan) []storage.Filters {
			midnight := workflow.Time(plans[0].ID)
			return []storage.Filters{
				{After: midnight.Add(-time.Millisecond)},
				{Before: midnight},
				{After: midnight},
				{BeforeID: plans[0].ID},
				{After: midnight.Add(-time.Hour), Before: midnight.Add(time.Hour)},
			}
		},
	},
	{
		name: "a search by IDs yields each plan once and skips IDs without a plan",
		plans: func(s *stage) []*workflow.Plan {
			s.must(s.vault.Delete(s.ctx, s.create(bare("deleted")).ID))
			return s.ages(10)
		},
		filters: func(plans []*workflow.Plan) []storage.Filters {
			noPlans := []uuid.UUID{uuid.Nil, uuid.New(), uuid.Max, workflow.NewV7(), workflow.NewV7At(time.Now().AddDate(0, 0, -3))}
			asked := slices.Concat(ids(plans), noPlans, ids(plans[5:]), ids(plans[:5]))
			many := slices.Clone(asked)
			for range 300 {
				many = append(many, workflow.NewV7())
			}
			return []storage.Filters{{ByIDs: asked}, {ByIDs: asked, Limit: 3}, {ByIDs: noPlans}, {ByIDs: many}}
		},
	},
	{
		name: "IDs match by their digits, wherever these are", paged: true,
		plans: func(s *stage) []*workflow.Plan { return s.motley(12) },
		filters: func(plans []*workflow.Plan) (list []storage.Filters) {
			id := plans[7].ID.String()
			for _, text := range []string{id, strings.ToUpper(id), id[:9], id[28:], "-" + id[22:26] + "-", strings.ReplaceAll(id, "-", "")[6:20], "7", "00000000"} {
				list = append(list, storage.Filters{IDContains: text}, storage.Filters{IDContains: text, Limit: 1},
					storage.Filters{IDContains: text, ByStatus: statuses[:2]}, storage.Filters{IDContains: text, ByIDs: ids(plans[5:])})
			}
			return list
		},
	},
	{
		name: "BeforeID need not belong to a plan",
		plans: func(s *stage) []*workflow.Plan {
			plans := s.ages(4)
			s.must(s.vault.Delete(s.ctx, plans[1].ID))
			return slices.Delete(plans, 1, 2)
		},
		filters: func(plans []*workflow.Plan) (list []storage.Filters) {
			for _, p := range plans {
				list = append(list, storage.Filters{BeforeID: workflow.NewV7At(workflow.Time(p.ID).Add(-time.Second))})
			}
			return list
		},
	},
	{
		name: "names match by prefix and substring, byte by byte, however long they are", paged: true,
		plans: namedPlans,
		filters: func(plans []*workflow.Plan) []storage.Filters {
			open := []workflow.Status{workflow.NotStarted, workflow.Running}
			list := []storage.Filters{
				{NamePrefix: "deploy"},
				{NameContains: "west"},
				{NamePrefix: longName},
				{NamePrefix: longName, NameContains: "eas"},
				{NamePrefix: longName + "west of all"},
				{NameContains: "nowhere"},
				{NameContains: "west", ByStatus: statuses[2:]},
			}
			for i, p := range plans {
				runes := []rune(p.Name)
				half, rest := string(runes[:len(runes)/2]), string(runes[len(runes)/2:])
				list = append(list, []storage.Filters{ // each takes its turn, because a listing of long names takes time
					{NamePrefix: p.Name, Limit: 1 + i},
					{NamePrefix: half, NameContains: rest, ByStatus: open, Limit: 100},
					{NameContains: rest, Limit: 100},
					{NamePrefix: half, NameContains: rest, Limit: 100},
					{NameContains: rest, ByIDs: ids(plans), Limit: 100},
				}[i%5])
			}
			return list
		},
	},
	{
		name: "labels match as they are, and all of them", paged: true,
		plans: func(s *stage) (plans []*workflow.Plan) {
			for i, labels := range []map[string]string{nil, {}, {"env": "prod"}, {"env": "prod", "team": "план 🚀"}, {"env": "Prod", "team": ""}, {"team": "=?utf-8?b?YQ==?="}} {
				p := bare(fmt.Sprint("labels ", i))
				p.ID, p.Labels = workflow.NewV7At(time.Now().Add(-time.Duration(i)*time.Second)), labels
				plans = append(plans, s.create(p))
			}
			return plans
		},
		filters: func(plans []*workflow.Plan) (list []storage.Filters) {
			for _, labels := range []map[string]string{
				{"env": "prod"},
				{"env": "Prod"},
				{"Env": "prod"},
				{"env": ""},
				{"team": ""},
				{"env": "prod", "team": "план 🚀"},
				{"env": "prod", "team": ""},
				{"team": "=?utf-8?b?YQ==?="},
			} {
				list = append(list, storage.Filters{Labels: labels}, storage.Filters{Labels: labels, ByIDs: ids(plans)}, storage.Filters{Labels: labels, ByStatus: statuses[:2]})
			}
			return list
		},
	},
	{
		name: "who submitted a plan matches as a whole", paged: true,
		plans: func(s *stage) (plans []*workflow.Plan) {
			for i, by := range []string{"", "ops", "Ops", "ops ", "ops@example.com", "=?utf-8?b?b3Bz?=", strings.Repeat("я", workflow.MaxBy/2), "ops"} {
				p := bareAt(longName[:i*1700], time.Now().Add(-time.Duration(i)*time.Second))
				p.Submitted = workflow.Actor{By: by, From: "ops"}
				if s.create(p); i > 5 {
					s.must(complete(s.ctx, s.vault, p))
				}
				plans = append(plans, p)
			}
			return plans
		},
		filters: func(plans []*workflow.Plan) (list []storage.Filters) {
			for _, p := range plans[1:] {
				by := []string{p.Submitted.By}
				list = append(list, storage.Filters{BySubmitter: by}, storage.Filters{BySubmitter: append(by, "ops"), ByStatus: statuses[:3]}, storage.Filters{BySubmitter: by, ByIDs: ids(plans)})
			}
			return append(list, storage.Filters{BySubmitter: []string{"op"}}, storage.Filters{BySubmitter: []string{}})
		},
	},
	{
		name: "keys match as a whole, and those of open plans", paged: true,
		plans: func(s *stage) (plans []*workflow.Plan) {
			for i, keys := range [][]workflow.Key{nil, {{Name: "west"}}, {{Name: "wes"}}, {{Name: "west", Limit: 9}, {Name: "API =?x?="}, {Name: " "}}, mostKeys, mostKeys, {{Name: "west"}}} {
				p := bareAt(longName[:i*1700], time.Now().Add(-time.Duration(i)*time.Second))
				p.Keys = keys
				if s.create(p); i > 4 {
					s.must(complete(s.ctx, s.vault, p))
				}
				plans = append(plans, p)
			}
			return plans
		},
		filters: func(plans []*workflow.Plan) (list []storage.Filters) {
			for _, key := range []string{"west", "API =?x?=", " ", "we", mostKeys[3].Name} {
				for _, by := range [][]workflow.Status{nil, statuses, statuses[:1], statuses[2:]} {
					list = append(list, storage.Filters{ByKey: key, ByStatus: by}, storage.Filters{ByKey: key, ByStatus: by, ByIDs: ids(plans)})
				}
			}
			return list
		},
	},
	{
		name: "times of end are exclusive bounds, to the nanosecond, of plans that have ended", paged: true,
		plans: endedPlans,
		filters: func(plans []*workflow.Plan) (list []storage.Filters) {
			now := plans[1].State.End
			zone := time.FixedZone("", -7*3600)
			for _, p := range plans[1:8] {
				end := p.State.End
				list = append(list, []storage.Filters{
					{EndedAfter: end},
					{EndedBefore: end},
					{EndedAfter: end.Add(-1).In(zone), EndedBefore: end.Add(1).In(zone)},
					{EndedAfter: end, ByStatus: []workflow.Status{workflow.Running, workflow.Failed}},
					{EndedBefore: end.Add(1), ByStatus: statuses[2:], NameContains: "3"},
					{EndedBefore: end.Add(1), ByIDs: ids(plans)},
					{EndedBefore: end, After: now.Add(-4 * time.Hour), Before: now.Add(time.Hour)},
				}...)
				if after := now.Add(-time.Hour); after.Before(end.Add(time.Hour)) {
					list = append(list, storage.Filters{EndedAfter: after, EndedBefore: end.Add(time.Hour), After: now.Add(-6 * time.Hour)})
				}
			}
			return list
		},
	},
}

// mostKeys are the longest keys that a plan may have.
var mostKeys = func() (keys []workflow.Key) {
	for i := range workflow.MaxKeys {
		keys = append(keys, workflow.Key{Name: strings.Repeat("я", workflow.MaxKeyName/2-1) + fmt.Sprint(9-i)})
	}
	return keys
}()

var longName = strings.Repeat("a long name ", 1000)

// namedPlans creates plans with names of which some are too long for what listings of a store may show of a plan, and
// differ only at their ends.
func namedPlans(s *stage) []*workflow.Plan {
	names := append(slices.Collect(plantest.Strange()), "", "deploy west", "deploy east", "Deploy west", "redeploy west", "деплой запад",
		longName, longName+"west", longName+"east", "west "+longName, strings.Repeat("ж", 5000)+"west")
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
	return plans
}

// endedPlans creates plans that ended around now, or not at all.
func endedPlans(s *stage) (plans []*workflow.Plan) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i, end := range []time.Time{
		{}, now, now, now.Add(time.Nanosecond), now.Add(-time.Nanosecond), now.Add(-30 * time.Hour), now.Add(24 * time.Hour), now.Add(-50 * time.Hour), now,
	} {
		plan := s.create(bareAt(fmt.Sprint(i), now.Add(-time.Duration(i)*time.Hour)))
		if plan.State.Status, plan.State.End = statuses[2+i%3], end; i == 8 {
			plan.State.Status = workflow.Running
		}
		s.update(plan)
		plans = append(plans, plan)
	}
	return append(plans, s.create(bareAt("new", now.Add(-10*time.Hour))))
}

func searchInvalid(s *stage) {
	s.create(bare("one"))
	search := func(f storage.Filters) {
		_, err := storage.Collect(s.vault.Search(s.ctx, f))
		s.want(storage.ErrInvalid, "Search", uuid.Nil, err)
	}
	count := func(f storage.Filters) {
		n, err := s.vault.Count(s.ctx, f)
		s.want(storage.ErrInvalid, "Count", uuid.Nil, err)
		if n != 0 {
			s.Errorf("Count %+v: %d", f, n)
		}
	}
	for _, f := range []storage.Filters{
		{Limit: -1},
		{ByStatus: []workflow.Status{workflow.Running, 99}},
		{ByKey: "a\nb"},
		{ByKey: strings.Repeat("k", workflow.MaxKeyName+1)},
		{ByStatus: []workflow.Status{workflow.Running}, Limit: -1},
		{BeforeID: uuid.New()},
		{ByGroupIDs: []uuid.UUID{uuid.Nil}},
		{After: moment, Before: moment.Add(-time.Hour)},
		{After: moment, Before: moment},
		{EndedAfter: moment, EndedBefore: moment},
		{EndedAfter: moment, EndedBefore: moment.Add(-time.Nanosecond), ByStatus: []workflow.Status{workflow.Failed}},
		{EndedAfter: moment, ByStatus: []workflow.Status{workflow.Running}},
		{EndedBefore: moment, ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}},
		{NamePrefix: "half a rune: \xc3"},
		{IDContains: "xyz"},
		{IDContains: "-"},
		{IDContains: strings.Repeat("0", 33)},
		{NameContains: "\xff"},
		{Labels: map[string]string{"no key": ""}},
		{BySubmitter: []string{"ops", ""}},
		{BySubmitter: []string{"half a rune: \xc3"}},
		{BySubmitter: []string{strings.Repeat("b", workflow.MaxBy+1)}},
	} {
		search(f)
		count(f)
	}
	search(storage.Filters{})
	count(storage.Filters{Limit: 1})
	count(storage.Filters{BeforeID: workflow.NewV7()})
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
		ids := slices.SortedFunc(maps.Keys(plans), driver.NewestFirst)
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

// count checks that Count agrees with what a search without a limit should find.
func (s *stage) count(want int, f storage.Filters) {
	s.Helper()
	if n, err := s.vault.Count(s.ctx, f); n != want || err != nil {
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

func countServiceDies(s *stage) {
	plans := s.ages(12)
	for _, f := range []storage.Filters{{}, everyFilter(plans)[0], everyFilter(plans)[1]} {
		for d := range s.deaths() {
			var n int
			err := d.run(func(ctx context.Context, v storage.Vault) (err error) {
				n, err = v.Count(ctx, f)
				return err
			})
			if err == nil && n != len(plans) || err != nil && n != 0 {
				s.Errorf("Count %+.60v: %d plans, %v", f, n, err)
			}
		}
	}
}

// createdAt creates plans at times, newest first.
func (s *stage) createdAt(times ...time.Time) (plans []*workflow.Plan) {
	s.Helper()
	for i, at := range times {
		plans = append(plans, s.create(bareAt(fmt.Sprint(i), at)))
	}
	return plans
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
		if oracle.Selects(f, p) {
			found = append(found, p.ID)
		}
	}
	return found
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
			return all
		}
		f.BeforeID = page[len(page)-1].ID
	}
}
