package protocol

import (
	"slices"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// discovery is a situation of the model of how a node finds a plan that nobody works on. Node 1 is the one that has to
// find the plan, and the model follows what it knows. The others do what the protocol allows at any time, so what they
// know makes no difference.
type discovery struct {
	nodes   int  // the IDs; a process that joins takes one that nobody has
	backlog bool // node 1 always knows older plans that have not begun, more than it has places for

	mutant
	search[findState]
}

// findState is a state of the model.
type findState struct {
	plan  sharedEntry       // its epoch is left out
	nodes [mostNodes]finder // by their IDs
	outcome

	// What node 1 knows.
	due    searches
	missed bool // its next look shows a departure, although there is no mark any more
	sees   [mostNodes]sight
	passed [mostNodes]bool // the lists that it has looked at; only without rule D11
}

// finder is an ID, its record, and the node that has it.
type finder struct {
	record membership
	lists  bool // the record says that the node has let the plan go
	late   bool // a claim or take is under way that nobody waits for

	alive bool
	works bool
	letGo bool // its record is to list the plan
	at    doing
	match bool // at sends: its version of the plan is the stored one
}

type membership uint8

const (
	noMember membership = iota
	member
	marked // as left
)

// doing is what a node does about the plan.
type doing uint8

const (
	unaware doing = iota
	sends         // a claim or take is under way
	// Of node 1 alone:
	waits    // for the first node by hash to claim the plan
	rechecks // looks at the plan soon
	owned    // it has found that another node works on the plan
)

// searches are the searches of all days that are due.
type searches uint8

const (
	noSearch searches = iota
	second            // the one a TTL after a departure
	once
	twice
)

// sight is what node 1 saw of another one at its last look.
type sight uint8

const (
	unseen sight = iota
	asMember
	asLister
	asLeft
)

// The promises of discovery, as they are broken.
var (
	robbed  = breaking("a node takes the plan from an owner that works on it")
	unfound = breaking("nobody works on the plan, and a node that can does not find it")
)

// The rules of discovery, with their numbers in docs/fleet.md.
const (
	findNew        rule = "D1: nobody searches for new plans"
	findOrder      rule = "D2: only the first node by hash claims or takes a plan"
	findJoined     rule = "D3: a node that joins searches for new plans only"
	findDeparted   rule = "D4: a departure starts no search"
	findStranger   rule = "D4: a node counts no departure of a member that it has not seen before"
	findLeftGone   rule = "D5: a node that leaves removes its record"
	findDeadGone   rule = "D5: whoever judges a node dead removes its record"
	findMarkGone   rule = "D5: a mark is no end of membership"
	findLongest    rule = "D6: a mark is removed before every member has had its look"
	findGap        rule = "D6: a node that has not looked for a TTL assumes that nobody has left"
	findAgain      rule = "D7: a search that failed is not made again"
	findSecond     rule = "D8: there is no second search after a departure"
	findWaiting    rule = "D9: the second search may be made while the node waits for the first one by hash"
	findLetGo      rule = "D10: the others do not consider what a node has let go"
	findListed     rule = "D11: a node looks once at what another has let go"
	findOwnLetGo   rule = "D12: a node never comes back to what it has let go"
	findFailed     rule = "D13: a node whose claim or take failed does not list the plan"
	findTried      rule = "D13: a node does not repeat a claim or take that failed"
	findSettled    rule = "D13: a node gives a claim or take up whose outcome is not known"
	findOneListing rule = "D14: an owner that a listing lacks is no member"
	findConfirmed  rule = "D14: a node trusts the list of its last look"
	findAsksLast   rule = "D14: a taker asks for the owner's record before it reads the plan"
	findWithdrawn  rule = "D14: a node leaves a plan on its record when it takes it again"
	findBacklog    rule = "D15: a node takes what it knows before it makes a search that is due"
	findBegun      rule = "D16: a node takes what is older before what has begun"
)

// steps yields everything that can happen.
func (d *discovery) steps(st findState, yield func(move, findState)) {
	if !st.plan.there {
		next := st
		next.plan.there = true
		yield(move{nowhere, -1, "the plan is created", false}, next)
	}
	for i := range d.nodes {
		step := func(what string, helps bool, change func(*findState, *finder)) {
			next := st
			change(&next, &next.nodes[i])
			yield(move{i, -1, what, helps}, next)
		}
		d.history(&st, i, step)
		if st.nodes[i].alive {
			d.own(&st, i, step)
		}
	}
	if st.nodes[0].alive {
		d.find(&st, func(what string, change func(*findState, *finder)) {
			next := st
			change(&next, &next.nodes[0])
			yield(move{0, -1, what, true}, next)
		})
	}
}

// happens yields a step of a node. helps says that it happens sooner or later, unless another step makes it impossible.
type happens func(what string, helps bool, change func(*findState, *finder))

// history yields what happens to a node and to its record.
func (d *discovery) history(st *findState, i int, step happens) {
	n := &st.nodes[i]
	if n.late {
		step("its late claim or take takes effect", false, func(st *findState, _ *finder) { d.store(st, i) })
		step("its late claim or take is lost", true, func(_ *findState, n *finder) { n.late = false })
	}
	switch {
	case n.alive:
		step("dies", false, func(st *findState, _ *finder) { st.end(i) })
		if n.record != member {
			step("is fenced by its heartbeat", true, func(st *findState, _ *finder) { st.end(i) })
			break
		}
		step("is evicted, or judged dead by mistake", false, func(st *findState, _ *finder) { d.mark(st, i, findDeadGone) })
		step("leaves", false, func(st *findState, _ *finder) {
			st.end(i)
			d.mark(st, i, findLeftGone)
		})
		if st.plan.owner != firstNode+owner(i) && !n.late && n.at != sends {
			step("leaves without a mark", false, func(st *findState, _ *finder) {
				st.end(i)
				st.remove(i)
			})
		}
	case n.record == member:
		step("is judged dead", true, func(st *findState, _ *finder) { d.mark(st, i, findDeadGone) })
	case n.late: // no request is under way for as long as a mark stays
	case n.record == marked:
		step("has its mark removed", false, func(st *findState, _ *finder) {
			overdue := st.nodes[0].alive && st.sees[i] != asLeft && !d.lacks(findLongest) // the mark is older than each TTL
			st.missed = st.missed || overdue && !d.lacks(findGap)
			st.remove(i)
		})
	default:
		step("joins", false, func(st *findState, n *finder) {
			n.record, n.alive = member, true
			if i == 0 {
				st.due = once
				if d.lacks(findJoined) {
					st.due = noSearch
				}
				d.look(st)
			}
		})
	}
}

// end ends a node. Its request in flight becomes a late one.
func (st *findState) end(i int) {
	n := &st.nodes[i]
	*n = finder{record: n.record, lists: n.lists, late: n.late || n.at == sends && n.match}
	if i == 0 {
		st.due, st.missed, st.sees, st.passed = noSearch, false, [mostNodes]sight{}, [mostNodes]bool{}
	}
}

// mark marks a record as left. Without the rule it removes the record.
func (d *discovery) mark(st *findState, i int, marks rule) {
	if d.lacks(marks) {
		st.remove(i)
		return
	}
	st.nodes[i].record, st.nodes[i].lists = marked, false
}

// remove removes a record. If node 1 saw a member, it misses it at its next look.
func (st *findState) remove(i int) {
	st.nodes[i].record, st.nodes[i].lists = noMember, false
	st.missed = st.missed || st.sees[i] == asMember || st.sees[i] == asLister
	st.sees[i], st.passed[i] = unseen, false
}

// store makes a node the owner. All other requests for the plan are refused from now on.
func (d *discovery) store(st *findState, i int) {
	o := st.worker()
	d.breaks(&st.outcome, robbed, o >= 0 && o != i)
	same := st.plan.owner == firstNode+owner(i) && d.lacks(findAsksLast)
	st.plan.status, st.plan.owner = running, firstNode+owner(i)
	for j := range st.nodes {
		n := &st.nodes[j]
		n.match, n.late = n.match && same, false
	}
}

// worker returns the member that owns the plan and works on it, or -1.
func (st *findState) worker() int {
	for i, n := range st.nodes {
		if n.works && n.record == member && st.plan.owner == firstNode+owner(i) {
			return i
		}
	}
	return -1
}

// own yields what a node does with a plan that it owns or is about to own.
func (d *discovery) own(st *findState, i int, step happens) {
	n := &st.nodes[i]
	if n.works {
		step("lets the plan go", false, func(_ *findState, n *finder) { n.works, n.letGo = false, true })
	}
	if n.lists != n.letGo && n.record == member {
		step("renews its record", true, func(_ *findState, n *finder) { n.lists = n.letGo })
	}
	if i > 0 && n.at == unaware && !n.works && st.plan.there {
		step("reads the plan", false, func(st *findState, _ *finder) { d.read(st, i) })
		step("leaves the plan to others", false, func(_ *findState, n *finder) { n.letGo = n.letGo && st.plan.owner == firstNode+owner(i) })
	}
	if n.at != sends {
		return
	}
	if !n.match {
		step("meets a conflict and reads the plan", true, func(st *findState, _ *finder) { d.read(st, i) })
	} else {
		step("claims or takes the plan", true, func(st *findState, n *finder) {
			d.store(st, i)
			n.works, n.at, n.match = true, unaware, false
		})
		step("claims or takes the plan and does not finish the fence", false, func(st *findState, n *finder) {
			d.store(st, i)
			d.fail(n, i)
		})
	}
	step("fails to claim or take the plan", false, func(_ *findState, n *finder) {
		n.late = n.match && d.lacks(findSettled)
		d.fail(n, i)
	})
}

// fail is what a node does after a claim or take that failed.
func (d *discovery) fail(n *finder, i int) {
	n.match, n.at, n.letGo = false, unaware, !d.lacks(findFailed)
	switch {
	case d.lacks(findTried):
		n.letGo = false
	case i == 0:
		n.at = rechecks
	}
}

// find yields how node 1 looks for the plan.
func (d *discovery) find(st *findState, step func(string, func(*findState, *finder))) {
	n := &st.nodes[0]
	step("looks at the members", func(st *findState, _ *finder) { d.look(st) })
	if !d.backlog {
		step("searches for new plans", func(st *findState, _ *finder) { d.searchNew(st) })
	}
	// The second search comes a TTL later. No wait, no call and no late request takes that long.
	idle := n.at != owned && (n.at != waits || d.lacks(findWaiting))
	full := d.backlog && d.lacks(findBacklog)
	if !full && (st.due > second || st.due == second && idle && !st.unsettled()) {
		step("searches all days", func(st *findState, _ *finder) { d.searchAll(st) })
		if d.lacks(findAgain) {
			step("fails to search all days", func(st *findState, _ *finder) { st.due = noSearch })
		}
	}
	if n.letGo && n.at == unaware && !n.works && !d.lacks(findOwnLetGo) {
		step("comes back to what it has let go", func(_ *findState, n *finder) { n.at = rechecks })
	}
	switch behind := d.backlog && d.lacks(findBegun); {
	case n.at == waits, n.at == rechecks && !behind:
		step("reads the plan", func(st *findState, _ *finder) { d.read(st, 0) })
	case n.at == owned:
		step("leaves the plan to its owner", func(_ *findState, n *finder) { n.at, n.letGo = unaware, false })
	}
}

// look is a look of node 1 at the members.
func (d *discovery) look(st *findState) {
	n := &st.nodes[0]
	departed := st.missed
	st.missed = false
	for j := 1; j < d.nodes; j++ {
		was := st.sees[j]
		switch o := &st.nodes[j]; {
		case o.record == noMember:
			st.sees[j] = unseen
		case o.record == marked:
			st.sees[j] = asLeft
			departed = departed || was != asLeft && (was != unseen || !d.lacks(findStranger))
		case !o.lists:
			st.sees[j] = asMember
		default:
			st.sees[j] = asLister
			if n.at == unaware && !n.works && !d.lacks(findLetGo) && !st.passed[j] {
				n.at = rechecks
			}
		}
		st.passed[j] = d.lacks(findListed) && st.sees[j] == asLister
	}
	if departed && !d.lacks(findDeparted) {
		st.due = twice
	}
}

// unsettled reports whether a node that is no member may still claim or take the plan.
func (st *findState) unsettled() bool {
	return slices.ContainsFunc(st.nodes[:], func(n finder) bool { return n.record != member && (n.alive || n.late) })
}

// searchNew is a search for plans that have not begun.
func (d *discovery) searchNew(st *findState) {
	switch n := &st.nodes[0]; {
	case st.plan.there && st.plan.status == notStarted && n.at == unaware && !d.lacks(findNew) && d.mayTry(st):
		n.at = waits
	case st.plan.status == running && n.at == waits:
		n.at = unaware // somebody has claimed it
	}
}

// searchAll is a search of all days.
func (d *discovery) searchAll(st *findState) {
	n := &st.nodes[0]
	switch {
	case n.at != unaware || n.works || !d.mayTry(st):
	case st.plan.there && st.plan.status == notStarted:
		n.at = waits
	case st.plan.status == running && d.mayTake(st, false):
		n.at = rechecks
	}
	if st.due == twice && !d.lacks(findSecond) {
		st.due = second
	} else {
		st.due = noSearch
	}
}

// mayTry reports whether node 1 tries to get a plan after a while, although it is the last of the members.
func (d *discovery) mayTry(st *findState) bool {
	return !d.lacks(findOrder) || !slices.ContainsFunc(st.sees[:], func(s sight) bool { return s == asMember || s == asLister })
}

// read reads the plan, and sends a claim or take unless another node works on the plan. Before that the node takes the
// plan off its record.
func (d *discovery) read(st *findState, i int) {
	n := &st.nodes[i]
	if !d.lacks(findWithdrawn) {
		n.letGo, n.lists = false, false
	}
	o := st.plan.owner
	free := st.plan.status == notStarted || o == goneOwner || o == firstNode+owner(i)
	switch {
	case free || i > 0 && (st.nodes[o-firstNode].record != member || st.nodes[o-firstNode].lists) || i == 0 && d.mayTake(st, true):
		n.at, n.match = sends, true
	case i == 0:
		n.at, n.match = owned, false
	default:
		n.at, n.match = unaware, false
	}
}

// mayTake reports whether node 1 may take the plan from its owner. A taker confirms what the last look has shown.
func (d *discovery) mayTake(st *findState, taker bool) bool {
	if st.plan.owner == goneOwner || st.plan.owner == firstNode {
		return true
	}
	j := st.plan.owner - firstNode
	o := &st.nodes[j]
	left := o.record == noMember || o.record == marked && !d.lacks(findMarkGone)
	switch {
	case st.sees[j] == unseen && o.record == member && !d.lacks(findOneListing):
		st.sees[j] = asMember
		return false
	case st.sees[j] == unseen:
		return left || d.lacks(findOneListing)
	case st.sees[j] == asLister && !d.lacks(findLetGo):
		return !taker || d.lacks(findConfirmed) || left || o.lists
	}
	return st.sees[j] == asLeft && !d.lacks(findMarkGone)
}

// tidy forgets which ID an owner had that is gone, and sorts the nodes but the first.
func (d *discovery) tidy(st *findState) {
	for i, n := range st.nodes {
		if st.plan.owner == firstNode+owner(i) && n.record == noMember && !n.alive {
			st.plan.owner = goneOwner
		}
	}
	to := *st
	to.nodes[1], to.nodes[2] = to.nodes[2], to.nodes[1]
	to.sees[1], to.sees[2] = to.sees[2], to.sees[1]
	to.passed[1], to.passed[2] = to.passed[2], to.passed[1]
	if st.plan.owner > firstNode {
		to.plan.owner = firstNode + 1 + firstNode + 2 - st.plan.owner
	}
	if d.nodes == mostNodes && hash(to) < hash(*st) {
		*st = to
	}
}

// lives says that node 1 can find the plan.
func (d *discovery) lives() (breach, func(*findState) bool) {
	return unfound, func(st *findState) bool {
		n := &st.nodes[0]
		waiting := d.backlog && st.plan.status == notStarted // its turn comes after older ones
		return !st.plan.there || waiting || st.worker() >= 0 || !n.alive || n.record != member
	}
}

// TestDiscovery explores each situation to its end.
func TestDiscovery(t *testing.T) {
	list := []*discovery{{nodes: 1}, {nodes: 2}, {nodes: 2, backlog: true}, {nodes: 3}}
	holds(t, list[:efforttest.Pick(3, 3, 4)])
}

// findNeeds says for each rule in which situation which promise is broken without it.
var findNeeds = needs{
	{&discovery{nodes: 1}, unfound, rules{findNew, findJoined, findOwnLetGo, findTried}},
	{&discovery{nodes: 2}, unfound, rules{
		findOrder, findDeparted, findStranger, findLeftGone, findDeadGone, findMarkGone, findLongest, findGap, findAgain,
		findSecond, findWaiting, findLetGo, findListed, findFailed, findSettled,
	}},
	{&discovery{nodes: 2}, robbed, rules{findOneListing, findConfirmed, findAsksLast, findWithdrawn}},
	{&discovery{nodes: 2, backlog: true}, unfound, rules{findBacklog, findBegun}},
}
