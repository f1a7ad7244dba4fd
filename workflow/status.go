package workflow

import (
	"fmt"
	"slices"
)

// Status is where an object stands: NotStarted, Running, or one of the final three. A plan only moves forward; its parts may
// be reset and run again.
type Status int

// The statuses. The zero value is NotStarted; Completed, Failed and Stopped are final.
const (
	NotStarted Status = iota
	Running
	Completed
	Failed
	Stopped
)

// FailureReason says which part made a plan fail.
type FailureReason int

// The reasons. The zero value is NoFailure.
const (
	NoFailure FailureReason = iota
	PreCheckFailed
	ContCheckFailed
	BlockFailed
	PostCheckFailed
	DeferredCheckFailed
	DeferredActionFailed
	StopRequested
	ExceededRecovery // the plan was left for too long to be taken up again
)

// When says after which outcome of the plan a deferred batch runs.
type When int

// The outcomes. The zero value is OnSuccess.
const (
	OnSuccess When = iota
	OnFailure
	Always
)

// Kind says which of the model's types an Object is.
type Kind int

// The kinds of objects.
const (
	KindPlan Kind = iota
	KindChecks
	KindBlock
	KindSequence
	KindAction
	KindDeferredActions
	KindDeferBatch
)

// The text forms, which are also the stored ones: an entry may be added at the end of a list, never changed.
var (
	statusNames = names[Status]{"status", []string{"NotStarted", "Running", "Completed", "Failed", "Stopped"}}
	reasonNames = names[FailureReason]{"failure reason", []string{
		"NoFailure", "PreCheckFailed", "ContCheckFailed", "BlockFailed",
		"PostCheckFailed", "DeferredCheckFailed", "DeferredActionFailed", "StopRequested",
		"ExceededRecovery",
	}}
	whenNames = names[When]{"when", []string{"OnSuccess", "OnFailure", "Always"}}
	kindNames = names[Kind]{"kind", []string{"plan", "checks", "block", "sequence", "action", "deferredActions", "deferBatch"}}
)

// names gives an enumeration its text.
type names[T ~int] struct {
	what string
	list []string
}

func (n names[T]) valid(v T) bool { return v >= 0 && int(v) < len(n.list) }

func (n names[T]) string(v T) string {
	if !n.valid(v) {
		return fmt.Sprintf("%s(%d)", n.what, int(v))
	}
	return n.list[v]
}

func (n names[T]) marshal(v T) ([]byte, error) {
	if !n.valid(v) {
		return nil, fmt.Errorf("workflow: there is no %s %d", n.what, int(v))
	}
	return []byte(n.list[v]), nil
}

func (n names[T]) unmarshal(v *T, text []byte) error {
	i := slices.Index(n.list, string(text))
	if i < 0 {
		return fmt.Errorf("workflow: there is no %s %q", n.what, text)
	}
	*v = T(i)
	return nil
}

// Valid says whether s is one of the five statuses.
func (s Status) Valid() bool { return statusNames.valid(s) }

// Final says whether s is an end: Completed, Failed or Stopped.
func (s Status) Final() bool { return s == Completed || s == Failed || s == Stopped }

// String returns the status' name.
func (s Status) String() string { return statusNames.string(s) }

// MarshalText returns the status' name; a value that is no status is an error.
func (s Status) MarshalText() ([]byte, error) { return statusNames.marshal(s) }

// UnmarshalText reads a name that MarshalText gave.
func (s *Status) UnmarshalText(text []byte) error { return statusNames.unmarshal(s, text) }

// String returns the reason's name.
func (r FailureReason) String() string { return reasonNames.string(r) }

// MarshalText returns the reason's name; a value that is no reason is an error.
func (r FailureReason) MarshalText() ([]byte, error) { return reasonNames.marshal(r) }

// UnmarshalText reads a name that MarshalText gave.
func (r *FailureReason) UnmarshalText(text []byte) error { return reasonNames.unmarshal(r, text) }

// String returns the name of the outcome.
func (w When) String() string { return whenNames.string(w) }

// MarshalText returns the outcome's name; a value that is none is an error.
func (w When) MarshalText() ([]byte, error) { return whenNames.marshal(w) }

// UnmarshalText reads a name that MarshalText gave.
func (w *When) UnmarshalText(text []byte) error { return whenNames.unmarshal(w, text) }

// String returns the kind's name.
func (k Kind) String() string { return kindNames.string(k) }
