package protocol

import "slices"

// discovery is the model of how nodes find a plan that nobody works on. A situation is a number of IDs, and the rules
// that are lacking. The model leaves out the hourly search.
//
// Node 1 is the one that has to find the plan: it is suited to the plan, has a free place, and takes its steps sooner or
// later. The other nodes may lack plugins or places, hang or be slow, so they take any of their steps or none.
type discovery struct {
	nodes int

	mutant
	search[findState, move]
}

// findState is a state of the model.
type findState struct {
	plan   existence
	owner  owner
	nodes  [mostNodes]finder // by their IDs; a process that joins takes one that is free
	robbed bool              // a node took the plan from an owner that works on it
}

type existence uint8

const (
	noPlanYet existence = iota
	newFound
	runningFound
)

// finder is an ID, its record, and the node that has it.
type finder struct {
	record membership
	lists  bool // the record says that the node has let the plan go
	late   bool // a claim or take is under way that nobody waits for

	alive  bool // the rest is the node's knowledge
	works  bool
	letGo  bool // the node's record is to list the plan
	at     doing
	match  bool // at sends: its version of the plan is the stored one
	due    searches
	missed bool // the next look shows a departure, although there is no mark any more
	sees   [mostNodes]sight
	passed [mostNodes]bool // only without rule D11: lists that the node has looked at
}

type membership uint8

const (
	nobodyThere membership = iota
	member
	hasLeft
)

// doing is what a node does about the plan.
type doing uint8

const (
	unaware doing = iota
	waits         // the plan is new, and another node is the first one for it
	rechecks
	sends // a claim or take is under way
	owned // another node works on the plan
)

// searches are the searches of all days that are due.
type searches uint8

const (
	noSearch searches = iota
	second            // the one a TTL after a departure
	once
	twice
)

// sight is what a node saw of another one at its last look.
type sight uint8

const (
	unseen sight = iota
	asMember
	asLister
	asLeft
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
	findWaiting    rule = "D9: a search passes over a plan that the node waits for"
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
)

// steps yields everything that can happen.
func (d *discovery) steps(st findState, yield func(move, findState)) {
	if st.plan == noPlanYet {
		next := st
		next.plan = newFound
		yield(move{-1, -1, "the plan is created", false}, next)
	}
	for i := range d.nodes {
		step := func(what string, helps bool, change func(*findState, *finder)) {
			next := st
			change(&next, &next.nodes[i])
			yield(move{i, -1, what, helps}, next)
		}
		d.history(st, i, step)
		if st.nodes[i].alive {
			d.act(st, i, step)
		}
	}
}

// happens yields a step of one node. helps says that it happens sooner or later.
type happens func(what string, helps bool, change func(*findState, *finder))

// history yields what happens to a node and to its record.
func (d *discovery) history(st findState, i int, step happens) {
	n := st.nodes[i]
	if n.late {
		step("its late claim or take takes effect", false, func(st *findState, n *finder) { d.store(st, i) })
		step("its late claim or take is lost", true, func(st *findState, n *finder) { n.late = false })
	}
	switch {
	case n.alive:
		step("dies", false, func(st *findState, n *finder) { n.end() })
		if n.record != member {
			step("is fenced by its heartbeat", true, func(st *findState, n *finder) { n.end() })
			break
		}
		step("is evicted, or taken for dead by mistake", false, func(st *findState, n *finder) { d.mark(st, i, findDeadGone) })
		step("leaves", false, func(st *findState, n *finder) {
			n.end()
			d.mark(st, i, findLeftGone)
		})
		if st.owner != firstNode+owner(i) && !n.late && n.at != sends {
			step("leaves without a mark", false, func(st *findState, n *finder) {
				n.end()
				st.remove(i)
			})
		}
	case n.record == member:
		step("is found dead", true, func(st *findState, n *finder) { d.mark(st, i, findDeadGone) })
	case n.late: // requests are not under way for as long as a mark stays
	case n.record == hasLeft:
		step("has its mark removed", true, func(st *findState, n *finder) {
			for j := range d.nodes { // the mark is older than each TTL, so these have not looked for longer than theirs
				if o := &st.nodes[j]; o.alive && o.sees[i] == unseen && !d.lacks(findLongest) && !d.lacks(findGap) {
					o.missed = true
				}
			}
			st.remove(i)
		})
	default:
		step("joins", false, func(st *findState, n *finder) {
			*n = finder{record: member, alive: true, due: once}
			if d.lacks(findJoined) {
				n.due = noSearch
			}
			d.look(st, i)
		})
	}
}

// end ends a node. Its request in flight becomes a late one.
func (n *finder) end() {
	*n = finder{record: n.record, lists: n.lists, late: n.late || n.at == sends && n.match}
}

// mark marks a record as left, or removes it if a rule is lacking.
func (d *discovery) mark(st *findState, i int, marks rule) {
	if d.lacks(marks) {
		st.remove(i)
		return
	}
	st.nodes[i].record, st.nodes[i].lists = hasLeft, false
}

// remove removes a record. Nodes that saw a member miss it at their next look.
func (st *findState) remove(i int) {
	st.nodes[i].record, st.nodes[i].lists = nobodyThere, false
	for j := range st.nodes {
		n := &st.nodes[j]
		n.missed = n.missed || n.sees[i] == asMember || n.sees[i] == asLister
		n.sees[i], n.passed[i] = unseen, false
	}
}

// store makes a node the owner. Other requests for the plan are refused from now on.
func (d *discovery) store(st *findState, i int) {
	if o := st.worker(); o >= 0 && o != i {
		st.robbed = true
	}
	same := st.owner == firstNode+owner(i) && d.lacks(findAsksLast)
	st.plan, st.owner = runningFound, firstNode+owner(i)
	for j := range st.nodes {
		n := &st.nodes[j]
		n.match, n.late = n.match && same, false
	}
}

// worker returns the member that owns the plan and works on it, or -1.
func (st *findState) worker() int {
	for i, n := range st.nodes {
		if n.works && n.record == member && st.owner == firstNode+owner(i) {
			return i
		}
	}
	return -1
}

// act yields the steps of a node that is alive.
func (d *discovery) act(st findState, i int, step happens) {
	n := &st.nodes[i]
	mine := i == 0
	if n.works {
		step("lets the plan go", false, func(st *findState, n *finder) { n.works, n.letGo = false, true })
	}
	if n.lists != n.letGo && n.record == member {
		step("renews its record", true, func(st *findState, n *finder) { n.lists = n.letGo })
	}
	step("looks at the members", mine, func(st *findState, n *finder) { d.look(st, i) })
	step("searches for new plans", mine, func(st *findState, n *finder) { d.searchNew(st, i) })
	if n.due > second || n.due == second && n.at != owned && !st.unsettled() {
		step("searches all days", mine, func(st *findState, n *finder) { d.searchAll(st, i) })
		if d.lacks(findAgain) {
			step("fails to search all days", mine, func(st *findState, n *finder) { n.due = noSearch })
		}
	}
	if n.letGo && n.at == unaware && !n.works && !d.lacks(findOwnLetGo) {
		step("comes back to what it has let go", mine, func(st *findState, n *finder) { n.at = rechecks })
	}
	switch n.at {
	case waits, rechecks:
		switch {
		case n.letGo || n.lists:
			if n.record != member {
				return // it can't take the plan off its record
			}
			step("takes the plan off its record and reads the plan", mine, func(st *findState, n *finder) {
				if !d.lacks(findWithdrawn) {
					n.letGo, n.lists = false, false
				}
				d.read(st, i)
			})
		default:
			step("reads the plan", mine, func(st *findState, n *finder) { d.read(st, i) })
		}
	case sends:
		if n.match {
			step("claims or takes the plan", true, func(st *findState, n *finder) {
				d.store(st, i)
				n.works, n.at = true, unaware
			})
		} else {
			step("meets a conflict and reads the plan", true, func(st *findState, n *finder) { d.read(st, i) })
		}
		fail := func(n *finder) {
			n.match, n.at, n.letGo = false, rechecks, !d.lacks(findFailed)
			if d.lacks(findTried) {
				n.at, n.letGo = unaware, false
			}
		}
		step("fails to claim or take the plan", false, func(st *findState, n *finder) {
			n.late = n.match && d.lacks(findSettled)
			fail(n)
		})
		if n.match {
			step("claims or takes the plan and fails to fence it", false, func(st *findState, n *finder) {
				d.store(st, i)
				fail(n)
			})
		}
	case owned:
		step("leaves the plan to its owner", true, func(st *findState, n *finder) { n.at, n.letGo = unaware, false })
	}
}

// look is what a node does at a look at the members.
func (d *discovery) look(st *findState, i int) {
	n := &st.nodes[i]
	departed := n.missed
	n.missed = false
	for j := range d.nodes {
		if j == i {
			continue
		}
		was := n.sees[j]
		switch o := st.nodes[j]; {
		case o.record == nobodyThere:
			n.sees[j] = unseen
		case o.record == hasLeft:
			n.sees[j] = asLeft
			departed = departed || was != asLeft && (was != unseen || !d.lacks(findStranger))
		case o.lists:
			n.sees[j] = asLister
		default:
			n.sees[j] = asMember
		}
		if n.sees[j] != asLister || d.lacks(findLetGo) || n.passed[j] {
			n.passed[j] = n.passed[j] && n.sees[j] == asLister
			continue
		}
		n.passed[j] = d.lacks(findListed)
		if n.at == unaware && !n.works || n.at == waits && !d.lacks(findListed) {
			n.at = rechecks
		}
	}
	if departed && !d.lacks(findDeparted) {
		n.due = twice
	}
}

// unsettled reports whether a node that is no member may still claim or take the plan. A second search is so late that
// none does.
func (st *findState) unsettled() bool {
	return slices.ContainsFunc(st.nodes[:], func(n finder) bool { return n.record != member && (n.alive || n.late) })
}

// searchNew is a search for plans that have not begun.
func (d *discovery) searchNew(st *findState, i int) {
	n := &st.nodes[i]
	switch {
	case st.plan == newFound && n.at == unaware && !d.lacks(findNew) && d.mayTry(n, i):
		n.at = waits
	case st.plan != newFound && n.at == waits:
		n.at = unaware // somebody else has claimed it
	}
}

// searchAll is a search of all days.
func (d *discovery) searchAll(st *findState, i int) {
	n := &st.nodes[i]
	switch {
	case st.plan == newFound && n.at == unaware && d.mayTry(n, i):
		n.at = waits
	case st.plan == runningFound && !n.works && (n.at == unaware || n.at == waits && !d.lacks(findWaiting)) && d.mayTake(st, i, false) && d.mayTry(n, i):
		n.at = rechecks
	}
	switch {
	case n.due == twice && !d.lacks(findSecond):
		n.due = second
	default:
		n.due = noSearch
	}
}

// mayTry reports whether a node tries to get a plan after a while, although it is not the first one. Node 1 is the last.
func (d *discovery) mayTry(n *finder, i int) bool {
	return i > 0 || !d.lacks(findOrder) || !slices.ContainsFunc(n.sees[:], func(s sight) bool { return s == asMember || s == asLister })
}

// mayTake reports whether a node may take the plan from its owner. A taker confirms what it saw.
func (d *discovery) mayTake(st *findState, i int, taker bool) bool {
	n := &st.nodes[i]
	if st.owner == goneOwner || st.owner == firstNode+owner(i) {
		return true
	}
	j := st.owner - firstNode
	o := &st.nodes[j]
	left := o.record == nobodyThere || o.record == hasLeft && !d.lacks(findMarkGone)
	switch {
	case n.sees[j] == unseen && d.lacks(findOneListing):
		return true
	case n.sees[j] == unseen && o.record == member:
		n.sees[j] = asMember
		return false
	case n.sees[j] == unseen:
		return left
	case n.sees[j] == asLister && !d.lacks(findLetGo):
		return !taker || d.lacks(findConfirmed) || left || o.lists
	}
	return n.sees[j] == asLeft && !d.lacks(findMarkGone)
}

// read reads the plan, and sends a claim or take unless another node works on the plan.
func (d *discovery) read(st *findState, i int) {
	n := &st.nodes[i]
	n.at, n.match = sends, true
	if st.plan == runningFound && !d.mayTake(st, i, true) {
		n.at, n.match = owned, false
	}
}

// tidy forgets which ID had an owner that has left, and sorts the nodes but the first.
func (d *discovery) tidy(st *findState) {
	for i := range d.nodes {
		if n := &st.nodes[i]; st.owner == firstNode+owner(i) && n.record == nobodyThere && !n.alive {
			st.owner = goneOwner
		}
	}
	if d.nodes < 3 {
		return
	}
	to := *st
	to.nodes[1], to.nodes[2] = to.nodes[2], to.nodes[1]
	for i := range to.nodes {
		n := &to.nodes[i]
		n.sees[1], n.sees[2] = n.sees[2], n.sees[1]
		n.passed[1], n.passed[2] = n.passed[2], n.passed[1]
	}
	switch st.owner {
	case firstNode + 1:
		to.owner = firstNode + 2
	case firstNode + 2:
		to.owner = firstNode + 1
	}
	if hash(to) < hash(*st) {
		*st = to
	}
}

func (d *discovery) regress(_, to *findState) string {
	if to.robbed && d.judges(robbed) {
		return robbed.String()
	}
	return ""
}

func (d *discovery) check(*findState) string { return "" }

func (d *discovery) String() string { return describe[role](nil, nil, *d) }

func (d *discovery) describe(m move) string { return (*fleet)(nil).describe(m) }
