package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// onStore calls do in virtual time, with a store in memory.
func onStore(t *testing.T, do func(t *testing.T, store *memvault.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { do(t, memvault.NewStore()) })
}

// onStores does so for each of a list.
func onStores[T any](t *testing.T, list []T, do func(t *testing.T, store *memvault.Store, of T)) {
	t.Helper()
	for _, of := range list {
		onStore(t, func(t *testing.T, store *memvault.Store) { do(t, store, of) })
	}
}

// storeRun is a subtest with a store.
func storeRun(t *testing.T, name string, do func(t *testing.T, store *memvault.Store)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { onStore(t, do) })
}

func open(store *memvault.Store) *processtest.Process {
	return processtest.New(store.Open(plantest.Register(), memvault.Options{}))
}

// ana asks for what people ask for.
var ana = workflow.Attribution{By: "ana@ops"}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails fails the test unless err is the wanted one. The text says what returned it.
func fails(t testing.TB, err, want error, what string, args ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(what, args...), err, want)
	}
}

func join(t testing.TB, p storage.Vault, o fleet.Options) *fleet.Node {
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

// start joins as a new process.
func start(t testing.TB, store *memvault.Store, o fleet.Options) (*processtest.Process, *fleet.Node) {
	t.Helper()
	p := open(store)
	return p, join(t, p, o)
}

// scene is a store with a process and its node, for which a test makes a plan.
type scene struct {
	t     *testing.T
	store *memvault.Store
	p     *processtest.Process
	n     *fleet.Node // or nil
}

// making stores a plan in some state.
type making func(s scene) *workflow.Plan

func unbegun(s scene) *workflow.Plan    { return create(s.t, s.p, 2) }
func ofTheNode(s scene) *workflow.Plan  { return claimed(s.t, s.p, s.n, 2) }
func orphaned(s scene) *workflow.Plan   { return orphan(s.t, s.p, plantest.Small()) }
func unclaimed(s scene) *workflow.Plan  { return ownerless(s.t, s.p, 2) }
func unknownOne(scene) *workflow.Plan   { return &workflow.Plan{ID: workflow.NewV7()} }
func ofTheQueue(s scene) *workflow.Plan { _, plan := placed(s.t, s.p); return plan }

func ended(s scene) *workflow.Plan {
	plan := orphaned(s)
	must(s.t, finish(s.t.Context(), s.p, plan))
	return plan
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

// claimed stores a plan and claims it for a node.
func claimed(t testing.TB, v storage.Vault, n *fleet.Node, actions int) *workflow.Plan {
	t.Helper()
	plan := create(t, v, actions)
	must(t, n.Claim(t.Context(), plan))
	return plan
}

// ownerless stores a plan that an engine without claims has begun.
func ownerless(t testing.TB, v storage.Vault, actions int) *workflow.Plan {
	t.Helper()
	plan := create(t, v, actions)
	must(t, moves(t.Context(), v, plan, workflow.Running))
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

// plans ranges over the node's plans in a goroutine of its own, and sends each to the channel that it returns. An
// error fails the test.
func plans(ctx context.Context, t testing.TB, n *fleet.Node) <-chan *workflow.Plan {
	found, errs := results(ctx, n)
	go func() {
		for err := range errs {
			t.Error(err)
		}
	}()
	return found
}

// results is plans with the errors.
func results(ctx context.Context, n *fleet.Node) (<-chan *workflow.Plan, <-chan error) {
	found, errs := make(chan *workflow.Plan, 10000), make(chan error, 10000)
	go func() {
		defer close(found)
		defer close(errs)
		for next := range n.Plans(ctx) {
			if next.Err != nil {
				errs <- next.Err
				continue
			}
			found <- next.Result
		}
	}()
	return found, errs
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
