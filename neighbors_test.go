package azblob

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/planvault/azblob/internal/listing"
)

// marked returns candidates of a day with markers at these times, newest first.
func marked(day time.Time, at ...time.Duration) (list []candidate) {
	slices.Sort(at)
	for i, after := range slices.Backward(at) {
		list = append(list, candidate{planBlobs: planBlobs{keys: prefix("test").plan(idAt(day.Add(after), byte(i))), marked: true}})
	}
	return list
}

// spread returns n times, evenly spread over a span that begins at a time.
func spread(n int, from, span time.Duration) (at []time.Duration) {
	for i := range n {
		at = append(at, from+span*time.Duration(i)/time.Duration(n))
	}
	return at
}

func TestNeighbors(t *testing.T) {
	today, yesterday := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	unmarked := marked(today, spread(100, 0, time.Hour)...)
	for i := range unmarked {
		unmarked[i].marked = false
	}
	for name, c := range map[string]struct {
		candidates []candidate
		heads      int
		want       []int // the numbers of candidates in the runs
	}{
		"none":                         {nil, 1, nil},
		"24 reads":                     {marked(today, spread(24, 0, time.Hour)...), 1, nil},
		"25 reads":                     {marked(today, spread(25, 0, time.Hour)...), 1, []int{25}},
		"26 reads of 13 plans":         {marked(today, spread(13, 0, time.Hour)...), 2, []int{13}},
		"24 reads of 12 plans":         {marked(today, spread(12, 0, time.Hour)...), 2, nil},
		"at one moment":                {marked(today, spread(30, time.Hour, 1)...), 1, []int{30}},
		"a page":                       {marked(today, spread(625, 0, time.Hour)...), 1, []int{625}},
		"more than a page":             {marked(today, spread(626, 0, time.Hour)...), 1, []int{313, 313}},
		"two HEADs each":               {marked(today, spread(626, 0, time.Hour)...), 2, []int{209, 209, 208}},
		"two days":                     {slices.Concat(marked(today, spread(30, 0, time.Hour)...), marked(yesterday, spread(40, 0, time.Hour)...)), 1, []int{30, 40}},
		"few on each of two days":      {slices.Concat(marked(today, spread(20, 0, time.Hour)...), marked(yesterday, spread(20, 0, time.Hour)...)), 1, nil},
		"a day without markers":        {slices.Concat(unmarked, marked(yesterday, spread(40, 0, time.Hour)...)), 1, []int{40}},
		"the newest, and some old":     {marked(today, append(spread(5, 0, 20*time.Hour), spread(100, 23*time.Hour, time.Minute)...)...), 1, []int{100}},
		"two crowds far from another":  {marked(today, append(spread(30, 0, time.Minute), spread(50, 23*time.Hour, time.Minute)...)...), 1, []int{50, 30}},
		"one crowd, and few elsewhere": {marked(today, append(spread(20, 0, time.Minute), spread(50, 23*time.Hour, time.Minute)...)...), 1, []int{50}},
	} {
		var got []int
		for _, run := range neighbors(c.candidates, c.heads) {
			got = append(got, len(run))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got runs of %v, want %v", name, got, c.want)
		}
	}
}

// TestNeighborsAtRandom checks that plans that come at random are listed together.
func TestNeighborsAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	apart := 0
	for range 100 {
		at := make([]time.Duration, 100)
		for i := range at {
			at[i] = time.Duration(random.Int64N(int64(24 * time.Hour)))
		}
		if len(neighbors(marked(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), at...), 1)[0]) < 90 {
			apart++
		}
	}
	if apart > 10 {
		t.Errorf("%d of 100 days are torn apart", apart)
	}
}

func TestNextID(t *testing.T) {
	for _, c := range [][2]string{
		{"00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"},
		{"0199f0a1-7000-7000-8000-0000000000ff", "0199f0a1-7000-7000-8000-000000000100"},
		{"0199f0a1-7000-7fff-ffff-ffffffffffff", "0199f0a1-7000-8000-0000-000000000000"},
	} {
		if got := listing.Next(uuid.MustParse(c[0])); got != uuid.MustParse(c[1]) {
			t.Errorf("after %s: got %s, want %s", c[0], got, c[1])
		}
	}
}
