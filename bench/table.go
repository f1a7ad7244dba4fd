package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// row is an operation on a plan of some size or in a vault of some shape.
type row struct {
	operation
	size  size
	vault shape
	// period is how long the operation waits, if it counts what a node does meanwhile. It has no round trips
	// then, and can only be measured in virtual time.
	period time.Duration
	// long rows are left out by -short.
	long bool
}

// String returns the row's name.
func (r row) String() string {
	switch {
	case r.size.name != "":
		return r.operation.name + ", " + r.size.name
	case r.vault.plans == 0:
		return r.operation.name
	}
	return r.operation.name + ", " + r.vault.String()
}

// operation is what a user does with a vault.
type operation struct {
	name string
	// prepare creates what the operation needs and returns the operation, which is measured.
	prepare prepare
	budget  func(subject) budget
}

type (
	prepare func(context.Context, *scene) (step, error)
	step    func(context.Context) error
)

// scene is where an operation takes place.
type scene struct {
	vault *azblob.Vault
	size  size
	// filling is the contents of the vault.
	filling fill.Filling
	period  time.Duration
	// owner is that of the stored plan.
	owner uuid.UUID
	// again undoes what the operation has changed in memory, for operations that are repeated; nil for nothing.
	again func()
	// after is called when the operation has been measured; nil for nothing.
	after func(context.Context) error
}

// table returns all rows: operations on plans, then operations in vaults, grouped by shape so that each vault
// is filled once.
func table() (rows []row) {
	for _, o := range onPlans() {
		for _, s := range sizes() {
			rows = append(rows, row{operation: o, size: s})
		}
	}
	for _, v := range shapes() {
		for _, o := range inVaults() {
			rows = append(rows, row{operation: o, vault: v, long: v.plans >= largestVault})
		}
	}
	for _, plans := range []int{1_000, 2_500, 5_000, 10_000, 100_000, largestVault} {
		for _, o := range amongOpen() {
			rows = append(rows, row{operation: o, vault: shape{plans: plans, days: 14, open: 1_000}, long: plans >= largestVault})
		}
	}
	for _, v := range []shape{{plans: 10_000, days: 14, open: 1_000, waiting: true}, {plans: 10_000, days: 1, open: 10_000, waiting: true}} {
		rows = append(rows, row{operation: amongOpen()[1], vault: v})
	}
	return append(rows, append(fleetRows(), engineRows()...)...)
}

func onPlans() []operation {
	return []operation{
		{"Create", create(false), func(s subject) budget { return budget{s.n() + 3, 3 + ceil(s.n(), concurrency)} }},
		{"Create, first of a day", create(true), func(s subject) budget { return budget{s.n() + 4, 4 + ceil(s.n(), concurrency)} }},
		{"UpdateAction", onStored(workflow.Running, none, updateAction), fixed(1, 1)},
		{"UpdatePlan, running", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.UpdatePlan(ctx, p)
		}), fixed(2, 1)},
		{"UpdatePlan, final", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			p.State.Status = workflow.Completed
			return v.UpdatePlan(ctx, p)
		}), fixed(3, 3)},
		{"Exists", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			_, err := v.Exists(ctx, p.ID)
			return err
		}), fixed(1, 1)},
		{"Read, not started", onStored(workflow.NotStarted, none, readPlan), fixed(2, 1)},
		{"Read, running, few changed", onStored(workflow.Running, few, readPlan), readRunning(few)},
		{"Read, running, all actions changed", onStored(workflow.Running, all, readPlan), readRunning(all)},
		{"Read, final", onStored(workflow.Completed, none, readPlan), fixed(2, 1)},
		{"Search by ID", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return exhaust(ctx, v, matching(storage.Filters{ByIDs: []uuid.UUID{p.ID}}), 1)
		}), fixed(2, 1)},
		{"Delete", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.Delete(ctx, p.ID)
		}), func(s subject) budget { return budget{7 + ceil(s.n(), 256), 6} }},
	}
}

// create measures the first Create of a day, or a later one.
func create(first bool) prepare {
	return func(ctx context.Context, s *scene) (step, error) {
		if !first {
			if err := s.vault.Create(ctx, plantest.Small()); err != nil {
				return nil, err
			}
		}
		p := s.size.plan()
		s.again = func() { p = s.size.plan() }
		return func(ctx context.Context) error { return s.vault.Create(ctx, p) }, nil
	}
}

// onStored measures do on a stored plan of a status. Some of its actions were updated after Create; changed
// says how many.
func onStored(status workflow.Status, changed func(actions int) int, do func(context.Context, *azblob.Vault, *workflow.Plan) error) prepare {
	return func(ctx context.Context, s *scene) (step, error) {
		p := s.size.plan()
		if err := s.vault.Create(ctx, p); err != nil {
			return nil, err
		}
		if status != workflow.NotStarted {
			p.State.Status = workflow.Running
			if p.Owner = s.owner; s.owner != uuid.Nil {
				p.Epoch = 1
			}
			if err := s.vault.UpdatePlan(ctx, p); err != nil {
				return nil, err
			}
		}
		actions := actionsOf(p)
		for _, a := range actions[:changed(len(actions))] {
			a.State.Status = workflow.Running
			if err := s.vault.UpdateAction(ctx, a); err != nil {
				return nil, err
			}
		}
		if status.Final() {
			p.State.Status = status
			if err := s.vault.UpdatePlan(ctx, p); err != nil {
				return nil, err
			}
		}
		stored := p.State
		s.again = func() { p.State = stored }
		return func(ctx context.Context) error { return do(ctx, s.vault, p) }, nil
	}
}

func none(int) int  { return 0 }
func few(n int) int { return ceil(n, 100) }
func all(n int) int { return n }

func updateAction(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
	return v.UpdateAction(ctx, p.Blocks[0].Sequences[0].Actions[0])
}

func readPlan(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
	_, err := v.Read(ctx, p.ID)
	return err
}

func inVaults() []operation {
	const page = 10
	return []operation{
		{"List(10)", found(page, func(fill.Filling) query { return list(page) }), fixed(4, 4)},
		{"BeforeID, page of 10", found(page, func(f fill.Filling) query {
			return matching(storage.Filters{BeforeID: f.ID(f.Plans / 2), Limit: page})
		}), fixed(4, 4)},
		{"Search by ID", found(1, func(f fill.Filling) query {
			return matching(storage.Filters{ByIDs: []uuid.UUID{f.ID(f.Plans / 2)}})
		}), fixed(2, 1)},
		{"Search Running", found(fill.RunningPlans, func(fill.Filling) query {
			return matching(storage.Filters{ByStatus: []workflow.Status{workflow.Running}})
		}), searchRunning},
		{"Recovery", func(_ context.Context, s *scene) (step, error) { return s.vault.Recovery, nil }, recovery},
		{"Search by group", found(fill.GroupPlans, func(f fill.Filling) query {
			return matching(storage.Filters{ByGroupIDs: []uuid.UUID{f.Group(f.Plans / 2)}})
		}), scan},
		{"List(all)", found(everyPlan, func(fill.Filling) query { return list(0) }), scan},
	}
}

// amongOpen returns what looks at each open plan of a vault.
func amongOpen() []operation {
	return []operation{
		{"Search Running", func(ctx context.Context, s *scene) (step, error) {
			return found(s.filling.Open, func(fill.Filling) query {
				return matching(storage.Filters{ByStatus: []workflow.Status{workflow.Running}})
			})(ctx, s)
		}, lookAtOpen(1)},
		{"Recovery", func(_ context.Context, s *scene) (step, error) { return s.vault.Recovery, nil }, lookAtOpen(2)},
	}
}

// query is a List or Search.
type query func(context.Context, *azblob.Vault) (iter.Seq[storage.Stream[storage.ListResult]], error)

func list(limit int) query {
	return func(ctx context.Context, v *azblob.Vault) (iter.Seq[storage.Stream[storage.ListResult]], error) {
		return v.List(ctx, limit)
	}
}

func matching(f storage.Filters) query {
	return func(ctx context.Context, v *azblob.Vault) (iter.Seq[storage.Stream[storage.ListResult]], error) {
		return v.Search(ctx, f)
	}
}

// everyPlan means all plans of the vault.
const everyPlan = -1

// found measures a query in a filled vault. The query must yield the wanted number of plans.
func found(want int, q func(fill.Filling) query) prepare {
	return func(_ context.Context, s *scene) (step, error) {
		n := want
		if n == everyPlan {
			n = s.filling.Plans
		}
		return func(ctx context.Context) error { return exhaust(ctx, s.vault, q(s.filling), n) }, nil
	}
}

// exhaust consumes the results of a query. It fails unless there are as many plans as wanted.
func exhaust(ctx context.Context, v *azblob.Vault, q query, want int) error {
	results, err := q(ctx, v)
	if err != nil {
		return err
	}
	n := 0
	for r := range results {
		if r.Err != nil {
			return r.Err
		}
		n++
	}
	if n != want {
		return fmt.Errorf("found %d plans, want %d", n, want)
	}
	return nil
}
