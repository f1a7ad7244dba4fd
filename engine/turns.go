package engine

import (
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

// PauseKey makes no plan get a turn for a key before a time, such as the end of a Retry-After: see [fleet.PauseKey] and
// [workflow.Plan].Keys. Plans that have a turn, as that of this call, keep it. It costs two requests.
func (c Call) PauseKey(name string, until time.Time) error {
	if c.signals == nil {
		return fmt.Errorf("pause key %q: no engine made this call: %w", name, errors.ErrUnsupported)
	}
	by := workflow.Attribution{By: "engine", Why: fmt.Sprintf("action %s of plan %s", c.Action, c.Plan)}
	return fleet.PauseKey(c.signals.ctx, c.signals.run.engine.vault, name, until, by)
}

// turnPause is the time between two looks of an engine that is alone for a turn that a plan waits for.
const turnPause = 10 * time.Second

// takeTurnsAlone takes the turns of a plan that this engine has just begun or woken. If there is none, the plan is to sleep.
func (r *run) takeTurnsAlone() error {
	if err := r.slot.begin(r.owned); err != nil {
		return err
	}
	var err error
	for pause := firstPause; ; pause = min(2*pause, longestPause(err)) {
		if err = r.takeTurns(r.life, r.plan); err == nil || !repeatable(err) || r.life.Err() != nil {
			break
		}
		sleep.For(r.life, pause)
	}
	r.slot.end()
	if r.life.Err() != nil {
		return context.Cause(r.life)
	}
	if no, ok := errors.AsType[*fleet.NoTurnError](err); ok {
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
	return fleet.TakeTurns(ctx, a.vault, plan)
}

// waitsForTurn reports whether a plan that has not begun, or sleeps without turns, has to wait for one: there is no room, or an
// older plan waits here. It notes when to look again.
func (a *alone) waitsForTurn(ctx context.Context, plan *workflow.Plan) bool {
	begun := plan.State.Status == workflow.Running && plan.WaitsFor == ""
	if begun || !fleet.TakesTurns(plan) || plan.Reason == workflow.StopRequested || !plan.Deadline.IsZero() && !plan.Deadline.After(a.now()) {
		return false
	}
	err := error(nil)
	if !a.olderWaits(plan) {
		if err = fleet.LookForTurns(ctx, a.vault, plan); err == nil {
			return false
		}
	}
	if err != nil && !errors.Is(err, fleet.ErrNoTurn) && ctx.Err() == nil {
		a.opts.Observer.Problem(ctx, ProblemEvent{err})
	}
	a.noteWaiting(plan)
	return true
}

// noteWaiting makes the engine look again for the turns of a plan that waits for them.
func (a *alone) noteWaiting(plan *workflow.Plan) {
	until := a.now().Add(turnPause)
	if d := plan.Deadline; !d.IsZero() && d.Before(until) {
		until = d
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asleep[plan.ID] = nap{until, fleet.MaxSignals, keyNames(plan)}
}

func keyNames(plan *workflow.Plan) (names []string) {
	for _, k := range plan.Keys {
		names = append(names, k.Name)
	}
	return names
}

// olderWaits reports whether an older plan waits here for one of the plan's keys.
func (a *alone) olderWaits(plan *workflow.Plan) bool {
	names := keyNames(plan)
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, n := range a.asleep {
		if older(id, plan.ID) && slices.ContainsFunc(n.keys, func(k string) bool { return slices.Contains(names, k) }) {
			return true
		}
	}
	return false
}

func older(a, b uuid.UUID) bool { return slices.Compare(a[:], b[:]) < 0 }

// giveTurns gives back the turns of a plan that is final or sleeps without them, and makes the oldest plan try that waits here for
// each of its keys.
func (a *alone) giveTurns(ctx context.Context, plan *workflow.Plan) {
	if !fleet.TakesTurns(plan) {
		return
	}
	if err := fleet.GiveTurns(ctx, a.vault, plan); err != nil {
		a.opts.Observer.Problem(ctx, ProblemEvent{err})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range keyNames(plan) {
		next := uuid.Nil
		for id, n := range a.asleep {
			if slices.Contains(n.keys, name) && (next == uuid.Nil || older(id, next)) {
				next = id
			}
		}
		if n, there := a.asleep[next]; there {
			n.until = a.now()
			a.asleep[next] = n
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
