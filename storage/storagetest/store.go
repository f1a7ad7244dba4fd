package storagetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// storing is a method that stores a whole plan: Create or Restore.
type storing struct {
	op string
	// ready prepares the nth plan for the method, and gives it an ID.
	ready func(plan *workflow.Plan, n int) *workflow.Plan
	store func(ctx context.Context, v storage.Vault, plan *workflow.Plan) error
	// bad are plans that it refuses.
	bad []plantest.BadPlan
}

var (
	creating = storing{
		op: "Create",
		ready: func(plan *workflow.Plan, _ int) *workflow.Plan {
			plan.ID = workflow.NewV7()
			return plan
		},
		store: func(ctx context.Context, v storage.Vault, plan *workflow.Plan) error { return v.Create(ctx, plan) },
		bad:   append(plantest.BadPlans(), plantest.BadNewPlans()...),
	}
	restoring = storing{
		op:    "Restore",
		ready: func(plan *workflow.Plan, n int) *workflow.Plan { return copied(plan, statuses[n%5]) },
		store: func(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
			return v.(storage.Restorer).Restore(ctx, plan)
		},
		bad: append(
			plantest.BadPlans(),
			plantest.BadPlan{Field: "ID", Edit: func(p *workflow.Plan) { p.ID = uuid.Nil }},
			plantest.BadPlan{Field: "Blocks[0].ID", Edit: func(p *workflow.Plan) { p.Blocks[0].ID = uuid.Nil }},
		),
	}
)

// promises are those of both methods.
func (m storing) promises() (list []promise) {
	for _, p := range []struct {
		name string
		test func(m storing, s *stage)
	}{
		{"plans of any shape and text come back as they were", storing.anyShape},
		{"no reader sees a plan before it is whole", storing.notSeenEarly},
		{"if two nodes " + strings.ToLower(m.op) + " one ID at once, one wins", storing.race},
		{"an ID that is taken is ErrExists, and the plan stays as it is", storing.exists},
		{"bad input is ErrInvalid with the field, and nothing is stored", storing.invalid},
		{"a death at any request leaves a whole plan or none, and Recovery removes the remains", storing.death},
		{"after an unknown outcome " + m.op + " can be called again with the same plan", storing.unknown},
	} {
		list = append(list, promise{p.name, func(s *stage) {
			if m.op == "Restore" {
				offers[storage.Restorer](s, s.vault)
			}
			p.test(m, s)
		}})
	}
	return list
}

func (m storing) death(s *stage) { recovered(m.write())(s) }

// write is the method as a write in which a process dies.
func (m storing) write() write {
	return write{op: m.op, begin: func(_ *stage, n int) (before, plan *workflow.Plan) {
		if plan = allKinds(); m.op == "Restore" {
			plan = m.ready(plan, n)
		}
		return nil, plan
	}, do: func(ctx context.Context, v storage.Vault, plan *workflow.Plan) error { return m.store(ctx, v, plan) }}
}

func (m storing) anyShape(s *stage) {
	for seed := range uint64(12) {
		plan := m.ready(plantest.Random(seed), int(seed))
		given := plantest.Clone(plan)
		s.must(m.store(s.ctx, s.vault, plan))
		if m.op == "Create" { // which completes the plan
			given = plan
		}
		if s.same(given, s.read(s.vault, plan.ID)); s.Failed() {
			s.Fatalf("the plan was plantest.Random(%d)", seed)
		}
	}
}

func (m storing) notSeenEarly(s *stage) {
	for n := range 3 {
		plan := m.ready(plantest.Sized(2, 3, 4), n)
		id, status := plan.ID, plan.State.Status
		other := s.open()
		var early *workflow.Plan
		s.during(func() error { return m.store(s.ctx, other, plan) }, func(done bool) {
			got, err := s.vault.Read(s.ctx, id)
			switch {
			case err == nil:
				early = got
			case done, early != nil:
				s.Fatalf("Read after it had found the plan: %v", err)
			default:
				s.want(storage.ErrNotFound, "Read", id, err)
			}
			for _, r := range append(s.list(s.vault), s.search(s.vault, storage.Filters{ByStatus: []workflow.Status{status}})...) {
				if _, err := s.vault.Read(s.ctx, r.ID); err != nil {
					s.Errorf("Read of a plan that a listing yields: %v", err)
				}
			}
		})
		s.same(plan, early)
	}
}

func (m storing) race(s *stage) {
	nodes := []storage.Vault{s.vault, s.open()}
	for n := range 8 {
		plans := make([]*workflow.Plan, 4)
		first := m.ready(allKinds(), n)
		won := s.oneWins(len(plans), func(i int) error {
			plans[i] = plantest.Clone(first)
			plans[i].Name = fmt.Sprint("of ", i)
			return m.store(s.ctx, nodes[i%2], plans[i])
		}, func(err error) {
			if !errors.Is(err, storage.ErrConflict) { // the winner was not finished yet
				s.want(storage.ErrExists, m.op, first.ID, err)
			}
		})
		s.shows(s.vault, plans[won])
		s.want(storage.ErrExists, m.op, first.ID, m.store(s.ctx, s.vault, plantest.Clone(first)))
	}
	s.recoverAll() // those that lost may have left a marker
}

func (m storing) exists(s *stage) {
	for _, plan := range []*workflow.Plan{s.create(plantest.Full()), s.started(allKinds()), s.completed(allKinds())} {
		other, same := plantest.Small(), plantest.Clone(plan)
		if other.ID = plan.ID; m.op == "Create" {
			same = authored(plan)
		} else {
			other = copied(other, workflow.Completed)
			moveTo(other, plan.ID)
		}
		s.want(storage.ErrExists, m.op, plan.ID, m.store(s.ctx, s.vault, other))
		s.want(storage.ErrExists, m.op, plan.ID, m.store(s.ctx, s.open(), same))
		s.shows(s.vault, plan)
	}
	s.recoverAll() // the calls that failed may have left remains
}

// moveTo gives a plan another ID.
func moveTo(plan *workflow.Plan, id uuid.UUID) {
	plan.ID = id
	for o := range workflow.Walk(plan) {
		*o.Header().PlanID = id
	}
}

func (m storing) invalid(s *stage) {
	for _, bad := range m.bad {
		plan := plantest.Full()
		if m.op == "Restore" {
			plan = m.ready(plan, int(workflow.Completed))
		}
		bad.Edit(plan)
		s.names(bad.Field, m.op, uuid.Nil, m.store(s.ctx, s.vault, plan))
	}
	s.want(storage.ErrInvalid, m.op, uuid.Nil, m.store(s.ctx, s.vault, nil))
	if list := s.list(s.vault); len(list) > 0 {
		s.Errorf("%d plans were stored, such as %+v", len(list), list[0])
	}
}

func (m storing) unknown(s *stage) {
	var blocked []*workflow.Plan
	for l := range s.dies(m.write()) {
		switch err := m.store(s.ctx, s.vault, l.plan); {
		case l.shown != nil:
			s.want(storage.ErrExists, m.op, l.plan.ID, err)
		case errors.Is(err, storage.ErrConflict): // until Recovery removes the remains
			s.want(storage.ErrConflict, m.op, l.plan.ID, err)
			blocked = append(blocked, l.plan)
		default:
			s.must(err)
			s.shows(s.vault, l.plan)
		}
	}
	s.recoverAll()
	for _, plan := range blocked {
		s.must(m.store(s.ctx, s.vault, plan))
		s.shows(s.vault, plan)
	}
}
