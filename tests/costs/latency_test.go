package costs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// crew is the engines that share a vault. It notes when plans begin and end.
type crew struct {
	t       testing.TB
	reg     *registry.Register
	engines []*engine.Engine
	work    errgroup.Group
	running context.Context
	leave   context.CancelFunc

	mu    sync.Mutex
	lives map[uuid.UUID]*life
}

// life is what becomes of a plan.
type life struct {
	submitted  time.Time
	begun, end chan time.Time // of the first action, and of the plan
}

func newCrew(t testing.TB) *crew {
	c := &crew{t: t, lives: map[uuid.UUID]*life{}}
	c.running, c.leave = context.WithCancel(t.Context())
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
func (c *crew) hire(v storage.Vault, o engine.Options) {
	o.Observer = engine.Observer{
		Changed: func(_ context.Context, e engine.ChangedEvent) {
			if e.Object.Kind() == workflow.KindPlan && e.Object.Header().State.Status.Final() {
				if l := c.life(*e.Object.Header().ID); l != nil {
					l.end <- time.Now()
				}
			}
		},
		Problem: func(_ context.Context, e engine.ProblemEvent) { c.t.Error(e.Err) },
	}
	e, err := engine.New(v, o)
	vaulttest.Must(c.t, err)
	c.engines = append(c.engines, e)
	c.work.Go(func() error { return e.Run(c.running) })
}

// dismiss ends all engines.
func (c *crew) dismiss() {
	c.leave()
	vaulttest.Must(c.t, c.work.Wait())
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
func (c *crew) submit(engine int, p *workflow.Plan) *life {
	l := c.expect(p)
	if _, err := c.engines[engine%len(c.engines)].Submit(c.running, p); err != nil {
		c.t.Error(err)
	}
	l.submitted = time.Now()
	return l
}

// setting is where latencies are measured.
type setting struct {
	size    size
	latency time.Duration // of a request
	engines int           // 1 is alone, more are a fleet
	plans   int           // Options.Plans of each
}

func settings() (list []setting) {
	for _, size := range []size{sizes[0], {"M", unbypassed}} {
		for _, latency := range []time.Duration{1, 10, 50} {
			for _, engines := range []int{1, 3} {
				for _, plans := range []int{16, 300} {
					list = append(list, setting{size, latency * time.Millisecond, engines, plans})
				}
			}
		}
	}
	return list
}

// TestLatency measures in virtual time how soon submitted plans begin and end, and plans a second. A plan of one action begins
// after two round trips and ends after eight. -args -largest measures all settings; docs/embedding.md has their results.
func TestLatency(t *testing.T) {
	efforttest.NotShort(t, "the conformance suite and tests/week run engines under the race detector")
	list, plans := settings()[4:5], 150
	if *largest {
		list, plans = settings(), 1000
	}
	for _, s := range list {
		t.Run(fmt.Sprintf("%s, a request %v, %d x %d plans", s.size.name, s.latency, s.engines, s.plans), func(t *testing.T) {
			var first, end time.Duration // from Submit's return, while nothing else runs; the longest of one plan for each engine
			s.staged(t, 0, func(c *crew, _ []*life) {
				for i := range s.engines {
					one := c.submit(i, s.size.plan())
					first = max(first, (<-one.begun).Sub(one.submitted))
					end = max(end, (<-one.end).Sub(one.submitted))
				}
				rate := s.drive(c, plans)
				t.Logf("first action %v, end %v, %.0f plans/s of %d clients", first, end, rate, clients)
				if most := float64(s.engines*s.plans) / end.Seconds(); rate > 1.05*most || rate < min(most, 0.8*clients/end.Seconds())/2 {
					t.Errorf("%.0f plans/s, and %.0f with all places taken", rate, most)
				}
			})
			if s.size.name == "S" && (first > 2*s.latency || end > 8*s.latency) {
				t.Errorf("first action after %v, end after %v", first, end)
			}
			s.staged(t, plans, func(_ *crew, lives []*life) {
				began := time.Now()
				for _, one := range lives {
					<-one.end
				}
				t.Logf("%.0f stored plans/s", float64(plans)/time.Since(began).Seconds())
			})
		})
	}
}

// clients is how many clients submit a plan, wait for its end, and submit the next one.
const clients = 64

// drive lets the clients submit so many plans, and returns how many end in a second while all clients are busy.
func (s setting) drive(c *crew, plans int) float64 {
	var all sync.WaitGroup
	next, ends := make(chan int, plans), make(chan time.Time, plans)
	for i := range plans {
		next <- i
	}
	close(next)
	begun := time.Now()
	for range clients {
		all.Go(func() {
			for i := range next {
				ends <- <-c.submit(i, s.size.plan()).end
			}
		})
	}
	all.Wait()
	var last time.Time
	busy := plans - clients
	for range busy {
		last = <-ends
	}
	return float64(busy) / last.Sub(begun).Seconds()
}

// staged starts the engines in virtual time, where as many plans are stored, and calls do: at once, or if no plan is stored,
// when the engines are idle.
func (s setting) staged(t *testing.T, stored int, do func(*crew, []*life)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20*24*time.Hour + evening)
		server, c := emulator.New(emulator.Options{NoLog: true}), newCrew(t)
		open := func(latency time.Duration) *azblob.Vault {
			n := &counter{next: server.Transport(), latency: latency}
			v, err := azblob.NewFromConnectionString(t.Context(), vaultName, server.ConnectionString(), c.reg, azblob.Options{ClientOptions: policy.ClientOptions{Transport: n}})
			vaulttest.Must(t, err)
			t.Cleanup(func() { vaulttest.Must(t, v.Close(context.Background())) })
			return v
		}
		v := open(0)
		lives := make([]*life, stored)
		for i := range lives {
			p := s.size.plan()
			lives[i] = c.expect(p)
			vaulttest.Must(t, v.Create(t.Context(), p))
		}
		o := engine.Options{Plans: s.plans}
		for i := range s.engines {
			if s.engines > 1 {
				o.Fleet = &fleet.Options{Name: fmt.Sprint(i)}
			}
			c.hire(open(s.latency), o)
		}
		t.Cleanup(c.dismiss)
		if stored == 0 {
			time.Sleep(settled)
		}
		do(c, lives)
	})
}
