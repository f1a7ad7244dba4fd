package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// alone is an engine that no other shares its vault with.
type alone struct {
	*Engine
	now     func() time.Time
	ears    *ownEars
	trying  map[uuid.UUID][]string // the keys of plans that are taking turns; the engine's mutex guards it
	work    sync.WaitGroup
	waiting atomic.Int64 // plans that were submitted here and wait for a place
}

// runAlone runs the plans without an owner. No other engine does. It calls recovers when it has found the store open.
func (e *Engine) runAlone(ctx context.Context, recovers func()) error {
	now, err := e.storesClock(ctx)
	if err != nil {
		return err
	}
	recovers()
	a := &alone{Engine: e, now: now, ears: newOwnEars(e.vault, e.opts.Poll), trying: map[uuid.UUID][]string{}}
	defer a.work.Wait()
	e.accept(func(plan *workflow.Plan) { a.offered(ctx, plan) })
	defer e.accept(nil)
	e.rousing(func(id uuid.UUID) {
		found := storage.ListResult{ID: id}
		a.work.Go(func() {
			a.run(ctx, id, a.pickUp(ctx, found, []workflow.Status{workflow.Running, workflow.NotStarted}), false)
		})
	})
	defer e.rousing(nil)
	listening, stop := context.WithCancel(ctx)
	defer stop()
	a.work.Go(func() { a.listens(listening) })
	a.work.Go(func() { a.sweepsTurns(listening) })
	statuses := []workflow.Status{workflow.Running, workflow.NotStarted}
	for first := true; ctx.Err() == nil; first = false {
		open, err := e.open(ctx, statuses, func(p storage.ListResult) bool {
			return p.Owner == uuid.Nil && p.External == "" && !e.known(p.ID) && !a.naps(p.ID)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return fmt.Errorf("look for open plans: %w", err)
		case err != nil:
			e.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("look for new plans: %w", err)})
		}
		for _, found := range append(a.dueSleepers(), open...) {
			if found.Asleep() && a.now().Before(found.WakeAt) || len(keysToTake(found)) > 0 {
				a.noteSleeper(found)
				continue
			}
			if e.places.Acquire(ctx, 1) != nil {
				return nil
			}
			if !e.admit(found.ID) {
				e.places.Release(1)
				continue
			}
			wanted := statuses
			if !found.WakeAt.IsZero() {
				wanted = []workflow.Status{workflow.Running, workflow.NotStarted}
			}
			a.work.Go(func() { a.run(ctx, found.ID, a.pickUp(ctx, found, wanted), true) })
		}
		if e.opts.UntilIdle && err == nil && len(open) == 0 && e.idle() && !e.sleepers() {
			return nil
		}
		// From now on a Running plan is this engine's, or another engine's mistake.
		statuses = []workflow.Status{workflow.NotStarted}
		sleep.For(ctx, e.opts.Poll)
	}
	return nil
}

// offered runs a plan that was submitted here. If many wait already, a search will find it.
func (a *alone) offered(ctx context.Context, plan *workflow.Plan) {
	if a.waiting.Load() > maxWaiting || a.now().Before(plan.NotBefore) || len(plan.Keys) > 0 || !a.admit(plan.ID) {
		return
	}
	a.waiting.Add(1)
	a.work.Go(func() {
		err := a.places.Acquire(ctx, 1)
		a.waiting.Add(-1)
		if err != nil {
			a.forget(plan.ID) // a shutdown
			return
		}
		a.run(ctx, plan.ID, plan, true)
	})
}

// maxWaiting is the number of plans that wait for a place in memory.
const maxWaiting = 1000

// run works on a plan, which is nil if it could not be picked up. It gives its place back, or needs none because it stops.
func (a *alone) run(ctx context.Context, id uuid.UUID, plan *workflow.Plan, placed bool) {
	slot := newSlot(a.places, placed, math.MaxInt64, func(steps int) { a.doze(id, steps) }, func() func() { return func() {} })
	defer slot.close()
	defer a.tried(id)
	if !placed {
		slot.hurry()
	}
	if plan == nil {
		a.forget(id)
		return
	}
	if a.waitsForTurn(ctx, plan) {
		a.forget(id)
		return
	}
	for quiet := plan.Asleep(); ; quiet = true {
		r := newRun(a.Engine, plan, slot, a.now, a.ears, quiet)
		r.takeTurns, r.giveTurns = a.takeTurns, a.giveTurns
		a.enter(r)
		a.opts.Observer.PickedUp(ctx, PickedUpEvent{r.plan})
		err := r.work(ctx)
		if plan = nil; errors.Is(err, errDozing) {
			plan, err = a.putToSleep(ctx, r)
		}
		if a.exit(ctx, r, err); plan == nil {
			return
		}
		slot.again()
	}
}

// storesClock returns the store's clock, which all engines share, or this computer's if they agree or the vault does not
// tell its own. It returns fleet.ErrSuspended if the same answer says that the store is suspended.
func (e *Engine) storesClock(ctx context.Context) (func() time.Time, error) {
	var ahead time.Duration
	if control, ok := storage.As[storage.Control](e.vault); ok {
		asked := time.Now()
		roster, err := control.Roster(ctx)
		if _, suspended := roster.FindNote(storage.NoteSuspended); suspended {
			e.suspended.Store(true)
			return nil, fmt.Errorf("%w; see fleet.Resume", fleet.ErrSuspended)
		}
		switch off := roster.Now.Sub(asked); {
		case err != nil && ctx.Err() == nil:
			e.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("ask for the time: %w; delays count by this computer's clock", err)})
		case err == nil && (off < -tolerance || off > time.Since(asked)+tolerance):
			ahead = off
		}
	}
	return func() time.Time { return time.Now().Add(ahead).UTC() }, nil
}

// tolerance is how far clocks may differ before that is worth a correction. That of a store has whole seconds.
const tolerance = 2 * time.Second

// open returns the wanted plans with these statuses: Running plans first, each group oldest first.
func (e *Engine) open(ctx context.Context, statuses []workflow.Status, wanted func(storage.ListResult) bool) ([]storage.ListResult, error) {
	var open []storage.ListResult
	err := e.insist(ctx, func(ctx context.Context) error {
		open = nil
		found, err := e.vault.Search(ctx, storage.Filters{ByStatus: statuses})
		if err != nil {
			return err
		}
		for f := range found {
			var about *storage.Error
			switch {
			case f.Err == nil:
				if wanted(f.Result) {
					open = append(open, f.Result)
				}
			case errors.Is(f.Err, storage.ErrForeign): // no engine of this kind runs it
			case errors.As(f.Err, &about) && about.Plan != uuid.Nil:
				if e.giveUp(about.Plan) { // one unreadable plan; the others still come
					e.opts.Observer.Problem(ctx, ProblemEvent{f.Err})
				}
			default:
				return f.Err
			}
		}
		return nil
	})
	slices.SortFunc(open, func(a, b storage.ListResult) int {
		return cmp.Or(cmp.Compare(b.State.Status, a.State.Status), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return open, err
}

// pickUp reads a plan, as often as that may still succeed: nobody looks again for a Running plan. It returns nil if there
// is nothing to do or the plan can't run.
func (a *alone) pickUp(ctx context.Context, found storage.ListResult, statuses []workflow.Status) *workflow.Plan {
	for {
		var plan *workflow.Plan
		err := a.insist(ctx, func(ctx context.Context) (err error) {
			plan, err = a.vault.Read(ctx, found.ID)
			return err
		})
		if errors.Is(err, storage.ErrNotFound) || err != nil && ctx.Err() != nil {
			return nil // deleted meanwhile, or a shutdown
		}
		if err == nil {
			if !slices.Contains(statuses, plan.State.Status) || plan.Owner != uuid.Nil || plan.External.Name != "" {
				return nil // it has ended, or another engine runs it
			}
			err = a.runnable(plan)
			if err == nil && plan.Epoch > 0 {
				err = fmt.Errorf("%w: a fleet has let it sleep, and only a fleet wakes it", fleet.ErrOwned)
			}
			if err == nil && plan.State.Status == workflow.Running && !plan.Alone && !a.opts.TakeUnclaimed {
				err = fmt.Errorf("%w: it has no owner, and no engine that is alone has begun it; set Options.TakeUnclaimed once nothing else runs it", fleet.ErrOwned)
			}
			if err == nil && plan.Paused != (workflow.Attribution{}) {
				err = fmt.Errorf("%w by %s: only an engine of a fleet resumes it", fleet.ErrPaused, plan.Paused.By)
			}
			if err == nil {
				return plan
			}
		}
		a.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("pick up plan %s: %w", found.ID, err)})
		if !repeatable(err) {
			a.giveUp(found.ID)
			return nil
		}
		sleep.For(ctx, longestPause(err))
	}
}
