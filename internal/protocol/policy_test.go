package protocol

import "testing"

// The model of a policy of retention: a record that operators set and remove, and processes that claim steps in it and
// remove days by it, as package storage/retention says. Time is discrete; anything happens any number of times in a tick.
// Processes die, and pause anywhere for any time.

// The times of the model, in ticks.
const (
	policyDelay = 2 // between a change and the first step
	policyTTL   = 1 // of a claim
)

// policing is a situation. There is but one: two processes.
type policing struct {
	mutant
	search[policyState]
}

// strictness is what a policy does with the days in question.
type strictness uint8

const (
	noPolicy strictness = iota
	laxPolicy
	strictPolicy // it removes them
)

// policyState is a state of the record and the processes.
type policyState struct {
	stored  strictness
	setAge  uint8 // of the last change, whatever the record says
	noteAge uint8 // of the version of the note
	known   bool  // the record says when the policy was set:
	written uint8 // that long ago
	claimed bool
	nodes   [2]policyNode
	outcome
}

// policyNode is a process.
type policyNode struct {
	at     policyPlace
	policy strictness // that it has read
	match  bool       // its version of the note is the stored one
	former bool       // the policy was changed since it read it
	twice  bool       // it has removed a day since
}

type policyPlace uint8

const (
	policyIdle policyPlace = iota
	policyMay              // it has read the note, and a step may begin
	policyWorks
	policyLooked // at the note, and is about to remove a day
)

// The promises of a policy, as they are broken.
var (
	policyEarly  = breaking("a day is removed less than a day after its policy was set")
	policyTwice  = breaking("two processes do a step at once")
	policyFormer = breaking("two days are removed by a policy that was changed before")
	policyBack   = breaking("a policy comes back that was changed")
	policyNever  = breaking("no step of a policy can begin any more")
)

// The rules of a policy, as docs of package storage/retention say them.
const (
	policyWaits    rule = "R1: a step does not wait after a change"
	policyAnew     rule = "R1: a change keeps the time of the policy before"
	policyClaims   rule = "R2: a step begins although another is claimed"
	policyMatches  rule = "R2: a claim replaces any version"
	policyEnds     rule = "R2: a claim never ends"
	policyLooks    rule = "R3: a step does not look at the note before each day"
	policyReported rule = "R4: a report replaces any version"
)

// begins reports whether a step may begin, by the note alone.
func (p *policing) begins(st *policyState) bool {
	set := st.noteAge
	if st.known {
		set = st.written
	}
	free := !st.claimed || st.noteAge >= policyTTL && !p.lacks(policyEnds)
	return (set >= policyDelay || p.lacks(policyWaits)) && (free || p.lacks(policyClaims))
}

// write stores the record of a node, which keeps what the node has read.
func (p *policing) write(st *policyState, i int, claimed bool) {
	n := &st.nodes[i]
	p.breaks(&st.outcome, policyBack, n.former)
	if !st.known {
		st.known, st.written = true, st.noteAge
	}
	st.stored, st.claimed, st.noteAge = n.policy, claimed, 0
	for j := range st.nodes {
		st.nodes[j].match = i == j
	}
}

func (p *policing) steps(from policyState, yield func(move, policyState)) {
	step := func(i int, what string, helps bool, change func(st *policyState)) {
		next := from
		change(&next)
		yield(move{i, -1, what, helps}, next)
	}
	step(-1, "time passes", true, func(st *policyState) { st.setAge++; st.noteAge++; st.written++ })
	for to, what := range []string{"the policy is removed", "a lax policy is set", "a strict policy is set"} {
		step(-1, what, false, func(st *policyState) {
			st.stored, st.setAge, st.noteAge, st.claimed = strictness(to), 0, 0, false
			st.known = st.known && p.lacks(policyAnew)
			for i := range st.nodes {
				st.nodes[i].match, st.nodes[i].former = false, true
			}
		})
	}
	for i := range from.nodes {
		p.node(&from, i, func(what string, change func(st *policyState, n *policyNode)) {
			step(i, what, i == 0 && what != "dies", func(st *policyState) { change(st, &st.nodes[i]) })
		})
	}
}

// node yields the steps of a process.
func (p *policing) node(from *policyState, i int, step func(what string, change func(st *policyState, n *policyNode))) {
	n := from.nodes[i]
	other := from.nodes[1-i]
	if n.at != policyIdle {
		step("dies", func(_ *policyState, n *policyNode) { *n = policyNode{} })
	}
	switch n.at {
	case policyIdle:
		if from.stored != noPolicy && p.begins(from) {
			step("reads that a step may begin", func(st *policyState, n *policyNode) {
				*n = policyNode{at: policyMay, policy: st.stored, match: true}
			})
		}
	case policyMay:
		if !n.match && !p.lacks(policyMatches) {
			step("is refused the claim", func(_ *policyState, n *policyNode) { *n = policyNode{} })
			break
		}
		step("claims the step", func(st *policyState, n *policyNode) {
			p.breaks(&st.outcome, policyTwice, other.at >= policyWorks && other.match && st.noteAge < policyTTL)
			n.at = policyWorks
			p.write(st, i, true)
		})
	case policyWorks:
		if n.match || p.lacks(policyLooks) {
			step("looks at the note", func(_ *policyState, n *policyNode) { n.at = policyLooked })
		}
		if n.match || p.lacks(policyReported) {
			step("reports the step", func(st *policyState, n *policyNode) {
				p.write(st, i, false)
				*n = policyNode{}
			})
		} else {
			step("sees that the note has changed", func(_ *policyState, n *policyNode) { *n = policyNode{} })
		}
	case policyLooked:
		step("removes a day", func(st *policyState, n *policyNode) {
			strict := n.policy == strictPolicy
			p.breaks(&st.outcome, policyEarly, strict && !n.former && st.setAge < policyDelay)
			p.breaks(&st.outcome, policyFormer, strict && n.former && n.twice)
			n.at, n.twice = policyWorks, n.former
		})
	}
}

// tidy stops counting where more makes no difference.
func (p *policing) tidy(st *policyState) {
	most := uint8(policyDelay)
	st.setAge, st.noteAge, st.written = min(st.setAge, most), min(st.noteAge, most), min(st.written, most)
	if !st.known {
		st.written = 0
	}
	for i := range st.nodes {
		if st.nodes[i].at == policyIdle {
			st.nodes[i] = policyNode{}
		}
	}
}

// lives says that node 1 can do a step, by its own steps and as time passes.
func (p *policing) lives() (breach, func(*policyState) bool) {
	return policyNever, func(st *policyState) bool {
		return st.stored != strictPolicy || st.nodes[0].at == policyLooked && !st.nodes[0].former
	}
}

// TestPolicy explores the model to its end.
func TestPolicy(t *testing.T) { holds(t, []*policing{{}}) }

// policyNeeds says for each rule which promise is broken without it.
var policyNeeds = needs{
	{&policing{}, policyEarly, rules{policyWaits, policyAnew}},
	{&policing{}, policyTwice, rules{policyClaims, policyMatches}},
	{&policing{}, policyNever, rules{policyEnds}},
	{&policing{}, policyFormer, rules{policyLooks}},
	{&policing{}, policyBack, rules{policyReported}},
}
