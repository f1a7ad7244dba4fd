package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// RunOptions are the settings of [Engine.RunPlan]. A negative number is storage.ErrInvalid.
type RunOptions struct {
	// External is who places the plan, such as a queue. Name is required.
	External workflow.External
	// Epoch is that of a former owner of the same External.Name, which the caller knows to be dead: the Epoch of its last [Beat],
	// or that of a [fleet.OwnedError]. If that owner is alive after all, the store refuses its writes from then on. Default: 0,
	// which takes the plan from nobody.
	Epoch int64
	// TakeUnclaimed also runs a Running plan that has no owner and the epoch 0. Set it if the engine that began it does not run
	// any more. Default: false.
	TakeUnclaimed bool
	// Heartbeat is called when RunPlan owns the plan, and then each Every until RunPlan returns. Before the first call, it
	// calls Init of the plugins and takes the plan. RunPlan waits for a call to return. If one panics, Observer.Problem is told,
	// and all else goes on. Default: none.
	Heartbeat func(Beat)
	// Every is the time between two calls of Heartbeat. Default: 10s.
	Every time.Duration
}

// Beat says that a plan is being worked on.
type Beat struct {
	Plan uuid.UUID
	// Epoch is what a later RunPlan needs if this one dies.
	Epoch int64
}

// Placed is what [Engine.RunPlan] has left of a plan.
type Placed struct {
	// Plan is the plan as it is stored, for the caller alone. It is final, or it waits.
	Plan *workflow.Plan
	// WakeAt is when to call RunPlan again, by this computer's clock. It is zero if the plan is final or paused.
	WakeAt time.Time
	// LastSignal is the number of the last signal that the plan has seen: call RunPlan sooner after a larger one, as
	// [fleet.Send] returns it. With [fleet.MaxSignals], the plan waits for none.
	LastSignal int
	// Paused says who has paused the plan: call RunPlan again after fleet.ResumePlan or fleet.Stop.
	Paused workflow.Attribution
	// Waiting are the objects that wait, as in [Engine.Status]. For a plan that waits for a turn, the last is the plan itself, For
	// "turn", with the key and the plan that is before it in What.
	Waiting []fleet.WaitingObject
}

// RunPlan is [New] and [Engine.RunPlan], for a process that runs one plan. The vault was opened with the registry; nil means that
// the vault tells it.
func RunPlan(ctx context.Context, vault storage.Vault, reg *registry.Register, id uuid.UUID, o RunOptions) (Placed, error) {
	e, err := newEngine(vault, reg, Options{})
	if err != nil {
		return Placed{}, err
	}
	return e.RunPlan(ctx, id, o)
}

// RunPlan runs one plan to its end, or until it only waits, for an engine of another kind that decides which process runs which
// plan: a workflow, a queue, a job. That engine may be wrong. RunPlan claims the plan, and of two that run it at once the store
// lets one go on. Nodes of a fleet and engines that are alone leave the plan to whoever places it, also while it waits; see
// [workflow.Plan].External.
//
// The plan runs as with Run, in all its details, and with this engine's Options; Options.Plans does not count it. Run need not
// be active. The first RunPlan calls Init of the plugins. Any number may run at once: they share one look per fleet.DefaultInterval
// at who was asked to stop, is paused, or has a signal, or per Options.Fleet.Interval.
//
// RunPlan returns a nil error if the plan is final, however it ended, or if it waits: for a time or a signal of at least five
// minutes, for its NotBefore, for a turn, or to be resumed. A shorter wait RunPlan sits out. Whoever places the plan calls RunPlan
// again when Placed says; nobody else does. Calling it too early, twice or for a final plan costs requests and does no harm.
//
// When ctx ends with a cause that is [fleet.ErrStopRequested], such as a *[fleet.StopError], the plan is stopped: RunPlan
// returns when it is final. Any other end of ctx is a shutdown, as that of Run: the error is [ErrDraining], and a later RunPlan
// goes on. That one needs no Epoch if all outcomes could be stored within twice Options.Drain.
//
// Errors: [storage.ErrInvalid] for wrong options; [storage.ErrNotFound] if there is no such plan, or it was deleted meanwhile;
// [fleet.ErrOwned] if somebody else works on the plan or places it, in a [fleet.OwnedError] that tells the epoch, or if an engine
// without claims began it; [fleet.ErrFenced] if another RunPlan has taken it meanwhile; [fleet.ErrUnsuited] if this engine
// lacks plugins of it, before anything is stored; [fleet.ErrSuspended]; ErrDraining; [errors.ErrUnsupported] if the vault offers
// no [storage.Control]; otherwise those of the vault. While the vault is unavailable, the claim is tried again for
// Options.Patience, and writes as long as the plan is this engine's.
func (e *Engine) RunPlan(ctx context.Context, id uuid.UUID, o RunOptions) (Placed, error) {
	placed, err := e.runPlaced(ctx, id, o)
	if err != nil {
		return Placed{}, fmt.Errorf("run plan %s: %w", id, err)
	}
	return placed, nil
}

func (e *Engine) runPlaced(ctx context.Context, id uuid.UUID, o RunOptions) (Placed, error) {
	if o.Every < 0 {
		return Placed{}, driver.Invalid("RunOptions.Every", "%v is negative", o.Every)
	}
	placer, err := e.placer()
	if err != nil {
		return Placed{}, err
	}
	claim, err := placer.Claim(id, fleet.ClaimOptions{External: o.External, Epoch: o.Epoch, TakeUnclaimed: o.TakeUnclaimed})
	if err != nil {
		return Placed{}, err
	}
	defer claim.Release()
	e.line.leave(id)
	running, end := untilShutdown(ctx)
	defer end()
	stops := func() bool {
		cause := context.Cause(ctx)
		if !errors.Is(cause, fleet.ErrStopRequested) {
			return false
		}
		claim.Stop(attributionOf(cause))
		return true
	}
	defer context.AfterFunc(ctx, func() { stops() })()
	for stopping := stops(); ; stopping = true {
		placed, err := e.runClaimed(running, claim, id, o)
		if err != nil || placed.Plan.State.Status.Final() || stopping || !stops() {
			if !placed.WakeAt.IsZero() {
				placed.WakeAt = placed.WakeAt.Add(time.Since(claim.Now())) // until here, by the store's clock
			}
			return placed, err
		}
	}
}

// runClaimed runs a plan until it is final, waits, or must be left, which the error says.
func (e *Engine) runClaimed(running context.Context, claim *fleet.Claim, id uuid.UUID, o RunOptions) (Placed, error) {
	var plan *workflow.Plan
	err := e.initOnce(running)
	if err == nil {
		err = context.Cause(running)
	}
	if err == nil {
		// A shutdown lets a claim that is under way end: one that is cut off leaves the plan to whoever has its epoch.
		claiming, end := outlive(running, e.opts.Drain)
		defer end()
		err = e.insist(claiming, func(ctx context.Context) (err error) {
			plan, err = claim.Take(ctx)
			return err
		})
	}
	waits := func() bool { return errors.Is(err, fleet.ErrAsleep) || errors.Is(err, fleet.ErrPaused) }
	worked := err == nil && !plan.State.Status.Final()
	switch {
	case worked:
		plan, err = e.workOn(running, claim, plan, o)
	case !waits():
		err = shutDown(running, err)
	}
	switch {
	case waits() && (!worked || plan == nil): // it could not be claimed, or again after a conflict or an unknown outcome
		placed, err := e.waitsOutside(running, claim, id, plan, err)
		return placed, shutDown(running, err)
	case err != nil && !errors.Is(err, fleet.ErrAsleep):
		return Placed{}, err
	}
	if plan, err = e.asStored(plan); err != nil {
		return Placed{}, err
	}
	return e.asPlaced(plan, plan.Paused), nil
}

// workOn works on a plan that is claimed.
func (e *Engine) workOn(running context.Context, claim *fleet.Claim, plan *workflow.Plan, o RunOptions) (*workflow.Plan, error) {
	owner := &claimOwner{Claim: claim, work: claim.Work()}
	owner.epoch.Store(plan.Epoch)
	defer e.beat(owner, plan.ID, o)()
	slot := newSlot(semaphore.NewWeighted(1), false, math.MaxInt64, func(steps int) { e.doze(plan.ID, steps) }, func() func() { return func() {} })
	defer slot.close()
	return e.workFor(running, owner, plan, slot)
}

// waitsOutside says how a plan waits that can't be claimed because of that. It reads the plan if that is nil.
func (e *Engine) waitsOutside(ctx context.Context, claim *fleet.Claim, id uuid.UUID, plan *workflow.Plan, because error) (p Placed, err error) {
	err = e.insist(ctx, func(ctx context.Context) (err error) {
		if plan == nil {
			if plan, err = e.vault.Read(ctx, id); err != nil {
				return err
			}
		}
		if plan.Owner != uuid.Nil && !plan.State.Status.Final() { // another has woken it since
			return &fleet.OwnedError{Owner: plan.Owner, Epoch: plan.Epoch, External: plan.External}
		}
		by, resumed := workflow.Attribution{}, false
		if errors.Is(because, fleet.ErrPaused) {
			var paused bool
			if by, paused, err = claim.PausedBy(ctx); err != nil {
				return err
			}
			resumed = !paused
		}
		p = e.asPlaced(plan, by)
		switch no, turnless := errors.AsType[*fleet.NoTurnError](because); {
		case plan.State.Status.Final():
		case resumed:
			p.WakeAt = claim.Now()
		case turnless:
			if no.Err != nil {
				e.opts.Observer.Problem(ctx, ProblemEvent{fmt.Errorf("run plan %s: %w", id, no)})
			}
			p.WakeAt, p.LastSignal = e.line.join(id, no, claim.Now()), fleet.MaxSignals
			p.Waiting = append(p.Waiting, fleet.WaitingObject{For: "turn", Until: no.PausedUntil, What: no.Error()})
			if d := plan.Deadline; !d.IsZero() && d.Before(p.WakeAt) {
				p.WakeAt = d // it ends without
			}
		}
		return nil
	})
	return p, err
}

// shutDown returns an error of something that a shutdown may have cut off.
func shutDown(running context.Context, err error) error {
	if err != nil && running.Err() != nil {
		return fmt.Errorf("%w: %w", ErrDraining, err)
	}
	return err
}

// untilShutdown returns a context that ends with ctx, unless its end is a request to stop.
func untilShutdown(ctx context.Context) (running context.Context, end func()) {
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	shut := func() {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, fleet.ErrStopRequested) {
			cancel(cause)
		}
	}
	shut() // before anything begins
	after := context.AfterFunc(ctx, shut)
	return running, func() {
		after()
		cancel(nil)
	}
}

// outlive returns a context that ends some time after another one.
func outlive(ctx context.Context, d time.Duration) (later context.Context, end func()) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	after := context.AfterFunc(ctx, func() {
		if sleep.For(later, d) {
			cancel()
		}
	})
	return later, func() {
		after()
		cancel()
	}
}

// asPlaced says what became of a plan that is final or waits. by is who has paused it, if anybody has.
func (e *Engine) asPlaced(plan *workflow.Plan, by workflow.Attribution) Placed {
	p := Placed{Plan: plan, LastSignal: fleet.MaxSignals}
	switch {
	case plan.State.Status.Final():
		return p
	case by != (workflow.Attribution{}):
		p.Paused = by
	case plan.State.Status == workflow.NotStarted:
		p.WakeAt = plan.NotBefore
	default:
		p.WakeAt, p.LastSignal = plan.WakeAt, plan.LastSignal
	}
	p.Waiting = e.describe(plan).Waiting
	return p
}

// claimOwner is a claim as the owner of its plan.
type claimOwner struct {
	*fleet.Claim
	work  context.Context
	epoch atomic.Int64 // of the last Take
}

func (o *claimOwner) ends() []context.Context { return []context.Context{o.work} }

func (o *claimOwner) Take(ctx context.Context) (*workflow.Plan, error) {
	plan, err := o.Claim.Take(ctx)
	if err == nil {
		o.epoch.Store(plan.Epoch)
	}
	return plan, err
}

// beat calls Heartbeat now, and then again and again until end is called.
func (e *Engine) beat(owner *claimOwner, plan uuid.UUID, o RunOptions) (end func()) {
	if o.Heartbeat == nil {
		return func() {}
	}
	tell := func(context.Context) error { o.Heartbeat(Beat{plan, owner.epoch.Load()}); return nil }
	beat := func() {
		if err := callWithin(context.Background(), tell); err != nil {
			e.opts.Observer.Problem(owner.work, ProblemEvent{fmt.Errorf("heartbeat of plan %s: %w; the plan goes on", plan, err)})
		}
	}
	beat()
	ctx, cancel := context.WithCancel(context.Background())
	var beats sync.WaitGroup
	beats.Go(func() {
		for sleep.For(ctx, cmp.Or(o.Every, fleet.DefaultInterval)) {
			beat()
		}
	})
	return func() {
		cancel()
		beats.Wait()
	}
}
