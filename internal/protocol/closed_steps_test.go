package protocol

// first returns the state in which the situation begins.
func (d *closedDay) first() dayState {
	st := dayState{there: true, plan: d.plan}
	if d.later {
		st.phase = 2
	}
	if d.plan == formOpen || d.plan == formEnded {
		st.marks[slotMarker] = youngMarker
	}
	return st
}

// steps yields everything that can happen.
func (d *closedDay) steps(st dayState, yield func(move, dayState)) {
	nobody := stepsOf(st, -1, yield)
	d.outside(&st, nobody)
	d.recover(&st, nobody)
	d.arrive(&st, yield)
	for i := range d.roles {
		step := stepsOf(st, i, yield)
		if st.calls[i].at != dayIdle && d.roles[i] != dayHold {
			step("dies or gives up", func(st *dayState, _ *dayCall) { d.die(st, i) })
		}
		d.act(&st, i, step)
	}
}

// stepper yields a step: a change of a copy of the state, and of the call that takes the step.
type stepper func(what string, do func(*dayState, *dayCall))

// stepsOf returns how a call takes steps. Nobody's steps have no call.
func stepsOf(st dayState, i int, yield func(move, dayState)) stepper {
	return func(what string, do func(*dayState, *dayCall)) {
		next, call := st, (*dayCall)(nil)
		if i >= 0 {
			call = &next.calls[i]
		}
		do(&next, call)
		yield(move{i, -1, what, false}, next)
	}
}

// shows notes that a listing of plans/ yields something else from now on.
func (st *dayState) shows() {
	turn := func(c *content) {
		if *c == equal {
			*c = unequal
		}
	}
	turn(&st.catalogue)
	for i := range st.calls {
		turn(&st.calls[i].lists)
	}
	st.late[unequal] = st.late[unequal] || st.late[equal]
	st.late[equal] = false
}

// puts stores the catalogue or removes it. The conditions of others on it fail from now on.
func (d *closedDay) puts(st *dayState, c content) {
	if st.catalogue == noContent && c == noContent {
		return
	}
	st.catalogue = c
	for i, r := range d.roles {
		if r == dayBuild {
			st.calls[i].match = false
		}
	}
	st.late = [unequal + 1]bool{}
}

// drops changes open/dropping. What others know of it is out of date.
func (st *dayState) drops(there bool) {
	st.dropping = there
	for i := range st.calls {
		if k := &st.calls[i].knows; *k == droppingCurrent {
			*k = droppingOutdated
		}
	}
}

// marked notes that a marker has a new version, or is gone.
func (d *closedDay) marked(st *dayState, s slot, age markerAge) {
	st.marks[s] = age
	for i := range d.roles {
		if d.slot(i) == s {
			st.calls[i].own = false
		}
	}
	if s == slotDelete {
		st.rewritten = false
	}
}

// slot returns the marker that a call writes.
func (d *closedDay) slot(i int) slot {
	switch d.roles[i] {
	case dayCreate, dayRestore:
		return slotMarker
	case dayUpdate, dayRepair:
		if d.lacks(dayChangeMarker) {
			return slotMarker
		}
		return slotChange
	}
	return slotDelete
}

// rewrites notes that the object, or with entry the entry, has a new version.
func (d *closedDay) rewrites(st *dayState, entry bool) {
	for i, r := range d.roles {
		if entry && r == dayUpdate || !entry && (r == dayDelete || r == dayRepair) {
			st.calls[i].match = false
		}
	}
}

// outside yields what happens without a call.
func (d *closedDay) outside(st *dayState, step stepper) {
	if st.phase < 2 {
		step("a day passes", func(st *dayState, _ *dayCall) {
			st.phase++
			for i := range st.calls {
				// A window is much shorter than a day, even one that seems to have begun on the day before.
				if c := &st.calls[i]; st.phase == 2 && c.at.window() && !c.told {
					c.slow = true
				}
			}
		})
	}
	step("grace period and margin pass", func(st *dayState, _ *dayCall) {
		for i := range st.calls {
			st.calls[i].slow = st.calls[i].slow || st.calls[i].at.window()
		}
		for s, age := range st.marks {
			if age == youngMarker {
				st.marks[s] = oldMarker
			}
		}
	})
	if st.lease >= firstLease {
		step("the lease runs out", func(st *dayState, _ *dayCall) { st.lease = noLease })
	}
	if d.anew && !st.there {
		step("another Create makes the container anew", func(st *dayState, _ *dayCall) { st.there = true })
	}
	if d.loses && st.plan == formOpen && st.marks[slotMarker] != noMarker {
		step("the marker is lost from outside", func(st *dayState, _ *dayCall) {
			d.marked(st, slotMarker, noMarker)
			st.lost = true
		})
	}
	if st.catalogue != noContent {
		step("a late removal of the catalogue takes effect", func(st *dayState, _ *dayCall) { d.puts(st, noContent) })
	}
	if st.latePlaceholder && st.there {
		step("a late placeholder arrives", func(st *dayState, _ *dayCall) {
			if st.latePlaceholder = false; st.catalogue == noContent {
				d.puts(st, placeholder)
			}
		})
	}
	for _, c := range []content{equal, unequal} {
		if st.late[c] && st.there {
			step("a late catalogue arrives", func(st *dayState, _ *dayCall) { d.puts(st, c) })
		}
	}
}

// recover yields what Recovery does with markers that are old.
func (d *closedDay) recover(st *dayState, step stepper) {
	m, c, x := st.marks[slotMarker], st.marks[slotChange], st.marks[slotDelete]
	gone := func(slots ...slot) func(*dayState, *dayCall) {
		return func(st *dayState, _ *dayCall) {
			if st.plan == formEntry {
				st.plan = formAbsent
			}
			for _, s := range slots {
				d.marked(st, s, noMarker)
			}
		}
	}
	if c == oldMarker && !d.lacks(dayChangeCleared) {
		step("Recovery removes an old change marker", func(st *dayState, _ *dayCall) { d.marked(st, slotChange, noMarker) })
	}
	switch {
	case x == oldMarker && !st.plan.visible() && st.plan != formHeadless && m != youngMarker:
		step("Recovery finishes a Delete", gone(slotMarker, slotDelete))
	case x == oldMarker && st.plan.visible():
		if !st.rewritten {
			step("Recovery rewrites the object", func(st *dayState, _ *dayCall) {
				st.rewritten = true
				d.rewrites(st, false)
			})
		}
		if st.rewritten || d.lacks(dayRewrite) {
			step("Recovery removes an old delete marker", gone(slotDelete))
		}
	case x != noMarker:
	case m == oldMarker && (st.plan == formAbsent || st.plan == formEntry):
		step("Recovery removes the remains of a Create", gone(slotMarker))
	case m == oldMarker && st.plan == formEnded:
		step("Recovery completes the plan", func(st *dayState, _ *dayCall) {
			st.plan = formFinal
			d.rewrites(st, false)
		})
	case m == oldMarker && st.plan == formFinal:
		step("Recovery removes the marker of a final plan", gone(slotMarker))
	}
}

// arrive lets late requests to delete the container take effect.
func (d *closedDay) arrive(st *dayState, yield func(move, dayState)) {
	for i := range d.roles {
		// The expiry of a plan may not overlap with a Create of its ID, as a Delete may not.
		if st.lateDrops&(1<<i) == 0 || st.plan.visible() && d.active(st, dayMarked, dayEntryThere, -1, dayCreate, dayRestore) {
			continue
		}
		stepsOf(*st, i, yield)("its DELETE of the container arrives", func(st *dayState, _ *dayCall) {
			st.lateDrops &^= 1 << i
			if st.there && (st.lease == firstLease+lease(i) || d.lacks(dayExpireLease) || d.lacks(dayExpireNames)) {
				d.drop(st)
			}
		})
	}
}

// drop removes the container with everything in it.
func (d *closedDay) drop(st *dayState) {
	switch {
	case st.held:
		d.breaks(&st.outcome, dayHeldDropped, true)
	case st.plan == formOpen && !st.lost:
		d.breaks(&st.outcome, dayOpenDropped, true)
	}
	if st.plan.visible() {
		st.shows()
	}
	st.there, st.plan, st.lease, st.held, st.lost = false, formAbsent, noLease, false, false
	for s := range slots {
		d.marked(st, s, noMarker)
	}
	d.puts(st, noContent)
	st.drops(false)
	d.rewrites(st, false)
	d.rewrites(st, true)
}

// die ends a call. What a builder or an Expire has sent may arrive later. A change has nothing under way that
// matters: that its commit takes effect and it dies afterwards is the same.
func (d *closedDay) die(st *dayState, i int) {
	c := &st.calls[i]
	switch c.at {
	case dayPlacing:
		st.latePlaceholder = true
	case dayListed:
		if c.match || d.lacks(dayCatalogueMatch) {
			st.late[c.lists] = true
		}
	}
	*c = dayCall{}
}

// act yields the next steps of a call.
func (d *closedDay) act(st *dayState, i int, step stepper) {
	switch d.roles[i] {
	case dayHold:
		d.hold(st, i, step)
	case dayExpire:
		d.expire(st, i, step)
	case dayClear:
		d.clear(st, i, step)
	case dayBuild:
		d.build(st, i, step)
	default:
		d.change(st, i, step)
	}
}

// to returns a step that does nothing but go on.
func to(p dayPlace) func(*dayState, *dayCall) {
	return func(_ *dayState, c *dayCall) { c.at = p }
}

// end is a step that ends a call.
func end(_ *dayState, c *dayCall) { *c = dayCall{} }

// active reports whether a call of one of the roles is between its places from and until.
func (d *closedDay) active(st *dayState, from, until dayPlace, but int, roles ...dayRole) bool {
	for i, r := range d.roles {
		if i == but || st.calls[i].at < from || st.calls[i].at > until {
			continue
		}
		for _, is := range roles {
			if r == is {
				return true
			}
		}
	}
	return false
}

// mayBegin reports whether a change may begin. A Create may not overlap with a Delete of its ID or with an
// update of the deleted plan, which the protocol does not cover.
func (d *closedDay) mayBegin(st *dayState, i int) bool {
	switch d.roles[i] {
	case dayCreate, dayRestore:
		return st.plan == formAbsent && !d.active(st, dayRead, dayAborts, i, dayUpdate, dayDelete, dayRepair) &&
			!d.active(st, dayCommitted, dayObjectFinal, i, dayCreate, dayRestore)
	case dayDelete:
		return st.plan != formAbsent && st.plan != formEntry && !d.active(st, dayRead, dayCommitted, i, dayCreate, dayRestore)
	case dayUpdate:
		return st.plan == formFinal
	}
	return st.plan == formHeadless
}

// change yields the next steps of Create, Restore, Update, Delete and a thorough Repair: marker, removal of the
// catalogue and a look, commit.
func (d *closedDay) change(st *dayState, i int, step stepper) {
	role, s, c := d.roles[i], d.slot(i), st.calls[i]
	creates := role == dayCreate || role == dayRestore
	switch c.at {
	case dayIdle:
		if !d.mayBegin(st, i) {
			return
		}
		step("begins", func(_ *dayState, c *dayCall) { c.at, c.match = dayRead, true })
	case dayRead:
		switch {
		case d.lacks(dayMarkerFirst) && !c.clear && st.phase > 0:
			step("remove catalogue", func(st *dayState, c *dayCall) { d.puts(st, noContent); c.clear = true })
		case creates && d.lacks(dayCreateLooksLate) && !c.looked:
			step("look for open/dropping", func(st *dayState, c *dayCall) {
				if c.looked = true; st.dropping {
					end(st, c)
				}
			})
		case role == dayDelete && d.lacks(dayDeleteLooksLate) && !c.looked:
			step("look for a hold", func(st *dayState, c *dayCall) {
				if c.looked = true; st.lease == holdLease {
					end(st, c)
				}
			})
		default:
			d.mark(st, i, step)
		}
	case dayMarked:
		if !c.clear {
			step("remove catalogue", func(st *dayState, c *dayCall) { d.puts(st, noContent); c.clear = true; d.ready(i, c) })
		}
		if !c.looked {
			step("look", func(st *dayState, c *dayCall) {
				c.looked = true
				if role == dayDelete && st.lease == holdLease || creates && st.dropping {
					d.withdraw(st, i)
					return
				}
				d.ready(i, c)
			})
		}
	case dayLooked:
		step("look at marker", func(st *dayState, c *dayCall) {
			own := c.own || d.lacks(dayCreateConfirmsOwn) && st.marks[s] != noMarker
			if !own {
				end(st, c)
				return
			}
			c.at = dayReady
			if d.lacks(dayCreateConfirmsLate) {
				c.at = dayMarked
				d.ready(i, c)
			}
		})
	case dayReady, dayEntryThere:
		d.commit(st, i, step)
	default:
		d.finish(st, i, step)
	}
}

// ready continues a change that has removed the catalogue and has looked.
func (d *closedDay) ready(i int, c *dayCall) {
	creates := d.roles[i] == dayCreate || d.roles[i] == dayRestore
	switch {
	case !c.clear || !c.looked:
	case creates && c.told && c.at == dayMarked && !d.lacks(dayCreateConfirms) && !d.lacks(dayCreateConfirmsLate):
		c.at = dayLooked
	default:
		c.at = dayReady
	}
}

// mark writes the marker of a change. Its answer is dated.
func (d *closedDay) mark(st *dayState, i int, step stepper) {
	role, s := d.roles[i], d.slot(i)
	creates := role == dayCreate || role == dayRestore
	if !st.there && !creates && !d.lacks(dayMakesNothing) {
		step("finds no container", end)
		return
	}
	if creates && st.marks[s] != noMarker && st.plan != formAbsent {
		step("finds the ID taken", end)
		return
	}
	if creates && !d.mayBegin(st, i) {
		return // what it did before counts for nothing
	}
	unmarked := role == dayUpdate && d.lacks(dayUpdateMarks) || role == dayRepair && d.lacks(dayRepairMarks)
	for date := max(st.phase, 1) - 1; date <= st.phase; date++ {
		step("write marker", func(st *dayState, c *dayCall) {
			st.there = true
			if !unmarked {
				shared := st.marks[s] != noMarker
				d.marked(st, s, youngMarker)
				c.own, c.shared = true, shared
			}
			c.told, c.slow = date > 0, false
			c.at = dayMarked
			skips := d.lacks(dayInvalidates) || d.lacks(dayInvalidatesFirst)
			c.clear = c.clear || !c.told || skips
			c.looked = c.looked || !c.told || role == dayUpdate || role == dayRepair ||
				role == dayDelete && d.lacks(dayDeleteLooks) || creates && d.lacks(dayCreateLooks)
			if d.lacks(dayCreateConfirmsLate) && creates && c.told {
				c.at = dayLooked
				return
			}
			d.ready(i, c)
		})
	}
}

// withdraw takes the marker of a change back.
func (d *closedDay) withdraw(st *dayState, i int) {
	if d.mayUnmark(&st.calls[i], i) {
		d.marked(st, d.slot(i), noMarker)
	}
	st.calls[i] = dayCall{}
}

// mayUnmark reports whether a change may remove its marker: it is the version that it wrote, and no other call
// has written one before.
func (d *closedDay) mayUnmark(c *dayCall, i int) bool {
	if r := d.roles[i]; r == dayUpdate || r == dayRepair {
		return (c.own || d.lacks(dayChangeMatch)) && (!c.shared || d.lacks(dayChangeShared))
	}
	return c.own && (!c.shared || d.lacks(dayDeleteShared))
}

// commit yields the commit of a change. A Create writes its entry before.
func (d *closedDay) commit(st *dayState, i int, step stepper) {
	role, c := d.roles[i], st.calls[i]
	again := func(_ *dayState, c *dayCall) { *c = dayCall{at: dayRead, match: role == dayUpdate && c.match} }
	if c.slow && !d.sleeps && !d.lacks(dayDeadline) {
		switch role {
		case dayUpdate:
			step("is too slow and begins again", again)
		case dayDelete:
			if st.plan.visible() || st.plan == formHeadless {
				step("is too slow and begins again", func(_ *dayState, c *dayCall) { *c = dayCall{at: dayRead, match: true} })
			}
		}
		return // or dies
	}
	switch role {
	case dayCreate, dayRestore:
		switch {
		case !st.there:
			step("finds no container", end)
		case c.at == dayReady && st.plan != formAbsent:
			step("finds the ID taken", d.withdrawing(i))
		case c.at == dayReady:
			step("write entry", func(st *dayState, c *dayCall) { st.plan, c.at = formEntry, dayEntryThere })
		case st.plan == formAbsent:
			step("write object", func(st *dayState, c *dayCall) {
				st.plan = formHeadless
				d.breaks(&st.outcome, dayNoPlan, true)
				end(st, c)
			})
		case st.plan != formEntry:
			step("finds the ID taken", d.withdrawing(i))
		default:
			step("write object", func(st *dayState, c *dayCall) {
				st.plan = formOpen
				if role == dayRestore {
					st.plan = formFinal
				}
				d.committed(st, i)
			})
		}
	case dayUpdate:
		switch {
		case !c.match || st.plan != formFinal:
			step("is refused", d.withdrawing(i))
		default:
			step("write entry", func(st *dayState, c *dayCall) { d.rewrites(st, true); d.committed(st, i) })
		}
	case dayRepair:
		switch {
		case !c.match || st.plan != formHeadless:
			step("is refused", d.withdrawing(i))
		default:
			step("rewrite entry", func(st *dayState, c *dayCall) { st.plan = formFinal; d.committed(st, i) })
		}
	case dayDelete:
		switch {
		case !c.match && (st.plan.visible() || st.plan == formHeadless):
			step("is refused and begins again", func(_ *dayState, c *dayCall) { *c = dayCall{at: dayRead, match: true} })
		case !c.match:
			step("finds no plan", end) // Recovery removes the marker
		default:
			step("remove object", func(st *dayState, c *dayCall) {
				if st.held && st.plan.visible() {
					d.breaks(&st.outcome, dayHeldDeleted, true)
				}
				was := st.plan
				if st.plan = formEntry; was == formHeadless {
					st.plan = formAbsent
				}
				d.rewrites(st, false)
				d.committed(st, i)
			})
		}
	}
}

func (d *closedDay) withdrawing(i int) func(*dayState, *dayCall) {
	return func(st *dayState, _ *dayCall) { d.withdraw(st, i) }
}

// committed continues a change after its commit.
func (d *closedDay) committed(st *dayState, i int) {
	st.shows()
	c := &st.calls[i]
	c.at = dayCommitted
	if d.lacks(dayInvalidatesFirst) && c.told {
		c.clear = false
	}
}

// finish yields what a change does after its commit.
func (d *closedDay) finish(st *dayState, i int, step stepper) {
	role, s, c := d.roles[i], d.slot(i), st.calls[i]
	if !c.clear {
		step("remove catalogue", func(st *dayState, c *dayCall) { d.puts(st, noContent); c.clear = true })
		return
	}
	switch {
	case role == dayCreate && c.at == dayCommitted:
		if st.plan != formOpen {
			step("ends", end)
			return
		}
		step("the run ends: write entry", func(st *dayState, c *dayCall) { st.plan, c.at = formEnded, dayEntryFinal; st.shows() })
	case role == dayCreate && c.at == dayEntryFinal:
		step("finalize object", func(st *dayState, c *dayCall) {
			if st.plan == formEnded {
				st.plan = formFinal
				d.rewrites(st, false)
			}
			c.at = dayObjectFinal
		})
	case role == dayCreate:
		step("remove marker", func(st *dayState, c *dayCall) { d.marked(st, slotMarker, noMarker); end(st, c) })
	case role == dayDelete && c.at == dayCommitted:
		step("remove entry", func(st *dayState, c *dayCall) {
			if st.plan == formEntry {
				st.plan = formAbsent
			}
			c.at = dayEntryGone
		})
	case role == dayDelete:
		step("remove markers", func(st *dayState, c *dayCall) {
			d.marked(st, slotMarker, noMarker)
			d.marked(st, slotDelete, noMarker)
			end(st, c)
		})
	case role == dayUpdate && c.at == dayCommitted:
		step("finalize object", func(st *dayState, c *dayCall) {
			if st.plan == formFinal {
				d.rewrites(st, false)
			}
			c.at = dayObjectFinal
		})
	default:
		step("remove marker", func(st *dayState, c *dayCall) {
			if d.mayUnmark(c, i) {
				d.marked(st, s, noMarker)
			}
			end(st, c)
		})
	}
}

// look yields what a listing shows to a call: something or nothing. Nothing counts when two listings agree. One of them may
// be short. Without false answers the second is left out, because it can only keep the call from going on.
func (d *closedDay) look(
	st *dayState, what string, empty bool, twice rule, next dayPlace, something func(*dayState, *dayCall), step stepper,
) {
	nothing := func(_ *dayState, c *dayCall) {
		if c.agreed++; c.agreed == 2 || !d.lies || d.lacks(twice) {
			c.agreed, c.at = 0, next
		}
	}
	if empty {
		step("finds no "+what, nothing)
		return
	}
	step("finds "+what, func(st *dayState, c *dayCall) { c.agreed = 0; something(st, c) })
	if d.lies && !st.lied {
		step("finds no "+what+" in a short listing", func(st *dayState, c *dayCall) { st.lied = true; nothing(st, c) })
	}
}

// hold yields the next steps of Hold and Release.
func (d *closedDay) hold(st *dayState, i int, step stepper) {
	c := st.calls[i]
	switch {
	case !st.there:
		if c.at != dayIdle {
			step("finds no container", end)
		}
	case c.at == dayIdle && (st.phase == 2 || d.lacks(dayHoldClosed)) && st.lease == noLease:
		step("acquire lease", func(st *dayState, c *dayCall) {
			st.lease, c.at = holdLease, dayLeased
			if d.lacks(dayHoldWaits) {
				c.at, st.held = dayHeld, true
			}
		})
	case c.at == dayLeased:
		d.look(st, "Delete under way", st.marks[slotDelete] == noMarker, dayHoldTwice, daySaid, to(dayLeased), step)
	case c.at == daySaid:
		step("returns", func(st *dayState, c *dayCall) { c.at, st.held = dayHeld, true })
	case c.at == dayHeld:
		step("release", func(st *dayState, c *dayCall) { st.lease, st.held = noLease, false; end(st, c) })
	}
}

// expire yields the next steps of an Expire.
func (d *closedDay) expire(st *dayState, i int, step stepper) {
	c := st.calls[i]
	if !st.there && c.at != dayIdle {
		step("finds no container", end)
		return
	}
	empty := st.marks == [slots]markerAge{}
	open := dayAborts // what follows when something is open
	if !d.lacks(dayAbortLease) {
		open = dayReleases
	}
	if d.lies && !st.lied && (c.at == dayRead || c.at == dayFoundNothing) {
		step("is told that the container is absent", func(st *dayState, c *dayCall) {
			st.lied = true
			switch {
			case d.lacks(dayExpireConfirms):
				d.breaks(&st.outcome, dayNotDropped, true)
				end(st, c)
			case c.at == dayRead:
				end(st, c)
			default:
				c.at = open
			}
		})
	}
	switch c.at {
	case dayIdle:
		if st.there && (st.phase == 2 || d.lacks(dayExpireClosed)) && st.lateDrops&(1<<i) == 0 {
			step("look for open/dropping", func(st *dayState, c *dayCall) { c.at = dayRead; c.see(st) })
		}
	case dayRead:
		switch {
		case d.lacks(dayExpireLease):
			step("takes no lease", to(dayLeased))
		case st.lease == noLease:
			step("acquire lease", func(st *dayState, c *dayCall) {
				st.lease, c.at = firstLease+lease(i), dayLeased
			})
		}
	case dayLeased:
		if d.lacks(dayDroppingFirst) {
			if c.at = dayPrepared; !empty {
				c.at = dayReleases
			}
			step("list markers", to(c.at))
			return
		}
		d.say(st, i, daySaid, step)
	case dayPrepared:
		d.say(st, i, dayFoundNothing, step)
	case daySaid:
		d.look(st, "open plan", empty, dayExpireTwice, dayFoundNothing, to(open), step)
	case dayFoundNothing:
		step("delete container", func(st *dayState, c *dayCall) { st.lateDrops |= 1 << i; c.at = daySent })
	case daySent:
		step("gets no answer", to(open))
	case dayReleases:
		step("release lease", func(st *dayState, c *dayCall) {
			if st.lease == firstLease+lease(i) {
				st.lease = noLease
			}
			if c.at = dayAborts; d.lacks(dayAbortLease) {
				end(st, c)
			}
		})
	case dayAborts:
		step("remove open/dropping", func(st *dayState, c *dayCall) {
			if st.dropping && (c.knows == droppingCurrent || d.lacks(dayAbortMatch)) {
				st.drops(false)
			}
			if c.at = dayReleases; !d.lacks(dayAbortLease) {
				end(st, c)
			}
		})
	}
}

// say writes open/dropping in the version that was seen.
func (d *closedDay) say(st *dayState, i int, next dayPlace, step stepper) {
	c := st.calls[i]
	match := c.knows == droppingCurrent || c.knows == droppingAbsent && !st.dropping
	if !match && !d.lacks(dayDroppingMatch) {
		step("is refused", func(_ *dayState, c *dayCall) { c.at, c.knows = dayReleases, droppingOutdated })
		return
	}
	step("write open/dropping", func(st *dayState, c *dayCall) {
		st.drops(true)
		c.knows, c.at = droppingCurrent, next
	})
}

// see notes what is to be seen of open/dropping.
func (c *dayCall) see(st *dayState) {
	if c.knows = droppingAbsent; st.dropping {
		c.knows = droppingCurrent
	}
}

// clear yields the next steps of a Recovery that finds open/dropping.
func (d *closedDay) clear(st *dayState, i int, step stepper) {
	c := st.calls[i]
	switch {
	case c.at == dayIdle && st.dropping && !d.lacks(dayClears):
		step("look for open/dropping", func(st *dayState, c *dayCall) { c.at = dayRead; c.see(st) })
	case c.at == dayRead && (st.lease < firstLease || d.lacks(dayClearLease)):
		step("finds no lease of an Expire", to(dayLooked))
	case c.at == dayRead:
		step("finds the lease of an Expire", end)
	case c.at == dayLooked:
		step("remove open/dropping", func(st *dayState, c *dayCall) {
			if st.dropping && (c.knows == droppingCurrent || d.lacks(dayClearMatch)) {
				st.drops(false)
			}
			end(st, c)
		})
	}
}

// build yields the next steps of a builder.
func (d *closedDay) build(st *dayState, i int, step stepper) {
	c := st.calls[i]
	if !st.there && c.at != dayIdle {
		step("finds no container", func(st *dayState, _ *dayCall) { d.die(st, i) })
		return
	}
	open := st.marks != [slots]markerAge{} || st.dropping
	lists := func(next dayPlace) func(*dayState, *dayCall) {
		return func(_ *dayState, c *dayCall) { c.at, c.lists = next, equal }
	}
	closed := uint8(2)
	if d.lacks(daySlack) {
		closed = 1
	}
	switch c.at {
	case dayIdle:
		switch {
		case !st.there || st.phase < closed:
		case d.lacks(dayPlaceholder):
			step("read catalogue", func(st *dayState, c *dayCall) { c.at, c.match = dayPlaced, true })
		case st.catalogue == noContent:
			step("read catalogue", to(dayPlacing))
		case st.catalogue == placeholder:
			step("read catalogue", func(st *dayState, c *dayCall) { c.at, c.match = dayPlaced, true })
		}
	case dayPlacing:
		if st.catalogue != noContent {
			step("is refused", end)
			return
		}
		step("write placeholder", func(st *dayState, c *dayCall) {
			d.puts(st, placeholder)
			c.at, c.match = dayPlaced, true
		})
	case dayPlaced:
		switch {
		case d.lacks(dayOpenFirst) && c.lists == noContent:
			if st.plan != formOpen {
				step("list plans", lists(dayPlaced))
			}
		case d.lacks(dayOpenFirst):
			d.look(st, "marker", !open, dayOpenTwice, dayListed, end, step)
		default:
			d.look(st, "marker", !open || d.lacks(dayOpenListed), dayOpenTwice, dayFoundNothing, end, step)
		}
	case dayFoundNothing:
		d.listPlans(st, i, step)
	case dayListed:
		match := c.match
		if d.lacks(dayPlaceholder) {
			match = st.catalogue == noContent
		}
		if !match && !d.lacks(dayCatalogueMatch) {
			step("is refused", end)
			return
		}
		step("write catalogue", func(st *dayState, c *dayCall) { d.puts(st, c.lists); end(st, c) })
	}
}

// listPlans yields the listings of a builder. The second one must show what the first did.
func (d *closedDay) listPlans(st *dayState, i int, step stepper) {
	c := st.calls[i]
	next := dayListed
	if d.lies && !d.lacks(dayPlansTwice) {
		next = dayFoundNothing
	}
	first := func(is content) func(*dayState, *dayCall) {
		return func(_ *dayState, c *dayCall) { c.at, c.lists, c.agreed = next, is, 1 }
	}
	switch {
	case c.lists == noContent && d.lies && !st.lied && st.plan.visible():
		step("list plans, in short", func(st *dayState, c *dayCall) { st.lied = true; first(unequal)(st, c) })
	case c.lists != noContent && c.lists != equal:
		step("finds that two listings differ", end)
		return
	}
	switch {
	case st.plan == formOpen && !d.lacks(dayFinal):
		step("finds an open plan", end)
	case c.lists == noContent:
		step("list plans", first(equal))
	default:
		step("list plans again", to(dayListed))
	}
}
