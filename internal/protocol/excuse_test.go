package protocol

import (
	"testing"

	"github.com/planvault/azblob/storage"
)

// excuses is the model of which attempts at an action count as crashes. Nodes take a plan of one action from owners that are
// marked as left. They drain, die, freeze, thaw, are evicted and start again between any two steps, any number of times. A
// frozen node takes no step and may be marked meanwhile; a dead one does not thaw. That a take sees the plan as of one
// moment is shown by the model of a fleet.
type excuses struct {
	once bool // the action has AtMost 1

	mutant
	search[excuseState]
}

// excuseState is a state of the model.
type excuseState struct {
	nodes        [mostNodes]excuseNode
	owner, maker uint8 // the owner of the plan, and of the last attempt
	open, counts bool  // the last attempt has no end, and counts
	crashes      uint8 // earlier attempts that count
	faults       uint8 // earlier attempts whose owner crashed or froze
	begun        bool  // an attempt of an action with AtMost 1 is stored, whatever became of it
	over         bool  // the action is final
	outcome
}

type excuseNode struct {
	phase          storage.Phase // of its record
	excused, fault bool          // the record says so; it crashed or froze
	at             excusePlace
	entry, part    bool // its version is the stored one
	excuses        bool // the last attempt
}

type excusePlace uint8

const (
	excuseIdle excusePlace = iota
	excuseTakes
	excuseFences
	excuseOwns
	excuseCalls
)

// The rules of what counts as a crash.
const (
	excuseDrains rule = "a death while draining counts as a crash"
	excuseEvicts rule = "an eviction by a person counts as a crash"
	excuseCounts rule = "a member that crashed or froze is excused"
	excuseOwn    rule = "a take from an excused owner excuses the attempts of earlier owners"
	excuseFormer rule = "a take excuses no attempt of an owner before the last"
	excuseTries  rule = "attempts that are excused, or were interrupted, do not count against AtMost"
	excuseSeen   rule = "the record of an excused member is removed before all that take have seen it"
)

func (x *excuses) steps(from excuseState, yield func(move, excuseState)) {
	for i := 0; i < len(from.nodes) && !from.over; i++ {
		n, self := from.nodes[i], uint8(i)
		do := func(what string, change func(st *excuseState, n *excuseNode)) {
			next := from
			change(&next, &next.nodes[i])
			yield(move{i, -1, what, false}, next)
		}
		mark := func(what string, excused, fault bool) {
			do(what, func(_ *excuseState, n *excuseNode) { n.phase, n.excused, n.fault = storage.PhaseLeft, excused, fault })
		}
		switch leaving := n.phase == storage.PhaseLeaving; {
		case n.phase != storage.PhaseLeft:
			mark("is marked as dead", leaving && !x.lacks(excuseDrains) || x.lacks(excuseCounts), !leaving)
			mark("is evicted", !x.lacks(excuseEvicts), false)
			do("drains", func(_ *excuseState, n *excuseNode) { n.phase = storage.PhaseLeaving })
		case self != from.owner && self != from.maker:
			do("starts anew", func(_ *excuseState, n *excuseNode) { *n = excuseNode{} })
		case x.lacks(excuseSeen):
			mark("is forgotten", false, n.fault)
		}
		x.act(from, self, do)
	}
}

// act yields the steps of a node for the plan.
func (x *excuses) act(from excuseState, self uint8, do func(string, func(*excuseState, *excuseNode))) {
	n := from.nodes[self]
	// store stores the entry or the action, unless somebody has stored it since it was read.
	store := func(what string, match func(*excuseNode) *bool, change func(st *excuseState, n *excuseNode)) {
		if !*match(&n) {
			do("meets a conflict", func(_ *excuseState, n *excuseNode) {
				*n = excuseNode{phase: n.phase, excused: n.excused, fault: n.fault}
			})
			return
		}
		do(what, func(st *excuseState, n *excuseNode) {
			for j := range st.nodes {
				*match(&st.nodes[j]) = false
			}
			*match(n) = true
			change(st, n)
		})
	}
	entry, part := func(n *excuseNode) *bool { return &n.entry }, func(n *excuseNode) *bool { return &n.part }
	switch n.at {
	case excuseIdle:
		excuses := from.nodes[from.maker].excused && (!x.lacks(excuseFormer) || from.maker == from.owner)
		if x.lacks(excuseOwn) {
			excuses = from.nodes[from.owner].excused
		}
		if n.phase == "" && (from.owner == self || from.nodes[from.owner].phase == storage.PhaseLeft) {
			do("reads the plan", func(st *excuseState, n *excuseNode) {
				n.at, n.entry, n.part, n.excuses = excuseTakes, true, true, excuses
			})
		}
	case excuseTakes:
		store("stores the entry", entry, func(st *excuseState, n *excuseNode) {
			st.owner, n.at = self, excuseFences
		})
	case excuseFences:
		store("stores the action", part, func(st *excuseState, n *excuseNode) {
			st.counts = st.counts && !n.excuses
			n.at, n.excuses = excuseOwns, false
		})
	case excuseOwns:
		crashes, faults := from.sum()
		spent := from.begun && !(x.lacks(excuseTries) && crashes == 0)
		if crashes > mostCrashes || spent {
			store("stores that the action has failed", part, func(st *excuseState, _ *excuseNode) {
				st.over = true
				x.breaks(&st.outcome, runBlamed, faults <= mostCrashes && !spent)
			})
			return
		}
		store("stores an attempt", part, func(st *excuseState, n *excuseNode) {
			st.crashes, st.faults = st.sum()
			st.maker, st.open, st.counts = self, true, true
			n.at = excuseCalls
			x.breaks(&st.outcome, runEndless, st.faults > mostCrashes)
			x.breaks(&st.outcome, runTooOften, st.begun)
			st.begun = x.once
		})
	case excuseCalls:
		store("stores the end of the action", part, func(st *excuseState, _ *excuseNode) { st.over = true })
		store("stores that the action was interrupted", part, func(st *excuseState, n *excuseNode) {
			st.open, st.counts, n.at = false, false, excuseOwns
		})
	}
}

// sum returns the attempts that count, and those whose owner crashed or froze.
func (st *excuseState) sum() (crashes, faults uint8) {
	count := func(n uint8, last bool) uint8 {
		if last {
			n++
		}
		return min(n, mostCrashes+1)
	}
	return count(st.crashes, st.counts), count(st.faults, st.open && st.nodes[st.maker].fault)
}

func (x *excuses) first() excuseState {
	return excuseState{nodes: [mostNodes]excuseNode{{at: excuseOwns, part: true}}}
}

// TestExcuses explores which attempts count as crashes.
func TestExcuses(t *testing.T) { holds(t, []*excuses{{}, {once: true}}) }

// excuseNeeds says for each rule which promise is broken without it.
var excuseNeeds = needs{
	{&excuses{}, runBlamed, rules{excuseDrains, excuseEvicts, excuseFormer, excuseSeen}},
	{&excuses{}, runEndless, rules{excuseCounts, excuseOwn}},
	{&excuses{once: true}, runTooOften, rules{excuseTries}},
}
