package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// tidyAfter is the age at which a fleet compares a stop request with its plan, and some more.
const tidyAfter = 65 * time.Second

// chaos is a run of a fleet of processes, which are killed, frozen and started again.
type chaos struct {
	*processes
	calls *calls
	vault *azblob.Vault // on a connection without faults
	ttl   time.Duration
	seats []*seat

	mu      sync.Mutex
	recent  uuid.UUID // the plan that was picked up last
	stirred time.Time // when something happened last
}

// seat is a place for a process. Its fields are guarded by chaos.mu.
type seat struct {
	p       *process  // nil if there is none, or if it is dying or leaving
	node    uuid.UUID // uuid.Nil until the process has joined
	frozen  bool
	pending int // commands without an answer
}

// playChaos runs a fleet under disturbances for the configured time, or until ctx ends. Then it lets the fleet
// end all plans, and checks what is stored.
//
// The grace period of the vaults is longer than any freeze: a Create that takes longer takes its plan back, although a
// node may have begun it, and may leave blobs that no marker leads to.
func (s *stage) playChaos(ctx context.Context) error {
	ttl := ttlOf * s.cfg.interval
	s.printf("\n== chaos: %d nodes and %d plans for %v; interval %v, TTL %v; -seed repeats the plans and the disturbances\n",
		s.cfg.fleet, s.cfg.plans, s.cfg.chaos, s.cfg.interval, ttl)
	calls := newCalls(ttl + 3*s.cfg.interval)
	return s.withProcesses("chaos", longestFreeze(ttl)+30*time.Second, calls, func(p *processes) error {
		p.order.Interval, p.order.Keys = s.cfg.interval, s.cfg.keys
		return (&chaos{processes: p, calls: calls, ttl: ttl, stirred: time.Now()}).play(ctx)
	})
}

// Freezes last from a sixth of the TTL to twice the TTL: 5 to 60 seconds with the default.
func shortestFreeze(ttl time.Duration) time.Duration { return ttl / 6 }
func longestFreeze(ttl time.Duration) time.Duration  { return 2 * ttl }

func (c *chaos) play(ctx context.Context) (err error) {
	always := context.WithoutCancel(ctx) // what is checked after an interrupt is the same
	if c.vault, err = c.dial(always, c.cfg.prefix, azblob.Options{GracePeriod: c.order.Grace}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.vault.Close(always)) }()

	working, release := context.WithCancel(always)
	defer release()
	disturbing, calm := context.WithTimeout(ctx, c.cfg.chaos)
	defer calm()
	nodes, working := errgroup.WithContext(working) // a process that ends by itself ends the chaos
	context.AfterFunc(working, calm)
	for n := range c.cfg.fleet {
		seat := &seat{}
		c.seats = append(c.seats, seat)
		nodes.Go(func() error { return c.sit(working, disturbing, seat, n) })
	}
	var helpers sync.WaitGroup
	helpers.Go(func() { c.submit(disturbing) })
	helpers.Go(func() { c.disturb(disturbing, &helpers) })
	if c.cfg.keys > 0 {
		helpers.Go(func() { c.setLimits(disturbing) })
	}
	helpers.Wait()

	c.drain(working)
	if c.cfg.keys > 0 {
		c.takeLast(always)
		c.drain(working)
	}
	c.rest(working)
	release()
	if err := nodes.Wait(); err != nil {
		return err
	}
	err = c.conclude(always)
	if c.cfg.keys > 0 {
		c.printf("%v\n", c.calls.turns)
	}
	found, _ := c.remains(always)
	c.find(found...)
	return err
}

// sit lets one process after the other work as a node.
func (c *chaos) sit(working, disturbing context.Context, s *seat, n int) error {
	r := rand.New(rand.NewPCG(c.cfg.seed, uint64(n)))
	for life := 0; working.Err() == nil; life++ {
		err := c.live(working, n, life, r.Uint64(), func(p *process) {
			c.mu.Lock()
			defer c.mu.Unlock()
			*s = seat{p: p}
		}, func(m message) { c.hear(working, s, m) })
		c.mu.Lock()
		*s = seat{}
		c.mu.Unlock()
		if err != nil {
			return fmt.Errorf("node %d: %w", n, err)
		}
		sleep.For(disturbing, time.Duration(r.Int64N(int64(c.ttl))))
	}
	return nil
}

// hear notes what the processes do to plans and to each other.
func (c *chaos) hear(working context.Context, s *seat, m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.What {
	case joined: // a process that was fenced joins as a new node
		s.node = m.Node
	case picked:
		c.recent, c.stirred = m.Plan, time.Now()
	case called, stored, ended:
		if c.stirred = time.Now(); m.Waits {
			go c.wake(working, m.Plan)
		}
	case created, stopAsked:
		if c.stirred = time.Now(); !m.Begin {
			s.pending--
		}
	}
}

// seatFor returns a random process that has joined and is not frozen, or nil.
func (c *chaos) seatFor(r *rand.Rand) *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range r.Perm(len(c.seats)) {
		if s := c.seats[i]; s.p != nil && s.node != uuid.Nil && !s.frozen {
			return s
		}
	}
	return nil
}

// tell sends a command to a process. If the process dies, nobody carries the command out.
func (c *chaos) tell(s *seat, order command) {
	c.mu.Lock()
	p := s.p
	if p != nil {
		s.pending++
	}
	c.mu.Unlock()
	if p != nil {
		p.send(order)
	}
}

// submit lets random nodes create plans at a steady rate, and request that some of them stop.
func (c *chaos) submit(ctx context.Context) {
	r := rand.New(rand.NewPCG(c.cfg.seed, 1<<32))
	start := time.Now()
	for i := range c.cfg.plans {
		at := start.Add(c.cfg.chaos * time.Duration(i) / time.Duration(c.cfg.plans))
		s := c.seatFor(r)
		for sleep.For(ctx, max(time.Until(at), 0)) && s == nil {
			at = time.Now().Add(100 * time.Millisecond)
			s = c.seatFor(r)
		}
		if ctx.Err() != nil {
			return
		}
		c.tell(s, command{Submit: r.Uint64()})
		c.mu.Lock()
		plan := c.recent
		c.mu.Unlock()
		if r.IntN(30) == 0 && plan != uuid.Nil {
			c.tell(s, command{Stop: plan})
		}
	}
}

// disturb kills and freezes random processes, and lets some leave. Frozen processes continue when it is over.
func (c *chaos) disturb(ctx context.Context, frozen *sync.WaitGroup) {
	r := rand.New(rand.NewPCG(c.cfg.seed, 1<<33))
	for sleep.For(ctx, time.Duration(r.ExpFloat64()*float64(c.cfg.every))) {
		s := c.seatFor(r)
		if s == nil {
			continue
		}
		switch r.IntN(10) {
		case 0: // a process that submits a plan and dies
			c.tell(s, command{Submit: r.Uint64()})
			sleep.For(ctx, time.Duration(r.IntN(50))*time.Millisecond)
			c.silence(s, c.kill)
		case 1, 2, 3:
			c.silence(s, c.kill)
		case 4, 5, 6, 7:
			p := c.silence(s, func(p *process) bool { return p.signal(sigFreeze) })
			least := shortestFreeze(c.ttl)
			long := least + time.Duration(r.Int64N(int64(longestFreeze(c.ttl)-least)))
			frozen.Go(func() {
				sleep.For(ctx, long)
				c.thaw(s, p)
			})
		default:
			c.mu.Lock()
			if s.p != nil {
				s.p.finish()
				s.p = nil
				c.add("leaves", 1)
			}
			c.mu.Unlock()
		}
	}
}

// silence kills or freezes the process of a seat, and returns it.
func (c *chaos) silence(s *seat, do func(*process) bool) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := s.p
	if p == nil || !do(p) {
		return nil
	}
	if s.frozen = !p.killed.Load(); s.frozen {
		c.add("freezes", 1)
	} else {
		s.p = nil
	}
	return p
}

// thaw lets a process continue, whether or not it is still the one of the seat.
func (c *chaos) thaw(s *seat, p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p != nil && p.signal(sigThaw) && s.p == p {
		s.frozen = false
	}
}

// limit is how long no plan may make progress before the chaos gives up.
func (c *chaos) limit() time.Duration { return 2*time.Minute + 4*c.ttl }

// drain waits until all plans are final, or none makes progress.
func (c *chaos) drain(ctx context.Context) {
	for ctx.Err() == nil {
		pending, idle := c.progress()
		if idle > c.limit() {
			return
		}
		if pending == 0 {
			open, err := c.vault.Count(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
			if err == nil && open == 0 {
				return
			}
		}
		sleep.For(ctx, c.cfg.interval/2)
	}
}

// progress returns how many commands are being carried out, and for how long nothing has happened.
func (c *chaos) progress() (pending int, idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.seats {
		pending += s.pending
	}
	return pending, time.Since(c.stirred)
}

// rest waits until the fleet has forgotten its dead, and the requests to stop plans.
func (c *chaos) rest(ctx context.Context) {
	waited := false
	for until := time.Now().Add(c.limit()); ctx.Err() == nil && time.Now().Before(until); sleep.For(ctx, c.cfg.interval/2) {
		found, stops := c.remains(ctx)
		switch {
		case len(found) == 0:
			return
		case stops && !waited:
			waited = true
			_ = c.wait(ctx, tidyAfter)
			until = time.Now().Add(c.limit())
		}
	}
}

// remains returns what is left of dead nodes, and whether stop requests are.
func (c *chaos) remains(ctx context.Context) (found []finding, stops bool) {
	r, err := c.vault.Control().Roster(ctx)
	if err != nil {
		return []finding{{What: half, Detail: oneLine(err)}}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range r.Members {
		if m.Phase != storage.PhaseLeft && !slices.ContainsFunc(c.seats, func(s *seat) bool { return s.node == m.ID }) {
			found = append(found, finding{What: leftOver, Detail: fmt.Sprintf("the record of node %s (%s), which is dead", m.ID, m.Name)})
		}
	}
	for _, s := range r.Stops {
		found = append(found, finding{leftOver, s.Plan, "a stop request"})
	}
	return append(found, c.turnsLeft(ctx)...), len(r.Stops) > 0
}
