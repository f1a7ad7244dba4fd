package azblob

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// An error is made in two steps. blobError or vaultError says what was being done to which blob; opError adds
// the method and the plan when the error leaves the vault.

// blobError is the error of a request: it returns err with what was being done to which blob. No other
// function translates the blob client's errors into those of package storage.
func blobError(doing string, ref blob.Ref, err error) error {
	if err == nil {
		return nil
	}
	return &storage.Error{Doing: doing, Blob: ref.String(), Err: translate(err)}
}

// vaultError is the error of what the vault concludes from blobs that it did get. The format wraps one of
// storage's errors.
func vaultError(doing string, ref blob.Ref, format string, args ...any) error {
	return &storage.Error{Doing: doing, Blob: ref.String(), Err: fmt.Errorf(format, args...)}
}

// withCause is an error of the same step and blob as err, with another cause.
func withCause(err error, format string, args ...any) error {
	var e *storage.Error
	if !errors.As(err, &e) {
		return fmt.Errorf(format, args...)
	}
	return &storage.Error{Doing: e.Doing, Blob: e.Blob, Err: fmt.Errorf(format, args...)}
}

// sentinels maps the blob client's reasons to the contract's errors. blob.Ended is not in it: the context's
// own error says enough.
var sentinels = map[blob.Reason]error{
	blob.Unreachable:     storage.ErrUnavailable,
	blob.Absent:          storage.ErrNotFound,
	blob.AbsentContainer: storage.ErrNotFound,
	blob.Mismatch:        storage.ErrConflict,
	blob.Leased:          storage.ErrConflict,
	blob.Refused:         storage.ErrDenied,
	blob.Damaged:         storage.ErrCorrupt,
}

func translate(err error) error {
	var e *blob.Error
	if !errors.As(err, &e) {
		return err
	}
	sentinel := sentinels[e.Reason]
	if blob.IsProtected(e) {
		sentinel = storage.ErrProtected
	}
	switch {
	case e.Unknown && sentinel == nil:
		return fmt.Errorf("%w: call again, or let Recovery settle it: %w", storage.ErrUnknown, e)
	case e.Unknown:
		return fmt.Errorf("%w: call again, or let Recovery settle it: %w: %w", storage.ErrUnknown, sentinel, e)
	case sentinel == nil:
		return e
	}
	return fmt.Errorf("%w: %w", sentinel, e)
}

// clientError returns the blob client's error in err without the sentinel that translate put around it: an
// absent blob need not mean an absent plan.
func clientError(err error) error {
	if e := (*blob.Error)(nil); errors.As(err, &e) {
		return e
	}
	return err
}

// opError returns err as a *storage.Error with the method and the plan, unless err names a plan of its own.
func opError(op string, plan uuid.UUID, err error) error {
	if err == nil {
		return nil
	}
	e := storage.Error{Err: err}
	if inner, ok := err.(*storage.Error); ok { // not errors.As: an error further in is the cause of another one
		e = *inner
	}
	e.Op = op
	if e.Plan == uuid.Nil {
		e.Plan = plan
	}
	return &e
}

// Outcome is the kind of an operation's error. There are few of them, so they can be labels of metrics.
type Outcome string

// The outcomes. All but the last two are those of the errors of package storage.
const (
	OutcomeOK          Outcome = "ok"
	OutcomeUnknown     Outcome = "unknown"
	OutcomeCorrupt     Outcome = "corrupt"
	OutcomeSchema      Outcome = "schema"
	OutcomeForeign     Outcome = "foreign"
	OutcomeDenied      Outcome = "denied"
	OutcomeUnavailable Outcome = "unavailable"
	OutcomeClosed      Outcome = "closed"
	OutcomeInvalid     Outcome = "invalid"
	OutcomeExists      Outcome = "exists"
	OutcomeConflict    Outcome = "conflict"
	OutcomeHeld        Outcome = "held"
	OutcomeNotFound    Outcome = "not_found"
	OutcomeCanceled    Outcome = "canceled" // the context ended before a write took effect
	OutcomeFailed      Outcome = "failed"   // another error, or a panic
)

// outcomes are the errors of each outcome. The error of an operation may be several of them; the first one
// decides.
var outcomes = []struct {
	err     error
	outcome Outcome
}{
	{storage.ErrUnknown, OutcomeUnknown},
	{storage.ErrCorrupt, OutcomeCorrupt},
	{storage.ErrForeign, OutcomeForeign},
	{storage.ErrSchema, OutcomeSchema},
	{storage.ErrDenied, OutcomeDenied},
	{storage.ErrUnavailable, OutcomeUnavailable},
	{storage.ErrClosed, OutcomeClosed},
	{storage.ErrInvalid, OutcomeInvalid},
	{storage.ErrExists, OutcomeExists},
	{storage.ErrHeld, OutcomeHeld},
	{storage.ErrConflict, OutcomeConflict},
	{storage.ErrNotFound, OutcomeNotFound},
	{context.Canceled, OutcomeCanceled},
	{context.DeadlineExceeded, OutcomeCanceled},
}

// OutcomeOf returns the outcome of an operation that returned err. An error that is several of storage's
// errors has the outcome that most needs attention.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return OutcomeOK
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.outcome
		}
	}
	return OutcomeFailed
}

// overtaken reports whether err says that another process was faster: the blob to change or remove has
// changed, or is gone.
func overtaken(err error) bool {
	return errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt)
}

var (
	// errRemains is the error of a Create that meets blobs of another Create or Delete of the ID.
	errRemains = fmt.Errorf("%w: another create or delete of this ID is under way, or left its remains", storage.ErrConflict)
	// errGrace is the cause of a Create that ends because its grace period is over.
	errGrace = fmt.Errorf("the plan was not created within the grace period: %w", context.DeadlineExceeded)
	// errSlowChange is the cause of a change of a plan in a day that has passed, if it ends because its grace
	// period is over.
	errSlowChange = fmt.Errorf("the plan was not changed within the grace period: %w", context.DeadlineExceeded)
	// errSlowDelete is the cause of a Delete that ends because its grace period is over before it commits.
	errSlowDelete = fmt.Errorf("the plan was not deleted within the grace period: %w", context.DeadlineExceeded)
)

// plural returns a number of things in words, such as "1 marker" or "2 markers".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
