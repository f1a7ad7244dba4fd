package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
)

// soakGrace is long enough for most Creates on a busy machine. A Create that takes longer fails.
const soakGrace = 5 * time.Second

// playSoak lets the clients work for the configured time, or until ctx ends, and then checks the vault.
func (s *stage) playSoak(ctx context.Context) error {
	s.printf("\n== soak: %d processes for %v; -seed repeats their operations\n", s.cfg.clients, s.cfg.soak)
	return s.withProcesses("soak", soakGrace, newLedger(), func(p *processes) error {
		err := p.clients(ctx)
		return errors.Join(err, p.conclude(context.WithoutCancel(ctx))) // after an interrupt, too
	})
}

// clients runs the clients until the soak ends. Heap and goroutines are those of this process with all clients at work:
// early in the soak, and at its end.
func (p *processes) clients(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, p.cfg.soak)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	defer time.AfterFunc(min(10*time.Second, p.cfg.soak/2), func() { p.weigh("early") }).Stop()
	defer context.AfterFunc(ctx, func() { p.weigh("late") })()
	for n := range p.cfg.clients {
		g.Go(func() error {
			r := rand.New(rand.NewPCG(p.cfg.seed, uint64(n)))
			for life := 0; ctx.Err() == nil; life++ {
				if err := p.oneClient(ctx, n, life, r); err != nil {
					return fmt.Errorf("client %d: %w", n, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// weigh notes the live heap and the goroutines of this process.
func (p *processes) weigh(when string) {
	runtime.GC() // only the live heap counts
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p.set("MB of heap "+when, int(m.HeapAlloc/1e6))
	p.set("goroutines "+when, runtime.NumGoroutine())
}

// oneClient runs a client until it is killed, in the middle of one of its first operations or soon after, or the soak
// ends.
func (p *processes) oneClient(ctx context.Context, n, life int, r *rand.Rand) error {
	longest := min(10<<min(life, 4), 150) // operations; the first lives are short, so that short soaks kill too
	operations := 1 + r.IntN(longest)
	var client *process
	return p.live(ctx, n, life, r.Uint64(), func(began *process) { client = began }, func(m message) {
		if !m.Begin {
			p.add("operations", 1)
		} else if operations--; operations == 0 {
			time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
			p.kill(client)
		}
	})
}
