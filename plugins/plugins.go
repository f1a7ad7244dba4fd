// Package plugins says what a workflow engine's plugin must tell a vault: its name, and the types of its
// request and its response, so that both come back from storage as the plugin's own types.
package plugins

import "fmt"

// Plugin is what an action runs. A vault needs only its name and its types; how it is run is the engine's affair.
// The methods must be safe for concurrent use and must give the same answers for as long as the plugin lives.
type Plugin interface {
	// Name is the plugin's name in Action.Plugin. It must not be empty.
	Name() string
	// Request gives an empty value of the type that Action.Req holds, to decode into: a struct or a pointer to one
	// (or anything else encoding/json can decode). What is read back is of exactly this type. A request that encoding/json can
	// encode, but not decode into this type, is refused.
	Request() any
	// Response gives an empty value of the type that Attempt.Resp holds, as Request does.
	Response() any
}

// Error is a plugin's own failure, kept with the attempt that met it.
type Error struct {
	// Code is the plugin's number for the failure; its meaning is the plugin's.
	Code int `json:"code,omitempty"`
	// Message says what went wrong.
	Message string `json:"message,omitempty"`
	// Permanent says that another attempt can't succeed.
	Permanent bool `json:"permanent,omitempty"`
	// Wrapped is the error behind this one, nil for none.
	Wrapped *Error `json:"wrapped,omitempty"`
}

// Error returns the message with the code, and those of the errors behind it.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s (code %d)", e.Message, e.Code)
	if e.Wrapped != nil {
		text += ": " + e.Wrapped.Error()
	}
	return text
}

// Unwrap returns the error behind this one, for errors.Is and errors.As.
func (e *Error) Unwrap() error {
	if e.Wrapped == nil {
		return nil // not a nil *Error in an error
	}
	return e.Wrapped
}
