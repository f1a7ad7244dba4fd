package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plannote"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Placer owns plans for an engine of another kind, such as a queue: something else decides which process runs which plan, and
// when a process is dead. It is no member of the fleet: it has no record, sends no heartbeats, finds no plans, and judges
// nobody. While it owns plans, it looks once per Interval who was asked to stop, is paused, or has a signal. Its methods are
// safe for concurrent use.
type Placer struct {
	store store
	o     Options

	mu     sync.Mutex
	owners map[*Node]uuid.UUID // one for each claim, with its plan
	end    context.CancelFunc  // ends the looks, which there are while there are claims
}

// PlacerOptions are the settings of a [Placer]. Zero fields have their defaults.
type PlacerOptions struct {
	// Interval is the time between two looks at what is asked of the plans. It is at least a second, and at most
	// [DefaultInterval], which is the default.
	Interval time.Duration
	// Observer sees claims and failures. Default: none.
	Observer Observer
}

// NewPlacer returns a placer for a vault. It sends no request. The error is [storage.ErrInvalid] for wrong options, and for a
// vault that accepts updates without versions, and [errors.ErrUnsupported] for one that does not offer [storage.Control].
func NewPlacer(vault storage.Vault, o PlacerOptions) (*Placer, error) {
	s, err := storeOf("NewPlacer", vault)
	if err != nil {
		return nil, err
	}
	if v, ok := storage.As[interface{ CheckFenced() error }](vault); ok {
		if err := v.CheckFenced(); err != nil {
			return nil, &storage.Error{Op: "NewPlacer", Err: err}
		}
	}
	if o.Interval != 0 && (o.Interval < resolution || o.Interval > DefaultInterval) {
		return nil, &storage.Error{Op: "NewPlacer", Err: driver.Invalid("PlacerOptions.Interval", "%v is not between %v and %v", o.Interval, resolution, DefaultInterval)}
	}
	settings, err := Options{Interval: o.Interval, Observer: o.Observer}.complete()
	if err != nil {
		return nil, err
	}
	return &Placer{store: s, o: settings, owners: map[*Node]uuid.UUID{}}, nil
}

// ClaimOptions say for whom a plan is claimed.
type ClaimOptions struct {
	// External is who places the plan. Name is required.
	External workflow.External
	// Epoch is that of a former owner of the same Name, which the caller knows to be dead or means to fence. Default: 0, which
	// is nobody's.
	Epoch int64
	// TakeUnclaimed also takes a Running plan that has no owner and the epoch 0. Set it if the engine that began it does not
	// run any more. Default: false.
	TakeUnclaimed bool
}

// check returns what is wrong with the options.
func (o ClaimOptions) check() error {
	if err := workflow.CheckExternal(o.External); err != nil {
		return driver.Invalid("External", "%v", err)
	}
	switch {
	case o.External.Name == "":
		return driver.Invalid("External.Name", "is empty: say who places the plan")
	case o.Epoch < 0:
		return driver.Invalid("Epoch", "%d is negative", o.Epoch)
	}
	return nil
}

// Claim is the right to own a plan, until [Claim.Release]. Its owner ID is its own, so two claims of a plan fence each other,
// also in one process. Its methods are safe for concurrent use.
type Claim struct {
	placer *Placer
	node   *Node
	plan   uuid.UUID
}

// Claim returns a claim of a plan. It sends no request: [Claim.Take] does. The caller calls [Claim.Release]. The error is
// [storage.ErrInvalid] for wrong options.
func (p *Placer) Claim(plan uuid.UUID, o ClaimOptions) (*Claim, error) {
	if err := o.check(); err != nil {
		return nil, &storage.Error{Op: "Claim", Plan: plan, Err: err}
	}
	settings := p.o
	settings.external, settings.former, settings.TakeUnclaimed = o.External, o.Epoch, o.TakeUnclaimed
	c := &Claim{p, newNode(context.Background(), p.store, settings), plan}
	p.add(c)
	return c, nil
}

// Take makes the claim the owner of a plan, and returns it as it is stored: a plan that has not begun, one that sleeps and is
// due, or one that a former owner of the same External.Name has left, if Epoch is that of this owner. That plan is fenced, as
// by [Node.Take]. A plan that is final needs no owner, and is returned as it is; unless it ended more than an hour ago, an end
// that was interrupted is completed. A plan that nobody placed yet gets External,
// and from then on nodes leave it alone, also while it sleeps.
//
// An owner that met [storage.ErrConflict] calls Take again, and after an error whose outcome is unknown, Take of the same claim
// settles it.
//
// Two that claim a plan at once may have the same reasons, such as a queue that delivers twice: one wins, and the other gets
// ErrOwned. Who claims with the epoch of an owner that is alive fences it: the store refuses all that it writes from then on.
//
// Take costs what [Node.Claim] or [Node.Take] costs, and a Roster for the first time.
//
// Errors: [storage.ErrNotFound]; [ErrOwned], in an [OwnedError] that tells the epoch, if the plan has another owner, or others
// place it; [ErrFenced] if this claim owned it and another owner does now; [ErrAsleep] before the plan's time, or with [ErrNoTurn]
// if it has to wait for a turn, and [ErrPaused], both beside the plan as it is stored; [ErrSuspended];
// [storage.ErrConflict] if the plan kept changing; otherwise those of Roster, Read and the updates.
func (c *Claim) Take(ctx context.Context) (*workflow.Plan, error) {
	if !c.node.hasLooked() {
		asked := time.Now()
		r, err := c.node.store.Roster(ctx)
		if err != nil {
			return nil, doing("claim plan "+c.plan.String(), err)
		}
		c.node.overhear(r, asked)
	}
	return c.node.Take(ctx, c.plan)
}

// Stop ends the context of [Claim.Work] as if somebody had called [Stop]. If the claim does not own the plan, Take then takes a
// plan that sleeps or is paused, too, and the context has ended. Stop sends no request.
func (c *Claim) Stop(by workflow.Attribution) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.node.ordered = &by
	if w := c.node.work[c.plan]; w != nil {
		w.end(&StopError{by})
	}
}

// Release ends the claim, and the context of [Claim.Work]. The plan stays as it is stored.
func (c *Claim) Release() {
	c.node.end(ErrLeft)
	c.placer.remove(c.node)
}

// hasLooked reports whether the node has seen a roster.
func (n *Node) hasLooked() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.looked.IsZero()
}

// overhear notes what a look has shown.
func (n *Node) overhear(r storage.Roster, asked time.Time) {
	n.hear(r, asked)
	n.note(r)
	n.obey(r)
}

// Work returns the context for the work on the plan, see [Node.Work].
func (c *Claim) Work() context.Context {
	ctx, _ := c.node.Work(c.plan)
	return ctx
}

// Woken reports whether the plan slept when it was claimed: nothing of it ran.
func (c *Claim) Woken() bool { return c.node.Woken(c.plan) }

// Now returns the time by the store's clock, see [Node.Now].
func (c *Claim) Now() time.Time { return c.node.Now() }

// Sleep gives up the plan, which only waits, see [Node.Sleep]. No node wakes it: who places it claims it again.
func (c *Claim) Sleep(ctx context.Context, plan *workflow.Plan, until time.Time, lastSignal int) error {
	return c.node.Sleep(ctx, plan, until, lastSignal)
}

// Pause pauses the plan, see [Node.Pause].
func (c *Claim) Pause(ctx context.Context, by workflow.Attribution) error {
	return c.node.Pause(ctx, c.plan, by)
}

// PausedBy looks who has paused the plan, if anybody has. It costs a request.
func (c *Claim) PausedBy(ctx context.Context) (by workflow.Attribution, paused bool, err error) {
	return c.node.store.pausedBy(ctx, c.plan)
}

// Signals returns the number of the plan's last signal, see [Node.Signals].
func (c *Claim) Signals() (last int, more <-chan struct{}) { return c.node.Signals(c.plan) }

// GiveTurns gives back the turns of the plan, which the claim has ended, see [Node.GiveTurns].
func (c *Claim) GiveTurns(ctx context.Context, plan *workflow.Plan) { c.node.GiveTurns(ctx, plan) }

// Asked reports whether the last look showed a stop request, a pause or a signal of the plan. Who ends the plan removes them
// with [RemoveSignals].
func (c *Claim) Asked() bool {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	_, stop := n.stops[c.plan]
	return stop || n.paused[c.plan] || n.signals[c.plan] > 0
}

// stopLocked returns who asked a plan to stop, if anybody has.
func (n *Node) stopLocked(plan uuid.UUID) (by workflow.Attribution, asked bool) {
	if n.ordered != nil {
		return *n.ordered, true
	}
	by, asked = n.stops[plan]
	return by, asked
}

// completes reports whether a final plan is stored again, which completes an end that was interrupted. A node finds such a plan
// because that was. A claim is of any plan, perhaps of a past day, whose catalogue goes with each change: after an hour,
// Recovery completes the end.
func (n *Node) completes(plan *workflow.Plan) bool {
	return n.o.external.Name == "" || n.Now().Sub(plan.State.End) < time.Hour
}

// mayPlace returns an error if others place a plan that has no owner now.
func (n *Node) mayPlace(plan *workflow.Plan) error {
	begun := plan.State.Status != workflow.NotStarted && plan.Epoch > 0
	if plan.External.Name == n.o.external.Name || plan.External.Name == "" && !begun {
		return nil
	}
	return ownedError(plan)
}

// add makes the looks go on while there is an owner.
func (p *Placer) add(c *Claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owners[c.node] = c.plan
	if p.end == nil {
		var ctx context.Context
		ctx, p.end = context.WithCancel(context.Background())
		go p.look(ctx)
	}
}

func (p *Placer) remove(n *Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.owners, n)
	if len(p.owners) == 0 && p.end != nil {
		p.end()
		p.end = nil
	}
}

// look tells all owners what is asked of their plans, once per Interval, and sooner after a failure.
func (p *Placer) look(ctx context.Context) {
	for wait := p.o.Interval; sleep.For(ctx, wait); {
		asked := time.Now()
		try, cancel := context.WithTimeout(ctx, p.o.patience())
		r, err := p.store.Roster(try)
		cancel()
		if wait = p.o.Interval - time.Since(asked); err != nil {
			wait = p.o.retry() - time.Since(asked)
			if ctx.Err() == nil {
				notify(ctx, p.o.Observer.Failure, FailureEvent{Doing: "look what is asked of the plans", Err: err})
			}
			continue
		}
		about := split(r)
		for n, plan := range p.all() {
			if !n.joined.After(asked) { // else its own first look is newer
				n.overhear(about(plan), asked)
			}
		}
	}
}

func (p *Placer) all() map[*Node]uuid.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.owners)
}

// split returns what a roster says about a plan and about the store, without the members. A thousand claims beside a thousand
// signals would otherwise read a million names at each look.
func split(r storage.Roster) (about func(plan uuid.UUID) storage.Roster) {
	stops, notes, general := map[uuid.UUID][]storage.StopRequest{}, map[uuid.UUID][]storage.Note{}, []storage.Note{}
	for _, s := range r.Stops {
		stops[s.Plan] = append(stops[s.Plan], s)
	}
	for _, n := range r.Notes {
		if plan, ok := plannote.Plan(n.Name); ok {
			notes[plan] = append(notes[plan], n)
		} else {
			general = append(general, n)
		}
	}
	return func(plan uuid.UUID) storage.Roster {
		return storage.Roster{Stops: stops[plan], Notes: slices.Concat(general, notes[plan]), Now: r.Now}
	}
}
