package protocol

// blob is one of those that make up a plan.
type blob uint8

// The blobs. A plan has one part or two.
const (
	marker blob = iota
	deleteMarker
	entry
	part1
	part2
	object
	blobs
)

func (b blob) String() string {
	return [...]string{"marker", "delete marker", "entry", "part 1", "part 2", "object"}[b]
}

// status is how far a plan, or one of its parts, has come.
type status uint8

const (
	notStarted status = iota
	running
	final
)

func (s status) String() string { return [...]string{"NotStarted", "Running", "final"}[s] }

// version is what a blob holds; the zero version stands for no blob. All but since and age is what its ETag stands for.
type version struct {
	by     actor // who wrote it
	of     actor // whose plan it belongs to: the creator
	status status
	parts  status // in an object: how far the parts have come that it embeds
	tells  actor  // in a final object: who wrote the entry that it embeds
	hollow bool   // a final entry whose content is not final
	long   bool   // a marker whose writer has the longer grace period, where there are two
	nth    uint8  // by which call of the same, or in which round
	retry  bool   // by a second try of the same call

	since uint8 // the actors that had listed the markers before it was written, or was old, a bit for each
	age   age
}

// age is how long ago a blob was written.
type age uint8

const (
	young age = iota
	aged      // longer ago than the shorter grace period and its margin, where there are two
	old       // longer ago than grace and margin
)

func (v version) there() bool { return v.by != nobody }

// etag is what is left of a version when it is compared.
func (v version) etag() version {
	v.since, v.age = 0, young
	return v
}

// writeID is what all tries of one call have in common.
func (v version) writeID() version {
	v = v.etag()
	v.retry = false
	return v
}

// store is all that is stored of a plan.
type store [blobs]version

// visible says whether there is a plan: what readers and listings go by.
func (s *store) visible() bool { return s[entry].there() && s[object].there() }

// become lets all blobs become as old as this, but for those that somebody wrote.
func (s *store) become(a age, but actor) {
	for b := range s {
		if v := &s[b]; v.there() && v.by != but {
			v.age = max(v.age, a)
		}
	}
}

// verb is what a request asks for.
type verb uint8

const (
	get    verb = iota // GET or HEAD: the model makes no difference
	list               // one answer about several blobs
	put                //
	remove             // DELETE, or one of a batch
	clock              // no request: how much of the grace period has gone by
	begin              // no request: the store as it is, for what a check must know or a caller does
)

// condition is what a write demands of the blob that is there.
type condition uint8

const (
	always condition = iota
	ifNew
	ifThere
	ifMatch
)

// limit is how long a request may be sent.
type limit uint8

const (
	noLimit      limit = iota
	withinGrace        // the grace period of the call
	withinCommit       // and half the margin more, for the request that commits a Create
)

// request is one step of an actor.
type request struct {
	step      string // as the vault's errors name it
	verb      verb
	blob      blob
	cond      condition
	match     version // with ifMatch
	value     version // what a put writes
	limit     limit
	refusable bool   // worth trying what a refusal leads to
	listed    []blob // with list
	dates     bool   // with list: the ages of all blobs count as of now
	starts    bool   // the grace period of its call begins with it
}

// holds says whether a condition holds for what is there.
func (r *request) holds(now version) bool {
	switch r.cond {
	case ifNew:
		return !now.there()
	case ifThere:
		return now.there()
	case ifMatch:
		return now.there() && now.etag() == r.match.etag()
	}
	return true
}

// code is how a request ended.
type code uint8

const (
	ok       code = iota
	mismatch      // the condition does not hold
	absent        // nothing is there
	refused       // for certain without effect
	ended         // the context ended
)

// answer is what an actor learns of a request.
type answer struct {
	index   uint8 // which of those that were sent at once
	code    code
	unknown bool  // the write may have taken effect all the same
	phase   phase // of clock
	deleted bool  // of begin: a Delete has returned, and nothing was created since
	seen    store // what was read, or for a put what was written
}

// apply lets a write take effect, and says how it is answered.
func (s *store) apply(r *request, retry bool, listed uint8) answer {
	now := s[r.blob]
	var a answer
	switch {
	case !now.there() && (r.verb == remove || r.cond == ifMatch || r.cond == ifThere):
		a.code = absent
	case !r.holds(now):
		a.code = mismatch
	case r.verb == remove:
		s[r.blob] = version{}
	default:
		v := r.value
		v.retry = retry
		a.seen[r.blob] = v
		v.since = listed
		s[r.blob] = v
	}
	return a
}

// patience is how old a blob must be before somebody who saw these markers may take its writer for dead: older than its own
// grace period and those that the markers name.
func patience(lacking set, brief bool, markers *store) age {
	if brief && (lacking.has(ruleGraceCarried) || !markers[marker].long && !markers[deleteMarker].long) {
		return aged
	}
	return old
}

// phase is how much of a call's time has gone by.
type phase uint8

const (
	inTime    phase = iota
	overGrace       // longer than the grace period, not than half the margin more
	overAll         // longer than grace and margin
)

// passed says whether a limit is over.
func (l limit) passed(p phase) bool {
	return l == withinGrace && p >= overGrace || l == withinCommit && p >= overAll
}

// rule is one that can be taken away from the protocol, to see that it is needed and the model looks.
type rule uint8

// The rules.
const (
	ruleGrace rule = iota
	ruleGraceOfAll
	ruleGraceAtListing
	ruleGraceCarried
	ruleGraceKept
	ruleClock
	ruleDeadline
	ruleMarkerFirst
	ruleEntryBeforeParts
	ruleObjectLast
	ruleNewEntry
	ruleNewPart
	ruleNewObject
	ruleMarkerStays
	ruleTakenMarkerShared
	ruleTakenMarkerOwn
	ruleCreateClears
	ruleUndoCertain
	ruleUndoBeforeObject
	ruleUndoRefused
	ruleUndoEntryMatch
	ruleUndoMarkerMatch
	ruleUndoMarkerOwn
	ruleUndoPartMatch
	ruleUndoConfirms
	ruleWithdrawMatch
	ruleWithdrawMarker
	ruleWriteID
	ruleOwnWriteID
	ruleUnknown
	ruleRunningFirst
	ruleUpdateMatch
	ruleEntryFirst
	ruleSettleMatch
	ruleSettleAgain
	ruleSettleOwn
	ruleSettleObjectFirst
	ruleSupersededMarker
	ruleSettleConfirms
	ruleSettleMarkerLast
	ruleDeleteMarker
	ruleDeleteMarkerAgain
	ruleDeleteDeadline
	ruleDeleteConfirms
	ruleDeleteListsAgain
	ruleObjectFirst
	ruleEntryAfterParts
	ruleMarkersLast
	ruleResume
	ruleResumeConfirms
	ruleResumeListsAgain
	ruleDeleteMatch
	ruleRecoveryLooks
	ruleRecoveryConfirms
	ruleRecoveryListsAgain
	ruleRecoveryEntryConfirms
	ruleLostEntry
	ruleLostObject
	ruleLossConfirms
	ruleRecoveryEntryMatch
	ruleRecoveryPartMatch
	ruleRecoveryNewParts
	ruleRecoveryChangedParts
	ruleRecoveryMarkerMatch
	ruleRecoveryMarkerLast
	ruleRecoveryDeleteMarker
	ruleRewrite
	ruleRewriteMatch
	ruleRewriteFirst
	ruleCompleteMatch
	ruleCompleteReads
	ruleCompleteContent
	ruleRecoveryLooksAgain
	ruleVerifySameObject
	ruleRestoreMarker
	ruleRestoreNew
	ruleRestoreRunning
	ruleRestoreRewrites
	ruleRestoreLooks
	ruleReadStale
	ruleReadAgain
	ruleReadParts
	ruleReadMissing
	ruleShownWhole
	rules
)

// set is a set of rules.
type set [2]uint64

func setOf(rs ...rule) (s set) {
	for _, r := range rs {
		s[r/64] |= 1 << (r % 64)
	}
	return s
}

func (s set) has(r rule) bool { return s[r/64]&(1<<(r%64)) != 0 }

// String says what is done where a rule is taken away.
func (r rule) String() string { return ruleNames[r] }

var ruleNames = [rules]string{
	ruleGrace:                 "Recovery does not wait for grace and margin",
	ruleGraceOfAll:            "Recovery looks at the markers' age alone, not at entry and object",
	ruleGraceAtListing:        "Recovery takes the age of entry and object when it looks at them, not when it listed the markers",
	ruleGraceCarried:          "Recovery judges by its own grace period, not by the markers'",
	ruleGraceKept:             "a Create writes a shorter grace period over a longer one",
	ruleClock:                 "Create reports success after its grace period",
	ruleDeadline:              "Create sends requests after its grace period",
	ruleMarkerFirst:           "Create writes the marker after the entry",
	ruleEntryBeforeParts:      "Create writes the parts before the entry",
	ruleObjectLast:            "Create writes the object before the parts",
	ruleNewEntry:              "Create overwrites an entry",
	ruleNewPart:               "Create overwrites parts",
	ruleNewObject:             "Create overwrites an object",
	ruleMarkerStays:           "Create writes a marker anew that has an entry beside it",
	ruleTakenMarkerShared:     "Create removes a marker that it shares when the entry is taken",
	ruleTakenMarkerOwn:        "Create leaves a marker that is its alone when the entry is taken",
	ruleCreateClears:          "Create leaves old remains to Recovery",
	ruleUndoCertain:           "Create undoes itself where an outcome is unknown",
	ruleUndoBeforeObject:      "Create undoes itself after it sent the object",
	ruleUndoRefused:           "Create leaves what it wrote when its object is refused",
	ruleUndoEntryMatch:        "undo removes an entry of any version",
	ruleUndoMarkerMatch:       "undo removes a marker of any version",
	ruleUndoMarkerOwn:         "undo removes a marker that it wrote over another's",
	ruleUndoPartMatch:         "undo removes parts of any version",
	ruleUndoConfirms:          "undo takes one 404 for proof that a blob is gone",
	ruleWithdrawMatch:         "an object that came too late is removed in any version",
	ruleWithdrawMarker:        "an object that came too late is removed without a delete marker",
	ruleWriteID:               "a retry does not recognise what an earlier try wrote",
	ruleOwnWriteID:            "a retry takes anybody's write for its own",
	ruleUnknown:               "a retry that meets another's write calls its failure certain",
	ruleRunningFirst:          "a part is updated before the plan is Running",
	ruleUpdateMatch:           "updates overwrite any version",
	ruleEntryFirst:            "completion writes the object before the entry",
	ruleSettleMatch:           "completion overwrites an object of any version",
	ruleSettleAgain:           "completion fails where the object was rewritten",
	ruleSettleOwn:             "completion overwrites an object that was rewritten although the entry is another's by now",
	ruleSettleObjectFirst:     "completion looks at the entry before it looks at the object that was rewritten",
	ruleSupersededMarker:      "a completion removes the marker although a later one has overtaken it",
	ruleSettleConfirms:        "completion takes one 404 for proof that the plan is deleted",
	ruleSettleMarkerLast:      "completion removes the marker before it writes the object",
	ruleDeleteMarker:          "Delete writes no delete marker",
	ruleDeleteMarkerAgain:     "Delete does not write its marker again when the object was rewritten",
	ruleDeleteDeadline:        "Delete removes the object long after it wrote its marker",
	ruleDeleteConfirms:        "Delete takes one 404 for proof that the object is gone",
	ruleDeleteListsAgain:      "Delete removes the markers although it was told that parts or entry were gone",
	ruleObjectFirst:           "Delete removes the parts before the object",
	ruleEntryAfterParts:       "Delete removes the entry before the parts",
	ruleMarkersLast:           "Delete removes the markers before the entry",
	ruleResume:                "Delete does not go on with one that was broken off",
	ruleResumeConfirms:        "Delete goes on with another one because of one 404",
	ruleResumeListsAgain:      "Delete goes on with another one by one listing of the parts",
	ruleDeleteMatch:           "Delete removes an object of any version",
	ruleRecoveryLooks:         "Recovery does not look at entry and object after it listed the markers",
	ruleRecoveryConfirms:      "Recovery takes one 404 for proof that entry or object is gone",
	ruleRecoveryListsAgain:    "Recovery does not list the parts again after it removed them",
	ruleRecoveryEntryConfirms: "Recovery takes one 404 for proof that it removed the entry",
	ruleLostEntry:             "Recovery removes a plan whose entry was lost",
	ruleLostObject:            "Recovery removes a plan that has started and whose object was lost",
	ruleLossConfirms:          "Recovery reports a loss after one look",
	ruleRecoveryEntryMatch:    "Recovery removes an entry of any version",
	ruleRecoveryPartMatch:     "Recovery removes parts of any version",
	ruleRecoveryNewParts:      "Recovery removes parts that are newer than its listing",
	ruleRecoveryChangedParts:  "Recovery goes on where a part has changed since it listed the parts",
	ruleRecoveryMarkerMatch:   "Recovery removes a marker of any version",
	ruleRecoveryMarkerLast:    "Recovery removes the marker before the entry",
	ruleRecoveryDeleteMarker:  "Recovery takes a young delete marker from a plan",
	ruleRewrite:               "Recovery takes an old delete marker from a plan without rewriting the object",
	ruleRewriteMatch:          "Recovery rewrites an object of any version",
	ruleRewriteFirst:          "Recovery rewrites the object after it took the delete marker",
	ruleCompleteMatch:         "Recovery writes a final object without condition",
	ruleCompleteReads:         "Recovery completes the object with the parts that it embeds",
	ruleCompleteContent:       "Recovery completes a plan by the metadata of its entry",
	ruleRecoveryLooksAgain:    "Recovery does not look again at an entry that is not final beside a final object",
	ruleVerifySameObject:      "Recovery calls a missing part damage although the object has changed",
	ruleRestoreMarker:         "a thorough Recovery leaves an open plan without a marker",
	ruleRestoreNew:            "a thorough Recovery overwrites what is there",
	ruleRestoreRunning:        "a thorough Recovery restores an entry as NotStarted",
	ruleRestoreRewrites:       "a thorough Recovery restores an entry without rewriting the object first",
	ruleRestoreLooks:          "a thorough Recovery does not look whether the object has changed while it restored the entry",
	ruleReadStale:             "Read shows the object beside a final entry as it is",
	ruleReadAgain:             "Read does not read an entry again beside a final object",
	ruleReadParts:             "Read shows a running plan's parts from the object",
	ruleReadMissing:           "Read calls a missing part damage without a look at the object",
	ruleShownWhole:            "an entry without object is shown",
}
