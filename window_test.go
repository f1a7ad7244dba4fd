package azblob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

// shelf is a day's plans, sorted, as a service lists them: two blobs each.
type shelf struct {
	day
	ids []uuid.UUID
	// stuck is a service that begins at the first name whatever it is asked.
	stuck bool

	requests, blobs atomic.Int64 // as asked for and as answered
	underWay, most  atomic.Int64
	latency         time.Duration
	fail            error
	failAt          int64
}

const fullPage = 5000

// read is what a listing by pages is: it tells of limit blobs at most.
func (s *shelf) read(ctx context.Context, w window) (reading[uuid.UUID], error) {
	s.most.Store(max(s.most.Load(), s.underWay.Add(1)))
	defer s.underWay.Add(-1)
	if s.requests.Add(1); s.fail != nil && s.requests.Load() >= s.failAt {
		return reading[uuid.UUID]{}, s.fail
	}
	select {
	case <-time.After(s.latency):
	case <-ctx.Done():
		return reading[uuid.UUID]{}, ctx.Err()
	}
	compare := func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
	got := reading[uuid.UUID]{from: w.from, to: w.to}
	limit := w.limit
	if limit == 0 || limit > fullPage {
		limit = fullPage
	}
	if s.stuck && w.from != w.floor {
		got.from, limit = w.floor, 2*len(s.ids)
		s.requests.Add(int64(2 * len(s.ids) / fullPage))
	}
	from, _ := slices.BinarySearchFunc(s.ids, got.from, compare)
	to, _ := slices.BinarySearchFunc(s.ids, w.to, compare)
	if n := to - from; 2*n > limit {
		to = from + limit/2
		got.to = s.ids[to]
	}
	got.items = slices.Clone(s.ids[from:to])
	got.blobs = 2 * len(got.items)
	if len(got.items) > 0 {
		got.first = got.items[0]
	}
	s.blobs.Add(int64(got.blobs))
	return got, nil
}

// last is what a listing by groups tells.
func (s *shelf) last(ctx context.Context, w window) (from, to uuid.UUID, err error) {
	s.requests.Add(1)
	s.most.Store(max(s.most.Load(), s.underWay.Add(1)))
	defer s.underWay.Add(-1)
	if s.fail != nil && s.requests.Load() >= s.failAt {
		return from, to, s.fail
	}
	select {
	case <-time.After(s.latency):
	case <-ctx.Done():
		return from, to, ctx.Err()
	}
	for _, id := range slices.Backward(s.ids) {
		if bytes.Compare(id[:], w.to[:]) < 0 {
			return parse(id)
		}
	}
	return from, to, nil
}

func parse(id uuid.UUID) (from, to uuid.UUID, err error) {
	from, to, _ = parseGroup("", id.String()[:9])
	return from, to, nil
}

func (s *shelf) source() source[uuid.UUID] { return source[uuid.UUID]{s.read, s.last} }

// whole is the stretch of the whole day.
func (s *shelf) whole() window {
	return window{day: s.day, from: firstID(s.date), to: firstID(s.date.AddDate(0, 0, 1))}
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
func (s *shelf) drain(t testing.TB, w window, page, ahead, limit int) (got []uuid.UUID) {
	t.Helper()
	atOnce := func(used int) int {
		if limit > 0 {
			return min(used, ahead)
		}
		return ahead
	}
	for id, err := range backwards(t.Context(), []window{w}, page, atOnce, s.source()) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, id); len(got) == limit {
			break
		}
	}
	return got
}

// TestWindows reads days of every density, in every size of pages, whole and in part, and counts what it takes.
func TestWindows(t *testing.T) {
	for name, density := range densities {
		for _, n := range []int{0, 1, 2, 249, 250, 251, 3000, 40_000} {
			for _, page := range []int{100, 500, fullPage} {
				for _, ahead := range []int{1, 4} {
					for _, limit := range []int{0, 10} {
						for _, stuck := range []bool{false, true} {
							what := fmt.Sprintf("%s: %d plans, %d at a time, %d ahead, limit %d, stuck %v", name, n, page, ahead, limit, stuck)
							random := rand.New(rand.NewPCG(uint64(n), 1))
							s := newShelf(n, random, density(n, random))
							s.stuck = stuck
							want := slices.Clone(s.ids)
							slices.Reverse(want)
							if limit > 0 {
								want = want[:min(limit, n)]
							}
							if got := s.drain(t, s.whole(), page, ahead, limit); !slices.Equal(got, want) {
								t.Fatalf("%s: got %d plans, want %d", what, len(got), len(want))
							}
							if most := s.most.Load(); most > int64(ahead) {
								t.Errorf("%s: %d under way", what, most)
							}
							// What fits is one request. What does not takes two to learn how dense plans are and where they end, and then
							// a window for each 0.9 pages, or one for a few plans; where the density is not everywhere the same, a search for each place where it changes.
							budget := 1
							if few := limit > 0; 2*n > page {
								budget = 3
								if !few {
									budget += (2*n*9/8+page-1)/page + n/page/8
								}
								if name != "uniform" {
									budget += 60
								}
							}
							if requests := int(s.requests.Load()); requests > budget && !stuck {
								t.Errorf("%s: %d requests, want at most %d", what, requests, budget)
							}
						}
					}
				}
			}
		}
	}
}

// FuzzWindows reads days of any density, by windows of any size and with any number ahead, from any place to any other.
func FuzzWindows(f *testing.F) {
	f.Add(uint64(1), uint16(1000), uint16(100), uint8(4), uint16(0), false)
	f.Add(uint64(2), uint16(5000), uint16(500), uint8(1), uint16(10), true)
	f.Add(uint64(3), uint16(20000), uint16(5000), uint8(8), uint16(3000), false)
	names := slices.Sorted(maps.Keys(densities))
	f.Fuzz(func(t *testing.T, seed uint64, n, page uint16, ahead uint8, limit uint16, stuck bool) {
		ahead %= maxAhead/markersPage + 1 // what a vault has at most
		random := rand.New(rand.NewPCG(seed, 2))
		s := newShelf(int(n), random, densities[names[random.IntN(len(names))]](int(n), random))
		s.stuck = stuck
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
		if got := s.drain(t, w, pageSize, int(ahead), int(limit)); !slices.Equal(got, want) {
			t.Errorf("got %d plans, want %d", len(got), len(want))
		}
		if most := s.most.Load(); most > max(1, int64(ahead)) {
			t.Errorf("%d under way, %d are allowed", most, ahead)
		}
		if requests := int(s.requests.Load()); !stuck && requests > 100+2*int(ahead)+8*2*int(n)/pageSize {
			t.Errorf("%d requests for %d plans at %d", requests, n, pageSize)
		}
	})
}

// TestWindowsAreReadAhead counts round trips, and what is under way when the consumer leaves.
func TestWindowsAreReadAhead(t *testing.T) {
	const n, latency = 40_000, time.Second
	uniform := func(t *testing.T) *shelf {
		random := rand.New(rand.NewPCG(7, 7))
		s := newShelf(n, random, densities["uniform"](n, random))
		s.latency = latency
		return s
	}
	always := func(n int) func(int) int { return func(int) int { return n } }
	synctest.Test(t, func(t *testing.T) {
		for ahead, want := range map[int]int{1: 22, 4: 8} { // 2 to learn, and 20 windows by so many at a time
			s := uniform(t)
			started := time.Now()
			for _, err := range backwards(t.Context(), []window{s.whole()}, fullPage, always(ahead), s.source()) {
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
		s := uniform(t)
		used := 0
		for range backwards(t.Context(), []window{s.whole()}, fullPage, always(4), s.source()) {
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
		s := uniform(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		used := 0
		for _, err := range backwards(ctx, []window{s.whole()}, fullPage, always(4), s.source()) {
			if last = err; err == nil {
				used++
			}
			cancel()
		}
		if !errors.Is(last, context.Canceled) || used == 0 || used == n {
			t.Errorf("after %d plans: %v", used, last)
		}
	})
	synctest.Test(t, func(t *testing.T) { // no more ahead than was used, while one wants a few
		var days []window
		shelves := map[day]*shelf{}
		for i := range 40 {
			s := newShelf(1, rand.New(rand.NewPCG(uint64(i), 0)), func(int) time.Duration { return time.Hour })
			s.day = day{container: fmt.Sprint(i), date: s.date}
			s.latency = latency
			shelves[s.day] = s
			days = append(days, s.whole())
		}
		used, requests := 0, int64(0)
		started := time.Now()
		for range backwards(t.Context(), days, 100, func(used int) int { return min(used, 10) }, source[uuid.UUID]{
			read: func(ctx context.Context, w window) (reading[uuid.UUID], error) { return shelves[w.day].read(ctx, w) },
			last: func(ctx context.Context, w window) (from, to uuid.UUID, err error) {
				return shelves[w.day].last(ctx, w)
			},
		}) {
			if used++; used == 10 {
				break
			}
		}
		for _, s := range shelves {
			requests += s.requests.Load()
		}
		if trips := int(time.Since(started) / latency); requests > 20 || trips > 6 {
			t.Errorf("10 days of one plan each: %d requests, %d round trips", requests, trips)
		}
	})
}

// TestWindowErrors puts an error in place of what is left of its day, behind what came before, and before the other days.
func TestWindowErrors(t *testing.T) {
	broken := errors.New("broken")
	for failAt := int64(1); failAt <= 12; failAt++ {
		for _, ahead := range []int{1, 4} {
			var stretches []window
			var shelves []*shelf
			for i := range 3 {
				random := rand.New(rand.NewPCG(uint64(i), 3))
				s := newShelf(2000, random, densities["uniform"](2000, random))
				s.day.container = fmt.Sprint(i)
				shelves, stretches = append(shelves, s), append(stretches, s.whole())
			}
			shelves[1].fail, shelves[1].failAt = broken, failAt
			var got []uuid.UUID
			failed := -1
			for id, err := range backwards(t.Context(), stretches, 500, func(int) int { return ahead }, source[uuid.UUID]{
				read: func(ctx context.Context, w window) (reading[uuid.UUID], error) {
					return shelves[int(w.container[0]-'0')].read(ctx, w)
				},
				last: func(ctx context.Context, w window) (from, to uuid.UUID, err error) {
					return shelves[int(w.container[0]-'0')].last(ctx, w)
				},
			}) {
				if err != nil {
					if failed >= 0 || !errors.Is(err, broken) {
						t.Errorf("%v after %d", err, len(got))
					}
					failed = len(got)
					continue
				}
				got = append(got, id)
			}
			var want []uuid.UUID
			for i, s := range shelves {
				day := slices.Clone(s.ids)
				slices.Reverse(day)
				if i == 1 && failed >= 0 {
					day = day[:failed-len(want)]
				}
				want = append(want, day...)
			}
			if !slices.Equal(got, want) || (failed < 0) != (shelves[1].requests.Load() < failAt) {
				t.Errorf("an error at request %d: %d plans, want %d, failed after %d", failAt, len(got), len(want), failed)
			}
		}
	}
}

// TestStretches cuts days as filters want.
func TestStretches(t *testing.T) {
	date := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	noon := date.Add(12 * time.Hour)
	id := shift(firstID(noon), 12345)
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
		"before an ID of before":  {storage.Filters{BeforeID: shift(firstID(date), -1)}, uuid.Nil, uuid.Nil},
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

func TestShift(t *testing.T) {
	a := firstID(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC))
	for _, by := range []float64{0, 1, 255, 256, 1 << 40, 1 << 80} {
		b := shift(a, by)
		if distance(a, b) != by || shift(b, -by) != a {
			t.Errorf("%v: %v", by, b)
		}
	}
	if shift(a, -math.Pow(2, 128)) != uuid.Nil || shift(a, math.Pow(2, 128)) != uuid.Max {
		t.Error("the ends are not kept")
	}
}

// TestBegin says how wide a window at a segment's end is, by what is known of the density and how often it was wrong.
func TestBegin(t *testing.T) {
	from := firstID(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC))
	const left = 1e12
	top := shift(from, left)
	for _, c := range []struct {
		what   string
		width  float64
		misses int
		want   uuid.UUID
	}{
		{"what is expected to fit is read whole", left, 0, from},
		{"so is what fits on a page just so", left * reserve, 0, from},
		{"what does not fit is cut", left * reserve * 0.99, 0, shift(top, -left*reserve*0.99)},
		{"a few windows from the end", left / 10, 0, shift(top, -left/10)},
		{"after an empty window a much wider one", left / 1000, 1, shift(top, -growth*left/1000)},
		{"but no more than half of what is left", left / 100, 1, shift(top, -left/2)},
		{"then by halves of the time", left / 1000, 2, shift(from, left/2)},
		{"and by halves of the order of magnitude", left / 1000, 3, shift(from, math.Sqrt(left/1000*left))},
		{"in turn", left / 1000, 4, shift(from, left/2)},
		{"what fits is read whole after misses, too", left, 3, from},
	} {
		s := &segment[uuid.UUID]{window: window{from: from}, width: c.width, top: top, misses: c.misses}
		if got := s.begin(); got != c.want {
			t.Errorf("%s: %v from the beginning, want %v", c.what, distance(from, got), distance(from, c.want))
		}
	}
}

// TestParseGroup reads what the names of about a minute's plans begin with, and nothing else.
func TestParseGroup(t *testing.T) {
	from := uuid.MustParse("019aa0b3-0000-0000-0000-000000000000")
	got, to, ok := parseGroup(plansDir, "plans/019aa0b3-")
	if want := uuid.MustParse("019aa0b4-0000-0000-0000-000000000000"); !ok || got != from || to != want {
		t.Errorf("got %v to %v, %v", got, to, ok)
	}
	for _, group := range []string{
		"open/019aa0b3-", "019aa0b3-", "plans/019aa0b3", "plans/019AA0B3-", "plans/019aa0-", "plans/019aa0b3ff-", "plans/019aa0bx-", "plans/019aa0b-", "plans/-", "",
	} {
		if got, to, ok := parseGroup(plansDir, group); ok {
			t.Errorf("%q is %v to %v", group, got, to)
		}
	}
}

// TestSettle says what an answer teaches about the windows beside it.
func TestSettle(t *testing.T) {
	const page = 100
	from := firstID(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC))
	middle, to := shift(from, 1e12), shift(from, 2e12)
	day := day{container: "day"}
	// above was read, and below waits for what that tells.
	settle := func(misses int, got reading[uuid.UUID]) []*segment[uuid.UUID] {
		below := &segment[uuid.UUID]{window: window{day: day, from: from, to: middle}, top: middle, state: held, width: 5e11}
		above := &segment[uuid.UUID]{window: window{day: day, from: middle, to: to}, top: to, state: underWay, width: 1e12, misses: misses}
		b := &backward[uuid.UUID]{page: page, segments: []*segment[uuid.UUID]{above, below}}
		b.settle(answer[uuid.UUID]{of: above, reading: got})
		return b.segments
	}
	for misses := range 3 {
		// Nothing there: the next window is looked for elsewhere.
		list := settle(misses, reading[uuid.UUID]{from: middle, to: to})
		if below := list[1]; len(list) != 2 || list[0].state != done || below.state != waiting || below.misses != misses+1 {
			t.Errorf("after an empty window, %d before: %d segments, %d misses", misses, len(list), below.misses)
		}
		// More than a page: what is missing comes first, and is dense.
		end := shift(middle, 1e11)
		list = settle(misses, reading[uuid.UUID]{from: middle, to: end, first: middle, blobs: page})
		gap, above, below := list[0], list[1], list[2]
		want := misses + 1
		if misses == 0 {
			want = 0 // the density was wrong, and not the place
		}
		if gap.misses != want || gap.from != end || gap.to != to || gap.state != waiting {
			t.Errorf("after a full window, %d before: %d misses, want %d", misses, gap.misses, want)
		}
		if width := 1e11 * reserve; math.Abs(gap.width-width) > 1 || below.width != gap.width || gap.ask {
			t.Errorf("after a full window: widths %v and %v, want %v", gap.width, below.width, width)
		}
		if above.to != end || above.state != done || below.state != waiting {
			t.Errorf("after a full window: %v is read", above.to)
		}
		// A tenth of a page: the next window is wider by as much.
		list = settle(misses, reading[uuid.UUID]{from: middle, to: to, first: middle, blobs: page / 10})
		if width := 1e12 * reserve * 10; math.Abs(list[1].width-width) > 1 || list[1].misses != 0 {
			t.Errorf("after a thin window: width %v, want %v, %d misses", list[1].width, width, list[1].misses)
		}
	}
	// One blob does not make the next window wider without bound.
	list := settle(0, reading[uuid.UUID]{from: middle, to: to, first: middle, blobs: 1})
	if width := 1e12 * growth; math.Abs(list[1].width-width) > 1 {
		t.Errorf("after one blob: width %v, want %v", list[1].width, width)
	}
	// The service began at the floor, so there is nothing left below.
	if list := settle(0, reading[uuid.UUID]{from: from, to: to, first: from, blobs: 10}); len(list) != 1 || list[0].state != done {
		t.Errorf("after a window that was read from the floor: %d segments", len(list))
	}
}
