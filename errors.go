package azblob

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// sentinels translates the reasons of the blob client into the contract's errors.
var sentinels = map[blob.Reason]error{
	blob.Unreachable:     storage.ErrUnavailable,
	blob.Absent:          storage.ErrNotFound,
	blob.AbsentContainer: storage.ErrNotFound,
	blob.Mismatch:        storage.ErrConflict,
	blob.Refused:         storage.ErrDenied,
	blob.Damaged:         storage.ErrCorrupt,
}

// at says what was being done to which blob when err came up. It is the one place where the blob client's errors become the
// contract's; the method's name and the plan are added by edge.
func blobError(doing string, ref blob.Ref, err error) error {
	if err == nil {
		return nil
	}
	return &storage.Error{Doing: doing, Blob: ref.String(), Err: translate(err)}
}

func translate(err error) error {
	var e *blob.Error
	if !errors.As(err, &e) {
		return err
	}
	sentinel := sentinels[e.Reason] // none where the context ended: its own error says so
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

// clientError returns the blob client's error in err, without what translate makes of it: a blob that is absent need not mean
// that there is no such plan.
func clientError(err error) error {
	if e := (*blob.Error)(nil); errors.As(err, &e) {
		return e
	}
	return err
}

// edge finishes the error of a method: every one that leaves the vault is a *storage.Error with Op and Plan.
func opError(op string, plan uuid.UUID, err error) error {
	if err == nil {
		return nil
	}
	e, ok := err.(*storage.Error) //nolint:errorlint // only the outermost one is ours to finish
	if !ok {
		e = &storage.Error{Err: err}
	}
	e.Op = op
	if e.Plan == uuid.Nil {
		e.Plan = plan
	}
	return e
}

// errGrace is the cause of a Create's end when its grace period is over.
var errGrace = fmt.Errorf("the plan was not created within the grace period: %w", context.DeadlineExceeded)

// outrun says of an error that somebody else was faster: what was to be changed or removed has changed, or is gone.
func overtaken(err error) bool {
	return errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt)
}
