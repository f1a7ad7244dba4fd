package driver

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// CheckFilters returns [storage.ErrInvalid] for filters of a Search that select nothing in particular or
// contradict each other.
func CheckFilters(f storage.Filters) error {
	if len(f.ByIDs)+len(f.ByGroupIDs)+len(f.ByStatus)+len(f.NamePrefix)+len(f.NameContains) == 0 && f.Limit == 0 && f.BeforeID == uuid.Nil &&
		f.After.IsZero() && f.Before.IsZero() && f.EndedAfter.IsZero() && f.EndedBefore.IsZero() {
		return Invalid("Filters", "are empty: use List for all plans")
	}
	return checkFilters(f)
}

// CheckCount returns [storage.ErrInvalid] for filters that a Count can't have, or that contradict each other.
func CheckCount(f storage.Filters) error {
	switch {
	case f.Limit != 0:
		return Invalid("Filters.Limit", "is %d: Count has no limit", f.Limit)
	case f.BeforeID != uuid.Nil:
		return Invalid("Filters.BeforeID", "is set: Count has no pages")
	}
	return checkFilters(f)
}

func checkFilters(f storage.Filters) error {
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
	for _, text := range []struct{ field, value string }{{"NamePrefix", f.NamePrefix}, {"NameContains", f.NameContains}} {
		if !utf8.ValidString(text.value) {
			return Invalid("Filters."+text.field, "is not valid UTF-8, so no name has it")
		}
	}
	if err := checkRange("After", f.After, "Before", f.Before); err != nil {
		return err
	}
	if err := checkRange("EndedAfter", f.EndedAfter, "EndedBefore", f.EndedBefore); err != nil {
		return err
	}
	switch {
	case f.BeforeID != uuid.Nil && !workflow.IsV7(f.BeforeID):
		return Invalid("Filters.BeforeID", "%s is not a UUIDv7", f.BeforeID)
	case !(f.EndedAfter.IsZero() && f.EndedBefore.IsZero()) && len(f.ByStatus) > 0 && !slices.ContainsFunc(f.ByStatus, workflow.Status.Final):
		return Invalid("Filters.ByStatus", "has no final status, but only final plans have ended")
	case f.Limit < 0:
		return Invalid("Filters.Limit", "%d is negative", f.Limit)
	}
	return nil
}

// checkRange checks two times of the filters, both of which may be zero.
func checkRange(afterField string, after time.Time, beforeField string, before time.Time) error {
	if after.IsZero() || before.IsZero() || after.Before(before) {
		return nil
	}
	return Invalid("Filters."+afterField, "%v is not before %s, %v", after.Format(time.RFC3339Nano), beforeField, before.Format(time.RFC3339Nano))
}

// CreatedBefore returns the time before which all plans that the filters select were created, or the zero time:
// Before, or [storage.MaxAhead] after EndedBefore if that is earlier.
func CreatedBefore(f storage.Filters) time.Time {
	bound := f.EndedBefore.Add(storage.MaxAhead)
	if f.EndedBefore.IsZero() || !f.Before.IsZero() && f.Before.Before(bound) {
		return f.Before
	}
	return bound
}

// ChooseID reports whether the filters may select a plan with this ID, as far as the ID tells. An ID that is
// not a UUIDv7 belongs to no plan.
func ChooseID(f storage.Filters, id uuid.UUID) bool {
	created, before := workflow.Time(id), CreatedBefore(f)
	return workflow.IsV7(id) && (f.After.IsZero() || created.After(f.After)) &&
		(before.IsZero() || created.Before(before)) &&
		(f.BeforeID == uuid.Nil || NewestFirst(f.BeforeID, id) < 0) &&
		(len(f.ByIDs) == 0 || slices.Contains(f.ByIDs, id))
}

// Choose reports whether the filters select a plan with this ID, group, name and state.
func Choose(f storage.Filters, r storage.ListResult) bool {
	return ChooseID(f, r.ID) &&
		(len(f.ByGroupIDs) == 0 || slices.Contains(f.ByGroupIDs, r.GroupID)) &&
		(len(f.ByStatus) == 0 || slices.Contains(f.ByStatus, r.State.Status)) &&
		strings.HasPrefix(r.Name, f.NamePrefix) && strings.Contains(r.Name, f.NameContains) && ended(f, r.State)
}

// ended reports whether the filters select a plan with this state by its end.
func ended(f storage.Filters, s workflow.State) bool {
	if f.EndedAfter.IsZero() && f.EndedBefore.IsZero() {
		return true
	}
	return s.Status.Final() && !s.End.IsZero() &&
		(f.EndedAfter.IsZero() || s.End.After(f.EndedAfter)) &&
		(f.EndedBefore.IsZero() || s.End.Before(f.EndedBefore))
}

// NewestFirst compares IDs in the order of listings: UUIDv7s sort by time. A [storage.Roster] has the reverse order.
func NewestFirst(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) }
