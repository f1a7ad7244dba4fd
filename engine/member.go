package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// runInFleet runs plans as a member of a fleet, and as a new one whenever the node is fenced. It calls recovers once it
// is a member.
func (e *Engine) runInFleet(ctx context.Context, recovers func()) error {
	var work sync.WaitGroup // of this node and of those before
	defer work.Wait()
	settings := *e.opts.Fleet
	for first := true; ; first = false {
		var node *fleet.Node
		err := e.insist(ctx, func(ctx context.Context) (err error) {
			node, err = fleet.Join(ctx, e.nodes, settings)
			return err
		})
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, fleet.ErrSuspended):
			e.suspended.Store(true)
			return fmt.Errorf("%w", err)
		case first:
			return fmt.Errorf("join the fleet: %w", err)
		default:
			e.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("join the fleet again: %w", err)})
			sleep.For(ctx, e.opts.RetryDelay)
			continue
		}
		m := &member{Engine: e, node: node, work: &work}
		e.forgetLeft()
		e.opts.Observer.Joined(ctx, JoinedEvent{node.ID()})
		recovers()
		m.serve(ctx)
		if node.Context().Err() == nil {
			node.Drain()
			work.Wait()
			m.leave(ctx)
			if node.Suspended() {
				return fmt.Errorf("node %s has left: %w", node.ID(), fleet.ErrSuspended)
			}
			return nil
		}
		if ctx.Err() != nil {
			return nil // fenced during the shutdown: there is nothing to leave
		}
		e.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("node %s: %w; joining again as a new node", node.ID(), context.Cause(node.Context()))})
		settings.Former = append(slices.Clone(settings.Former), node.ID())
	}
}

// runnables is a vault whose open plans can be read if the engine can run them. The node leaves all others to
// nodes that can.
type runnables struct {
	storage.Vault
	engine *Engine
}

func (r runnables) Unwrap() storage.Vault { return r.Vault }

func (r runnables) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	plan, err := r.Vault.Read(ctx, id)
	switch {
	case err == nil && !plan.State.Status.Final():
		err = r.engine.runnable(plan)
	case !errors.Is(err, storage.ErrSchema): // else the registry lacks a plugin, or the program is too old
		return plan, err
	}
	if err != nil {
		return nil, &storage.Error{Op: "Read", Plan: id, Err: fmt.Errorf("%w: %w", fleet.ErrUnsuited, err)}
	}
	return plan, nil
}

// member is an engine that works as a node of a fleet.
type member struct {
	*Engine
	node *fleet.Node
	work *sync.WaitGroup
}

// serve runs the node's plans until ctx ends, the node is fenced, or no plan is left to wait for. The work on plans
// that have begun goes on.
func (m *member) serve(ctx context.Context) {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	m.accept(func(plan *workflow.Plan) {
		m.waits.expect(plan.ID)
		m.node.Offer(plan)
	})
	defer m.accept(nil)
	m.report(m.node.Report)
	defer m.report(nil)
	if m.opts.UntilIdle {
		m.work.Go(func() {
			m.waitUntilIdle(looking)
			stop()
		})
	}
	for next := range m.node.Plans(looking) {
		switch err := next.Err; {
		case err == nil:
			m.work.Go(func() { m.finish(ctx, next.Result) })
		case looking.Err() == nil && m.node.Context().Err() == nil: // a fenced node joins again
			m.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("look for plans: %w", err)})
			if about, ok := errors.AsType[*storage.Error](err); ok {
				m.giveUp(about.Plan)
			}
		}
	}
}

// waitUntilIdle returns when this engine has no plan, and the vault has none that this engine or another node
// is going to run.
func (m *member) waitUntilIdle(ctx context.Context) {
	runs := func(p storage.ListResult) bool {
		claimable := p.State.Status == workflow.NotStarted || m.opts.Fleet.TakeUnclaimed
		return p.External == "" && !m.gaveUp(p.ID) && (p.Owner != uuid.Nil || p.Asleep() || claimable)
	}
	for ctx.Err() == nil {
		if m.idle() {
			open, err := m.open(ctx, []workflow.Status{workflow.Running, workflow.NotStarted}, runs)
			if err == nil && len(open) == 0 {
				return
			}
		}
		sleep.For(ctx, m.opts.Poll)
	}
}

// finish works on a plan that the node owns until it is final or must be let go.
func (m *member) finish(ctx context.Context, plan *workflow.Plan) {
	id := plan.ID
	work, done := m.node.Work(id)
	defer done()
	doze := func(steps int) {
		if work.Err() == nil { // a request to stop would wake the plan at once
			m.doze(id, steps)
		}
	}
	rest := func() (wake func()) { return m.node.Rest(id) }
	slot := newSlot(m.places, false, fullPause, doze, rest) // plans that rested may have all places
	defer slot.close()
	switch _, err := m.workFor(ctx, nodeOwner{m.node, id, work}, plan, slot); {
	case errors.Is(err, ErrFull):
		m.node.GiveBack(id)
	case err != nil && !errors.Is(err, fleet.ErrFenced) && !errors.Is(err, fleet.ErrAsleep):
		m.node.LetGo(id)
	}
}

// nodeOwner is a node as the owner of one of its plans.
type nodeOwner struct {
	*fleet.Node
	plan uuid.UUID
	work context.Context
}

func (o nodeOwner) Woken() bool { return o.Node.Woken(o.plan) }
func (o nodeOwner) Take(ctx context.Context) (*workflow.Plan, error) {
	return o.Node.Take(ctx, o.plan)
}

func (o nodeOwner) Pause(ctx context.Context, by workflow.Attribution) error {
	return o.Node.Pause(ctx, o.plan, by)
}
func (o nodeOwner) Signals() (int, <-chan struct{}) { return o.Node.Signals(o.plan) }
func (o nodeOwner) Asked() bool                     { return false }
func (o nodeOwner) ends() []context.Context         { return []context.Context{o.work, o.Context()} }

// fullPause is how long a plan waits for a place beside nodes that may have one.
const fullPause = time.Minute

// leave hands the node's plans over.
func (m *member) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(m.opts.Patience/4, m.opts.Drain))
	defer cancel()
	if err := m.node.Leave(ctx); err != nil {
		m.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("leave the fleet: %w; others take the plans of node %s over when its record is too old", err, m.node.ID())})
	}
}
