// Package engine runs workflow plans durably on any [storage.Vault]. An engine that was killed at any moment
// continues its plans when it is started again. Several engines can share a vault as a fleet.
//
// An action names a plugin and has a request. A plugin is a function with a typed request and response. The
// vault and the engine get the same registry of plugins:
//
//	greet := engine.Task("greet", func(ctx context.Context, call engine.Call, req Greet) (Greeting, error) { … })
//	reg := registry.Must(greet)
//	vault, err := azblob.New(ctx, "my-cluster", endpoint, credential, reg, azblob.Options{})
//	…
//	e, err := engine.New(vault, engine.Options{})
//	…
//	go e.Run(ctx) // until ctx ends
//	…
//	submitted, err := e.Submit(ctx, plan) // or any process calls vault.Create
//	…
//	plan, err = submitted.Wait(ctx) // until the plan is final
//
// # Order of writes
//
// An action is stored as Running before its plugin is called, and its outcome before the next action begins. So is the plan,
// an object that waits for a delay, whose start is stored before the wait, a block with deferred checks, which run although
// a stop follows a crash, and the deferred actions, whose outcome is fixed then. Anything else above an action is stored when
// it ends; that it runs is inferred with [workflow.InferRunning]. After a crash the stored states therefore say where to
// continue: final objects are done, NotStarted actions have not begun, and Running objects may have had an effect. Completed
// actions are not rerun. Actions that were running are, so each action runs at least once; use its ID as an idempotency key.
// An action with AtMost 1 runs at most once: if its attempt never ended, it fails, and its plan or its author decides what
// to do.
//
// An attempt of an Idempotent action is stored when it has ended, and not before, so a death may leave no trace of it. An
// engine that picks a plan up therefore stores an attempt of what may have begun before, as of any other action. A node that
// has lost a plan while it was frozen may run one more Idempotent action of each list of the plan before its first write is
// refused.
//
// # Results
//
// An action may need what an earlier one of its plan has returned. Its plugin calls [Result] with that action's Key, or
// [TypedPlugin.Result] with its name. [Call.ActionByKey] and [Call.ActionByName] tell what became of it: compensation asks what
// has failed, and what may have had an effect.
// [Options.MaxResult] limits the response of an action, and [Options.MaxResults] all responses of a plan. An action
// fails whose response exceeds them.
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
//     them. These are the store's times if the vault tells them, whatever this computer's clock says; a time in
//     the future counts as now.
//   - Deferred work runs whenever a plan or block that has begun ends, even after a bypass or a stop.
//     Deferred checks run first, then the deferred actions of a plan: batches in order, OnFailure batches
//     also when the plan was stopped. A failed batch does not prevent the others.
//   - A crash leaves an attempt without an end. It does not count against Retries, but an action with more than
//     [Options.Crashes] of them fails: it may be what ends the processes. Of an Idempotent action, the first crash is
//     not counted. Each retry waits first, by the Backoff of the action, of its plugin or of the engine, or for as long
//     as the plugin's error says.
//   - All attempts count against the AtMost of an action, also those that never ended or were interrupted. When none is
//     left, the action fails.
//   - A panic fails the attempt for good, and so does the end of the plugin's goroutine. [Observer] gets the stack.
//   - A plan that has neither called a plugin nor written for a second rests: it does not count against
//     [Options.Plans] until it goes on. If it then has nothing to do for five minutes, it sleeps.
//   - A plugin that returns [Later] is called again in the same attempt. A stop, or a halt, ends the attempt without a call.
//   - The first failure is the plan's Reason. Without a failure it is the stop, if there was one.
//
// # Waiting
//
// Waits are for a delay, before a retry, between two rounds of continuous checks, and for a plugin's next call. A plan that
// does nothing but wait for at least five minutes sleeps: the engine stores until when, with one update, and forgets the plan
// but for its ID and this time. When the time comes, by the store's clock, the engine reads the plan, takes it with one update,
// and goes on. In a fleet, any node does; a shutdown neither waits for plans that sleep nor touches them. Stop wakes them.
// A sleep costs ten requests and one for each sub-object, however long it is; [Observer].Left says fleet.ErrAsleep. Shorter
// waits stay in memory, and cost nothing.
//
// # Turns
//
// A plan with Keys begins its work only when it has a turn for each of them, and one with a Unique while no other open plan has it.
// Without a turn it stays NotStarted, or sleeps with WaitsFor set, at no cost but a look at the key each ten seconds. Fleets,
// engines that are alone and RunPlan take turns from the same records: see package fleet, and docs/fleet.md for the order. A plan
// that is stopped before anything of it has begun ends without its deferred work.
//
// # Forks
//
// A plan that failed or was stopped does not run again. [workflow.Fork] returns a new plan with the work that is
// left: give it to Submit. Completed objects are not rerun, at any depth. These belong to each run of a plan or
// block and run again: continuous and deferred checks, deferred actions, and post checks if some work is left.
// If deferred actions may have undone what is Completed, Fork refuses unless
// [workflow.ForkOptions] says AfterCompensation.
//
// # Stop and shutdown
//
// Stop ends one plan: the request is stored, the work halts, deferred work runs, and the plan becomes Stopped. A request
// is too late, for the next owners too, once the deferred actions have begun, or the outcome is stored for Options.Ended. A
// plan past its Deadline ends in the same way, also one that has not begun. A plan that is paused, see fleet.PausePlan,
// begins nothing more until it is resumed, not even deferred work; what runs ends, and a deadline waits. Only engines of a
// fleet see a pause.
//
// The end of Run's context is a shutdown: nothing more begins, the outcomes of running actions are stored, and the plans
// stay Running for the next Run. In a fleet, other nodes take each plan as its work stops.
//
// Actions that run for longer than [Options.Drain] are interrupted: the contexts of their plugins end. Their
// attempts are stored as Interrupted, count neither against Retries nor Crashes, and are made again elsewhere. Whoever
// kills the process must wait ten seconds longer than Drain. In a fleet, a process that is killed sooner counts as no crash
// either, because its record says that it drains. RunPlan stores running attempts as Interrupted as soon as it drains.
//
// # Ownership
//
// An engine is alone on its vault, or it is a member of a fleet.
//
// Alone, it owns all plans without an owner, also plans that are Running at its start. No other engine may
// work on them. If another engine does, the vault reports a conflict at the next write, and the engine leaves the plan.
//
// With [Options.Fleet], any number of engines share a vault. Each plan has one owner, a node, and an epoch
// that grows with each takeover. When a node dies or freezes, the others take its plans over and continue
// them, and the vault refuses the writes of the former owner. Package fleet says how, and what it costs. If a
// write of an owned plan meets a conflict, the engine ends the work on the plan and takes the plan again: it
// continues from what is stored if the plan is still its own, and lets it go if not. It does not wait for plugins of
// a plan that it has lost: their contexts end, and what they return is dropped. Plugins get the epoch as a fencing
// token.
//
// Plans need no fleet to be submitted: whoever calls [storage.Creator.Create] may exit at once.
//
// # Errors
//
// While the vault is unavailable, refuses the engine, or leaves the outcome of a write unknown, the writes of a plan
// are repeated as long as the plan is this engine's. The plan stands meanwhile and keeps its results; after ten
// seconds Observer.Hindered says so, and in a fleet so does the node's record. Submit, Stop, searches and reads give
// up after [Options.Patience]. After any other error the engine leaves the plan as it is stored, and the next Run
// continues it; a member of a fleet takes its own plan again after a conflict, or else lets the others have it. An
// engine never stops because of a plan: [Observer] hears of it.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// ErrDraining is the reason for leaving a plan when the context of Run ends. The next Run continues the plan, or another node
// of the fleet.
var ErrDraining = errors.New("it is shutting down")

// Engine runs the plans of a vault. It is safe for concurrent use.
type Engine struct {
	vault storage.Vault
	nodes storage.Vault // the vault as nodes of a fleet see it; nil if the engine is alone
	reg   *registry.Register
	opts  Options

	places *semaphore.Weighted // Options.Plans

	// offer takes a plan that was submitted here, while Run can. accepts guards it and is held during its calls.
	accepts sync.Mutex
	offer   func(*workflow.Plan)

	suspended atomic.Bool // Run has seen that the vault is suspended
	running   atomic.Bool // Run is

	mu sync.Mutex
	// runs holds the plans that are being worked on. A plan that is about to be has no run yet.
	runs map[uuid.UUID]*run
	// left holds plans that were given up: this engine need not pick them up.
	left map[uuid.UUID]bool
	// asleep holds the plans that an engine that is alone is to wake, and when.
	asleep map[uuid.UUID]nap
	// rouse runs one of them now, without a place, while Run can.
	rouse func(uuid.UUID)
	// hindrances are why writes of plans are being repeated.
	hindrances map[uuid.UUID]*hindrance
	// tell says elsewhere what hinders this engine.
	tell func(string)

	waits waits

	// placer owns plans for engines of another kind. inits is held while plugins are initialized for them, once.
	placer      func() (*fleet.Placer, error)
	line        line
	inits       *semaphore.Weighted
	initialized bool
}

// New returns an engine on a vault. The registry that the vault was opened with has the plugins, which [Task] makes from
// functions. They must implement [Plugin]: an engine leaves a plan with another plugin, in a fleet to nodes that can run it.
// With Options.Fleet, the vault must offer [storage.Control]. A decorator around a vault needs a method Unwrap, see
// [storage.As]: without it, New fails, or tells Observer.Problem what the engine can't do. The caller closes the vault after
// [Engine.Run] has returned.
//
// The error is [storage.ErrInvalid] for wrong options and for a vault without a registry, and [errors.ErrUnsupported] if the
// vault does not offer what an option needs.
func New(vault storage.Vault, opts Options) (*Engine, error) { return newEngine(vault, nil, opts) }

// newEngine is New with a registry, or with the vault's own if that is nil.
func newEngine(vault storage.Vault, reg *registry.Register, opts Options) (*Engine, error) {
	opts, err := opts.withDefaults()
	if reg == nil {
		var lacks error
		reg, lacks = registryOf(vault)
		err = errors.Join(err, lacks)
	}
	if err != nil {
		return nil, &storage.Error{Op: "engine.New", Err: err}
	}
	e := &Engine{
		vault: vault, reg: reg, opts: opts, places: semaphore.NewWeighted(int64(opts.Plans)), inits: semaphore.NewWeighted(1),
		runs: map[uuid.UUID]*run{}, left: map[uuid.UUID]bool{}, asleep: map[uuid.UUID]nap{}, hindrances: map[uuid.UUID]*hindrance{},
		line:  line{plans: map[uuid.UUID]waiter{}},
		waits: waits{plans: map[uuid.UUID]*awaited{}, offered: map[uuid.UUID]struct{}{}},
	}
	settings := fleet.PlacerOptions{}
	if opts.Fleet != nil {
		settings = fleet.PlacerOptions{Interval: opts.Fleet.Interval, Observer: opts.Fleet.Observer}
	}
	e.placer = sync.OnceValues(func() (*fleet.Placer, error) { return fleet.NewPlacer(runnables{vault, e}, settings) })
	if opts.Fleet != nil {
		if _, ok := storage.As[storage.Control](vault); !ok {
			return nil, &storage.Error{Op: "engine.New", Err: fmt.Errorf("Options.Fleet: %w: a %T offers no storage.Control: a decorator needs a method Unwrap", errors.ErrUnsupported, vault)}
		}
		e.nodes = runnables{vault, e}
	}
	if _, ok := storage.As[storage.Control](vault); !ok {
		opts.Observer.Problem(context.Background(), ProblemEvent{fmt.Errorf(
			"a %T does not tell whether it is suspended, and enforces no policy of retention: a decorator needs a method Unwrap for that", vault)})
	}
	return e, nil
}

// registryOf returns the registry that a vault was opened with.
func registryOf(vault storage.Vault) (*registry.Register, error) {
	if vault == nil {
		return nil, driver.Invalid("vault", "is nil")
	}
	has, ok := storage.As[interface{ Registry() *registry.Register }](vault)
	if !ok {
		return nil, fmt.Errorf("vault: %w: a %T tells no registry of plugins: a decorator needs a method Unwrap", errors.ErrUnsupported, vault)
	}
	if has.Registry() == nil {
		return nil, driver.Invalid("vault", "has no registry of plugins: open it with one")
	}
	return has.Registry(), nil
}

// Submit stores a new plan and returns a handle on it. If Run has room, it begins the plan at once. Otherwise the plan waits
// for room here, or a node of the fleet that has room finds it within three intervals, also if this process dies. The engine
// shares nothing with the plan, which may be changed once Submit has returned. Submit refuses a plan whose plugins can't run,
// and returns fleet.ErrSuspended after Run has seen that the vault is suspended. When ctx ends, or the error is
// storage.ErrUnknown, the plan may have been stored: look for its ID, which is set. While another open plan has the plan's
// Unique, the error is storage.ErrExists, and the handle is on that plan.
func (e *Engine) Submit(ctx context.Context, plan *workflow.Plan) (*Handle, error) {
	if err := e.runnable(plan); err != nil {
		return nil, err
	}
	if e.suspended.Load() {
		return nil, fmt.Errorf("submit plan %s: %w", plan.ID, fleet.ErrSuspended)
	}
	if plan.Unique != "" {
		if holder, err := e.reserveUnique(ctx, plan); err != nil && holder != uuid.Nil {
			return &Handle{e, holder}, fmt.Errorf("submit plan %s: %w", plan.ID, err)
		} else if err != nil {
			return nil, fmt.Errorf("submit plan %s: %w", plan.ID, err)
		}
	}
	unknown := false
	err := e.insist(ctx, func(ctx context.Context) error {
		err := e.vault.Create(ctx, plan)
		if unknown && errors.Is(err, storage.ErrExists) {
			return nil // an earlier try stored it
		}
		unknown = unknown || errors.Is(err, storage.ErrUnknown)
		return err
	})
	if err != nil {
		return nil, err
	}
	handle := &Handle{e, plan.ID}
	if unknown {
		return handle, nil
	}
	stored, err := e.asStored(plan)
	if err != nil {
		return handle, nil // a search finds the plan, and says why it can't be read
	}
	e.accepts.Lock()
	defer e.accepts.Unlock()
	if e.offer != nil && plan.External.Name == "" {
		e.offer(stored)
	}
	return handle, nil
}

// asStored returns a plan as the vault reads it, which shares nothing with p.
func (e *Engine) asStored(p *workflow.Plan) (*workflow.Plan, error) {
	text, err := workflow.Marshal(p)
	if err != nil {
		return nil, err
	}
	stored := new(workflow.Plan)
	if err := workflow.Unmarshal(text, stored); err != nil {
		return nil, err
	}
	return stored, driver.Bind(stored, e.reg)
}

// accept sets who takes the plans that are submitted here, or nobody.
func (e *Engine) accept(offer func(*workflow.Plan)) {
	e.accepts.Lock()
	defer e.accepts.Unlock()
	e.offer = offer
}

// runnable returns an error that names each action whose plugin can't run.
func (e *Engine) runnable(plan *workflow.Plan) error {
	var errs []error
	for o, path := range workflow.Paths(plan) {
		if a, ok := o.(*workflow.Action); ok {
			if _, err := e.plugin(a); err != nil {
				errs = append(errs, driver.Invalid("Plugin", "of action %s: %v", path, err))
			}
		}
	}
	if len(errs) > 0 {
		return &storage.Error{Op: "Submit", Plan: plan.ID, Err: errors.Join(errs...)}
	}
	return nil
}

func (e *Engine) plugin(a *workflow.Action) (Plugin, error) {
	known, found := e.reg.Plugin(a.Plugin)
	if !found {
		return nil, fmt.Errorf("%q is not registered", a.Plugin)
	}
	plugin, runs := known.(Plugin)
	if !runs {
		return nil, fmt.Errorf("%q has no Run", a.Plugin)
	}
	return plugin, nil
}

// Run runs plans until ctx ends, and calls Recovery beside them, at the start and each hour. If the vault builds
// catalogues, as that on Azure Blob Storage, Run lets it do so daily, for the first time after an hour or two. If the vault
// offers a [retention.Vault], Run looks each hour whether a step of its policy is due, and does it. It returns nil when ctx
// has ended and running actions have ended, after twice Options.Drain at most, and in a fleet as long again to leave it; or,
// with Options.UntilIdle, when no plan is left. A call of Run while another one is active returns an error.
//
// Run first calls Init of each [plugins.Initer], up to 16 at a time. If one fails, panics or takes longer than Options.Timeout,
// Run returns an error that names each such plugin, and sends no request.
//
// An engine that is alone continues the plans that are Running, and runs the plans that are NotStarted, oldest
// first, including plans that are submitted later. It leaves plans with an owner to their fleet. Run returns
// an error if it can't search the vault at the start.
//
// A member of a fleet runs the plans that its node claims or takes over, and leaves the fleet at the end. It
// leaves plans whose plugins it lacks to nodes that have them, and reports them to Observer.Problem. Run
// returns an error if it can't join the fleet at the start. When the node is fenced, which happens if the
// process was frozen or could not reach the store, Run lets all plans go and reports it to Observer.Problem.
// It joins again as a new node at once, and waits no more for the plugins of the old one.
//
// If the vault is suspended, see fleet.Suspend, Run returns fleet.ErrSuspended without a call of Recovery. When somebody
// suspends it, a member of a fleet drains, leaves, and Run returns fleet.ErrSuspended; an engine that is alone does not look
// again.
func (e *Engine) Run(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return errors.New("Run is active already")
	}
	defer e.running.Store(false)
	if err := e.initPlugins(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	e.forgetLeft()
	running, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer end()
	beside.Go(func() {
		if <-running.Done(); ctx.Err() != nil {
			e.opts.Observer.Draining(ctx, DrainingEvent{})
		}
	})
	recovers := sync.OnceFunc(func() {
		beside.Go(func() {
			e.recoverPlans(ctx) // to its end, also if no plan is left before
			for sleep.For(running, recoveryInterval) {
				e.recoverPlans(running)
			}
		})
	})
	var catalogues atomic.Bool // a policy builds them
	if vault, ok := storage.As[retention.Vault](e.vault); ok && !e.opts.NoRetention {
		beside.Go(func() { e.retain(running, vault, &catalogues) })
	}
	if keeper, ok := storage.As[keeper](e.vault); ok {
		beside.Go(func() { e.keepUp(running, keeper, &catalogues) })
	}
	if e.nodes != nil {
		return e.runInFleet(ctx, recovers)
	}
	return e.runAlone(ctx, recovers)
}

// keeper is a vault that wants to be called daily, by one of its engines or by all of them.
type keeper interface {
	Upkeep(ctx context.Context) error
}

// keepUp calls Upkeep daily. Engines that start together begin at different times, because two that do the same
// work at the same time pay twice. It does not while done is true.
func (e *Engine) keepUp(ctx context.Context, k keeper, done *atomic.Bool) {
	const first, interval = time.Hour, 24 * time.Hour
	for wait := first + rand.N(first); ; wait = interval {
		if !sleep.For(ctx, wait) {
			return
		}
		if done.Load() {
			continue
		}
		if err := k.Upkeep(ctx); err != nil && ctx.Err() == nil {
			e.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("upkeep: %w", err)})
		}
	}
}

// recoveryInterval is the time between two calls of Recovery. It repairs what others leave when they die.
const recoveryInterval = time.Hour

func (e *Engine) recoverPlans(ctx context.Context) {
	if err := e.vault.Recovery(ctx); err != nil && ctx.Err() == nil {
		e.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("recovery: %w", err)}) // the other plans can run
	}
}

// admit reports whether this engine may begin to work on a plan, and keeps it from doing so twice.
func (e *Engine) admit(id uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, runs := e.runs[id]; runs || e.left[id] {
		return false
	}
	e.runs[id] = nil
	return true
}

// forget ends what admit began, if there is nothing to work on.
func (e *Engine) forget(id uuid.UUID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runs, id)
}

// known reports whether a plan is running or was given up.
func (e *Engine) known(id uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, runs := e.runs[id]
	return runs || e.left[id]
}

// forgetLeft lets all plans be picked up again.
func (e *Engine) forgetLeft() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.left)
}

func (e *Engine) gaveUp(id uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left[id]
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

// runsHere reports whether this engine works on a plan, or is about to.
func (e *Engine) runsHere(id uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, runs := e.runs[id]
	return runs
}

// enter lets Stop and Wait find a run.
func (e *Engine) enter(r *run) {
	e.mu.Lock()
	e.runs[r.plan.ID] = r
	e.mu.Unlock()
	e.waits.unexpect(r.plan.ID)
}

// exit ends what enter began. An error means that the plan was left. It is given up unless it is another
// node's, or waits for a place.
func (e *Engine) exit(ctx context.Context, r *run, err error) {
	e.mu.Lock()
	if e.runs[r.plan.ID] == r { // another run has begun if the node was fenced
		delete(e.runs, r.plan.ID)
	}
	if err != nil && !errors.Is(err, fleet.ErrFenced) && !errors.Is(err, ErrFull) && !errors.Is(err, fleet.ErrAsleep) && r.plan.External.Name == "" {
		e.left[r.plan.ID] = true
	}
	e.mu.Unlock()
	e.hindered(ctx, r.plan.ID, nil)
	e.waits.hurry(r.plan.ID)
	if err != nil {
		e.opts.Observer.Left(ctx, LeftEvent{r.plan.ID, err})
	}
}

// Stop ends a plan, which keeps who asked for that, when and why. When it returns nil, the request is stored and
// survives a crash. The plan becomes Stopped, or Failed if something fails. The audit log of a vault that has one has it as
// stop.
//
// A plan that runs here stops at once. Storing the request is retried until ctx ends or Options.Patience is over. If that
// fails, the plan stops all the same, unless this process dies. In a fleet, Stop is fleet.Stop for any other plan: its owner, or
// the next one, gets the request within the fleet's interval.
//
// Errors: [storage.ErrNotFound] if there is no such plan; [fleet.ErrNotRunning] if the plan is final, or only its deferred
// actions are left; [storage.ErrInvalid] if by does not say who asks; [errors.ErrUnsupported] if this engine is alone and has
// not picked the plan up; otherwise those of the vault.
func (e *Engine) Stop(ctx context.Context, id uuid.UUID, by workflow.Attribution) error {
	err := storage.CheckBy(by)
	if err != nil {
		return fmt.Errorf("stop plan %s: %w", id, err)
	}
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r != nil {
		err = e.stopHere(ctx, r, by)
	}
	switch {
	case r != nil && (err == nil || r.owned.Err() == nil): // else it has been given up
	case e.nodes != nil:
		return fleet.Stop(ctx, e.nodes, id, by)
	default:
		err = e.stopAsleep(ctx, id, by)
	}
	if err != nil {
		return fmt.Errorf("stop plan %s: %w", id, err)
	}
	return nil
}

// whyNotHere returns why an engine that is alone can't stop a plan on which it does not work.
func (e *Engine) whyNotHere(ctx context.Context, id uuid.UUID) error {
	found, err := storage.Collect(e.vault.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{id}}))
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return storage.ErrNotFound
	case found[0].State.Status.Final():
		return fleet.ErrNotRunning
	}
	return fmt.Errorf("%w: this engine is alone, and has not picked the plan up", errors.ErrUnsupported)
}

// stopHere stops a plan that runs here. The log neither delays that nor makes it fail.
func (e *Engine) stopHere(ctx context.Context, r *run, by workflow.Attribution) error {
	stopping, cancel := context.WithTimeout(ctx, e.opts.Patience)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop(stopping, by) }()
	entry := storage.AuditEntry{What: "stop", By: by, Plans: []uuid.UUID{r.plan.ID}}
	return storage.Audit(ctx, e.vault, entry, func(context.Context) error { return <-stopped })
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
		if err == nil || passing(err) {
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(again, ctx))
	if err != nil && last != nil {
		return last
	}
	return err
}

// passing reports whether the same call may succeed soon.
func passing(err error) bool {
	return errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// repeatable reports whether the same call may succeed later. A refusal ends when somebody corrects a role or a firewall.
func repeatable(err error) bool { return passing(err) || errors.Is(err, storage.ErrDenied) }
