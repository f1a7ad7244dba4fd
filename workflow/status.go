package workflow

import (
	"fmt"
	"slices"
)

// Status is the status of an object: NotStarted, Running, or one of three final ones. A plan only moves
// forward; its sub-objects may be reset and run again.
type Status int

// The statuses. The zero value is NotStarted; Completed, Failed and Stopped are final.
const (
	NotStarted Status = iota
	Running
	Completed
	Failed
	Stopped
)

// FailureReason says what made a plan fail.
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
	ExceededRecovery // the plan was interrupted for too long
	DeadlineExceeded // the plan was stopped at its Deadline
)

// When says after which outcome of the plan a deferred batch runs.
type When int

// The outcomes. The zero value is OnSuccess.
const (
	OnSuccess When = iota
	OnFailure
	Always
)

// Kind is one of the types of objects.
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

// The names of the values. They are stored, so names may be added at the end of a list, but never changed.
var (
	statusNames = names[Status]{"status", []string{"NotStarted", "Running", "Completed", "Failed", "Stopped"}}
	reasonNames = names[FailureReason]{"failure reason", []string{
		"NoFailure", "PreCheckFailed", "ContCheckFailed", "BlockFailed",
		"PostCheckFailed", "DeferredCheckFailed", "DeferredActionFailed", "StopRequested",
		"ExceededRecovery", "DeadlineExceeded",
	}}
	whenNames = names[When]{"when", []string{"OnSuccess", "OnFailure", "Always"}}
	kindNames = names[Kind]{"kind", []string{"plan", "checks", "block", "sequence", "action", "deferredActions", "deferBatch"}}
)

// names gives the values of an enumeration their names.
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

func (n names[T]) marshal(v T) (string, error) {
	if !n.valid(v) {
		return "", fmt.Errorf("there is no %s %d", n.what, int(v))
	}
	return n.list[v], nil
}

func (n names[T]) text(v T) ([]byte, error) {
	name, err := n.marshal(v)
	if err != nil {
		return nil, err
	}
	return []byte(name), nil
}

func (n names[T]) unmarshal(v *T, text []byte) error {
	i := slices.Index(n.list, string(text))
	if i < 0 {
		return fmt.Errorf("there is no %s %q", n.what, text)
	}
	*v = T(i)
	return nil
}

// Valid reports whether s is one of the five statuses.
func (s Status) Valid() bool { return statusNames.valid(s) }

// Final reports whether s is Completed, Failed or Stopped.
func (s Status) Final() bool { return s == Completed || s == Failed || s == Stopped }

// String returns the name of the status.
func (s Status) String() string { return statusNames.string(s) }

// MarshalText returns the name of the status, or an error if there is no such status.
func (s Status) MarshalText() ([]byte, error) { return statusNames.text(s) }

// UnmarshalText reads the name of a status.
func (s *Status) UnmarshalText(text []byte) error { return statusNames.unmarshal(s, text) }

// ParseStatus returns the status of a name such as "Running".
func ParseStatus(name string) (s Status, err error) {
	err = s.UnmarshalText([]byte(name))
	return s, err
}

// String returns the name of the reason.
func (r FailureReason) String() string { return reasonNames.string(r) }

// MarshalText returns the name of the reason, or an error if there is no such reason.
func (r FailureReason) MarshalText() ([]byte, error) { return reasonNames.text(r) }

// UnmarshalText reads the name of a reason.
func (r *FailureReason) UnmarshalText(text []byte) error { return reasonNames.unmarshal(r, text) }

// String returns the name of the outcome.
func (w When) String() string { return whenNames.string(w) }

// MarshalText returns the name of the outcome, or an error if there is no such outcome.
func (w When) MarshalText() ([]byte, error) { return whenNames.text(w) }

// UnmarshalText reads the name of an outcome.
func (w *When) UnmarshalText(text []byte) error { return whenNames.unmarshal(w, text) }

// String returns the name of the kind.
func (k Kind) String() string { return kindNames.string(k) }
