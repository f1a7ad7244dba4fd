package storage

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// AuditLog keeps who changed a store, when and why. It is for people: nothing in a store depends on it, and everybody who
// may write to the store can also write entries that are not true.
//
// Record a change before it begins, without a Result, and again with its Result. An entry without a Result says that the
// change began, and not whether it took effect. Recording must neither delay a change for long nor make it fail.
type AuditLog interface {
	// Record stores an entry, and replaces one with the same ID. The entry's Stored and At are ignored. [ErrInvalid] means that the ID is not a UUIDv7, or that a field is longer than [AuditEntry] allows.
	Record(ctx context.Context, d AuditEntry) error
	// AuditEntries returns the entries that the filters select, newest first. The error joins those that can't be read; the
	// others are returned all the same.
	AuditEntries(ctx context.Context, f AuditFilters) ([]AuditEntry, error)
}

// AuditEntry is a change of a store.
type AuditEntry struct {
	// ID is a UUIDv7. Its time says when the change began, by the clock of the process that made it.
	ID uuid.UUID
	// What is the change: a word of at most 30 lower-case letters and hyphens, such as purge.
	What string
	// Attribution says who and why. Its At is the time of the ID.
	workflow.Attribution
	// Plans are those that the change names, at most [MaxAuditPlans]. A change of more names none.
	Plans []uuid.UUID
	// From and To are the first and the last of the days that the change is limited to. Both are zero if it is not.
	From, To time.Time
	// Detail has the other arguments of the change, for people, in at most [MaxDetail] bytes.
	Detail string
	// Result is empty until the change has ended. Then it says how, in at most [MaxDetail] bytes.
	Result string
	// Stored is when the entry was last recorded, by the store's clock.
	Stored time.Time
}

// MaxDetail and MaxAuditPlans bound the fields of an audit entry, so that it fits into the metadata of a blob.
const (
	MaxDetail     = workflow.MaxWhy / 2
	MaxAuditPlans = 20
)

// AuditFilters selects audit entries. Zero fields select all.
type AuditFilters struct {
	// Plan selects the entries that name the plan, and those that name none and may have changed it.
	Plan uuid.UUID
	// Day selects the entries of changes that may be about plans of this day.
	Day time.Time
	// After and Before select by the time of the ID.
	After, Before time.Time
	// Limit is the most that are returned; 0 means all.
	Limit int
}

// Match reports whether the filters select an audit entry, whatever the limit.
func (f AuditFilters) Match(d AuditEntry) bool {
	at := workflow.Time(d.ID)
	switch {
	case !f.After.IsZero() && !at.After(f.After), !f.Before.IsZero() && !at.Before(f.Before):
		return false
	case f.Plan != uuid.Nil && len(d.Plans) > 0:
		return slices.Contains(d.Plans, f.Plan) && (f.Day.IsZero() || d.mayTouch(f.Day))
	case f.Plan != uuid.Nil && !d.mayTouch(workflow.Time(f.Plan)):
		return false
	}
	return f.Day.IsZero() || d.mayTouch(f.Day)
}

// mayTouch reports whether the change may be about plans of the day of a time.
func (d AuditEntry) mayTouch(at time.Time) bool {
	day := at.UTC().Truncate(24 * time.Hour)
	if len(d.Plans) > 0 {
		return slices.ContainsFunc(d.Plans, func(id uuid.UUID) bool { return workflow.Time(id).UTC().Truncate(24 * time.Hour).Equal(day) })
	}
	return d.From.IsZero() || !day.Before(d.From) && !day.After(d.To)
}
