package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"
)

// The errors of a vault, for errors.Is. A vault wraps them in *Error.
var (
	// ErrNotFound: there is no such plan, or no such part of one. A part that is missing from a plan that is there is ErrCorrupt.
	ErrNotFound = errors.New("not found")
	// ErrExists: a plan of this ID is there already.
	ErrExists = errors.New("exists already")
	// ErrConflict: the stored version is not the one that the caller knows. Read again and decide anew.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the input can't be right. Nothing was sent; *workflow.FieldError names the field.
	ErrInvalid = errors.New("invalid")
	// ErrSchema: this program does not understand what is stored: it was written by a newer version of the code, or for a
	// plugin that the registry does not know. It was left untouched; update the program.
	ErrSchema = errors.New("not understood")
	// ErrCorrupt: what is stored is damaged.
	ErrCorrupt = errors.New("corrupt")
	// ErrDenied: the service refuses the request: the identity, its rights, or the account's settings do not allow it.
	ErrDenied = errors.New("denied")
	// ErrUnavailable: the store could not be reached or did not serve the request, after all retries. If a deadline ended them
	// the error is context.DeadlineExceeded, too.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknown: whether a write took effect could not be learnt. The same call again, or Recovery, settles it.
	ErrUnknown = errors.New("outcome unknown")
	// ErrClosed: the vault was closed.
	ErrClosed = errors.New("closed")
)

// Error is what every method of a vault returns: what was being done, to which plan and blob, and why it failed.
type Error struct {
	// Op is the method, such as "Create".
	Op string
	// Plan is the plan that it was about, uuid.Nil when it was about none or several.
	Plan uuid.UUID
	// Blob is the stored object that was in hand, as container/name; empty when there was none.
	Blob string
	// Doing says what was being done, such as "write entry"; it may be empty.
	Doing string
	// Err is the cause. It wraps at least one of the package's errors or the context's, and the service's own error where
	// there is one.
	Err error
}

// Error returns it on one line. Of many faults, as a plan may have, it names the first ten and counts the rest.
func (e *Error) Error() string {
	what := e.Op
	if e.Plan != uuid.Nil {
		what = strings.TrimPrefix(what+" plan "+e.Plan.String(), " ")
	}
	doing := e.Doing
	if e.Blob != "" {
		doing = strings.TrimPrefix(doing+" ("+e.Blob+")", " ")
	}
	parts := slices.DeleteFunc([]string{what, doing, oneLine(e.Err.Error())}, func(s string) bool { return s == "" })
	return strings.Map(space, strings.Join(parts, ": "))
}

// space replaces what ends a line or controls a terminal. Texts of others are quoted, too.
func space(r rune) rune {
	if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
		return ' '
	}
	return r
}

// maxFaults is how many of the errors that were joined an error's text names.
const maxFaults = 10

// oneLine puts the text of joined errors on one line. All of them remain for errors.Is and errors.As.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	if more := len(lines) - maxFaults; more > 0 {
		lines = append(lines[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
