// Package values reads and writes requests and responses as every reader of a store gets them.
package values

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// Typed decodes raw JSON into a new value of the type of empty. It returns any other value unchanged. The error is a
// [*plugins.Panic] if the type's UnmarshalJSON panicked, or did not return within ten seconds.
func Typed(v, empty any) (any, error) {
	raw, ok := v.(json.RawMessage)
	if !ok || empty == nil {
		return v, nil
	}
	into := reflect.New(reflect.TypeOf(empty))
	if err := plugins.GuardJSON(reflect.TypeOf(empty), func() error { return workflow.UnmarshalValue(raw, into.Interface()) }); err != nil {
		return nil, err
	}
	return into.Elem().Interface(), nil
}

// Fresh returns a request or a response as a reader of the store gets it: its JSON, and a new value of the type of empty
// that is decoded from it and shares nothing with v. If empty is nil, the new value is the JSON. The error says why v
// can't be stored or read; it is a [*plugins.Panic] if a method of the type panicked. A nil v is nil, without JSON.
func Fresh(v, empty any) (fresh any, text json.RawMessage, err error) {
	if v == nil {
		return nil, nil, nil
	}
	text, raw := v.(json.RawMessage)
	if !raw {
		if empty != nil {
			if problem := WrongType(v, empty); problem != "" {
				return nil, nil, errors.New("it " + problem)
			}
		}
		if text, err = workflow.MarshalValue(v); err != nil {
			return nil, nil, err
		}
	}
	fresh, err = Typed(text, empty)
	return fresh, text, err
}

// WrongType says that a value has neither the type of empty nor that of a pointer to it, or to which it points; "" if it has.
func WrongType(value, empty any) string {
	got, want := reflect.TypeOf(value), reflect.TypeOf(empty)
	if got == want || got == reflect.PointerTo(want) || reflect.PointerTo(got) == want {
		return ""
	}
	return fmt.Sprintf("is a %v, not the %v", got, want)
}
