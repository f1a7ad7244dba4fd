package protocol

import (
	"slices"
	"testing"
)

// waiters is the model of plans that are noted as waiting (T10). They share a key with one turn, and who looks for one plan knows
// of no other: nodes, queues, engines that are alone. Two may look for a plan at once. After its turn, the youngest plan is
// replaced by another one, so there is always a younger one.
type waiters struct {
	plans int

	mutant
	search[waitState]
}

// waitState is a state of the model. The plans are in the order of their IDs.
type waitState struct {
	plans  [mostTurns]waitPlan
	holder int8 // or noHolder
	outcome
}

const noHolder = -1

type waitPlan struct {
	has, over bool // it has its turn, or has had it
	dead      bool // nobody looks for it any more
	noted     bool // in the record
	note      waitNote
}

// waitNote is a note about a plan that is about to be written.
type waitNote struct {
	begun, waits bool // the record was read, and then that the plan waits
	match        bool // the record is as it was when it was read
}

func (p waitPlan) waits() bool { return !p.has && !p.over }

// The promises of notes, as they are broken.
var (
	waitOvertaken = breaking("a plan gets a turn for which an older one is noted as waiting")
	waitNoted     = breaking("a plan is noted as waiting when it has its turn, or has had it")
	waitLost      = breaking("plans wait for a turn that nobody takes")
)

// The rules of notes.
const (
	waitHeeds    rule = "T10: a plan takes a turn for which an older one is noted"
	waitOlder    rule = "T10: a plan takes no turn for which a younger one is noted"
	waitEnds     rule = "T10: a note does not end"
	waitEvidence rule = "T10: a plan is noted without a look whether it waits"
	waitMatch    rule = "T10: a note names no version"
	waitRemoves  rule = "T10: who takes a turn leaves the plan's note"
)

func (x *waiters) steps(from waitState, yield func(move, waitState)) {
	do := func(p int, what string, helps bool, change func(*waitState, *waitPlan)) {
		next := from
		change(&next, &next.plans[p])
		yield(move{nowhere, p, what, helps}, next)
	}
	for p, plan := range from.plans[:x.plans] {
		switch room := plan.waits() && from.holder == noHolder && !x.awaited(&from, p); {
		case plan.has:
			do(p, "ends", true, func(st *waitState, plan *waitPlan) {
				*plan = waitPlan{over: p < x.plans-1, dead: plan.dead, noted: plan.noted, note: plan.note}
				st.holder = noHolder
				st.moves()
			})
		case plan.dead:
		case room:
			do(p, "takes the turn", true, func(st *waitState, _ *waitPlan) { x.take(st, p) })
		case from.holder > int8(p) && !plan.note.begun: // so does a node that does not know yet that the plan has ended
			do(p, "finds that a younger plan has the turn", true, func(_ *waitState, plan *waitPlan) { plan.note = waitNote{begun: true, match: true} })
		}
		if plan.note.begun && !plan.note.waits {
			do(p, "is looked at", true, func(_ *waitState, plan *waitPlan) {
				if plan.note.waits = plan.waits() || x.lacks(waitEvidence); !plan.note.waits {
					plan.note = waitNote{}
				}
			})
		}
		if plan.note.waits {
			do(p, "is noted, unless the record has changed", true, func(st *waitState, plan *waitPlan) { x.write(st, plan) })
		}
		if plan.waits() && !plan.dead && p < x.plans-1 {
			do(p, "is left alone by whoever looked for it", false, func(_ *waitState, plan *waitPlan) { plan.dead = true })
		}
		if plan.dead && plan.noted && !x.lacks(waitEnds) {
			do(p, "has its note's time pass", true, func(_ *waitState, plan *waitPlan) { plan.noted = false })
		}
	}
}

// awaited reports whether a plan finds no room because another one is noted.
func (x *waiters) awaited(st *waitState, p int) bool {
	before := func(q waitPlan) bool { return q.noted }
	if x.lacks(waitHeeds) {
		return false
	}
	return slices.ContainsFunc(st.plans[:p], before) || x.lacks(waitOlder) && slices.ContainsFunc(st.plans[p+1:], before)
}

// take is the write with which a plan takes the turn.
func (x *waiters) take(st *waitState, p int) {
	for _, q := range st.plans[:p] {
		x.breaks(&st.outcome, waitOvertaken, q.noted)
	}
	plan := &st.plans[p]
	plan.has, plan.noted, st.holder = true, plan.noted && x.lacks(waitRemoves), int8(p)
	x.breaks(&st.outcome, waitNoted, plan.noted)
	st.moves()
}

func (x *waiters) write(st *waitState, plan *waitPlan) {
	if plan.note.match || x.lacks(waitMatch) {
		plan.noted = true
		st.moves()
		x.breaks(&st.outcome, waitNoted, !plan.waits())
	}
	plan.note = waitNote{}
}

// moves makes the version of the record outdated.
func (st *waitState) moves() {
	for p := range st.plans {
		st.plans[p].note.match = false
	}
}

func (x *waiters) first() (st waitState) {
	st.holder = noHolder
	return st
}

func (x *waiters) lives() (breach, func(*waitState) bool) {
	return waitLost, func(st *waitState) bool {
		return !slices.ContainsFunc(st.plans[:x.plans-1], func(p waitPlan) bool { return !p.over && !p.dead }) && st.holder == int8(x.plans-1)
	}
}

// TestTurnWaiters explores plans that are noted as waiting.
func TestTurnWaiters(t *testing.T) { holds(t, []*waiters{{plans: 2}, {plans: 3}}) }

// waitNeeds says for each rule which promise is broken without it.
var waitNeeds = needs{
	{&waiters{plans: 2}, waitOvertaken, rules{waitHeeds}},
	{&waiters{plans: 2}, waitNoted, rules{waitEvidence, waitMatch, waitRemoves}},
	{&waiters{plans: 2}, waitLost, rules{waitEnds}},
	{&waiters{plans: 3}, waitLost, rules{waitOlder}},
}
