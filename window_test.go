package azblob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
)

// shelf holds a day's plans in ascending order, and answers as a service lists them: two blobs each.
type shelf struct {
	day
	ids []uuid.UUID
	// startless is a service that ignores where a listing should begin.
	startless bool

	requests, underWay, most atomic.Int64
	latency                  time.Duration
	fail                     error
	failAt                   int64
}

// request counts a request, and waits for its answer.
func (s *shelf) request(ctx context.Context) error {
	s.most.Store(max(s.most.Load(), s.underWay.Add(1)))
	defer s.underWay.Add(-1)
	if n := s.requests.Add(1); s.fail != nil && n >= s.failAt {
		return s.fail
	}
	select {
	case <-time.After(s.latency):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// in returns what is on the shelf within a window.
func (s *shelf) in(w window) []uuid.UUID {
	compare := func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
	from, _ := slices.BinarySearchFunc(s.ids, w.from, compare)
	to, _ := slices.BinarySearchFunc(s.ids, w.to, compare)
	return s.ids[from:max(from, to)]
}

func (s *shelf) read(ctx context.Context, w window) (reading, error) {
	if err := s.request(ctx); err != nil {
		return reading{}, err
	}
	if s.startless && !w.wholeDay() && !w.inOne(aMinute) { // read from the day's beginning
		before := window{day: s.day, from: firstID(s.date), to: w.from}
		s.requests.Add(int64(1 + 2*len(s.in(before))/fullPage))
	}
	got := reading{to: w.to}
	ids := s.in(w)
	if n := max(1, min(w.limit, fullPage)/2); len(ids) > n {
		got.to = ids[n]
		ids = ids[:n]
	}
	for _, id := range ids {
		var p candidate
		p.keys.plan = id
		got.plans = append(got.plans, p)
	}
	got.blobs = 2 * len(ids)
	return got, nil
}

func (s *shelf) groups(ctx context.Context, w window) (groups []uint64, err error) {
	if err := s.request(ctx); err != nil {
		return nil, err
	}
	size := w.groupSize()
	w.from = idOf(keyOf(w.from) / size * size)
	if s.startless {
		w.from = uuid.Nil
	}
	w.to = uuid.Max // a listing goes on to the end
	for _, id := range s.in(w) {
		g := keyOf(id) / size * size
		if len(groups) == 0 || groups[len(groups)-1] != g {
			if groups = append(groups, g); len(groups) == w.sample {
				break
			}
		}
	}
	return groups, nil
}

const fullPage = blob.MaxPage

// whole is the window of the whole day.
func (s *shelf) whole() window {
	return window{day: s.day, from: firstID(s.date), to: firstID(s.date.AddDate(0, 0, 1))}
}

// shelves are several days.
type shelves map[string]*shelf

func (s shelves) read(ctx context.Context, w window) (reading, error) {
	return s[w.container].read(ctx, w)
}

func (s shelves) groups(ctx context.Context, w window) ([]uint64, error) {
	return s[w.container].groups(ctx, w)
}

// newShelf puts plans on a shelf, at times that place gives.
func newShelf(n int, random *rand.Rand, place func(i int) time.Duration) *shelf {
	date := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	s := &shelf{day: day{container: "day", date: date}}
	for i := range n {
		id := firstID(date.Add(place(i)))
		for b := 8; b < len(id); b++ {
			id[b] = byte(random.Uint32())
		}
		id[6], id[7], id[8] = 0x70|byte(random.Uint32())&0x0f, byte(random.Uint32()), 0x80|id[8]&0x3f
		s.ids = append(s.ids, id)
	}
	slices.SortFunc(s.ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return s
}

// densities are ways in which plans lie in a day.
var densities = map[string]func(n int, random *rand.Rand) func(i int) time.Duration{
	"uniform": func(n int, random *rand.Rand) func(int) time.Duration {
		return func(int) time.Duration { return time.Duration(random.Int64N(int64(24 * time.Hour))) }
	},
	"working hours": func(n int, random *rand.Rand) func(int) time.Duration {
		return func(int) time.Duration { return 8*time.Hour + time.Duration(random.Int64N(int64(10*time.Hour))) }
	},
	"one millisecond": func(n int, random *rand.Rand) func(int) time.Duration {
		return func(int) time.Duration { return 10 * time.Hour }
	},
	"bursts": func(n int, random *rand.Rand) func(int) time.Duration {
		return func(i int) time.Duration {
			return time.Duration(i%7)*3*time.Hour + time.Duration(random.Int64N(int64(time.Minute)))
		}
	},
	"a burst at the start": func(n int, random *rand.Rand) func(int) time.Duration {
		return func(i int) time.Duration {
			if i%10 > 0 {
				return time.Duration(random.Int64N(int64(time.Second)))
			}
			return time.Duration(random.Int64N(int64(24 * time.Hour)))
		}
	},
	"ever denser": func(n int, random *rand.Rand) func(int) time.Duration {
		return func(i int) time.Duration { return 24*time.Hour - time.Duration(24*float64(time.Hour)/float64(i+2)) }
	},
	"ever thinner": func(n int, random *rand.Rand) func(int) time.Duration {
		return func(i int) time.Duration { return time.Duration(24*float64(time.Hour)/float64(i+1)) - 1 }
	},
}

// drain reads the shelf backwards to its end, or as many as limit where that is not 0.
func (s *shelf) drain(t testing.TB, w window, page, ahead, limit int, aimed bool) (got []uuid.UUID) {
	t.Helper()
	scan := &scan{reader: s, page: page, ahead: ahead, limit: limit, aimed: aimed, now: s.date.AddDate(0, 0, 1)}
	for p, err := range scan.run(t.Context(), []window{w}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, p.keys.plan); len(got) == limit {
			break
		}
	}
	return got
}

// TestWindows reads days of every density, in pages of every size, whole and in part, and counts the requests.
func TestWindows(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	sizes := efforttest.Pick(nil, []int{0, 1, 2, 249, 250, 251, 3000, 20_000}, []int{0, 1, 2, 249, 250, 251, 3000, 40_000, 200_000})
	for name, density := range densities {
		for _, n := range sizes {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			full := newShelf(n, random, density(n, random))
			for _, ahead := range []int{1, 4} {
				for _, startless := range slices.Compact([]bool{false, n <= 3000}) {
					for _, c := range []struct {
						page, limit int
						aimed       bool
					}{{500, 0, false}, {fullPage, 0, false}, {500, 10, false}, {fullPage, 10, false}, {90, 10, true}} {
						what := fmt.Sprintf("%s: %d plans, %+v, %d ahead, startless %v", name, n, c, ahead, startless)
						s := &shelf{day: full.day, ids: full.ids, startless: startless}
						want := slices.Clone(s.ids)
						slices.Reverse(want)
						if c.limit > 0 {
							want = want[:min(c.limit, n)]
						}
						if got := s.drain(t, s.whole(), c.page, ahead, c.limit, c.aimed); !slices.Equal(got, want) {
							t.Fatalf("%s: got %d plans, want %d", what, len(got), len(want))
						}
						if most := s.most.Load(); most > int64(ahead) {
							t.Errorf("%s: %d requests at once", what, most)
						}
						budget := budgetOf(name, n, c.page, c.limit, c.aimed)
						if requests := int(s.requests.Load()); requests > budget && !startless {
							t.Errorf("%s: %d requests, want at most %d", what, requests, budget)
						}
					}
				}
			}
		}
	}
}

// budgetOf is how many requests a listing of a day of n plans may take.
func budgetOf(density string, n, page, limit int, aimed bool) int {
	if aimed {
		if density == "one millisecond" { // where nothing is known beyond the milliseconds
			return 40
		}
		return 14 // the minutes of a part of the day and of all of it, a page, and the milliseconds of crowded minutes
	}
	// What fits on a page takes one request. What does not takes two to learn the density and the minutes, and then a window
	// for each 0.9 pages, or one for a few plans. Where the density varies, the density is learnt again at each change.
	if 2*n <= page {
		return 1
	}
	budget := 3
	if limit == 0 {
		budget += (2*n*9/8+page-1)/page + n/page/8
	}
	if density != "uniform" {
		budget += 60
	}
	if density == "a burst at the start" { // a window holds whole milliseconds
		budget += n / page / 8
	}
	return budget
}

// TestWindowsOfManyDays counts round trips and what is under way at once where most days are empty, and where the service
// ignores where a listing should begin.
func TestWindowsOfManyDays(t *testing.T) {
	for name, c := range map[string]struct {
		days, plans  int // in each of the last three days; the others are empty
		startless    bool
		limit, most  int
		trips, asked int
	}{
		"empty days before ten plans":          {days: 60, plans: 10, limit: 10, most: 64, trips: 6, asked: 64},
		"empty days before one plan":           {days: 60, plans: 1, limit: 1, most: 64, trips: 10, asked: 64},
		"all plans of a service without begin": {days: 3, plans: 3000, startless: true, most: 4, trips: 12, asked: 16},
	} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 1))
			many := shelves{}
			var days []window
			for i := range c.days {
				n := 0
				if i >= c.days-3 {
					n = c.plans
				}
				s := newShelf(n, random, densities["uniform"](n, random))
				s.container, s.date = fmt.Sprint(i), s.date.AddDate(0, 0, -i)
				for j, id := range s.ids {
					binary.BigEndian.PutUint64(s.ids[j][:], keyOf(id)-uint64(i)*aDay)
				}
				s.startless, s.latency = c.startless, time.Second
				many[s.container], days = s, append(days, s.whole())
			}
			page := fullPage
			if c.limit > 0 {
				page = 4*c.limit + burst
			}
			scan := &scan{reader: many, page: page, ahead: c.most, limit: c.limit, aimed: c.limit > 0, now: days[0].date.AddDate(0, 0, 1)}
			started, got := time.Now(), 0
			for _, err := range scan.run(t.Context(), days) {
				if err != nil {
					t.Fatal(err)
				}
				if got++; got == c.limit {
					break
				}
			}
			asked, most := 0, 0
			for _, s := range many {
				asked, most = asked+int(s.requests.Load()), max(most, int(s.most.Load()))
			}
			trips := int(time.Since(started) / time.Second)
			if trips > c.trips || asked > c.asked || most > c.most {
				t.Errorf("%s: %d plans in %d round trips and %d requests, %d at once", name, got, trips, asked, most)
			}
		})
	}
}

// FuzzWindows reads days of any density, by windows of any size and with any number ahead, from any place to any other.
func FuzzWindows(f *testing.F) {
	f.Add(uint64(1), uint16(1000), uint16(100), uint8(4), uint16(0), false)
	f.Add(uint64(2), uint16(5000), uint16(500), uint8(1), uint16(10), true)
	f.Add(uint64(3), uint16(20000), uint16(5000), uint8(8), uint16(3000), false)
	names := slices.Sorted(maps.Keys(densities))
	f.Fuzz(func(t *testing.T, seed uint64, n, page uint16, ahead uint8, limit uint16, startless bool) {
		ahead %= maxAhead/markersPage + 1 // what a vault has at most
		random := rand.New(rand.NewPCG(seed, 2))
		s := newShelf(int(n), random, densities[names[random.IntN(len(names))]](int(n), random))
		s.startless = startless
		w := s.whole()
		if random.IntN(2) == 0 && n > 0 {
			w.from = s.ids[random.IntN(len(s.ids))]
		}
		if random.IntN(2) == 0 && n > 0 {
			w.to = s.ids[random.IntN(len(s.ids))]
		}
		if bytes.Compare(w.from[:], w.to[:]) >= 0 {
			return // no stretch
		}
		var want []uuid.UUID
		for _, id := range slices.Backward(s.ids) {
			if bytes.Compare(id[:], w.from[:]) >= 0 && bytes.Compare(id[:], w.to[:]) < 0 {
				want = append(want, id)
			}
		}
		if limit > 0 {
			want = want[:min(len(want), int(limit))]
		}
		pageSize := min(max(int(page), 4), fullPage)
		if got := s.drain(t, w, pageSize, int(ahead), int(limit), limit > 0 && random.IntN(2) == 0); !slices.Equal(got, want) {
			t.Errorf("got %d plans, want %d", len(got), len(want))
		}
		if most := s.most.Load(); most > max(1, int64(ahead)) {
			t.Errorf("%d under way, %d are allowed", most, ahead)
		}
		if requests := int(s.requests.Load()); !startless && requests > 100+2*int(ahead)+8*2*int(n)/pageSize {
			t.Errorf("%d requests for %d plans at %d", requests, n, pageSize)
		}
	})
}

// TestWindowsAreReadAhead counts round trips, and what is under way when the consumer leaves.
func TestWindowsAreReadAhead(t *testing.T) {
	const n, latency = 40_000, time.Second
	random := rand.New(rand.NewPCG(7, 7))
	full := newShelf(n, random, densities["uniform"](n, random))
	uniform := func() *shelf { return &shelf{day: full.day, ids: full.ids, latency: latency} }
	all := func(s *shelf, ahead int) *scan { return &scan{reader: s, page: fullPage, ahead: ahead} }
	synctest.Test(t, func(t *testing.T) {
		for ahead, want := range map[int]int{1: 22, 4: 8} { // 2 to learn, and 20 windows by so many at a time
			s := uniform()
			started := time.Now()
			for _, err := range all(s, ahead).run(t.Context(), []window{s.whole()}) {
				if err != nil {
					t.Fatal(err)
				}
			}
			if trips := int(time.Since(started) / latency); trips > want {
				t.Errorf("%d ahead: %d round trips, want %d", ahead, trips, want)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) { // breaking off
		s := uniform()
		used := 0
		for range all(s, 4).run(t.Context(), []window{s.whole()}) {
			if used++; used == 3000 {
				break
			}
		}
		if left := s.underWay.Load(); left != 0 {
			t.Errorf("%d requests are under way after the loop", left)
		}
		if requests := s.requests.Load(); requests > 2+2*4 {
			t.Errorf("%d requests for the first 3000", requests)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a context that ends, with windows ready and under way
		s := uniform()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		used := 0
		for _, err := range all(s, 4).run(ctx, []window{s.whole()}) {
			if last = err; err == nil {
				used++
			}
			cancel()
		}
		if !errors.Is(last, context.Canceled) || used == 0 || used == n {
			t.Errorf("after %d plans: %v", used, last)
		}
	})
	for _, aimed := range []bool{false, true} { // no more ahead than was used, or than may be needed, while a few are wanted
		synctest.Test(t, func(t *testing.T) {
			var days []window
			many := shelves{}
			for i := range 40 {
				s := newShelf(1, rand.New(rand.NewPCG(uint64(i), 0)), func(int) time.Duration { return time.Hour })
				s.day = day{container: fmt.Sprint(i), date: s.date}
				s.latency = latency
				many[s.container] = s
				days = append(days, s.whole())
			}
			used, requests := 0, int64(0)
			started := time.Now()
			scan := &scan{reader: many, page: 100, ahead: 10, limit: 10, aimed: aimed, now: days[0].date.AddDate(0, 0, 1)}
			for range scan.run(t.Context(), days) {
				if used++; used == 10 {
					break
				}
			}
			for _, s := range many {
				requests += s.requests.Load()
			}
			if trips := int(time.Since(started) / latency); requests > 20 || trips > 6 {
				t.Errorf("10 days of one plan each: %d requests, %d round trips", requests, trips)
			}
		})
	}
}

// TestWindowErrors puts an error in place of what is left of its day, behind what came before, and before the other days.
func TestWindowErrors(t *testing.T) {
	broken := errors.New("broken")
	for failAt := int64(1); failAt <= 12; failAt++ {
		for _, ahead := range []int{1, 4} {
			var stretches []window
			var list []*shelf
			days := shelves{}
			for i := range 3 {
				random := rand.New(rand.NewPCG(uint64(i), 3))
				s := newShelf(2000, random, densities["uniform"](2000, random))
				s.day.container = fmt.Sprint(i)
				days[s.container], list, stretches = s, append(list, s), append(stretches, s.whole())
			}
			list[1].fail, list[1].failAt = broken, failAt
			var got []uuid.UUID
			failed := -1
			scan := &scan{reader: days, page: 500, ahead: ahead}
			for p, err := range scan.run(t.Context(), stretches) {
				if err != nil {
					if failed >= 0 || !errors.Is(err, broken) {
						t.Errorf("%v after %d", err, len(got))
					}
					failed = len(got)
					continue
				}
				got = append(got, p.keys.plan)
			}
			var want []uuid.UUID
			for i, s := range list {
				day := slices.Clone(s.ids)
				slices.Reverse(day)
				if i == 1 && failed >= 0 {
					day = day[:failed-len(want)]
				}
				want = append(want, day...)
			}
			if !slices.Equal(got, want) || (failed < 0) != (list[1].requests.Load() < failAt) {
				t.Errorf("an error at request %d: %d plans, want %d, failed after %d", failAt, len(got), len(want), failed)
			}
		}
	}
}

// TestStretches cuts days as filters want.
func TestStretches(t *testing.T) {
	date := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	noon := date.Add(12 * time.Hour)
	id := idOf(keyOf(firstID(noon)) + 12345)
	next := date.AddDate(0, 0, 1)
	firstTime, lastTime := time.Unix(-1<<63, 0), time.Unix(1<<63-62135596801, 999_999_999)
	for name, c := range map[string]struct {
		f        storage.Filters
		from, to uuid.UUID
	}{
		"no bounds":               {storage.Filters{}, firstID(date), firstID(next)},
		"after a whole time":      {storage.Filters{After: noon}, firstID(noon.Add(time.Millisecond)), firstID(next)},
		"after a broken time":     {storage.Filters{After: noon.Add(1)}, firstID(noon.Add(time.Millisecond)), firstID(next)},
		"after a time before":     {storage.Filters{After: date.Add(-1)}, firstID(date), firstID(next)},
		"after long ago":          {storage.Filters{After: time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC)}, firstID(date), firstID(next)},
		"before a whole time":     {storage.Filters{Before: noon}, firstID(date), firstID(noon)},
		"before a broken time":    {storage.Filters{Before: noon.Add(1)}, firstID(date), firstID(noon.Add(time.Millisecond))},
		"before far ahead":        {storage.Filters{Before: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)}, firstID(date), firstID(next)},
		"before IDs end":          {storage.Filters{Before: time.UnixMilli(1<<48 + 1000)}, firstID(date), firstID(next)},
		"after all times":         {storage.Filters{After: lastTime}, uuid.Nil, uuid.Nil},
		"after the first time":    {storage.Filters{After: firstTime}, firstID(date), firstID(next)},
		"before all times":        {storage.Filters{Before: firstTime}, uuid.Nil, uuid.Nil},
		"before the last time":    {storage.Filters{Before: lastTime}, firstID(date), firstID(next)},
		"after an overflow":       {storage.Filters{After: time.Unix(1<<61, 0)}, uuid.Nil, uuid.Nil},
		"before an overflow":      {storage.Filters{Before: time.Unix(1<<61, 0)}, firstID(date), firstID(next)},
		"after an underflow":      {storage.Filters{After: time.Unix(-1<<61, 0)}, firstID(date), firstID(next)},
		"before an underflow":     {storage.Filters{Before: time.Unix(-1<<61, 0)}, uuid.Nil, uuid.Nil},
		"before an ID":            {storage.Filters{BeforeID: id}, firstID(date), id},
		"before an ID and a time": {storage.Filters{BeforeID: id, Before: noon}, firstID(date), firstID(noon)},
		"after the day":           {storage.Filters{After: next}, uuid.Nil, uuid.Nil},
		"before the day":          {storage.Filters{Before: date}, uuid.Nil, uuid.Nil},
		"before an ID of before":  {storage.Filters{BeforeID: idOf(keyOf(firstID(date)) - 1)}, uuid.Nil, uuid.Nil},
	} {
		list := stretches([]day{{date: date}}, c.f)
		if c.from == uuid.Nil {
			if len(list) != 0 {
				t.Errorf("%s: %v", name, list)
			}
			continue
		}
		if len(list) != 1 || list[0].from != c.from || list[0].to != c.to {
			t.Errorf("%s: %v, want %v to %v", name, list, c.from, c.to)
		}
	}
}

// TestParseGroup reads what the names of a minute's or a millisecond's plans begin with, and nothing else.
func TestParseGroup(t *testing.T) {
	for name, want := range map[string][2]uint64{
		"plans/019aa0b3-":      {0x019aa0b3 << 32, aMinute},
		"plans/019aa0b3-12ef-": {0x019aa0b312ef << 16, aMillisecond},
	} {
		if from, size, ok := parseGroup(plansDir, name); !ok || from != want[0] || size != want[1] {
			t.Errorf("%q is %d, %d, %v", name, from, size, ok)
		}
	}
	for _, name := range []string{
		"open/019aa0b3-", "019aa0b3-", "plans/019aa0b3", "plans/019AA0B3-", "plans/019aa0-", "plans/019aa0b3ff-", "plans/019aa0bx-", "plans/019aa0b-", "plans/-", "",
		"plans/019aa0b3-12e-", "plans/019aa0b3-12ef", "plans/019aa0b3-12eg-", "plans/019aa0b3-12ef-7", "plans/019aa0b312ef--",
	} {
		if from, size, ok := parseGroup(plansDir, name); ok {
			t.Errorf("%q is %d, %d", name, from, size)
		}
	}
}
