package protocol

import "testing"

// copying is a situation of the model of a copy: mirrors, each a Follow or a Run, bring one plan of it up to date, somebody
// opens the copy in any state, and others then claim, change and delete the plan. Anybody may stop for any time between two
// steps, so that a request takes effect late, and may die.
type copying struct {
	mirrors int
	meddled bool // others write to the copy while it is closed, such as an engine without a fleet

	mutant
	search[copyState]
}

// copyState is a state of the model. A value is how far the plan has come; 0 means that there is none.
type copyState struct {
	source        uint8
	value         uint8 // in the copy
	entry, object bool  // have the mark of a mirror
	theirs        bool  // somebody else has stored the plan or changed it, and knows
	opened        bool
	deleted       bool // by somebody, in the opened copy
	other         copyOther
	mirror        [2]copyMirror
	outcome
}

// copyMirror is a mirror. It reads the two blobs of the plan one after the other.
type copyMirror struct {
	entry, object copyBlob
	read          bool  // it has read the source
	value         uint8 // there
	role          bool  // it has read that the copy is one
}

// copyBlob is what a mirror has read of a blob in the copy.
type copyBlob struct {
	looked bool
	value  uint8
	marked bool
	match  bool // its version is the stored one
}

// copyOther is somebody else, who updates the plan.
type copyOther struct {
	reads, writes bool // it has read the entry; it has written the entry, and not the object
	match         bool // its version of the entry is the stored one
}

// The promises of a copy, as they are broken; comesBack is another.
var (
	overwritten = breaking("a mirror changes or removes what somebody else has stored")
	staysBehind = breaking("a mirror can't bring the copy up to date")
)

// The rules of a copy, with their numbers in docs/fleet.md.
const (
	copyRole     rule = "C1: a mirror does not read the role before it writes"
	copyAfter    rule = "C1: a mirror reads the role before it looks at the copy"
	copyMark     rule = "C2: a mirror changes plans without its mark"
	copyGoes     rule = "C2: an update by others leaves the mark"
	copyKeeps    rule = "C2: an update by a mirror takes the mark away"
	copyMatch    rule = "C3: a mirror updates any version"
	copyRemoves  rule = "C3: a mirror removes any version"
	copyBoth     rule = "C4: a mirror looks for its mark at the entry alone"
	copyRewrites rule = "C4: the first update by others does not rewrite the object"
	copyEnds     rule = "C5: a mirror writes long after it has read the role"
)

// outdates makes versions of the plan outdated that anybody has read.
func (st *copyState) outdates(entry, object bool) {
	st.other.match = st.other.match && !entry
	for i := range st.mirror {
		m := &st.mirror[i]
		m.entry.match, m.object.match = m.entry.match && !entry, m.object.match && !object
	}
}

// stores sets the plan in the copy and the mark of both blobs.
func (st *copyState) stores(value uint8, marked bool) {
	st.value, st.entry, st.object = value, marked, marked
	st.outdates(true, true)
}

func (c *copying) steps(from copyState, yield func(move, copyState)) {
	step := func(what string, helps, possible bool, change func(st *copyState)) {
		if next := from; possible {
			change(&next)
			yield(move{nowhere, -1, what, helps}, next)
		}
	}
	step("the source stores a step", false, from.source == 1, func(st *copyState) { st.source = 2 })
	step("the source deletes the plan", false, from.source > 0, func(st *copyState) { st.source = 0 })
	step("somebody opens the copy", false, !from.opened, func(st *copyState) { st.opened = true })
	if from.opened || c.meddled {
		c.others(from, step)
	}
	for i := range c.mirrors {
		c.mirrored(from, i, func(what string, possible bool, change func(st *copyState, m *copyMirror)) {
			step(what, i == 0, possible, func(st *copyState) { change(st, &st.mirror[i]) })
		})
	}
}

// others yields the steps of those who are no mirror.
func (c *copying) others(from copyState, step func(what string, helps, possible bool, change func(st *copyState))) {
	o := from.other
	step("somebody stores a plan of the ID", false, c.meddled && from.value == 0 && !from.deleted, func(st *copyState) {
		st.stores(1, false)
		st.theirs = true
	})
	// A plan that several bring may come back, if it is deleted while the batch of a mirror has not ended.
	under := (c.mirrors > 1 || c.meddled) && !c.lacks(copyEnds) && (from.mirror[0].role || from.mirror[1].role)
	step("somebody deletes the plan", false, from.value > 0 && from.opened && !under, func(st *copyState) {
		st.stores(0, false)
		st.theirs, st.deleted = false, true
	})
	step("somebody reads the plan", false, o == copyOther{} && from.value > 0, func(st *copyState) { st.other = copyOther{reads: true, match: true} })
	step("somebody gives the update up", false, o != copyOther{}, func(st *copyState) { st.other = copyOther{} })
	rewrites := from.object && !c.lacks(copyRewrites)
	step("somebody writes the entry", false, o.reads && o.match, func(st *copyState) {
		st.entry = st.entry && c.lacks(copyGoes)
		st.outdates(true, false)
		if st.other = (copyOther{writes: rewrites}); !rewrites {
			st.theirs = true
		}
	})
	step("somebody rewrites the object", false, o.writes && from.value > 0, func(st *copyState) {
		st.object = false
		st.outdates(false, true)
		st.other, st.theirs = copyOther{}, true
	})
}

// mirrored yields the steps of a mirror.
func (c *copying) mirrored(from copyState, i int, step func(what string, possible bool, change func(st *copyState, m *copyMirror))) {
	m := from.mirror[i]
	role, looked := !c.lacks(copyRole), m.entry.looked && m.object.looked
	first := role && c.lacks(copyAfter)
	step("a mirror gives up", m != copyMirror{}, func(_ *copyState, m *copyMirror) { *m = copyMirror{} })
	step("a mirror reads the role", role && !m.role && !from.opened && (first || m.read), func(_ *copyState, m *copyMirror) { m.role = true })
	step("a mirror looks at the entry", !m.entry.looked && (m.role || !first), func(st *copyState, m *copyMirror) {
		m.entry = copyBlob{true, st.value, st.entry, true}
	})
	step("a mirror looks at the object", !m.object.looked && (m.role || !first), func(st *copyState, m *copyMirror) {
		m.object = copyBlob{true, st.value, st.object, true}
	})
	step("a mirror reads the source", looked && !m.read, func(st *copyState, m *copyMirror) { m.read, m.value = true, st.source })
	step("a mirror writes", m.read && (m.role || !role), func(st *copyState, m *copyMirror) {
		did := *m
		*m = copyMirror{}
		c.write(st, did)
	})
}

// write is the one request of a mirror that commits. It is conditional on the versions that the mirror has read.
func (c *copying) write(st *copyState, m copyMirror) {
	may := m.entry.marked && (m.object.marked || c.lacks(copyBoth)) || c.lacks(copyMark)
	switch seen := m.object.value; {
	case (seen == 0) != (m.entry.value == 0), st.value == 0 && seen > 0, st.value > 0 && seen == 0:
	case seen == 0 && m.value > 0:
		c.breaks(&st.outcome, comesBack, st.deleted)
		st.stores(m.value, true)
	case m.value > seen && may && (m.entry.match || c.lacks(copyMatch)):
		c.breaks(&st.outcome, overwritten, st.theirs)
		st.stores(m.value, !c.lacks(copyKeeps))
	case m.value == 0 && may && (m.object.match || c.lacks(copyRemoves)):
		c.breaks(&st.outcome, overwritten, st.theirs)
		st.stores(0, false)
	}
}

func (c *copying) first() copyState { return copyState{source: 1} }

// lives says that the first mirror can bring the copy up to date.
func (c *copying) lives() (breach, func(*copyState) bool) {
	return staysBehind, func(st *copyState) bool {
		return st.opened || st.theirs || st.value == st.source || st.other != copyOther{} || st.value > 0 && st.entry != st.object
	}
}

// TestCopy explores each situation to its end.
func TestCopy(t *testing.T) {
	holds(t, []*copying{{mirrors: 1}, {mirrors: 1, meddled: true}, {mirrors: 2}, {mirrors: 2, meddled: true}})
}

// copyNeeds says for each rule in which situation which promise is broken without it.
var copyNeeds = needs{
	{&copying{mirrors: 1}, comesBack, rules{copyRole, copyAfter}},
	{&copying{mirrors: 1, meddled: true}, overwritten, rules{copyMark, copyGoes, copyBoth}},
	{&copying{mirrors: 1}, staysBehind, rules{copyKeeps}},
	{&copying{mirrors: 1}, overwritten, rules{copyMatch, copyRemoves, copyRewrites}},
	{&copying{mirrors: 2}, comesBack, rules{copyEnds}},
}
