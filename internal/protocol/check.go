package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// deleting says whether a Delete has begun that can't be called off.
func (x *explorer) deleting(st *state) bool {
	return slices.ContainsFunc(st.procs[:len(x.roles)], func(p process) bool { return x.nodes[p.node].begun })
}

// deleted says whether a Delete has returned, and no Create has begun since.
func (x *explorer) deleted(st *state) bool {
	for i, p := range st.procs[:len(x.roles)] {
		if x.roles[i] == creating && p.anew {
			return false
		}
	}
	return x.count(st, deleting, done) > 0
}

// promised is the creator of the plan that a Create, which returned nil, promised to be there; nobody once its Delete has
// begun.
func (x *explorer) promised(st *state) (a actor, several bool) {
	begun := x.deleting(st)
	if x.plan != noPlan && x.plan != deletedPlan && !begun {
		a = earlier
	}
	for i, p := range st.procs[:len(x.roles)] {
		if n := &x.nodes[p.node]; x.roles[i] == creating && n.over && n.result == done && (p.anew || !begun) {
			several = several || a != nobody
			a = n.actor
		}
	}
	return a, several
}

// check says which promise is broken in a state, "" for none.
func (x *explorer) check(st *state) string {
	s := &st.store
	creator, several := x.promised(st)
	switch {
	case several:
		return "two Creates of an ID have succeeded"
	case creator != nobody:
		if broken := x.whole(s, creator); broken != "" {
			return "of a plan that was created " + broken
		}
	}
	// A request that is under way for longer than grace and margin, or a copy of one that comes after its call has gone on, can
	// leave something of a plan that is not there. It must not harm one that is.
	sure := creator != nobody || !x.frozen && !st.haunted
	if sure && s[object].there() {
		if broken := x.whole(s, s[object].of); broken != "" {
			return "of a plan whose object is there " + broken
		}
	}
	if sure && s.visible() && s[entry].status != final && !s[marker].there() {
		return "an open plan has no marker"
	}
	if x.deleted(st) && !st.haunted && s[object].there() {
		return "a plan is there that was deleted"
	}
	return x.results(st, creator)
}

// whole says what is missing of a plan.
func (x *explorer) whole(s *store, creator actor) string {
	for b := range s {
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
			return fmt.Sprintf("the %s is of another", blob(b))
		}
	}
	return ""
}

// results looks at how the calls have ended.
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
		case n.result == corrupt && st.haunted && creator == nobody:
		case n.role == reading && slices.ContainsFunc(st.procs[:], func(p process) bool { return p.anew }):
		case strings.HasPrefix(string(n.result), "!"):
			return fmt.Sprintf("%s %s", n.role, n.result[1:])
		case n.result == missed && creator != nobody && !begun:
			return fmt.Sprintf("%s does not show a plan that was there all the time", n.role)
		}
		switch n.role {
		case creating:
			switch n.result {
			case exists, conflict, unavailable:
				if s[object].by == n.actor && !st.haunted {
					return fmt.Sprintf("Create returned %s, and its object is there", n.result)
				}
			}
			if len(x.roles) == 1 && (n.result == exists || n.result == conflict) {
				return "a Create has met itself"
			}
		case deleting:
			// A marker alone may be left, to Recovery.
			if len(x.roles) == 1 && n.result == notFound && s[entry].there() {
				return "Delete returned ErrNotFound, and left what an earlier one had begun"
			}
		case updating:
			if n.result == done && !begun && x.plan != deletedPlan {
				if s[entry].status != final || s[object].status != final || s[object].parts != final {
					return "a plan is not final whose update to it returned nil"
				}
			}
		}
	}
	if quiet {
		broken, ok := x.settled[*s]
		if !ok {
			broken = x.afterRecovery(*s)
			x.settled[*s] = broken
		}
		if broken == debris && (x.frozen || st.haunted) {
			return ""
		}
		return broken
	}
	return ""
}

const debris = "after Recovery something is left of a plan that is not there"

// afterRecovery says what is wrong with what is stored once everybody has come to an end, and Recovery has run after grace
// and margin, twice.
func (x *explorer) afterRecovery(s store) string {
	was := s.visible()
	for range 2 {
		for b := range s {
			s[b].old = s[b].there()
		}
		c := &call{self: most + 1, lacking: x.lacking, two: x.two}
		for c.recoverOnce(&s) {
		}
	}
	switch {
	case was && !s.visible():
		return "Recovery has removed a plan that was there"
	case !s.visible() && s != store{}:
		return debris
	case !s.visible():
		return ""
	case s[deleteMarker].there():
		return "after Recovery a plan has a delete marker"
	case s[entry].status == final && (s[object].status != final || s[marker].there()):
		return "after Recovery a final plan is not settled"
	case s[entry].status == final && s[object].parts != final:
		return "after Recovery a final object has parts that are not"
	}
	return ""
}

// recoverOnce answers the next request of a Recovery that nobody disturbs; false when it is over.
func (c *call) recoverOnce(s *store) (more bool) {
	c.pos = 0
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		asked, ok := p.(pause)
		if !ok {
			panic(p)
		}
		r := &asked.asks[0]
		a := answer{}
		switch r.verb {
		case get:
			a.seen[r.blob] = s[r.blob]
		case list:
			for _, b := range r.listed {
				a.seen[b] = s[b]
				a.seen[b].since = 0
			}
		default:
			a = s.apply(r, false, 0)
		}
		a.index = asked.index[0]
		c.history = append(c.history, a)
		more = true
	}()
	c.recover()
	return false
}

// regress says what went backwards in a step.
func (x *explorer) regress(from, to *state) string {
	for b := range from.store {
		f, t := &from.store[b], &to.store[b]
		if f.there() && t.there() && f.of == t.of && (t.status < f.status || t.parts < f.parts) {
			return fmt.Sprintf("the %s went backwards, from %s to %s", blob(b), f.status, t.status)
		}
	}
	return ""
}
