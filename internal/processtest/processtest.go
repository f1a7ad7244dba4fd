// Package processtest puts processes on one store, in tests of what they do to each other: a process is slow, cut
// off, frozen or killed, or dies at one of its calls, while the others go on. In a bubble of testing/synctest all of
// them have one virtual clock.
package processtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Call is a call of a process.
type Call struct {
	Op     string          // the name of the method
	Plan   uuid.UUID       // the plan, if the call is of one
	Object workflow.Object // the object that is created or updated
}

// Hook decides what becomes of a call, which do makes.
type Hook func(ctx context.Context, c Call, do func() error) error

// Process is a store as one process sees it. It is safe for concurrent use.
type Process struct {
	*hooked.Vault
	Store storage.Vault // the store itself: a vault in memory, or one on the emulator, which no hook sees

	mu     sync.Mutex
	hook   Hook
	result func(storage.Stream[storage.ListResult]) storage.Stream[storage.ListResult]
	frozen chan struct{} // closed when the process goes on; nil if it is not frozen
}

// New returns a process on a store.
func New(store storage.Vault) *Process {
	p := &Process{Store: store}
	p.Vault = hooked.Wrap(store, p.call)
	return p
}

// On sets what becomes of later calls. Nil makes them.
func (p *Process) On(h Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = h
}

// OnResult sets what becomes of the results of later searches.
func (p *Process) OnResult(change func(storage.Stream[storage.ListResult]) storage.Stream[storage.ListResult]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result = change
}

// OnOp sets what becomes of later calls of one method. All others are made.
func (p *Process) OnOp(op string, h Hook) {
	p.On(func(ctx context.Context, c Call, do func() error) error {
		if c.Op != op {
			return do()
		}
		return h(ctx, c, do)
	})
}

// Before sets what happens before each later call of a method, or with "" before all calls. The calls are made.
func (p *Process) Before(op string, first func()) {
	p.On(func(_ context.Context, c Call, do func() error) error {
		if op == "" || c.Op == op {
			first()
		}
		return do()
	})
}

// Fail makes all calls of a method fail, and returns the process.
func (p *Process) Fail(op string, with func(op string) error) *Process {
	p.OnOp(op, func(context.Context, Call, func() error) error { return with(op) })
	return p
}

// Kill ends the process: none of its calls reaches the store any more.
func (p *Process) Kill() {
	p.On(func(_ context.Context, c Call, _ func() error) error { return Unavailable(c.Op) })
}

// Freeze stops the process: its calls wait until it is thawed, and then take effect.
func (p *Process) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

// Thaw ends what Freeze began.
func (p *Process) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = nil
}

// Unavailable is the error of a call that had no effect.
func Unavailable(op string) error {
	return &storage.Error{Op: op, Err: fmt.Errorf("%w: injected", storage.ErrUnavailable)}
}

// Unknown is the error of a call that may have had an effect.
func Unknown(op string) error {
	return &storage.Error{Op: op, Err: fmt.Errorf("%w: injected", storage.ErrUnknown)}
}

// call makes a call of the process. The results of a search pass what OnResult has set when they come.
func (p *Process) call(c *hooked.Call) (err error) {
	p.mu.Lock()
	h, frozen := p.hook, p.frozen
	p.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	if h == nil {
		err = c.Do()
	} else {
		err = h(c.Ctx, Call{c.Op, c.ID, c.Object}, c.Do)
	}
	if found := c.Listing; err == nil && found != nil {
		c.Listing = func(yield func(storage.Stream[storage.ListResult]) bool) {
			for r := range found {
				p.mu.Lock()
				change := p.result
				p.mu.Unlock()
				if change != nil {
					r = change(r)
				}
				if !yield(r) {
					return
				}
			}
		}
	}
	return err
}
