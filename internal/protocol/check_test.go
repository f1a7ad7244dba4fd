package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// deleting reports whether a Delete has passed its commit point.
func (x *explorer) deleting(st *state) bool {
	return slices.ContainsFunc(st.procs[:len(x.roles)], func(p process) bool { return x.nodes[p.node].begun })
}

// deleted reports whether a Delete has returned and no Create has begun since.
func (x *explorer) deleted(st *state) bool {
	for i, p := range st.procs[:len(x.roles)] {
		if x.roles[i].creates() && p.anew {
			return false
		}
	}
	return x.count(st, deleting, done) > 0
}

// promised returns the creator of the plan that must exist because its Create returned nil. It returns nobody
// once a Delete has begun. several means that two Creates succeeded.
func (x *explorer) promised(st *state) (a actor, several bool) {
	begun := x.deleting(st)
	switch x.plan {
	case noPlan, deletedPlan, incompletePlan, strayPlan:
	default:
		if !begun {
			a = earlier
		}
	}
	for i, p := range st.procs[:len(x.roles)] {
		if n := &x.nodes[p.node]; x.roles[i].creates() && n.over && n.result == done && (p.anew || !begun) {
			several = several || a != nobody
			a = n.actor
		}
	}
	return a, several
}

// check returns which promise is broken in a state, or "".
func (x *explorer) check(st *state) string {
	s := &st.store
	creator, several := x.promised(st)
	switch {
	case several:
		return "two Creates of an ID have succeeded"
	case creator != nobody && st.lost.of(object):
		creator = nobody // a plan that has not started looks like an unfinished Create
	case creator != nobody:
		if broken := x.whole(s, creator, st.lost); broken != "" {
			return "a created plan: " + broken
		}
	}
	// A request under way for longer than grace period and margin, or a delayed copy after its call has
	// continued, can leave blobs of a plan that does not exist. It must not harm a plan that exists.
	sure := creator != nobody || !x.loose(st)
	if sure && s[object].there() {
		if broken := x.whole(s, s[object].of, st.lost); broken != "" {
			return "a plan with an object: " + broken
		}
	}
	if broken := x.running(st); broken != "" {
		return broken
	}
	if sure && s.visible() && s[entry].status != final && !s[marker].there() && !st.lost.of(marker) && !st.lost.of(entry) {
		return "an open plan has no marker"
	}
	if x.deleted(st) && (!st.haunted || !x.loose(st)) && s[object].there() {
		return "a deleted plan exists"
	}
	if s[entry].hollow && (s[object].by != earlier || !s[marker].there()) && !x.deleting(st) {
		return "Recovery has completed a plan whose entry is not final"
	}
	return x.results(st, creator)
}

// running returns what is missing of a plan that somebody runs, or "". If its Create was late, it stays whole
// if the Create has left it, or if it became Running before the Create looked.
func (x *explorer) running(st *state) string {
	if x.has(deleting) || st.lost != 0 {
		return ""
	}
	s := &st.store
	for i, p := range st.procs[:len(x.roles)] {
		n := &x.nodes[p.node]
		of := actor(i + 1)
		switch {
		case n.result == kept:
		case n.claimed && !st.torn && !x.loose(st):
			of = s[entry].of
		default:
			continue
		}
		if broken := x.whole(s, of, 0); broken != "" {
			return "a plan that somebody runs: " + broken
		}
		if s[entry].status != final && !s[marker].there() {
			return "a plan that somebody runs has no marker"
		}
	}
	return ""
}

// loose reports whether blobs of a plan that does not exist may be left. Without a Create they can't.
func (x *explorer) loose(st *state) bool {
	return (x.frozen || st.haunted) && x.has(creating)
}

// whole returns what is missing of a plan, or "".
func (x *explorer) whole(s *store, creator actor, lost damage) string {
	for b := range s {
		if lost.of(blob(b)) {
			continue
		}
		switch blob(b) {
		case marker, deleteMarker:
			continue
		case part2:
			if !x.two {
				continue
			}
		}
		switch {
		case !s[b].there():
			return fmt.Sprintf("the %s is missing", blob(b))
		case s[b].of != creator:
			return fmt.Sprintf("the %s belongs to another plan", blob(b))
		}
	}
	return ""
}

// results checks the results of the calls.
func (x *explorer) results(st *state, creator actor) string {
	s := &st.store
	begun := x.deleting(st)
	quiet := st.late[0].node == 0
	for i, p := range st.procs[:len(x.roles)] {
		n := &x.nodes[p.node]
		quiet = quiet && (n.over || p.node == x.roots[i])
		if !n.over {
			continue
		}
		switch {
		case n.result == corrupt && (x.loose(st) && creator == nobody || st.lost != 0 || st.lies < x.lies):
			// A late request has left something, the damage is real, or an answer was a lie.
		case n.role == reading && slices.ContainsFunc(st.procs[:], func(p process) bool { return p.anew }):
		case strings.HasPrefix(string(n.result), "!"):
			return fmt.Sprintf("%s %s", n.role, n.result[1:])
		case n.result == missed && creator != nobody && !begun:
			return fmt.Sprintf("%s misses a plan that existed all the time", n.role)
		case n.result == reported && st.lost == 0 && x.plan != hollowPlan && !x.loose(st):
			return fmt.Sprintf("%s reports a loss although nothing was lost", n.role)
		}
		switch n.role {
		case creating, restoring, restoringFinal:
			switch n.result {
			case exists, conflict, unavailable, contradicted:
				if s[object].by == n.actor && !st.haunted {
					return fmt.Sprintf("Create returned %s, but its object exists", n.result)
				}
			}
			if n.result == unavailable && !st.haunted {
				for _, b := range []blob{entry, part1, part2} {
					if s[b].by == n.actor {
						return fmt.Sprintf("Create failed for certain, but its %s exists", b)
					}
				}
			}
			if len(x.roles) == 1 && x.plan == noPlan && (n.result == exists || n.result == conflict) {
				return "a Create has found its own writes"
			}
		case deleting:
			// Delete may leave a lone marker to Recovery.
			if len(x.roles) == 1 && x.lies == 0 && n.result == notFound && s[entry].there() {
				return "Delete returned ErrNotFound, but left the remains of an earlier one"
			}
		case updating:
			mine := s[entry].by == n.actor && s[entry].status == final
			switch {
			case begun || st.lost != 0 || x.plan == deletedPlan:
			case n.result == done && s[entry].status != final,
				n.result == done && mine && (s[object].status != final || s[object].parts != final || s[object].tells != n.actor),
				n.result == done && s[object].status != final && !s[marker].there():
				return "a plan is not final although the update returned nil"
			case n.result != done && n.result != unknown && n.result != died && mine && creator != nobody:
				return fmt.Sprintf("an update to a final status returned %s, but every reader sees it", n.result)
			}
		}
	}
	if !quiet {
		return ""
	}
	end := ending{*s, st.lost}
	if begun {
		end.lost = 0
	}
	found, ok := x.endings[end]
	if !ok {
		found = [2]string{x.afterRecovery(end), x.afterCreate(end)}
		x.endings[end] = found
	}
	may := x.loose(st) || end.lost != 0 // remains are permitted
	borne := found[0] == debris && (may || x.plan == strayPlan) || found[0] == unmarked && x.loose(st)
	switch {
	case found[0] != "" && !borne:
		return found[0]
	case !may && st.lost == 0: // a restored sub-object beside a Delete is in the way until the next thorough Repair
		return found[1]
	}
	return ""
}

const (
	debris   = "after Recovery a plan that does not exist has remains"
	unmarked = "after Recovery an open plan has no marker"
)

// afterRecovery returns what is wrong with the store after all actors have ended and Recovery has run twice,
// each time after grace period and margin.
func (x *explorer) afterRecovery(end ending) string {
	s := end.store
	for range 2 {
		s.become(old, nobody)
		c := &call{self: most + 1, lacking: x.lacking, two: x.two, thorough: x.thorough}
		c.undisturbed(&s, recovering)
	}
	was := &end.store
	// A restored plan that has lost its object looks like the remains of its Restore until it is updated.
	unsure := was[entry].restored && was[marker].there()
	if started := was[entry].status >= running && !unsure; end.lost.of(entry) || end.lost.of(object) && started {
		for b := range s {
			due := blob(b) == marker && max(was[entry].status, was[object].status) == final
			if was[b].there() && !s[b].there() && !was[deleteMarker].there() && !due {
				return fmt.Sprintf("Recovery has removed the %s of a plan with a lost blob", blob(b))
			}
		}
	}
	withdrawn := !was[entry].there() && !was[object].there()
	if b := blob(end.lost - 1); x.thorough && end.lost != 0 && b != object && !withdrawn && !s[b].there() && !was[deleteMarker].there() && (b != marker || s[entry].status != final) {
		return fmt.Sprintf("a thorough Repair has not restored the %s", b)
	}
	if x.thorough && s.visible() && s[entry].status == notStarted && s[part1].status != notStarted {
		return "a plan is NotStarted, but its sub-objects have advanced"
	}
	switch {
	case was.visible() && !s.visible():
		return "Recovery has removed an existing plan"
	case !s.visible() && s != store{}:
		return debris
	case !s.visible() || s[entry].hollow:
		return ""
	case s[deleteMarker].there():
		return "after Recovery a plan has a delete marker"
	case s[entry].status != final && !s[marker].there() && (x.thorough || end.lost == 0):
		return unmarked
	case s[entry].status == final && (s[object].status != final || s[marker].there()):
		return "after Recovery a final plan has an open object or a marker"
	case s[entry].status == final && s[object].parts != final:
		return "after Recovery a final object has open sub-objects"
	}
	return ""
}

// afterCreate returns what is wrong if a Create runs at once, and another one when everything but the writes
// of the first one has become old. No Recovery runs.
func (x *explorer) afterCreate(end ending) string {
	s := end.store
	var r result
	for n := range actor(2) {
		if n > 0 {
			s.become(old, most+2)
		}
		c := &call{self: most + 2 + n, lacking: x.lacking, two: x.two}
		r = c.undisturbed(&s, creating)
	}
	if r != done && r != exists {
		return "a Create after the grace period returns neither nil nor ErrExists"
	}
	return ""
}

// undisturbed runs a program without other actors.
func (c *call) undisturbed(s *store, r role) result {
	for {
		*c = call{self: c.self, lacking: c.lacking, two: c.two, thorough: c.thorough, history: c.history}
		asked, end, over := c.advance(r)
		if over {
			return end
		}
		r := &asked.asks[0]
		a := answer{}
		switch r.verb {
		case clock:
		case get, list:
			for _, b := range append(r.listed, r.blob) {
				a.seen[b] = s[b]
				a.seen[b].since = 0
			}
		default:
			a = s.apply(r, false, 0)
		}
		a.index = asked.index[0]
		c.history = append(c.history, a)
	}
}

// regress returns what went backwards in a step, or "".
func (x *explorer) regress(from, to *state) string {
	for b := range from.store {
		f, t := &from.store[b], &to.store[b]
		if f.there() && t.there() && f.of == t.of && (t.status < f.status || t.parts < f.parts) {
			return fmt.Sprintf("the %s went backwards, from %s to %s", blob(b), f.status, t.status)
		}
	}
	was, is := from.store[object], to.store[object]
	if was.status == final && is.status == final && was.tells == from.store[entry].by && is.tells != was.tells {
		return "an older object has overwritten the object of the current entry"
	}
	return ""
}
