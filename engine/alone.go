package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// runAlone runs the plans without an owner. No other engine does.
func (e *Engine) runAlone(ctx context.Context) error {
	var plans errgroup.Group
	plans.SetLimit(e.opts.Plans)
	defer func() { _ = plans.Wait() }()
	statuses := []workflow.Status{workflow.Running, workflow.NotStarted}
	for first := true; ctx.Err() == nil; first = false {
		open, err := e.open(ctx, statuses, func(p storage.ListResult) bool { return p.Owner == uuid.Nil && !e.known(p.ID) })
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return fmt.Errorf("engine: look for open plans: %w", err)
		case err != nil:
			e.opts.Observer.Problem(ctx, fmt.Errorf("engine: look for new plans: %w", err))
		}
		for _, found := range open {
			if r := e.pickUp(ctx, found, statuses); r != nil {
				plans.Go(func() error {
					e.opts.Observer.PickedUp(ctx, r.plan)
					e.exit(ctx, r, r.work(ctx))
					return nil
				})
			}
		}
		if e.opts.UntilIdle && err == nil && len(open) == 0 && e.idle() {
			return nil
		}
		// From now on a Running plan is this engine's, or another engine's mistake.
		statuses = []workflow.Status{workflow.NotStarted}
		sleepUntil(ctx, time.Now().Add(e.opts.Poll))
	}
	return nil
}

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
			case errors.As(f.Err, &about) && about.Plan != uuid.Nil:
				if e.giveUp(about.Plan) { // one unreadable plan; the others still come
					e.opts.Observer.Problem(ctx, f.Err)
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

// pickUp reads a plan and makes it this engine's. It returns nil if there is nothing to do or the plan can't
// run.
func (e *Engine) pickUp(ctx context.Context, found storage.ListResult, statuses []workflow.Status) *run {
	var plan *workflow.Plan
	err := e.insist(ctx, func(ctx context.Context) (err error) {
		plan, err = e.vault.Read(ctx, found.ID)
		return err
	})
	if errors.Is(err, storage.ErrNotFound) || err != nil && ctx.Err() != nil {
		return nil // deleted meanwhile, or a shutdown
	}
	if err == nil {
		if !slices.Contains(statuses, plan.State.Status) || plan.Owner != uuid.Nil {
			return nil // it has ended, or another engine runs it
		}
		err = e.runnable(plan)
	}
	if err != nil {
		e.giveUp(found.ID)
		e.opts.Observer.Problem(ctx, fmt.Errorf("engine: pick up plan %s: %w", found.ID, err))
		return nil
	}
	r := newRun(e, plan)
	e.enter(r)
	return r
}
