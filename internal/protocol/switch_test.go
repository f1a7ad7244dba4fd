package protocol

import (
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// switchover is a situation of the model of a switch from an account to its copy: the nodes of a fleet work on one plan, a
// follower copies it, somebody closes the source, clears it, mirrors what is left and opens the copy, and a node works on
// that. Any of them may stop for any time between two steps. The switch may die and begin again. A step of a node on the
// plan is one conditional write, after which it begins an action.
type switchover struct {
	nodes    int
	follower bool

	mutant
	search[switchState]
}

// mostSteps bounds how often the plan is written in either account.
const mostSteps = 2

// switchState is a state of the model.
type switchState struct {
	// The source.
	done   uint8 // steps of the plan
	closed bool
	noted  bool // the note says that nodes were evicted
	nodes  [2]switchNode
	// The copy.
	copied uint8 // steps that the follower or the switch has copied
	open   bool
	works  bool // a node works on it

	at     uint8 // the next step of the switch
	follow switchFollower
	outcome
}

// switchNode is a node of the source.
type switchNode struct {
	gone   bool // it works no more
	member bool // it has a record, or thinks that it has
	record bool // the record is there and not marked as left
	fresh  bool // it has looked within its TTL
	sends  bool // a claim or take is under way
	works  bool // it owns the plan
	match  bool // its version is the stored one
}

// switchFollower is the follower in its round.
type switchFollower struct {
	at    uint8 // what it does next: begin, read the copy, read the source, write
	value uint8 // of the source
	match bool  // its version of the copy is the stored one
	later bool  // the copy's epoch is later than the source's
}

// The promises of a switch, as they are broken.
var (
	worksInBoth = breaking("a node begins an action in the source after one works on the copy")
	oldStart    = breaking("the copy begins from an older state than the source's")
	movesBack   = breaking("a follower moves the copy back, or writes to an opened one")
	neverOpens  = breaking("the switch does not lead to an open copy")
)

// The rules, with their numbers in docs/fleet.md.
const (
	switchCloses  rule = "S1: the switch does not close the source"
	switchNotes   rule = "S2: the switch evicts nodes without noting it"
	switchWaits   rule = "S3: the switch does not wait for the TTL of evicted nodes"
	switchFences  rule = "S4: the switch does not fence the plans of evicted nodes"
	switchMirrors rule = "S5: the switch mirrors before the fence"
	switchAdmits  rule = "S6: a node that has not looked for a TTL takes plans"
	switchClosed  rule = "S7: a copy is open while it is a copy"
	switchOrder   rule = "S8: a follower reads the source before the copy"
	switchEpoch   rule = "S9: a follower overwrites a plan with a later epoch"
	switchAgain   rule = "S10: a switch that is run again refuses a source that is closed"
)

func (s *switchover) first() switchState {
	var st switchState
	for i := range s.nodes {
		st.nodes[i] = switchNode{member: true, record: true, fresh: true}
	}
	for i := s.nodes; i < len(st.nodes); i++ {
		st.nodes[i].gone = true
	}
	return st
}

// moves makes the versions of the source's plan outdated that others have.
func (st *switchState) moves(by int) {
	for i := range st.nodes {
		st.nodes[i].match = st.nodes[i].match && i == by
	}
}

func (s *switchover) steps(st switchState, yield func(move, switchState)) {
	for i := range s.nodes {
		s.node(st, i, func(what string, next switchState) { yield(move{i, -1, what, false}, next) })
	}
	step := func(what string, helps bool, next switchState) { yield(move{nowhere, -1, what, helps}, next) }
	s.change(st, step)
	if s.follower {
		s.copy(st, step)
	}
	if (st.open || s.lacks(switchClosed)) && !st.works {
		next := st
		next.works, next.follow.match = true, false
		s.breaks(&next.outcome, oldStart, st.copied < st.done)
		step("a node of the copy takes the plan", true, next)
	}
}

// node yields what a node of the source does.
func (s *switchover) node(st switchState, i int, yield func(string, switchState)) {
	do := func(what string, change func(n *switchNode, st *switchState)) {
		next := st
		change(&next.nodes[i], &next)
		yield(what, next)
	}
	n := st.nodes[i]
	if n.gone {
		if !st.closed {
			do("joins as a new node", func(n *switchNode, _ *switchState) { *n = switchNode{member: true, record: true, fresh: true} })
		}
		return
	}
	do("looks", func(n *switchNode, st *switchState) {
		n.fresh = true
		if st.closed || !n.record {
			*n = switchNode{gone: true}
		}
	})
	if !n.works && !n.sends && (n.fresh || s.lacks(switchAdmits)) && !s.owned(st, i) {
		do("sends a claim or take", func(n *switchNode, _ *switchState) { n.sends, n.match = true, true })
	}
	if n.sends {
		do("learns whether it owns the plan", func(n *switchNode, st *switchState) {
			if n.sends = false; n.match {
				n.works = true
				st.moves(i)
			}
		})
	}
	if n.works && st.done < mostSteps {
		do("stores a step and begins an action", func(n *switchNode, st *switchState) {
			if !n.match {
				n.works = false
				return
			}
			st.done++
			s.breaks(&st.outcome, worksInBoth, st.works)
		})
	}
}

// owned reports whether a node can see that another member owns the plan.
func (s *switchover) owned(st switchState, i int) bool {
	for j, n := range st.nodes {
		if j != i && n.works && n.match && n.record {
			return true
		}
	}
	return false
}

// change yields the next step of the switch.
func (s *switchover) change(st switchState, yield func(string, bool, switchState)) {
	if st.at > 0 && st.at < 6 {
		next := st
		next.at = 0
		yield("the switch dies", false, next)
	}
	next := st
	next.at++
	what := ""
	switch st.at {
	case 0:
		if what = "the switch closes the source"; st.closed && s.lacks(switchAgain) {
			return
		}
		next.closed = !s.lacks(switchCloses)
	case 1:
		what = "the switch evicts the nodes that have not left"
		for i := range next.nodes {
			if n := &next.nodes[i]; n.record {
				n.record = false
				next.noted = !s.lacks(switchNotes)
			}
		}
	case 2:
		what = "the TTL of evicted nodes passes"
		for i := range next.nodes {
			if next.noted && !s.lacks(switchWaits) {
				next.nodes[i].fresh = false
			}
		}
	case 3, 4:
		if (st.at == 3) != s.lacks(switchMirrors) {
			what = "the switch fences the plan"
			if next.noted && !s.lacks(switchFences) {
				next.moves(nowhere)
			}
		} else {
			what = "the switch mirrors the plan"
			next.copied, next.follow.match = max(next.copied, next.done), false
		}
	case 5:
		what = "the switch opens the copy"
		next.open = true
	default:
		return
	}
	yield(what, true, next)
}

// copy yields the next step of the follower.
func (s *switchover) copy(st switchState, yield func(string, bool, switchState)) {
	next := st
	f := &next.follow
	readCopy := func() { f.match, f.later = true, st.works }
	readSource := func() { f.value = st.done }
	f.at++
	what := ""
	switch st.follow.at {
	case 0:
		if what = "the follower begins a round"; st.open || st.closed {
			return
		}
	case 1, 2:
		if (st.follow.at == 1) != s.lacks(switchOrder) {
			what = "the follower reads the copy"
			readCopy()
		} else {
			what = "the follower reads the source"
			readSource()
		}
	case 3:
		what = "the follower writes"
		if f.match && !(f.later && !s.lacks(switchEpoch)) && (f.value != st.copied || st.works) {
			s.breaks(&next.outcome, movesBack, f.value < st.copied || st.works)
			next.copied = f.value
		}
		next.follow = switchFollower{}
	}
	yield(what, false, next)
}

// lives says that the switch leads to work on the copy.
func (s *switchover) lives() (breach, func(*switchState) bool) {
	return neverOpens, func(st *switchState) bool { return st.works }
}

// TestSwitch explores each situation to its end.
func TestSwitch(t *testing.T) {
	list := []*switchover{{nodes: 1}, {nodes: 1, follower: true}, {nodes: 2}, {nodes: 2, follower: true}}
	holds(t, list[:efforttest.Pick(3, 4, 4)])
}

// switchNeeds says for each rule in which situation which promise is broken without it.
var switchNeeds = needs{
	{&switchover{nodes: 1}, worksInBoth, rules{switchCloses, switchNotes, switchWaits, switchAdmits, switchClosed}},
	{&switchover{nodes: 1}, oldStart, rules{switchFences, switchMirrors}},
	{&switchover{nodes: 1, follower: true}, movesBack, rules{switchOrder, switchEpoch}},
	{&switchover{nodes: 1}, neverOpens, rules{switchAgain}},
}
