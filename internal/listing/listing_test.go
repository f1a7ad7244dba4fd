package listing

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/efforttest"
)

// shelf is a Source in memory. It has two blobs for each plan.
type shelf struct {
	plans    []uuid.UUID // in ascending order
	capacity int         // how many blobs the service puts on a page at the most
	latency  time.Duration
	fail     error // the answer from request failAt on, if it is not nil
	failAt   int64
	forgets  bool // the first answer has no groups

	requests, underWay, most, received atomic.Int64
}

func compare(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// in returns the plans in a span.
func (s *shelf) in(span Span) []uuid.UUID {
	from, _ := slices.BinarySearchFunc(s.plans, span.From, compare)
	to, _ := slices.BinarySearchFunc(s.plans, span.To, compare)
	return s.plans[from:max(from, to)]
}

// request counts a request, and waits for its answer.
func (s *shelf) request(ctx context.Context) error {
	s.most.Store(max(s.most.Load(), s.underWay.Add(1)))
	defer s.underWay.Add(-1)
	if n := s.requests.Add(1); s.fail != nil && n > s.failAt {
		return s.fail
	}
	if s.latency == 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(s.latency):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *shelf) Read(ctx context.Context, span Span, most int) (Page[uuid.UUID], error) {
	page := Page[uuid.UUID]{Items: s.in(span), Rest: span.To}
	if n := max(1, min(most, s.capacity)/perPlan); len(page.Items) > n {
		page.Items, page.Rest = page.Items[:n], page.Items[n]
	}
	page.Blobs = perPlan * len(page.Items)
	onward := s.in(Span{span.From, IDOf(KeyOf(span.From)/day*day + day)}) // the service does not know where a span ends
	s.received.Add(int64(min(most, s.capacity, perPlan*len(onward))))
	return page, s.request(ctx)
}

func (s *shelf) Groups(ctx context.Context, span Span) (groups []uint64, err error) {
	for _, id := range s.in(span) {
		if g := KeyOf(id) / span.Unit() * span.Unit(); len(groups) == 0 || groups[len(groups)-1] != g {
			groups = append(groups, g)
		}
	}
	if s.forgets {
		groups, s.forgets = nil, false
	}
	return groups, s.request(ctx)
}

// days returns the days of the plans before an ID, newest first.
func (s *shelf) days(before uuid.UUID) (days []Day[uuid.UUID]) {
	for _, id := range slices.Backward(s.plans) {
		from := KeyOf(id) / day * day
		d := Day[uuid.UUID]{Span: Span{IDOf(from), IDOf(from + day)}, Source: s}
		if n := len(days); n > 0 && days[n-1].From == d.From || !Less(d.From, before) {
			continue
		}
		days = append(days, d)
	}
	if len(days) > 0 && Less(before, days[0].To) {
		days[0].To = before
	}
	return days
}

const (
	aSecond = 1000 * Millisecond
	anHour  = 3600 * aSecond
	// today is a day, and now a time in it.
	today = 20_000 * day
	now   = today + 15*anHour
)

// newShelf returns a shelf of n plans whose keys place returns.
func newShelf(n int, place func(r *rand.Rand, i uint64) uint64) *shelf {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	s := &shelf{capacity: MaxPage, latency: time.Second}
	for i := range uint64(n) {
		id := IDOf(place(r, i)/Millisecond*Millisecond + r.Uint64N(Millisecond))
		for b := 8; b < len(id); b++ {
			id[b] = byte(r.Uint32())
		}
		s.plans = append(s.plans, id)
	}
	slices.SortFunc(s.plans, compare)
	return s
}

// TestCosts holds the requests and the round trips of listings against budgets.
func TestCosts(t *testing.T) {
	ten := Options{Page: 90, Ahead: 10, Limit: 10, Aimed: true}
	all := Options{Page: MaxPage, Ahead: 5}
	burst := func(r *rand.Rand, i uint64) uint64 { // and one a minute before it
		if i < 500 {
			return now - anHour - i*60*aSecond
		}
		return now - 7*60*aSecond - i/200*200*Millisecond
	}
	for name, c := range map[string]struct {
		n               int
		place           func(r *rand.Rand, i uint64) uint64
		o               Options
		requests, trips int
	}{
		"ten, none":                   {0, nil, ten, 0, 0},
		"ten, 3 in 3 hours":           {3, func(r *rand.Rand, i uint64) uint64 { return now - i*anHour }, ten, 2, 2},
		"ten, a day apart":            {20, func(r *rand.Rand, i uint64) uint64 { return now - i*day }, ten, 11, 3},
		"ten, one in 86 seconds":      {2000, func(r *rand.Rand, i uint64) uint64 { return now - i*86*aSecond }, ten, 3, 3},
		"ten, one a minute":           {900, func(r *rand.Rand, i uint64) uint64 { return now - i*60*aSecond }, ten, 3, 3},
		"ten, 20,000 a day":           {20_000, func(r *rand.Rand, i uint64) uint64 { return now - r.Uint64N(day) }, ten, 3, 3},
		"ten, 200,000 a day":          {200_000, func(r *rand.Rand, i uint64) uint64 { return now - r.Uint64N(day) }, ten, 5, 5},
		"ten, 30 at once":             {6000, func(r *rand.Rand, i uint64) uint64 { return now - i/30*anHour }, ten, 3, 3},
		"ten, 2,000 in a millisecond": {2000, func(r *rand.Rand, i uint64) uint64 { return now - anHour }, ten, 4, 4},
		"ten, 2,000 in ten seconds":   {2000, func(r *rand.Rand, i uint64) uint64 { return now - anHour - i*5*Millisecond }, ten, 8, 6},
		"one, 10,000 in ten seconds":  {10_500, burst, Options{Page: 54, Ahead: 10, Limit: 1, Aimed: true}, 8, 8},
		"ten, in the morning":         {1000, func(r *rand.Rand, i uint64) uint64 { return now - 4*anHour - i*5*aSecond }, ten, 2, 2},
		"ten, by a clock ahead":       {50, func(r *rand.Rand, i uint64) uint64 { return now + i*anHour/2 }, ten, 4, 3},
		"all, a page":                 {2500, func(r *rand.Rand, i uint64) uint64 { return today + r.Uint64N(day) }, all, 1, 1},
		"all, 16 pages evenly":        {40_000, func(r *rand.Rand, i uint64) uint64 { return today + r.Uint64N(day) }, all, 22, 8},
		"all, 16 in working hours":    {40_000, func(r *rand.Rand, i uint64) uint64 { return today + 8*anHour + r.Uint64N(10*anHour) }, all, 22, 8},
		"all, 16 in a millisecond":    {40_000, func(r *rand.Rand, i uint64) uint64 { return now }, all, 19, 18},
		"all, 16 in seven minutes":    {40_000, func(r *rand.Rand, i uint64) uint64 { return today + i%7*3*anHour + r.Uint64N(60*aSecond) }, all, 42, 16},
		"all, 16 mostly in a second": {40_000, func(r *rand.Rand, i uint64) uint64 {
			return today + r.Uint64N(pick[uint64](r, day, aSecond, aSecond, aSecond))
		}, all, 40, 14},
		"all, 16 ever denser":           {40_000, func(r *rand.Rand, i uint64) uint64 { return today + day - day/(i+2) - 1 }, all, 26, 11},
		"all, 16 ever thinner":          {40_000, func(r *rand.Rand, i uint64) uint64 { return today + day/(i+1) - 1 }, all, 40, 15},
		"some of 16 pages evenly":       {40_000, func(r *rand.Rand, i uint64) uint64 { return today + r.Uint64N(day) }, Options{Page: MaxPage, Ahead: 5, Limit: 100}, 4, 4},
		"all of 60 days, three of them": {60, func(r *rand.Rand, i uint64) uint64 { return today - i*day }, all, 60, 12},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(c.n, c.place)
			c.o.Now = time.UnixMilli(now / Millisecond)
			started, n := time.Now(), 0
			for id, err := range Newest(t.Context(), s.days(uuid.Max), c.o) {
				if err != nil || id != s.plans[len(s.plans)-1-n] {
					t.Fatalf("%s: plan %d is %v, %v", name, n, id, err)
				}
				if n++; n == c.o.Limit {
					break
				}
			}
			if trips := int(time.Since(started) / time.Second); int(s.requests.Load()) > c.requests || trips > c.trips {
				t.Errorf("%s: %d requests and %d round trips; %d and %d are the budget", name, s.requests.Load(), trips, c.requests, c.trips)
			}
		})
	}
}

// TestReceived holds what the service sends for whole days against a budget: what a listing by pages alone would receive,
// and an eighth.
func TestReceived(t *testing.T) {
	for _, n := range []uint64{2600, 5000, 6000, 10_000, 20_000} {
		for _, place := range []func(*rand.Rand, uint64) uint64{
			func(_ *rand.Rand, i uint64) uint64 { return today + day/n*i },
			func(r *rand.Rand, _ uint64) uint64 { return today + r.Uint64N(day) },
		} {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(int(n), place)
				for range Newest(t.Context(), s.days(uuid.Max), Options{Page: MaxPage, Ahead: 5, Now: time.UnixMilli((today + day) / Millisecond)}) {
				}
				if got, all := s.received.Load(), int64(perPlan*n); got > all+all/8 {
					t.Errorf("%d plans: %d blobs were received, of %d", n, got, all)
				}
			})
		}
	}
}

// TestMillion lists a million plans up to some time of the day, which come evenly or at random. The pages of each day depend
// on that time, and so do the requests. docs/scale.md has the ranges of all hours, which PLANVAULT_LONG=1 lists.
func TestMillion(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, c := range []struct{ days, requests, trips uint64 }{{1, 450, 104}, {14, 465, 110}} {
		var requests, trips []int
		for hour := uint64(0); hour < 24; hour += efforttest.Pick[uint64](12, 12, 1) {
			begin, end := today-(c.days-1)*day, today+hour*anHour+anHour/2
			for _, place := range []func(*rand.Rand, uint64) uint64{
				func(_ *rand.Rand, i uint64) uint64 { return begin + (end-begin)/1_000_000*i },
				func(r *rand.Rand, i uint64) uint64 { return begin + r.Uint64N(end-begin) },
			} {
				s := newShelf(1_000_000, place)
				synctest.Test(t, func(t *testing.T) {
					started, n := time.Now(), 0
					for range Newest(t.Context(), s.days(uuid.Max), Options{Page: MaxPage, Ahead: 5, Now: time.UnixMilli(int64(end / Millisecond))}) {
						n++
					}
					if n != len(s.plans) {
						t.Errorf("%d plans", n)
					}
					requests, trips = append(requests, 1+int(s.requests.Load())), append(trips, 1+int(time.Since(started)/time.Second)) // with that of the days
				})
			}
		}
		t.Logf("%d days: %d to %d requests, %d to %d round trips", c.days, slices.Min(requests), slices.Max(requests), slices.Min(trips), slices.Max(trips))
		if slices.Max(requests) > int(c.requests) || slices.Max(trips) > int(c.trips) {
			t.Errorf("%d days: over the budget of %d requests and %d round trips", c.days, c.requests, c.trips)
		}
	}
}

// TestErrors puts an error in place of what is left of its day, before the other days.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	for failAt := range int64(8) {
		s := newShelf(6000, func(r *rand.Rand, _ uint64) uint64 { return today + r.Uint64N(3*day) })
		s.latency = 0
		days := s.days(uuid.Max)
		bad := &shelf{plans: s.plans, capacity: 500, fail: broken, failAt: failAt}
		days[1].Source = bad
		var got []uuid.UUID
		failed := -1
		for id, err := range Newest(t.Context(), days, Options{Page: 500, Ahead: 4}) {
			if err != nil {
				if failed >= 0 || !errors.Is(err, broken) {
					t.Errorf("%v after %d", err, len(got))
				}
				failed = len(got)
				continue
			}
			got = append(got, id)
		}
		newest, middle, oldest := len(s.in(days[0].Span)), len(s.in(days[1].Span)), len(s.in(days[2].Span))
		want := slices.Clone(s.plans)
		slices.Reverse(want)
		want = slices.Delete(want, failed, newest+middle)
		if failed < newest || !slices.Equal(got, want) || len(got) < newest+oldest {
			t.Errorf("an error at request %d: %d plans, want %d, failed after %d", failAt, len(got), len(want), failed)
		}
	}
}

// TestBreak leaves no request under way.
func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(40_000, func(r *rand.Rand, _ uint64) uint64 { return today + r.Uint64N(day) })
		n := 0
		for range Newest(t.Context(), s.days(uuid.Max), Options{Page: MaxPage, Ahead: 4}) {
			if n++; n == 3000 {
				break
			}
		}
		if s.requests.Load() > 2+2*4 || s.underWay.Load() != 0 {
			t.Errorf("%d requests for 3000 plans, %d under way", s.requests.Load(), s.underWay.Load())
		}
	})
}

// TestWrongGroups asks for the groups again if a page shows that there are some.
func TestWrongGroups(t *testing.T) {
	s := newShelf(40_000, func(r *rand.Rand, _ uint64) uint64 { return today + r.Uint64N(day) })
	s.latency, s.forgets = 0, true
	for range Newest(t.Context(), s.days(uuid.Max), Options{Page: 90, Ahead: 10, Limit: 10, Aimed: true}) {
		break
	}
	if s.requests.Load() > 5 {
		t.Errorf("%d requests", s.requests.Load())
	}
}

// bulky is a Source of one item a day that takes a mebibyte.
type bulky struct{}

func (bulky) Read(_ context.Context, s Span, _ int) (Page[*[1 << 20]byte], error) {
	return Page[*[1 << 20]byte]{Items: []*[1 << 20]byte{new([1 << 20]byte)}, Blobs: perPlan, Rest: s.To}, nil
}

func (bulky) Groups(context.Context, Span) ([]uint64, error) { return nil, nil }

// TestMemory keeps nothing of the days that were yielded.
func TestMemory(t *testing.T) {
	var days []Day[*[1 << 20]byte]
	for i := range uint64(40) {
		days = append(days, Day[*[1 << 20]byte]{Span: Span{IDOf(today - i*day), IDOf(today - i*day + day)}, Source: bulky{}})
	}
	var seen []weak.Pointer[[1 << 20]byte]
	for item, err := range Newest(t.Context(), days, Options{Page: MaxPage, Ahead: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, weak.Make(item)); len(seen) == len(days) {
			runtime.GC()
			for i, was := range seen[:len(seen)-2] {
				if was.Value() != nil {
					t.Fatalf("the item of day %d is kept", i)
				}
			}
		}
	}
}
