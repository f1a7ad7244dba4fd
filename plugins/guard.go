package plugins

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// Panic is the error of code that panicked: a plugin, or a method of a request or response that encodes or decodes it. It
// is also that of such a method that does not return.
type Panic struct {
	// Value is what the code panicked with.
	Value any
	// Stack is the stack of the goroutine, as in a crash report. It is nil if the code did not return.
	Stack []byte
}

// Error returns the value, without the stack.
func (p *Panic) Error() string {
	if b, blocked := p.Value.(blocked); blocked {
		return fmt.Sprintf("%s did not return within %v", b.what(), b.limit)
	}
	return fmt.Sprintf("panic: %v", p.Value)
}

// blocked is the value of the Panic of code that does not return.
type blocked struct {
	what  func() string
	limit time.Duration
}

// Blocked reports whether the code did not return.
func (p *Panic) Blocked() bool {
	_, is := p.Value.(blocked)
	return is
}

// Guard calls do. If do panics, Guard returns a [*Panic]. It can't hold up runtime.Goexit, which ends the goroutine.
func Guard(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{value, debug.Stack()}
		}
	}()
	return do()
}

// guardWithin is [Guard] for do that may not return. do runs in a goroutine of its own. After limit, guardWithin returns a
// [*Panic] that is Blocked, and do goes on: nobody may use what it changes.
func guardWithin(limit time.Duration, what func() string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		var err error = &Panic{"runtime.Goexit", nil}
		defer func() { done <- err }()
		err = Guard(do)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return &Panic{Value: blocked{what, limit}}
	}
}

// methodLimit is how long a method of a value may take to encode or decode it, and Check of a plugin to look at a request.
const methodLimit = 10 * time.Second

// GuardCheck calls the Check of a plugin. It returns a [*Panic] if Check panics, or does not return within ten seconds.
func GuardCheck(c Checker, req any) error {
	return guardWithin(methodLimit, func() string { return "Check" }, func() error { return c.Check(req) })
}

// GuardJSON is [Guard] for do that encodes or decodes a value of type t. If that may call methods of other packages, do runs
// in a goroutine of its own, and GuardJSON returns a [*Panic] after ten seconds. do goes on then, so nobody may use what it
// changes.
func GuardJSON(t reflect.Type, do func() error) error {
	if !callsMethods(t) {
		return Guard(do)
	}
	ended := make(chan struct{})
	err := guardWithin(methodLimit, func() string { return fmt.Sprintf("the methods that encode or decode a %v", t) }, func() error {
		defer close(ended)
		return do()
	})
	if p, ok := err.(*Panic); ok && p.Blocked() {
		calls, _ := blockedCalls.LoadOrStore(t, new(atomic.Int64))
		calls.(*atomic.Int64).Add(1)
		go func() {
			<-ended
			calls.(*atomic.Int64).Add(-1)
		}()
	}
	return err
}

// blockedCalls has for a type how many calls of its methods did not return in time and still have not.
var blockedCalls sync.Map

// Blocks reports whether a call of [GuardJSON] for a type has failed because its methods did not return, and they still have
// not. Whoever need not encode or decode values of the type had better not try.
func Blocks(t reflect.Type) bool {
	calls, _ := blockedCalls.Load(t)
	n, _ := calls.(*atomic.Int64)
	return n != nil && n.Load() > 0
}

// WritesItself reports whether the JSON of values of a type is up to methods of theirs.
func WritesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.NumMethod() > 0 && slices.ContainsFunc(ownForm, p.Implements) // most have no methods
}

// ownForm are the interfaces of types that write or read themselves.
var ownForm = []reflect.Type{
	reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[jsonv2.MarshalerTo](), reflect.TypeFor[jsonv2.UnmarshalerFrom](),
	reflect.TypeFor[encoding.TextAppender](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
}

// methodCalls has for each type that was asked for whether its JSON may be up to methods.
var methodCalls sync.Map

func callsMethods(t reflect.Type) bool {
	if t == nil {
		return false
	}
	calls, known := methodCalls.Load(t)
	if !known {
		calls, _ = methodCalls.LoadOrStore(t, findMethods(t, map[reflect.Type]bool{}))
	}
	return calls.(bool)
}

// findMethods looks for methods of a type and of those below it. An interface may hold anything.
func findMethods(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[json.RawMessage]() {
		return false
	}
	seen[t] = true
	if t.Kind() == reflect.Interface || WritesItself(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Map:
		return findMethods(t.Key(), seen) || findMethods(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return findMethods(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if findMethods(f.Type, seen) {
				return true
			}
		}
	}
	return false
}
