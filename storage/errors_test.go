package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

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
		if got := fmt.Sprintf("%+v", &test.err); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
		if got, want := test.err.Error(), strings.ReplaceAll(test.want, "prod-20240420/", ""); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}

	if got := (&storage.Error{Op: "Read", Err: errors.New("")}).Error(); got != "Read" {
		t.Errorf("the text with an empty cause is %q, want %q", got, "Read")
	}
}

// TestDetailOfSeveral has errors whose short texts are equal, and one that has none.
func TestDetailOfSeveral(t *testing.T) {
	of := func(container string) error {
		return &storage.Error{Op: "Check", Blob: container + "/b", Err: &storage.Error{Blob: container + "/c", Err: storage.ErrDenied}}
	}
	err := fmt.Errorf("x: %w, %w", errors.New("plain"), errors.Join(of("one"), of("two")))
	if got, want := storage.Detail(err), "x: plain, Check: (one/b): (one/c): denied\nCheck: (two/b): (two/c): denied"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestErrorTextIsOneLine uses texts such as a service may return.
func TestErrorTextIsOneLine(t *testing.T) {
	err := &storage.Error{Op: "Check", Blob: "box/a\nb\u2029c", Err: errors.New("a\vb\fc\u0085d\u2028e\u2029f\x1b[31mg\x00h\ti é\u200d漢\r\nnext")}
	if got, want := err.Detail(), "Check: (box/a b c): a b c d e f [31mg h i é\u200d漢; next"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
