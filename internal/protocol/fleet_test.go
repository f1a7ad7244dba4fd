package protocol

import (
	"maps"
	"slices"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// explore visits all states of a situation, and then looks for orphans.
func (f *fleet) explore(explorable) report {
	f.visit(f, nil)
	if f.report.violation == "" && f.judges(orphan) {
		f.findOrphan()
	}
	return f.report
}

// findOrphan looks for a state in which some node that is alive can't bring the plan to its end by its own
// steps, whatever the others did before and leave as it is.
func (f *fleet) findOrphan() {
	able := make([]uint8, len(f.links)) // the nodes that can, one bit each
	type place struct {
		id   int32
		node int
	}
	var visited []place
	var can func(id int32, i int) bool
	can = func(id int32, i int) (found bool) {
		st := f.state(id)
		switch {
		case able[id]&(1<<i) != 0:
			return true
		case st.ended():
			found = true
		case slices.Contains(visited, place{id, i}):
			return false
		default:
			visited = append(visited, place{id, i})
			f.act(*st, i, func(m move, to fleetState) {
				if m.helps && !found {
					places := f.canonical(&to)
					_, next, _ := f.find(&to)
					found = can(next, int(places[i]))
				}
			})
		}
		if found {
			able[id] |= 1 << i
		}
		return found
	}
	for id := range int32(len(f.links)) {
		for i := range f.nodes {
			st := f.state(id)
			if n := &st.nodes[i]; n.dead || n.outside && st.entry.status == running && !st.entry.placed {
				continue // it does nothing, and should not
			}
			visited = visited[:0]
			if !can(id, i) {
				f.report.violation = orphan.String()
				f.report.path = append(f.path(f, id), f.describe(move{i, -1, "can do nothing for the plan", false}))
				return
			}
		}
	}
}

// fleets returns the situations in which every promise must hold.
func fleets() []*fleet {
	list := []*fleet{
		{nodes: 1, parts: 2},
		{nodes: 2, parts: 1},
		{nodes: 2, parts: 1, running: true},
		{nodes: 2, parts: 1, running: true, sleeps: true},
		{nodes: 2, parts: 1, running: true, pauses: true},
		{nodes: 2, parts: 1, outside: 1, sleeps: true},
		{nodes: 2, parts: 1, outside: 2, sleeps: true},
		{nodes: 3, parts: 1, unrecorded: true},
		{nodes: 3, parts: 1, outside: 2, bound: true},
	}
	if testing.Short() {
		return list[:7]
	}
	if efforttest.Long() {
		list = append(
			list,
			&fleet{nodes: 2, parts: 1, lateJoins: true},
			&fleet{nodes: 2, parts: 1, deletes: true},
			&fleet{nodes: 2, parts: 1, stranger: true},
			&fleet{nodes: 2, parts: 2, unrecorded: true},
			&fleet{nodes: 2, parts: 1, apart: true},
			&fleet{nodes: 2, parts: 2},
			&fleet{nodes: 2, parts: 2, lateJoins: true},
			&fleet{nodes: 2, parts: 2, deletes: true},
			&fleet{nodes: 2, parts: 2, unrecorded: true, stranger: true},
			&fleet{nodes: 3, parts: 1},
			&fleet{nodes: 3, parts: 1, lateJoins: true},
			&fleet{nodes: 3, parts: 1, deletes: true},
			&fleet{nodes: 3, parts: 2, unrecorded: true},
			&fleet{nodes: 2, parts: 1, deletes: true, sleeps: true},
			&fleet{nodes: 2, parts: 1, lateJoins: true, sleeps: true},
			&fleet{nodes: 2, parts: 2, unrecorded: true, sleeps: true},
			&fleet{nodes: 2, parts: 1, sleeps: true, apart: true},
			&fleet{nodes: 2, parts: 1, sleeps: true, pauses: true},
			&fleet{nodes: 2, parts: 1, deletes: true, pauses: true},
			&fleet{nodes: 3, parts: 1, unrecorded: true, pauses: true},
			&fleet{nodes: 2, parts: 1, outside: 1, placed: true, pauses: true},
			&fleet{nodes: 2, parts: 1, outside: 1, sleeps: true, deletes: true},
			&fleet{nodes: 2, parts: 1, outside: 1, sleeps: true, lateJoins: true},
			&fleet{nodes: 2, parts: 1, outside: 1, stranger: true},
			&fleet{nodes: 2, parts: 2, outside: 1},
			&fleet{nodes: 2, parts: 2, outside: 2},
			&fleet{nodes: 3, parts: 1, outside: 2, sleeps: true},
		)
	}
	return list
}

// TestFleet explores each situation to its end.
func TestFleet(t *testing.T) { holds(t, fleets()) }

// fleetNeeds says for each rule in which situation which promise is broken without it.
var fleetNeeds = needs{
	{&fleet{nodes: 2, parts: 1}, formerOwner, rules{
		fleetClaimMatch, fleetConflictLooks, fleetFenceMatch, fleetWorkMatch, fleetPlanMatch, fleetUnknownTake,
	}},
	{&fleet{nodes: 2, parts: 1, running: true}, lostUpdate, rules{fleetTakeMatch}},
	{&fleet{nodes: 2, parts: 1}, finalChanged, rules{fleetEndMatch}},
	{&fleet{nodes: 2, parts: 1, running: true}, actionRerun, rules{fleetReadFirst}},
	{&fleet{nodes: 2, parts: 1, unrecorded: true}, formerOwner, rules{fleetFenceLast}},
	{&fleet{nodes: 2, parts: 1, running: true}, formerOwner, rules{fleetFenceAgain}},
	{&fleet{nodes: 2, parts: 1, stranger: true}, formerOwner, rules{fleetConflictTakes}},
	{&fleet{nodes: 2, parts: 1}, actionRerun, rules{fleetFence, fleetFenceOwn}},
	{&fleet{nodes: 1, parts: 1}, wrongResult, rules{fleetFenceNew, fleetFenceFinal}},
	{&fleet{nodes: 2, parts: 1, stranger: true}, lostUpdate, rules{fleetVersions}},
	{&fleet{nodes: 2, parts: 1}, twoOwners, rules{fleetUnknownClaim}},
	{&fleet{nodes: 2, parts: 1}, earlyObject, rules{fleetUnknownEnd}},
	{&fleet{nodes: 1, parts: 1}, orphan, rules{fleetAbsentDead, fleetOwnTaken, fleetCompletes}},
	{&fleet{nodes: 2, parts: 1, running: true, sleeps: true}, formerOwner, rules{fleetSleepSettled}},
	{&fleet{nodes: 2, parts: 1, running: true, sleeps: true}, lostUpdate, rules{fleetSleepMatch, fleetWakeMatch}},
	{&fleet{nodes: 2, parts: 1, running: true, sleeps: true}, wokenEarly, rules{fleetSleepUntil, fleetWakeDue}},
	{&fleet{nodes: 2, parts: 1, running: true, sleeps: true}, wokenStale, rules{fleetWakeReads}},
	{&fleet{nodes: 2, parts: 1, running: true, sleeps: true}, twoOwners, rules{fleetWakeEpoch, fleetUnknownWake}},
	{&fleet{nodes: 2, parts: 1, running: true, sleeps: true}, orphan, rules{fleetWakeAll}},
	{&fleet{nodes: 2, parts: 1, running: true, pauses: true}, startsPaused, rules{fleetPauseMark, fleetPauseAsk, fleetPauseOrder}},
	{&fleet{nodes: 2, parts: 1, running: true, pauses: true}, orphan, rules{fleetPauseAll}},
	{&fleet{nodes: 2, parts: 1, outside: 1, placed: true, sleeps: true}, nodeOwns, rules{
		fleetPlacedSet, fleetPlacedClaim, fleetPlacedTake, fleetPlacedSleep, fleetPlacedWake,
	}},
	{&fleet{nodes: 2, parts: 1, outside: 1, placed: true, sleeps: true}, outsideOwns, rules{fleetPlacedOthers, fleetOverClears}},
	{&fleet{nodes: 2, parts: 1, outside: 2}, unjudged, rules{fleetPlacedOwner, fleetPlacedEpoch}},
	{&fleet{nodes: 2, parts: 1, outside: 2}, twoOwners, rules{fleetPlacedNext}},
	{&fleet{nodes: 2, parts: 1, outside: 2}, actionRerun, rules{fleetPlacedFence}},
	{&fleet{nodes: 2, parts: 1, outside: 2}, orphan, rules{fleetPlacedTells}},
	{&fleet{nodes: 2, parts: 1, outside: 1}, twoOwners, rules{fleetOverNext}},
	{&fleet{nodes: 2, parts: 1, outside: 1}, formerOwner, rules{fleetOverFence}},
	{&fleet{nodes: 2, parts: 1, outside: 1, placed: true, sleeps: true}, wokenEarly, rules{fleetOverWakes}},
	{&fleet{nodes: 2, parts: 1}, openParts, rules{fleetPartsFirst}},
	{&fleet{nodes: 2, parts: 1, deletes: true}, comesBack, rules{fleetNeverCreates}},
	// It leaves each plan with one node while that node works.
	{&fleet{nodes: 2, parts: 1}, 0, rules{fleetTakeDead}},
	// A node that was taken for dead learns it soon, and not only at its next write.
	{&fleet{nodes: 2, parts: 1}, 0, rules{fleetHeartbeat}},
}

// TestFleetFreedom shows that the owners of the model use the freedom F6: without it, final sub-objects need no
// fence.
func TestFleetFreedom(t *testing.T) {
	f := &fleet{nodes: 2, parts: 1, bound: true, mutant: mutant{lacking: rules{fleetFenceFinal}}}
	f.explore(f).want(t, 0)
}

// TestFleetDoomed shows that forgetting doomed calls loses nothing: what can be stored is the same.
func TestFleetDoomed(t *testing.T) {
	list := []fleet{{nodes: 1, parts: 2}, {nodes: 2, parts: 1, unrecorded: true}}
	if efforttest.Long() {
		list = append(list, fleet{nodes: 2, parts: 1, running: true}, fleet{nodes: 2, parts: 1, running: true, sleeps: true}, fleet{nodes: 2, parts: 1, outside: 1, sleeps: true}, fleet{nodes: 2, parts: 1, deletes: true}, fleet{nodes: 2, parts: 2, unrecorded: true}, fleet{nodes: 3, parts: 1, unrecorded: true})
	}
	for _, f := range list {
		stored := func(f fleet) map[fleetState]bool {
			f.visit(&f, nil)
			t.Logf("%s: %d states", name(&f), len(f.links))
			found := map[fleetState]bool{}
			for _, st := range slices.Concat(f.queue...) {
				e := st.entry
				e.owner, e.epoch = min(e.owner, firstNode), min(e.epoch-st.fenced, 1)
				found[fleetState{entry: e, parts: st.parts, object: st.object, marker: st.marker, deleted: st.deleted, outcome: st.outcome}] = true
			}
			return found
		}
		merged := stored(f)
		f.apart = true
		if apart := stored(f); !maps.Equal(merged, apart) {
			t.Errorf("%s: %d ways to store the plan instead of %d", name(&f), len(merged), len(apart))
		}
	}
}
