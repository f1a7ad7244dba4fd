// Package processtest puts processes on one store, in tests of what they do to each other: a process is slow, cut
// off, frozen or killed, or dies at one of its calls, while the others go on. In a bubble of testing/synctest all of
// them have one virtual clock.
package processtest

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Store is what a process uses: a vault in memory, or one on the emulator.
type Store interface {
	storage.Vault
	storage.Members
}

// Call is a call of a process.
type Call struct {
	Op     string          // the name of the method
	Plan   uuid.UUID       // the plan that is read, or asked to stop
	Object workflow.Object // the object that is created or updated
}

// Hook decides what becomes of a call, which do makes.
type Hook func(ctx context.Context, c Call, do func() error) error

// Process is a store as one process sees it. It is safe for concurrent use.
type Process struct {
	// Store is the store itself.
	Store

	mu     sync.Mutex
	hook   Hook
	result func(storage.Stream[storage.ListResult]) storage.Stream[storage.ListResult]
	frozen chan struct{} // closed when the process goes on; nil if it is not frozen
}

// New returns a process on a store.
func New(store Store) *Process { return &Process{Store: store} }

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

func (p *Process) call(ctx context.Context, c Call, do func() error) error {
	p.mu.Lock()
	h, frozen := p.hook, p.frozen
	p.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	if h == nil {
		return do()
	}
	return h(ctx, c, do)
}

// get makes a call that has a result.
func get[T any](ctx context.Context, p *Process, c Call, do func() (T, error)) (result T, err error) {
	err = p.call(ctx, c, func() (err error) {
		result, err = do()
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

// Search passes the hook, and its results pass what OnResult has set when they come.
func (p *Process) Search(ctx context.Context, f storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	found, err := get(ctx, p, Call{Op: "Search"}, func() (iter.Seq[storage.Stream[storage.ListResult]], error) { return p.Store.Search(ctx, f) })
	if err != nil {
		return nil, err
	}
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
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
	}, nil
}

// The following methods pass the hook, too.

func (p *Process) Create(ctx context.Context, o *workflow.Plan) error {
	return p.call(ctx, Call{Op: "Create", Object: o}, func() error { return p.Store.Create(ctx, o) })
}

func (p *Process) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	return get(ctx, p, Call{Op: "Read", Plan: id}, func() (*workflow.Plan, error) { return p.Store.Read(ctx, id) })
}

func (p *Process) UpdatePlan(ctx context.Context, o *workflow.Plan) error {
	return p.call(ctx, Call{Op: "UpdatePlan", Object: o}, func() error { return p.Store.UpdatePlan(ctx, o) })
}

func (p *Process) UpdateChecks(ctx context.Context, o *workflow.Checks) error {
	return p.call(ctx, Call{Op: "UpdateChecks", Object: o}, func() error { return p.Store.UpdateChecks(ctx, o) })
}

func (p *Process) UpdateBlock(ctx context.Context, o *workflow.Block) error {
	return p.call(ctx, Call{Op: "UpdateBlock", Object: o}, func() error { return p.Store.UpdateBlock(ctx, o) })
}

func (p *Process) UpdateSequence(ctx context.Context, o *workflow.Sequence) error {
	return p.call(ctx, Call{Op: "UpdateSequence", Object: o}, func() error { return p.Store.UpdateSequence(ctx, o) })
}

func (p *Process) UpdateAction(ctx context.Context, o *workflow.Action) error {
	return p.call(ctx, Call{Op: "UpdateAction", Object: o}, func() error { return p.Store.UpdateAction(ctx, o) })
}

func (p *Process) UpdateDeferredActions(ctx context.Context, o *workflow.DeferredActions) error {
	return p.call(ctx, Call{Op: "UpdateDeferredActions", Object: o}, func() error { return p.Store.UpdateDeferredActions(ctx, o) })
}

func (p *Process) UpdateDeferBatch(ctx context.Context, o *workflow.DeferBatch) error {
	return p.call(ctx, Call{Op: "UpdateDeferBatch", Object: o}, func() error { return p.Store.UpdateDeferBatch(ctx, o) })
}

func (p *Process) Recovery(ctx context.Context) error {
	return p.call(ctx, Call{Op: "Recovery"}, func() error { return p.Store.Recovery(ctx) })
}

func (p *Process) AddMember(ctx context.Context, m storage.Member) (string, error) {
	return get(ctx, p, Call{Op: "AddMember"}, func() (string, error) { return p.Store.AddMember(ctx, m) })
}

func (p *Process) RenewMember(ctx context.Context, m storage.Member) (string, error) {
	return get(ctx, p, Call{Op: "RenewMember"}, func() (string, error) { return p.Store.RenewMember(ctx, m) })
}

func (p *Process) FindMember(ctx context.Context, id uuid.UUID) (storage.Member, error) {
	return get(ctx, p, Call{Op: "FindMember"}, func() (storage.Member, error) { return p.Store.FindMember(ctx, id) })
}

func (p *Process) Roster(ctx context.Context) (storage.Roster, error) {
	return get(ctx, p, Call{Op: "Roster"}, func() (storage.Roster, error) { return p.Store.Roster(ctx) })
}

func (p *Process) RemoveMember(ctx context.Context, id uuid.UUID, version string) error {
	return p.call(ctx, Call{Op: "RemoveMember"}, func() error { return p.Store.RemoveMember(ctx, id, version) })
}

func (p *Process) RequestStop(ctx context.Context, plan uuid.UUID) error {
	return p.call(ctx, Call{Op: "RequestStop", Plan: plan}, func() error { return p.Store.RequestStop(ctx, plan) })
}

func (p *Process) RemoveStop(ctx context.Context, plan uuid.UUID, version string) error {
	return p.call(ctx, Call{Op: "RemoveStop", Plan: plan}, func() error { return p.Store.RemoveStop(ctx, plan, version) })
}
