package protocol

// In the model of a fleet, a frozen node is a node that takes no step. A lost request is a late one that never arrives. A lost answer
// and a duplicate add nothing: a conditional write takes effect at most once, and its retry learns by the
// writeid what the earlier attempts did. Rule F8 is this knowledge.

// mostNodes and mostShared bound the nodes and the sub-objects of a model.
const (
	mostNodes  = 3
	mostShared = 2
)

// fleet is a situation: the nodes, the plan, the environment, and the rules that are lacking.
type fleet struct {
	nodes, parts int
	outside      int  // of the nodes, the processes of an engine of another kind, with an owner ID each
	placed       bool // the author has said that this engine places the plan
	running      bool // the plan is Running when the situation begins, and has no owner
	unrecorded   bool // there are no records: any node takes from any other at any time, as if it had judged it dead
	lateJoins    bool // a request that added a record may arrive late and add it again
	deletes      bool // the plan is deleted
	stranger     bool // a process that is not a member updates the first sub-object
	sleeps       bool // owners put the plan to sleep
	pauses       bool // people pause and resume the plan. Owners that have seen a pause, or a former one, put the plan to sleep
	bound        bool // owners don't use the freedom F6: final sub-objects stay as they are, and the entry until the end
	apart        bool // doomed calls are kept apart, although they make no difference

	mutant
	search[fleetState]
}

// epoch is the rank of an epoch among those of a state. All epochs older than the last finished fence have
// rank 0.
type epoch uint8

// owner is what an entry says of its owner.
type owner uint8

const (
	noOwner     owner = iota
	goneOwner         // a node of the past, whose ID never comes back
	goneOutside       // the same, of an engine of another kind
	firstNode         // the first of the nodes
)

// fleetState is a state of a fleet. It consists of what is stored, what is under way, and the nodes.
type fleetState struct {
	entry    sharedEntry
	parts    [mostShared]sharedPart
	object   objectState
	marker   bool
	paused   bool  // the note is there
	deleted  uint8 // the steps of the Delete that were taken
	late     lateRequests
	nodes    [mostNodes]fleetNode
	stranger held

	fenced epoch // the epoch of the last finished fence
	outcome
}

type sharedEntry struct {
	there  bool
	status status
	owner  owner
	epoch  epoch
	asleep bool // it says when the plan wakes
	early  bool // that time has not come: time itself, and not what is stored
	marked bool // it sleeps because it is paused
	held   bool // and the note has been there since: time itself, and not what is stored

	external bool // an engine of another kind places the plan
	placed   bool // as external, but in truth and not as stored
}

type sharedPart struct {
	there  bool
	status status
	former bool // a former owner stored its result after the fence
}

type objectState uint8

const (
	noObject objectState = iota
	openObject
	finalObject
)

// lateRequests are the requests under way that nobody waits for. Those that would be refused are left out. Of
// those that do the same, the oldest epoch stands for all, because it breaks a promise first. An epoch has one
// added; 0 means none.
type lateRequests struct {
	parts  [mostShared][final + 1]epoch // by the status that they store
	takes  [firstNode + mostNodes]epoch // claims and takes, by the owner that they store
	end    epoch                        // a final entry
	sleep  epoch                        // an entry that lets the plan sleep
	pause  epoch                        // an entry that lets it sleep because it is paused
	again  bool                         // the entry as it is, once more
	over   bool                         // the same without External
	object bool                         // a final object
}

const mostLateEpochs = mostShared*(int(final)+1) + int(firstNode) + mostNodes + 3

// fleetNode is a process and its record.
type fleetNode struct {
	dead    bool
	outside bool // it is a process of an engine of another kind: a claim, which has no record
	told    bool // that engine has told it the epoch of the owner
	hands   bool // it is the node of a HandOver
	record  recordState
	at      activity
	epoch   epoch
	match   bool // its version of the entry is the stored one
	pauses  bool // the entry that it sends says that the plan is paused
	asked   bool // it has found no note
	again   bool // it has sent the entry once more, for example because the plan is to stop
	held    [mostShared]held
}

type recordState uint8

const (
	ownRecord recordState = iota
	noRecord
	strangeRecord // a late copy of the request that joined has added it again
)

// activity is what a node does for the plan.
type activity uint8

const (
	idle activity = iota
	readsPlan
	sendsClaim
	sendsTake
	fences
	works
	stops       // an update was refused; what is in flight ends
	sendsEnd    // the final entry is under way
	sendsObject // the final object is under way
	sendsUnmark
	sendsSleep // the entry that lets the plan sleep is under way
	readsAsleep
	sendsWake
	sendsOver // the entry of a plan that sleeps, or has not begun, is under way without External

	readsAhead // the sub-objects of a plan that is to be woken; only without rule F11
	readsLate  // after the take's update of the entry; only without rule F2
	readsOwn   // without a new epoch; only without rule F5
)

// held is what a node knows of a sub-object.
type held struct {
	is        knowledge
	status    status
	sent      sending
	overtaken bool // an older epoch has completed it since this epoch's fence
	again     bool // it is to be read again; only without rule F4
}

type knowledge uint8

const (
	unread   knowledge = iota
	current            // its version is the stored one
	outdated           // it is not, and the node does not know it
	refuted            // its update was refused
)

type sending uint8

const (
	nothing sending = iota
	update          // in a fence the same status, otherwise the next one
	restart         // the status Running again
)

// target returns the status that the update of a sub-object stores.
func (h *held) target(at activity) status {
	switch {
	case at == fences:
		return h.status
	case h.sent == restart:
		return running
	}
	return min(h.status+1, final)
}

// The promises of a fleet, as they are broken.
var (
	formerOwner  = breaking("a write of a former owner takes effect after the fence")
	lostUpdate   = breaking("a write replaces a version that its writer has not seen")
	wrongResult  = breaking("the final object holds a result that a former owner stored after the fence")
	actionRerun  = breaking("a later owner runs an action that an earlier one had completed")
	finalChanged = breaking("a plan changes after its final entry")
	openParts    = breaking("an entry is final beside open sub-objects")
	earlyObject  = breaking("an object is final beside an open entry")
	twoOwners    = breaking("two nodes own the plan in one epoch")
	comesBack    = breaking("a deleted plan exists")
	wokenEarly   = breaking("a plan that sleeps is taken before its time")
	wokenStale   = breaking("an owner that woke a plan goes on from what is not stored")
	startsPaused = breaking("a plan that was marked as paused goes on before it is resumed")
	nodeOwns     = breaking("a node owns a plan that an engine of another kind places")
	outsideOwns  = breaking("an engine of another kind owns a plan that the fleet has begun")
	unjudged     = breaking("an engine of another kind takes a plan from an owner whose epoch it was not told")
	orphan       = breaking("a node can't bring the plan to its end")
)

// The rules, with their numbers in docs/fleet.md.
const (
	fleetClaimMatch    rule = "F1: a claim names no version"
	fleetTakeMatch     rule = "F1: a take's update of the entry names no version"
	fleetEndMatch      rule = "F1: a final entry names no version"
	fleetReadFirst     rule = "F2: a take reads the sub-objects after its update of the entry"
	fleetFenceLast     rule = "F2: a take stores the sub-objects before its update of the entry"
	fleetFenceAgain    rule = "F3: a take reads a sub-object again that moved during the fence"
	fleetConflictLooks rule = "F4: an owner that meets a conflict reads the sub-object and goes on"
	fleetConflictTakes rule = "F4: an owner that meets a conflict reads the entry, then the sub-object, and goes on"
	fleetFence         rule = "F5: a take stores no sub-object"
	fleetFenceNew      rule = "F5: a take stores no sub-object that is NotStarted"
	fleetFenceFinal    rule = "F5: a take stores no sub-object that is final"
	fleetFenceOwn      rule = "F5: a node goes on with a plan of its own without a new epoch and fence"
	fleetFenceMatch    rule = "F7: a fence names no versions"
	fleetWorkMatch     rule = "F7: an owner's updates name no versions"
	fleetPlanMatch     rule = "F7: an owner's updates of the plan name no versions"
	fleetVersions      rule = "F7: others' updates name no versions"
	fleetUnknownClaim  rule = "F8: a claim that was refused after an unknown attempt counts as done"
	fleetUnknownTake   rule = "F8: a take that was refused after an unknown attempt counts as done"
	fleetUnknownEnd    rule = "F8: a final entry that was refused after an unknown attempt counts as written"
	fleetAbsentDead    rule = "F9: an owner without a record counts as alive"
	fleetOwnTaken      rule = "F9: a node does not take its own plans again"
	fleetCompletes     rule = "F9: nobody completes a final entry"
	fleetSleepSettled  rule = "F11: an owner lets a plan sleep while its updates are in flight"
	fleetSleepMatch    rule = "F11: the entry that lets a plan sleep names no version"
	fleetSleepUntil    rule = "F11: a plan is let go to sleep without a time"
	fleetWakeDue       rule = "F11: nodes wake a plan before its time"
	fleetWakeMatch     rule = "F11: a wake's update of the entry names no version"
	fleetWakeReads     rule = "F11: a wake reads the sub-objects before the entry"
	fleetWakeEpoch     rule = "F11: a wake keeps the epoch"
	fleetWakeAll       rule = "F11: only the node that let a plan sleep wakes it"
	fleetPauseMark     rule = "F12: a plan that sleeps because it is paused has no mark"
	fleetPauseAsk      rule = "F12: a node wakes a plan with the mark without asking for the note"
	fleetPauseOrder    rule = "F12: a node asks for the note before it reads the entry"
	fleetPauseAll      rule = "F12: only the node that let a paused plan sleep wakes it"
	fleetPlacedSet     rule = "F13: a claim from outside does not set External"
	fleetPlacedClaim   rule = "F13: a node claims a plan that is placed from outside"
	fleetPlacedTake    rule = "F13: a node takes a plan that is placed from outside, because its owner is no member"
	fleetPlacedSleep   rule = "F13: an owner from outside that lets a plan sleep clears External"
	fleetPlacedWake    rule = "F13: a node wakes a plan that is placed from outside"
	fleetPlacedOthers  rule = "F13: a plan that the fleet has begun is taken or woken from outside"
	fleetPlacedOwner   rule = "F13: two claims from outside share an owner ID"
	fleetPlacedEpoch   rule = "F13: a claim from outside does not compare the epoch that it was told"
	fleetPlacedNext    rule = "F13: a claim from outside keeps the epoch"
	fleetPlacedTells   rule = "F13: a claim from outside that is refused does not tell the epoch"
	fleetPlacedFence   rule = "F13: a claim from outside stores no sub-object"
	fleetOverClears    rule = "F13: HandOver does not clear External"
	fleetOverNext      rule = "F13: HandOver of a running plan keeps the epoch"
	fleetOverFence     rule = "F13: HandOver of a running plan stores no sub-object"
	fleetOverWakes     rule = "F13: HandOver wakes a plan that sleeps"
	fleetUnknownWake   rule = "F8: a wake that was refused after an unknown attempt counts as done"
	fleetPartsFirst    rule = "an owner ends a plan before its sub-objects are final"
	fleetNeverCreates  rule = "an update creates a blob that is gone"
	fleetTakeDead      rule = "nodes take plans from living owners"
	fleetHeartbeat     rule = "a node whose record was removed is never told"
)

// harmless are the rules without which a doomed call still has no effect.
var harmless = rules{fleetFenceFinal, fleetAbsentDead, fleetOwnTaken, fleetCompletes, fleetTakeDead, fleetHeartbeat}
