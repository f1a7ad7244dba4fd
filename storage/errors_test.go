package storage_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

var sentinels = []error{
	storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrInvalid, storage.ErrSchema,
	storage.ErrCorrupt, storage.ErrDenied, storage.ErrUnavailable, storage.ErrUnknown, storage.ErrClosed, storage.ErrHeld,
}

func TestErrorText(t *testing.T) {
	const planText = "018f0000-0000-7000-8000-000000000001"
	const blob = "prod-20240420/object"
	plan := uuid.MustParse(planText)
	for _, test := range []struct {
		err  storage.Error
		want string
	}{
		{storage.Error{Op: "Create", Plan: plan, Blob: blob, Doing: "write object"}, "Create plan " + planText + ": write object (" + blob + "): conflict"},
		{storage.Error{Op: "List", Blob: blob}, "List: (" + blob + "): conflict"},
		{storage.Error{Plan: plan, Doing: "read"}, "plan " + planText + ": read: conflict"},
		{storage.Error{Doing: "read", Blob: blob}, "read (" + blob + "): conflict"},
		{storage.Error{}, "conflict"},
	} {
		test.err.Err = storage.ErrConflict
		if got := test.err.Error(); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}

	if got := (&storage.Error{Op: "Read", Err: errors.New("")}).Error(); got != "Read" {
		t.Errorf("the text with an empty cause is %q, want %q", got, "Read")
	}
}

// TestErrorTextIsOneLine uses texts such as a service may return.
func TestErrorTextIsOneLine(t *testing.T) {
	err := &storage.Error{Op: "Check", Blob: "box/a\nb\u2029c", Err: errors.New("a\vb\fc\u0085d\u2028e\u2029f\x1b[31mg\x00h\ti é\u200d漢\r\nnext")}
	if got, want := err.Error(), "Check: (box/a b c): a b c d e f [31mg h i é\u200d漢; next"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestErrorUnwrap(t *testing.T) {
	field := &workflow.FieldError{Field: "Name", Problem: "is wrong"}
	cause := fmt.Errorf("%w: %w: %w", storage.ErrInvalid, context.Canceled, errors.Join(field, field))
	original := &storage.Error{Op: "Read", Err: cause}
	err := fmt.Errorf("wrapped: %w", original)
	if got, ok := errors.AsType[*storage.Error](err); !ok || got != original || errors.Unwrap(original) != cause {
		t.Errorf("errors.As found %v in %v, which wraps %v", got, err, errors.Unwrap(original))
	}
	if got, ok := errors.AsType[*workflow.FieldError](err); !ok || got != field || !errors.Is(err, context.Canceled) {
		t.Errorf("errors.As found %v in %v", got, err)
	}
	for _, s := range sentinels {
		if errors.Is(err, s) != (s == storage.ErrInvalid) {
			t.Errorf("errors.Is(err, %q) is %v", s, errors.Is(err, s))
		}
	}
}

func TestSentinelsAreDistinct(t *testing.T) {
	texts := map[string]bool{}
	for i, a := range sentinels {
		for j, b := range sentinels {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("errors.Is(%v, %v) is %v", a, b, i != j)
			}
		}
		if a.Error() == "" || texts[a.Error()] {
			t.Errorf("the text %q is empty or not unique", a)
		}
		texts[a.Error()] = true
	}
}
