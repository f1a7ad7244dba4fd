package protocol

import "slices"

// actor is who does something. Its number is its place in a situation, from 1.
type actor uint8

const (
	nobody  actor = 0
	earlier actor = 100 // whoever made the plan that a situation begins with
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
)

func (r role) String() string {
	return [...]string{"Create", "Update", "Delete", "Recovery", "Read", "List"}[r]
}

func (r role) run(c *call) result {
	return [...]func(*call) result{(*call).create, (*call).update, (*call).delete, (*call).recover, (*call).read, (*call).list}[r](c)
}

// result is how a call ended.
type result string

// The results. Those that begin with an exclamation mark must never come up.
const (
	done         result = "nil"
	exists       result = "ErrExists"
	conflict     result = "ErrConflict"
	notFound     result = "ErrNotFound"
	unavailable  result = "ErrUnavailable, for certain without effect"
	unknown      result = "ErrUnknown"
	left         result = "left for the next run"
	died         result = "died"
	diedDeleting result = "died with the delete begun"
	showed       result = "showed a plan"
	missed       result = "did not show a plan that was there when it began"

	corrupt result = "!calls damaged what nobody damaged"
	stale   result = "!shows what was overwritten before it began"
	half    result = "!shows a plan that is not whole"
	ghost   result = "!shows a plan whose Delete had returned before"
)

// call is one run of an actor's program. The program is run from its beginning for each answer, with the answers so far: so it
// reads as the vault's code does, and its state is nothing but the answers that it has had.
type call struct {
	self    actor
	lacking set  // the rules that are taken away
	two     bool // the plan has two parts
	history []answer
	pos     int
	begun   bool // a delete that can no longer be called off
	again   bool // the same call, made again after ErrUnknown
}

// pause stops a program at requests that have not been answered yet.
type pause struct {
	asks  []request
	index []uint8 // of each among those that were sent at once
	given int     // how many of those have been answered
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
	panic(p) // taken up by whoever runs the program
}

func (c *call) one(r request) answer { return c.all(r)[0] }

// without says whether a rule is taken away.
func (c *call) without(r rule) bool { return c.lacking.has(r) }

// unless is a condition, or none where a rule is taken away.
func (c *call) unless(r rule, cond condition) condition {
	if c.without(r) {
		return always
	}
	return cond
}

func (c *call) read1(step string, b blob) version {
	return c.one(request{step: step, verb: get, blob: b}).seen[b]
}

func (c *call) parts() []blob {
	if c.two {
		return []blob{part1, part2}
	}
	return []blob{part1}
}

// removal is a request to remove a blob: where a version is given, only that one.
func removal(step string, b blob, cond condition, v version) request {
	return request{step: step, verb: remove, blob: b, cond: cond, match: v}
}

func good(answers []answer) bool {
	return !slices.ContainsFunc(answers, func(a answer) bool { return a.code != ok })
}

func uncertain(answers []answer) bool {
	return slices.ContainsFunc(answers, func(a answer) bool { return a.unknown })
}

// failed is what a call returns for a write that failed.
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

// create is Vault.Create: marker, entry, parts, object.
func (c *call) create() result {
	mine := version{by: c.self, of: c.self}
	write := func(step string, b blob, cond condition) request {
		r := request{step: step, verb: put, blob: b, cond: cond, value: mine, limit: withinGrace}
		if c.without(ruleDeadline) {
			r.limit = noLimit
		}
		return r
	}
	// A marker that was there may be that of another Create which has not come to its entry yet, so it is to stay.
	shared := false
	writeMarker := func() answer {
		if !c.without(ruleUndoMarkerOwn) {
			if m := c.one(write("write marker", marker, ifNew)); m.code != mismatch {
				return m
			}
			shared = true
		}
		return c.one(write("write marker", marker, always))
	}
	putParts := func() []answer {
		var rs []request
		for _, b := range c.parts() {
			r := write("write action", b, c.unless(ruleNewPart, ifNew))
			r.refusable = true
			rs = append(rs, r)
		}
		return c.all(rs...)
	}
	putObject := func() answer {
		r := write("write object", object, c.unless(ruleNewObject, ifNew))
		if !c.without(ruleDeadline) {
			r.limit = withinCommit
		}
		return c.one(r)
	}

	c.one(request{verb: clock}) // started
	var m answer
	if !c.without(ruleMarkerFirst) {
		if m = writeMarker(); m.code != ok {
			return failed(m)
		}
	}
	var parts []answer
	if c.without(ruleEntryBeforeParts) {
		if parts = putParts(); !good(parts) {
			return unknown
		}
	}
	e := c.one(write("write entry", entry, c.unless(ruleNewEntry, ifNew)))
	if e.code == mismatch {
		if c.without(ruleTakenMarkerStays) {
			c.one(removal("remove marker", marker, ifMatch, m.seen[marker]))
		}
		if c.read1("look for the plan whose entry is there", object).there() {
			return exists
		}
		return conflict
	}
	if e.code != ok {
		return failed(e)
	}
	if c.without(ruleMarkerFirst) {
		if m = writeMarker(); m.code != ok {
			return failed(m)
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
		if !good(c.all(rs...)) {
			return false
		}
		if a := c.one(removal("remove entry", entry, ifMatch, e.seen[entry])); a.code != ok {
			return false
		}
		if shared {
			return true
		}
		a := c.one(removal("remove marker", marker, c.unless(ruleUndoMarkerMatch, ifMatch), m.seen[marker]))
		return a.code == ok || a.code == mismatch
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
	if !c.without(ruleObjectLast) {
		if !c.without(ruleDeadline) && c.one(request{verb: clock}).phase >= overGrace {
			return undo(nil)
		}
		// The commit point.
		o := putObject()
		if o.code != ok {
			if c.without(ruleUndoBeforeObject) {
				return undo(nil)
			}
			return failed(o)
		}
		if !c.without(ruleClock) && c.one(request{verb: clock}).phase >= overGrace {
			cond := c.unless(ruleWithdrawMatch, ifMatch)
			if c.one(removal("remove object that came too late", object, cond, o.seen[object])).code != ok || !removeAll() {
				return unknown
			}
			return unavailable
		}
	}
	return done
}

// update is an engine that takes a plan from NotStarted to its end: UpdatePlan, UpdateAction for each part, UpdatePlan.
func (c *call) update() result {
	now := c.one(request{verb: begin}).seen // what Create or Read gave it
	of := now[entry].of
	update := func(step string, b blob, s status) answer {
		v := version{by: c.self, of: of, status: s, again: c.again}
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
		return update("update plan", entry, running)
	}
	if !c.without(ruleRunningFirst) {
		if a := runs(); a.code != ok {
			return failed(a)
		}
	}
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

	settle := func() answer {
		v := version{by: c.self, of: of, status: final, parts: final, again: c.again}
		cond := ifThere
		if c.without(ruleSettleThere) {
			cond = always
		}
		return c.one(request{step: "settle object", verb: put, blob: object, cond: cond, value: v})
	}
	for {
		if c.without(ruleEntryFirst) {
			if a := settle(); a.code != ok {
				return unknown
			}
		}
		if a := update("update plan", entry, final); a.code != ok {
			return failed(a)
		}
		var steps []func() answer
		steps = append(steps, settle, func() answer { return c.one(removal("remove marker", marker, always, version{})) })
		if c.without(ruleSettleMarkerLast) {
			slices.Reverse(steps)
		}
		a := steps[0]()
		if a.code == absent {
			return notFound
		}
		if a.code == ok {
			a = steps[1]()
		}
		switch {
		case a.code == ok:
			return done
		case c.again || a.code != ended:
			return unknown
		}
		c.again = true // the same call again settles it
	}
}

// delete is Vault.Delete: delete marker, object, parts, entry, markers.
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
	o := c.read1("read object", object)
	parts := c.parts()
	if !o.there() {
		if c.without(ruleResume) || !c.read1("look for delete marker", deleteMarker).there() {
			return notFound
		}
		parts = c.listParts().found()
	}
	if !c.without(ruleDeleteMarker) {
		v := version{by: c.self, of: c.self, again: c.again}
		if a := c.one(request{step: "write delete marker", verb: put, blob: deleteMarker, value: v}); a.code != ok {
			return unknown
		}
	}
	c.begun = true
	removeObject := func() result {
		for o.there() {
			a := c.one(removal("remove object", object, c.unless(ruleDeleteMatch, ifMatch), o))
			if a.code == ok {
				break
			}
			if a.code != mismatch {
				return unknown
			}
			o = c.read1("look at object", object)
		}
		return done
	}
	removeParts := func() bool {
		var rs []request
		for _, b := range parts {
			rs = append(rs, removal("remove sub-objects", b, always, version{}))
		}
		return good(c.all(rs...))
	}
	removeEntry := func() bool { return c.one(removal("remove entry", entry, always, version{})).code == ok }
	removeMarkers := func() bool {
		return good(c.all(removal("remove markers", marker, always, version{}), removal("remove markers", deleteMarker, always, version{})))
	}

	if !c.without(ruleObjectFirst) {
		if r := removeObject(); r != done {
			return r
		}
	}
	steps := []func() bool{removeParts, removeEntry, removeMarkers}
	switch {
	case c.without(ruleEntryAfterParts):
		steps[0], steps[1] = steps[1], steps[0]
	case c.without(ruleMarkersLast):
		steps[1], steps[2] = steps[2], steps[1]
	}
	for _, step := range steps {
		if !step() {
			return unknown
		}
	}
	if c.without(ruleObjectFirst) {
		return removeObject()
	}
	return done
}

// partList is a listing of the parts.
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

// recover is Vault.Recover, for one plan.
func (c *call) recover() result {
	markers := []blob{marker, deleteMarker}
	if c.without(ruleRecoveryLooks) {
		markers = append(markers, entry, object)
	}
	open := c.one(request{step: "list", verb: list, listed: markers}).seen
	if !open[marker].there() && !open[deleteMarker].there() {
		return done
	}
	e, o := c.look(open)
	young := func(vs ...version) bool {
		return !c.without(ruleGrace) && slices.ContainsFunc(vs, func(v version) bool {
			return v.there() && (!v.old || v.since != 0 && !c.without(ruleGraceAtListing))
		})
	}
	if !e.there() || !o.there() {
		seen := []version{open[marker], open[deleteMarker], e, o}
		if c.without(ruleGraceOfAll) {
			seen = seen[:2]
		}
		if young(seen...) {
			return left
		}
		return c.clear(open, e, o)
	}
	removeMarker := func(b blob) {
		// One that has changed is somebody else's.
		c.one(removal("remove marker", b, c.unless(ruleRecoveryMarkerMatch, ifMatch), open[b]))
	}
	if open[deleteMarker].there() {
		if young(open[deleteMarker]) && !c.without(ruleRecoveryDeleteMarker) {
			return left
		}
		removeMarker(deleteMarker)
	}
	switch {
	case e.status == final && o.status == final:
		if open[marker].there() {
			removeMarker(marker)
		}
	case e.status == final:
		return c.complete(open, o)
	case o.status == final:
		// They were asked for at once, so the plan may have been completed between the two answers.
		if !c.without(ruleRecoveryLooksAgain) {
			if e = c.read1("look at entry", entry); !e.there() || e.status == final {
				return done
			}
		}
		return corrupt
	case e.status == notStarted:
		return c.verify()
	}
	return done
}

// look asks for entry and object at once.
func (c *call) look(open store) (e, o version) {
	if c.without(ruleRecoveryLooks) {
		return open[entry], open[object]
	}
	got := c.all(request{step: "look for plan", verb: get, blob: entry}, request{step: "look for plan", verb: get, blob: object})
	return got[0].seen[entry], got[1].seen[object]
}

// clear is recovery.remove: object, parts, entry, markers, each in the version that was seen.
func (c *call) clear(open store, e, o version) result {
	if o.there() {
		if c.one(removal("remove object", object, c.unless(ruleRecoveryObjectMatch, ifMatch), o)).code != ok {
			return left
		}
	}
	items := c.listParts()
	var rs []request
	for _, b := range items.found() {
		if items.seen[b].since != 0 && !c.without(ruleRecoveryNewParts) {
			return left // written since the markers were listed
		}
		rs = append(rs, removal("remove sub-objects", b, c.unless(ruleRecoveryPartMatch, ifMatch), items.seen[b]))
	}
	if !good(c.all(rs...)) && !c.without(ruleRecoveryChangedParts) {
		return left
	}
	steps := []func() bool{
		func() bool {
			return !e.there() || c.one(removal("remove entry", entry, c.unless(ruleRecoveryEntryMatch, ifMatch), e)).code == ok
		},
	}
	for _, b := range []blob{marker, deleteMarker} {
		steps = append(steps, func() bool {
			if !open[b].there() {
				return true
			}
			a := c.one(removal("remove marker", b, c.unless(ruleRecoveryMarkerMatch, ifMatch), open[b]))
			return a.code == ok || a.code == mismatch
		})
	}
	if c.without(ruleRecoveryMarkerLast) {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if !step() {
			return left
		}
	}
	return done
}

// complete is recovery.complete: what the last update did not come to.
func (c *call) complete(open store, seen version) result {
	e := c.read1("read entry", entry)
	if !e.there() {
		return left
	}
	o := c.read1("read object", object)
	if !o.there() {
		return left
	}
	v := version{by: c.self, of: o.of, status: e.status, parts: o.parts}
	if !c.without(ruleCompleteReads) {
		parts, r := c.assemble()
		if r != done {
			return r
		}
		v.parts = parts
	}
	a := c.one(request{step: "settle object", verb: put, blob: object, cond: c.unless(ruleCompleteMatch, ifMatch), match: seen, value: v})
	if a.code != ok {
		return left
	}
	if open[marker].there() {
		c.one(removal("remove marker", marker, c.unless(ruleRecoveryMarkerMatch, ifMatch), open[marker]))
	}
	return done
}

// verify is recovery.verify: a part that is missing was lost from outside.
func (c *call) verify() result {
	o := c.read1("read object", object)
	if !o.there() {
		return done
	}
	items := c.listParts()
	missing := false
	for _, b := range c.parts() {
		missing = missing || !items.seen[b].there() && !c.read1("look for action", b).there()
	}
	if !missing {
		return done
	}
	if now := c.read1("look for object", object); !now.there() || now.etag() != o.etag() && !c.without(ruleVerifySameObject) {
		return done
	}
	return corrupt
}

// assemble reads the parts, and returns how far the one has come that is furthest behind.
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

// read is Vault.Read, with a look at what was there when it began.
func (c *call) read() result {
	began := c.one(request{verb: begin})
	before := began.seen
	// least is the least that the parts of a plan may be shown as.
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

// absence is ErrNotFound, or a plan that is not listed: right, unless the plan was there all the time.
func absence(before store) result {
	if before.visible() {
		return missed
	}
	return notFound
}

// list is Vault.List, or a Search: entry and object are neighbours in a listing, but may be on two pages.
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
