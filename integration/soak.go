package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

const (
	// soakGrace is long enough for most Creates on a busy machine. A Create that takes longer fails.
	soakGrace  = 5 * time.Second
	maxClients = 255 // a stamp has no room for more
)

// soak is a run of many processes on one vault.
type soak struct {
	*stage
	order  order
	ledger *ledger

	mu      sync.Mutex
	figures figures
	// live holds the last counts of the running clients, past the sums of all that ended.
	live map[int]event
	past event
}

// figures are the counts of a soak so far.
type figures struct {
	Operations int            `json:"operations"`
	Told       map[string]int `json:"told"` // errors of operations by kind
	Requests   int            `json:"requests"`
	PerSecond  float64        `json:"requestsPerSecond"`
	Faults     int            `json:"faults"`
	Kills      int            `json:"kills"`
	Plans      int            `json:"plans"`
	Seconds    float64        `json:"seconds"`
	// Heap is the live heap in bytes. Both are of this process.
	Heap       uint64 `json:"heap"`
	Goroutines int    `json:"goroutines"`

	// HeapEarly and GoroutinesEarly are the first values, with all clients at work.
	HeapEarly       uint64 `json:"heapEarly"`
	GoroutinesEarly int    `json:"goroutinesEarly"`

	findings
}

func (f figures) String() string {
	return fmt.Sprintf("%s: %d operations (errors: %s), %d requests, %.0f a second, %d faults, %d kills, %d plans, heap %.1f MB (%.1f early on), %d goroutines (%d), violations: %s",
		time.Duration(f.Seconds*float64(time.Second)).Round(time.Second), f.Operations, counts(f.Told), f.Requests, f.PerSecond, f.Faults, f.Kills,
		f.Plans, float64(f.Heap)/1e6, float64(f.HeapEarly)/1e6, f.Goroutines, f.GoroutinesEarly, counts(f.Violations))
}

// playSoak lets the clients work for the configured time, or until ctx ends, and then checks the vault.
func (s *stage) playSoak(ctx context.Context) error {
	return s.withProcesses(ctx, soakGrace, func(o order) error {
		run := &soak{stage: s, order: o, ledger: newLedger(), figures: figures{Told: map[string]int{}, findings: findings{Violations: map[string]int{}}}, live: map[int]event{}}
		s.out.step("soak", fmt.Sprintf("%d processes for %v; -seed %d repeats their operations", s.cfg.clients, s.cfg.soak, s.cfg.seed))
		err := run.clients(ctx)
		// The vault is checked after an interrupt, too.
		err = errors.Join(err, run.judge(context.WithoutCancel(ctx)))
		s.soaked = new(run.now())
		return err
	})
}

// clients runs the clients until the soak ends.
func (s *soak) clients(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, s.cfg.soak)
	defer stop()
	started := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for n := range s.cfg.clients {
		g.Go(func() error {
			r := rand.New(rand.NewPCG(s.cfg.seed, uint64(n)))
			for life := 0; ctx.Err() == nil; life++ {
				if err := s.oneLife(ctx, n, life, r); err != nil {
					return fmt.Errorf("client %d: %w", n, err)
				}
			}
			return nil
		})
	}
	hush := s.report(func() fmt.Stringer { return s.measure(started) })
	err := g.Wait()
	hush()
	s.measure(started)
	return err
}

// report prints figures every ten seconds, until hush is called.
func (s *stage) report(figures func() fmt.Stringer) (hush func()) {
	ctx, stop := context.WithCancel(context.Background())
	var reporting sync.WaitGroup
	reporting.Go(func() {
		for sleep.For(ctx, 10*time.Second) {
			s.out.progress(figures())
		}
	})
	return func() {
		stop()
		reporting.Wait()
	}
}

// now returns a copy of the figures.
func (s *soak) now() figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.figures
	f.Told, f.Violations = maps.Clone(f.Told), maps.Clone(f.Violations)
	return f
}

// measure updates the figures and returns a copy.
func (s *soak) measure(started time.Time) figures {
	runtime.GC() // only the live heap counts
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.mu.Lock()
	f := &s.figures
	f.Requests, f.Faults = s.past.Requests, s.past.Faults
	for _, e := range s.live {
		f.Requests += e.Requests
		f.Faults += e.Faults
	}
	f.Seconds = time.Since(started).Seconds()
	f.PerSecond = float64(f.Requests) / f.Seconds
	f.Plans, f.Heap, f.Goroutines = s.ledger.len(), m.HeapAlloc, runtime.NumGoroutine()
	if f.HeapEarly == 0 {
		f.HeapEarly, f.GoroutinesEarly = f.Heap, f.Goroutines
	}
	s.mu.Unlock()
	return s.now()
}

// oneLife runs a client until it is killed or the soak ends.
func (s *soak) oneLife(ctx context.Context, n, life int, r *rand.Rand) error {
	o := s.order
	o.Client, o.Life, o.Seed = n, life, r.Uint64()
	p, err := startProcess(o)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, p.finish)() // after its operation
	longest := min(10<<min(life, 4), 150)    // operations; the first lives are short, so that short soaks kill too
	listenErr := s.listen(p, n, 1+r.IntN(longest), func() {
		// In the middle of this operation, or of one soon after.
		time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
		_ = p.kill()
	})
	waitErr := p.wait()
	if !p.killed.Load() {
		return errors.Join(listenErr, waitErr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.figures.Kills++
	return nil
}

// listen records the events of a client until it ends. It calls kill when the client begins its nth
// operation.
func (s *soak) listen(p *process, client, nth int, kill func()) error {
	var op event // under way
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.past.Requests += s.live[client].Requests
		s.past.Faults += s.live[client].Faults
		delete(s.live, client)
		s.ledger.giveUp(op)
	}()
	return listen(p, func(e event) {
		if !e.End {
			op = e
			s.ledger.note(op, unknown)
			if nth--; nth == 0 {
				kill()
			}
			return
		}
		s.ledger.note(op, e.fate())
		s.count(client, op, e)
		op = event{}
	})
}

// count adds an operation to the figures.
func (s *soak) count(client int, op, e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[client] = e
	s.figures.Operations++
	if e.Told != "" {
		s.figures.Told[e.Told]++
	}
	if e.Told == "wrong" {
		s.figures.add(finding{half, op.Plan, fmt.Sprintf("client %d: %s returned %s", client, op.Op, e.Error)})
	}
}

// judge recovers until nothing is recent, and then compares the vault with what the clients were told.
func (s *soak) judge(ctx context.Context) error {
	v, err := s.dial(ctx, s.cfg.prefix, azblob.WithGracePeriod(s.order.Grace))
	if err != nil {
		return err
	}
	defer func() { _ = v.Close(ctx) }()
	there, found, err := s.inspect(ctx, v, s.order.Grace)
	if err != nil {
		return err
	}
	found = append(found, s.ledger.compare(there)...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.figures.Plans = len(there)
	s.figures.add(found...)
	return s.figures.err("soak")
}

// inspect recovers until nothing is recent, checks the vault and reads all plans. A plan that can't be read is
// nil, and a finding.
func (s *stage) inspect(ctx context.Context, v *azblob.Vault, grace time.Duration) (there map[uuid.UUID]*workflow.Plan, found []finding, err error) {
	// The grace period, its margin, and more than a second because the service tells whole seconds.
	if err := s.wait(ctx, grace+grace/4+2500*time.Millisecond); err != nil {
		return nil, nil, err
	}
	if _, err := s.recoverAll(ctx, v); err != nil {
		found = append(found, finding{What: half, Detail: oneLine(err)})
	}
	report, err := v.Check(ctx, azblob.CheckOptions{})
	if err != nil {
		return nil, nil, err
	}
	found = append(found, problems(report)...)
	there, unread, err := readAll(ctx, v)
	return there, append(found, unread...), err
}

// problems returns the findings of Check.
func problems(r azblob.CheckReport) []finding {
	var found []finding
	for _, p := range r.Problems {
		what := half
		switch p.Kind {
		case azblob.Orphan, azblob.Stray, azblob.LeftMarker:
			what = leftOver
		}
		found = append(found, finding{what, p.Plan, p.String()})
	}
	if r.InProgress > 0 {
		found = append(found, finding{What: half, Detail: count(r.InProgress, "plan") + " in progress, though no client is running"})
	}
	return found
}

// readAll reads all listed plans. A plan that can't be read is nil, and a finding.
func readAll(ctx context.Context, v *azblob.Vault) (there map[uuid.UUID]*workflow.Plan, unread []finding, err error) {
	listed, err := storage.Collect(v.List(ctx, 0))
	if err != nil {
		return nil, nil, err
	}
	there = map[uuid.UUID]*workflow.Plan{}
	for _, r := range listed {
		plan, err := v.Read(ctx, r.ID)
		if err != nil {
			unread = append(unread, finding{half, r.ID, oneLine(err)})
		}
		there[r.ID] = plan
	}
	return there, unread, nil
}
