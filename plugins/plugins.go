// Package plugins is what a vault needs to know of a workflow engine's plugins: their names, and the types of
// their requests and responses, which the vault returns as those types.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Plugin is what an action runs. The vault needs only its name and its types; running it is up to the engine.
// The methods must be safe for concurrent use, and must always return the same values.
type Plugin interface {
	// Name returns the plugin's name, which Action.Plugin holds. It must not be empty.
	Name() string
	// Request returns an empty value of the type of Action.Req: a struct, a pointer to one, or anything else
	// that encoding/json can decode. A request that was read has exactly this type. The vault refuses a
	// request that encoding/json can't decode into this type again, or not as the value that it was.
	Request() any
	// Response returns an empty value of the type of Attempt.Resp, as Request does.
	Response() any
}

// Checker is a [Plugin] that looks at requests before they are stored. Create calls Check for each action of a new plan, and of
// a fork for each that is to run; the request is decoded as for a run, and nil if the action has none. An error refuses the
// plan with [the path of the action]. Check may return a *workflow.FieldError that names a field of the request, or several
// errors with errors.Join. It decides by the request alone, sends nothing, and returns soon: after ten seconds, or a panic,
// the plan is refused.
//
// In the error of Create, errors.AsType finds the type of an error that Check returned, such as one with a text for users, and
// a *workflow.FieldError whose Err it is. An error that quotes a secret of the request is left out, and its text redacted.
// errors.Is does not find it, for Create's error has a kind of its own.
//
// Stored plans are never checked: not when they are read, run or restored. A plugin whose method HasCheck() bool returns false
// is not asked.
//
// [the path of the action]: https://pkg.go.dev/github.com/planvault/azblob/workflow#Paths
type Checker interface {
	Check(req any) error
}

// Looker is a [Plugin] that may say that it only looks and changes nothing. If any plugin of a registry says so, Create
// accepts no other plugin in the Checks of a new plan. A fork keeps the plugins of its plan.
type Looker interface {
	IsCheck() bool
}

// Initer is a [Plugin] that must do something before its actions run, such as to log in somewhere. An engine calls Init once in
// each Run, before it takes plans, beside that of other plugins. ctx ends when the engine is to stop, and after the engine's
// Options.Timeout, when the engine no longer waits. If Init returns an error, panics or does not return, Run returns the error
// and runs no plan.
type Initer interface {
	Init(ctx context.Context) error
}

// Typed is a [Plugin] that is its name and two types, for a vault alone:
//
//	reg.Register(plugins.Typed[Greet, Greeting]("greet"))
//
// Req and Resp must not be interface types, which encoding/json can't decode. Package engine adds a function
// that runs the plugin.
type Typed[Req, Resp any] string

// Name returns the string.
func (t Typed[Req, Resp]) Name() string { return string(t) }

// Request returns the zero value of Req.
func (Typed[Req, Resp]) Request() any { return *new(Req) }

// Response returns the zero value of Resp.
func (Typed[Req, Resp]) Response() any { return *new(Resp) }

// Error is a plugin's own error. It is stored with the attempt, but for its Cause, of which the text is stored.
type Error struct {
	// Code is a number whose meaning is up to the plugin.
	Code int `json:"code,omitzero"`
	// Message says what went wrong. If it is empty, the text of Cause is stored.
	Message string `json:"message,omitempty"`
	// Permanent means that no other attempt can succeed.
	Permanent bool `json:"permanent,omitzero"`
	// After is how long to wait before the next attempt, such as the Retry-After of a service. It counts from the end of the
	// attempt, replaces the wait of the [Backoff], and is no reason for an attempt more. At most a week is stored; 0 or less
	// says nothing.
	After time.Duration `json:"after,omitzero"`
	// Wrapped is the cause of this error as it is stored, or nil.
	Wrapped *Error `json:"wrapped,omitzero"`
	// Cause is the error behind this one, for errors.Is and errors.As in the process of the plugin. It may be nil, and is nil
	// in an error that was read.
	Cause error `json:"-"`
}

// Permanent returns err as an error that no other attempt can mend: the action fails, whatever its Retries. errors.Is and
// errors.As find err in it. Permanent of an error that is or wraps an [*Error] keeps its Code. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	own := Error{Message: err.Error(), Permanent: true, Cause: err}
	if inner, ok := errors.AsType[*Error](err); ok && inner != nil {
		own.Code = inner.Code
	}
	return &own
}

// Error returns the message, with the code if there is one, followed by those of the wrapped errors.
func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	var texts []string
	for ; e != nil && len(texts) < mostWrapped; e = e.Wrapped {
		text := e.Message
		if text == "" && e.Cause != nil {
			text = e.Cause.Error()
		}
		if code := fmt.Sprintf(" (code %d)", e.Code); e.Code != 0 && !strings.Contains(text, code) {
			text += code
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ": ")
}

// Unwrap returns the errors behind this one.
func (e *Error) Unwrap() (behind []error) {
	if e == nil {
		return nil
	}
	if e.Cause != nil {
		behind = append(behind, e.Cause)
	}
	if e.Wrapped != nil && !e.circular() {
		behind = append(behind, e.Wrapped)
	}
	return behind
}

// mostWrapped is how many errors may be wrapped in each other.
const mostWrapped = 100

// circular reports whether the error wraps itself, or too many others: errors.Is would never end.
func (e *Error) circular() bool {
	n := 0
	for at := e.Wrapped; at != nil && n <= mostWrapped; at = at.Wrapped {
		n++
	}
	return n > mostWrapped
}
