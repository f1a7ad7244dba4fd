package azblob

import (
	"time"

	"github.com/google/uuid"
)

// ExpireOptions are the options of Expire.
type ExpireOptions struct {
	// OlderThan is the age of the days to drop. A day is older than an age if it ended at least that long ago,
	// by the service's clock. It must be positive. The day before today is never dropped, whatever the age.
	OlderThan time.Duration
	// Empty also drops younger days in which nothing is stored any more, such as those whose plans were all
	// deleted. It takes one listing for each of them.
	Empty bool
	// DryRun drops nothing. It asks the same questions, and the report says what would be dropped.
	DryRun bool
	// Progress is called after each day that was to be dropped, oldest first, one call at a time. It may be
	// nil.
	Progress func(ExpiredDay)
}

// ExpireReport is what Expire did.
type ExpireReport struct {
	// Days are the days that were to be dropped, oldest first.
	Days []ExpiredDay
}

// ExpiredDay is what became of a day that was to be dropped.
type ExpiredDay struct {
	// Day is the start of the day, in UTC.
	Day    time.Time
	Result ExpireResult
	// Open is the number of plans that are open, or that somebody is changing, and Plans has the first ten of
	// them. Both are of [DayOpen] alone.
	Open  int
	Plans []uuid.UUID
	// Err is why the day could not be dropped. It is of [DayFailed] alone.
	Err error
}

// ExpireResult says what became of a day.
type ExpireResult string

// The results. A later Expire tries again to drop the days that were skipped.
const (
	DayDropped  ExpireResult = "dropped"  // in a dry run: it would be
	DayOpen     ExpireResult = "open"     // skipped: a plan is not final, or somebody is changing a final one
	DayHeld     ExpireResult = "held"     // skipped: the day is held
	DayBusy     ExpireResult = "busy"     // skipped: another Expire is at work on it, or died less than a minute ago
	DayUnmarked ExpireResult = "unmarked" // skipped: this code did not make the container, so open plans may have no markers
	DayFailed   ExpireResult = "failed"
)

// Dropped returns the number of days that were dropped.
func (r ExpireReport) Dropped() (n int) {
	for _, d := range r.Days {
		if d.Result == DayDropped {
			n++
		}
	}
	return n
}
