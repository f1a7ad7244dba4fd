package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// crew is the engines that share a vault. It notes when plans begin and end.
type crew struct {
	reg     *registry.Register
	engines []*engine.Engine
	work    errgroup.Group
	leave   []context.CancelFunc

	mu    sync.Mutex
	lives map[uuid.UUID]*life
	errs  []error
}

// life is what becomes of a plan.
type life struct {
	submitted  time.Time
	begun, end chan time.Time // of the first action, and of the plan
}

func newCrew() *crew {
	c := &crew{lives: map[uuid.UUID]*life{}}
	c.reg = registry.Must(engine.Task(plantest.PluginName, func(_ context.Context, call engine.Call, _ plantest.Request) (*plantest.Response, error) {
		if l := c.life(call.Plan); l != nil {
			select {
			case l.begun <- time.Now():
			default: // another action was the first
			}
		}
		return &plantest.Response{}, nil
	}))
	return c
}

func (c *crew) life(plan uuid.UUID) *life {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lives[plan]
}

// hire starts an engine.
func (c *crew) hire(ctx context.Context, v storage.Vault, o engine.Options) error {
	o.Observer = engine.Observer{
		Changed: func(_ context.Context, e engine.ChangedEvent) {
			if e.Object.Kind() == workflow.KindPlan && e.Object.Header().State.Status.Final() {
				if l := c.life(*e.Object.Header().ID); l != nil {
					l.end <- time.Now()
				}
			}
		},
		Problem: func(_ context.Context, e engine.ProblemEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.errs = append(c.errs, e.Err)
		},
	}
	e, err := engine.New(v, o)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	c.engines, c.leave = append(c.engines, e), append(c.leave, leave)
	c.work.Go(func() error { return e.Run(ctx) })
	return nil
}

// dismiss ends all engines. Its error is everything that went wrong.
func (c *crew) dismiss(context.Context) error {
	for _, leave := range c.leave {
		leave()
	}
	return errors.Join(append(c.errs, c.work.Wait())...)
}

// expect returns the life of a new plan.
func (c *crew) expect(p *workflow.Plan) *life {
	l := &life{begun: make(chan time.Time, 1), end: make(chan time.Time, 1)}
	p.ID = workflow.NewV7()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives[p.ID] = l
	return l
}

// submit gives a plan to one of the engines.
func (c *crew) submit(ctx context.Context, engine int, p *workflow.Plan) (*life, error) {
	l := c.expect(p)
	err := c.engines[engine%len(c.engines)].Submit(ctx, p)
	l.submitted = time.Now()
	return l, err
}

// submitted measures a Submit and what follows it until the plan's first action or its end.
func submitted(o engine.Options, until func(*life) chan time.Time) prepare {
	o.Poll, o.NoRetention = time.Hour, true // it sends nothing of its own
	return func(ctx context.Context, s *scene) (step, error) {
		c := newCrew()
		if err := errors.Join(s.vault.Create(ctx, plantest.Small()), c.hire(ctx, s.vault, o)); err != nil {
			return nil, err
		}
		s.after = c.dismiss
		time.Sleep(settled) // it has run the first plan of the day
		p := s.size.plan()
		return func(ctx context.Context) error {
			l, err := c.submit(ctx, 0, p)
			if err == nil {
				<-until(l)
			}
			return err
		}, nil
	}
}

// engineRows returns what a plan costs that is submitted to an idle engine.
func engineRows() []row {
	firstAction, end := func(l *life) chan time.Time { return l.begun }, func(l *life) chan time.Time { return l.end }
	alone, inFleet := engine.Options{}, engine.Options{Fleet: &fleet.Options{Interval: time.Hour}}
	small, medium := sizes()[0], size{"M", func() *workflow.Plan {
		p := unbypassed()
		p.ContChecks.Delay = time.Hour // one round
		return p
	}}
	idempotent := func(s size) size {
		return size{s.name, func() *workflow.Plan {
			p := s.plan()
			for o := range workflow.Walk(p) {
				if a, ok := o.(*workflow.Action); ok {
					a.Idempotent = true
				}
			}
			return p
		}}
	}
	return []row{
		{operation: operation{"engine: Submit, to the first action", submitted(alone, firstAction), fixed(9, 4+2)}, size: small},
		{operation: operation{"engine: Submit, to the end", submitted(alone, end), wholeLife(1, 12)}, size: small},
		{operation: operation{"engine: Submit, to the end", submitted(alone, end), wholeLife(1, 132)}, size: medium},
		{operation: operation{"engine: Submit, to the end, idempotent", submitted(alone, end), wholeLife(0, 11)}, size: idempotent(small)},
		{operation: operation{"engine: Submit, to the end, idempotent", submitted(alone, end), wholeLife(0, 79)}, size: idempotent(medium)},
		{operation: operation{"fleet: Submit, to the first action", submitted(inFleet, firstAction), fixed(9, 4+2)}, size: small},
		{operation: operation{"fleet: Submit, to the end", submitted(inFleet, end), wholeLife(1, 12)}, size: small},
	}
}

// wholeLife is the budget for a plan's life, in which so many writes precede each action. An action of M's continuous
// checks is also stored when its round ends.
func wholeLife(before, trips int) func(subject) budget {
	return func(s subject) budget {
		rounds := 2 * min(1, s.parts[workflow.KindChecks])
		return budget{2*s.n() + before*s.parts[workflow.KindAction] + rounds + 8, trips}
	}
}

// setting is where latencies are measured.
type setting struct {
	size    size
	latency time.Duration // of a request
	engines int           // 1 is alone, more are a fleet
	plans   int           // Options.Plans of each
}

func (s setting) String() string {
	return fmt.Sprintf("%s, %2d ms, %d x %3d", s.size.name, s.latency.Milliseconds(), s.engines, s.plans)
}

func settings(short bool) (all []setting) {
	for _, size := range []size{sizes()[0], {"M", unbypassed}} {
		for _, latency := range []time.Duration{1, 10, 50} {
			for _, engines := range []int{1, 3} {
				for _, plans := range []int{16, 300} {
					if size.name == "S" && !short || latency == 10 {
						all = append(all, setting{size, latency * time.Millisecond, engines, plans})
					}
				}
			}
		}
	}
	return all
}

// promptness is the result of a setting.
type promptness struct {
	first, end      time.Duration // from Submit's return, while nothing else runs; the longest of one plan for each engine
	clients, stored float64       // plans a second
	slowest         time.Duration // of a client's plan
}

// clients is how many clients submit a plan, wait for its end, and submit the next one.
const clients = 64

// measure measures with as many plans of the clients, and as many that are stored before the engines start.
func (s setting) measure(ctx context.Context, plans int) (l promptness, err error) {
	err = s.staged(ctx, 0, func(ctx context.Context, c *crew, _ []*life) (err error) {
		for i := range s.engines {
			one, err := c.submit(ctx, i, s.size.plan())
			if err != nil {
				return err
			}
			l.first = max(l.first, (<-one.begun).Sub(one.submitted))
			l.end = max(l.end, (<-one.end).Sub(one.submitted))
		}
		l.clients, l.slowest, err = s.drive(ctx, c, plans)
		return err
	})
	if err != nil {
		return l, err
	}
	return l, s.staged(ctx, plans, func(_ context.Context, _ *crew, lives []*life) error {
		begun := time.Now()
		for _, one := range lives {
			<-one.end
		}
		l.stored = float64(plans) / time.Since(begun).Seconds()
		return nil
	})
}

// drive lets the clients submit as many plans. It returns plans a second while all clients are busy, and the longest time
// from a Submit's return to the end of its plan.
func (s setting) drive(ctx context.Context, c *crew, plans int) (rate float64, slowest time.Duration, err error) {
	var (
		all       errgroup.Group
		submitted atomic.Int64
		mu        sync.Mutex
		ends      []time.Time
		begun     = time.Now()
	)
	for i := range clients {
		all.Go(func() error {
			for submitted.Add(1) <= int64(plans) {
				one, err := c.submit(ctx, i, s.size.plan())
				if err != nil {
					return err
				}
				end := <-one.end
				mu.Lock()
				ends, slowest = append(ends, end), max(slowest, end.Sub(one.submitted))
				mu.Unlock()
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return 0, 0, err
	}
	busy := plans - clients
	return float64(busy) / ends[busy-1].Sub(begun).Seconds(), slowest, nil
}

// staged starts the engines in virtual time, where as many plans are stored, and calls do: at once, or if no plan is
// stored, when the engines are idle.
func (s setting) staged(ctx context.Context, stored int, do func(context.Context, *crew, []*life) error) error {
	return bubble(ctx, evening, func(ctx context.Context, _ time.Time) (err error) {
		server, c := emulator.New(emulator.WithoutLog()), newCrew()
		open := func(latency time.Duration) (*azblob.Vault, error) {
			m := newMeter(server.Transport())
			m.latency = latency
			return azblob.NewFromConnectionString(ctx, vaultName, server.ConnectionString(), c.reg, azblob.Options{ClientOptions: policy.ClientOptions{Transport: m}, Concurrency: concurrency})
		}
		v, err := open(0)
		if err != nil {
			return err
		}
		lives := make([]*life, stored)
		for i := range lives {
			p := s.size.plan()
			lives[i] = c.expect(p)
			if err := v.Create(ctx, p); err != nil {
				return err
			}
		}
		o := engine.Options{Plans: s.plans}
		vaults := []*azblob.Vault{v}
		defer func() {
			err = errors.Join(err, c.dismiss(ctx))
			for _, v := range vaults {
				err = errors.Join(err, v.Close(ctx))
			}
		}()
		for i := range s.engines {
			if s.engines > 1 {
				o.Fleet = &fleet.Options{Name: fmt.Sprint(i)}
			}
			v, err := open(s.latency)
			if err != nil {
				return err
			}
			vaults = append(vaults, v)
			if err := c.hire(ctx, v, o); err != nil {
				return err
			}
		}
		if stored == 0 {
			time.Sleep(settled)
		}
		return do(ctx, c, lives)
	})
}

// await measures the settings.
func await(ctx context.Context, cfg config, stdout io.Writer) error {
	if !cfg.list {
		fmt.Fprintf(stdout, "%-20s %16s %12s %20s %12s %16s\n", "plan, request, Plans", "first action, ms", "the end, ms", "64 clients, plans/s", "slowest, ms", "stored, plans/s")
	}
	return eachRow(ctx, cfg, settings(cfg.short), stdout, func(s setting) error {
		plans := 1000
		if cfg.short || s.size.name != "S" {
			plans = 150
		}
		l, err := s.measure(ctx, plans)
		if err == nil {
			fmt.Fprintf(stdout, "%-20s %16d %12d %20.0f %12d %16.0f\n", s, l.first.Milliseconds(), l.end.Milliseconds(), l.clients, l.slowest.Milliseconds(), l.stored)
		}
		return err
	})
}
