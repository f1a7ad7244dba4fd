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
		{storage.Error{Op: "Create", Plan: plan, Blob: blob}, "Create plan " + planText + ": (" + blob + "): conflict"},
		{storage.Error{Op: "Create", Plan: plan, Doing: "write object"}, "Create plan " + planText + ": write object: conflict"},
		{storage.Error{Op: "Create", Plan: plan}, "Create plan " + planText + ": conflict"},
		{storage.Error{Op: "List", Blob: blob, Doing: "list"}, "List: list (" + blob + "): conflict"},
		{storage.Error{Op: "List", Blob: blob}, "List: (" + blob + "): conflict"},
		{storage.Error{Op: "List", Doing: "list"}, "List: list: conflict"},
		{storage.Error{Op: "List"}, "List: conflict"},
		{storage.Error{Plan: plan, Blob: blob, Doing: "read"}, "plan " + planText + ": read (" + blob + "): conflict"},
		{storage.Error{Plan: plan, Blob: blob}, "plan " + planText + ": (" + blob + "): conflict"},
		{storage.Error{Plan: plan, Doing: "read"}, "plan " + planText + ": read: conflict"},
		{storage.Error{Plan: plan}, "plan " + planText + ": conflict"},
		{storage.Error{Blob: blob, Doing: "read"}, "read (" + blob + "): conflict"},
		{storage.Error{Blob: blob}, "(" + blob + "): conflict"},
		{storage.Error{Doing: "read"}, "read: conflict"},
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
	for _, test := range []struct {
		name  string
		cause error
		is    []error
	}{
		{"a sentinel", storage.ErrNotFound, []error{storage.ErrNotFound}},
		{"a wrapped sentinel", fmt.Errorf("%w: no such blob", storage.ErrNotFound), []error{storage.ErrNotFound}},
		{"with a context's error", fmt.Errorf("%w: %w", storage.ErrUnknown, context.Canceled), []error{storage.ErrUnknown, context.Canceled}},
		{"with a FieldError", fmt.Errorf("%w: %w", storage.ErrInvalid, errors.Join(field, field)), []error{storage.ErrInvalid, field}},
	} {
		t.Run(test.name, func(t *testing.T) {
			original := &storage.Error{Op: "Read", Err: test.cause}
			if errors.Unwrap(original) != test.cause {
				t.Errorf("Unwrap returned %v, want %v", errors.Unwrap(original), test.cause)
			}
			err := fmt.Errorf("wrapped: %w", original)
			for _, want := range test.is {
				if !errors.Is(err, want) {
					t.Errorf("%v is not %v", err, want)
				}
			}
			for _, s := range sentinels {
				if errors.Is(err, s) != errors.Is(test.cause, s) {
					t.Errorf("errors.Is(err, %q) changes when %v is wrapped", s, err)
				}
			}
			var got *storage.Error
			if !errors.As(err, &got) || got != original {
				t.Errorf("errors.As found %v, want %v", got, original)
			}
		})
	}

	var got *workflow.FieldError
	if err := error(&storage.Error{Op: "Create", Err: fmt.Errorf("%w: %w", storage.ErrInvalid, field)}); !errors.As(err, &got) || got != field {
		t.Errorf("errors.As found %v, want %v", got, field)
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
