package azblob

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
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
		"a gap of 7.8 averages":        {marked(today, append(spread(30, 0, 30*time.Minute), spread(30, 37*time.Minute+42*time.Second, 30*time.Minute)...)...), 1, []int{60}},
		"a gap of 8.1 averages":        {marked(today, append(spread(30, 0, 30*time.Minute), spread(30, 38*time.Minute+6*time.Second, 30*time.Minute)...)...), 1, []int{30, 30}},
		"one crowd, and few elsewhere": {marked(today, append(spread(20, 0, time.Minute), spread(50, 23*time.Hour, time.Minute)...)...), 1, []int{50}},
	} {
		var got []int
		for _, run := range neighbors(c.candidates, c.heads) {
			got = append(got, len(run.plans))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got runs of %v, want %v", name, got, c.want)
		}
	}
}

func TestPages(t *testing.T) {
	plans := marked(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), spread(60, 0, time.Hour)...)
	for _, c := range []struct {
		left, pages, heads int
		blobs              float64 // expected for each HEAD; 0 if that is unknown
		want               int
	}{
		{60, 0, 1, 0, 16 * 60},
		{60, 0, 2, 0, 16 * 120},
		{60, 0, 1, 2, 8 * 60},
		{60, 0, 1, 20, 25 * 60},
		{60, 0, 1, 31, 31 * 60 * 5 / 4},
		{60, 0, 1, 33, 0},
		{60, 0, 4, 31, 5000},
		{60, 0, 1, math.Inf(1), 0},
		{25, 1, 1, 20, 25 * 25},
		{24, 1, 1, 20, 0}, // too few are left
		{25, 2, 1, 20, 0}, // the HEADs of 60 plans pay for two pages
		{25, 2, 2, 20, 25 * 50},
		{0, 1, 1, 2, 0},
	} {
		r := &run{plans: plans, left: plans[:c.left], pages: c.pages}
		if c.left > 0 {
			r.density = c.blobs * float64(c.heads*c.left) / r.span()
		}
		if got := r.page(c.heads); got < c.want-1 || got > c.want {
			t.Errorf("%+v: %d blobs", c, got)
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
		if len(neighbors(marked(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), at...), 1)[0].plans) < 90 {
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

// TestStartedPlans searches with markers that come and go.
func TestStartedPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		var in store
		s := &in.started
		open := func(id uuid.UUID, etag string, status workflow.Status) candidate {
			c := candidate{planBlobs: planBlobs{keys: prefix("p").plan(id), marker: &blob.Item{Properties: blob.Properties{ETag: etag}}, entry: &blob.Item{}}}
			c.result.State.Status = status
			return c
		}
		// run runs a search that lists the candidates, and looks at those that the memory leaves.
		run := func(f storage.Filters, all ...candidate) (looked []uuid.UUID) {
			listed := func(yield func(candidate, error) bool) {
				for _, c := range all {
					if !yield(c, nil) {
						return
					}
				}
			}
			for c, err := range (search{store: &in, f: f}).notStarted(listed) {
				must(t, err)
				looked = append(looked, c.keys.plan)
				search{store: &in}.noteStarted(c)
			}
			time.Sleep(time.Minute)
			return looked
		}
		expect := func(what string, got []uuid.UUID, want ...uuid.UUID) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: looked at %v, want %v", what, got, want)
			}
		}
		now := time.Now()
		fresh, running, old := idAt(now, 1), idAt(now, 2), idAt(now.Add(-48*time.Hour), 3)
		polls := storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}}
		near := polls
		near.After = now.Add(-24 * time.Hour)
		all := []candidate{open(fresh, "1", workflow.NotStarted), open(running, "2", workflow.Running), open(old, "3", workflow.Failed)}

		expect("the first search", run(polls, all...), fresh, running, old)
		expect("the second", run(polls, all...), fresh)
		expect("another status", run(storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}, all...), fresh, running, old)
		expect("a marker that was made anew", run(polls, open(running, "9", workflow.NotStarted), all[2]), running)
		expect("which then starts", run(polls, open(running, "9", workflow.Running), all[2]), running)
		expect("and is known", run(polls, open(running, "9", workflow.Running), all[2]))

		expect("near days, without its marker", run(near))
		if want := []uuid.UUID{old}; !slices.Equal(slices.Collect(maps.Keys(s.markers)), want) {
			t.Errorf("the memory has %v, want only %v", s.markers, want)
		}
		limited := polls
		limited.Limit = 1
		run(limited)
		if len(s.markers) != 1 {
			t.Errorf("a search that may have ended early has made the memory forget")
		}
		for range (search{store: &in, f: polls}).notStarted(func(yield func(candidate, error) bool) { yield(candidate{}, storage.ErrUnavailable) }) {
		}
		if len(s.markers) != 1 {
			t.Errorf("a search that failed has made the memory forget")
		}
		time.Sleep(2*time.Hour - 3*time.Minute) // which have passed since it was listed
		run(near)
		if len(s.markers) != 1 {
			t.Error("the memory has forgotten a marker after two hours")
		}
		run(near)
		if len(s.markers) != 0 {
			t.Errorf("what no search lists is remembered: %v", s.markers)
		}

		broken := open(running, "2", workflow.Running)
		broken.err = storage.ErrCorrupt
		unmarked := open(old, "3", workflow.Running)
		unmarked.marker = nil
		earlier := open(fresh, "1", workflow.Completed)
		earlier.marker.LastModified = now
		absent := open(fresh, "1", workflow.Completed)
		absent.entry = nil
		for range 2 {
			expect("what can't be known", run(polls, broken, unmarked, earlier, absent), running, old, fresh, fresh)
		}

		for i := range maxStarted {
			s.markers[listing.IDOf(uint64(i))] = startedMarker{"1", time.Now()}
		}
		far := storage.Filters{ByStatus: polls.ByStatus, After: now.Add(24 * time.Hour)}
		for range 2 {
			expect("in a full memory", run(far, open(running, "1", workflow.Running)), running)
		}
		known := listing.IDOf(7)
		expect("in a full memory, anew", run(far, open(known, "2", workflow.Running)), known)
		expect("in a full memory, again", run(far, open(known, "2", workflow.Running)))
		if len(s.markers) != maxStarted {
			t.Errorf("the memory has %d markers", len(s.markers))
		}
	})
}
