package protocol

import (
	"slices"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// order is the model of the order in which a node gives turns (T8). It knows some of the plans that wait for the same key; the
// first one has a second key. Other nodes take turns, give them back and claim plans at any time. That the plans of one node
// get no more turns than there are is shown by the model of turns.
type order struct {
	plans int

	mutant
	search[orderState]
}

// orderState is a state of the model. The plans are in the order of their IDs.
type orderState struct {
	plans [mostTurns]orderPlan
	room  [mostKeys]uint8
	full  [mostKeys]bool // of the round: there was no room
	outcome
}

type orderPlan struct {
	at     orderPlace
	known  bool
	able   bool  // the node can begin it now
	asleep bool  // until its next look, because it had no turn
	looked bool  // of the round
	owes   uint8 // the older plans that the node could have begun when it looked at this one, one bit each
	other  bool  // of the round: its second key had no room, or its claim has failed
}

type orderPlace uint8

const (
	orderWaits orderPlace = iota
	orderAsks             // claimed by the node
	orderOver             // it has its turn, or another node has claimed it
)

// The promises of the order, as they are broken.
var (
	orderOvertaken = breaking("a node gives a turn to a plan, and not to an older one that it could begin")
	orderStarved   = breaking("a plan that a node can begin never gets its turn")
)

// The rules of the order.
const (
	orderOldest rule = "T8: a node takes the plans in any order"
	orderFull   rule = "T8: a node reads a key again that had no room for an older plan"
	orderFails  rule = "T8: a node reads a key again in which an owner has found no room"
	orderOne    rule = "T8: a node claims a plan while an older one with the same key has no turn yet"
	orderWakes  rule = "T8: a plan that sleeps for want of a turn is looked at when its time has come"
	orderPasses rule = "T8: a plan that a node can't begin holds up those behind it"
)

func (x *order) keys(p int) []int {
	if p == 0 {
		return []int{0, 1}
	}
	return []int{0}
}

func (x *order) steps(from orderState, yield func(move, orderState)) {
	do := func(p int, what string, helps bool, change func(*orderState, *orderPlan)) {
		next := from
		change(&next, &next.plans[max(p, 0)])
		yield(move{nowhere, p, what, helps}, next)
	}
	for k, room := range from.room {
		if room > 0 {
			do(-1, "another node takes a turn", false, func(st *orderState, _ *orderPlan) { st.room[k]-- })
		}
		if int(room) < 2-k {
			do(-1, "a turn is given back", true, func(st *orderState, _ *orderPlan) { st.room[k]++ })
		}
	}
	for p, plan := range from.plans[:x.plans] {
		if plan.at != orderWaits {
			continue
		}
		if !plan.known {
			do(p, "is found", true, func(_ *orderState, plan *orderPlan) { plan.known = true })
		}
		if plan.asleep {
			do(p, "has slept", true, func(_ *orderState, plan *orderPlan) { plan.asleep = false })
		}
		do(p, "can be begun, or no longer", false, func(_ *orderState, plan *orderPlan) { plan.able = !plan.able })
		do(p, "is claimed by another node", false, func(_ *orderState, plan *orderPlan) { *plan = orderPlan{at: orderOver} })
	}
	asks := slices.IndexFunc(from.plans[:], func(p orderPlan) bool { return p.at == orderAsks })
	if asks < 0 || x.lacks(orderOne) {
		if asks < 0 {
			do(-1, "the node begins a round", true, func(st *orderState, _ *orderPlan) { st.round() })
		}
		for p := range x.plans {
			if x.may(&from, p) {
				x.look(&from, p, do)
				if !x.lacks(orderOldest) {
					break
				}
			}
		}
	}
	for p, plan := range from.plans[:x.plans] {
		if plan.at == orderAsks {
			do(p, "asks for its turns", true, func(st *orderState, plan *orderPlan) { x.ask(st, plan, p) })
		}
	}
}

// round forgets what the node has seen in the round before.
func (st *orderState) round() {
	st.full = [mostKeys]bool{}
	for i := range st.plans {
		st.plans[i].looked, st.plans[i].other = false, false
	}
}

// may reports whether the node looks at a plan.
func (x *order) may(st *orderState, p int) bool {
	plan := &st.plans[p]
	held := x.lacks(orderPasses) && slices.ContainsFunc(st.plans[:p], func(q orderPlan) bool { return q.known && q.at == orderWaits })
	return plan.at == orderWaits && plan.known && plan.able && !plan.looked && !held && (!plan.asleep || !x.lacks(orderWakes))
}

// look is a look of the node at a plan: it reads the keys, and claims the plan if there is room.
func (x *order) look(from *orderState, p int, do func(int, string, bool, func(*orderState, *orderPlan))) {
	for _, k := range x.keys(p) {
		if from.full[k] || from.room[k] == 0 {
			do(p, "is looked at and has no room", true, func(st *orderState, plan *orderPlan) {
				plan.looked, plan.other = true, k == 1
				st.full[k] = !x.lacks(orderFull)
			})
			return
		}
	}
	do(p, "is claimed", true, func(st *orderState, plan *orderPlan) {
		plan.at, plan.looked = orderAsks, true
		for q, older := range st.plans[:p] {
			if older.at != orderOver && older.known && older.able && !older.other {
				plan.owes |= 1 << q
			}
		}
	})
	do(p, "is not claimed, for its claim fails", false, func(_ *orderState, plan *orderPlan) { plan.looked, plan.other = true, true })
}

// ask is the take of all turns of a plan, or of none.
func (x *order) ask(st *orderState, plan *orderPlan, p int) {
	for _, k := range x.keys(p) {
		if st.room[k] == 0 {
			plan.at, plan.asleep, plan.other, plan.owes = orderWaits, true, k == 1, 0
			st.full[k] = !x.lacks(orderFails)
			return
		}
	}
	for _, k := range x.keys(p) {
		st.room[k]--
	}
	for q, older := range st.plans[:p] {
		x.breaks(&st.outcome, orderOvertaken, plan.owes&(1<<q) != 0 && older.at != orderOver && !older.other)
	}
	*plan = orderPlan{at: orderOver}
}

func (x *order) first() (st orderState) {
	for p := x.plans; p < mostTurns; p++ {
		st.plans[p].at = orderOver
	}
	return st
}

func (x *order) lives() (breach, func(*orderState) bool) {
	return orderStarved, func(st *orderState) bool {
		return !slices.ContainsFunc(st.plans[:], func(p orderPlan) bool { return p.at != orderOver && p.able })
	}
}

// TestTurnOrder explores the order of turns.
func TestTurnOrder(t *testing.T) {
	list := []*order{{plans: 2}, {plans: 3}}
	holds(t, list[:efforttest.Pick(1, 2, 2)])
}

// orderNeeds says for each rule which promise is broken without it.
var orderNeeds = needs{
	{&order{plans: 2}, orderOvertaken, rules{orderOldest, orderFull, orderFails, orderOne, orderWakes}},
	{&order{plans: 2}, orderStarved, rules{orderPasses}},
}
