package protocol

import (
	"fmt"
)

// The model of a closed day: its catalogue, changes of one of its plans, holds and expiry. Nothing is counted:
// calls begin again, die, freeze, and take too long any number of times. A version is kept only as the answer to
// "is it still the stored one?", and the content of a catalogue as the answer to "is it what a listing yields?".
//
// The clock of the service is in the plan's day, in the day after, or later. An answer may be dated by the one
// before, because answers come from many machines.

const mostDay = 5

// closedDay is a situation: the calls, the plan, the environment, and the rules that are lacking.
type closedDay struct {
	roles   []dayRole
	plan    planForm
	later   bool // the day is closed when the situation begins
	anew    bool // another Create makes the container anew after it was dropped
	loses   bool // the marker of an open plan is lost from outside
	sleeps  bool // machines sleep, and their monotonic clocks stop
	lies    bool // one answer is false: a listing omits everything, or says 404 for the container
	lacking set[dayRule]
	only    dayBreach // the only promise that is judged; 0 means all

	search[dayState, dayMove]
}

// dayRole is the kind of a call.
type dayRole uint8

const (
	dayCreate  dayRole = iota // of an ID of the day, or a Restore of an open plan; afterwards it brings the plan to its end
	dayRestore                // of a final plan
	dayUpdate                 // of a final plan
	dayDelete
	dayRepair // a thorough Recovery that restores a lost entry
	dayHold   // Hold and Release
	dayExpire
	dayClear // Recovery, where it removes what an Expire left
	dayBuild
)

func (r dayRole) String() string {
	return [...]string{"Create", "Restore", "Update", "Delete", "thorough Recovery", "Hold", "Expire", "Recovery", "Catalogue"}[r]
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

	calls  [mostDay]dayCall
	broken dayBreach
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

// dayMove is a step.
type dayMove struct {
	call int // -1: nobody
	what string
}

func (d *closedDay) describe(m dayMove) string {
	if m.call < 0 {
		return m.what
	}
	return fmt.Sprintf("%s %d: %s", d.roles[m.call], m.call+1, m.what)
}

func (d *closedDay) String() string {
	return describe(join(d.roles)+"; "+d.plan.String(), []trait{
		{d.later, "the day is closed"},
		{d.anew, "the container is made anew"},
		{d.loses, "the marker is lost"},
		{d.sleeps, "machines sleep"},
		{d.lies, "one answer is false"},
	}, d.lacking, dayRules)
}

// dayBreach is a broken promise.
type dayBreach uint8

const (
	_ dayBreach = iota
	dayUnequal
	dayHeldDeleted
	dayHeldDropped
	dayOpenDropped
	dayUnmarked
	dayNoPlan
	dayDebris
	dayNeverBuilt
	dayNotDropped
	dayBreaches
)

func (b dayBreach) String() string {
	return [dayBreaches]string{
		dayUnequal:     "a catalogue differs from a listing",
		dayHeldDeleted: "a plan of a held day is deleted",
		dayHeldDropped: "a held day is dropped",
		dayOpenDropped: "a day with an open plan is dropped",
		dayUnmarked:    "an open plan has no marker",
		dayNoPlan:      "Create returns nil, but there is no plan",
		dayDebris:      "after Recovery something is left that no plan has",
		dayNeverBuilt:  "after Recovery the catalogue can't be built",
		dayNotDropped:  "Expire says that it dropped a day that is there",
	}[b]
}

// dayRule is a rule of closed days.
type dayRule uint8

// The rules. The comments have their numbers in docs/protocol.md.
const (
	dayMarkerFirst        dayRule = iota // K1
	dayInvalidatesFirst                  // K1
	dayInvalidates                       // K1
	dayUpdateMarks                       // K2
	dayRepairMarks                       // K2
	dayChangeMarker                      // K2
	dayChangeMatch                       // K2
	dayChangeShared                      // K2
	dayChangeCleared                     // K2
	dayPlaceholder                       // K3
	dayOpenListed                        // K3
	dayOpenFirst                         // K3
	dayCatalogueMatch                    // K3
	daySlack                             // K4
	dayDeadline                          // K5
	dayRewrite                           // K5
	dayDeleteLooks                       // K6
	dayDeleteLooksLate                   // K6
	dayDeleteShared                      // K6
	dayHoldWaits                         // K6
	dayHoldClosed                        // K6
	dayExpireClosed                      // K7
	dayExpireLease                       // K7
	dayExpireNames                       // K7
	dayDroppingFirst                     // K7
	dayDroppingMatch                     // K7
	dayAbortMatch                        // K7
	dayAbortLease                        // K7
	dayCreateLooks                       // K7
	dayCreateLooksLate                   // K7
	dayClears                            // K7
	dayClearLease                        // K7
	dayClearMatch                        // K7
	dayFinal                             // K8
	dayCreateConfirms                    // K9
	dayCreateConfirmsOwn                 // K9
	dayCreateConfirmsLate                // K9
	dayMakesNothing                      // K9
	dayExpireTwice                       // K10
	dayExpireConfirms                    // K10
	dayHoldTwice                         // K10
	dayOpenTwice                         // K10
	dayPlansTwice                        // K10
	dayRules
)

// String describes what happens without the rule.
func (r dayRule) String() string {
	return [dayRules]string{
		dayMarkerFirst:        "a change removes the catalogue before it writes its marker",
		dayInvalidatesFirst:   "a change removes the catalogue after its commit",
		dayInvalidates:        "a change does not remove the catalogue",
		dayUpdateMarks:        "the update of a final plan writes no marker",
		dayRepairMarks:        "a thorough Recovery restores an entry without a marker",
		dayChangeMarker:       "the update of a final plan uses the plan's marker",
		dayChangeMatch:        "an update removes a change marker of any version",
		dayChangeShared:       "an update removes a change marker that it has taken over",
		dayChangeCleared:      "Recovery leaves change markers",
		dayPlaceholder:        "a builder writes no placeholder",
		dayOpenListed:         "a builder does not list the markers",
		dayOpenFirst:          "a builder lists the plans before the markers",
		dayCatalogueMatch:     "a builder writes the catalogue without a condition",
		daySlack:              "a day is closed when the next one is over by the date of an answer",
		dayDeadline:           "a change commits after its grace period",
		dayRewrite:            "Recovery removes an old delete marker without rewriting the object",
		dayDeleteLooks:        "Delete does not look for a hold",
		dayDeleteLooksLate:    "Delete looks for a hold before it writes its marker",
		dayDeleteShared:       "Delete takes back a delete marker that another has written, too",
		dayHoldWaits:          "Hold does not wait for Deletes under way",
		dayHoldClosed:         "a day can be held before it is closed",
		dayExpireClosed:       "a day is dropped before it is closed",
		dayExpireLease:        "Expire has no lease",
		dayExpireNames:        "Expire does not name its lease",
		dayDroppingFirst:      "Expire lists the markers before it writes open/dropping",
		dayDroppingMatch:      "Expire writes open/dropping without a condition",
		dayAbortMatch:         "Expire removes open/dropping in any version",
		dayAbortLease:         "Expire removes open/dropping before it releases the lease",
		dayCreateLooks:        "Create does not look for open/dropping",
		dayCreateLooksLate:    "Create looks for open/dropping before it writes its marker",
		dayClears:             "Recovery leaves open/dropping",
		dayClearLease:         "Recovery removes open/dropping although a lease is active",
		dayClearMatch:         "Recovery removes open/dropping in any version",
		dayFinal:              "a builder takes up open plans",
		dayCreateConfirms:     "Create does not look at its marker again",
		dayCreateConfirmsOwn:  "Create believes any marker to be its own",
		dayCreateConfirmsLate: "Create looks at its marker before it looks for open/dropping",
		dayMakesNothing:       "an update makes the container anew",
		dayExpireTwice:        "Expire believes one listing",
		dayExpireConfirms:     "a day is dropped by one 404",
		dayHoldTwice:          "Hold believes one listing",
		dayOpenTwice:          "a builder believes one listing of the markers",
		dayPlansTwice:         "a catalogue believes one listing of the plans",
	}[r]
}

func (d *closedDay) lacks(r dayRule) bool { return d.lacking.has(r) }
