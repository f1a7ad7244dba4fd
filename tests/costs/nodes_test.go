package costs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// fleetRows returns what a fleet costs: the operations on a plan, and a node with the default settings over some time.
func fleetRows() (rows []row) {
	claim := operation{"fleet: claim", withQuietNode(workflow.NotStarted, func(ctx context.Context, node *fleet.Node, p *workflow.Plan) error {
		return node.Claim(ctx, p)
	})}
	take := operation{"fleet: take", withQuietNode(workflow.Running, func(ctx context.Context, node *fleet.Node, p *workflow.Plan) error {
		return vaulttest.ErrOf(node.Take(ctx, p.ID))
	})}
	for _, o := range []operation{claim, take} {
		for _, s := range sizes {
			rows = append(rows, row{operation: o, size: s})
		}
		rows = append(rows, row{operation: o, size: sizes[1], atOnce: 8})
	}
	for _, o := range []operation{
		{"fleet: take a turn", withTurn(true, fleet.TakeTurns)},
		{"fleet: take a turn of a new key", withTurn(false, fleet.TakeTurns)},
		{"fleet: UpdatePlan, final, and give a turn back", withTurn(true, func(ctx context.Context, v storage.Vault, p *workflow.Plan) error {
			p.State.Status = workflow.Completed
			return errors.Join(v.UpdatePlan(ctx, p), fleet.GiveTurns(ctx, v, p))
		})},
	} {
		rows = append(rows, row{operation: o, size: sizes[0]})
	}
	fortnight := shape{plans: 100, days: 14}
	return append(rows,
		row{operation: operation{"fleet: an hour of an idle node", idleNode}, period: time.Hour},
		row{operation: operation{"fleet: a day of an idle node", idleNode}, period: 24 * time.Hour, rare: true},
		row{operation: operation{"fleet: a day", idleNode}, vault: fortnight, period: 24 * time.Hour},
		row{operation: operation{"fleet: two minutes beside 1000 open plans", beside(1000)}, period: 2 * time.Minute},
		row{operation: operation{"fleet: an hour beside 10000 open plans", beside(10_000)}, period: time.Hour, long: true},
		row{operation: operation{"fleet: five minutes", idleNode}, vault: fortnight, period: 5 * time.Minute},
		row{operation: operation{"fleet: five minutes with a death", besideDying}, vault: fortnight, period: 5 * time.Minute},
	)
}

// withQuietNode prepares a node that sends no requests of its own, and a plan of this status whose owner is dead.
func withQuietNode(status workflow.Status, do func(context.Context, *fleet.Node, *workflow.Plan) error) func(testing.TB, *scene) func() {
	return func(t testing.TB, s *scene) func() {
		node, err := fleet.Join(t.Context(), s.vault, fleet.Options{Interval: time.Hour})
		vaulttest.Must(t, err)
		t.Cleanup(func() { vaulttest.Must(t, node.Leave(context.Background())) })
		if status != workflow.NotStarted {
			s.owner = workflow.NewV7()
		}
		return onStored(status, all, func(ctx context.Context, _ *azblob.Vault, p *workflow.Plan) error { return do(ctx, node, p) })(t, s)
	}
}

// withTurn measures do for a running plan that is alone with its key. Another plan had a turn before if the key is known.
func withTurn(known bool, do func(context.Context, storage.Vault, *workflow.Plan) error) func(testing.TB, *scene) func() {
	return func(t testing.TB, s *scene) func() {
		p := s.plan()
		p.Keys = []workflow.Key{{Name: "a"}}
		vaulttest.Must(t, s.vault.Create(t.Context(), p))
		p.State.Status = workflow.Running
		vaulttest.Must(t, s.vault.UpdatePlan(t.Context(), p))
		if known {
			vaulttest.Must(t, fleet.TakeTurns(t.Context(), s.vault, p))
		}
		return func() { vaulttest.Must(t, do(t.Context(), s.vault, p)) }
	}
}

// settled is when a new node has made its first searches.
const settled = 15 * time.Second

// idleNode joins and looks for plans.
func idleNode(t testing.TB, s *scene) func() {
	node, err := fleet.Join(t.Context(), s.vault, fleet.Options{})
	vaulttest.Must(t, err)
	looking, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for next := range node.Plans(looking) {
			t.Errorf("the node got %+v", next)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		vaulttest.Must(t, node.Leave(context.Background()))
	})
	time.Sleep(settled)
	return func() { time.Sleep(s.period) }
}

// beside prepares an idle node beside open plans of another one.
func beside(plans int) func(testing.TB, *scene) func() {
	return func(t testing.TB, s *scene) func() {
		other := storage.Member{ID: workflow.NewV7(), Name: "other", Started: time.Now(), TTL: 48 * time.Hour}
		vaulttest.Must(t, vaulttest.ErrOf(s.vault.Control().AddMember(t.Context(), other)))
		for range plans {
			p := &workflow.Plan{Name: "open"}
			vaulttest.Must(t, s.vault.Create(t.Context(), p))
			p.State.Status, p.Owner, p.Epoch = workflow.Running, other.ID, 1
			vaulttest.Must(t, s.vault.UpdatePlan(t.Context(), p))
		}
		return idleNode(t, s)
	}
}

// besideDying prepares an idle node beside one that has just died.
func besideDying(t testing.TB, s *scene) func() {
	do := idleNode(t, s)
	dying := storage.Member{ID: workflow.NewV7(), Name: "dying", Started: time.Now(), TTL: 30 * time.Second}
	vaulttest.Must(t, vaulttest.ErrOf(s.vault.Control().AddMember(t.Context(), dying)))
	return do
}

// submitted measures a Submit and what follows it until the plan's first action or its end.
func submitted(o engine.Options, until func(*life) chan time.Time) func(testing.TB, *scene) func() {
	o.Poll, o.NoRetention = time.Hour, true // it sends nothing of its own
	return func(t testing.TB, s *scene) func() {
		c := newCrew(t)
		vaulttest.Must(t, s.vault.Create(t.Context(), plantest.Small()))
		c.hire(s.open(c.reg), o)
		t.Cleanup(c.dismiss)
		time.Sleep(settled) // it has run the first plan of the day
		p := s.plan()
		return func() { <-until(c.submit(0, p)) }
	}
}

// engineRows returns what a plan costs that is submitted to an idle engine.
func engineRows() []row {
	firstAction, end := func(l *life) chan time.Time { return l.begun }, func(l *life) chan time.Time { return l.end }
	alone, inFleet := engine.Options{}, engine.Options{Fleet: &fleet.Options{Interval: time.Hour}}
	small, mid := sizes[0], size{"M", func() *workflow.Plan {
		p := unbypassed()
		p.ContChecks.Delay = time.Hour // one round
		return p
	}}
	idempotent := func(s size) size {
		return size{s.name, func() *workflow.Plan {
			p := s.plan()
			for _, a := range vaulttest.ActionsOf(p) {
				a.Idempotent = true
			}
			return p
		}}
	}
	return []row{
		{operation: operation{"engine: Submit, to the first action", submitted(alone, firstAction)}, size: small},
		{operation: operation{"engine: Submit, to the end", submitted(alone, end)}, size: small},
		{operation: operation{"engine: Submit, to the end", submitted(alone, end)}, size: mid},
		{operation: operation{"engine: Submit, to the end, idempotent", submitted(alone, end)}, size: idempotent(small)},
		{operation: operation{"engine: Submit, to the end, idempotent", submitted(alone, end)}, size: idempotent(mid)},
		{operation: operation{"fleet: Submit, to the first action", submitted(inFleet, firstAction)}, size: small},
		{operation: operation{"fleet: Submit, to the end", submitted(inFleet, end)}, size: small},
	}
}

// unbypassed is M without bypass checks. They succeed, and an engine would not run the blocks.
func unbypassed() *workflow.Plan {
	p := medium()
	p.BypassChecks = nil
	return p
}
