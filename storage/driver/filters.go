package driver

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// CheckFilters returns [storage.ErrInvalid] for filters that select nothing in particular or contradict each
// other.
func CheckFilters(f storage.Filters) error {
	if len(f.ByIDs)+len(f.ByGroupIDs)+len(f.ByStatus) == 0 && f.Limit == 0 && f.After.IsZero() && f.Before.IsZero() && f.BeforeID == uuid.Nil {
		return Invalid("Filters", "are empty: use List for all plans")
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

// ChooseID reports whether the filters may select a plan with this ID, as far as the ID tells. An ID that is
// not a UUIDv7 belongs to no plan.
func ChooseID(f storage.Filters, id uuid.UUID) bool {
	created := workflow.Time(id)
	return workflow.IsV7(id) && (f.After.IsZero() || created.After(f.After)) &&
		(f.Before.IsZero() || created.Before(f.Before)) &&
		(f.BeforeID == uuid.Nil || NewestFirst(f.BeforeID, id) < 0) &&
		(len(f.ByIDs) == 0 || slices.Contains(f.ByIDs, id))
}

// Choose reports whether the filters select a plan with this ID, group and status.
func Choose(f storage.Filters, r storage.ListResult) bool {
	return ChooseID(f, r.ID) &&
		(len(f.ByGroupIDs) == 0 || slices.Contains(f.ByGroupIDs, r.GroupID)) &&
		(len(f.ByStatus) == 0 || slices.Contains(f.ByStatus, r.State.Status))
}

// NewestFirst compares IDs in the order of listings: UUIDv7s sort by time. A [storage.Roster] has the reverse order.
func NewestFirst(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) }
