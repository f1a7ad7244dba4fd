package protocol

import (
	"fmt"
)

// In the model of a closed day, a version is kept only as the answer to "is it still the stored one?", and the content
// of a catalogue as the answer to "is it what a listing yields?".
//
// The clock of the service is in the plan's day, in the day after, or later. An answer may be dated by the one
// before, because answers come from many machines.

const mostDay = 5

// closedDay is a situation: the calls, the plan, the environment, and the rules that are lacking.
type closedDay struct {
	roles  []dayRole
	plan   planForm
	later  bool // the day is closed when the situation begins
	anew   bool // another Create makes the container anew after it was dropped
	loses  bool // the marker of an open plan is lost from outside
	sleeps bool // machines sleep, and their monotonic clocks stop
	lies   bool // one answer is false: a listing omits everything, or says 404 for the container

	mutant
	search[dayState]
}

// dayRole is the kind of a call.
type dayRole uint8

const (
	dayCreate  dayRole = iota // of an ID of the day, or a Restore of an open plan; afterwards it brings the plan to its end
	dayRestore                // of a final plan
	dayUpdate                 // of a final plan
	dayDelete
	dayRepair // a thorough Repair that restores a lost entry
	dayHold   // Hold and Release
	dayExpire
	dayClear // Recovery, where it removes what an Expire left
	dayBuild
)

func (r dayRole) String() string {
	return [...]string{"Create", "Restore", "Update", "Delete", "thorough Repair", "Hold", "Expire", "Recovery", "Catalogue"}[r]
}

// planForm is what is stored of the plan.
type planForm uint8

const (
	formAbsent   planForm = iota
	formEntry             // without an object
	formOpen              //
	formEnded             // a final entry beside an open object
	formFinal             //
	formHeadless          // an object without an entry, which was lost from outside
)

func (p planForm) String() string {
	return [...]string{"no plan", "an entry alone", "an open plan", "a plan with a final entry", "a final plan", "a plan without its entry"}[p]
}

// visible reports whether listings show the plan.
func (p planForm) visible() bool { return p == formOpen || p == formEnded || p == formFinal }

// slot is one of the markers.
type slot uint8

const (
	slotMarker slot = iota
	slotChange
	slotDelete
	slots
)

// markerAge is the age of a marker, if there is one.
type markerAge uint8

const (
	noMarker markerAge = iota
	youngMarker
	oldMarker // older than grace period and margin
)

// content is what the blob `catalogue` holds.
type content uint8

const (
	noContent content = iota
	placeholder
	equal   // to what a listing of plans/ yields
	unequal //
)

// lease is the lease of the container: nobody's, a hold, or that of an Expire.
type lease uint8

const (
	noLease lease = iota
	holdLease
	firstLease // of the first call
)

// dayState is a state of a closed day.
type dayState struct {
	phase     uint8 // the service's clock: 0 is the plan's day, 1 the day after, 2 later
	there     bool  // the container
	plan      planForm
	marks     [slots]markerAge
	rewritten bool // Recovery has rewritten the object because of the delete marker
	catalogue content
	dropping  bool
	lease     lease
	held      bool // a Hold has returned, and no Release has begun
	lost      bool // the marker was lost from outside
	lied      bool // the false answer was given

	latePlaceholder bool
	late            [unequal + 1]bool // catalogues under way whose condition still holds
	lateDrops       uint8             // DELETEs of the container under way, one bit for each call

	calls [mostDay]dayCall
	outcome
}

// dayCall is a call.
type dayCall struct {
	at     dayPlace
	slow   bool // the grace period has passed since its marker
	told   bool // the marker's answer was dated after the plan's day
	own    bool // its marker is the stored one
	shared bool // it has taken the marker over from another call
	clear  bool // it has removed the catalogue
	looked bool
	match  bool // its version of what it changes is the stored one
	knows  droppingSeen
	lists  content // what a builder has listed
	agreed uint8   // how many listings have shown the same
}

// droppingSeen is what a call knows of `open/dropping`.
type droppingSeen uint8

const (
	droppingUnseen droppingSeen = iota
	droppingAbsent
	droppingCurrent
	droppingOutdated
)

// dayPlace is how far a call has come.
type dayPlace uint8

const (
	dayIdle dayPlace = iota
	dayPrepared
	dayRead
	dayMarked
	dayLooked
	dayReady
	dayEntryThere
	dayCommitted
	dayEntryFinal
	dayObjectFinal
	dayEntryGone
	dayLeased
	dayHeld
	daySaid
	dayFoundNothing
	daySent
	dayReleases
	dayAborts
	dayPlacing
	dayPlaced
	dayListed
)

// window reports whether a call is between its marker and its commit.
func (p dayPlace) window() bool { return p >= dayMarked && p <= dayEntryThere }

func (d *closedDay) describe(m move) string {
	if m.node < 0 {
		return m.what
	}
	return fmt.Sprintf("%s %s", d.roles[m.node], m)
}

func (d *closedDay) String() string { return describe(*d, d.plan, d.roles...) }

// The promises of a closed day, as they are broken.
var (
	dayUnequal     = breaking("a catalogue differs from a listing")
	dayHeldDeleted = breaking("a plan of a held day is deleted")
	dayHeldDropped = breaking("a held day is dropped")
	dayOpenDropped = breaking("a day with an open plan is dropped")
	dayUnmarked    = breaking("an open plan has no marker")
	dayNoPlan      = breaking("Create returns nil, but there is no plan")
	dayDebris      = breaking("after Recovery something is left that no plan has")
	dayNeverBuilt  = breaking("after Recovery the catalogue can't be built")
	dayNotDropped  = breaking("Expire says that it dropped a day that is there")
)

// The rules, with their numbers in docs/protocol.md.
const (
	dayMarkerFirst        rule = "K1: a change removes the catalogue before it writes its marker"
	dayInvalidatesFirst   rule = "K1: a change removes the catalogue after its commit"
	dayInvalidates        rule = "K1: a change does not remove the catalogue"
	dayUpdateMarks        rule = "K2: the update of a final plan writes no marker"
	dayRepairMarks        rule = "K2: a thorough Repair restores an entry without a marker"
	dayChangeMarker       rule = "K2: the update of a final plan uses the plan's marker"
	dayChangeMatch        rule = "K2: an update removes a change marker of any version"
	dayChangeShared       rule = "K2: an update removes a change marker that it has taken over"
	dayChangeCleared      rule = "K2: Recovery leaves change markers"
	dayPlaceholder        rule = "K3: a builder writes no placeholder"
	dayOpenListed         rule = "K3: a builder does not list the markers"
	dayOpenFirst          rule = "K3: a builder lists the plans before the markers"
	dayCatalogueMatch     rule = "K3: a builder writes the catalogue without a condition"
	daySlack              rule = "K4: a day is closed when the next one is over by the date of an answer"
	dayDeadline           rule = "K5: a change commits after its grace period"
	dayRewrite            rule = "K5: Recovery removes an old delete marker without rewriting the object"
	dayDeleteLooks        rule = "K6: Delete does not look for a hold"
	dayDeleteLooksLate    rule = "K6: Delete looks for a hold before it writes its marker"
	dayDeleteShared       rule = "K6: Delete takes back a delete marker that another has written, too"
	dayHoldWaits          rule = "K6: Hold does not wait for Deletes under way"
	dayHoldClosed         rule = "K6: a day can be held before it is closed"
	dayExpireClosed       rule = "K7: a day is dropped before it is closed"
	dayExpireLease        rule = "K7: Expire has no lease"
	dayExpireNames        rule = "K7: Expire does not name its lease"
	dayDroppingFirst      rule = "K7: Expire lists the markers before it writes open/dropping"
	dayDroppingMatch      rule = "K7: Expire writes open/dropping without a condition"
	dayAbortMatch         rule = "K7: Expire removes open/dropping in any version"
	dayAbortLease         rule = "K7: Expire removes open/dropping before it releases the lease"
	dayCreateLooks        rule = "K7: Create does not look for open/dropping"
	dayCreateLooksLate    rule = "K7: Create looks for open/dropping before it writes its marker"
	dayClears             rule = "K7: Recovery leaves open/dropping"
	dayClearLease         rule = "K7: Recovery removes open/dropping although a lease is active"
	dayClearMatch         rule = "K7: Recovery removes open/dropping in any version"
	dayFinal              rule = "K8: a builder takes up open plans"
	dayCreateConfirms     rule = "K9: Create does not look at its marker again"
	dayCreateConfirmsOwn  rule = "K9: Create believes any marker to be its own"
	dayCreateConfirmsLate rule = "K9: Create looks at its marker before it looks for open/dropping"
	dayMakesNothing       rule = "K9: an update makes the container anew"
	dayExpireTwice        rule = "K10: Expire believes one listing"
	dayExpireConfirms     rule = "K10: a day is dropped by one 404"
	dayHoldTwice          rule = "K10: Hold believes one listing"
	dayOpenTwice          rule = "K10: a builder believes one listing of the markers"
	dayPlansTwice         rule = "K10: a catalogue believes one listing of the plans"
)
