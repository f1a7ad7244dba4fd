package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"
)

// The errors of a vault, for errors.Is. A vault wraps them in [*Error].
var (
	// ErrNotFound means that there is no such plan, or no such sub-object of a plan. A sub-object that should
	// be there but is missing is ErrCorrupt.
	ErrNotFound = errors.New("not found")
	// ErrExists means that there is a plan with this ID already.
	ErrExists = errors.New("exists already")
	// ErrConflict means that the stored version is not the one that the caller knows. Read again, then decide
	// again.
	ErrConflict = errors.New("conflict")
	// ErrHeld means that the plan's day is held, so nothing in it is removed. Release the day first.
	ErrHeld = errors.New("held")
	// ErrInvalid means that the input is wrong. Nothing was sent. A *workflow.FieldError names the field.
	ErrInvalid = errors.New("invalid")
	// ErrSchema means that this program does not understand what is stored: a newer version of the code wrote
	// it, or the registry lacks its plugin. The vault did not touch it. Update the program.
	ErrSchema = errors.New("not understood")
	// ErrForeign means that another program wrote what is stored, in the same place and by the same names. A vault
	// neither changes nor removes it. ErrForeign is also ErrSchema.
	ErrForeign = fmt.Errorf("%w: written by another program", ErrSchema)
	// ErrCorrupt means that what is stored is damaged, or can't be read although the caller may read it, such as
	// an archived blob.
	ErrCorrupt = errors.New("corrupt")
	// ErrDenied means that the service refused the request because of the identity, its rights, or the
	// account's settings.
	ErrDenied = errors.New("denied")
	// ErrProtected means that nobody can remove a blob or a container: it has snapshots or the lease of another program, or
	// an immutability policy or a legal hold protects it. ErrProtected is also ErrDenied.
	ErrProtected = fmt.Errorf("%w: protected", ErrDenied)
	// ErrUnavailable means that the store could not be reached or did not serve the request, after all
	// retries. If a deadline ended the retries, the error is context.DeadlineExceeded as well.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknown means that a write may or may not have taken effect. The same call again, or Recovery,
	// settles it.
	ErrUnknown = errors.New("outcome unknown")
	// ErrClosed means that the vault was closed.
	ErrClosed = errors.New("closed")
)

// LacksRight reports whether err says that the identity or the account does not allow such a request, so that a call for
// another plan or day would fail as well: it is ErrDenied and not ErrProtected.
func LacksRight(err error) bool {
	return errors.Is(err, ErrDenied) && !errors.Is(err, ErrProtected)
}

// ForeignError is the error of a Count that left plans of another program out. It is [ErrForeign].
type ForeignError struct {
	// Plans is how many were left out.
	Plans int
}

// Error returns the error as one line.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%v: %d of the plans, which don't count", ErrForeign, e.Plans)
}

// Unwrap returns ErrForeign.
func (e *ForeignError) Unwrap() error { return ErrForeign }

// Error is the error of every method of a vault. It says what the vault was doing, with which plan and blob,
// and why it failed.
type Error struct {
	// Op is the method, such as "Create".
	Op string
	// Plan is the plan that the call was about, or uuid.Nil if it was about none or several.
	Plan uuid.UUID
	// Blob is the stored object that the vault was working on, as container/name; empty if there was none.
	// [Error.Error] has the name alone.
	Blob string
	// Doing says what the vault was doing, such as "write entry"; it may be empty.
	Doing string
	// Err is the cause. It wraps at least one error of this package or of package context, and the service's
	// error if there was one.
	Err error
}

// Error returns the error as one line, without containers, hosts and URLs, so that it may be shown to users of an API.
// The verb %+v and [Detail] add them. If Err joins many errors, the line contains the first ten and the number of the
// others.
func (e *Error) Error() string {
	_, name, _ := strings.Cut(e.Blob, "/")
	if e.Err == nil {
		return e.text(name, "unknown error")
	}
	return e.text(name, e.Err.Error())
}

// Detail returns what %+v prints. Other errors that leave something out of their texts may have this method, too: %+v
// and the function [Detail] look for it in all errors that are wrapped.
func (e *Error) Detail() string { return e.text(e.Blob, Detail(e.Err)) }

// Format prints the error. With %+v it adds the blob's container, and the hosts and URLs in its cause.
func (e *Error) Format(s fmt.State, verb rune) {
	text := e.Error()
	switch {
	case verb == 'v' && s.Flag('+'):
		io.WriteString(s, e.Detail())
	case verb == 'v':
		io.WriteString(s, text)
	default:
		fmt.Fprintf(s, fmt.FormatString(s, verb), text)
	}
}

// Detail returns the text of an error for operators: with the containers, hosts and URLs that are not in the texts of
// the [Error] values that it wraps. Neither text has secrets.
func Detail(err error) string {
	if err == nil {
		return ""
	}
	text, at := err.Error(), 0
	expand(err, func(short, long string) {
		if i := strings.Index(text[at:], short); i >= 0 {
			text = text[:at+i] + long + text[at+i+len(short):]
			at += i + len(long)
		}
	})
	return text
}

// expand calls replace for the errors in err that have a longer text, in the order of their texts.
func expand(err error, replace func(short, long string)) {
	if d, ok := err.(interface{ Detail() string }); ok {
		if short, long := err.Error(), d.Detail(); short != long {
			replace(short, long)
			return
		}
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			expand(inner, replace)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			expand(inner, replace)
		}
	}
}

// text returns the error as one line.
func (e *Error) text(name, cause string) string {
	what := e.Op
	if e.Plan != uuid.Nil {
		what = strings.TrimPrefix(what+" plan "+e.Plan.String(), " ")
	}
	doing := e.Doing
	if name != "" {
		doing = strings.TrimPrefix(doing+" ("+name+")", " ")
	}
	parts := slices.DeleteFunc([]string{what, doing, oneLine(cause)}, func(s string) bool { return s == "" })
	return strings.Map(space, strings.Join(parts, ": "))
}

// space replaces characters that end a line or control a terminal. Messages from the service may contain
// them.
func space(r rune) rune {
	if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
		return ' '
	}
	return r
}

// maxFaults is the number of joined errors that the text of an error contains.
const maxFaults = 10

// oneLine puts the text of joined errors on one line.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	if more := len(lines) - maxFaults; more > 1 { // one more line may be the number of others
		lines = append(lines[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
