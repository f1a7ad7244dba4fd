package storage

import (
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Filters select plans. Values within a field are alternatives, and all fields that are set must match. The
// zero value, which would select everything, is ErrInvalid: use List.
type Filters struct {
	// ByIDs selects plans by ID. IDs without a plan are skipped, and so are those that are not UUIDv7s.
	ByIDs []uuid.UUID
	// ByGroupIDs selects plans by GroupID.
	ByGroupIDs []uuid.UUID
	// ByStatus selects plans by their own status.
	ByStatus []workflow.Status
	// After and Before select plans created after and before a time, both exclusive. The creation time is the
	// one in the plan's ID, in whole milliseconds. The zero time is no bound.
	After, Before time.Time
	// BeforeID selects plans older than this plan, which need not exist. With Limit, it selects the next page
	// after a page that ended with this plan. uuid.Nil is no bound.
	BeforeID uuid.UUID
	// Limit is the largest number of plans to yield; 0 is all.
	Limit int
}
