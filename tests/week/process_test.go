package week_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
)

// process is one life of an engine. Its fields below died are guarded by week.mu.
type process struct {
	w         *week
	name      string
	o         fleet.Options
	rare      bool
	ahead     time.Duration // its clock
	transport *emulator.Transport
	vault     storage.Vault
	engine    *engine.Engine
	stop      context.CancelFunc
	died      chan struct{}

	node    uuid.UUID // uuid.Nil while it is no member
	since   time.Time // when it became able to work, or a member, or had a free place again
	full    bool      // it has no free place
	lasting []*fault
	thawed  chan struct{} // nil unless it is frozen
	dead    bool
	leaving time.Time // when it was told to leave
	hit     time.Time // when something happened to it
	after   string    // what that was
	joined  time.Time
}

// fault is what is wrong with a process for some time.
type fault struct {
	kind string
	// mute means that no heartbeat gets through, so that the others take the plans over.
	mute   bool
	frozen bool
	rule   *emulator.Rule // of its requests; nil if it is frozen
}

// The longest Interval and TTL of a process.
const (
	longestInterval = time.Minute
	longestTTL      = 3 * longestInterval
)

// start starts a process in a place of the fleet.
func (w *week) start(seat int) {
	w.lives++
	name := fmt.Sprintf("%d.%d", seat, w.lives)
	r := w.draws(name)
	interval := []time.Duration{60, 60, 60, 30, 30, 30, 20, 10, 10, 2, 1}[r.IntN(11)] * time.Second
	p := &process{
		w: w, name: name, rare: r.IntN(2) == 0, died: make(chan struct{}), since: time.Now(), hit: time.Now(),
		o: fleet.Options{Interval: interval, TTL: max(30*time.Second, 3*interval), Capacity: []int{2, 4, 16, 16}[r.IntN(4)]},
	}
	if w.resting {
		p.rare, p.o.Interval, p.o.TTL, p.o.Capacity = true, 30*time.Second, 90*time.Second, 16
	}
	if r.IntN(2) == 0 {
		p.ahead = time.Duration(r.IntN(1201)-600) * time.Second
	}
	if p.o.Interval < 30*time.Second && !w.resting { // it makes many requests
		w.after(time.Duration(5+r.IntN(5*int(p.o.Interval/time.Second)))*time.Minute, func() { w.deploy(seat, p) })
	}
	p.o.Name = p.name
	p.transport = w.server.NamedTransport(p.name)
	ctx, stop := context.WithCancel(w.ctx)
	p.stop = stop
	w.seats[seat] = p
	w.alive = append(w.alive, p)
	if w.outage != nil {
		p.lasting = []*fault{w.outage}
	}
	p.apply()
	w.note(p, nil, "starts: interval %v, capacity %d, rare %t, clock %v", p.o.Interval, p.o.Capacity, p.rare, p.ahead)
	w.running.Go(func() { p.run(ctx, seat) })
}

// run runs the engine. A process that ends by itself is started again.
func (p *process) run(ctx context.Context, seat int) {
	err := p.work(ctx)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.alive = slices.DeleteFunc(p.w.alive, func(other *process) bool { return other == p })
	if p.dead {
		return
	}
	p.dead = true
	close(p.died)
	p.w.note(p, nil, "ended: %v", err)
	if p.leaving.IsZero() {
		p.w.hits(p, "exit")
		p.w.replace(seat, p, 10*time.Second)
	}
	if err == nil && p.leaving.IsZero() && p.w.ctx.Err() == nil {
		p.w.find("ended", nil, "%s: Run returned by itself", p.name)
	}
}

// bare is a vault that hides what a fleet does not need.
type bare struct {
	storage.Vault
	storage.Control
	reg *registry.Register
}

func (b bare) Registry() *registry.Register { return b.reg }

func (p *process) work(ctx context.Context) error {
	defer p.stop()
	reg := registry.Must(engine.Task(common, p.perform))
	if p.rare {
		reg = registry.Must(engine.Task(common, p.perform), engine.Task(rare, p.perform))
	}
	vault, err := azblob.New(ctx, prefix, "https://blob.emulator.invalid/"+emulator.DefaultAccount, vaulttest.Token{}, reg, settings.Over(p))
	if err != nil {
		return err
	}
	defer func() { _ = vault.Close(context.WithoutCancel(ctx)) }()
	p.vault = vault
	if p.ahead != 0 {
		control, _ := storage.As[storage.Control](vault)
		p.vault = bare{vault, control, reg} // without Upkeep: the times in catalogues are not shifted
	}
	opts := engine.Options{Plans: p.o.Capacity, Fleet: &p.o, Observer: engine.Observer{
		Joined: func(_ context.Context, e engine.JoinedEvent) {
			p.while(func() { p.node, p.since, p.joined, p.w.nodes[e.Node] = e.Node, time.Now(), time.Now(), p })
		},
		PickedUp: func(_ context.Context, e engine.PickedUpEvent) {
			p.while(func() { p.w.note(p, p.w.plans[e.Plan.ID], "picks up epoch %d", e.Plan.Epoch) })
		},
		Changed: func(_ context.Context, e engine.ChangedEvent) { p.while(func() { p.w.changed(p, e.Object) }) },
		Left: func(_ context.Context, e engine.LeftEvent) {
			p.while(func() { p.w.note(p, p.w.plans[e.Plan], "left: %v", e.Err) })
		},
		Problem: func(_ context.Context, e engine.ProblemEvent) {
			p.while(func() { p.w.note(p, nil, "problem: %v", e.Err) })
		},
	}}
	p.o.Observer = fleet.Observer{
		Fenced:  func(context.Context, fleet.FencedEvent) { p.while(func() { p.w.gone(p.node) }) },
		Removal: func(_ context.Context, e fleet.RemovalEvent) { p.while(func() { p.w.gone(e.Member.ID) }) },
	}
	e, err := engine.New(p.vault, opts)
	if err != nil {
		return err
	}
	p.while(func() { p.engine = e })
	return e.Run(ctx)
}

func (p *process) String() string {
	if p == nil {
		return "nobody"
	}
	return p.name
}

// while calls do with the lock of the week, while the process is alive.
func (p *process) while(do func()) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !p.dead {
		do()
	}
}

// Do sends a request. A frozen process does so when it goes on, even if the context of the request has ended: that is the
// request that was under way.
func (p *process) Do(req *http.Request) (*http.Response, error) {
	lags := p.w.draws(p.name, req.Method, req.URL, time.Now())
	if !sleep.For(req.Context(), time.Duration(lags.IntN(15_000_000))) {
		return nil, req.Context().Err()
	}
	if p.frozen() && req.Context().Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), 30*time.Second)
		defer cancel()
		req = req.WithContext(ctx)
	}
	resp, err := send(req, p.ahead, p.transport.Do)
	if err == nil && resp.StatusCode == http.StatusCreated && strings.Contains(req.URL.Path, "/keys/") {
		p.w.keyWritten(p)
	}
	time.Sleep(time.Duration(lags.IntN(15_000_000)))
	p.frozen()
	return resp, err
}

// frozen waits while the process is frozen, and reports whether it was.
func (p *process) frozen() (was bool) {
	for {
		p.w.mu.Lock()
		thawed := p.thawed
		p.w.mu.Unlock()
		if thawed == nil {
			return was
		}
		was = true
		<-thawed
	}
}

var errDead = errors.New("the process is dead")

// perform is the plugin.
func (p *process) perform(ctx context.Context, c engine.Call, t task) (string, error) {
	p.frozen()
	var k *call
	crashes, fails := false, false
	p.while(func() { k, crashes, fails = p.w.begins(p, c, t) })
	if k == nil {
		return "", errDead
	}
	over := ctx.Done()
	if t.Deaf {
		over = nil
	}
	timer := time.NewTimer(t.Takes)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
		if fails {
			err = errors.New("as it was told")
		} else {
			err = p.waits(c, k, t)
		}
	case <-over:
		err = context.Cause(ctx)
	case <-p.died:
		return "", errDead
	case <-p.w.ctx.Done():
		return "", errDead
	}
	p.frozen()
	p.while(func() {
		if crashes && err == nil {
			p.w.note(p, p.w.plans[c.Plan], "the action ends its process")
			p.w.kill(p, "crash")
		} else {
			p.w.ends(p, k, err)
		}
	})
	switch {
	case err != nil:
	case t.Panics:
		panic("as it was told")
	case t.Exits:
		runtime.Goexit()
	}
	return "ok", err
}

// waits returns Later if the plugin waits any longer.
func (p *process) waits(c engine.Call, k *call, t task) error {
	if t.Polls == 0 && t.Wants == 0 {
		return nil
	}
	var before memo
	_, err := c.State(&before)
	var signals []fleet.Signal
	if err == nil && t.Wants > 0 {
		signals, err = c.Signals(signal)
	}
	p.while(func() { p.w.sees(k, before, signals, err) })
	if err != nil {
		return engine.Later(time.Minute, before)
	}
	if after, waits := t.next(c.Action, before, len(signals)); waits {
		return engine.Later(t.Nap, after)
	}
	return nil
}

// apply makes the faults of a process take effect.
func (p *process) apply() {
	p.transport.ClearFaults()
	frozen := false
	for _, f := range p.lasting {
		if frozen = frozen || f.frozen; f.rule != nil {
			p.transport.Inject(f.rule)
		}
	}
	switch {
	case frozen && p.thawed == nil:
		p.thawed = make(chan struct{})
	case !frozen && p.thawed != nil:
		close(p.thawed)
		p.thawed = nil
	}
}

// suffer makes a fault last for some time.
func (w *week) suffer(p *process, f *fault, d time.Duration) {
	w.note(p, nil, "%s for %v", f.kind, d)
	w.hits(p, f.kind)
	p.lasting = append(p.lasting, f)
	p.apply()
	w.after(d, func() { w.heal(p, f) })
}

func (w *week) heal(p *process, f *fault) {
	if p.lasting = slices.DeleteFunc(p.lasting, func(other *fault) bool { return other == f }); !p.dead {
		p.apply()
		w.hits(p, f.kind)
	}
}

// hits notes that something happened to a process and to all plans that it has.
func (w *week) hits(p *process, kind string) {
	p.hit, p.since, p.after, w.stirred = time.Now(), time.Now(), kind, time.Now()
	for _, c := range w.openPlans() {
		if w.nodes[c.owner] == p || w.nodes[c.sleptOn] == p {
			c.kind, c.since = kind, time.Now()
			w.note(p, c, "%s", kind)
		}
	}
}

// gone notes that a node is no member any more.
func (w *week) gone(node uuid.UUID) {
	if p := w.nodes[node]; p != nil && p.node == node && node != uuid.Nil {
		w.note(p, nil, "is no member any more")
		p.node, p.since = uuid.Nil, time.Now()
	}
}

// kill ends a process at once.
func (w *week) kill(p *process, kind string) {
	if p.dead {
		return
	}
	w.note(p, nil, "dies: %s", kind)
	w.hits(p, kind)
	p.dead, p.lasting = true, nil
	p.transport.Crash()
	p.apply()
	close(p.died)
	p.stop()
	w.replace(slices.Index(w.seats, p), p, time.Duration(1+w.draws("gap", p.name).IntN(300))*time.Second)
}

// replace starts a process in place of one that has ended, after some time.
func (w *week) replace(seat int, p *process, d time.Duration) {
	w.after(d, func() {
		if seat >= 0 && w.seats[seat] == p {
			w.start(seat)
		}
	})
}

// deploy replaces a process by a new one.
func (w *week) deploy(seat int, p *process) {
	if p.dead || !p.leaving.IsZero() || w.seats[seat] != p {
		return
	}
	leave := func() {
		if !p.dead {
			kind := "deploy"
			if len(p.lasting) > 0 {
				kind = p.lasting[0].kind // the others may not learn of it
			}
			w.hits(p, kind)
			p.leaving = time.Now()
			p.stop()
		}
	}
	r := w.draws("deploy", p.name)
	gap := time.Duration(1+r.IntN(60)) * time.Second
	if r.IntN(2) == 0 {
		leave()
		w.replace(seat, p, gap)
	} else {
		w.start(seat)
		w.after(gap, leave)
	}
}

// able reports whether a process could work: it is a member, nothing is wrong with it, and it does not leave.
func (p *process) able() bool {
	return !p.dead && p.leaving.IsZero() && p.node != uuid.Nil && len(p.lasting) == 0
}

// suffers reports whether something is wrong with a process.
func (p *process) suffers() bool { return len(p.lasting) > 0 }

// openPlans returns the plans that are not final in the order in which they were submitted.
func (w *week) openPlans() []*career {
	return slices.SortedFunc(maps.Values(w.open), func(a, b *career) int { return a.number - b.number })
}
