// Package workflow is the model of what a vault keeps: a Plan has Blocks, a Block has Sequences, a Sequence has
// Actions, with Checks around plan and blocks and DeferredActions at the plan's end.
//
// An author builds a plan with names and work in it and nothing else; storage fills in IDs, PlanIDs, SubmitTime
// and the first state when the plan is created. Walk visits every object with its parent, Validate says what is
// wrong with a plan, and every type marshals to JSON that a person can read: statuses by name, durations as "1m30s",
// times as RFC 3339 in UTC.
//
// The types hold no locks: a plan must not be changed while another goroutine reads or stores it.
package workflow

import (
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// Plan is a whole piece of work, and the unit that is created, read and deleted.
type Plan struct {
	// ID is a UUIDv7, whose time is the plan's creation time. Create fills it in.
	ID uuid.UUID `json:"id,omitzero"`
	// GroupID ties plans together; any UUID, or uuid.Nil for none.
	GroupID uuid.UUID `json:"groupID,omitzero"`
	// Name and Descr are for people: any valid UTF-8.
	Name  string `json:"name,omitempty"`
	Descr string `json:"descr,omitempty"`
	// Meta is the author's own data; storage keeps it as it is.
	Meta []byte `json:"-"`
	// BypassChecks end the plan as done when they succeed; nil for none, as the other checks.
	BypassChecks *Checks `json:"bypassChecks,omitempty"`
	// PreChecks must succeed before the blocks start.
	PreChecks *Checks `json:"preChecks,omitempty"`
	// ContChecks run again and again while the blocks run.
	ContChecks *Checks `json:"contChecks,omitempty"`
	// PostChecks must succeed after the blocks.
	PostChecks *Checks `json:"postChecks,omitempty"`
	// DeferredChecks run at the end, whatever happened.
	DeferredChecks *Checks `json:"deferredChecks,omitempty"`
	// Blocks run one after the other.
	Blocks []*Block `json:"blocks,omitempty"`
	// DeferredActions run at the end, as each batch's When says; nil for none.
	DeferredActions *DeferredActions `json:"deferredActions,omitempty"`
	// State is where the plan stands.
	State State `json:"state,omitzero"`
	// SubmitTime is when the plan was given to Create, which fills it in.
	SubmitTime time.Time `json:"submitTime,omitzero"`
	// Reason says what made the plan fail.
	Reason FailureReason `json:"reason,omitzero"`
	// RuntimeUpdate is the engine's own note of when it last worked on the plan; storage keeps it as it is.
	RuntimeUpdate time.Time `json:"runtimeUpdate,omitzero"`
}

// Checks are actions that run in parallel and judge a plan or a block.
type Checks struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier, or uuid.Nil.
	Key uuid.UUID `json:"key,omitzero"`
	// Delay is the wait before the checks, or between two runs of continuous ones.
	Delay   time.Duration `json:"-"`
	Actions []*Action     `json:"actions,omitempty"`
	State   State         `json:"state,omitzero"`
}

// Block is a set of sequences that run in parallel, up to Concurrency at a time.
type Block struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier, or uuid.Nil.
	Key   uuid.UUID `json:"key,omitzero"`
	Name  string    `json:"name,omitempty"`
	Descr string    `json:"descr,omitempty"`
	// EntranceDelay and ExitDelay are waits before and after the block.
	EntranceDelay  time.Duration `json:"-"`
	ExitDelay      time.Duration `json:"-"`
	BypassChecks   *Checks       `json:"bypassChecks,omitempty"`
	PreChecks      *Checks       `json:"preChecks,omitempty"`
	ContChecks     *Checks       `json:"contChecks,omitempty"`
	PostChecks     *Checks       `json:"postChecks,omitempty"`
	DeferredChecks *Checks       `json:"deferredChecks,omitempty"`
	Sequences      []*Sequence   `json:"sequences,omitempty"`
	// Concurrency is how many sequences may run at once; 0 is 1.
	Concurrency int `json:"concurrency,omitzero"`
	// ToleratedFailures is how many sequences may fail before the block does; -1 is any number.
	ToleratedFailures int   `json:"toleratedFailures,omitzero"`
	State             State `json:"state,omitzero"`
}

// Sequence is a list of actions that run one after the other.
type Sequence struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier, or uuid.Nil.
	Key     uuid.UUID `json:"key,omitzero"`
	Name    string    `json:"name,omitempty"`
	Descr   string    `json:"descr,omitempty"`
	Actions []*Action `json:"actions,omitempty"`
	State   State     `json:"state,omitzero"`
}

// Action is one call of a plugin.
type Action struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier, or uuid.Nil.
	Key   uuid.UUID `json:"key,omitzero"`
	Name  string    `json:"name,omitempty"`
	Descr string    `json:"descr,omitempty"`
	// Plugin is the name of the plugin that the action runs.
	Plugin string `json:"plugin,omitempty"`
	// Timeout bounds one attempt; 0 is the engine's default.
	Timeout time.Duration `json:"-"`
	// Retries is how many attempts may follow a first one that failed.
	Retries int `json:"retries,omitzero"`
	// Req is the plugin's request, of the type that the plugin names. Where no plugin is known it is a json.RawMessage.
	Req any `json:"-"`
	// Attempts are the runs so far, oldest first.
	Attempts []Attempt `json:"attempts,omitempty"`
	State    State     `json:"state,omitzero"`
}

// Attempt is one run of an action.
type Attempt struct {
	// Resp is the plugin's response, of the type that the plugin names. Where no plugin is known it is a json.RawMessage.
	Resp any `json:"-"`
	// Err is the plugin's failure, nil for a success.
	Err   *plugins.Error `json:"err,omitempty"`
	Start time.Time      `json:"start,omitzero"`
	End   time.Time      `json:"end,omitzero"`
}

// DeferredActions are batches of actions for the plan's end.
type DeferredActions struct {
	ID      uuid.UUID     `json:"id,omitzero"`
	PlanID  uuid.UUID     `json:"planID,omitzero"`
	Batches []*DeferBatch `json:"batches,omitempty"`
	State   State         `json:"state,omitzero"`
}

// DeferBatch is a list of actions that run at the plan's end, when the plan went as When says.
type DeferBatch struct {
	ID     uuid.UUID `json:"id,omitzero"`
	PlanID uuid.UUID `json:"planID,omitzero"`
	// Key is the author's own identifier, or uuid.Nil.
	Key   uuid.UUID `json:"key,omitzero"`
	Name  string    `json:"name,omitempty"`
	Descr string    `json:"descr,omitempty"`
	When  When      `json:"when,omitzero"`
	// FailElement says that a failure of the batch fails the plan.
	FailElement bool      `json:"failElement,omitzero"`
	Actions     []*Action `json:"actions,omitempty"`
	State       State     `json:"state,omitzero"`
}

// State is where an object stands.
type State struct {
	Status Status `json:"status"`
	// Start and End are when the object began and ended; zero while it has not.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// ETag names the stored version that the object was read at or last written as. The vault sets it, and an update gives it
	// back, so that the vault can refuse to overwrite a version that the caller does not know. It is opaque, and an update
	// without it is refused. Keep it with the object: use Reset to start an object again.
	ETag string `json:"etag,omitempty"`
}

// Reset sets the state back to NotStarted without times, as an engine does with an object that is to run again. It keeps the
// version, which a new State would lose.
func (s *State) Reset() { *s = State{ETag: s.ETag} }
