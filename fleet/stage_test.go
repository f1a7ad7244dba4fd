package fleet_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// process is the store as one process of a fleet sees it. A test decides what becomes of its calls.
type process struct {
	store  fleet.Store
	mu     sync.Mutex
	hook   hook
	frozen chan struct{} // closed when the process goes on; nil if it is not frozen
}

// hook handles a call of a process. do makes the call.
type hook func(ctx context.Context, op string, do func() error) error

func open(store *memvault.Store) *process { return &process{store: store.Open(plantest.Register())} }

// on sets what becomes of later calls.
func (p *process) on(h hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = h
}

// freeze stops the process: its calls wait until it is thawed, and then take effect.
func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = nil
}

// kill ends the process: none of its calls reaches the store any more.
func (p *process) kill() {
	p.on(func(ctx context.Context, op string, _ func() error) error { return unavailable(op) })
}

func unavailable(op string) error {
	return &storage.Error{Op: op, Err: fmt.Errorf("%w: injected", storage.ErrUnavailable)}
}

func unknown(op string) error {
	return &storage.Error{Op: op, Err: fmt.Errorf("%w: injected", storage.ErrUnknown)}
}

func (p *process) call(ctx context.Context, op string, do func() error) error {
	p.mu.Lock()
	h, frozen := p.hook, p.frozen
	p.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	if h == nil {
		return do()
	}
	return h(ctx, op, do)
}

func get[T any](p *process, ctx context.Context, op string, do func() (T, error)) (result T, err error) {
	err = p.call(ctx, op, func() (err error) {
		result, err = do()
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

func (p *process) Create(ctx context.Context, plan *workflow.Plan) error {
	return p.call(ctx, "Create", func() error { return p.store.Create(ctx, plan) })
}

func (p *process) Exists(ctx context.Context, id uuid.UUID) (bool, error) {
	return get(p, ctx, "Exists", func() (bool, error) { return p.store.Exists(ctx, id) })
}

func (p *process) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	return get(p, ctx, "Read", func() (*workflow.Plan, error) { return p.store.Read(ctx, id) })
}

func (p *process) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return get(p, ctx, "List", func() (iter.Seq[storage.Stream[storage.ListResult]], error) { return p.store.List(ctx, limit) })
}

func (p *process) Search(ctx context.Context, f storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return get(p, ctx, "Search", func() (iter.Seq[storage.Stream[storage.ListResult]], error) { return p.store.Search(ctx, f) })
}

func (p *process) Count(ctx context.Context, f storage.Filters) (int64, error) {
	return get(p, ctx, "Count", func() (int64, error) { return p.store.Count(ctx, f) })
}

func (p *process) UpdatePlan(ctx context.Context, o *workflow.Plan) error {
	return p.call(ctx, "UpdatePlan", func() error { return p.store.UpdatePlan(ctx, o) })
}

func (p *process) UpdateChecks(ctx context.Context, o *workflow.Checks) error {
	return p.call(ctx, "UpdateChecks", func() error { return p.store.UpdateChecks(ctx, o) })
}

func (p *process) UpdateBlock(ctx context.Context, o *workflow.Block) error {
	return p.call(ctx, "UpdateBlock", func() error { return p.store.UpdateBlock(ctx, o) })
}

func (p *process) UpdateSequence(ctx context.Context, o *workflow.Sequence) error {
	return p.call(ctx, "UpdateSequence", func() error { return p.store.UpdateSequence(ctx, o) })
}

func (p *process) UpdateAction(ctx context.Context, o *workflow.Action) error {
	return p.call(ctx, "UpdateAction", func() error { return p.store.UpdateAction(ctx, o) })
}

func (p *process) UpdateDeferredActions(ctx context.Context, o *workflow.DeferredActions) error {
	return p.call(ctx, "UpdateDeferredActions", func() error { return p.store.UpdateDeferredActions(ctx, o) })
}

func (p *process) UpdateDeferBatch(ctx context.Context, o *workflow.DeferBatch) error {
	return p.call(ctx, "UpdateDeferBatch", func() error { return p.store.UpdateDeferBatch(ctx, o) })
}

func (p *process) Delete(ctx context.Context, id uuid.UUID) error {
	return p.call(ctx, "Delete", func() error { return p.store.Delete(ctx, id) })
}

func (p *process) Recovery(ctx context.Context) error {
	return p.call(ctx, "Recovery", func() error { return p.store.Recovery(ctx) })
}

func (p *process) Close(ctx context.Context) error { return p.store.Close(ctx) }

func (p *process) AddMember(ctx context.Context, m storage.Member) (string, error) {
	return get(p, ctx, "AddMember", func() (string, error) { return p.store.AddMember(ctx, m) })
}

func (p *process) RenewMember(ctx context.Context, m storage.Member) (string, error) {
	return get(p, ctx, "RenewMember", func() (string, error) { return p.store.RenewMember(ctx, m) })
}

func (p *process) FindMember(ctx context.Context, id uuid.UUID) (storage.Member, error) {
	return get(p, ctx, "FindMember", func() (storage.Member, error) { return p.store.FindMember(ctx, id) })
}

func (p *process) Roster(ctx context.Context) (storage.Roster, error) {
	return get(p, ctx, "Roster", func() (storage.Roster, error) { return p.store.Roster(ctx) })
}

func (p *process) RemoveMember(ctx context.Context, id uuid.UUID, version string) error {
	return p.call(ctx, "RemoveMember", func() error { return p.store.RemoveMember(ctx, id, version) })
}

func (p *process) RequestStop(ctx context.Context, plan uuid.UUID) error {
	return p.call(ctx, "RequestStop", func() error { return p.store.RequestStop(ctx, plan) })
}

func (p *process) RemoveStop(ctx context.Context, plan uuid.UUID, version string) error {
	return p.call(ctx, "RemoveStop", func() error { return p.store.RemoveStop(ctx, plan, version) })
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func join(t testing.TB, p fleet.Store, o fleet.Options) *fleet.Node {
	t.Helper()
	n, err := fleet.Join(t.Context(), p, o)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_ = n.Leave(ctx) // it fails if the process was killed
	})
	return n
}

func leave(t testing.TB, n *fleet.Node) {
	t.Helper()
	must(t, n.Leave(context.WithoutCancel(t.Context())))
}

// create stores a plan with one sequence of actions.
func create(t testing.TB, v storage.Vault, actions int) *workflow.Plan {
	t.Helper()
	plan := plantest.Sized(1, 1, actions)
	must(t, v.Create(t.Context(), plan))
	return plan
}

func read(t testing.TB, v storage.Vault, id uuid.UUID) *workflow.Plan {
	t.Helper()
	plan, err := v.Read(t.Context(), id)
	must(t, err)
	return plan
}

// moves stores an object with another status.
func moves(ctx context.Context, v storage.Vault, o workflow.Object, status workflow.Status) error {
	o.Header().State.Status = status
	return storage.Update(ctx, v, o)
}

// actions returns the actions of a plan, in order.
func actions(plan *workflow.Plan) (list []*workflow.Action) {
	for o := range workflow.Walk(plan) {
		if a, ok := o.(*workflow.Action); ok {
			list = append(list, a)
		}
	}
	return list
}

// finish runs what is left of a plan, without plugins.
func finish(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
	for _, a := range actions(plan) {
		for a.State.Status != workflow.Completed {
			if err := moves(ctx, v, a, a.State.Status+1); err != nil {
				return err
			}
		}
	}
	return moves(ctx, v, plan, workflow.Completed)
}

// plans ranges over the node's plans in a goroutine of its own, and sends each to the channel that it returns.
func plans(ctx context.Context, t testing.TB, n *fleet.Node) <-chan *workflow.Plan {
	found := make(chan *workflow.Plan, 10000)
	go func() {
		defer close(found)
		for plan, err := range n.Plans(ctx) {
			if err != nil {
				t.Error(err)
				continue
			}
			found <- plan
		}
	}()
	return found
}

// within returns the next plan, which must come before d has passed.
func within(t testing.TB, found <-chan *workflow.Plan, d time.Duration) *workflow.Plan {
	t.Helper()
	select {
	case plan := <-found:
		return plan
	case <-time.After(d):
		t.Fatalf("no plan within %v", d)
		return nil
	}
}
