package azblob

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/planvault/azblob/internal/efforttest"
)

// everyMinute is a shelf of plans that come at a rate per minute, some at once, up to the end of the minute after
// 18:00. Minutes are those of IDs.
func everyMinute(rate float64, atOnce, minutes int) *shelf {
	const minute = 1 << 16 * time.Millisecond
	n := int(rate * float64(minutes))
	end := firstID(time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC))
	last := time.UnixMilli(int64(keyOf(end)/aMinute+1) << 16).UTC().Add(minute)
	s := newShelf(0, nil, nil)
	return newShelf(n, rand.New(rand.NewPCG(1, 1)), func(i int) time.Duration {
		return last.Sub(s.date) - time.Duration(float64(i/atOnce*atOnce+1)/rate*float64(minute)) + time.Duration(i%atOnce)*7*time.Millisecond
	})
}

// requestsAt returns how many requests a vault's first list of the newest plans takes at a time, with that of the days.
func (s *shelf) requestsAt(t *testing.T, now time.Time, limit int) int {
	t.Helper()
	s = &shelf{day: s.day, ids: s.in(window{day: s.day, from: firstID(s.date), to: firstID(now)})}
	scan := &scan{reader: s, page: 4*limit + burst, ahead: 10, limit: limit, aimed: true, now: now}
	n := 0
	for p, err := range scan.run(t.Context(), []window{s.whole()}) {
		if err != nil || p.keys.plan != s.ids[len(s.ids)-1-n] {
			t.Fatalf("plan %d of %d: %v, %v", n, limit, p.keys.plan, err)
		}
		if n++; n == limit {
			break
		}
	}
	return 1 + int(s.requests.Load())
}

// TestWindowsAtAnyMoment lists the newest of plans that come evenly, at moments throughout a minute: the newest minute has
// any number of plans, and 4 requests are always enough.
func TestWindowsAtAnyMoment(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	moments := func(t *testing.T, s *shelf, limit, within int, what string) {
		newest := keyOf(s.ids[len(s.ids)-1]) / aMinute << 16
		for i := range 64 {
			now := time.UnixMilli(int64(newest) + 1 + int64(i)<<10).UTC()
			if n := s.requestsAt(t, now, limit); n > within {
				t.Errorf("%s, limit %d, %v within the minute: %d requests, want at most %d", what, limit, now.UnixMilli()-int64(newest), n, within)
			}
		}
	}
	for _, limit := range []int{10, 50, 200} {
		for _, rate := range []float64{1, 1.05, 1.3, 1.5, 1.9, 2, 2.7, 3, 4, 5, 8, 14, 25, 40, 50, 90, 200, 760, 1000} {
			minutes := 4*limit + 20
			if limit == 200 && rate > 90 {
				continue // the same with more plans
			}
			moments(t, everyMinute(rate, 1, minutes), limit, 4, fmt.Sprintf("%v a minute", rate))
		}
	}
	// A part of a minute without plans does not say that its neighbors have none.
	moments(t, everyMinute(80, 30, 100), 10, 5, "30 at once, 80 a minute")
}

// TestWindowThatEndsWithinAMillisecond lists the plans before the newest one. A listing of groups shows the millisecond of
// that one, which has no other plan, so the newest minute has one plan less than it has milliseconds.
func TestWindowThatEndsWithinAMillisecond(t *testing.T) {
	const limit, minute = 10, 1 << 16 // of an ID, in milliseconds
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	first := time.UnixMilli(noon.UnixMilli() / minute * minute).Sub(noon.Truncate(24 * time.Hour))
	s := newShelf(60*limit, rand.New(rand.NewPCG(1, 1)), func(i int) time.Duration {
		return first + time.Duration(i/limit*minute+i%limit*6500)*time.Millisecond
	})
	w := s.whole()
	w.to = s.ids[len(s.ids)-1]
	if got := s.drain(t, w, 4*limit+burst, 10, limit, true); len(got) != limit || got[limit-1] != s.ids[len(s.ids)-1-limit] {
		t.Errorf("the list has %v", got)
	}
	if n := s.requests.Load(); n != 3 { // the minutes, the milliseconds of the last one, and a window
		t.Errorf("%d requests, want 3", n)
	}
}
