// Package retention removes final plans when they are as old as a policy says. The policy is a note of the store
// ([storage.Note]), and every engine enforces it: each day one of them claims a step, does it, and reports it.
//
// # What is removed
//
// Age counts in whole days from the end of the UTC day in which a plan ended, or was created if that is later, by the
// store's clock. [Policy.Reach] and [Policy.EndedBefore] are the rule. A plan without a time of its end counts from its
// creation, and is removed only with its day.
//
//   - Younger than KeepDays: nothing.
//   - From KeepDays on: Completed and Stopped plans.
//   - From KeepFailedDays on: Failed plans, too.
//
// A day is dropped as a whole when nothing in it must stay. Until then, its plans are removed one by one. Open plans stay,
// and so does all that is in a held day.
//
// # Who removes it
//
// The rules of a step are these; all times are the store's. internal/protocol has them as a model.
//
//   - A step may begin when a day has passed since the policy was set ([Delay]), unless it was set to begin at once.
//   - A process claims a step by replacing the version of the note that it has read. A claim ends after half an hour,
//     because its owner may have died.
//   - The owner reads the note again before each day and each minute, and stops if the note has changed.
//   - At the end the owner replaces its claim with a report. The next step follows after a day, or after an hour if
//     something was left or failed.
//
// Two processes at work at once would do no harm. The claim saves requests.
package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Policy says how long final plans are kept.
type Policy struct {
	// KeepDays is for Completed and Stopped plans. It is 36,525 at most. Default: 0, and all plans are kept for ever.
	KeepDays int `json:"keepDays,omitempty"`
	// KeepFailedDays is for Failed plans. It is at least KeepDays, and 36,525 at most. Default: KeepDays.
	KeepFailedDays int `json:"keepFailedDays,omitempty"`
	// Catalogue builds the catalogues of past days. Engines then leave that to the steps. Default: false.
	Catalogue bool `json:"catalogue,omitempty"`
}

// mostDays is the largest number of days in a policy.
const mostDays = 36525

// WithDefaults returns the policy with its defaults. A policy that makes no sense is [storage.ErrInvalid].
func (p Policy) WithDefaults() (Policy, error) {
	bad := func(field, problem string, args ...any) (Policy, error) {
		return p, fmt.Errorf("%w: %w", storage.ErrInvalid, &workflow.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)})
	}
	if p.KeepFailedDays == 0 {
		p.KeepFailedDays = p.KeepDays
	}
	switch {
	case p == Policy{}:
		return bad("KeepDays", "is 0, and there are to be no catalogues: the policy says nothing")
	case p.KeepDays < 0 || p.KeepDays > mostDays:
		return bad("KeepDays", "%d days are not between 0 and %d", p.KeepDays, mostDays)
	case p.KeepDays == 0 && p.KeepFailedDays != 0:
		return bad("KeepFailedDays", "is %d days, but other plans are kept for ever", p.KeepFailedDays)
	case p.KeepFailedDays < p.KeepDays || p.KeepFailedDays > mostDays:
		return bad("KeepFailedDays", "%d days are not between %d, as for other plans, and %d", p.KeepFailedDays, p.KeepDays, mostDays)
	}
	return p, nil
}

// String returns a text for people, such as "keep plans 90 days, Failed plans 365 days, build catalogues".
func (p Policy) String() string {
	days := func(n int) string {
		if n == 1 {
			return "1 day"
		}
		return fmt.Sprintf("%d days", n)
	}
	text := "keep all plans"
	if p.KeepDays > 0 {
		text = "keep plans " + days(p.KeepDays)
	}
	if p.KeepFailedDays != p.KeepDays {
		text += ", Failed plans " + days(p.KeepFailedDays)
	}
	if p.Catalogue {
		text += ", build catalogues"
	}
	return text
}

// Reach says which plans of a day a policy no longer keeps, if they have ended in time.
type Reach int

// The reaches.
const (
	ReachNone     Reach = iota
	ReachFinished       // Completed and Stopped plans
	ReachFinal          // Failed plans, too
)

// Reach returns which plans of a day p no longer keeps at a time, if they ended before EndedBefore.
func (p Policy) Reach(day storage.Day, now time.Time) Reach {
	past := func(days int) bool { return days > 0 && !now.Before(day.Add(1+days).Start()) }
	switch {
	case past(max(p.KeepDays, p.KeepFailedDays)):
		return ReachFinal
	case past(p.KeepDays):
		return ReachFinished
	}
	return ReachNone
}

// EndedBefore returns the time before which a plan of a final status has ended that p no longer keeps at a time. The day in
// which the plan was created must be within reach, too.
func (p Policy) EndedBefore(s workflow.Status, now time.Time) time.Time {
	keep := p.KeepDays
	if s == workflow.Failed {
		keep = max(p.KeepDays, p.KeepFailedDays)
	}
	return now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -keep)
}

// Statuses returns the statuses of the plans within reach.
func (r Reach) Statuses() []workflow.Status {
	return []workflow.Status{workflow.Completed, workflow.Stopped, workflow.Failed}[:[...]int{0, 2, 3}[r]]
}

// Day is a day of a store that a policy reaches.
type Day struct {
	Day   storage.Day
	Reach Reach
	Held  bool
	// Plans are the numbers of plans by status. They are nil for ReachFinal, unless Recent is positive.
	Plans map[workflow.Status]int
	// Recent is the number of plans of a status within reach that the policy keeps, because they ended later.
	Recent int
	// Unreadable is the number of plans whose status is unknown. They are kept until the day is dropped.
	Unreadable int
}

// Operation is what is to be done with a day.
type Operation string

// The operations.
const (
	OperationKeep  Operation = "keep"  // nothing: the day is held, or what is within reach was removed before
	OperationDrop  Operation = "drop"  // as a whole, if no plan is open
	OperationPurge Operation = "purge" // some of its plans, one by one
)

// Due returns how many of Plans the policy no longer keeps.
func (d Day) Due() (n int) {
	for _, s := range d.Reach.Statuses() {
		n += d.Plans[s]
	}
	return max(0, n-d.Recent)
}

// Operation returns what is to be done with the day.
func (d Day) Operation() Operation {
	due, all := d.Due(), d.Unreadable
	for _, n := range d.Plans {
		all += n
	}
	switch {
	case d.Held || d.Reach == ReachNone:
		return OperationKeep
	case d.Reach == ReachFinal && d.Recent == 0, due == all:
		return OperationDrop
	case due > 0:
		return OperationPurge
	}
	return OperationKeep
}

// Result is what became of a day.
type Result struct {
	// Dropped says that the day is gone. Kept says why it is not; it is empty if the plans within reach are removed one by
	// one.
	Dropped bool
	Kept    string
	// Removed is the number of plans that were removed one by one. More says that more are left.
	Removed int
	More    bool
}

// Vault is a store whose plans a policy can remove, such as azblob.Vault.
type Vault interface {
	storage.Control
	// DueDays returns the days that p reaches, oldest first, as listings tell. It changes nothing.
	DueDays(ctx context.Context, p Policy) ([]Day, error)
	// Retire removes from a day what p no longer keeps by the store's clock, and nothing else. It begins no removal after
	// the budget. It may be called by anybody, at any time, and again.
	Retire(ctx context.Context, p Policy, day storage.Day, budget time.Duration) (Result, error)
	// Upkeep builds the catalogues that are due.
	Upkeep(ctx context.Context) error
}
