package protocol

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// most is the largest number of actors. mostLate is the largest number of calls that leave requests under
// way.
const (
	most     = 5
	mostLate = 2
)

// situation is what is explored: the actors, the plan, and how much may go wrong.
type situation struct {
	mutant
	roles    []role
	plan     planned
	two      bool // the plan has two sub-objects
	frozen   bool // requests may be under way for any time
	tight    bool // a Create may overlap with a Delete, which the protocol does not cover
	thorough bool // Recovery is thorough
	patient  bool // Creates leave old remains to Recovery, to keep the situation small
	early    bool // an updater may find a plan before its Create has returned
	brief    who  // the actors with the shorter grace period

	deaths uint8 // actors that die or whose context ends
	losses uint8 // answers that are lost, or requests that are refused
	delays uint8 // requests that are given up and take effect later
	lies   uint8 // answers that deny an existing blob
	harms  uint8 // entries and objects that are lost from outside; if Recovery is thorough, also sub-objects and markers
}

// who is a set of actors, by their places from 0.
type who uint8

func (w who) has(i int) bool { return w&(1<<i) != 0 }

// planned is the plan that a situation begins with.
type planned uint8

const (
	noPlan planned = iota
	newPlan
	runningPlan
	finalPlan
	completedPlan  // its entry is final, its object is not
	deletedPlan    // its Delete was interrupted after removing the object
	markedPlan     // running; its Delete was interrupted before removing the object
	finalMarked    // the same, but final
	incompletePlan // its Create was interrupted before writing the object
	strayPlan      // the same, without a marker
	hollowPlan     // the metadata of its entry says final, the content does not
)

func (p planned) String() string {
	return [...]string{
		"no plan", "a plan NotStarted", "a plan Running", "a final plan", "a plan whose completion was interrupted", "a plan whose delete was interrupted",
		"a running plan whose delete was called off", "a final plan whose delete was called off", "a plan whose create was interrupted", "an entry alone",
		"a plan whose entry contradicts itself",
	}[p]
}

func (s situation) String() string { return describe(s, s.plan, s.roles...) }

// state is a state of the exploration.
type state struct {
	store                  store
	procs                  [most]process
	late                   [mostLate]flight // sorted, free ones last
	deaths, losses, delays uint8            // that may still happen
	lies, harms            uint8            // that may still happen
	lost                   damage           // the blob that was lost from outside
	looked                 bool             // a late Create has found its plan not started, or not whole, and removes it
	torn                   bool             // an update wrote the entry after that look
	haunted                bool             // a delayed copy, or a paused actor that then died, may have written after any time
}

// promise returns nothing: which promise a step broke shows in the states on both sides of it.
func (state) promise() breach { return 0 }

// damage is the blob that was lost from outside, plus one; 0 means none.
type damage uint8

func (d damage) of(b blob) bool { return d == damage(b)+1 }

// process is the progress of an actor.
type process struct {
	node  int32
	tried uint8 // requests of the node that may have taken effect already, one bit each
	looks uint8 // refused requests whose blob is read next
	phase phase
	anew  bool // a Create that began after a Delete had returned
}

// flight holds requests under way whose call no longer waits for them.
type flight struct {
	node   int32 // the node that sent them; 0 means none
	mask   uint8 // the requests, one bit each
	retry  uint8 // the requests that are retries
	copied bool  // the call continues with a retry
}

// node is a place in a program: the answers so far and the next requests.
type node struct {
	pause
	actor    actor
	role     role
	history  []answer
	begun    bool
	claimed  bool
	returned bool
	looked   bool
	dated    bool
	retries  bool // the call is retried when its context ends
	over     bool
	result   result
}

// place identifies a node: the answers so far, or how its program ended.
type place struct {
	actor          actor
	over           bool
	result         result
	begun, claimed bool
	answers        string
}

// explorer is the model of a situation, with the search through its states.
type explorer struct {
	situation
	nodes   []node
	known   map[place]int32
	numbers map[answer]uint64
	next    map[turn]int32
	roots   [most]int32
	endings map[ending][2]string // what is wrong after Recovery, and after another Create
	search[state]
}

// ending is what is stored when no actor is active any more.
type ending struct {
	store store
	lost  damage
}

// turn is a step in a program.
type turn struct {
	node   int32
	answer answer
}

// step is a move of an actor, perhaps with a request, or of nobody.
func step(who int, what string, r *request) move {
	if r != nil && r.step != "" {
		what = r.step + " (" + r.blob.String() + ") " + what
	}
	return move{who, -1, what, false}
}

func (x *explorer) describe(m move) string {
	if m.node >= 0 {
		return fmt.Sprintf("%s %d: %s", x.roles[m.node], m.node+1, m.what)
	}
	return m.what
}

func (s situation) explore(explorable) report { return s.run().report }

// run explores the situation and returns the explorer.
func (s situation) run() *explorer {
	x := &explorer{
		situation: s,
		nodes:     make([]node, 1), // 0 is none
		known:     map[place]int32{}, numbers: map[answer]uint64{}, next: map[turn]int32{}, endings: map[ending][2]string{},
	}
	for i, r := range s.roles {
		x.roots[i] = x.node(actor(i+1), r, nil)
	}
	x.visit(x, nil)
	return x
}

// first returns the state in which the situation begins.
func (x *explorer) first() state {
	st := state{deaths: x.deaths, losses: x.losses, delays: x.delays, lies: x.lies, harms: x.harms}
	for i := range x.roles {
		st.procs[i].node = x.roots[i]
	}
	if x.plan != noPlan {
		st.store = x.preset()
	}
	return st
}

func (s situation) preset() store {
	level := [...]status{
		newPlan: notStarted, runningPlan: running, finalPlan: final, completedPlan: final, deletedPlan: running,
		markedPlan: running, finalMarked: final, incompletePlan: notStarted, strayPlan: notStarted, hollowPlan: final,
	}[s.plan]
	v := version{by: earlier, of: earlier}
	var st store
	for _, b := range []blob{marker, entry, part1, object} {
		st[b] = v
	}
	st[entry].status = level
	if level == final {
		st[part1].status = final
	}
	switch s.plan {
	case runningPlan, markedPlan:
		st[part1].status = running
	case finalPlan, finalMarked:
		st[object].status, st[object].parts, st[object].tells = final, final, earlier
		st[marker] = version{}
	case hollowPlan:
		st[entry].hollow = true
	case deletedPlan, incompletePlan, strayPlan:
		st[object] = version{}
	}
	switch s.plan {
	case deletedPlan, markedPlan, finalMarked:
		st[deleteMarker] = v
	case strayPlan:
		st[marker] = version{}
	}
	if s.two {
		st[part2] = st[part1]
	}
	return st
}

// node returns the place of a program after these answers. Programs that have ended differ only in their
// results.
func (x *explorer) node(a actor, r role, history []answer) int32 {
	n := node{actor: a, role: r, history: history}
	c := &call{self: a, lacking: x.lacking, two: x.two, patient: x.patient, thorough: x.thorough, history: history}
	c.brief = x.brief.has(int(a) - 1)
	c.long = x.brief != 0 && !c.brief
	n.pause, n.result, n.over = c.advance(r)
	n.claimed, n.returned, n.looked = c.claimed, c.returned, c.looked && !n.over
	n.begun, n.dated = c.begun, c.dated && !n.over
	n.retries = !c.again && r == deleting || !c.again && r == updating && len(n.asks) > 0 && slices.Contains([]string{"finalize object", "remove marker"}, n.asks[0].step)
	return x.intern(n)
}

func (x *explorer) intern(n node) int32 {
	key := place{actor: n.actor, over: n.over}
	if n.over {
		key.result, key.begun, key.claimed = n.result, n.begun, n.claimed
		n.history = nil
	} else {
		key.answers = x.number(n.history)
	}
	if id, ok := x.known[key]; ok {
		return id
	}
	id := int32(len(x.nodes))
	x.nodes = append(x.nodes, n)
	x.known[key] = id
	return id
}

// number returns a text that stands for these answers: their numbers.
func (x *explorer) number(answers []answer) string {
	var text []byte
	for _, a := range answers {
		n, ok := x.numbers[a]
		if !ok {
			n = uint64(len(x.numbers))
			x.numbers[a] = n
		}
		text = binary.AppendUvarint(text, n)
	}
	return string(text)
}

// answered returns the node that an answer leads to.
func (x *explorer) answered(id int32, a answer) int32 {
	t := turn{id, a}
	if next, ok := x.next[t]; ok {
		return next
	}
	n := x.nodes[id]
	history := append(slices.Clone(n.history), a)
	// Answers to requests sent at once are sorted, because their order makes no difference.
	slices.SortFunc(history[len(n.history)-n.given:], func(a, b answer) int { return int(a.index) - int(b.index) })
	next := x.node(n.actor, n.role, history)
	x.next[t] = next
	return next
}

// steps calls yield for everything that can happen in a state.
func (x *explorer) steps(st state, report func(move, state)) {
	yield := func(s move, to state) {
		to.torn = to.torn || st.looked && s.node >= 0 && x.roles[s.node] == updating && to.store[entry] != st.store[entry]
		if s.node >= 0 && x.roles[s.node].creates() {
			to.looked = to.looked || x.nodes[to.procs[s.node].node].looked
		}
		report(s, to)
	}
	x.time(st, yield)
	x.harm(st, yield)
	for i, f := range st.late {
		if f.node != 0 {
			x.arrive(st, i, yield)
		}
	}
	for i := range x.roles {
		if n := &x.nodes[st.procs[i].node]; !n.over && (st.procs[i].node != x.roots[i] || x.mayBegin(&st, i)) {
			x.act(st, i, yield)
		}
	}
}

// atWork reports whether a call of this role has begun and not ended.
func (x *explorer) atWork(st *state, r role) bool {
	for i, p := range st.procs[:len(x.roles)] {
		if n := &x.nodes[p.node]; is(x.roles[i], r) && p.node != x.roots[i] && !n.over && !n.returned {
			return true
		}
	}
	return false
}

// underWay reports whether a call of this role is at work, or has left requests under way.
func (x *explorer) underWay(st *state, r role) bool {
	return x.atWork(st, r) || slices.ContainsFunc(st.late[:], func(f flight) bool { return f.node != 0 && is(x.nodes[f.node].role, r) })
}

// mayBegin reports whether an actor may begin.
func (x *explorer) mayBegin(st *state, i int) bool {
	switch x.roles[i] {
	case creating, restoring, restoringFinal:
		return x.tight || !x.atWork(st, deleting) && !(x.deleted(st) && x.underWay(st, updating))
	case deleting:
		return x.tight || !x.underWay(st, creating)
	case updating:
		return st.store.visible() && (x.early || x.plan != noPlan || x.count(st, creating, done) > 0) || x.plan == deletedPlan && st.store[entry].there()
	}
	return true
}

// count returns the number of calls of a role with this result.
func (x *explorer) count(st *state, r role, res result) (n int) {
	for i, p := range st.procs[:len(x.roles)] {
		if n2 := &x.nodes[p.node]; is(x.roles[i], r) && n2.over && n2.result == res {
			n++
		}
	}
	return n
}

// time lets the grace period of a call pass, or grace period and margin for everything, the shorter ones
// first.
func (x *explorer) time(st state, yield func(move, state)) {
	for i := range x.roles {
		p := st.procs[i]
		if x.roles[i].creates() && p.node != x.roots[i] && !x.nodes[p.node].over && p.phase == inTime {
			to := st
			to.procs[i].phase = overGrace
			yield(step(i, "the grace period is over", nil), to)
		}
	}
	if !x.frozen && st.late[0].node != 0 {
		return // what is under way arrives or is lost before that
	}
	pass := func(what string, until age, over who) {
		to := st
		to.store.become(until, nobody)
		for i := range x.roles {
			if over.has(i) && to.procs[i].node != x.roots[i] && !x.nodes[to.procs[i].node].over {
				to.procs[i].phase = overAll
			}
		}
		if to != st {
			yield(step(-1, what, nil), to)
		}
	}
	if x.brief != 0 {
		pass("the shorter grace and margin pass", aged, x.brief)
	}
	pass("grace and margin pass", old, 1<<len(x.roles)-1)
}

// timed reports whether it matters how much of the grace period has passed where a call stands. For a Delete
// it matters between its marker and its commit, because Recovery may have removed the marker.
func (x *explorer) timed(id int32) bool {
	n := &x.nodes[id]
	switch {
	case n.over:
		return false
	case n.role == deleting && len(n.asks) > 0 && (n.asks[0].starts || n.asks[0].limit != noLimit):
		return x.has(recovering)
	}
	return x.has(creating)
}

func (x *explorer) has(r role) bool {
	return slices.ContainsFunc(x.roles, func(other role) bool { return is(other, r) })
}

// is reports whether a role is another one. A Restore is a Create.
func is(r, other role) bool { return r == other || r.creates() && other == creating }

// harm removes a blob from outside.
func (x *explorer) harm(st state, yield func(move, state)) {
	if st.harms == 0 || !st.store.visible() || x.deleting(&st) {
		return
	}
	for _, b := range []blob{entry, object, part1, marker} {
		if !st.store[b].there() || !x.thorough && b != entry && b != object {
			continue
		}
		to := st
		to.harms--
		to.lost = damage(b) + 1
		to.store[b] = version{}
		yield(step(-1, fmt.Sprintf("the %s is lost from outside", b), nil), to)
	}
}

// arrive executes a request under way, or loses it.
func (x *explorer) arrive(st state, i int, yield func(move, state)) {
	f := st.late[i]
	n := &x.nodes[f.node]
	who := int(n.actor) - 1
	for k := range n.asks {
		bit := uint8(1) << n.index[k]
		if f.mask&bit == 0 {
			continue
		}
		to := st
		to.store.apply(&n.asks[k], f.retry&bit != 0, x.listed(&st))
		if f.copied && to.store != st.store && st.procs[who].node != f.node {
			to.haunted = true
		}
		to.late[i].mask &^= bit
		yield(step(who, "takes effect late", &n.asks[k]), to)
	}
	to := st
	to.late[i] = flight{}
	yield(step(who, "loses what was under way", nil), to)
}

// listed returns the actors that have listed the markers and may compare them with what is written now.
func (x *explorer) listed(st *state) (mask uint8) {
	for i, r := range x.roles {
		id := st.procs[i].node
		if n := &x.nodes[id]; !n.over && (r == recovering && id != x.roots[i] || n.dated) {
			mask |= 1 << i
		}
	}
	return mask
}

// act yields the next steps of an actor.
func (x *explorer) act(st state, i int, yield func(move, state)) {
	p := st.procs[i]
	n := &x.nodes[p.node]
	begins := p.node == x.roots[i]
	anew := begins && n.role.creates() && x.deleted(&st)
	// on continues the program with an answer.
	on := func(st state, a answer) state {
		q := &st.procs[i]
		q.node = x.answered(p.node, a)
		if x.nodes[q.node].given == 0 {
			q.tried, q.looks = 0, 0
		} else {
			q.tried &^= 1 << a.index
			q.looks &^= 1 << a.index
		}
		q.anew = q.anew || anew
		if next := x.nodes[q.node]; len(next.asks) > 0 && next.given == 0 && next.asks[0].starts {
			q.phase = inTime
		}
		return st
	}
	// lie answers that an existing blob does not exist.
	lie := func(r *request, b blob, a answer) {
		if st.lies > 0 && st.store[b].there() {
			to := st
			to.lies--
			yield(step(i, "gets a lie: the "+b.String()+" does not exist", r), on(to, a))
		}
	}
	var pending uint8 // requests that may be under way
	for k := range n.asks {
		r, bit := &n.asks[k], uint8(1)<<n.index[k]
		a := answer{index: n.index[k]}
		switch {
		case r.verb == clock:
			a.phase = p.phase
			yield(step(i, "looks at its clock", r), on(st, a))
			continue
		case r.verb == begin:
			a.deleted = x.deleted(&st) && !slices.ContainsFunc(st.procs[:len(x.roles)], func(p process) bool {
				n := &x.nodes[p.node]
				return n.role.creates() && !n.over // the ID may be created again
			})
			for b, v := range st.store {
				a.seen[b] = v.etag()
			}
			yield(step(i, "begins", nil), on(st, a))
			continue
		case r.verb == get:
			lie(r, r.blob, a)
			a.seen[r.blob] = x.view(&st, i, r.blob)
			yield(step(i, "is answered", r), on(st, a))
			continue
		case r.verb == list:
			to := st
			if r.dates {
				x.date(&to.store, i)
			}
			for _, b := range r.listed {
				a.seen[b] = x.view(&to, i, b)
				if r.dates {
					a.seen[b].age = st.store[b].age
				}
			}
			for _, b := range r.listed {
				short := a
				short.seen[b] = version{}
				lie(r, b, short)
			}
			yield(step(i, "is answered", r), on(to, a))
			continue
		case p.looks&bit != 0:
			x.lookAtOwn(st, i, r, a, on, yield)
			continue
		}
		tried := p.tried&bit != 0
		if r.limit.passed(p.phase) && (n.role.creates() || x.has(recovering)) {
			a.code, a.unknown = ended, tried
			yield(step(i, "is not sent: its time is over", r), on(st, a))
			if x.frozen || !(r.limit == withinGrace && p.phase >= overAll || r.limit == withinCommit) {
				pending |= bit
			}
			if !x.frozen {
				continue // otherwise the actor may pause between its last look at the clock and the request
			}
		}
		pending |= bit
		if r.verb == remove || r.cond == ifMatch {
			lie(r, r.blob, answer{index: n.index[k], code: absent, unknown: tried})
		}

		to := st
		a = to.store.apply(r, tried, x.listed(&st))
		a.index = n.index[k]
		switch {
		case a.code == ok || r.verb == remove:
			a.unknown = a.code != ok && tried
			yield(step(i, "takes effect and is answered", r), on(to, a))
		default:
			to.procs[i].looks |= bit
			yield(step(i, "is refused: the condition does not hold", r), to)
		}
		if st.losses > 0 && !tried {
			lost := to
			lost.losses--
			lost.procs[i].looks &^= bit
			lost.procs[i].tried |= bit
			yield(step(i, "loses its answer and is retried", r), lost)
		}
		if st.losses > 0 && r.refusable {
			to := st
			to.losses--
			yield(step(i, "is refused by the service", r), on(to, answer{index: n.index[k], code: refused, unknown: tried}))
		}
		if st.delays > 0 && !tried && st.late[mostLate-1].node == 0 {
			to := st
			to.delays--
			to.late[mostLate-1] = flight{node: p.node, mask: bit, copied: true}
			to.procs[i].tried |= bit
			yield(step(i, "is given up while under way, and retried", r), to)
		}
	}
	x.end(st, i, pending, anew, on, yield)
}

// lookAtOwn is what Put does if its condition does not hold: the blob may be its own.
func (x *explorer) lookAtOwn(st state, i int, r *request, a answer, on func(state, answer) state, yield func(move, state)) {
	p, bit := &st.procs[i], uint8(1)<<a.index
	now := st.store[r.blob].etag()
	want := r.value
	if st.lies > 0 && now.there() {
		to := st
		to.lies--
		if r.cond == ifNew {
			to.procs[i].looks &^= bit
			yield(step(i, "gets a lie: the blob does not exist, and is retried", r), to)
		} else {
			yield(step(i, "gets a lie: the blob does not exist", r), on(to, answer{index: a.index, code: absent, unknown: p.tried&bit != 0}))
		}
	}
	switch own := now.there() && now.writeID() == want.writeID(); {
	case own && !x.lacks(ruleWriteID), now.there() && x.lacks(ruleOwnWriteID):
		a.seen[r.blob] = now
		yield(step(i, "finds its own write", r), on(st, a))
	case !now.there() && r.cond == ifNew:
		p.looks &^= bit
		yield(step(i, "finds nothing, and is retried", r), st)
	default:
		a.code, a.unknown = mismatch, p.tried&bit != 0 && !x.lacks(ruleUnknown)
		if !now.there() {
			a.code = absent
		}
		yield(step(i, "finds another's write", r), on(st, a))
	}
}

// end lets an actor die, or its context end. Its requests take effect later or never.
func (x *explorer) end(st state, i int, pending uint8, anew bool, on func(state, answer) state, yield func(move, state)) {
	p := st.procs[i]
	n := &x.nodes[p.node]
	writes := len(n.asks) > 0 && (n.asks[0].verb == put || n.asks[0].verb == remove)
	if p.node == x.roots[i] && !writes {
		return
	}
	over := false // whether its time is over
	for k := range n.asks {
		over = over || n.asks[k].limit.passed(p.phase) && n.role.creates()
	}
	if st.deaths == 0 && !(over && pending != 0) {
		return
	}
	to := st
	if !over || pending == 0 {
		if to.deaths == 0 {
			return
		}
		to.deaths--
	}
	to.procs[i].anew = p.anew || anew
	to.haunted = to.haunted || p.phase == overAll && writes
	dead := to
	dead.procs[i] = process{node: x.death(n), anew: to.procs[i].anew}
	yield(step(i, "dies", nil), dead)
	var after state
	if n.retries && writes {
		after = on(to, answer{index: n.index[0], code: ended, unknown: true})
		yield(step(i, "ends with its context, and is called again", nil), after)
	}
	if writes && pending != 0 && st.late[mostLate-1].node == 0 {
		late := flight{node: p.node, mask: pending, retry: p.tried & pending}
		dead.late[mostLate-1] = late
		yield(step(i, "dies with this under way:", &n.asks[0]), dead)
		if n.retries {
			late.copied = true
			after.late[mostLate-1] = late
			yield(step(i, "ends with its context with this under way, and is called again:", &n.asks[0]), after)
		}
	}
}

// death returns the node of a program that has died.
func (x *explorer) death(n *node) int32 {
	r := died
	if n.begun {
		r = diedDeleting
	}
	return x.intern(node{actor: n.actor, role: n.role, over: true, result: r, begun: n.begun, claimed: n.claimed})
}

// date marks the blobs that are recent when an actor lists the markers, because the actor compares ages with
// this time.
func (x *explorer) date(s *store, i int) {
	enough := patience(x.lacking, x.brief.has(i), s)
	for b := range s {
		s[b].since &^= 1 << i
		if v := &s[b]; (x.thorough || blob(b) == entry || blob(b) == object) && v.there() && v.age < enough {
			v.since |= 1 << i
		}
	}
}

// view returns what an actor sees of a blob. Only actors that have listed the markers see its age and whether
// it is new.
func (x *explorer) view(st *state, i int, b blob) version {
	v := st.store[b]
	if x.roles[i] != recovering && !x.nodes[st.procs[i].node].dated {
		return v.etag()
	}
	v.since &= 1 << i
	return v
}

// tidy makes states equal that differ only in what no longer matters.
func (x *explorer) tidy(st *state) {
	listed := x.listed(st)
	st.haunted = st.haunted && x.has(creating)
	for b := range st.store {
		v := &st.store[b]
		if !x.has(creating) && !x.has(recovering) {
			v.age = recent // no actor reads it
		}
		switch blob(b) {
		case marker, deleteMarker:
			v.since = 0 // no actor reads it
		case part1, part2:
			if !x.thorough {
				v.age = recent // that may still happen
			}
		}
		v.since &= listed
	}
	for i := range x.roles {
		p := &st.procs[i]
		if x.nodes[p.node].over {
			p.tried, p.looks = 0, 0
		}
		if !x.timed(p.node) {
			p.phase = inTime
		}
	}
	for i := range st.late {
		if st.late[i].mask == 0 {
			st.late[i] = flight{}
		}
	}
	slices.SortFunc(st.late[:], func(a, b flight) int {
		switch {
		case a.node != b.node:
			return int(b.node) - int(a.node)
		case a.mask != b.mask:
			return int(b.mask) - int(a.mask)
		}
		return int(b.retry) - int(a.retry)
	})
}
