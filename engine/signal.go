package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Signals returns the signals of one name that the plan has, in the order of their numbers, see [fleet.Send]. Those that came
// before the action began are among them. Signals can be called again, also by other actions: they stay until the plan is final.
//
// After [Later], the plugin is called again as soon as its plan has a signal, of any name, that was not there at the first
// Signals of the last call: within the Interval of a fleet, and otherwise within twice Options.Poll. That also wakes a plan that sleeps.
//
// Signals costs a read for each signal of the plan, of whatever name, that this node has not read yet, since nodes know from
// their looks which there are. An engine without a fleet asks for the list of the vault's records, at most once in
// Options.Poll, also while a plugin waits for a later call. What was read stays in memory until the plan ends or sleeps. A
// signal that can't be read is left out, and is a [ProblemEvent].
//
// Errors: [errors.ErrUnsupported] if the vault does not offer [storage.Control]; the cause of the end of the call's context;
// otherwise those of the vault: return them, for another attempt.
func (c Call) Signals(name string) ([]fleet.Signal, error) {
	if c.signals == nil {
		return nil, fmt.Errorf("signals of plan %s: no engine made this call: %w", c.Plan, errors.ErrUnsupported)
	}
	return c.signals.named(name)
}

// ears tell a run which signals its plan has.
type ears interface {
	// heard returns the number of the last one that is known, and a channel that is closed when there may be more.
	heard(plan uuid.UUID) (last int, more <-chan struct{})
	// fresh makes heard fresh enough for a call.
	fresh(ctx context.Context) error
	// listen keeps heard fresh until done is called.
	listen() (done func())
}

// inbox has the signals of the plan that a run has read.
type inbox struct {
	ears
	own  *semaphore.Weighted // guards the fields below; its holder reads
	read int
	list []fleet.Signal
}

// awaitCall returns when an action that waits is to be called again, or when scope ends.
func (r *run) awaitCall(scope context.Context, a *workflow.Action) {
	l := a.Later()
	wait := l.At.Sub(r.now())
	defer r.rests.begin(time.Now().Add(wait))()
	defer r.inbox.listen()()
	ctx, cancel := context.WithTimeout(scope, wait)
	defer cancel()
	for ctx.Err() == nil {
		last, more := r.inbox.heard(r.plan.ID)
		if last > l.LastSignal {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
		}
		if last, _ = r.inbox.heard(r.plan.ID); last <= l.LastSignal {
			sleep.For(ctx, time.Second) // it is another plan's, or this plan is another node's now, which ends scope
		}
	}
}

// lastSignal returns the signal that a plan need not be woken for when it sleeps: all calls that wait have seen it.
func lastSignal(p *workflow.Plan) int {
	last := fleet.MaxSignals
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok && waiting(a) && !a.State.Status.Final() {
			last = min(last, a.Later().LastSignal)
		}
	}
	return last
}

// sight is what one call sees of the signals.
type sight struct {
	ctx    context.Context
	run    *run
	least  int          // what the last call of the attempt saw: the look of this node may be older
	first  atomic.Int64 // the last signal when the call began, or at its first look; a larger one makes another call
	looked atomic.Bool
}

func (r *run) sightOf(ctx context.Context, a *workflow.Action) *sight {
	s := &sight{ctx: ctx, run: r}
	if l := a.Later(); l != nil {
		s.least = l.LastSignal
	}
	s.first.Store(int64(s.last()))
	return s
}

func (s *sight) last() int {
	last, _ := s.run.inbox.heard(s.run.plan.ID)
	return max(last, s.least)
}

// named returns the signals of a name.
func (s *sight) named(name string) (named []fleet.Signal, err error) {
	r, in := s.run, &s.run.inbox
	if err := in.fresh(s.ctx); err != nil {
		return nil, fmt.Errorf("signals of plan %s: %w", r.plan.ID, err)
	}
	if in.own.Acquire(s.ctx, 1) != nil {
		return nil, context.Cause(s.ctx)
	}
	defer in.own.Release(1)
	last := s.last()
	if err := in.readTo(s.ctx, r, last); err != nil {
		return nil, err
	}
	if !s.looked.Swap(true) {
		s.first.Store(int64(last))
	}
	for _, signal := range in.list {
		if signal.Name == name {
			signal.Payload = slices.Clone(signal.Payload)
			named = append(named, signal)
		}
	}
	return named, nil
}

// readTo reads the signals up to a number that are not here yet. The caller holds own.
func (in *inbox) readTo(ctx context.Context, r *run, last int) error {
	if last <= in.read {
		return nil
	}
	more, err := fleet.ReadSignals(ctx, r.engine.vault, r.plan.ID, in.read, last)
	switch {
	case errors.Is(err, storage.ErrCorrupt), errors.Is(err, storage.ErrSchema):
		r.engine.opts.Observer.Problem(ctx, ProblemEvent{err})
	case err != nil:
		return err
	}
	in.read, in.list = last, append(in.list, more...)
	return nil
}

// removeSignals removes the signals of a plan that is final, if it is known to have any.
func (r *run) removeSignals() {
	if last, _ := r.inbox.heard(r.plan.ID); last == 0 && r.inbox.read == 0 && (r.requested == nil || !r.requested()) {
		return
	}
	ctx, cancel := context.WithTimeout(r.writing, r.engine.opts.Patience/4)
	defer cancel()
	if err := fleet.RemoveSignals(ctx, r.engine.vault, r.plan.ID); err != nil {
		r.engine.opts.Observer.Problem(ctx, ProblemEvent{err})
	}
}

// ownersEars are those of the owner of a plan, which looks anyway.
type ownersEars struct{ owner }

func (e ownersEars) heard(uuid.UUID) (int, <-chan struct{}) { return e.Signals() }
func (e ownersEars) fresh(context.Context) error            { return nil }
func (e ownersEars) listen() (done func())                  { return func() {} }

// ownEars are those of an engine that is alone. It looks while an action or a plan that sleeps waits for a signal.
type ownEars struct {
	control storage.Control // nil if the vault offers none
	every   time.Duration
	waiting atomic.Int64

	mu     sync.Mutex
	looked time.Time
	last   map[uuid.UUID]int
	more   chan struct{}
}

func newOwnEars(vault storage.Vault, every time.Duration) *ownEars {
	control, _ := storage.As[storage.Control](vault)
	return &ownEars{control: control, every: every, more: make(chan struct{})}
}

func (e *ownEars) heard(plan uuid.UUID) (int, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last[plan], e.more
}

func (e *ownEars) listen() (done func()) {
	e.waiting.Add(1)
	return func() { e.waiting.Add(-1) }
}

func (e *ownEars) fresh(ctx context.Context) error {
	e.mu.Lock()
	old := time.Since(e.looked) >= e.every
	e.mu.Unlock()
	switch {
	case e.control == nil:
		return fmt.Errorf("the vault keeps no signals: %w", errors.ErrUnsupported)
	case old:
		return e.look(ctx)
	}
	return nil
}

// look asks the vault which signals there are.
func (e *ownEars) look(ctx context.Context) error {
	began := time.Now()
	roster, err := e.control.Roster(ctx)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.last
	e.looked, e.last = began, fleet.LastSignals(roster)
	for plan, last := range e.last {
		if last > before[plan] {
			close(e.more)
			e.more = make(chan struct{})
			break
		}
	}
	return nil
}

// listens looks for signals again and again while somebody waits for one.
func (a *alone) listens(ctx context.Context) {
	for a.ears.control != nil && sleep.For(ctx, a.opts.Poll) {
		if a.ears.waiting.Load() == 0 && !a.mayBeSignalled() {
			continue
		}
		if err := a.insist(ctx, a.ears.look); err != nil && ctx.Err() == nil {
			a.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("look for signals: %w", err)})
		}
	}
}
