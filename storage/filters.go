package storage

import (
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Filters select plans. Values within a field are alternatives, but for Labels, and all fields that are set must match. The
// zero value selects everything: Count takes it, and Search returns ErrInvalid, because List does that. A list or map that is
// not nil is set: without values it selects nothing.
type Filters struct {
	// ByIDs selects plans by ID. IDs without a plan are skipped, and so are those that are not UUIDv7s.
	ByIDs []uuid.UUID
	// IDContains selects plans whose ID contains these hexadecimal digits, 1 to 32 of them. Hyphens and case are
	// ignored. An ID begins with its time, so its last digits tell plans apart.
	IDContains string
	// ByGroupIDs selects plans by GroupID.
	ByGroupIDs []uuid.UUID
	// ByForkedFrom selects the forks of these plans, which need not exist.
	ByForkedFrom []uuid.UUID
	// BySubmitter selects plans by Submitted.By, which it compares as a whole.
	BySubmitter []string
	// ByKey selects open plans that have a key with this name.
	ByKey string
	// ByStatus selects plans by their own status.
	ByStatus []workflow.Status
	// NamePrefix and NameContains select plans whose name begins with a text, and contains a text. They compare
	// bytes, so upper and lower case differ. The empty text is in every name.
	NamePrefix, NameContains string
	// Labels selects plans that have all of these labels.
	Labels map[string]string
	// After and Before select plans created after and before a time, both exclusive. The creation time is the
	// one in the plan's ID, in whole milliseconds. The zero time is no bound.
	After, Before time.Time
	// EndedAfter and EndedBefore select final plans that ended after and before a time, both exclusive, by their
	// State.End. Plans that are not final, or have no end time, are left out. So are plans created more than
	// MaxAhead after EndedBefore, which bounds how far a search goes back to find plans that ended before a
	// time. EndedAfter alone bounds nothing, since a plan may run for long: set After, too, if you know for how
	// long. The zero time is no bound.
	EndedAfter, EndedBefore time.Time
	// BeforeID selects plans older than this plan, which need not exist. With Limit, it selects the next page
	// after a page that ended with this plan. uuid.Nil is no bound.
	BeforeID uuid.UUID
	// Limit is the largest number of plans to yield; 0 is all. Count takes neither Limit nor BeforeID.
	Limit int
}

// Fields returns the names of the fields that are set, such as "ByStatus", in the order of the fields.
func (f Filters) Fields() (names []string) {
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		field := v.Field(i)
		if t, ok := field.Interface().(time.Time); ok && t.IsZero() || field.IsZero() {
			continue
		}
		names = append(names, v.Type().Field(i).Name)
	}
	return names
}
