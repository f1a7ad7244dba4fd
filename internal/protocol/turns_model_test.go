package protocol

import (
	"cmp"
	"slices"
)

// turns is the model of turns: at most so many plans work at a time for a key. Nodes claim plans, wake them and take them from
// each other at any time. They die and freeze, and what a frozen node has sent takes effect when it wakes up. That a former
// owner can't begin, end or put to sleep is shown by the model of a fleet. Nodes look at the keys before they claim or wake a
// plan, or don't.
//
// A search is one step, although it takes its time: a plan that has a turn when the search's record is written has had it since
// the record was read, because nobody takes a turn from a record that was not searched.
type turns struct {
	nodes, plans int
	limits       [mostTurns]uint8 // that the plans name
	two          bool             // the first two plans have two keys, in opposite order
	unique       bool             // the key is a Unique, which Submit takes before Create
	keeps        bool             // plans sleep and keep their turns
	sleeps       bool             // plans sleep and give their turns back
	stills       bool             // people pause the first plan for good
	deletes      bool             // plans are deleted, and one is restored as it was at any time
	forks        bool             // the third plan is created without Submit
	operator     bool             // an operator sets and lifts a limit, and pauses the key
	loses        bool             // a record is lost
	damages      bool             // a record is damaged, and an operator repairs it
	late         bool             // a request takes effect after its node has given it up and read again

	mutant
	search[turnState]
}

// mostTurns bounds the plans, and mostKeys the keys of a plan.
const (
	mostTurns = 3
	mostKeys  = 2
)

// turnState is a state of the model.
type turnState struct {
	plans    [mostTurns]turnPlan
	records  [mostKeys]turnRecord
	nodes    [mostNodes]turnNode
	late     turnRequest
	harmed   bool // a record was lost or damaged
	restored bool // a plan was
	outcome
}

type turnPlan struct {
	is    turnStatus
	works bool // it has begun under its turns, and has neither ended nor slept without them
	still bool // nobody claims or wakes it any more
	freed bool // Submit promises nothing of it: it is a fork, was restored, or its Create took more than ten minutes
}

type turnStatus uint8

const (
	turnAbsent turnStatus = iota
	turnGone
	turnFinal
	turnWaits // NotStarted
	turnRests // asleep without turns
	turnRuns
	turnKeeps // asleep with its turns
)

func (s turnStatus) open() bool { return s >= turnWaits }

// turnRecord is the record of a key.
type turnRecord struct {
	there, searched, damaged bool

	paused bool
	limit  uint8 // the operator's; 0 is none
	blind  bool  // it does not say what the operator has set
	old    bool  // it has not changed for ten minutes

	holders turnHolders
}

type turnHolders [mostTurns]turnHold

// turnHold is what a record says of a plan.
type turnHold uint8

const (
	turnNone    turnHold = iota
	turnEntered          // by another's search
	turnTaken
)

// turnRequest is a write of a record that is under way. If it is fresh it has If-None-Match: *, else If-Match.
type turnRequest struct {
	sent, fresh, match bool // match says that the record is as it was when it was read
	key, plan          uint8
	searched           bool
	to                 turnHolders
}

// turnNode is what a node does for a plan.
type turnNode struct {
	at    turnPlace
	plan  uint8
	nth   uint8 // of the plan's keys
	match bool  // it owns the plan
	freed bool  // its Create is later than Submit promises
	req   turnRequest
}

type turnPlace uint8

const (
	turnIdle turnPlace = iota
	turnAsks           // for the next turn
	turnBegins
	turnWorks
	turnYields // without room, it lets the plan sleep
	turnGives  // removes the plan from the records
	turnCleans // removes it from the record nth
	turnCreates
)

// The promises of turns, as they are broken.
var (
	turnTooMany = breaking("more plans work for a key than its limit says")
	turnNoRoom  = breaking("a turn is given beyond the limit, or while the key is paused")
	turnRobbed  = breaking("a plan that works loses its turn")
	turnLost    = breaking("a plan never gets its turn, or stays among the holders for ever")
	turnTwoOpen = breaking("Submit admits a second plan while the first one is open")
)

// The rules of turns.
const (
	turnClaim    rule = "T1: a node takes turns before it claims the plan"
	turnAnew     rule = "T1: the next owner does not take the turns anew"
	turnLooks    rule = "T1: a plan that keeps its turns is woken only if there is room"
	turnWrites   rule = "T2: an owner that reads that its plan has the turn does not write"
	turnMatch    rule = "T2: a take names no version"
	turnRoom     rule = "T2: a take does not ask for room"
	turnNamed    rule = "T2: the limits that holders name don't count"
	turnPause    rule = "T2: a turn is taken while the key is paused"
	turnHas      rule = "T2: a plan that has its turn asks for room again"
	turnAll      rule = "T3: an owner begins with the first turn"
	turnHolds    rule = "T3: an owner waits for a turn with those that it has"
	turnLast     rule = "T3: an owner gives back before its final write"
	turnThen     rule = "T5: whoever removes a holder reads the plan, then the record"
	turnRemoval  rule = "T5: a removal names no version"
	turnKinds    rule = "T5: one kind of evidence is enough"
	turnKept     rule = "T5: a plan that sleeps with its turns is not entitled"
	turnResting  rule = "T5: a plan that sleeps without turns is entitled"
	turnUnbegun  rule = "T5: a plan that has not started is entitled"
	turnSweep    rule = "T6: only owners remove holders"
	turnSearch   rule = "T7: a taker that finds no record does not search"
	turnAfter    rule = "T7: the search comes before the read of the record"
	turnItself   rule = "T7: a search without room for its own plan leaves the plan out"
	turnMark     rule = "T7: what a search enters has the turn"
	turnDamaged  rule = "T7: a damaged record is taken for a new one"
	turnRepair   rule = "T7: repair writes a record that counts as searched"
	turnSchema   rule = "T9: an older node works without turns"
	turnReserve  rule = "Unique: Submit reserves nothing"
	turnConfirm  rule = "Unique: the owner trusts the reservation"
	turnYoung    rule = "Unique: a holder that is not there is replaced at once"
	turnRenews   rule = "Unique: Submit trusts a reservation that it finds"
	turnReserved rule = "Unique: a plan that has not started is not entitled"
)

// keys returns the keys of a plan, in the order in which it takes them.
func (x *turns) keys(p uint8) []uint8 {
	switch {
	case !x.two || p == 2:
		return []uint8{0}
	case p == 0:
		return []uint8{0, 1}
	}
	return []uint8{1, 0}
}

// steps yields everything that can happen.
func (x *turns) steps(from turnState, yield func(move, turnState)) {
	do := func(what string, helps bool, change func(*turnState)) {
		next := from
		change(&next)
		yield(move{nowhere, -1, what, helps}, next)
	}
	x.operate(&from, do)
	for p, plan := range from.plans[:x.plans] {
		x.change(&from, uint8(p), plan, do)
	}
	if l := from.late; l.sent {
		do("a late request takes effect", false, func(st *turnState) { st.late = turnRequest{}; x.store(st, l) })
		do("a late request is lost", true, func(st *turnState) { st.late = turnRequest{} })
	}
	for i, n := range from.nodes[:x.nodes] {
		step := func(what string, helps bool, change func(*turnState, *turnNode)) {
			next := from
			change(&next, &next.nodes[i])
			yield(move{i, -1, what, helps}, next)
		}
		switch {
		case n.at == turnIdle:
			for p, plan := range from.plans[:x.plans] {
				x.begin(&from, uint8(p), plan, step)
			}
			continue
		case !n.req.sent:
			x.act(&from, n, step)
		default:
			step("has its request answered", true, func(st *turnState, n *turnNode) { x.answer(st, n) })
			if x.late && !from.late.sent {
				step("gives its request up", false, func(st *turnState, n *turnNode) { st.late = n.req; n.again(false) })
			}
		}
		step("dies", false, func(_ *turnState, n *turnNode) { *n = turnNode{} })
	}
}

// turnStep yields a step of a node.
type turnStep func(what string, helps bool, change func(*turnState, *turnNode))

// operate yields what happens to the records beside the work of the nodes.
func (x *turns) operate(from *turnState, do func(string, bool, func(*turnState))) {
	r := from.records[0]
	put := func(what string, helps bool, change func(*turnRecord)) {
		do(what, helps, func(st *turnState) { change(&st.records[0]); st.moves(0) })
	}
	harm := func(what string, to turnRecord) {
		do(what, false, func(st *turnState) { st.harmed, st.records[0] = true, to; st.moves(0) })
	}
	if x.operator && r.there && !r.damaged {
		put("the operator sets a limit, or lifts it", false, func(r *turnRecord) { r.limit ^= 1 })
		put("the key is paused", false, func(r *turnRecord) { r.paused = true })
	}
	if r.paused {
		do("the pause passes", true, func(st *turnState) { st.records[0].paused = false })
	}
	if r.there && x.loses && !from.harmed {
		harm("the record is lost", turnRecord{})
	}
	if r.there && x.damages && !from.harmed {
		harm("the record is damaged", turnRecord{there: true, damaged: true, limit: r.limit, paused: r.paused, blind: x.lacks(turnDamaged)})
	}
	if r.damaged {
		put("the operator repairs the record", true, func(r *turnRecord) { r.damaged, r.searched = false, x.lacks(turnRepair) })
	}
	for k, r := range from.records {
		if r.searched && r.holders == (turnHolders{}) && (x.deletes || x.loses) {
			do("a record without holders is swept", false, func(st *turnState) { st.records[k] = turnRecord{}; st.moves(uint8(k)) })
		}
	}
	creates := func(n turnNode) bool { return n.at == turnCreates && !n.freed }
	if x.unique && (r.there && !r.old || slices.ContainsFunc(from.nodes[:], creates)) {
		do("ten minutes pass", true, func(st *turnState) {
			st.records[0].old = r.there
			for i := range st.nodes {
				st.nodes[i].freed = st.nodes[i].at == turnCreates
			}
		})
	}
}

// change yields what happens to a plan beside the work of the nodes.
func (x *turns) change(from *turnState, p uint8, plan turnPlan, do func(string, bool, func(*turnState))) {
	if x.forks && p == 2 && plan.is == turnAbsent {
		do("a plan is forked", false, func(st *turnState) { st.plans[p] = turnPlan{is: turnWaits, freed: true} })
	}
	if x.stills && p == 0 && plan.is.open() && !plan.still {
		do("people pause a plan", false, func(st *turnState) { st.plans[p].still = true })
	}
	if x.deletes && plan.is >= turnFinal {
		do("a plan is deleted", false, func(st *turnState) { st.becomes(p, turnGone) })
	}
	if x.deletes && plan.is == turnGone && !from.restored {
		for is := turnWaits; is <= turnKeeps; is++ {
			do("a plan is restored", false, func(st *turnState) { st.restored, st.plans[p] = true, turnPlan{is: is, freed: true} })
		}
	}
}

// becomes changes the entry of a plan. It has no owner from now on.
func (st *turnState) becomes(p uint8, is turnStatus) {
	plan := &st.plans[p]
	plan.is, plan.works = is, plan.works && is >= turnRuns
	for i := range st.nodes {
		if n := &st.nodes[i]; n.plan == p {
			n.match = false
		}
	}
}

// moves makes the version of a record outdated.
func (st *turnState) moves(k uint8) {
	st.records[k].old = false
	for i := range st.nodes {
		st.nodes[i].req.match = st.nodes[i].req.match && st.nodes[i].req.key != k
	}
	st.late.match = st.late.match && st.late.key != k
}

// begin yields what a node may begin with a plan.
func (x *turns) begin(from *turnState, p uint8, plan turnPlan, step turnStep) {
	acquire := func(what string, helps bool) {
		step(what, helps, func(st *turnState, n *turnNode) {
			if st.becomes(p, turnRuns); x.lacks(turnAnew) && plan.is >= turnRuns || x.lacks(turnSchema) {
				*n = turnNode{at: turnBegins, plan: p, match: true}
			} else {
				*n = turnNode{at: turnAsks, plan: p, match: true}
			}
		})
	}
	switch owned := func(n turnNode) bool { return n.plan == p && n.match }; {
	case plan.is == turnRuns:
		acquire("takes a plan", !slices.ContainsFunc(from.nodes[:], owned))
	case plan.is == turnWaits && x.lacks(turnClaim):
		step("asks for the turns of a plan", true, func(_ *turnState, n *turnNode) { *n = turnNode{at: turnAsks, plan: p} })
	case plan.is.open() && !plan.still:
		acquire("claims or wakes a plan", x.looks(from, p))
	case plan.is == turnAbsent && x.unique && (p < 2 || !x.forks):
		x.submit(from, p, step)
	}
	for _, k := range x.keys(p) {
		r := &from.records[k]
		if entitled := x.entitled(from, r, p) && !x.lacks(turnKinds); r.damaged || x.lacks(turnSweep) || entitled {
			continue
		}
		if r.holders[p] != turnNone || x.lacks(turnThen) {
			step("finds a plan that is not entitled", true, func(_ *turnState, n *turnNode) {
				if *n = (turnNode{at: turnCleans, plan: p, nth: k}); !x.lacks(turnThen) {
					n.remove(r, k)
				}
			})
		}
	}
}

// looks reports whether a node claims or wakes a plan: it keeps its turns, or a look at its keys shows room.
func (x *turns) looks(st *turnState, p uint8) bool {
	return st.plans[p].is == turnKeeps && !x.lacks(turnLooks) || !slices.ContainsFunc(x.keys(p), func(k uint8) bool {
		r := &st.records[k]
		return r.damaged || r.searched && r.holders[p] != turnTaken && x.full(st, k, p, r.holders)
	})
}

// entitled reports whether a plan stays among the holders of a record.
func (x *turns) entitled(st *turnState, r *turnRecord, p uint8) bool {
	switch is := st.plans[p].is; {
	case x.unique && r.holders[p] == turnTaken && is == turnAbsent:
		return !r.old && !x.lacks(turnYoung)
	case x.unique && r.holders[p] == turnTaken && is.open() && !x.lacks(turnReserved):
		return true
	case is == turnKeeps:
		return !x.lacks(turnKept)
	case is == turnRests:
		return x.lacks(turnResting)
	case is == turnWaits:
		return x.lacks(turnUnbegun)
	default:
		return is == turnRuns
	}
}

// remove sends the removal of a node's plan from a record.
func (n *turnNode) remove(r *turnRecord, k uint8) {
	n.req = turnRequest{sent: true, match: true, key: k, plan: n.plan, searched: r.searched, to: r.holders}
	n.req.to[n.plan] = turnNone
}

// submit yields what Submit does about a plan with a Unique.
func (x *turns) submit(from *turnState, p uint8, step turnStep) {
	r := &from.records[0]
	for q, o := range from.plans[:x.plans] {
		exists := r.holders[q] != turnNone && (o.is.open() || x.entitled(from, r, uint8(q))) || r.there && !r.searched && o.is.open()
		if r.damaged || exists && uint8(q) != p && !x.lacks(turnReserve) {
			return
		}
	}
	next := turnNode{at: turnCreates, plan: p}
	if !x.lacks(turnReserve) && (r.holders[p] == turnNone || !x.lacks(turnRenews)) {
		next.req = turnRequest{sent: true, fresh: !r.there, match: r.there, plan: p, searched: true}
		next.req.to[p] = turnTaken
	}
	step("submits a plan", true, func(_ *turnState, n *turnNode) { *n = next })
}

// act yields what a node does next for its plan.
func (x *turns) act(from *turnState, n turnNode, step turnStep) {
	sleep := func(what string, helps bool, is turnStatus) {
		step(what, helps, func(st *turnState, n *turnNode) {
			st.becomes(n.plan, is)
			if *n = (turnNode{at: turnGives, plan: n.plan}); is == turnKeeps {
				*n = turnNode{}
			}
		})
	}
	switch n.at {
	case turnAsks:
		x.ask(from, n, x.keys(n.plan)[n.nth], step)
	case turnBegins:
		step("begins to work", true, func(st *turnState, n *turnNode) { x.work(st, n) })
	case turnWorks:
		sleep("ends the plan", true, turnFinal)
		if x.keeps {
			sleep("lets the plan sleep with its turns", false, turnKeeps)
		}
		if x.sleeps {
			sleep("lets the plan sleep without turns", false, turnRests)
		}
		if x.lacks(turnLast) {
			step("gives a turn back", true, func(st *turnState, n *turnNode) { n.remove(&st.records[0], 0) })
		}
	case turnYields:
		sleep("has no turn and lets the plan sleep", true, turnRests)
	case turnGives:
		k := x.keys(n.plan)[n.nth]
		step("reads a record to give a turn back", true, func(st *turnState, n *turnNode) {
			if r := &st.records[k]; r.holders[n.plan] != turnNone && (!x.entitled(st, r, n.plan) || x.lacks(turnThen)) {
				n.remove(r, k)
			} else {
				x.next(n)
			}
		})
	case turnCleans: // only without the rule: it has read the plan before
		step("reads the record of a holder", true, func(st *turnState, n *turnNode) { n.remove(&st.records[n.nth], n.nth) })
	case turnCreates:
		step("creates the plan", true, func(st *turnState, n *turnNode) { x.create(st, *n); *n = turnNode{} })
	}
}

// create stores the plan of a Submit, unless it is there.
func (x *turns) create(st *turnState, n turnNode) {
	if st.plans[n.plan].is != turnAbsent {
		return
	}
	for _, o := range st.plans {
		x.breaks(&st.outcome, turnTwoOpen, o.is.open() && !o.freed && !n.freed)
	}
	st.plans[n.plan] = turnPlan{is: turnWaits, freed: n.freed}
}

// ask yields how an owner asks for a turn: it reads the record, and sends a write.
func (x *turns) ask(from *turnState, n turnNode, k uint8, step turnStep) {
	r, p := &from.records[k], n.plan
	write := func(what string, searched bool, to turnHolders) {
		req := turnRequest{sent: true, fresh: !r.there, match: r.there, key: k, plan: p, searched: searched, to: to}
		step(what, true, func(_ *turnState, n *turnNode) { n.req = req })
	}
	takes := r.holders
	takes[p] = turnTaken
	switch has := r.holders[p] == turnTaken; {
	case x.unique && x.lacks(turnConfirm):
		step("trusts its Submit", true, func(_ *turnState, n *turnNode) { n.at = turnBegins })
	case r.damaged && !x.lacks(turnDamaged):
		step("finds a damaged record", true, func(_ *turnState, n *turnNode) { n.at = turnYields })
	case !r.there && !x.lacks(turnAfter):
		write("finds no record", false, turnHolders{})
	case !r.searched:
		write("searches", true, x.found(from, k, p))
	case has && x.lacks(turnWrites):
		step("reads that it has the turn", true, func(_ *turnState, n *turnNode) { x.next(n) })
	case has && !x.lacks(turnHas), !x.full(from, k, p, r.holders):
		write("takes a turn", true, takes)
	case !x.lacks(turnHolds):
		step("finds no room", true, func(st *turnState, n *turnNode) {
			x.breaks(&st.outcome, turnRobbed, n.match && st.plans[p].works && !st.harmed)
			n.at = turnYields
		})
	}
}

// found returns the holders that a search for a plan has found.
func (x *turns) found(st *turnState, k, p uint8) (to turnHolders) {
	for q := range uint8(x.plans) {
		if q == p || x.lacks(turnSearch) || !slices.Contains(x.keys(q), k) || !x.entitled(st, &st.records[k], q) {
			continue
		}
		if to[q] = turnEntered; x.lacks(turnMark) {
			to[q] = turnTaken
		}
	}
	switch full := x.full(st, k, p, to); {
	case !full:
		to[p] = turnTaken
	case !x.lacks(turnItself):
		to[p] = turnEntered // it may have begun before the record was lost
	}
	return to
}

// full reports whether holders leave no room for a plan.
func (x *turns) full(st *turnState, k, p uint8, holders turnHolders) bool {
	limit, others := x.limits[p], uint8(0)
	for q, h := range holders {
		if h == turnNone || uint8(q) == p {
			continue
		}
		if others++; !x.lacks(turnNamed) {
			limit = min(limit, x.limits[q])
		}
	}
	r := &st.records[k]
	if r.limit > 0 && !r.blind {
		limit = min(limit, r.limit)
	}
	return others >= limit && !x.lacks(turnRoom) || r.paused && !r.blind && !x.lacks(turnPause)
}

// store lets a write take effect, or be refused.
func (x *turns) store(st *turnState, r turnRequest) bool {
	rec := &st.records[r.key]
	if r.fresh && rec.there || !r.fresh && (!rec.there || !r.match && !x.unconditional(r)) {
		return false
	}
	was, given := rec.holders[r.plan], uint8(0)
	for _, h := range r.to {
		if h != turnNone {
			given++
		}
	}
	rec.there, rec.searched, rec.damaged, rec.holders = true, r.searched, false, r.to
	x.breaks(&st.outcome, turnNoRoom, r.to[r.plan] == turnTaken && was != turnTaken && (rec.paused || rec.limit > 0 && given > rec.limit))
	st.moves(r.key)
	return true
}

// unconditional reports whether a write names no version, which only a lacking rule lets happen.
func (x *turns) unconditional(r turnRequest) bool {
	return r.to[r.plan] != turnNone && x.lacks(turnMatch) || r.to[r.plan] == turnNone && x.lacks(turnRemoval)
}

// answer lets a node's write take effect, or be refused.
func (x *turns) answer(st *turnState, n *turnNode) {
	r := n.req
	switch n.req = (turnRequest{}); {
	case !x.store(st, r):
		n.again(x.lacks(turnThen))
	case n.at == turnAsks && r.searched && r.to[r.plan] != turnTaken:
		n.at = turnYields
	case n.at == turnAsks && r.searched, n.at == turnGives:
		x.next(n)
	case n.at == turnWorks: // it has given back before
		st.becomes(n.plan, turnFinal)
		*n = turnNode{}
	case n.at == turnCleans:
		*n = turnNode{}
	}
}

// again is what a node does after a write that it has given up or that was refused: it reads again.
func (n *turnNode) again(knows bool) {
	if n.req = (turnRequest{}); n.at == turnCreates || n.at == turnCleans && !knows {
		*n = turnNode{}
	}
}

// next turns to the next key of the plan.
func (x *turns) next(n *turnNode) {
	n.nth++
	switch last := int(n.nth) == len(x.keys(n.plan)); {
	case n.at == turnGives && last:
		*n = turnNode{}
	case n.at == turnAsks && (last || x.lacks(turnAll)):
		n.at, n.nth = turnBegins, 0
	}
}

// work is the first fenced write of an owner that has all turns.
func (x *turns) work(st *turnState, n *turnNode) {
	if x.lacks(turnClaim) && st.plans[n.plan].is == turnWaits {
		st.becomes(n.plan, turnRuns) // takes and claims, in this order
		n.match = true
	}
	if !n.match {
		*n = turnNode{}
		return
	}
	n.at, st.plans[n.plan].works = turnWorks, true
	for k := range uint8(mostKeys) {
		limit, works := uint8(mostTurns), uint8(0)
		for p, plan := range st.plans {
			if plan.works && slices.Contains(x.keys(uint8(p)), k) {
				limit, works = min(limit, x.limits[p]), works+1
			}
		}
		x.breaks(&st.outcome, turnTooMany, works > limit)
	}
}

// tidy forgets writes that will be refused, owners that are fenced and send nothing any more, and the order of the nodes.
func (x *turns) tidy(st *turnState) {
	stays := !x.loses && !x.deletes // a record
	refused := func(r turnRequest) bool {
		return r.sent && (r.fresh && st.records[r.key].there && stays || !r.fresh && !r.match && !x.unconditional(r))
	}
	if refused(st.late) {
		st.late = turnRequest{}
	}
	for i := range st.nodes {
		n := &st.nodes[i]
		if refused(n.req) {
			n.again(x.lacks(turnThen))
		}
		if !n.match && (n.at == turnBegins && !x.lacks(turnClaim) || n.at == turnWorks || n.at == turnYields) {
			*n = turnNode{}
		}
	}
	slices.SortFunc(st.nodes[:x.nodes], func(a, b turnNode) int { return cmp.Compare(hash(a), hash(b)) })
}

func (x *turns) first() (st turnState) {
	for p := range x.plans {
		if !x.unique {
			st.plans[p].is = turnWaits
		}
	}
	return st
}

// ended reports whether every plan has had its turn, and none that is not open is left among the holders.
func (st *turnState) ended() bool {
	for p, plan := range st.plans {
		if plan.is == turnRuns || plan.is.open() && !plan.still {
			return false
		}
		for _, r := range st.records {
			if r.holders[p] != turnNone && !plan.is.open() {
				return false
			}
		}
	}
	return true
}
