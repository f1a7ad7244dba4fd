package storage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Filters choose plans. Values within a field are alternatives; fields that are set must all match. The zero value, which
// would choose everything, is ErrInvalid: that is what List is for.
type Filters struct {
	// ByIDs chooses plans by their IDs. IDs of no plan are passed over, and so are those that are not UUIDv7s.
	ByIDs []uuid.UUID
	// ByGroupIDs chooses plans by GroupID.
	ByGroupIDs []uuid.UUID
	// ByStatus chooses plans by their own status.
	ByStatus []workflow.Status
	// After and Before choose plans created after and before a time (the time inside the plan's ID, in whole milliseconds;
	// the times themselves are left out). Zero for no bound.
	After, Before time.Time
	// BeforeID chooses plans older than this one, which need not exist: with Limit it gives the next page after a page that
	// ended with this plan. uuid.Nil for no bound.
	BeforeID uuid.UUID
	// Limit is the largest number of plans to yield; 0 is all.
	Limit int
}

// Check refuses filters that choose nothing in particular, or can't be meant, naming the field.
func (f Filters) Check() error {
	if len(f.ByIDs)+len(f.ByGroupIDs)+len(f.ByStatus) == 0 && f.Limit == 0 && f.After.IsZero() && f.Before.IsZero() && f.BeforeID == uuid.Nil {
		return Invalid("Filters", "choose nothing: List yields all plans")
	}
	for i, id := range f.ByGroupIDs {
		if id == uuid.Nil {
			return Invalid(fmt.Sprintf("Filters.ByGroupIDs[%d]", i), "is nil")
		}
	}
	for i, s := range f.ByStatus {
		if !s.Valid() {
			return Invalid(fmt.Sprintf("Filters.ByStatus[%d]", i), "there is no status %d", int(s))
		}
	}
	switch {
	case f.BeforeID != uuid.Nil && !workflow.IsV7(f.BeforeID):
		return Invalid("Filters.BeforeID", "%s is not a UUIDv7", f.BeforeID)
	case !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before):
		return Invalid("Filters.After", "%v is not before Before, %v", f.After.Format(time.RFC3339Nano), f.Before.Format(time.RFC3339Nano))
	case f.Limit < 0:
		return Invalid("Filters.Limit", "%d is negative", f.Limit)
	}
	return nil
}

// ChooseID says whether the filters leave a plan of this ID, as far as that can tell. An ID that is not a UUIDv7 is no plan's.
func (f Filters) ChooseID(id uuid.UUID) bool {
	created := workflow.Time(id)
	return workflow.IsV7(id) && (f.After.IsZero() || created.After(f.After)) &&
		(f.Before.IsZero() || created.Before(f.Before)) &&
		(f.BeforeID == uuid.Nil || NewestFirst(f.BeforeID, id) < 0) &&
		(len(f.ByIDs) == 0 || slices.Contains(f.ByIDs, id))
}

// Choose says whether the filters leave a plan of this ID, group and status.
func (f Filters) Choose(r ListResult) bool {
	return f.ChooseID(r.ID) &&
		(len(f.ByGroupIDs) == 0 || slices.Contains(f.ByGroupIDs, r.GroupID)) &&
		(len(f.ByStatus) == 0 || slices.Contains(f.ByStatus, r.State.Status))
}

// NewestFirst orders IDs as listings do: UUIDv7s sort by time.
func NewestFirst(a, b uuid.UUID) int { return strings.Compare(b.String(), a.String()) }
