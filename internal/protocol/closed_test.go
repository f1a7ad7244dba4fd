package protocol

import (
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

func roles(rs ...dayRole) []dayRole { return rs }

// tidy makes states equal that differ only in what no longer matters.
func (d *closedDay) tidy(st *dayState) {
	for i := range d.roles {
		c := &st.calls[i]
		switch d.roles[i] {
		case dayBuild:
			if !c.match && c.at == dayListed && !d.lacks(dayCatalogueMatch) && !d.lacks(dayPlaceholder) {
				c.lists = placeholder // it will be refused, whatever it is
			}
		case dayCreate, dayRestore, dayUpdate, dayDelete, dayRepair:
			if c.at >= dayCommitted {
				c.slow, c.told, c.match, c.looked = false, false, false, false
			}
		}
	}
	if st.phase == 0 {
		st.late = [unequal + 1]bool{}
	}
}

// check returns which promise is broken in a state, now or after all calls have died and Recovery has run.
func (d *closedDay) check(st *dayState) string {
	switch {
	case st.catalogue == unequal && d.judges(dayUnequal):
		return dayUnequal.String()
	case st.plan == formOpen && st.marks[slotMarker] == noMarker && !st.lost && d.judges(dayUnmarked):
		return dayUnmarked.String()
	}
	return d.settle(*st).String()
}

// settle lets all calls die and everything become old. It lets Recovery run, and then a builder. It returns which
// promise is broken.
func (d *closedDay) settle(st dayState) breach {
	for i := range d.roles {
		st.calls[i] = dayCall{}
	}
	st.phase, st.late, st.latePlaceholder, st.lateDrops = 2, [unequal + 1]bool{}, false, 0
	if st.lease != holdLease {
		st.lease = noLease
	}
	for s, age := range st.marks {
		if age != noMarker {
			st.marks[s] = oldMarker
		}
	}
	for more := true; more; {
		more = false
		from := st
		d.recover(&from, stepsOf(from, -1, func(_ move, next dayState) { st, more = next, true }))
	}
	builds := &closedDay{roles: roles(dayClear, dayBuild)}
	if d.lacks(dayClears) {
		builds.lacking = rules{dayClears}
	}
	for i := range builds.roles {
		for range 8 {
			moved := false
			from := st
			builds.act(&from, i, stepsOf(from, i, func(_ move, next dayState) {
				if !moved {
					st, moved = next, true
				}
			}))
		}
	}
	if !st.there || st.plan == formHeadless && st.marks[slotDelete] != noMarker {
		return 0
	}
	left := st.marks
	if st.plan == formOpen {
		left[slotMarker] = noMarker
	}
	switch {
	case d.judges(dayDebris) && (st.dropping || st.plan == formEntry || left != [slots]markerAge{}):
		return dayDebris
	case d.judges(dayNeverBuilt) && st.plan != formOpen && st.plan != formEnded && st.catalogue != equal:
		return dayNeverBuilt
	}
	return 0
}

// closedDays returns the situations in which every promise must hold.
func closedDays() []*closedDay {
	list := []*closedDay{
		{roles: roles(dayDelete, dayBuild), plan: formFinal},
		{roles: roles(dayCreate, dayBuild)},
		{roles: roles(dayUpdate, dayBuild), plan: formFinal},
		{roles: roles(dayUpdate, dayUpdate, dayBuild), plan: formFinal},
		{roles: roles(dayCreate, dayUpdate, dayBuild)},
		{roles: roles(dayRestore, dayUpdate, dayBuild), later: true},
		{roles: roles(dayRestore, dayDelete, dayBuild), later: true},
		{roles: roles(dayRestore, dayCreate, dayBuild), later: true},
		{roles: roles(dayRepair, dayBuild), plan: formHeadless},
		{roles: roles(dayRepair, dayDelete, dayBuild), plan: formHeadless, later: true},
		{roles: roles(dayRepair, dayUpdate, dayBuild), plan: formHeadless, later: true},
		{roles: roles(dayDelete, dayHold, dayBuild), plan: formFinal},
		{roles: roles(dayDelete, dayDelete, dayHold), plan: formFinal},
		{roles: roles(dayDelete, dayHold, dayExpire), plan: formFinal, later: true},
		{roles: roles(dayCreate, dayExpire, dayBuild), later: true, anew: true},
		{roles: roles(dayRepair, dayExpire), plan: formHeadless, later: true, anew: true},
		{roles: roles(dayHold, dayExpire, dayExpire, dayClear), plan: formFinal, later: true},
		{roles: roles(dayCreate, dayBuild), loses: true},
		{roles: roles(dayDelete, dayHold, dayBuild), plan: formFinal, sleeps: true},
		{roles: roles(dayDelete, dayBuild), plan: formFinal, later: true, lies: true},
		{roles: roles(dayUpdate, dayBuild), plan: formFinal, later: true, lies: true},
		{roles: roles(dayDelete, dayHold), plan: formFinal, later: true, lies: true},
		{roles: roles(dayCreate, dayExpire, dayBuild), later: true, anew: true, lies: true},
		{roles: roles(dayHold, dayExpire, dayExpire), plan: formOpen, later: true, lies: true},
	}
	if testing.Short() {
		return list[:3]
	}
	if efforttest.Long() {
		list = append(
			list,
			&closedDay{roles: roles(dayDelete, dayUpdate, dayBuild), plan: formFinal},
			&closedDay{roles: roles(dayDelete, dayExpire, dayBuild), plan: formFinal, later: true, anew: true},
			&closedDay{roles: roles(dayUpdate, dayExpire, dayBuild), plan: formFinal, later: true, anew: true},
			&closedDay{roles: roles(dayDelete, dayUpdate, dayBuild, dayBuild), plan: formFinal, later: true},
			&closedDay{roles: roles(dayCreate, dayExpire, dayExpire, dayClear), later: true, anew: true},
			&closedDay{roles: roles(dayCreate, dayCreate, dayExpire, dayClear), later: true, anew: true},
			&closedDay{roles: roles(dayCreate, dayDelete, dayUpdate, dayBuild)},
			&closedDay{roles: roles(dayUpdate, dayUpdate, dayBuild, dayBuild), plan: formFinal, later: true},
			&closedDay{roles: roles(dayDelete, dayHold, dayExpire, dayBuild), plan: formFinal, later: true, anew: true},
			&closedDay{roles: roles(dayCreate, dayExpire, dayExpire, dayExpire), later: true},
		)
	}
	return list
}

// TestClosedDays explores each situation to its end.
func TestClosedDays(t *testing.T) { holds(t, closedDays()) }

// dayNeeds says for each rule in which situation which promise is broken without it.
var dayNeeds = needs{
	{&closedDay{roles: roles(dayDelete, dayBuild), plan: formFinal}, dayUnequal, rules{
		dayMarkerFirst, dayPlaceholder, dayOpenListed, dayOpenFirst, dayCatalogueMatch, daySlack,
	}},
	{&closedDay{roles: roles(dayUpdate, dayBuild), plan: formFinal}, dayUnequal, rules{
		dayInvalidatesFirst, dayUpdateMarks, dayDeadline,
	}},
	{&closedDay{roles: roles(dayCreate, dayBuild), later: true}, dayUnequal, rules{dayInvalidates}},
	{&closedDay{roles: roles(dayRepair, dayBuild), plan: formHeadless}, dayUnequal, rules{dayRepairMarks}},
	{&closedDay{roles: roles(dayCreate, dayUpdate, dayBuild)}, dayUnequal, rules{dayChangeMarker}},
	{&closedDay{roles: roles(dayUpdate, dayUpdate, dayBuild), plan: formFinal}, dayUnequal, rules{
		dayChangeMatch, dayChangeShared,
	}},
	{&closedDay{roles: roles(dayUpdate, dayBuild), plan: formFinal, later: true}, dayNeverBuilt, rules{dayChangeCleared}},
	{&closedDay{roles: roles(dayDelete, dayHold), plan: formFinal, sleeps: true}, dayHeldDeleted, rules{dayRewrite}},
	{&closedDay{roles: roles(dayDelete, dayHold), plan: formFinal}, dayHeldDeleted, rules{
		dayDeleteLooks, dayDeleteLooksLate, dayHoldWaits, dayHoldClosed,
	}},
	{&closedDay{roles: roles(dayDelete, dayDelete, dayHold), plan: formFinal, later: true}, dayDebris, rules{dayDeleteShared}},
	{&closedDay{roles: roles(dayCreate, dayExpire)}, dayOpenDropped, rules{dayExpireClosed}},
	{&closedDay{roles: roles(dayHold, dayExpire), plan: formFinal}, dayHeldDropped, rules{dayExpireLease, dayExpireNames}},
	{&closedDay{roles: roles(dayCreate, dayExpire), later: true}, dayOpenDropped, rules{
		dayDroppingFirst, dayAbortLease, dayCreateLooks,
	}},
	{&closedDay{roles: roles(dayCreate, dayExpire, dayExpire), later: true}, dayOpenDropped, rules{
		dayDroppingMatch, dayAbortMatch,
	}},
	{&closedDay{roles: roles(dayCreate, dayExpire), later: true, anew: true}, dayNoPlan, rules{dayCreateLooksLate}},
	{&closedDay{roles: roles(dayExpire), later: true}, dayDebris, rules{dayClears}},
	{&closedDay{roles: roles(dayCreate, dayExpire, dayClear), later: true}, dayOpenDropped, rules{
		dayClearLease, dayClearMatch,
	}},
	{&closedDay{roles: roles(dayCreate, dayBuild), loses: true}, dayUnequal, rules{dayFinal}},
	{&closedDay{roles: roles(dayCreate, dayExpire), later: true, anew: true}, dayUnmarked, rules{
		dayCreateConfirms, dayCreateConfirmsLate,
	}},
	{&closedDay{roles: roles(dayCreate, dayCreate, dayExpire), later: true, anew: true}, dayUnmarked, rules{
		dayCreateConfirmsOwn,
	}},
	{&closedDay{roles: roles(dayCreate, dayExpire), later: true, lies: true}, dayOpenDropped, rules{dayExpireTwice}},
	{&closedDay{roles: roles(dayExpire), plan: formFinal, later: true, lies: true}, dayNotDropped, rules{dayExpireConfirms}},
	{&closedDay{roles: roles(dayDelete, dayHold), plan: formFinal, later: true, lies: true}, dayHeldDeleted, rules{
		dayHoldTwice,
	}},
	{&closedDay{roles: roles(dayUpdate, dayBuild), plan: formFinal, later: true, lies: true}, dayUnequal, rules{dayOpenTwice}},
	{&closedDay{roles: roles(dayBuild), plan: formFinal, later: true, lies: true}, dayUnequal, rules{dayPlansTwice}},
	// A dropped day does not come back as an empty container.
	{&closedDay{roles: roles(dayUpdate, dayExpire), plan: formFinal, later: true}, 0, rules{dayMakesNothing}},
}

// TestClosedDayLimits shows that the model finds what docs/protocol.md does not cover.
func TestClosedDayLimits(t *testing.T) {
	for _, d := range []*closedDay{
		{roles: roles(dayUpdate, dayBuild), plan: formFinal, sleeps: true, mutant: mutant{only: dayUnequal}},
		{roles: roles(dayCreate), later: true, sleeps: true, mutant: mutant{only: dayDebris}},
	} {
		if found := d.explore(d); found.violation == "" {
			t.Errorf("%s: no violation is found", d)
		}
	}
}
