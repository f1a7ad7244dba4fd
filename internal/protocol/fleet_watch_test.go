package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// watching is the model of who is dead. A node renews its record. A judge looks at the records whenever it likes,
// and removes those that are too old. The service fails for both at any time. All durations are in ticks. Any
// number of things may happen in one tick, in any order.
//
// Without freezes, the node renews its record whenever the service lets it, so a removal is a mistake. With
// freezes it may pause for any time; a removal is a mistake if the record is not older than the TTL by then.
// A removal may arrive late.
type watching struct {
	interval int // between two heartbeats
	retry    int // the longest time from the failure of one to the next try
	slow     int // the longest time that a heartbeat takes while the service works
	ttl      int
	gap      int // the longest time between two looks that does not end a watch
	served   int // how long the service works, at least, between two outages
	freezes  bool

	mutant
	search[watchState]
}

// watchState is a state of the model of who is dead.
type watchState struct {
	age     uint8 // of the record
	beat    uint8 // until the next heartbeat
	sent    uint8 // one more than the time since a heartbeat was sent that is under way; 0: none is
	since   uint8 // the last look
	watched uint8 // how long the judge has looked without a gap
	up      bool
	upFor   uint8
	decided bool // a removal is under way
	renewed bool // the record was renewed since
	outcome
}

// The promise, as it is broken.
var removedAlive = breaking("a record is removed that must stay")

// The rules of the judge.
const (
	watchTrusts rule = "F10: the judge does not ask how long it has watched"
	watchNames  rule = "F10: a removal names no version"
)

// dead is the rule: a record is too old if both its age and the watch are longer than the TTL. The watch is the
// time for which the judge has looked without a gap.
func dead(age, watched, ttl int) bool { return min(age, watched) > ttl }

func (w *watching) steps(st watchState, yield func(move, watchState)) {
	step := func(what string, change func(*watchState)) {
		next := st
		change(&next)
		yield(move{nowhere, -1, what, false}, next)
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
	if st.up {
		step("a look", func(s *watchState) {
			if int(s.since) > w.gap {
				s.watched = 0
			}
			s.since = 0
			watched := int(s.watched)
			if w.lacks(watchTrusts) {
				watched = w.ttl + 1
			}
			if dead(int(s.age), watched, w.ttl) {
				s.decided, s.renewed = true, false
			}
		})
	}
	if st.decided && st.up {
		step("the removal arrives", func(s *watchState) {
			s.decided = false
			mistake := (!s.renewed || w.lacks(watchNames)) && (!w.freezes || int(s.age) <= w.ttl)
			w.breaks(&s.outcome, removedAlive, mistake)
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

func (w *watching) first() watchState { return watchState{beat: uint8(w.interval), up: true} }

// TestFleetWatch holds rule F10. It says exactly when no record of a living node is removed, whatever the outages
// and whenever the judge looks: the interval, the retry, twice the time that a heartbeat takes, and the gap are
// together not longer than the TTL, and between two outages the service works for longer than a retry and a
// heartbeat take.
//
// In the worst case an outage begins when a heartbeat is about to take effect, and a node has just looked. The next
// heartbeat fails just before the outage ends, after the whole gap, and its retry takes as long as it may.
func TestFleetWatch(t *testing.T) {
	runs, states := 0, 0
	for _, ttl := range efforttest.Pick([]int{10}, []int{12}, []int{10, 12, 13}) {
		for _, interval := range efforttest.Pick([]int{4}, []int{3, 4}, []int{3, 4, 5}) {
			for retry := 1; retry < interval; retry++ {
				for slow := range 3 {
					exact := ttl - interval - retry - 2*slow
					for gap := max(exact-1, 1); gap <= exact+1; gap++ {
						for served := retry + slow; served <= retry+slow+1; served++ {
							w := &watching{interval: interval, retry: retry, slow: slow, ttl: ttl, gap: gap, served: served}
							w.explore(w)
							runs, states = runs+1, states+w.report.states
							wrong, want := w.report.violation != "", gap > exact || served == retry+slow
							if wrong != want {
								t.Errorf("%s: a mistake is possible: %t, want %t\n  %s", name(w), wrong, want, strings.Join(w.report.path, "\n  "))
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d settings, %d states", runs, states)
}

// watchNeeds says for each rule in which situation which promise is broken without it.
var watchNeeds = needs{
	{&watching{interval: 4, retry: 1, slow: 1, ttl: 12, gap: 5, served: 3}, removedAlive, rules{watchTrusts}},
	{&watching{interval: 4, retry: 1, slow: 1, ttl: 12, gap: 5, served: 3, freezes: true}, removedAlive, rules{watchNames}},
}

// TestFleetFreezes lets nodes freeze.
func TestFleetFreezes(t *testing.T) {
	list := []*watching{
		{interval: 4, retry: 1, slow: 1, ttl: 12, gap: 5, served: 3, freezes: true},
		{interval: 20, retry: 7, slow: 1, ttl: 60, gap: 30, served: 9}, // half seconds
	}
	holds(t, list[:efforttest.Pick(1, 1, 2)])
}
