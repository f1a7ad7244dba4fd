package storage

import (
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
