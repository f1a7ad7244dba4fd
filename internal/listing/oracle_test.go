package listing

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/efforttest"
)

// world is a random store: plans of every distribution, a service with short pages and wrong hints, and options.
type world struct {
	shelf
	Options
	r *rand.Rand
	// chosen selects the plans that are wanted, as a filter does.
	chosen func(uuid.UUID) bool
	// catalogues says which days have a catalogue, and broken which of these can't be read to their end.
	catalogues, broken func(from uint64) bool
	// hints changes the groups that the service tells.
	hints func(groups []uint64) []uint64
}

// distribution returns plans in up to four groups of any kind.
func distribution(r *rand.Rand, now uint64) (plans []uuid.UUID) {
	const ms, anHour, aDay = Millisecond, 3600_000 * Millisecond, day
	for range 1 + r.IntN(4) {
		at := now - uint64(r.ExpFloat64()*pick(r, 1e3, 1e6, 1e8, 1e9))*ms%(30*aDay)
		var place func(i uint64) uint64
		step := 1 + r.Uint64N(120_000)
		switch r.IntN(9) {
		case 0: // one millisecond
			place = func(uint64) uint64 { return at }
		case 1: // a burst
			place = func(i uint64) uint64 { return at - i*ms }
		case 2: // one a second
			place = func(i uint64) uint64 { return at - i*1000*ms }
		case 3: // evenly
			place = func(i uint64) uint64 { return at - i*step*ms }
		case 4: // days apart
			place = func(i uint64) uint64 { return at - i%40*aDay/2 }
		case 5: // at the edge of a minute
			place = func(uint64) uint64 { return at/Minute*Minute + uint64(r.IntN(3)-1)*ms }
		case 6: // at midnight
			place = func(uint64) uint64 { return at/aDay*aDay + uint64(r.IntN(3)-1)*ms }
		case 7: // by clocks ahead
			place = func(i uint64) uint64 { return now + r.Uint64N(20*anHour) }
		case 8: // at random within a minute
			place = func(uint64) uint64 { return at/Minute*Minute + r.Uint64N(Minute) }
		}
		for i := range uint64(pick(r, 1, 1, 2, 3, 5, 10, 30, 100)) {
			id := IDOf(place(i)/ms*ms + r.Uint64N(ms))
			for b := 8; b < len(id); b++ {
				id[b] = byte(r.Uint32N(2)) // the second half decides, too
			}
			plans = append(plans, id)
		}
	}
	slices.SortFunc(plans, compare)
	return slices.Compact(plans)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	now := (20_000+r.Uint64N(30))*day + r.Uint64N(day)
	w := &world{r: r}
	w.plans = distribution(r, now)
	w.capacity = pick(r, 1, 2, 7, 30, 100, MaxPage)
	limit := pick(r, 0, 1, 1, 2, 7, 10, 50, 333, math.MaxInt/2, math.MaxInt)
	w.Options = Options{
		Page: pick(r, 2, 10, 90, 500, MaxPage), Ahead: 1 + r.IntN(8), Limit: limit, Aimed: limit > 0 && r.IntN(2) == 0,
		Now: time.UnixMilli(int64(now / Millisecond)).Add(time.Duration(pick(r, 0, 0, 0, -300, 300, 90_000)) * time.Second),
	}
	w.chosen = func(uuid.UUID) bool { return true }
	if n := pick(r, 1, 1, 2, 20); n > 1 && !w.Aimed {
		w.chosen = func(id uuid.UUID) bool { return int(id[7])%n == 0 }
	}
	switch r.IntN(5) { // none, stale, wrong and right groups
	case 0:
		w.hints = func([]uint64) []uint64 { return nil }
	case 1:
		w.hints = func(g []uint64) []uint64 { return g[:len(g)/2] }
	case 2:
		w.hints = func(g []uint64) []uint64 {
			for i := range g {
				g[i] = now/day*day + uint64(i)*Minute
			}
			return g
		}
	default:
		w.hints = func(g []uint64) []uint64 { return g }
	}
	closed, damaged := pick(r, 0, 1, 3), pick(r, 0, 2)
	w.catalogues = func(from uint64) bool { return closed > 0 && from/day%3 < uint64(closed) && from+2*day < now }
	w.broken = func(from uint64) bool { return damaged > 0 && from/day%uint64(damaged) == 0 }
	return w
}

// source is a day of a world. It cuts some of its pages short.
type source struct {
	*world
	short uint64
}

func (s source) Read(ctx context.Context, span Span, most int) (Page[uuid.UUID], error) {
	if KeyOf(span.From)%3 < s.short {
		most /= 2
	}
	page, err := s.shelf.Read(ctx, span, most)
	var chosen []uuid.UUID
	for _, id := range page.Items {
		if s.chosen(id) {
			chosen = append(chosen, id)
		}
	}
	page.Items = chosen
	return page, err
}

func (s source) Groups(ctx context.Context, span Span) ([]uint64, error) {
	groups, err := s.shelf.Groups(ctx, span)
	return s.hints(groups), err
}

// closedDay is the catalogue of a span. After half of its plans it can be read no further if it is broken.
type closedDay struct {
	w      *world
	left   Span
	broken bool
	opens  bool
}

var errBroken = errors.New("broken")

func (c *closedDay) Open(context.Context) (bool, error) { return c.opens, nil }

func (c *closedDay) Blobs() int { return perPlan * len(c.w.in(c.left)) }

func (c *closedDay) All(context.Context) iter.Seq2[uuid.UUID, error] {
	return func(yield func(uuid.UUID, error) bool) {
		ids := c.w.in(c.left)
		for i, id := range slices.Backward(ids) {
			if c.broken && i < len(ids)/2 {
				yield(uuid.Nil, errBroken)
				return
			}
			c.left.To = id
			if c.w.chosen(id) && !yield(id, nil) {
				return
			}
		}
	}
}

func (c *closedDay) Rest(_ context.Context, err error) (Span, bool) { return c.left, err == errBroken }

// page lists what a user asks for.
func (w *world) page(ctx context.Context, before uuid.UUID) (got []uuid.UUID, err error) {
	days := w.days(before)
	for i := range days {
		span := days[i].Span
		days[i].Source = source{w, w.r.Uint64N(3)}
		if from := KeyOf(span.From); w.catalogues(from) {
			days[i].Catalogue = &closedDay{w, span, w.broken(from), !w.broken(from) || from/day%4 != 0}
		}
	}
	for id, err := range Newest(ctx, days, w.Options) {
		if err != nil {
			return got, err
		}
		if got = append(got, id); len(got) == w.Limit {
			break
		}
	}
	return got, nil
}

// naive is what page should return.
func (w *world) naive(before uuid.UUID) (want []uuid.UUID) {
	for _, id := range slices.Backward(w.plans) {
		if Less(id, before) && w.chosen(id) {
			if want = append(want, id); len(want) == w.Limit {
				break
			}
		}
	}
	return want
}

// explore lists a world page after page, each equal to the naive listing. Plans are deleted between the pages.
func explore(ctx context.Context, seed uint64) error {
	w := newWorld(seed)
	before := uuid.Max
	for n := range 1 + w.r.IntN(10) {
		got, err := w.page(ctx, before)
		if want := w.naive(before); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("seed %d, page %d: %d plans, want %d, %v (%+v)", seed, n, len(got), len(want), err, w.Options)
		}
		if left := w.underWay.Load(); left != 0 || w.most.Load() > int64(w.Ahead) {
			return fmt.Errorf("seed %d: %d requests at once, %d after the listing", seed, w.most.Load(), left)
		}
		if len(got) == 0 || len(got) != w.Limit {
			return nil
		}
		before = got[len(got)-1]
		if w.r.IntN(4) == 0 {
			w.plans = slices.DeleteFunc(slices.Clone(w.plans), func(uuid.UUID) bool { return w.r.IntN(10) == 0 })
		}
	}
	return nil
}

// TestEveryPlanOnce lists 100,000 random worlds.
func TestEveryPlanOnce(t *testing.T) {
	n := efforttest.Pick(uint64(1000), 25_000, 1_000_000)
	more := efforttest.More(t)
	for part := range uint64(4) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for seed := part * n; seed < (part+1)*n && more(); seed++ {
				if err := explore(t.Context(), seed); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// FuzzListing explores other worlds.
func FuzzListing(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		if err := explore(t.Context(), seed); err != nil {
			t.Error(err)
		}
	})
}
