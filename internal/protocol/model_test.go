package protocol

// blob is one of the blobs of a plan.
type blob uint8

// The blobs. A plan has one sub-object or two.
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
	return [...]string{"marker", "delete marker", "entry", "sub-object 1", "sub-object 2", "object"}[b]
}

// status is the status of a plan or a sub-object.
type status uint8

const (
	notStarted status = iota
	running
	final
)

func (s status) String() string { return [...]string{"NotStarted", "Running", "final"}[s] }

// version is the content of a blob. The zero version means that the blob does not exist. All fields except
// since and age belong to the ETag.
type version struct {
	by       actor // the writer
	of       actor // the creator of its plan
	status   status
	parts    status // in an object: the lowest status of the sub-objects that it embeds
	tells    actor  // in a final object: the writer of the entry that it embeds
	hollow   bool   // a final entry whose content is not final
	restored bool   // an entry that a Restore wrote, and nobody has updated since
	long     bool   // a marker of a writer with the longer grace period, where there are two
	nth      uint8  // the call or the round of the writer
	retry    bool   // written by a retry of the same call

	since uint8 // the actors that had listed the markers before this was written or became old, one bit each
	age   age
}

// age is the time since a blob was written.
type age uint8

const (
	recent age = iota
	aged       // longer than the shorter grace period and its margin, where there are two
	old        // longer than grace period and margin
)

func (v version) there() bool { return v.by != nobody }

// etag returns the fields of a version that an ETag stands for.
func (v version) etag() version {
	v.since, v.age = 0, recent
	return v
}

// writeID returns the fields that all attempts of a call have in common.
func (v version) writeID() version {
	v = v.etag()
	v.retry = false
	return v
}

// store is all that is stored of a plan.
type store [blobs]version

// visible reports whether readers and listings return the plan.
func (s *store) visible() bool { return s[entry].there() && s[object].there() }

// become makes all blobs at least this old, except those that an actor wrote.
func (s *store) become(a age, but actor) {
	for b := range s {
		if v := &s[b]; v.there() && v.by != but {
			v.age = max(v.age, a)
		}
	}
}

// verb is the kind of a request.
type verb uint8

const (
	get    verb = iota // GET or HEAD; the model does not distinguish them
	list               // one answer about several blobs
	put                //
	remove             // DELETE, alone or in a batch
	clock              // no request: reads how much of the grace period has passed
	begin              // no request: reads the store, for a later check or for what the caller of a method knows
)

// condition is what a write requires of the existing blob.
type condition uint8

const (
	always condition = iota
	ifNew
	ifThere
	ifMatch
)

// limit bounds the time at which a request may be sent.
type limit uint8

const (
	noLimit      limit = iota
	withinGrace        // the grace period of the call
	withinCommit       // half the margin longer, for the request that commits a Create
)

// request is a step of an actor.
type request struct {
	step      string // its name in the vault's errors
	verb      verb
	blob      blob
	cond      condition
	match     version // with ifMatch
	value     version // what a put writes
	limit     limit
	refusable bool   // whether to explore a refusal
	listed    []blob // with list
	dates     bool   // with list: ages are compared with the time of this request
	starts    bool   // the grace period of the call begins with this request
}

// holds reports whether the condition holds for the current version.
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

// code is the outcome of a request.
type code uint8

const (
	ok       code = iota
	mismatch      // the condition does not hold
	absent        // the blob does not exist
	refused       // certainly without effect
	ended         // the context ended
)

// answer is what an actor learns from a request.
type answer struct {
	index   uint8 // the position among requests sent at once
	code    code
	unknown bool  // the write may have taken effect although it failed
	phase   phase // of clock
	deleted bool  // of begin: a Delete has returned and no Create followed
	seen    store // what was read, or what a put wrote
}

// apply executes a write and returns its answer.
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

// patience returns how old a blob must be before an actor that saw these markers may assume that its writer
// is dead: older than the actor's own grace period and those in the markers.
func patience(lacking rules, brief bool, markers *store) age {
	if brief && (lacking.has(ruleGraceCarried) || !markers[marker].long && !markers[deleteMarker].long) {
		return aged
	}
	return old
}

// phase is how much of a call's time has passed.
type phase uint8

const (
	inTime    phase = iota
	overGrace       // longer than the grace period, but not by more than half the margin
	overAll         // longer than grace period and margin
)

// passed reports whether a limit has passed.
func (l limit) passed(p phase) bool {
	return l == withinGrace && p >= overGrace || l == withinCommit && p >= overAll
}

// The rules of the vault, which are modelled here. Each says what happens without it.
const (
	ruleGrace                 rule = "Recovery does not wait for grace and margin"
	ruleGraceOfAll            rule = "Recovery checks only the age of the markers, not of entry and object"
	ruleGraceAtListing        rule = "Recovery compares the age of entry and object with the time of its look, not of its listing"
	ruleGraceCarried          rule = "Recovery judges by its own grace period, not by the markers'"
	ruleGraceKept             rule = "Create replaces a longer grace period by a shorter one"
	ruleClock                 rule = "Create reports success after its grace period"
	ruleDeadline              rule = "Create sends requests after its grace period"
	ruleMarkerFirst           rule = "Create writes the marker after the entry"
	ruleEntryBeforeParts      rule = "Create writes the sub-objects before the entry"
	ruleObjectLast            rule = "Create writes the object before the sub-objects"
	ruleNewEntry              rule = "Create overwrites an entry"
	ruleNewPart               rule = "Create overwrites sub-objects"
	ruleNewObject             rule = "Create overwrites an object"
	ruleMarkerStays           rule = "Create rewrites a marker that has an entry"
	ruleTakenMarkerShared     rule = "Create removes a shared marker when the entry exists"
	ruleTakenMarkerOwn        rule = "Create leaves a marker of its own when the entry exists"
	ruleCreateClears          rule = "Create leaves old remains to Recovery"
	ruleUndoCertain           rule = "Create undoes its writes although an outcome is unknown"
	ruleUndoBeforeObject      rule = "Create undoes its writes after it sent the object"
	ruleUndoRefused           rule = "Create leaves what it wrote when its object is refused"
	ruleUndoEntryMatch        rule = "undo removes an entry of any version"
	ruleUndoMarkerMatch       rule = "undo removes a marker of any version"
	ruleUndoMarkerOwn         rule = "undo removes a marker that it wrote over another's"
	ruleUndoPartMatch         rule = "undo removes sub-objects of any version"
	ruleUndoConfirms          rule = "undo believes a single 404"
	ruleWithdrawMatch         rule = "a late object is removed in any version"
	ruleWithdrawMarker        rule = "a late object is removed without a delete marker"
	ruleWithdrawLooks         rule = "a late Create removes a plan that somebody runs"
	ruleWithdrawConfirms      rule = "a late Create removes a plan because of a single 404 for its entry"
	ruleKeepRewrites          rule = "a late Create leaves a plan that Recovery has begun to remove"
	ruleKeepEntry             rule = "a late Restore leaves an entry that Recovery has begun to remove"
	ruleKeepMatch             rule = "a late Create overwrites sub-objects that somebody has updated"
	ruleKeepWhole             rule = "a late Create leaves a plan of which Recovery has removed sub-objects"
	ruleWriteID               rule = "a retry does not recognize the write of an earlier attempt"
	ruleOwnWriteID            rule = "a retry takes any write for its own"
	ruleUnknown               rule = "a retry that meets another write reports a certain failure"
	ruleRunningFirst          rule = "a sub-object is updated before the plan is Running"
	ruleUpdateMatch           rule = "updates overwrite any version"
	ruleEntryFirst            rule = "completion writes the object before the entry"
	ruleFinalizeMatch         rule = "completion overwrites an object of any version"
	ruleFinalizeAgain         rule = "completion fails if the object was rewritten"
	ruleFinalizeOwn           rule = "completion overwrites an object that was rewritten although another call has written the entry"
	ruleFinalizeObjectFirst   rule = "completion reads the entry before the rewritten object"
	ruleSupersededMarker      rule = "a completion removes the marker although a later completion follows"
	ruleFinalizeConfirms      rule = "completion believes a single 404"
	ruleFinalizeMarkerLast    rule = "completion removes the marker before it writes the object"
	ruleFinalizeWaits         rule = "completion returns before it removes the marker"
	ruleDeleteMarker          rule = "Delete writes no delete marker"
	ruleDeleteMarkerAgain     rule = "Delete does not write its marker again if the object was rewritten"
	ruleDeleteDeadline        rule = "Delete removes the object although its marker is old"
	ruleDeleteConfirms        rule = "Delete believes a single 404 for the object"
	ruleDeleteListsAgain      rule = "Delete removes the markers after unconfirmed 404s for sub-objects or entry"
	ruleDeleteAbsentChanged   rule = "Delete takes a blob for absent that it finds in another version"
	ruleObjectFirst           rule = "Delete removes the sub-objects before the object"
	ruleEntryAfterParts       rule = "Delete removes the entry before the sub-objects"
	ruleMarkersLast           rule = "Delete removes the markers before the entry"
	ruleResume                rule = "Delete does not resume an interrupted Delete"
	ruleResumeConfirms        rule = "Delete resumes another Delete because of a single 404"
	ruleResumeListsAgain      rule = "Delete resumes another Delete with one listing of the sub-objects"
	ruleDeleteMatch           rule = "Delete removes an object of any version"
	ruleDeletePartMatch       rule = "Delete removes sub-objects of any version"
	ruleDeleteEntryMatch      rule = "Delete removes an entry of any version"
	ruleDeleteMarkersMatch    rule = "Delete removes markers of any version"
	ruleRecoveryLooks         rule = "Recovery does not read entry and object after listing the markers"
	ruleRecoveryConfirms      rule = "Recovery believes a single 404 for entry or object"
	ruleRecoveryListsAgain    rule = "Recovery does not list the sub-objects again after removing them"
	ruleRecoveryEntryConfirms rule = "Recovery believes a single 404 for the entry that it removes"
	ruleLostEntry             rule = "Recovery removes a plan whose entry was lost"
	ruleLostObject            rule = "Recovery removes a started plan whose object was lost"
	ruleLossConfirms          rule = "Recovery reports a loss without confirming it"
	ruleRecoveryEntryMatch    rule = "Recovery removes an entry of any version"
	ruleRecoveryPartMatch     rule = "Recovery removes sub-objects of any version"
	ruleRecoveryNewParts      rule = "Recovery removes sub-objects that are newer than its listing"
	ruleRecoveryChangedParts  rule = "Recovery continues although a sub-object has changed since the listing"
	ruleRecoveryMarkerMatch   rule = "Recovery removes a marker of any version"
	ruleRecoveryMarkerLast    rule = "Recovery removes the marker before the entry"
	ruleRecoveryDeleteMarker  rule = "Recovery removes a recent delete marker"
	ruleRewrite               rule = "Recovery removes an old delete marker without rewriting the object"
	ruleRewriteMatch          rule = "Recovery rewrites an object of any version"
	ruleRewriteFirst          rule = "Recovery removes the delete marker before rewriting the object"
	ruleCompleteMatch         rule = "Recovery writes a final object without condition"
	ruleCompleteReads         rule = "Recovery completes the object without reading the sub-objects"
	ruleCompleteContent       rule = "Recovery completes a plan because of its entry's metadata"
	ruleRecoveryLooksAgain    rule = "Recovery does not read an open entry again if the object is final"
	ruleVerifySameObject      rule = "Recovery reports a missing sub-object although the object has changed"
	ruleRestoreMarker         rule = "a thorough Repair leaves an open plan without a marker"
	ruleRestoreNew            rule = "a thorough Repair overwrites existing blobs"
	ruleRestoreRunning        rule = "a thorough Repair restores an entry as NotStarted"
	ruleRestoreRewrites       rule = "a thorough Repair restores an entry without rewriting the object first"
	ruleRestoreLooks          rule = "a thorough Repair does not check that the object is the same after restoring the entry"
	ruleRestored              rule = "a Restore writes an entry like any other"
	ruleRestoredMarked        rule = "Recovery removes a restored plan that has no marker"
	ruleRestoredMarkerMatch   rule = "a Restore of a final plan removes a marker of any version"
	ruleReadStale             rule = "Read returns the object of a final entry as it is"
	ruleReadAgain             rule = "Read does not read an open entry again if the object is final"
	ruleReadParts             rule = "Read returns a running plan's sub-objects from the object"
	ruleReadMissing           rule = "Read reports a missing sub-object as damage without reading the object again"
	ruleShownWhole            rule = "an entry without object is returned"
)
