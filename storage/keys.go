package storage

import (
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// KeyRecord says which plans have turns for a key, and what an operator has said of it. A store keeps it as it is; package
// fleet decides who gets a turn.
type KeyRecord struct {
	// Name is opaque to a store: 1 to [MaxKeyRecordName] bytes of UTF-8 without control characters.
	Name string
	// Limit is what an operator has set, at most [workflow.MaxKeyLimit]; 0 is none.
	Limit int
	// PausedUntil is the time of the store's clock before which nobody gets a turn. The zero time is no pause.
	PausedUntil time.Time
	// By says who has changed Limit or PausedUntil last, when and why.
	By workflow.Attribution
	// Searched says that all open plans were searched for holders after the record was created.
	Searched bool
	// Holders are at most [MaxHolders], one for each plan. They keep their order.
	Holders []Holder
	// Waiting are at most [MaxWaiting], one for each plan. They keep their order.
	Waiting []Waiter

	Version Version
	// Stored is when this version was stored, and Now when it was read, both by the store's clock. A store may have whole
	// seconds only. PutKey ignores both.
	Stored, Now time.Time
}

// Holder is a plan that takes room in a [KeyRecord].
type Holder struct {
	Plan uuid.UUID
	// Limit is what the plan names, at most [workflow.MaxKeyLimit]; 0 means 1.
	Limit int
	// Taken says that the plan's owner has written this: the plan has a turn. If others have, it takes room only.
	Taken bool
}

// Waiter is a plan that is to have a turn for a key before younger plans.
type Waiter struct {
	Plan uuid.UUID
	// Limit is what the plan names, at most [workflow.MaxKeyLimit]; 0 means 1.
	Limit int
	// Until is the time of the store's clock at which this is over.
	Until time.Time
}

// ListedKey is what a listing shows of a [KeyRecord].
type ListedKey struct {
	Name        string
	Limit       int
	PausedUntil time.Time
	By          workflow.Attribution
	Searched    bool
	Holders     int // their number
	Version     Version
	Stored      time.Time
}

// The limits of a key's record: the bytes of its name, and the numbers of its holders and of plans that are noted as waiting.
const (
	MaxKeyRecordName = 140
	MaxHolders       = 10_000
	MaxWaiting       = 16
)
