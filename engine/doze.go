package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// sleepFrom is how long nothing of a plan must have to do until the plan sleeps. To sleep and to wake takes some ten requests
// for a small plan, so a plan that polls each minute would cost ten times what it costs in memory, where waiting is free.
const sleepFrom = 5 * time.Minute

// errDozing is why a run ends whose plan is to sleep.
var errDozing = errors.New("it only waits")

// rests are the waits of a run that are in progress: everything else of it is done or runs.
type rests struct {
	mu    sync.Mutex
	until map[*time.Time]bool
}

// begin notes a wait until a time. The caller calls end after it.
func (p *rests) begin(until time.Time) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = map[*time.Time]bool{}
	}
	key := &until
	p.until[key] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.until, key)
	}
}

// first returns when the first wait ends. It is zero if there is none.
func (p *rests) first() (first time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for until := range p.until {
		if first.IsZero() || until.Before(first) {
			first = *until
		}
	}
	return first
}

// doze ends the work if nothing of the plan has to do anything for long. Nothing is called or written when it is called. A
// plan that was asked to stop goes on: it would not be let sleep.
func (r *run) doze(steps int) {
	if !r.own.TryAcquire(1) {
		return // a stop is being stored
	}
	stopped := r.plan.Reason == workflow.StopRequested
	if r.own.Release(1); stopped {
		return
	}
	first := r.rests.first()
	if left := r.plan.Deadline.Sub(r.now()); left > 0 && first.After(time.Now().Add(left)) {
		first = time.Now().Add(left)
	}
	if !first.IsZero() && time.Until(first) >= sleepFrom {
		r.wakeAt, r.steps = r.now().Add(time.Until(first)), steps
		r.die(errDozing)
	}
}

// doze ends the work on a plan, if there is any, that only waits.
func (e *Engine) doze(id uuid.UUID, steps int) {
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r != nil {
		r.doze(steps)
	}
}

// maySleep reports whether a run that has ended lets its plan sleep: nothing has been called or written since it decided so,
// and nobody has asked for a stop.
func (r *run) maySleep() bool {
	return r.slot.taken() == r.steps && r.plan.Reason != workflow.StopRequested
}

// putToSleep lets the plan of a run sleep. It returns the plan if it must go on at once.
func (a *alone) putToSleep(ctx context.Context, r *run) (*workflow.Plan, error) {
	if !r.maySleep() {
		r.plan.WaitsFor = ""
		return r.plan, nil
	}
	r.plan.WakeAt, r.plan.LastSignal = r.wakeAt, lastSignal(r.plan)
	waits := r.plan.WaitsFor != ""
	if r.plan.KeepTurn == workflow.KeepWhileAwake && !waits {
		r.plan.WaitsFor = r.plan.FirstKey()
	}
	r.slot.hurry() // this write needs no place
	if err := r.store(ctx, r.plan); err != nil {
		return nil, err
	}
	if r.plan.WaitsFor != "" {
		a.giveTurns(ctx, r.plan)
	}
	if waits {
		a.noteWaiting(r.plan, r.plan.WaitsFor)
	} else {
		a.noteSleeper(driver.Listed(r.plan))
	}
	return nil, fleet.ErrAsleep
}

// nap is until when a plan sleeps, and the last signal that it need not be woken for.
type nap struct {
	until      time.Time
	lastSignal int
	keys       []string // whose turns it takes before it goes on
	full       string   // the one of these that had no room
}

// noteSleeper makes the engine wake a plan at a time of the store's clock, or after a signal.
func (a *alone) noteSleeper(p storage.ListResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.State.Status == workflow.NotStarted {
		p.LastSignal = fleet.MaxSignals // it waits for its time
	}
	a.asleep[p.ID] = nap{until: p.WakeAt, lastSignal: p.LastSignal, keys: keysToTake(p)}
}

// naps reports whether a plan sleeps here.
func (a *alone) naps(id uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, naps := a.asleep[id]
	return naps
}

// mayBeSignalled reports whether a signal would wake one of the plans that sleep.
func (a *alone) mayBeSignalled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.asleep {
		if n.lastSignal < fleet.MaxSignals {
			return true
		}
	}
	return false
}

// sleepers reports whether there are plans to wake.
func (e *Engine) sleepers() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asleep) > 0
}

// dueSleepers returns the plans that sleep and are due, and forgets them.
func (a *alone) dueSleepers() (due []storage.ListResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for id, n := range a.asleep {
		last, _ := a.ears.heard(id)
		if _, ends := a.runs[id]; !ends && (n.keys == nil || a.isNextLocked(id, n)) && (!now.Before(n.until) || last > n.lastSignal) {
			if now.Before(n.until) {
				n.until = now
			}
			due = append(due, storage.ListResult{ID: id, WakeAt: n.until})
			delete(a.asleep, id)
			if n.keys != nil {
				a.trying[id] = n.keys
			}
		}
	}
	slices.SortFunc(due, func(x, y storage.ListResult) int { return x.WakeAt.Compare(y.WakeAt) })
	return due
}

// stopAsleep stops a plan that sleeps, and that this engine is to wake: it stores who asked, and wakes the plan now.
func (e *Engine) stopAsleep(ctx context.Context, id uuid.UUID, by workflow.Attribution) error {
	e.mu.Lock()
	_, asleep := e.asleep[id]
	e.mu.Unlock()
	if !asleep {
		return e.whyNotHere(ctx, id)
	}
	return e.insist(ctx, func(ctx context.Context) error {
		plan, err := e.vault.Read(ctx, id)
		if err == nil && ending(plan) {
			return fleet.ErrNotRunning
		}
		if err == nil && plan.Reason != workflow.StopRequested {
			if plan.Reason, plan.Stopped = workflow.StopRequested, by; by.At.IsZero() {
				plan.Stopped.At = time.Now().UTC()
			}
			err = e.vault.UpdatePlan(ctx, plan)
		}
		if err == nil {
			e.rouseNow(id)
		}
		return err
	})
}

// rousing sets who runs plans that sleep now, or nobody.
func (e *Engine) rousing(run func(uuid.UUID)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rouse = run
}

// rouseNow runs a plan that sleeps and was asked to stop. It needs no place.
func (e *Engine) rouseNow(id uuid.UUID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, asleep := e.asleep[id]; asleep && e.rouse != nil {
		delete(e.asleep, id)
		e.runs[id] = nil
		e.rouse(id)
	}
}
