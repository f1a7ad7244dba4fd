// Package workflow is the model of a plan: a Plan has Blocks, a Block has Sequences, and a Sequence has
// Actions. Plans and blocks may have Checks, and a plan may have DeferredActions, which run at its end.
//
// An author builds a plan with names and work in it, and nothing else. When the plan is created, the vault
// fills in IDs, PlanIDs, SubmitTime and versions. [Walk] visits every object with its parent, [Validate]
// reports everything that is wrong with a plan, and every type marshals to readable JSON: statuses by name,
// durations as "1m30s", times as RFC 3339 in UTC.
//
// Members of the JSON that a type does not know come from newer code. Objects, states and attempts keep them in
// an unexported field, and write them again. A copy of a struct has them. A new struct does not have them, nor
// does a state after Reset. [ParsePlan] refuses them in the text of a new plan.
//
// The types have no locks: a plan must not be changed while another goroutine reads or stores it.
package workflow

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// Plan is a unit of work that is created, read and deleted as a whole.
type Plan struct {
	// ID is a UUIDv7. Its time is the plan's creation time. Create fills it in.
	ID uuid.UUID `json:"id,omitzero"`
	// GroupID is the same for plans that belong together: any UUID, or uuid.Nil for none.
	GroupID uuid.UUID `json:"groupID,omitzero"`
	// Name and Descr are for people. They may be any valid UTF-8.
	Name  string `json:"name,omitempty"`
	Descr string `json:"descr,omitempty"`
	// Labels are for searches: at most 16. A key has 1 to 63 visible ASCII characters without = and comma. A value
	// has up to 128 bytes of UTF-8, without commas, control characters and blanks at its ends.
	Labels map[string]string `json:"labels,omitempty"`
	// BypassChecks complete the plan at once if they succeed. Like the other checks, they may be nil.
	BypassChecks *Checks `json:"bypassChecks,omitzero"`
	// PreChecks must succeed before the blocks start.
	PreChecks *Checks `json:"preChecks,omitzero"`
	// ContChecks run again and again while the blocks run.
	ContChecks *Checks `json:"contChecks,omitzero"`
	// PostChecks must succeed after the blocks.
	PostChecks *Checks `json:"postChecks,omitzero"`
	// DeferredChecks run at the end, whatever happened.
	DeferredChecks *Checks `json:"deferredChecks,omitzero"`
	// Blocks run one after the other.
	Blocks []*Block `json:"blocks,omitempty"`
	// DeferredActions run at the end, as the When of each batch says. They may be nil.
	DeferredActions *DeferredActions `json:"deferredActions,omitzero"`
	// NotBefore is when the plan may begin at the earliest, and Deadline when it must have ended, both by the store's clock. Zero
	// means none. Past its Deadline, a plan stops as if somebody had asked for it, with the reason DeadlineExceeded; what is
	// deferred still runs.
	NotBefore time.Time `json:"notBefore,omitzero"`
	Deadline  time.Time `json:"deadline,omitzero"`
	// Keys are what the plan takes turns for: it works only while it has a turn for each of them. It has at most [MaxKeys], with
	// different names.
	Keys []Key `json:"keys,omitempty"`
	// KeepTurn says whether the plan keeps its turns while it sleeps.
	KeepTurn KeepTurn `json:"keepTurn,omitzero"`
	// Unique is a text that only one open plan may have at a time. Empty is none. It has the same rule as the name of a [Key].
	// The vault alone doesn't compare it: whoever submits plans, and the engine, do.
	Unique string `json:"unique,omitempty"`
	// State is the plan's status, times and version.
	State State `json:"state,omitzero"`
	// SubmitTime is when the plan was given to Create, which fills it in.
	SubmitTime time.Time `json:"submitTime,omitzero"`
	// Submitted says who submitted the plan, and from where; SubmitTime says when. Whoever calls Create may set it. Create
	// fills it in from its context: see storage.WithActor. A fork has the one who submitted the fork, and ForkedFrom leads to
	// the plan before it.
	Submitted Actor `json:"submitted,omitzero"`
	// Reason is what made the plan fail.
	Reason FailureReason `json:"reason,omitzero"`
	// RuntimeUpdate is when the engine last worked on the plan. Only the engine uses it; the vault stores it
	// unchanged.
	RuntimeUpdate time.Time `json:"runtimeUpdate,omitzero"`
	// Owner is the ID of the node that runs the plan, a UUIDv7, or uuid.Nil for none. Epoch counts the claims
	// and takeovers of the plan, and is 0 until the first. Package fleet sets both.
	Owner uuid.UUID `json:"owner,omitzero"`
	Epoch int64     `json:"epoch,omitzero"`
	// WakeAt is set while the plan sleeps: it waits until this time of the store's clock. It is Running, has no Owner, and
	// keeps its Epoch. Nothing of it runs. The engine sets it.
	WakeAt time.Time `json:"wakeAt,omitzero"`
	// Paused says who paused the plan, when and why, while it sleeps for that reason: it then waits to be resumed, and not
	// for WakeAt. The engine sets it.
	Paused Attribution `json:"paused,omitzero"`
	// External says which engine of another kind places the plan. Engines of this module leave such a plan alone, but for
	// engine.RunPlan. An author may set it. A claim from outside sets it, too, and fleet.HandOver clears it.
	External External `json:"external,omitzero"`
	// Alone says that an engine without a fleet has begun the plan. Such an engine goes on with it after a restart, and
	// leaves other Running plans alone. The engine sets it.
	Alone bool `json:"alone,omitzero"`
	// LastSignal is the number of the last signal that the plan need not be woken for while it sleeps. One with a larger number
	// wakes it before WakeAt. The engine sets it.
	LastSignal int `json:"lastSignal,omitzero"`
	// WaitsFor is set while the plan sleeps without its turns: to the name of the key, or the Unique, for which it waits, or will
	// when its other wait is over, see KeepWhileAwake. The engine sets it.
	WaitsFor string `json:"waitsFor,omitempty"`
	// ForkedFrom is the ID of the plan that this one was forked from, or uuid.Nil. [Fork] sets it. Create accepts
	// Completed sub-objects only in a fork.
	ForkedFrom uuid.UUID `json:"forkedFrom,omitzero"`
	// Forked says who forked the plan, and why. Whoever calls [Fork] may set it, before Create.
	Forked Attribution `json:"forked,omitzero"`
	// Stopped says who asked the plan to stop, when and why, also if the plan then failed. The engine sets it.
	Stopped Attribution `json:"stopped,omitzero"`
	// Ending is the outcome of a plan that an engine is about to end. The engine sets it.
	Ending Ending `json:"ending,omitzero"`
	// Meta is the author's own data. The vault stores it unchanged.
	Meta []byte `json:"meta,omitempty"`

	unknown unknown
}

// Asleep reports whether the plan sleeps.
func (p *Plan) Asleep() bool {
	return !p.WakeAt.IsZero() && p.Owner == uuid.Nil && p.State.Status == Running
}

// External is an engine of another kind that places plans, such as a Temporal workflow or a queue. The zero value is none.
type External struct {
	// Name is the same for all that may go on with each other's plans, such as "temporal". It has at most [MaxBy] bytes.
	Name string `json:"name,omitempty"`
	// Ask tells people in a line of at most [MaxWhy] bytes how to ask what becomes of the plan, such as a command.
	Ask string `json:"ask,omitempty"`

	unknown unknown
}

// Ending is the outcome of a plan whose engine has a hook for ended plans. It is stored before the hook is called, and no
// longer changes: it becomes the plan's Reason and end. A plan without it has had no hook.
type Ending struct {
	Reason FailureReason `json:"reason,omitzero"`
	// At is when the outcome was fixed.
	At time.Time `json:"at,omitzero"`
	// Trouble says why the hook was given up. It is empty if the hook has returned nil, and has at most [MaxWhy] bytes.
	Trouble string `json:"trouble,omitempty"`

	unknown unknown
}

// Checks are actions that run in parallel and decide whether a plan or a block may go on.
type Checks struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier. It may be uuid.Nil.
	Key     uuid.UUID `json:"key,omitzero"`
	Actions []*Action `json:"actions,omitempty"`
	State   State     `json:"state,omitzero"`
	// Delay is the wait before the checks. Continuous checks also wait between two runs.
	Delay time.Duration `json:"delay,omitzero"`

	unknown unknown
}

// Block is a list of sequences that run in parallel, up to Concurrency at a time.
type Block struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier. It may be uuid.Nil.
	Key            uuid.UUID   `json:"key,omitzero"`
	Name           string      `json:"name,omitempty"`
	Descr          string      `json:"descr,omitempty"`
	BypassChecks   *Checks     `json:"bypassChecks,omitzero"`
	PreChecks      *Checks     `json:"preChecks,omitzero"`
	ContChecks     *Checks     `json:"contChecks,omitzero"`
	PostChecks     *Checks     `json:"postChecks,omitzero"`
	DeferredChecks *Checks     `json:"deferredChecks,omitzero"`
	Sequences      []*Sequence `json:"sequences,omitempty"`
	// Concurrency is how many sequences may run at once; 0 means 1.
	Concurrency int `json:"concurrency,omitzero"`
	// ToleratedFailures is how many sequences may fail before the block fails; -1 means any number.
	ToleratedFailures int   `json:"toleratedFailures,omitzero"`
	State             State `json:"state,omitzero"`
	// EntranceDelay and ExitDelay are the waits before and after the block.
	EntranceDelay time.Duration `json:"entranceDelay,omitzero"`
	ExitDelay     time.Duration `json:"exitDelay,omitzero"`

	unknown unknown
}

// Sequence is a list of actions that run one after the other.
type Sequence struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier. It may be uuid.Nil.
	Key     uuid.UUID `json:"key,omitzero"`
	Name    string    `json:"name,omitempty"`
	Descr   string    `json:"descr,omitempty"`
	Actions []*Action `json:"actions,omitempty"`
	State   State     `json:"state,omitzero"`

	unknown unknown
}

// Action is one call of a plugin.
type Action struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier. It may be uuid.Nil.
	Key   uuid.UUID `json:"key,omitzero"`
	Name  string    `json:"name,omitempty"`
	Descr string    `json:"descr,omitempty"`
	// Plugin is the name of the plugin that the action runs.
	Plugin string `json:"plugin,omitempty"`
	// Retries is how many more attempts may follow after the first one failed. 0 means as many as the plugin says, which is
	// none unless it is a [plugins.Retrier].
	Retries int `json:"retries,omitzero"`
	// NoRetries means that no attempt follows after the first one failed, although the plugin has retries. It can't be
	// combined with Retries.
	NoRetries bool `json:"noRetries,omitzero"`
	// Backoff is the wait between attempts. If any field is set, it replaces that of the plugin as a whole.
	Backoff plugins.Backoff `json:"backoff,omitzero"`
	// AtMost is how often the action may run at all; 0 means that there is no such bound. 1 is at most once. All attempts
	// count: those that failed, were interrupted, or never ended because their process died. When none is left, the action
	// fails, although nobody knows whether the last one had its effect. A fork counts anew. It can't be combined with
	// Idempotent, and actions of continuous checks can't have it.
	AtMost int `json:"atMost,omitzero"`
	// Idempotent is the author's promise that to run the action again has the same effect as to run it once, also while
	// a run goes on that another engine has given up. Package engine then stores an attempt when it has ended, and not
	// also before it begins: one write for each attempt, not two.
	//
	// While the action runs, readers see it as it was before, such as NotStarted. An attempt that a death cuts off may
	// leave no trace: a plan that was asked to stop, or fails, then leaves the action as it was, though it may have run.
	// It is for short actions: what hangs is hard to see. It can't be combined with AtMost.
	Idempotent bool `json:"idempotent,omitzero"`
	// Attempts are the attempts so far, oldest first.
	Attempts []Attempt `json:"attempts,omitempty"`
	State    State     `json:"state,omitzero"`
	// Timeout limits one attempt; 0 means the engine's default.
	Timeout time.Duration `json:"timeout,omitzero"`
	// Secrets are the paths of the secrets in Req and in the Resp of every attempt. [Action.Redacted] hides what is there. A
	// path is a JSON Pointer that begins with /req or /resp. In it, * stands for any member or element, ** for any number of
	// levels, and ~2 for a * in a name. The vault adds the fields that are tagged vault:"secret" at each write of the action,
	// and an author may add others.
	Secrets []string `json:"secrets,omitempty"`
	// Req is the plugin's request. It has the type that the plugin names, or is a json.RawMessage if the
	// plugin is not known.
	Req any `json:"req,omitzero"`

	unknown unknown
}

// Attempt is one run of an action.
type Attempt struct {
	// Err is the plugin's error, nil if the attempt succeeded.
	Err   *plugins.Error `json:"err,omitzero"`
	Start time.Time      `json:"start,omitzero"`
	// End is zero while the attempt runs, and for ever if its process ended first.
	End time.Time `json:"end,omitzero"`
	// Interrupted means that the engine ended the attempt because it shut down, or because the plan was stopped or failed while
	// the attempt waited; or, without an End, that the engine shuts down, or died while it did or was evicted. It counts as no
	// failure.
	Interrupted bool `json:"interrupted,omitzero"`
	// Paused means that the plan paused after this attempt in place of failing. When it was resumed, the action began to count
	// its failures anew. The engine sets it.
	Paused bool `json:"paused,omitzero"`
	// Owner is the plan's owner that made the attempt, if it had one.
	Owner uuid.UUID `json:"owner,omitzero"`
	// Skipped says who declared the action done instead of letting it run, when and why; nil if it ran. [Fork] sets it: Resp is
	// then what that person stated.
	Skipped *Attribution `json:"skipped,omitzero"`
	// Later is set while the attempt is not over and nothing of it runs: its plugin is called again. The engine sets it.
	Later *Later `json:"later,omitzero"`
	// Resp is the plugin's response. It has the type that the plugin names, or is a json.RawMessage if the
	// plugin is not known.
	Resp any `json:"resp,omitzero"`

	unknown unknown
}

// Later says when the plugin of an attempt is called again, and with what.
type Later struct {
	// At is the time by the store's clock.
	At time.Time `json:"at,omitzero"`
	// Called means that the plugin is being called, as far as this must be known: if the process dies, the attempt never
	// ends. A node that takes the plan from another sets it, and any engine for an action with AtMost.
	Called bool `json:"called,omitzero"`
	// LastSignal is the number of the last signal that the call could see. After a larger one the plugin is called again at
	// once.
	LastSignal int `json:"lastSignal,omitzero"`
	// For says for people what the plugin waits for, in at most [MaxWhy] bytes. It may be empty.
	For string `json:"for,omitempty"`
	// State is the plugin's own data, as JSON.
	State json.RawMessage `json:"state,omitempty"`

	unknown unknown
}

// Later returns the Later of the action's last attempt, or nil if that has ended or never waited.
func (a *Action) Later() *Later {
	if n := len(a.Attempts); n > 0 && a.Attempts[n-1].End.IsZero() {
		return a.Attempts[n-1].Later
	}
	return nil
}

// DeferredActions are batches of actions that run at the end of a plan.
type DeferredActions struct {
	ID      uuid.UUID     `json:"id,omitzero"`
	PlanID  uuid.UUID     `json:"planID,omitzero"`
	Batches []*DeferBatch `json:"batches,omitempty"`
	State   State         `json:"state,omitzero"`

	unknown unknown
}

// DeferBatch is a list of actions that run at the end of a plan if the plan had the outcome that When says.
type DeferBatch struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier. It may be uuid.Nil.
	Key   uuid.UUID `json:"key,omitzero"`
	Name  string    `json:"name,omitempty"`
	Descr string    `json:"descr,omitempty"`
	When  When      `json:"when,omitzero"`
	// FailElement says that a failure of the batch fails the plan.
	FailElement bool      `json:"failElement,omitzero"`
	Actions     []*Action `json:"actions,omitempty"`
	State       State     `json:"state,omitzero"`

	unknown unknown
}

// State is the status, the times and the version of an object.
type State struct {
	Status Status `json:"status"`
	// Start and End are when the object started and ended. They are zero before that.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// ETag is the version of the stored object that was last read or written. The vault sets it. An update
	// sends it back, so that the vault can refuse to overwrite a version that the caller does not know. It is
	// opaque. An update without it is refused: use Reset to start an object again.
	ETag string `json:"etag,omitempty"`

	unknown unknown
}

// Reset sets the state to NotStarted without times, for an object that is to run again. It keeps the version,
// which a new State would lose.
func (s *State) Reset() { *s = State{ETag: s.ETag} }
