// Package plugins is what a vault needs to know of a workflow engine's plugins: their names, and the types of
// their requests and responses, which the vault returns as those types.
package plugins

import "fmt"

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

// Error is a plugin's own error. It is stored with the attempt.
type Error struct {
	// Code is a number whose meaning is up to the plugin.
	Code int `json:"code,omitzero"`
	// Message says what went wrong.
	Message string `json:"message,omitempty"`
	// Permanent means that no other attempt can succeed.
	Permanent bool `json:"permanent,omitzero"`
	// Wrapped is the cause of this error, or nil.
	Wrapped *Error `json:"wrapped,omitzero"`
}

// Error returns the message with the code, followed by those of the wrapped errors.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s (code %d)", e.Message, e.Code)
	if e.Wrapped != nil {
		text += ": " + e.Wrapped.Error()
	}
	return text
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error {
	if e.Wrapped == nil {
		return nil // not a nil *Error in an error
	}
	return e.Wrapped
}
