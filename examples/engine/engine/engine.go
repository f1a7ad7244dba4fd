// Package engine is a small durable engine: it runs the plans of a vault, and an engine that is killed at any moment goes on
// where it stood when it is started again.
//
// # Order of writes
//
// Each transition is in the vault before it is acted on. An object becomes Running, then its work begins; an action's outcome
// is stored, then the next one begins. So what a crash leaves says where to go on: what is final is done, what is NotStarted
// has not begun, and what is Running may have had an effect. An action that was Running is run again, so each is run at least
// once; its ID is the key by which a plugin can tell a repetition.
//
// # How a plan runs
//
// A plan and its blocks go the same way: bypass checks, pre checks, the work with the continuous checks beside it, post checks,
// deferred checks. Where the model leaves it open, this engine does as follows.
//
//   - Checks are one group: its actions run at once and all come to their ends. One that fails fails the group.
//   - Bypass checks that succeed end the plan or block as Completed. Those that fail mean nothing: the work is done.
//   - The first round of continuous checks begins together with the work, the last one ends after it. A check that fails halts the
//     work. The action of such a check is Running through all rounds, and keeps its last 10 attempts.
//   - To halt is to begin nothing more: actions under way come to their ends and are not cancelled, retries are not made. What
//     is left open becomes Stopped, and what has not begun stays NotStarted.
//   - A block with more failed sequences than it tolerates begins no other sequence. Those under way go on to their ends, so that
//     none is left half done by another's failure.
//   - A block's entrance delay is between its start and its bypass checks. The exit delay follows the end of a block that is
//     Completed, also of the last one. Delays count from the stored times, so a restart does not make them longer.
//   - What is deferred runs on every way out of a plan or block that has begun, also after a bypass or a stop. First come the
//     checks, and then a plan's deferred actions: batches in order, those for OnFailure also when the plan
//     was stopped. A batch that fails does not keep the others from running.
//   - An attempt without an end was cut off by a crash. It does not count against Retries. A wait comes before each retry.
//   - The failure that came first gives the plan's Reason; a stop does where nothing fails.
//
// # Stop and shutdown
//
// Stop halts one plan for good: the request is stored, the work halts, what is deferred runs, and the plan ends as Stopped. The
// end of Run's context is a shutdown: nothing more begins, actions under way are waited for and stored, and the plans stay
// Running for the next Run.
//
// # Ownership and errors
//
// One engine works on a vault at a time: it takes each plan that is Running at its start for its own. Where another one works
// on the same plan, the vault reports a conflict at the next write, and the engine leaves the plan to the other. A vault that is
// unavailable, or a write whose outcome is unknown, is tried again for Options.Patience; then the plan is left as it is
// stored, and the next Run goes on from there.
package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

var (
	// ErrDraining is why a plan is left when the context of Run ends: the next Run goes on with it.
	ErrDraining = errors.New("engine: it is shutting down")
	// ErrNotRunning says that a plan can't be stopped, since this engine has not picked it up or it is coming to its end.
	ErrNotRunning = errors.New("engine: the plan is not running")
)

// Engine runs the plans of a vault. It is safe for concurrent use.
type Engine struct {
	vault storage.Vault
	reg   *registry.Register
	opts  Options

	mu   sync.Mutex
	runs map[uuid.UUID]*run
	// left are plans that were given up, and are not to be picked up again.
	left map[uuid.UUID]bool
}

// New returns an engine on a vault, which must read requests and responses with the same registry. The plugins must be of
// type Plugin. It is the caller who closes the vault, after Run has returned.
func New(vault storage.Vault, reg *registry.Register, opts Options) (*Engine, error) {
	if vault == nil || reg == nil {
		return nil, errors.New("engine: it needs a vault and a registry of plugins")
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Engine{vault: vault, reg: reg, opts: opts, runs: map[uuid.UUID]*run{}, left: map[uuid.UUID]bool{}}, nil
}

// Submit stores a new plan, which a Run picks up within Options.Poll. A plan with a plugin that can't be run is refused.
// When ctx ends, or the vault fails with storage.ErrUnknown, the plan may have been stored: look for its ID, which is set.
func (e *Engine) Submit(ctx context.Context, plan *workflow.Plan) error {
	if err := e.runnable(plan); err != nil {
		return err
	}
	unknown := false
	return e.insist(ctx, func(ctx context.Context) error {
		err := e.vault.Create(ctx, plan)
		if unknown && errors.Is(err, storage.ErrExists) {
			return nil // an earlier try has made it
		}
		unknown = unknown || errors.Is(err, storage.ErrUnknown)
		return err
	})
}

// runnable says which actions have no plugin that can be run.
func (e *Engine) runnable(plan *workflow.Plan) error {
	var errs []error
	for o := range workflow.Walk(plan) {
		if a, ok := o.(*workflow.Action); ok {
			if _, err := e.plugin(a); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) plugin(a *workflow.Action) (Plugin, error) {
	known, found := e.reg.Plugin(a.Plugin)
	if !found {
		return nil, fmt.Errorf("engine: action %q needs plugin %q, which is not registered", a.Name, a.Plugin)
	}
	plugin, runs := known.(Plugin)
	if !runs {
		return nil, fmt.Errorf("engine: action %q needs plugin %q, which has no Run", a.Name, a.Plugin)
	}
	return plugin, nil
}

// Run clears up with Recovery, goes on with the plans that are Running, and runs those that are NotStarted, oldest first, also
// those that come later. It returns nil when ctx has ended and the actions under way have, or, with Options.UntilIdle,
// when there is nothing left to do; and an error when the vault can't be searched at the start. Only one Run may be under way.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.vault.Recovery(ctx); err != nil && ctx.Err() == nil {
		e.opts.Observer.Problem(fmt.Errorf("engine: recovery: %w", err)) // what can't be mended does not keep the rest from going on
	}
	e.mu.Lock()
	clear(e.left)
	e.mu.Unlock()
	var plans errgroup.Group
	plans.SetLimit(e.opts.Plans)
	ended := make(chan struct{})
	var draining sync.WaitGroup
	draining.Go(func() {
		select {
		case <-ctx.Done():
			e.opts.Observer.Draining()
		case <-ended:
		}
	})
	defer func() {
		_ = plans.Wait()
		close(ended)
		draining.Wait()
	}()

	statuses := []workflow.Status{workflow.Running, workflow.NotStarted}
	for first := true; ctx.Err() == nil; first = false {
		open, err := e.open(ctx, statuses)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return fmt.Errorf("engine: look for open plans: %w", err)
		case err != nil:
			e.opts.Observer.Problem(fmt.Errorf("engine: look for new plans: %w", err))
		}
		for _, found := range open {
			if r := e.pickUp(ctx, found, statuses); r != nil {
				plans.Go(func() error {
					e.finish(ctx, r)
					return nil
				})
			}
		}
		if e.opts.UntilIdle && err == nil && len(open) == 0 && e.idle() {
			return nil
		}
		// From now on a plan that is Running is ours, or somebody else's mistake.
		statuses = []workflow.Status{workflow.NotStarted}
		sleepUntil(ctx, time.Now().Add(e.opts.Poll))
	}
	return nil
}

// open lists the plans to work on, those that are Running before the others, each oldest first.
func (e *Engine) open(ctx context.Context, statuses []workflow.Status) ([]storage.ListResult, error) {
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
				if !e.known(f.Result.ID) {
					open = append(open, f.Result)
				}
			case errors.As(f.Err, &about) && about.Plan != uuid.Nil:
				if e.giveUp(about.Plan) { // one plan that can't be read; the rest still comes
					e.opts.Observer.Problem(f.Err)
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

// known says whether a plan is under way, or was given up.
func (e *Engine) known(id uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id] != nil || e.left[id]
}

func (e *Engine) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs) == 0
}

// giveUp keeps a plan from being picked up again, and says whether that is new.
func (e *Engine) giveUp(id uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.left[id]
	e.left[id] = true
	return !was
}

// pickUp reads a plan and makes it this engine's; nil where there is nothing to do, or it can't be run.
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
		if !slices.Contains(statuses, plan.State.Status) {
			return nil // it has ended, or somebody else has begun it
		}
		err = e.runnable(plan)
	}
	if err != nil {
		e.giveUp(found.ID)
		e.opts.Observer.Problem(fmt.Errorf("engine: pick up plan %s: %w", found.ID, err))
		return nil
	}
	r := newRun(e, plan)
	e.mu.Lock()
	e.runs[plan.ID] = r
	e.mu.Unlock()
	return r
}

// finish works on a plan until it is final, or must be left.
func (e *Engine) finish(ctx context.Context, r *run) {
	e.opts.Observer.PickedUp(r.plan)
	err := r.work(ctx)
	e.mu.Lock()
	delete(e.runs, r.plan.ID)
	if err != nil {
		e.left[r.plan.ID] = true
	}
	e.mu.Unlock()
	if err != nil {
		e.opts.Observer.Left(r.plan.ID, err)
	}
}

// Stop halts a plan for good. When it returns nil the request is stored and survives a crash; the plan ends as Stopped, or as
// Failed where something fails. ErrNotRunning says that this engine has not picked the plan up, or that only its deferred
// actions are left. ctx bounds the wait for another write of the plan; the request itself is tried for Options.Patience, and
// the plan is given up if it can't be stored.
func (e *Engine) Stop(ctx context.Context, id uuid.UUID) error {
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r == nil {
		return fmt.Errorf("stop plan %s: %w", id, ErrNotRunning)
	}
	if err := r.stop(ctx); err != nil {
		return fmt.Errorf("stop plan %s: %w", id, err)
	}
	return nil
}

// insist makes a call of the vault again while it is unavailable, or while its outcome is unknown.
func (e *Engine) insist(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.opts.Patience)
	defer cancel()
	again := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(e.opts.Patience))
	var last error // says more than that the time is over
	err := backoff.Retry(func() error {
		// The vault tries again by itself for as long as it may, so each call gets a part of the time.
		ctx, cancel := context.WithTimeout(ctx, e.opts.Patience/4)
		defer cancel()
		err := call(ctx)
		last = err
		if err == nil || errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(again, ctx))
	if err != nil && last != nil {
		return last
	}
	return err
}

// sleepUntil waits for a time, or the end of ctx.
func sleepUntil(ctx context.Context, t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
