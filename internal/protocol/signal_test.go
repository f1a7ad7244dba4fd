package protocol

import "testing"

// signals is the model of how signals reach a plan of one action whose plugin waits for them. Nodes run the plan, let it sleep
// and wake it. They die and join again between any two steps. That a former owner's writes are refused is shown by the model of
// a fleet.
type signals struct {
	mutant
	search[signalState]
}

// mostSignals bounds the signals of the model.
const mostSignals = 2

// signalState is a state of the model.
type signalState struct {
	notes   uint8 // the signals that are stored
	sending bool  // somebody has found the plan open, and is about to store one
	owner   int8  // a node, or nowhere
	asleep  bool
	over    bool
	last    uint8 // stored with a plan that sleeps: the last signal that need not wake it
	seen    uint8 // stored with the action: the last signal that its call could see
	called  bool  // it has been
	told    uint8 // the last signal that was there for a call whose outcome is stored
	nodes   [2]signalNode
	outcome
}

type signalNode struct {
	alive bool
	look  uint8 // the last signal at its last look
	news  bool  // the last look showed more than the one before
	at    signalPlace
	sees  uint8 // the last signal that is there for the call
	known bool  // it is to wake the plan
	last  uint8 // the number that it knows
}

type signalPlace uint8

const (
	signalIdle signalPlace = iota
	signalCalls
	signalSleeps // the entry that lets the plan sleep is under way
)

// The promises of signals, as they are broken.
var (
	signalLost    = breaking("a signal reaches no call of a plan that waits, or stays after its end")
	signalEndless = breaking("a plan goes on because of a signal that its plugin has seen")
	signalEarly   = breaking("signals are removed from an open plan")
)

// The rules of signals.
const (
	signalBegin  rule = "a call's number is that of its end"
	signalStored rule = "the number that is stored with a sleep is that of the last look"
	signalLevel  rule = "a node compares its look with the one before"
	signalRead   rule = "a node wakes a plan by the number that it knows, and does not look at the stored one"
	signalStale  rule = "a call that follows sees what the look of its node has, even if that is less"
	signalMemory rule = "an action that waits is called again only when its time has come"
	signalFinal  rule = "an owner removes the signals before it stores the end"
	signalTidy   rule = "nobody but the owner removes the signals of a plan that has ended"
)

func (x *signals) steps(from signalState, yield func(move, signalState)) {
	do := func(i int, what string, helps bool, change func(st *signalState)) {
		next := from
		change(&next)
		yield(move{i, -1, what, helps}, next)
	}
	if !from.over && !from.sending && from.notes < mostSignals {
		do(nowhere, "somebody finds the plan open", false, func(st *signalState) { st.sending = true })
	}
	if from.sending {
		do(nowhere, "somebody stores a signal", true, func(st *signalState) { st.sending, st.notes = false, st.notes+1 })
	}
	for i, n := range from.nodes {
		step := func(what string, helps bool, change func(st *signalState, n *signalNode)) {
			do(i, what, helps, func(st *signalState) { change(st, &st.nodes[i]) })
		}
		if !n.alive {
			step("joins", true, func(_ *signalState, n *signalNode) { n.alive = true })
			continue
		}
		step("dies", false, func(_ *signalState, n *signalNode) { *n = signalNode{} })
		step("looks", true, func(st *signalState, n *signalNode) { n.news, n.look = st.notes > n.look, st.notes })
		switch {
		case from.over && from.notes > 0 && !x.lacks(signalTidy):
			step("removes the signals of a plan that has ended", true, func(st *signalState, _ *signalNode) { st.notes = 0 })
		case from.over:
		case from.owner == int8(i):
			x.own(n, &from, step)
		case from.owner >= 0 && !from.nodes[from.owner].alive:
			step("takes the plan", true, func(st *signalState, _ *signalNode) { st.owner = int8(i) })
		case from.asleep:
			x.wake(int8(i), n, &from, step)
		}
	}
}

// own yields the steps of an owner.
func (x *signals) own(n signalNode, from *signalState, step func(string, bool, func(*signalState, *signalNode))) {
	switch n.at {
	case signalCalls:
		step("stores that the plugin waits", true, func(st *signalState, n *signalNode) {
			st.seen, st.called, st.told, n.at = n.sees, true, max(st.told, n.sees), signalIdle
			if x.lacks(signalBegin) {
				st.seen = max(n.sees, n.look)
			}
		})
		step("ends the plan", false, func(st *signalState, n *signalNode) {
			x.breaks(&st.outcome, signalEarly, x.lacks(signalFinal) && st.notes > 0)
			st.over, st.owner, n.at = true, nowhere, signalIdle
		})
	case signalSleeps:
		step("lets the plan sleep", true, func(st *signalState, n *signalNode) {
			st.asleep, st.owner, st.last, n.at = true, nowhere, st.seen, signalIdle
			if x.lacks(signalStored) {
				st.last = max(st.seen, n.look)
			}
			n.known, n.last = true, st.last
		})
	default:
		call := func(what string, helps, early bool) {
			step(what, helps, func(st *signalState, n *signalNode) {
				x.breaks(&st.outcome, signalEndless, early && st.told >= st.notes)
				if n.at, n.sees = signalCalls, max(n.look, st.seen); x.lacks(signalStale) {
					n.sees = n.look
				}
			})
		}
		switch {
		case !from.called:
			call("calls the plugin", true, false)
		case n.look > from.seen && !x.lacks(signalMemory):
			call("calls the plugin because of a signal", true, true)
		default:
			call("calls the plugin at its time", false, false)
			step("sends the sleep", false, func(_ *signalState, n *signalNode) { n.at = signalSleeps })
		}
	}
}

// wake yields the steps of a node for a plan that sleeps.
func (x *signals) wake(self int8, n signalNode, from *signalState, step func(string, bool, func(*signalState, *signalNode))) {
	wakes := func(what string, helps, early bool) {
		step(what, helps, func(st *signalState, n *signalNode) {
			x.breaks(&st.outcome, signalEndless, early && st.told >= st.notes)
			st.owner, st.asleep, st.last, n.known, n.last = self, false, 0, false, 0
		})
	}
	wakes("wakes the plan at its time", false, false)
	due := n.known && n.look > n.last
	if x.lacks(signalLevel) {
		due = n.known && n.news
	}
	switch {
	case due && (n.look > from.last || x.lacks(signalRead)):
		wakes("wakes the plan because of a signal", true, true)
	case due:
		step("reads a plan that need not be woken", true, func(st *signalState, n *signalNode) { n.last = st.last })
	case !n.known:
		step("finds the plan asleep", true, func(st *signalState, n *signalNode) { n.known, n.last = true, st.last })
	}
}

func (x *signals) first() signalState {
	return signalState{nodes: [2]signalNode{{alive: true}, {alive: true}}}
}

func (x *signals) lives() (breach, func(*signalState) bool) {
	return signalLost, func(st *signalState) bool {
		return !st.sending && (st.over && st.notes == 0 || !st.over && st.told >= st.notes)
	}
}

// TestSignals explores how signals reach a plan.
func TestSignals(t *testing.T) { holds(t, []*signals{{}}) }

// signalNeeds says for each rule which promise is broken without it.
var signalNeeds = needs{
	{&signals{}, signalLost, rules{signalBegin, signalStored, signalLevel, signalMemory, signalTidy}},
	{&signals{}, signalEndless, rules{signalRead, signalStale}},
	{&signals{}, signalEarly, rules{signalFinal}},
}
