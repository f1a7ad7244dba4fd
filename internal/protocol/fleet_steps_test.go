package protocol

import (
	"cmp"
	"math/bits"
	"slices"
)

// first returns the state in which the situation begins.
func (f *fleet) first() fleetState {
	st := fleetState{entry: sharedEntry{there: true, external: f.placed, placed: f.placed}, object: openObject, marker: true}
	if f.running {
		st.entry.status = running
	}
	for k := range f.parts {
		st.parts[k].there = true
	}
	if f.running {
		st.parts[0].status = running
	}
	for i := range f.outside {
		st.nodes[i].outside, st.nodes[i].record = true, noRecord
	}
	for i := f.nodes; i < mostNodes; i++ {
		st.nodes[i].dead = true
	}
	return st
}

// steps yields everything that can happen.
func (f *fleet) steps(st fleetState, yield func(move, fleetState)) {
	f.arrive(st, yield)
	if f.deletes {
		f.delete(st, yield)
	}
	if f.stranger {
		f.disturb(st, yield)
	}
	if f.pauses && !st.ended() {
		f.pause(st, yield)
	}
	for i := range f.nodes {
		f.live(st, i, yield)
		f.act(st, i, yield)
	}
}

// putPart stores a sub-object. The writer saw the stored version if current is set.
func (f *fleet) putPart(st *fleetState, k int, to status, e epoch, by int, knows, work bool) {
	f.breaks(&st.outcome, lostUpdate, !knows)
	f.breaks(&st.outcome, formerOwner, e < st.fenced)
	f.breaks(&st.outcome, finalChanged, st.entry.there && st.entry.status == final)
	p := &st.parts[k]
	p.there = true
	switch {
	case e < st.fenced:
		p.former = true
	case work:
		p.former = false
	}
	p.status = to
	for j := range st.nodes[:f.nodes] {
		if n := &st.nodes[j]; j != by && n.at == works && e < n.epoch && to == final {
			n.held[k].overtaken = true
		}
	}
	st.moves(k, by)
}

// moves makes all versions of a sub-object outdated but the writer's, and drops the requests for it, which would be refused.
func (st *fleetState) moves(k, by int) {
	for j := range st.nodes {
		if h := &st.nodes[j].held[k]; j != by && h.is == current {
			h.is = outdated
		}
	}
	if st.stranger.is == current && k == 0 {
		st.stranger.is = outdated
	}
	st.late.parts[k] = [final + 1]epoch{}
}

// putEntry stores the entry. Only its owner stores it again in the same epoch.
func (f *fleet) putEntry(st *fleetState, e sharedEntry, by int, knows, again bool) {
	was := st.entry
	f.breaks(&st.outcome, lostUpdate, !knows)
	f.breaks(&st.outcome, formerOwner, e.epoch < st.fenced)
	f.breaks(&st.outcome, finalChanged, was.status == final)
	f.breaks(&st.outcome, twoOwners, was.status == running && e.status == running && e.epoch <= was.epoch && !again)
	for _, p := range st.parts[:f.parts] {
		f.breaks(&st.outcome, openParts, e.status == final && p.there && p.status != final)
	}
	// Nothing of a plan that sleeps is taken before its time. A stop brings the time forward.
	f.breaks(&st.outcome, wokenEarly, was.early && e.status == running && !e.asleep)
	f.breaks(&st.outcome, startsPaused, was.held && !e.held)
	f.places(st, &e, by, again)
	e.there = true
	if f.unrecorded || e.status == final {
		e.owner = noOwner // nobody asks for it
	}
	st.entry = e
	st.movesEntry(by)
}

// places notes who places the plan from now on.
func (f *fleet) places(st *fleetState, e *sharedEntry, by int, again bool) {
	was := &st.entry
	hands, told := was.external, true // a request that arrives late was once allowed
	if by >= 0 {
		hands, told = st.nodes[by].hands, st.nodes[by].told
	}
	switch {
	case e.status != running:
		e.external, e.placed = false, false
	case e.asleep:
		e.placed = was.placed && !was.asleep
	case again:
		e.placed = was.placed
	default:
		e.placed = st.isOutside(e.owner)
		f.breaks(&st.outcome, nodeOwns, was.placed && !e.placed && !hands)
		f.breaks(&st.outcome, outsideOwns, !was.placed && e.placed && was.status == running)
		f.breaks(&st.outcome, unjudged, was.placed && e.placed && was.owner != noOwner && was.owner != e.owner && !told)
	}
	for j := range st.nodes {
		st.nodes[j].told = st.nodes[j].told && e.epoch == was.epoch
	}
}

// isOutside reports whether an owner is, or was, a process of an engine of another kind.
func (st *fleetState) isOutside(o owner) bool {
	return o == goneOutside || o >= firstNode && st.nodes[o-firstNode].outside
}

// movesEntry does the same for the entry.
func (st *fleetState) movesEntry(by int) {
	for j := range st.nodes {
		st.nodes[j].match = st.nodes[j].match && j == by
	}
	st.late.over = false
	st.late.takes, st.late.end, st.late.sleep, st.late.pause, st.late.again = [firstNode + mostNodes]epoch{}, 0, 0, 0, false
}

// putObject stores the final object.
func (f *fleet) putObject(st *fleetState) {
	f.breaks(&st.outcome, earlyObject, st.entry.there && st.entry.status != final)
	for _, p := range st.parts[:f.parts] {
		f.breaks(&st.outcome, wrongResult, p.there && p.former)
	}
	st.object = finalObject
}

// arrive lets late requests take effect.
func (f *fleet) arrive(st fleetState, yield func(move, fleetState)) {
	late := func(what string, k int, put func(*fleetState)) {
		next := st
		put(&next)
		yield(move{-1, k, "a late " + what + " takes effect", false}, next)
	}
	putEntry := func(what string, e sharedEntry, again bool) {
		late(what, -1, func(st *fleetState) { f.putEntry(st, e, nowhere, true, again) })
	}
	for k := range f.parts {
		for to, e := range st.late.parts[k] {
			if e > 0 {
				late(status(to).String(), k, func(st *fleetState) { f.putPart(st, k, status(to), e-1, nowhere, true, false) })
			}
		}
	}
	for o, e := range st.late.takes {
		if e > 0 {
			putEntry("claim or take", sharedEntry{status: running, owner: owner(o), epoch: e - 1, external: st.isOutside(owner(o))}, false)
		}
	}
	if e := st.late.end; e > 0 {
		putEntry("final entry", sharedEntry{status: final, epoch: e - 1}, false)
	}
	if e := st.late.sleep; e > 0 {
		putEntry("sleep", f.sleeping(&st, e-1), true)
	}
	if e := st.late.pause; e > 0 {
		putEntry("sleep because of a pause", f.pausing(&st, e-1), true)
	}
	if st.late.over {
		putEntry("HandOver of a plan at rest", st.entry.over(), true)
	}
	if st.late.again {
		putEntry("update of the plan", st.entry, true)
	}
	if st.late.object {
		late("final object", -1, func(st *fleetState) { st.late.object = false; f.putObject(st) })
	}
}

// delete takes the next step of a Delete: object, sub-objects, entry, marker.
func (f *fleet) delete(st fleetState, yield func(move, fleetState)) {
	switch n := int(st.deleted); {
	case n == 0:
		st.object, st.late.object = noObject, false
	case n <= f.parts:
		st.parts[n-1] = sharedPart{}
		st.moves(n-1, nowhere)
	case n == f.parts+1:
		st.entry = sharedEntry{}
		st.movesEntry(nowhere)
	case n == f.parts+2:
		st.marker = false
	default:
		return
	}
	st.deleted++
	yield(move{nowhere, -1, "Delete removes the next blob", false}, st)
}

// pause is what people do: pause the plan, or resume it.
func (f *fleet) pause(st fleetState, yield func(move, fleetState)) {
	if st.paused {
		st.resume()
		yield(move{nowhere, -1, "somebody resumes the plan", false}, st)
		return
	}
	st.paused = true
	yield(move{nowhere, -1, "somebody pauses the plan", false}, st)
}

// resume removes the note.
func (st *fleetState) resume() { st.paused, st.entry.held = false, false }

// disturb is the next step of a process that is not a member and updates the first sub-object.
func (f *fleet) disturb(st fleetState, yield func(move, fleetState)) {
	p := &st.parts[0]
	switch h := &st.stranger; {
	case h.is == unread:
		if p.there && p.status != final && st.entry.there && st.entry.status == running {
			*h = held{is: current, status: p.status}
			yield(move{-1, 0, "a stranger reads", false}, st)
		}
	case p.there && (h.is == current || f.lacks(fleetVersions)):
		knows := h.is == current
		to := h.target(works)
		f.putPart(&st, 0, to, st.fenced, nowhere, knows, true)
		*h = held{}
		yield(move{-1, 0, "a stranger stores", false}, st)
	default:
		*h = held{}
		yield(move{-1, 0, "a stranger meets a conflict", false}, st)
	}
}

// live yields what happens to a node and to its record.
func (f *fleet) live(st fleetState, i int, yield func(move, fleetState)) {
	n := &st.nodes[i]
	switch {
	case n.dead:
		next := st
		f.rename(&next, i)
		next.nodes[i].dead = false
		yield(move{i, -1, "starts again and joins", false}, next)
		return
	case f.lateJoins && n.record == noRecord && !n.outside:
		next := st
		next.nodes[i].record = strangeRecord
		yield(move{i, -1, "a late request adds its record again", false}, next)
	}
	dead := st
	f.leave(&dead, i)
	gone := dead
	dead.nodes[i].dead = true
	yield(move{i, -1, "dies", false}, dead)
	if n.at != idle {
		yield(move{i, -1, "gives the plan up", false}, gone)
	}
}

// rename gives a process that joins again a new ID. Its old ID is gone.
func (f *fleet) rename(st *fleetState, i int) {
	old, gone := firstNode+owner(i), goneOwner
	if st.nodes[i].outside {
		gone = goneOutside
	} else {
		st.nodes[i].record = ownRecord
	}
	if st.entry.owner == old {
		st.entry.owner = gone
	}
	takes := &st.late.takes
	takes[gone] = older(takes[gone], takes[old])
	takes[old] = 0
}

// older returns the older of two late requests.
func older(a, b epoch) epoch {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// leave ends what a node does for the plan. Its requests in flight become late ones.
func (f *fleet) leave(st *fleetState, i int) {
	n := &st.nodes[i]
	switch {
	case !n.match && n.at != sendsObject, f.asks(st, n):
	case n.at == sendsClaim || n.at == sendsTake || n.at == sendsWake:
		o := firstNode + owner(i)
		if f.unrecorded {
			o = noOwner
		}
		st.late.takes[o] = older(st.late.takes[o], n.epoch+1)
	case n.at == sendsOver:
		st.late.over = true
	case n.at == sendsEnd:
		st.late.end = older(st.late.end, n.epoch+1)
	case n.at == sendsSleep && n.pauses:
		st.late.pause = older(st.late.pause, n.epoch+1)
	case n.at == sendsSleep:
		st.late.sleep = older(st.late.sleep, n.epoch+1)
	case n.again:
		st.late.again = true
	case n.at == sendsObject:
		st.late.object = st.object != noObject
	}
	for k := range n.held[:f.parts] {
		if h := &n.held[k]; h.sent != nothing && h.is == current {
			l := &st.late.parts[k][h.target(n.at)]
			*l = older(*l, n.epoch+1)
		}
	}
	drop(n)
}

// drop ends what a node does for the plan when it has nothing in flight that can take effect.
func drop(n *fleetNode) { *n = fleetNode{dead: n.dead, outside: n.outside, record: n.record} }

// inFlight reports whether updates are in flight.
func (n *fleetNode) inFlight() bool {
	return n.again || slices.ContainsFunc(n.held[:], func(h held) bool { return h.sent != nothing })
}

// knows reports whether the node knows that of a sub-object.
func (n *fleetNode) knows(k knowledge) bool {
	return slices.ContainsFunc(n.held[:], func(h held) bool { return h.is == k })
}

// act yields the steps of a node.
func (f *fleet) act(st fleetState, i int, yield func(move, fleetState)) {
	n := &st.nodes[i]
	if n.dead {
		return
	}
	if !f.unrecorded && !n.outside {
		for j := range f.nodes {
			if j != i && st.nodes[j].record != noRecord {
				next := st
				next.nodes[j].record = noRecord
				yield(move{i, -1, "removes another's record", true}, next)
			}
		}
		if n.record != ownRecord && !f.lacks(fleetHeartbeat) {
			next := st
			f.leave(&next, i)
			f.rename(&next, i)
			yield(move{i, -1, "is fenced by its heartbeat and joins anew", true}, next)
		}
	}
	switch n.at {
	case idle:
		f.look(st, i, yield)
		if st.entry.external && !n.outside {
			n.hands = true
			f.look(st, i, yield)
		}
	case readsPlan, readsAsleep, readsAhead, readsLate, readsOwn:
		f.read(st, i, yield)
	case sendsClaim, sendsTake, sendsEnd, sendsSleep, sendsWake, sendsOver:
		f.store(st, i, yield)
	case fences, works, stops:
		f.work(st, i, yield)
	case sendsObject:
		if st.object == noObject {
			drop(n)
			yield(move{i, -1, "finds no object", true}, st)
			return
		}
		f.putObject(&st)
		n.at = sendsUnmark
		yield(move{i, -1, "writes the final object", true}, st)
	case sendsUnmark:
		st.marker = false
		drop(n)
		yield(move{i, -1, "removes the marker", true}, st)
	}
}

// look is what an idle node does: it finds the plan and reads its entry.
func (f *fleet) look(st fleetState, i int, yield func(move, fleetState)) {
	n, e := &st.nodes[i], st.entry
	if !e.there || st.object == noObject {
		return
	}
	if f.lacks(fleetPauseOrder) && !n.asked && !st.paused {
		next := st
		next.nodes[i].asked = true
		yield(move{i, -1, "looks for the note of a pause", false}, next)
	}
	if e.status == running && f.lacks(fleetWakeReads) {
		next := st
		next.nodes[i].at = readsAhead
		yield(move{i, -1, "reads ahead", false}, next)
	}
	switch {
	case !f.mayPlace(&st, n):
	case n.hands && (e.status == notStarted || e.asleep && !f.lacks(fleetOverWakes)):
		n.at, n.epoch, n.match = sendsOver, e.epoch, true
		yield(move{i, -1, "reads the entry of a plan at rest", true}, st)
	case e.status == notStarted:
		n.at, n.epoch, n.match = sendsClaim, e.epoch+1, true
		for k := range f.parts {
			n.held[k] = held{is: current, status: st.parts[k].status}
		}
		yield(move{i, -1, "reads the plan and sends its claim", true}, st)
	case e.status == running && !e.asleep:
		own := e.owner == firstNode+owner(i) || n.outside && st.isOutside(e.owner) && f.lacks(fleetPlacedOwner)
		if n.outside && !own && !n.told && (e.epoch == st.fenced || !f.lacks(fleetPlacedTells)) {
			next := st
			next.nodes[i].told = true
			yield(move{i, -1, "is told the owner's epoch", true}, next)
		}
		if own && f.lacks(fleetOwnTaken) || !own && !f.isDead(&st, i) {
			return
		}
		n.at, n.epoch, n.match = readsPlan, e.epoch+1, true
		switch {
		case f.lacks(fleetReadFirst):
			n.at = sendsTake
		case f.lacks(fleetFenceOwn) && own:
			n.at, n.epoch = readsOwn, e.epoch
		case n.outside && f.lacks(fleetPlacedNext), n.hands && f.lacks(fleetOverNext):
			n.epoch = e.epoch
		}
		yield(move{i, -1, "reads the entry", true}, st)
	case e.status == running:
		f.wake(st, i, yield)
	case st.object == openObject:
		if !f.lacks(fleetCompletes) {
			n.at = sendsObject
			yield(move{i, -1, "finds a final entry and sends the object", true}, st)
		}
	case st.marker:
		st.marker = false
		yield(move{i, -1, "removes the marker of a final plan", true}, st)
	}
}

// mayPlace reports whether a node may claim, take or wake the plan, by who places it.
func (f *fleet) mayPlace(st *fleetState, n *fleetNode) bool {
	switch e := &st.entry; {
	case e.status == final:
		return true
	case n.outside:
		return e.external || e.status == notStarted || f.lacks(fleetPlacedOthers)
	case !e.external || n.hands:
		return true
	case e.status == notStarted:
		return f.lacks(fleetPlacedClaim)
	case e.asleep:
		return f.lacks(fleetPlacedWake)
	}
	return f.lacks(fleetPlacedTake)
}

// wake is what an idle node does about a plan that sleeps. That its time comes is a step of whoever waits for it.
func (f *fleet) wake(st fleetState, i int, yield func(move, fleetState)) {
	if st.entry.early {
		next := st
		next.entry.early = false
		yield(move{i, -1, "waits until the plan is due", true}, next)
	}
	if st.entry.marked && st.paused {
		next := st
		next.resume()
		yield(move{i, -1, "waits until the plan is resumed", true}, next)
	}
	if st.entry.early && !f.lacks(fleetWakeDue) && !st.nodes[i].hands || f.lacks(fleetWakeAll) || st.entry.marked && f.lacks(fleetPauseAll) {
		return
	}
	n := &st.nodes[i]
	n.asked = f.lacks(fleetPauseOrder) && n.asked
	n.at, n.epoch, n.match = readsAsleep, st.entry.epoch+1, true
	if f.lacks(fleetWakeEpoch) {
		n.epoch--
	}
	yield(move{i, -1, "reads the entry of a plan that sleeps", true}, st)
}

// sleeping is the entry that lets the plan sleep.
func (f *fleet) sleeping(st *fleetState, e epoch) sharedEntry {
	external := st.entry.external && !f.lacks(fleetPlacedSleep)
	return sharedEntry{status: running, owner: noOwner, epoch: e, asleep: !f.lacks(fleetSleepUntil), early: true, external: external}
}

// over is the entry of a plan that sleeps, or has not begun, after a HandOver: the same without External.
func (e sharedEntry) over() sharedEntry {
	e.external = false
	return e
}

// asks reports whether a node looks for the note before it sends its wake.
func (f *fleet) asks(st *fleetState, n *fleetNode) bool {
	return n.at == sendsWake && st.entry.marked && !n.asked && !n.hands && !f.lacks(fleetPauseAsk)
}

// pausing is the entry that lets the plan sleep because it is paused.
func (f *fleet) pausing(st *fleetState, e epoch) sharedEntry {
	asleep := f.sleeping(st, e)
	asleep.asleep, asleep.early, asleep.marked, asleep.held = true, false, !f.lacks(fleetPauseMark), st.paused
	return asleep
}

// isDead reports whether a node may take the plan from its owner.
func (f *fleet) isDead(st *fleetState, by int) bool {
	n, o := &st.nodes[by], st.entry.owner
	switch {
	case n.outside:
		return n.told || f.lacks(fleetPlacedEpoch)
	case n.hands:
		return true
	case f.unrecorded || f.lacks(fleetTakeDead) || o == noOwner:
		return true
	case f.lacks(fleetAbsentDead):
		return false
	case o < firstNode:
		return true
	}
	return st.nodes[o-firstNode].record == noRecord
}

// read reads the next sub-objects of a plan.
func (f *fleet) read(st fleetState, i int, yield func(move, fleetState)) {
	if n, e := &st.nodes[i], st.entry; n.at == readsAhead && e.asleep && !e.early {
		next := st
		n := &next.nodes[i]
		if n.at, n.epoch, n.match = sendsWake, e.epoch+1, true; !slices.ContainsFunc(n.held[:f.parts], func(h held) bool { return h.is == unread }) {
			yield(move{i, -1, "reads the entry of a plan that sleeps", true}, next)
		}
	}
	for k := range f.parts {
		next := st
		n := &next.nodes[i]
		switch p := st.parts[k]; {
		case n.held[k].is != unread:
			continue
		case !p.there:
			drop(n)
			yield(move{i, k, "finds no sub-object", true}, next)
			continue
		default:
			n.held[k] = held{is: current, status: p.status}
		}
		if !slices.ContainsFunc(n.held[:f.parts], func(h held) bool { return h.is == unread }) {
			switch {
			case n.at == readsOwn:
				n.at = works
			case n.at == readsAsleep:
				n.at = sendsWake
			case n.at == readsAhead:
			case n.at == readsLate || f.lacks(fleetFenceLast):
				f.beginFence(&next, i)
			default:
				n.at = sendsTake
			}
		}
		yield(move{i, k, "reads", true}, next)
	}
}

// store lets the entry that a node has sent take effect, or be refused.
func (f *fleet) store(st fleetState, i int, yield func(move, fleetState)) {
	n := &st.nodes[i]
	rules := map[activity]struct{ match, unknown rule }{
		sendsClaim: {fleetClaimMatch, fleetUnknownClaim},
		sendsTake:  {fleetTakeMatch, fleetUnknownTake},
		sendsEnd:   {fleetEndMatch, fleetUnknownEnd},
		sendsSleep: {fleetSleepMatch, ""},
		sendsWake:  {fleetWakeMatch, fleetUnknownWake},
		sendsOver:  {fleetTakeMatch, ""},
	}[n.at]
	there := st.entry.there || f.lacks(fleetNeverCreates)
	if !there || st.entry.there && !n.match && !f.lacks(rules.match) {
		if there && rules.unknown != "" && f.lacks(rules.unknown) {
			next := st
			f.stored(&next, i)
			yield(move{i, -1, "takes a refused entry for its own", true}, next)
		}
		drop(n)
		yield(move{i, -1, "meets a conflict at the entry", true}, st)
		return
	}
	if f.asks(&st, n) {
		if n.asked = true; st.paused {
			drop(n)
		}
		yield(move{i, -1, "looks for the note of a pause", true}, st)
		return
	}
	external := n.outside && !f.lacks(fleetPlacedSet) || n.hands && f.lacks(fleetOverClears)
	e := sharedEntry{status: running, owner: firstNode + owner(i), epoch: n.epoch, external: external}
	what := "its claim or take takes effect"
	switch n.at {
	case sendsEnd:
		e.status = final
		what = "its final entry takes effect"
	case sendsSleep:
		if e, what = f.sleeping(&st, n.epoch), "the plan sleeps"; n.pauses {
			e, what = f.pausing(&st, n.epoch), "the plan sleeps, paused"
		}
	case sendsWake:
		what = "it wakes the plan"
	case sendsOver:
		e, what = st.entry.over(), "it hands over a plan at rest"
	}
	f.putEntry(&st, e, i, n.match, n.at == sendsSleep || n.at == sendsOver)
	n.match, n.told = true, false
	f.stored(&st, i)
	yield(move{i, -1, what, true}, st)
}

// stored continues a node whose entry is stored.
func (f *fleet) stored(st *fleetState, i int) {
	n := &st.nodes[i]
	switch {
	case n.at == sendsSleep, n.at == sendsOver:
		drop(n)
	case n.at == sendsWake:
		n.at, n.hands = works, false
		st.fenced = max(st.fenced, n.epoch) // nothing was in flight, so nothing needs a fence
		for k, h := range n.held[:f.parts] {
			f.breaks(&st.outcome, wokenStale, h.is != current && st.parts[k].there)
		}
	case n.at == sendsClaim || n.at == sendsTake && f.lacks(fleetFenceLast):
		n.at, n.hands = works, false
		st.fenced = max(st.fenced, n.epoch)
	case n.at == sendsEnd:
		drop(n)
		n.at = sendsObject
	case f.lacks(fleetReadFirst):
		n.at = readsLate
	default:
		f.beginFence(st, i)
	}
}

// beginFence sends the sub-objects once more.
func (f *fleet) beginFence(st *fleetState, i int) {
	n := &st.nodes[i]
	n.at = fences
	for k := range n.held[:f.parts] {
		h := &n.held[k]
		switch {
		case n.outside && f.lacks(fleetPlacedFence), n.hands && f.lacks(fleetOverFence):
		case f.lacks(fleetFence), f.lacks(fleetFenceNew) && h.status == notStarted, f.lacks(fleetFenceFinal) && h.status == final:
		default:
			h.sent = update
		}
	}
	n.hands = false
	f.fence(st, i)
}

// fence finishes a fence once all its requests are answered.
func (f *fleet) fence(st *fleetState, i int) {
	n := &st.nodes[i]
	switch {
	case n.inFlight():
	case n.knows(refuted):
		drop(n)
	case f.lacks(fleetFenceLast) && n.match:
		n.at = sendsTake
	case f.lacks(fleetFenceLast):
		drop(n)
	default:
		n.at = works
		st.fenced = max(st.fenced, n.epoch)
	}
}

// work yields the steps of a fence, of an owner, and of an owner that stops.
func (f *fleet) work(st fleetState, i int, yield func(move, fleetState)) {
	was := &st.nodes[i]
	for k := range f.parts {
		h := was.held[k]
		next := st
		n := &next.nodes[i]
		switch {
		case h.sent != nothing:
			what := f.answer(&next, i, k)
			f.answered(&next, i)
			yield(move{i, k, what, true}, next)
		case was.at != works:
		case h.again:
			if st.parts[k].there {
				n.held[k] = held{is: current, status: st.parts[k].status}
				yield(move{i, k, "finds the plan its own and reads again", true}, next)
			}
		default:
			f.breaks(&next.outcome, actionRerun, h.status == running && h.overtaken)
			n.held[k].sent = update
			if h.status != final || !f.bound {
				yield(move{i, k, "runs and sends", h.status != final}, next)
			}
			if h.status == final && !f.bound {
				n.held[k].sent = restart
				yield(move{i, k, "restarts", false}, next)
			}
		}
	}
	f.again(st, i, yield)
	open := slices.ContainsFunc(was.held[:f.parts], func(h held) bool { return h.status != final })
	if f.pauses && was.at == works && !was.inFlight() {
		next := st
		n := &next.nodes[i]
		drop(n)
		n.at, n.epoch, n.match, n.pauses = sendsSleep, was.epoch, was.match, true
		yield(move{i, -1, "lets the plan sleep, for it has seen a pause", false}, next)
	}
	if f.sleeps && was.at == works && open && (!was.inFlight() || f.lacks(fleetSleepSettled)) {
		next := st
		match := was.match
		f.leave(&next, i) // what is in flight, if it may be, takes effect late
		n := &next.nodes[i]
		n.at, n.epoch, n.match = sendsSleep, was.epoch, match
		yield(move{i, -1, "lets the plan sleep", false}, next)
	}
	if was.at == works && (!was.inFlight() && !open || f.lacks(fleetPartsFirst)) {
		was.at, was.again, was.held = sendsEnd, false, [mostShared]held{}
		yield(move{i, -1, "sends the final entry", true}, st)
	}
}

// again yields the steps of an owner that stores the entry once more.
func (f *fleet) again(st fleetState, i int, yield func(move, fleetState)) {
	n := &st.nodes[i]
	switch {
	case n.again && st.entry.there && (n.match || f.lacks(fleetPlanMatch)):
		e := sharedEntry{status: running, owner: firstNode + owner(i), epoch: n.epoch, external: st.entry.external}
		f.putEntry(&st, e, i, n.match, true)
		n.match, n.again = true, false
		f.answered(&st, i)
		yield(move{i, -1, "updates the plan", true}, st)
	case n.again:
		n.match, n.again, n.at = false, false, stops
		f.answered(&st, i)
		yield(move{i, -1, "meets a conflict at the entry", true}, st)
	case n.at == works && !f.bound:
		n.again = true
		yield(move{i, -1, "sends the plan again", false}, st)
	}
}

// answered continues a node after an answer.
func (f *fleet) answered(st *fleetState, i int) {
	switch n := &st.nodes[i]; {
	case n.at == fences:
		f.fence(st, i)
	case n.at == stops && !n.inFlight():
		drop(n)
	}
}

// answer lets an update of a sub-object take effect, or be refused.
func (f *fleet) answer(st *fleetState, i, k int) string {
	n := &st.nodes[i]
	h := &n.held[k]
	p := st.parts[k]
	unconditional := f.lacks(fleetWorkMatch)
	if n.at == fences {
		unconditional = f.lacks(fleetFenceMatch)
	}
	if p.there && (h.is == current || unconditional) || !p.there && f.lacks(fleetNeverCreates) {
		to := h.target(n.at)
		f.putPart(st, k, to, n.epoch, i, h.is == current, n.at != fences)
		*h = held{is: current, status: to}
		return "stores"
	}
	*h = held{is: refuted}
	switch {
	case !p.there:
	case f.lacks(fleetFenceAgain) && n.at == fences:
		*h = held{is: current, status: p.status, sent: update}
		return "meets a conflict in its fence and reads again"
	case f.lacks(fleetConflictLooks) && n.at == works:
		*h = held{is: current, status: p.status}
		return "meets a conflict and reads again"
	case f.lacks(fleetConflictTakes) && n.at == works && st.entry.owner == firstNode+owner(i) && st.entry.epoch == n.epoch:
		*h = held{is: outdated, again: true}
		return "meets a conflict and finds the entry its own"
	}
	if n.at == works {
		n.at = stops
	}
	return "meets a conflict"
}

// check returns which promise is broken in a state, or "".
func (f *fleet) check(st *fleetState) string {
	if int(st.deleted) == f.parts+3 {
		for _, p := range st.parts[:f.parts] {
			f.breaks(&st.outcome, comesBack, p.there)
		}
		f.breaks(&st.outcome, comesBack, st.entry.there || st.object != noObject || st.marker)
	}
	for i, n := range st.nodes[:f.nodes] {
		for _, m := range st.nodes[:i] {
			f.breaks(&st.outcome, twoOwners, n.owns() && m.owns() && n.epoch == m.epoch && n.epoch > 0)
		}
	}
	return st.broken.String()
}

// owns reports whether the node believes that it owns the plan, and can still write.
func (n *fleetNode) owns() bool {
	return (n.at == fences || n.at == works || n.at == stops || n.at == sendsEnd || n.at == sendsSleep) && (n.match || n.knows(current))
}

// ended reports whether the plan needs no work any more.
func (st *fleetState) ended() bool {
	return st.object == noObject || st.entry.status == final && st.object == finalObject && !st.marker
}

// tidy makes states equal that differ only in the names of nodes and sub-objects, in the numbers of epochs, or
// in calls that are doomed.
func (f *fleet) tidy(st *fleetState) { f.canonical(st) }

// canonical returns for each node its new place.
func (f *fleet) canonical(st *fleetState) [mostNodes]uint8 {
	if f.lacking.within(harmless) && !f.apart {
		for i := range st.nodes[:f.nodes] {
			f.doom(&st.nodes[i])
		}
	}
	st.rank()
	places := f.sortNodes(st)
	if f.parts == 2 && !f.stranger && !f.deletes {
		other := *st
		other.parts[0], other.parts[1] = other.parts[1], other.parts[0]
		other.late.parts[0], other.late.parts[1] = other.late.parts[1], other.late.parts[0]
		for i := range other.nodes[:f.nodes] {
			h := &other.nodes[i].held
			h[0], h[1] = h[1], h[0]
		}
		second := f.sortNodes(&other)
		if hash(other) < hash(*st) {
			*st = other
			for i, p := range places {
				places[i] = second[p]
			}
		}
	}
	return places
}

// doom forgets what a node knows when nothing that it does can take effect any more. The node learns that by
// itself; until then it makes no difference.
func (f *fleet) doom(n *fleetNode) {
	switch n.at {
	case readsPlan, readsAsleep, sendsClaim, sendsTake, sendsEnd, sendsSleep, sendsWake, sendsOver:
		if !n.match {
			drop(n)
		}
	case fences:
		refused := func(h held) bool { return h.is == refuted || h.is == outdated && h.sent != nothing }
		if slices.ContainsFunc(n.held[:f.parts], refused) {
			n.match = false
			f.keepInFlight(n)
		}
	case works:
		for k := range n.held[:f.parts] {
			h := &n.held[k]
			if h.is == outdated && (h.sent != nothing || h.status != final || !n.match) {
				h.status, h.sent = running, update // it will be refused, whatever it is
			}
		}
		n.again = n.again || !n.match && !f.bound // the same
		if !n.match && !n.knows(current) {
			drop(n)
		}
	case stops:
		n.again = n.again && n.match
		n.match = n.again
		f.keepInFlight(n)
	case sendsObject, sendsUnmark:
		n.epoch = 0
	}
}

// keepInFlight forgets what a node knows except what is in flight and may take effect.
func (f *fleet) keepInFlight(n *fleetNode) {
	for k := range n.held[:f.parts] {
		if h := &n.held[k]; h.is != current || h.sent == nothing {
			*h = held{is: refuted}
		}
	}
	if !n.again && !n.knows(current) {
		drop(n)
	}
}

// rank replaces epochs by their ranks.
func (st *fleetState) rank() {
	var all [2 + mostNodes + mostLateEpochs]*epoch
	epochs := append(all[:0], &st.fenced, &st.entry.epoch)
	for i := range st.nodes {
		epochs = append(epochs, &st.nodes[i].epoch)
	}
	late := len(epochs)
	epochs = st.late.epochs(epochs)
	used := uint32(1) // one bit for each epoch
	fenced := st.fenced
	for i, e := range epochs {
		if i >= late {
			*e--
		}
		if *e < fenced {
			*e = 0
		}
		used |= 1 << *e
	}
	for i, e := range epochs {
		*e = epoch(bits.OnesCount32(used & (1<<*e - 1)))
		if i >= late {
			*e++
		}
	}
}

// epochs appends the epochs of the requests.
func (l *lateRequests) epochs(to []*epoch) []*epoch {
	for k := range l.parts {
		for s := range l.parts[k] {
			if l.parts[k][s] > 0 {
				to = append(to, &l.parts[k][s])
			}
		}
	}
	for o := range l.takes {
		if l.takes[o] > 0 {
			to = append(to, &l.takes[o])
		}
	}
	if l.end > 0 {
		to = append(to, &l.end)
	}
	if l.sleep > 0 {
		to = append(to, &l.sleep)
	}
	if l.pause > 0 {
		to = append(to, &l.pause)
	}
	return to
}

// sortNodes sorts the nodes and returns for each its new place. Any order will do that depends on what the nodes are alone.
func (f *fleet) sortNodes(st *fleetState) (places [mostNodes]uint8) {
	type sorted struct {
		node fleetNode
		owns bool
		late epoch
	}
	var (
		keys  [mostNodes]uint64
		order [mostNodes]uint8
	)
	for i := range f.nodes {
		keys[i] = hash(sorted{st.nodes[i], st.entry.owner == firstNode+owner(i), st.late.takes[int(firstNode)+i]})
		order[i] = uint8(i)
	}
	slices.SortFunc(order[:f.nodes], func(a, b uint8) int { return cmp.Compare(keys[a], keys[b]) })
	was := *st
	for i, old := range order[:f.nodes] {
		places[old] = uint8(i)
		st.nodes[i] = was.nodes[old]
		st.late.takes[int(firstNode)+i] = was.late.takes[uint8(firstNode)+old]
		if was.entry.owner == firstNode+owner(old) {
			st.entry.owner = firstNode + owner(i)
		}
	}
	return places
}
