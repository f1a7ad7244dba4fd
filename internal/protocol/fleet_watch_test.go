package protocol

import (
	"fmt"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// watching is the model of who is dead. A node renews its record, and a judge polls the records and removes
// those that are too old. The service fails for both at any time. All durations are in ticks. Any number of
// things may happen in one tick, in any order.
//
// Without freezes, the node renews its record whenever the service lets it, so a removal is a mistake. With
// freezes it may pause for any time; a removal is a mistake if the record is not older than the TTL by then.
// The judge may pause at any time, and its removal may arrive late.
type watching struct {
	interval int // between two heartbeats, and between two polls
	retry    int // the longest time from the failure of one to the next try
	slow     int // the longest time that a heartbeat takes while the service works
	ttl      int
	gap      int // the longest time between two polls that does not end a watch
	served   int // how long the service works, at least, between two outages
	freezes  bool
	trusting bool // mutant: the judge does not ask how long it has watched
	careless bool // mutant: a removal names no version

	search[watchState, move]
}

// watchState is a state of the model of who is dead.
type watchState struct {
	age     uint8 // of the record
	beat    uint8 // until the next heartbeat
	sent    uint8 // one more than the time since a heartbeat was sent that is under way; 0: none is
	since   uint8 // the last poll
	watched uint8 // how long the judge has polled without a gap
	poll    uint8 // until the next poll
	up      bool
	upFor   uint8
	decided bool // a removal is under way
	renewed bool // the record was renewed since
	mistake bool
}

// dead is the rule: a record is too old if both its age and the watch are longer than the TTL. The watch is the
// time for which the judge has polled without a gap.
func dead(age, watched, ttl int) bool { return min(age, watched) > ttl }

func (w *watching) String() string {
	s := fmt.Sprintf("interval %d, retry %d, slow %d, TTL %d, gap %d, served %d", w.interval, w.retry, w.slow, w.ttl, w.gap, w.served)
	if w.freezes {
		s += ", freezes"
	}
	if w.trusting {
		s += "; no watch"
	}
	if w.careless {
		s += "; no version"
	}
	return s
}

func (w *watching) steps(st watchState, yield func(move, watchState)) {
	step := func(what string, change func(*watchState)) {
		next := st
		change(&next)
		yield(move{-1, -1, what, false}, next)
	}
	switch {
	case !st.up:
		step("the service works again", func(s *watchState) { s.up, s.upFor = true, 0 })
	case int(st.upFor) >= w.served:
		step("the service fails", func(s *watchState) { s.up = false })
	}
	if st.sent == 0 && st.beat == 0 {
		step("a heartbeat is sent", func(s *watchState) { s.sent = 1 })
	}
	if st.sent > 0 && st.up {
		step("a heartbeat takes effect", func(s *watchState) {
			s.age, s.beat, s.renewed = 0, uint8(max(w.interval-int(s.sent)+1, 0)), true
			s.sent = 0
		})
	}
	if st.sent > 0 && !st.up {
		for after := 1; after <= w.retry; after++ {
			step(fmt.Sprintf("a heartbeat fails, the next one in %d", after), func(s *watchState) { s.beat, s.sent = uint8(after), 0 })
		}
	}
	switch {
	case st.poll > 0:
	case st.up:
		step("a poll", func(s *watchState) {
			if int(s.since) > w.gap {
				s.watched = 0
			}
			s.since, s.poll = 0, uint8(w.interval)
			watched := int(s.watched)
			if w.trusting {
				watched = w.ttl + 1
			}
			if dead(int(s.age), watched, w.ttl) {
				s.decided, s.renewed = true, false
			}
		})
	default:
		for after := 1; after <= w.retry; after++ {
			step(fmt.Sprintf("a poll fails, the next one in %d", after), func(s *watchState) { s.poll = uint8(after) })
		}
	}
	if st.decided && st.up {
		step("the removal arrives", func(s *watchState) {
			s.decided = false
			s.mistake = (!s.renewed || w.careless) && (!w.freezes || int(s.age) <= w.ttl)
		})
	}
	if st.sent == 0 && st.beat > 0 || st.sent > 0 && st.up && int(st.sent) <= w.slow || w.freezes {
		step("a tick passes", func(s *watchState) {
			s.age++
			s.since++
			s.watched++
			s.upFor++
			s.beat -= min(s.beat, 1)
			if s.sent > 0 {
				s.sent++
			}
			s.poll -= min(s.poll, 1)
		})
	}
}

// tidy stops counting where more makes no difference.
func (w *watching) tidy(s *watchState) {
	s.age, s.watched = min(s.age, uint8(w.ttl)+1), min(s.watched, uint8(w.ttl)+1)
	s.sent = min(s.sent, uint8(w.slow)+1)
	s.since, s.upFor = min(s.since, uint8(w.gap)+1), min(s.upFor, uint8(w.served))
	if !s.up {
		s.upFor = 0
	}
	s.renewed = s.renewed && s.decided
}

func (w *watching) regress(_, to *watchState) string {
	if to.mistake {
		return "a record is removed that must stay"
	}
	return ""
}

func (w *watching) check(*watchState) string { return "" }

func (w *watching) describe(m move) string { return m.what }

// TestFleetWatch holds rule F10. No record of a living node is removed under three conditions: the interval, the
// time that a heartbeat takes, and the gap are together not longer than the TTL; a retry and a heartbeat take less
// than an interval; and between two outages the service works for longer than a retry and a heartbeat take. The
// test shows that each condition is needed.
func TestFleetWatch(t *testing.T) {
	for _, c := range []struct {
		watching
		wrong, long bool
	}{
		{watching: watching{interval: 4, retry: 2, ttl: 12, gap: 8, served: 3}},
		{watching: watching{interval: 4, retry: 2, slow: 1, ttl: 12, gap: 7, served: 4}},
		{watching: watching{interval: 4, retry: 2, slow: 1, ttl: 12, gap: 7, served: 4, freezes: true}},
		{watching: watching{interval: 20, retry: 7, slow: 6, ttl: 60, gap: 33, served: 14}, long: true}, // the defaults of package fleet, in half seconds
		{watching: watching{interval: 10, retry: 5, slow: 4, ttl: 30, gap: 16, served: 10}, long: true}, // in seconds
		{watching: watching{interval: 10, retry: 5, slow: 4, ttl: 30, gap: 17, served: 10}, long: true, wrong: true},
		{watching: watching{interval: 4, retry: 2, ttl: 12, gap: 9, served: 3}, wrong: true},
		{watching: watching{interval: 4, retry: 2, slow: 1, ttl: 12, gap: 8, served: 4}, wrong: true},
		{watching: watching{interval: 4, retry: 2, slow: 1, ttl: 12, gap: 7, served: 3}, wrong: true},
		{watching: watching{interval: 4, retry: 3, slow: 1, ttl: 12, gap: 7, served: 5}, wrong: true},
		{watching: watching{interval: 4, retry: 2, ttl: 12, gap: 8, served: 3, trusting: true}, wrong: true},
		{watching: watching{interval: 4, retry: 2, ttl: 12, gap: 8, served: 3, freezes: true, careless: true}, wrong: true},
	} {
		t.Run(c.String(), func(t *testing.T) {
			if c.long && !efforttest.Long() {
				t.Skip("takes seconds; run with PLANVAULT_LONG=1")
			}
			t.Parallel()
			w := c.watching
			w.visit(&w, watchState{beat: uint8(w.interval), up: true})
			t.Logf("%d states, %d steps, %d steps to a mistake: %q", w.report.states, w.report.steps, len(w.report.path), w.report.path)
			if wrong := w.report.violation != ""; wrong != c.wrong {
				t.Errorf("a mistake is possible: %t, want %t", wrong, c.wrong)
			}
		})
	}
}
