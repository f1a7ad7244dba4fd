// Package engine is a durable engine. It runs the plans of a vault. An engine that was killed at any
// moment continues its plans when it is started again.
//
// # Order of writes
//
// Each transition is stored before it is acted on. An object becomes Running before its work begins, and the
// outcome of an action is stored before the next action begins. After a crash the stored states therefore say
// where to continue: final objects are done, NotStarted objects have not begun, and Running objects may have
// had an effect. Completed actions are not rerun. Actions that were running are, so each action runs at least
// once; use its ID as an idempotency key.
//
// # How a plan runs
//
// Plans and blocks run the same phases: bypass checks, pre checks, the work with continuous checks beside it,
// post checks, deferred checks. Where the model leaves a choice, this engine decides as follows.
//
//   - The actions of a checks group run concurrently, and all of them finish. The group fails if one of them
//     fails.
//   - If the bypass checks succeed, the plan or block is Completed. If they fail, its work runs.
//   - The first round of continuous checks begins with the work, and the last round ends after it. A failed
//     check halts the work. The action of a continuous check is Running through all rounds and keeps its last
//     10 attempts.
//   - After a halt nothing begins. Running actions finish and are not cancelled; they are not retried. Open
//     objects become Stopped, and objects that have not begun stay NotStarted.
//   - A block with more failed sequences than it tolerates begins no other sequence. Running sequences
//     finish, so that no failure leaves another sequence half done.
//   - A block's entrance delay lies between its start and its bypass checks. The exit delay follows each
//     Completed block, including the last one. Delays count from stored times, so a restart does not prolong
//     them.
//   - Deferred work runs whenever a plan or block that has begun ends, even after a bypass or a stop.
//     Deferred checks run first, then the deferred actions of a plan: batches in order, OnFailure batches
//     also when the plan was stopped. A failed batch does not prevent the others.
//   - A crash leaves an attempt without an end. Such an attempt does not count against Retries. Each retry
//     waits first.
//   - The first failure is the plan's Reason. Without a failure it is the stop, if there was one.
//
// # Stop and shutdown
//
// Stop ends one plan: the request is stored, the work halts, deferred work runs, and the plan becomes
// Stopped. The end of Run's context is a shutdown: nothing more begins, the outcomes of running actions are
// stored, and the plans stay Running for the next Run.
//
// # Ownership and errors
//
// One engine works on a vault at a time: it owns every plan that is Running at its start. If another engine
// works on the same plan, the vault reports a conflict at the next write, and this engine leaves the plan.
// While the vault is unavailable, or the outcome of a write is unknown, the engine retries for
// Options.Patience. Then it leaves the plan as it is stored, and the next Run continues it.
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
	// ErrDraining is the reason for leaving a plan when the context of Run ends. The next Run continues the
	// plan.
	ErrDraining = errors.New("engine: it is shutting down")
	// ErrNotRunning means that a plan can't be stopped: this engine has not picked it up, or the plan is
	// ending.
	ErrNotRunning = errors.New("engine: the plan is not running")
)

// Engine runs the plans of a vault. It is safe for concurrent use.
type Engine struct {
	vault storage.Vault
	reg   *registry.Register
	opts  Options

	mu   sync.Mutex
	runs map[uuid.UUID]*run
	// left holds plans that were given up and must not be picked up again.
	left map[uuid.UUID]bool
}

// New returns an engine on a vault, which must use the same registry. The plugins must implement [Plugin].
// The caller closes the vault after [Engine.Run] has returned.
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

// Submit stores a new plan, which Run picks up within Options.Poll. It refuses a plan whose plugins can't
// run. When ctx ends, or the error is storage.ErrUnknown, the plan may have been stored: look for its ID,
// which is set.
func (e *Engine) Submit(ctx context.Context, plan *workflow.Plan) error {
	if err := e.runnable(plan); err != nil {
		return err
	}
	unknown := false
	return e.insist(ctx, func(ctx context.Context) error {
		err := e.vault.Create(ctx, plan)
		if unknown && errors.Is(err, storage.ErrExists) {
			return nil // an earlier try stored it
		}
		unknown = unknown || errors.Is(err, storage.ErrUnknown)
		return err
	})
}

// runnable returns an error that names each action whose plugin can't run.
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

// Run calls Recovery, continues the plans that are Running, and runs the plans that are NotStarted, oldest
// first, including plans that are submitted later. It returns nil when ctx has ended and running actions have
// finished, or, with Options.UntilIdle, when no plan is left. It returns an error if it can't search the
// vault at the start. Only one call of Run may be active.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.vault.Recovery(ctx); err != nil && ctx.Err() == nil {
		e.opts.Observer.Problem(fmt.Errorf("engine: recovery: %w", err)) // the other plans can run
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
		// From now on a Running plan is this engine's, or another engine's mistake.
		statuses = []workflow.Status{workflow.NotStarted}
		sleepUntil(ctx, time.Now().Add(e.opts.Poll))
	}
	return nil
}

// open returns the plans to work on: Running plans first, each group oldest first.
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
				if e.giveUp(about.Plan) { // one unreadable plan; the others still come
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

// known reports whether a plan is running or was given up.
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

// giveUp keeps a plan from being picked up again. It reports whether the plan was not given up before.
func (e *Engine) giveUp(id uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.left[id]
	e.left[id] = true
	return !was
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
		if !slices.Contains(statuses, plan.State.Status) {
			return nil // it has ended, or another engine runs it
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

// finish works on a plan until it is final or must be left.
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

// Stop ends a plan. When it returns nil, the request is stored and survives a crash. The plan becomes
// Stopped, or Failed if something fails. Stop returns [ErrNotRunning] if this engine has not picked the plan
// up, or only deferred actions are left. ctx bounds the wait for another write of the plan. Storing the
// request is retried for Options.Patience; if that fails, the plan is given up.
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

// insist repeats a call while the vault is unavailable or the outcome is unknown.
func (e *Engine) insist(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.opts.Patience)
	defer cancel()
	again := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(e.opts.Patience))
	var last error // says more than a deadline
	err := backoff.Retry(func() error {
		// The vault itself retries until its deadline, so each call gets a part of the time.
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

// sleepUntil waits for a time or the end of ctx.
func sleepUntil(ctx context.Context, t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
