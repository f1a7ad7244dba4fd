package plugins

import (
	"fmt"
	"runtime/debug"
)

// Panic is the error of code that panicked: a plugin, or a method of a request or response that encodes or decodes it.
type Panic struct {
	// Value is what the code panicked with.
	Value any
	// Stack is the stack of the goroutine, as in a crash report.
	Stack []byte
}

// Error returns the value, without the stack.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Guard calls do. If do panics, Guard returns a [*Panic]. It can't hold up runtime.Goexit, which ends the goroutine.
func Guard(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{value, debug.Stack()}
		}
	}()
	return do()
}
