package protocol

import (
	"slices"
)

// actor is the number of an actor: its place in a situation, from 1.
type actor uint8

const (
	nobody  actor = 0
	earlier actor = 100 // the creator of the plan that a situation begins with
)

// role is the program of an actor.
type role uint8

// The roles.
const (
	creating role = iota
	updating
	deleting
	recovering
	reading
	listing
	restoring      // a Running plan
	restoringFinal // a final plan
)

// creates reports whether the role is a Create or a Restore.
func (r role) creates() bool { return r == creating || r == restoring || r == restoringFinal }

// status returns the status of the plan that a Create or Restore stores.
func (r role) status() status {
	switch r {
	case restoring:
		return running
	case restoringFinal:
		return final
	}
	return notStarted
}

func (r role) String() string {
	return [...]string{"Create", "Update", "Delete", "Recovery", "Read", "List", "Restore", "Restore as final"}[r]
}

func (r role) run(c *call) result {
	if r.creates() {
		return c.create(r)
	}
	return [...]func(*call) result{updating: (*call).update, deleting: (*call).delete, recovering: (*call).recover, reading: (*call).read, listing: (*call).list}[r](c)
}

// result is the outcome of a call.
type result string

// The results. Those with an exclamation mark must never occur.
const (
	done         result = "nil"
	exists       result = "ErrExists"
	conflict     result = "ErrConflict"
	notFound     result = "ErrNotFound"
	unavailable  result = "ErrUnavailable, certainly without effect"
	unknown      result = "ErrUnknown"
	kept         result = "ErrUnknown: created late, and somebody runs it"
	left         result = "left for the next run"
	cleared      result = "removed old remains"
	reported     result = "ErrCorrupt, for a loss from outside"
	superseded   result = "nil: a later completion follows"
	contradicted result = "ErrUnavailable: the service contradicts itself"
	died         result = "died"
	diedDeleting result = "died after its commit point"
	showed       result = "returned a plan"
	missed       result = "misses a plan that existed when it began"

	corrupt result = "!reports damage that did not occur"
	stale   result = "!returns a version that was overwritten before it began"
	half    result = "!returns an incomplete plan"
	ghost   result = "!returns a deleted plan"
)

// rounds is how often a call starts again when something has changed. The vault allows more rounds.
const rounds = 2

// call is one run of an actor's program. For each answer, the program runs from its beginning with all
// answers so far. This way a program reads like the vault's code, and its state is nothing but its answers.
type call struct {
	self     actor
	lacking  rules // the rules that are taken away
	two      bool  // the plan has two sub-objects
	brief    bool  // it has the shorter of two grace periods
	thorough bool  // it is a thorough Repair
	patient  bool  // it leaves old remains to Recovery
	long     bool  // it has the longer of two grace periods
	history  []answer
	pos      int
	begun    bool  // a Delete whose commit may have been sent
	claimed  bool  // an update that has moved the plan to Running
	returned bool  // a completion that has returned nil and goes on in the background
	looked   bool  // a late Create that removes its plan, because the plan had not started when it looked
	again    bool  // this is a retry of the call after ErrUnknown
	nth      uint8 // number of earlier calls or rounds
	dated    bool  // it compares ages
}

// pause stops a program at unanswered requests.
type pause struct {
	asks  []request
	index []uint8 // the position of each among the requests sent at once
	given int     // how many of them have been answered
}

// advance runs a program until it ends or pauses.
func (c *call) advance(r role) (asked pause, end result, over bool) {
	defer func() {
		if p := recover(); p != nil {
			var ok bool
			if asked, ok = p.(pause); !ok {
				panic(p)
			}
		}
	}()
	return pause{}, r.run(c), true
}

// all sends requests at once and returns their answers.
func (c *call) all(rs ...request) []answer {
	got := make([]answer, len(rs))
	answered := make([]bool, len(rs))
	n := 0
	for ; n < len(rs) && c.pos < len(c.history); n++ {
		a := c.history[c.pos]
		got[a.index], answered[a.index] = a, true
		c.pos++
	}
	if n == len(rs) {
		return got
	}
	p := pause{given: n}
	for i, r := range rs {
		if !answered[i] {
			p.asks, p.index = append(p.asks, r), append(p.index, uint8(i))
		}
	}
	panic(p) // recovered by advance
}

func (c *call) one(r request) answer { return c.all(r)[0] }

// without reports whether the situation lacks a rule.
func (c *call) without(r rule) bool { return c.lacking.has(r) }

// unless returns a condition, or always if the situation lacks the rule.
func (c *call) unless(r rule, cond condition) condition {
	if c.without(r) {
		return always
	}
	return cond
}

func (c *call) read1(step string, b blob) version {
	return c.one(request{step: step, verb: get, blob: b}).seen[b]
}

// headPlan asks for entry and object at once.
func (c *call) headPlan(step string) (e, o version) {
	got := c.all(request{step: step, verb: get, blob: entry}, request{step: step, verb: get, blob: object})
	return got[0].seen[entry], got[1].seen[object]
}

// gone confirms that blobs don't exist: a listing lacks them, and a second request for each finds nothing. A
// single 404 is no evidence.
func (c *call) gone(bs ...blob) bool {
	there := c.confirm(bs...)
	return !slices.ContainsFunc(bs, func(b blob) bool { return there[b].there() })
}

// confirm returns the versions that a listing or a second request for each blob finds.
func (c *call) confirm(bs ...blob) store {
	there := c.one(request{step: "confirm", verb: list, listed: bs}).seen
	var rs []request
	for _, b := range bs {
		rs = append(rs, request{step: "confirm", verb: get, blob: b})
	}
	for i, a := range c.all(rs...) {
		if v := a.seen[bs[i]]; v.there() {
			there[bs[i]] = v
		}
	}
	return there
}

// removed removes blobs and reports whether they are gone. Blobs that were not found are confirmed, unless
// the rule is lacking.
func (c *call) removed(confirms rule, rs ...request) bool {
	var absentees []blob
	for i, a := range c.all(rs...) {
		switch a.code {
		case ok:
		case absent:
			absentees = append(absentees, rs[i].blob)
		default:
			return false
		}
	}
	return len(absentees) == 0 || c.without(confirms) || c.gone(absentees...)
}

func (c *call) parts() []blob {
	if c.two {
		return []blob{part1, part2}
	}
	return []blob{part1}
}

// removal returns a request that removes a blob, with ifMatch only in the given version.
func removal(step string, b blob, cond condition, v version) request {
	return request{step: step, verb: remove, blob: b, cond: cond, match: v}
}

func good(answers []answer) bool {
	return !slices.ContainsFunc(answers, func(a answer) bool { return a.code != ok })
}

func uncertain(answers []answer) bool {
	return slices.ContainsFunc(answers, func(a answer) bool { return a.unknown })
}

// failed returns the result of a call whose write failed.
func failed(a answer) result {
	switch {
	case a.unknown:
		return unknown
	case a.code == mismatch:
		return conflict
	case a.code == absent:
		return notFound
	}
	return unavailable
}

// create is Vault.Create and Vault.Restore: marker, entry, sub-objects, object. It removes old remains in its way
// and then starts again, once.
func (c *call) create(as role) result {
	r := c.createOnce(as)
	if r != cleared {
		return r
	}
	c.nth++
	c.dated = false
	if r = c.createOnce(as); r == cleared {
		return conflict
	}
	return r
}

func (c *call) createOnce(as role) result {
	mine := version{by: c.self, of: c.self, nth: c.nth}
	// stored is what a blob of the plan holds.
	stored := func(b blob) version {
		v := mine
		v.status = as.status()
		switch b {
		case entry:
			v.restored = as != creating && !c.without(ruleRestored)
		case object:
			v.parts, v.tells = v.status, v.by
		}
		return v
	}
	write := func(step string, b blob, cond condition) request {
		r := request{step: step, verb: put, blob: b, cond: cond, value: mine, limit: withinGrace}
		if c.without(ruleDeadline) {
			r.limit = noLimit
		}
		return r
	}
	var m answer
	// An existing marker may belong to another Create that has not written its entry yet. Such a marker must
	// stay.
	shared := false
	writeMarker := func() result {
		for range rounds {
			w := write("write marker", marker, ifNew)
			w.starts = true
			w.value.long = c.long
			if m = c.one(w); m.code == ok {
				return done
			}
			if m.code != mismatch {
				return failed(m)
			}
			if !c.without(ruleMarkerStays) {
				e, o := c.headPlan("look for the plan whose marker is there")
				if e.there() && o.there() {
					return exists
				}
				if e.there() || o.there() {
					return c.remains()
				}
			}
			shared = !c.without(ruleUndoMarkerOwn) // even if the answer does not say so
			w.starts = false
			w.cond = always
			if !c.without(ruleGraceKept) {
				now := c.read1("look at marker", marker)
				if !now.there() {
					continue
				}
				w.cond, w.match = ifMatch, now
				w.value.long = c.long || now.long
			}
			if m = c.one(w); m.code == ok {
				return done
			}
			if m.code != mismatch && m.code != absent {
				return failed(m)
			}
		}
		return conflict
	}
	putParts := func() []answer {
		var rs []request
		for _, b := range c.parts() {
			r := write("write action", b, c.unless(ruleNewPart, ifNew))
			r.value = stored(b)
			r.refusable = true
			rs = append(rs, r)
		}
		return c.all(rs...)
	}
	putObject := func() answer {
		r := write("write object", object, c.unless(ruleNewObject, ifNew))
		r.value = stored(object)
		r.refusable = true
		if !c.without(ruleDeadline) {
			r.limit = withinCommit
		}
		return c.one(r)
	}

	if c.nth == 0 {
		c.one(request{verb: clock}) // started
	}
	if !c.without(ruleMarkerFirst) {
		if r := writeMarker(); r != done {
			return r
		}
	}
	var parts []answer
	if c.without(ruleEntryBeforeParts) {
		if parts = putParts(); !good(parts) {
			return unknown
		}
	}
	w := write("write entry", entry, c.unless(ruleNewEntry, ifNew))
	w.value = stored(entry)
	e := c.one(w)
	if e.code == mismatch {
		there := c.read1("look for the plan whose entry is there", object).there()
		if !shared && !c.without(ruleTakenMarkerOwn) || shared && c.without(ruleTakenMarkerShared) {
			c.one(removal("remove marker", marker, ifMatch, m.seen[marker]))
		}
		if there {
			return exists
		}
		return c.remains()
	}
	if e.code != ok {
		return failed(e)
	}
	if c.without(ruleMarkerFirst) {
		if r := writeMarker(); r != done {
			return r
		}
	}

	// removeAll is creation.remove.
	removeAll := func() bool {
		var rs []request
		for i, b := range c.parts() {
			var seen version
			if i < len(parts) {
				seen = parts[i].seen[b]
			}
			if c.without(ruleUndoPartMatch) {
				rs = append(rs, removal("remove sub-objects", b, always, version{}))
			} else if seen.there() {
				rs = append(rs, removal("remove sub-objects", b, ifMatch, seen))
			}
		}
		if !c.removed(ruleUndoConfirms, rs...) {
			return false
		}
		if !c.removed(ruleUndoConfirms, removal("remove entry", entry, c.unless(ruleUndoEntryMatch, ifMatch), e.seen[entry])) {
			return false
		}
		return shared || c.takeMarker(removal("remove marker", marker, c.unless(ruleUndoMarkerMatch, ifMatch), m.seen[marker]))
	}
	undo := func(why []answer) result {
		if uncertain(why) && !c.without(ruleUndoCertain) || !removeAll() {
			return unknown
		}
		return unavailable
	}

	if c.without(ruleObjectLast) {
		if o := putObject(); o.code != ok {
			return unknown
		}
	}
	if parts == nil {
		if parts = putParts(); !good(parts) {
			return undo(parts)
		}
	}
	if c.without(ruleObjectLast) {
		return done
	}
	if !c.without(ruleDeadline) && c.one(request{verb: clock}).phase >= overGrace {
		return undo(nil)
	}
	// The commit point.
	o := putObject()
	switch {
	case o.code == ok:
	case c.without(ruleUndoBeforeObject):
		return undo(nil)
	case o.code != mismatch && !o.unknown && !c.without(ruleUndoRefused):
		return undo(nil)
	default:
		return failed(o)
	}
	if c.without(ruleClock) || c.one(request{verb: clock}).phase < overGrace {
		if as == restoringFinal && !shared {
			c.takeMarker(removal("remove marker", marker, c.unless(ruleRestoredMarkerMatch, ifMatch), m.seen[marker]))
		}
		return done
	}

	// The late object is withdrawn in the order of a Delete, because another actor may have found and
	// advanced the plan. If the plan is Running by now, it is left.
	var d answer
	if !c.without(ruleWithdrawMarker) {
		d = c.one(request{step: "write delete marker", verb: put, blob: deleteMarker, value: mine})
		if d.code != ok {
			return unknown
		}
	}
	removeDeleteMarker := func() bool {
		return !d.seen[deleteMarker].there() || c.takeMarker(removal("remove marker", deleteMarker, ifMatch, d.seen[deleteMarker]))
	}
	// keep is creation.keep: it stores the sub-objects again, so that a Recovery that is about to remove them
	// fails. It returns done if it comes too late for that. The entry of a Restore says that the plan has started
	// although nobody has updated it, so it is stored again, too.
	keep := func(now version) result {
		again := stored(part1)
		again.nth += rounds
		if as != creating && now == e.seen[entry].etag() && !c.without(ruleKeepEntry) {
			v := stored(entry)
			v.nth += rounds
			a := c.one(request{step: "rewrite entry", verb: put, blob: entry, cond: ifMatch, match: now, value: v})
			switch {
			case a.code == ok:
				e = a
			case a.code == absent && c.gone(entry):
				return done
			case a.code != mismatch:
				return unknown
			}
		}
		if !c.without(ruleKeepRewrites) {
			var rs []request
			for i, b := range c.parts() {
				rs = append(rs, request{step: "rewrite action", verb: put, blob: b, cond: c.unless(ruleKeepMatch, ifMatch), match: parts[i].seen[b], value: again})
			}
			var absentees []blob
			for i, a := range c.all(rs...) {
				switch a.code {
				case ok:
					parts[i] = a
				case absent:
					absentees = append(absentees, c.parts()[i])
				}
			}
			if len(absentees) > 0 && !c.without(ruleKeepWhole) {
				if !c.gone(absentees...) {
					return unknown
				}
				return done
			}
		}
		if !removeDeleteMarker() {
			return unknown
		}
		return kept
	}
	if !c.without(ruleWithdrawLooks) {
		now := c.read1("look at entry", entry)
		switch {
		case !now.there() && !c.without(ruleWithdrawConfirms):
			if !c.gone(entry) {
				return unknown
			}
		case now.status >= running:
			if r := keep(now); r != done {
				return r
			}
		}
	}
	c.looked = true
	if !c.removed(ruleUndoConfirms, removal("remove object that came too late", object, c.unless(ruleWithdrawMatch, ifMatch), o.seen[object])) || !removeAll() {
		return unknown
	}
	if !removeDeleteMarker() {
		return unknown
	}
	return unavailable
}

// takeMarker removes a marker. A changed marker belongs to another actor. If a 404 is wrong, Recovery finds
// the marker later.
func (c *call) takeMarker(r request) bool {
	a := c.one(r)
	return a.code == ok || a.code == mismatch || a.code == absent
}

// remains is what a Create does about an entry without an object: the same as Recovery.
func (c *call) remains() result {
	if c.patient || c.without(ruleCreateClears) {
		return conflict
	}
	open := c.listMarkers("list markers")
	e, o := c.headPlan("look for plan")
	switch c.diagnose(&open, e, o) {
	case whole:
		return exists
	case lost:
		return c.report(e, o)
	case wait:
		return conflict
	}
	switch r := c.clear(&open, e, o); r {
	case done:
		return cleared
	case left:
		return conflict
	default:
		return r
	}
}

// update is an engine that completes a plan: UpdatePlan, UpdateAction for each sub-object, UpdatePlan.
func (c *call) update() result {
	now := c.one(request{verb: begin}).seen // what Create or Read returned
	of := now[entry].of
	update := func(step string, b blob, s status) answer {
		v := version{by: c.self, of: of, status: s, nth: c.nth}
		cond := ifMatch
		if c.without(ruleUpdateMatch) {
			cond = ifThere
		}
		a := c.one(request{step: step, verb: put, blob: b, cond: cond, match: now[b], value: v})
		if a.code == ok {
			now[b] = a.seen[b]
		}
		return a
	}
	runs := func() answer {
		if now[entry].status >= running {
			return answer{}
		}
		a := update("update plan", entry, running)
		c.claimed = a.code == ok
		return a
	}
	if !c.without(ruleRunningFirst) {
		if a := runs(); a.code != ok {
			return failed(a)
		}
	}
	now[marker], now[deleteMarker] = version{}, version{}
	for _, b := range c.parts() {
		if now[b].status == final {
			continue
		}
		if a := update("update action", b, final); a.code != ok {
			return failed(a)
		}
	}
	if a := runs(); a.code != ok {
		return failed(a)
	}

	// finalize writes the object and removes the marker. If the object has changed, Recovery has rewritten it
	// to stop a Delete or has completed it, or another completion has. The owner of the current entry writes
	// last.
	finalize := func() result {
		v := version{by: c.self, of: of, status: final, parts: final, tells: c.self, nth: c.nth}
		seen := now[object]
		var e, o version
		for range rounds {
			a := c.one(request{step: "finalize object", verb: put, blob: object, cond: c.unless(ruleFinalizeMatch, ifMatch), match: seen, value: v})
			switch {
			case a.code == ok:
				now[object] = a.seen[object]
				return done
			case a.code == ended:
				return unknown
			case c.without(ruleFinalizeAgain):
				return conflict
			case a.code == absent && c.without(ruleFinalizeConfirms):
				return notFound
			}
			// If this call's entry is still current after reading the object, no later completion has written
			// that object.
			look := []func(){func() { o = c.read1("look at object", object) }, func() { e = c.read1("look at entry", entry) }}
			if c.without(ruleFinalizeObjectFirst) {
				slices.Reverse(look)
			}
			for _, f := range look {
				f()
			}
			var absentees []blob
			if !e.there() {
				absentees = append(absentees, entry)
			}
			if !o.there() {
				absentees = append(absentees, object)
			}
			switch {
			case len(absentees) > 0 && c.gone(absentees...):
				return notFound
			case len(absentees) > 0:
				return unknown
			case e.of != of:
				return notFound
			case e.etag() != now[entry].etag() && e.status != final:
				return unknown // lost from outside and restored
			case e.etag() != now[entry].etag() && !c.without(ruleFinalizeOwn):
				return superseded
			}
			seen = o
		}
		return unknown
	}
	removeMarker := func() result {
		switch a := c.one(removal("remove marker", marker, always, version{})); a.code {
		case ok, absent:
			return done
		default:
			return unknown
		}
	}
	for {
		if c.without(ruleEntryFirst) {
			if finalize() != done {
				return unknown
			}
		}
		if a := update("update plan", entry, final); a.code != ok {
			return failed(a)
		}
		steps := []func() result{finalize, removeMarker}
		if c.without(ruleFinalizeMarkerLast) {
			slices.Reverse(steps)
		}
		r := steps[0]()
		if r == done {
			c.returned = c.without(ruleFinalizeWaits)
			r = steps[1]()
		}
		switch {
		case r == superseded:
			// The later completion does the rest, or Recovery, which follows the marker.
			if c.without(ruleSupersededMarker) {
				removeMarker()
			}
			return done
		case r != unknown || c.again:
			return r
		}
		c.again = true // this is a retry of the call after ErrUnknown
		c.nth++
	}
}

// delete is Vault.Delete: delete marker, object, sub-objects, entry, markers.
func (c *call) delete() result {
	for {
		switch r := c.deleteOnce(); {
		case r != unknown || c.again:
			return r
		}
		c.again = true
	}
}

func (c *call) deleteOnce() result {
	parts := c.parts()
	resumed := false // the sub-objects come from a listing, which may be incomplete
	var seen store   // the versions to remove
	var o version
	removeObject := func() answer {
		r := removal("remove object", object, c.unless(ruleDeleteMatch, ifMatch), o)
		if !c.without(ruleDeleteDeadline) {
			r.limit = withinGrace
		}
		before := c.begun
		c.begun = true
		a := c.one(r)
		if a.code == absent && !c.without(ruleDeleteConfirms) {
			if c.gone(object) {
				a.code = ok
			}
		} else if a.code == absent {
			a.code = ok
		}
		if a.code != ok && !a.unknown {
			c.begun = before
		}
		return a
	}
	// commit removes the object. It reads a changed object again, and one whose removal is late: the marker
	// must be recent until the removal is sent, because Recovery may have removed an old marker.
	commit := func() result {
		for round := range rounds {
			c.nth++
			seen = c.lookBeforeDelete()
			o = seen[object]
			if !o.there() {
				if c.without(ruleResume) || !c.read1("look for delete marker", deleteMarker).there() {
					return notFound
				}
				if !c.without(ruleResumeConfirms) && !c.gone(object) {
					return contradicted
				}
				list := c.listParts()
				resumed, parts = true, list.found()
				for _, b := range parts {
					seen[b] = list.seen[b]
				}
			}
			if !c.without(ruleDeleteMarker) && (round == 0 || !c.without(ruleDeleteMarkerAgain)) {
				v := version{by: c.self, of: c.self, nth: c.nth}
				a := c.one(request{step: "write delete marker", verb: put, blob: deleteMarker, value: v, starts: true})
				if a.code != ok {
					return unknown
				}
				seen[deleteMarker] = a.seen[deleteMarker]
			}
			if !o.there() || c.without(ruleObjectFirst) {
				c.begun = true
				return done
			}
			switch a := removeObject(); {
			case a.code == ok:
				return done
			case a.unknown:
				return unknown
			case a.code == absent:
				return contradicted
			}
		}
		return conflict
	}
	removeParts := func() bool {
		if !c.removeSeen("remove sub-objects", ruleDeletePartMatch, seen, parts...) {
			return false
		}
		return !resumed || c.without(ruleResumeListsAgain) || len(c.listParts().found()) == 0
	}
	removeEntry := func() bool {
		return c.removeSeen("remove entry", ruleDeleteEntryMatch, seen, entry)
	}
	removeMarkers := func() bool {
		cond := c.unless(ruleDeleteMarkersMatch, ifMatch)
		got := c.all(removal("remove markers", marker, cond, seen[marker]), removal("remove markers", deleteMarker, cond, seen[deleteMarker]))
		return !slices.ContainsFunc(got, func(a answer) bool { return a.code == ended })
	}

	if r := commit(); r != done {
		return r
	}
	if c.again {
		c.nth = 0 // no longer used
	}
	if !c.without(ruleObjectFirst) {
		o = version{}
	}
	steps := []func() bool{removeParts, removeEntry, removeMarkers}
	switch {
	case c.without(ruleObjectFirst):
		steps = append(steps, func() bool { return removeObject().code == ok })
	case c.without(ruleEntryAfterParts):
		steps[0], steps[1] = steps[1], steps[0]
	case c.without(ruleMarkersLast):
		steps[1], steps[2] = steps[2], steps[1]
	}
	if !each(steps) {
		return unknown
	}
	return done
}

// lookBeforeDelete returns the versions that a Delete removes. The object names those that the sub-objects had when it was
// written. An open plan has an entry and a marker, so their absence is asked for twice.
func (c *call) lookBeforeDelete() store {
	named := request{step: "read object", verb: list, listed: append([]blob{object}, c.parts()...)}
	look := []request{{step: "look at plan", verb: get, blob: entry}, {step: "look at plan", verb: get, blob: marker}}
	got := c.all(append(look, named)...)
	seen := got[2].seen
	for _, b := range c.parts() {
		seen[b].status = seen[object].parts
	}
	seen[entry], seen[marker] = got[0].seen[entry], got[1].seen[marker]
	if seen[object].there() && (!seen[entry].there() || !seen[marker].there() && seen[entry].status != final) {
		for i, a := range c.all(look...) {
			if b := look[i].blob; a.seen[b].there() {
				seen[b] = a.seen[b]
			}
		}
	}
	return seen
}

// removeSeen removes blobs in the versions that a Delete has seen. It looks again at those that have changed, and at those
// that are absent by a single answer.
func (c *call) removeSeen(step string, match rule, seen store, bs ...blob) bool {
	for range rounds {
		var rs []request
		for _, b := range bs {
			rs = append(rs, removal(step, b, c.unless(match, ifMatch), seen[b]))
		}
		var absentees, changed []blob
		for i, a := range c.all(rs...) {
			switch a.code {
			case ok:
			case absent:
				absentees = append(absentees, bs[i])
			case mismatch:
				changed = append(changed, bs[i])
			default:
				return false
			}
		}
		for _, b := range changed {
			seen[b] = c.read1("look at plan", b)
		}
		if len(absentees) > 0 && !c.without(ruleDeleteListsAgain) {
			there := c.confirm(absentees...)
			for _, b := range absentees {
				switch v := there[b]; {
				case !v.there():
				case v.etag() == seen[b].etag():
					return false
				case !c.without(ruleDeleteAbsentChanged):
					seen[b], changed = v, append(changed, b)
				}
			}
		}
		if len(changed) == 0 {
			return true
		}
		bs = changed
	}
	return false
}

// inOrder takes steps until one fails, the last one first if a rule is lacking.
func (c *call) inOrder(order rule, steps ...func() bool) bool {
	if c.without(order) {
		slices.Reverse(steps)
	}
	return each(steps)
}

func each(steps []func() bool) bool {
	return !slices.ContainsFunc(steps, func(step func() bool) bool { return !step() })
}

// partList is a listing of the sub-objects.
type partList answer

func (c *call) listParts() partList {
	return partList(c.one(request{step: "list sub-objects", verb: list, listed: c.parts()}))
}

func (l partList) found() []blob {
	var bs []blob
	for _, b := range []blob{part1, part2} {
		if l.seen[b].there() {
			bs = append(bs, b)
		}
	}
	return bs
}

// finding is what diagnose concludes about a plan.
type finding uint8

const (
	whole      finding = iota // entry and object exist
	wait                      // a writer may be active
	remains                   // left by an unfinished Create or Delete; to remove
	lost                      // entry or object was lost from outside; to report, and nothing is changed
	restorable                // a thorough Repair can restore the entry
)

// diagnose distinguishes the remains of a Create, Restore or Delete from a loss. A Create without an object has
// never advanced its entry. A Restore has left a marker, and its entry says that it is restored. A Delete has left its marker. Neither removes the entry before the object.
func (c *call) diagnose(open *store, e, o version) finding {
	seen := []version{open[marker], open[deleteMarker], e, o}
	if c.without(ruleGraceOfAll) {
		seen = seen[:2]
	}
	switch {
	case e.there() && o.there():
		return whole
	case c.recent(open, seen...):
		return wait
	case o.there() && c.thorough && !open[deleteMarker].there() && (o.status == final || open[marker].there()):
		return restorable // a late copy of Create's last request leaves neither
	case o.there() && !c.without(ruleLostEntry):
		return lost
	case e.status >= running && !open[deleteMarker].there() && !c.without(ruleLostObject):
		if e.restored && (open[marker].there() || c.without(ruleRestoredMarked)) {
			return remains // of a Restore
		}
		return lost
	}
	return remains
}

// report confirms that entry or object was lost from outside. The two reads may have been on both sides of a
// Delete: then its marker still exists, or the other blob is gone or has changed.
func (c *call) report(e, o version) result {
	if c.without(ruleLossConfirms) {
		return reported
	}
	if c.read1("look for delete marker", deleteMarker).there() {
		return left
	}
	gone, rest, seen := object, entry, e
	if o.there() {
		gone, rest, seen = entry, object, o
	}
	if !c.gone(gone) {
		return contradicted
	}
	if c.read1("confirm", rest).etag() != seen.etag() {
		return left
	}
	return reported
}

// recent reports whether the writer of any of these versions may still be active.
func (c *call) recent(open *store, vs ...version) bool {
	enough := patience(c.lacking, c.brief, open)
	return !c.without(ruleGrace) && slices.ContainsFunc(vs, func(v version) bool {
		return v.there() && (v.age < enough || v.since != 0 && !c.without(ruleGraceAtListing))
	})
}

// listMarkers lists a plan's markers. From now on ages are compared with this time.
func (c *call) listMarkers(step string) store {
	listed := []blob{marker, deleteMarker}
	if c.without(ruleRecoveryLooks) {
		listed = append(listed, entry, object)
	}
	a := c.one(request{step: step, verb: list, listed: listed, dates: true})
	c.dated = true
	return a.seen
}

// recover is Admin.Repair for one plan.
func (c *call) recover() result {
	open := c.listMarkers("list")
	nothing := !open[marker].there() && !open[deleteMarker].there()
	if nothing && c.thorough {
		everything := append([]blob{entry, object}, c.parts()...)
		nothing = c.one(request{step: "list", verb: list, listed: everything}).seen == store{}
	}
	if nothing {
		return done
	}
	e, o := open[entry], open[object]
	if !c.without(ruleRecoveryLooks) {
		e, o = c.headPlan("look for plan")
	}
	switch c.diagnose(&open, e, o) {
	case wait:
		return left
	case lost:
		return c.report(e, o)
	case restorable:
		if r := c.report(e, o); r != reported {
			return r
		}
		return c.restore(o)
	case remains:
		return c.clear(&open, e, o)
	}
	removeMarker := func(b blob) {
		c.takeMarker(removal("remove marker", b, c.unless(ruleRecoveryMarkerMatch, ifMatch), open[b]))
	}
	if open[deleteMarker].there() {
		if c.recent(&open, open[deleteMarker]) && !c.without(ruleRecoveryDeleteMarker) {
			return left
		}
		rewrite := func() bool { return c.without(ruleRewrite) || c.rewrite(&o) }
		if !c.inOrder(ruleRewriteFirst, rewrite, func() bool { removeMarker(deleteMarker); return true }) {
			return left
		}
	}
	switch {
	case e.status == final && o.status == final:
		if open[marker].there() {
			removeMarker(marker)
		}
		if c.thorough {
			return c.verify()
		}
	case e.status == final:
		return c.complete(&open, o)
	case o.status == final:
		// Both reads were concurrent, so the plan may have been completed between their answers.
		if !c.without(ruleRecoveryLooksAgain) {
			if e = c.read1("look at entry", entry); !e.there() || e.status == final {
				return done
			}
		}
		return corrupt
	case c.thorough && !open[marker].there() && !c.without(ruleRestoreMarker):
		v := version{by: c.self, of: o.of}
		if c.one(request{step: "write marker", verb: put, blob: marker, cond: ifNew, value: v}).code != ok {
			return left
		}
		return c.verify()
	case c.thorough:
		return c.verify()
	}
	return done
}

// restore writes a lost entry from the object. It writes an open entry as Running, because readers then read
// the sub-objects: an engine that read the plan before may have advanced them, or be about to.
func (c *call) restore(o version) result {
	// A completion that wrote the lost entry must stop, and so must a Delete that read the object before.
	if !c.without(ruleRestoreRewrites) && !c.rewrite(&o) {
		return left
	}
	v := version{by: c.self, of: o.of, status: o.status}
	if v.status != final && !c.without(ruleRestoreRunning) {
		v.status = running
	}
	a := c.one(request{step: "rewrite entry", verb: put, blob: entry, cond: c.unless(ruleRestoreNew, ifNew), value: v})
	if a.code != ok {
		return left
	}
	// The plan may have been deleted meanwhile, and then no marker leads to the entry.
	if !c.without(ruleRestoreLooks) && c.read1("look at object", object).etag() != o.etag() {
		c.one(removal("remove entry", entry, ifMatch, a.seen[entry]))
	}
	return done
}

// rewrite rewrites an object unchanged, so that a Delete that wrote the old delete marker fails to commit.
func (c *call) rewrite(o *version) bool {
	now := c.read1("read object", object)
	if !now.there() || now.status != o.status {
		return false
	}
	v := now.etag()
	v.by, v.nth, v.retry = c.self, c.nth, false
	a := c.one(request{step: "rewrite object", verb: put, blob: object, cond: c.unless(ruleRewriteMatch, ifMatch), match: now, value: v})
	*o = a.seen[object]
	return a.code == ok
}

// clear is recovery.remove: sub-objects, entry, markers, each in the version that was read.
func (c *call) clear(open *store, e, o version) result {
	if o.there() {
		if c.one(removal("remove object", object, ifMatch, o)).code != ok {
			return left
		}
	} else if !c.without(ruleRecoveryConfirms) {
		absentees := []blob{object}
		if !e.there() {
			absentees = append(absentees, entry)
		}
		if !c.gone(absentees...) {
			return contradicted
		}
	}
	items := c.listParts()
	var rs []request
	for _, b := range items.found() {
		if items.seen[b].since != 0 && !c.without(ruleRecoveryNewParts) {
			return left // written after the listing of the markers
		}
		rs = append(rs, removal("remove sub-objects", b, c.unless(ruleRecoveryPartMatch, ifMatch), items.seen[b]))
	}
	changed := slices.ContainsFunc(c.all(rs...), func(a answer) bool { return a.code != ok && a.code != absent })
	if changed && !c.without(ruleRecoveryChangedParts) {
		return left
	}
	if !c.without(ruleRecoveryListsAgain) && len(c.listParts().found()) > 0 {
		return left
	}
	steps := []func() bool{
		func() bool {
			return !e.there() || c.removed(ruleRecoveryEntryConfirms, removal("remove entry", entry, c.unless(ruleRecoveryEntryMatch, ifMatch), e))
		},
	}
	for _, b := range []blob{marker, deleteMarker} {
		steps = append(steps, func() bool {
			return !open[b].there() || c.takeMarker(removal("remove marker", b, c.unless(ruleRecoveryMarkerMatch, ifMatch), open[b]))
		})
	}
	if !c.inOrder(ruleRecoveryMarkerLast, steps...) {
		return left
	}
	return done
}

// complete is what Recovery does instead of an update that did not finish.
func (c *call) complete(open *store, seen version) result {
	e := c.read1("read entry", entry)
	if !e.there() {
		return left
	}
	status := e.status
	if e.hollow {
		if !c.without(ruleCompleteContent) {
			return reported
		}
		status = running
	}
	o := c.read1("read object", object)
	if !o.there() {
		return left
	}
	v := version{by: c.self, of: o.of, status: status, parts: o.parts, tells: e.by, nth: c.nth}
	if !c.without(ruleCompleteReads) {
		parts, r := c.assemble()
		if r != done {
			return r
		}
		v.parts = parts
	}
	a := c.one(request{step: "finalize object", verb: put, blob: object, cond: c.unless(ruleCompleteMatch, ifMatch), match: seen, value: v})
	if a.code != ok {
		return left
	}
	if open[marker].there() {
		c.takeMarker(removal("remove marker", marker, c.unless(ruleRecoveryMarkerMatch, ifMatch), open[marker]))
	}
	return done
}

// verify is recovery.verify, of a thorough Repair: a missing sub-object was lost from outside.
func (c *call) verify() result {
	o := c.read1("read object", object)
	if !o.there() {
		return done
	}
	items := c.listParts()
	var missing []blob
	for _, b := range c.parts() {
		if !items.seen[b].there() && !c.read1("look for action", b).there() {
			missing = append(missing, b)
		}
	}
	if len(missing) == 0 {
		return done
	}
	if !c.gone(missing...) {
		return contradicted
	}
	if now := c.read1("look for object", object); !now.there() || now.etag() != o.etag() && !c.without(ruleVerifySameObject) {
		return done
	}
	for _, b := range missing {
		v := version{by: c.self, of: o.of, status: o.parts}
		if c.one(request{step: "rewrite action", verb: put, blob: b, cond: c.unless(ruleRestoreNew, ifNew), value: v}).code != ok {
			return left
		}
	}
	return done
}

// assemble reads the sub-objects and returns the lowest status.
func (c *call) assemble() (status, result) {
	var rs []request
	for _, b := range c.parts() {
		rs = append(rs, request{step: "read action", verb: get, blob: b})
	}
	least := final
	for i, a := range c.all(rs...) {
		v := a.seen[c.parts()[i]]
		if !v.there() {
			if c.without(ruleReadMissing) {
				return 0, corrupt
			}
			if !c.read1("look for object", object).there() {
				return 0, notFound
			}
			return 0, corrupt
		}
		least = min(least, v.status)
	}
	return least, done
}

// read is Vault.Read. It also reads the store when it begins, to check the result.
func (c *call) read() result {
	began := c.one(request{verb: begin})
	before := began.seen
	// least is the lowest status that the returned sub-objects may have.
	least := final
	for _, b := range c.parts() {
		least = min(least, before[b].status)
	}
	show := func(s, parts status) result {
		switch {
		case began.deleted:
			return ghost
		case before.visible() && (s < before[entry].status || parts < least):
			return stale
		case s == final && parts != final:
			return half
		}
		return showed
	}

	got := c.all(request{step: "read entry", verb: get, blob: entry}, request{step: "read object", verb: get, blob: object})
	e, o := got[0].seen[entry], got[1].seen[object]
	if c.without(ruleShownWhole) && e.there() && !o.there() {
		return half
	}
	if !e.there() || !o.there() {
		return absence(before)
	}
	if o.status == final && e.status != final {
		if !c.without(ruleReadAgain) {
			e = c.read1("read entry", entry)
		}
		if !e.there() {
			return absence(before)
		}
		if e.status != final {
			return corrupt
		}
	}
	if e.status == notStarted || o.status == final || c.without(ruleReadParts) || c.without(ruleReadStale) && e.status == final {
		return show(e.status, o.parts)
	}
	parts, r := c.assemble()
	switch r {
	case notFound:
		return absence(before)
	case corrupt:
		return corrupt
	}
	return show(e.status, parts)
}

// absence is ErrNotFound, or a plan that is not listed. This is wrong if the plan existed all the time.
func absence(before store) result {
	if before.visible() {
		return missed
	}
	return notFound
}

// list is Vault.List or Vault.Search. Entry and object are neighbours in a listing, but may be on two pages.
func (c *call) list() result {
	began := c.one(request{verb: begin})
	before := began.seen
	e := c.read1("list", entry)
	o := c.read1("list", object)
	if !e.there() || !o.there() && !c.without(ruleShownWhole) {
		return absence(before)
	}
	if !o.there() {
		return half
	}
	switch {
	case began.deleted:
		return ghost
	case before.visible() && e.status < before[entry].status:
		return stale
	}
	return showed
}
