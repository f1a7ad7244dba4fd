package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// PauseKey makes no plan get a turn for a key before a time by [Call.Now], such as the end of a Retry-After: see [fleet.PauseKey]
// and [workflow.Plan].Keys. Plans that have a turn, as that of this call, keep it. It costs two requests.
func (c Call) PauseKey(name string, until time.Time) error {
	if c.signals == nil {
		return fmt.Errorf("pause key %q: no engine made this call: %w", name, errors.ErrUnsupported)
	}
	by := workflow.Attribution{By: "engine", Why: fmt.Sprintf("action %s of plan %s", c.Action, c.Plan)}
	return fleet.PauseKey(c.signals.ctx, c.signals.run.engine.vault, name, until, by)
}

// turnPause is the time between two looks for a turn that a plan waits for, of an engine that is alone, and for a placed plan at least.
const turnPause = 10 * time.Second

// takeTurnsAlone takes the turns of a plan that this engine has just begun or woken. If there is none, the plan is to sleep.
func (r *run) takeTurnsAlone() error {
	if err := r.slot.begin(r.owned); err != nil {
		return err
	}
	var err error
	for pause := firstPause; ; pause = min(2*pause, longestPause(err)) {
		if err = r.takeTurns(r.life, r.plan); err == nil || !repeatable(err) || r.scope.Err() != nil {
			break
		}
		r.engine.hindered(r.owned, r.plan.ID, err)
		sleep.For(r.scope, pause)
	}
	r.slot.end()
	r.engine.hindered(r.owned, r.plan.ID, nil)
	if halted, ends := r.halted(r.scope); ends != nil || halted {
		return ends // a plan that was stopped ends without
	}
	if no, ok := errors.AsType[*fleet.NoTurnError](err); ok {
		if no.Err != nil {
			r.engine.opts.Observer.Problem(r.owned, ProblemEvent{no})
		}
		if err := r.own.Acquire(r.owned, 1); err != nil {
			return err
		}
		defer r.own.Release(1)
		r.plan.WaitsFor = no.Name
		r.wakeAt, r.steps = r.now(), r.slot.taken()
		return errDozing
	}
	if err != nil {
		r.giveUp(err)
	}
	return err
}

func (a *alone) takeTurns(ctx context.Context, plan *workflow.Plan) error {
	if !fleet.TakesTurns(plan) {
		return nil
	}
	defer a.tried(plan.ID)
	return fleet.TakeTurns(ctx, a.vault, plan)
}

// waitsForTurn reports whether a plan that has not begun, or sleeps without turns, has to wait for one, because there is no room.
// It notes when to look again.
func (a *alone) waitsForTurn(ctx context.Context, plan *workflow.Plan) bool {
	begun := plan.State.Status == workflow.Running && plan.WaitsFor == ""
	if begun || !fleet.TakesTurns(plan) || fleet.OnlyEnds(plan, a.now()) {
		return false
	}
	err := fleet.LookForTurns(ctx, a.vault, plan)
	no, waits := errors.AsType[*fleet.NoTurnError](err)
	switch {
	case err == nil:
		return false
	case ctx.Err() != nil:
		return true
	case !waits:
		no = &fleet.NoTurnError{Err: err}
	}
	if no.Err != nil {
		a.opts.Observer.Problem(ctx, ProblemEvent{err})
	}
	a.noteWaiting(plan, no.Name)
	return true
}

// noteWaiting makes the engine look again for the turns of a plan. full is the key that had no room, if that is known.
func (a *alone) noteWaiting(plan *workflow.Plan, full string) {
	until := a.now().Add(turnPause)
	if d := plan.Deadline; !d.IsZero() && d.Before(until) {
		until = d
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asleep[plan.ID] = nap{until, fleet.MaxSignals, keyNames(plan), full}
}

func keyNames(plan *workflow.Plan) (names []string) {
	for _, k := range plan.Keys {
		names = append(names, k.Name)
	}
	return names
}

// keysToTake returns the keys of a plan that has to take turns before it goes on.
func keysToTake(p storage.ListResult) []string {
	if p.State.Status == workflow.NotStarted || p.WaitsFor != "" {
		return p.Keys
	}
	return nil
}

// isNextLocked reports whether no older plan is to have a turn before a plan that sleeps: one that waits for the same key, and not
// for another one, or one that is taking turns now.
func (a *alone) isNextLocked(id uuid.UUID, n nap) bool {
	for _, names := range a.trying {
		if shares(n.keys, names) {
			return false
		}
	}
	now := a.now()
	for other, o := range a.asleep {
		tries := o.full == "" && !now.Before(o.until) || o.full != "" && slices.Contains(n.keys, o.full)
		if tries && bytes.Compare(other[:], id[:]) < 0 && shares(n.keys, o.keys) {
			return false
		}
	}
	return true
}

func shares(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// tried says that a plan has its turns, or waits for them.
func (a *alone) tried(id uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.trying, id)
}

// giveTurns gives back the turns of a plan that is final or sleeps without them, and lets plans try that wait for them.
func (a *alone) giveTurns(ctx context.Context, plan *workflow.Plan) {
	if !fleet.TakesTurns(plan) {
		return
	}
	if err := fleet.GiveTurns(ctx, a.vault, plan); err != nil {
		a.opts.Observer.Problem(ctx, ProblemEvent{err})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, n := range a.asleep {
		if n.full != "" && slices.Contains(keyNames(plan), n.full) {
			n.until, n.full = a.now(), ""
			a.asleep[id] = n
		}
	}
}

// sweepsTurns sweeps the turns after an hour, and then once a day, see [fleet.SweepTurns].
func (a *alone) sweepsTurns(ctx context.Context) {
	for wait := time.Hour; sleep.For(ctx, wait); wait = 24 * time.Hour {
		if err := fleet.SweepTurns(ctx, a.vault, a.now()); err != nil && ctx.Err() == nil && !errors.Is(err, errors.ErrUnsupported) {
			a.opts.Observer.Problem(ctx, ProblemEvent{err})
		}
	}
}

// reserveUnique reserves the Unique of a new plan. It returns the ID of the open plan that has it.
func (e *Engine) reserveUnique(ctx context.Context, plan *workflow.Plan) (holder uuid.UUID, err error) {
	if err := driver.Accept(ctx, plan, e.reg); err != nil { // before a place is kept for it
		return uuid.Nil, err
	}
	err = e.insist(ctx, func(ctx context.Context) error {
		holder, err = fleet.ReserveUnique(ctx, e.vault, plan)
		return err
	})
	if errors.Is(err, storage.ErrExists) {
		return holder, err
	}
	return uuid.Nil, err
}
