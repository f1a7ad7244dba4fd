package main

import (
	"context"
	"errors"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow/plantest"
)

// result is what one row came to.
type result struct {
	Row        string         `json:"row"`
	SubObjects int            `json:"subObjects,omitzero"`
	Plans      int            `json:"plans,omitzero"`
	Days       int            `json:"days,omitzero"`
	Requests   map[string]int `json:"requests"` // by billing class
	Total      int            `json:"total"`
	// RoundTrips is nil where there is no virtual time.
	RoundTrips *int  `json:"roundTrips,omitempty"`
	Sent       int64 `json:"sent"` // bytes of bodies, as Received
	Received   int64 `json:"received"`
	// Allocations are of vault and SDK; 0 where they were not counted.
	Allocations uint64 `json:"allocations,omitzero"`
	// PeakHeap is how much more memory was live, in bytes; nil where nobody looked.
	PeakHeap *int64 `json:"peakHeap,omitempty"`
	// Price is in US dollars for 10,000 operations.
	Price float64 `json:"price"`
	// Wall is real time, where it says anything.
	Wall   time.Duration `json:"wallNanoseconds,omitzero"`
	Budget budget        `json:"budget"`
	Over   []string      `json:"over,omitempty"` // what is over the budget
}

func newResult(r row, n measured) result {
	res := result{
		Row: r.String(), Plans: r.vault.plans, Days: r.vault.days,
		Requests: map[string]int{}, Total: n.requests.total(), Price: n.requests.price(),
		Sent: n.sent, Received: n.received,
	}
	for c, k := range n.requests {
		if k > 0 {
			res.Requests[class(c).String()] = k
		}
	}
	s := subject{vault: r.vault}
	if r.size.plan != nil {
		s.parts = subObjects(r.size.plan())
	}
	res.SubObjects, res.Budget = s.n(), r.budget(s)
	return res
}

// target is where rows are measured.
type target interface {
	measure(context.Context, row) (result, error)
	close(context.Context) error
}

func openTarget(c config) (target, error) {
	if c.connectionString != "" {
		return openAccount(c.connectionString)
	}
	return &virtual{}, nil
}

// virtual measures on emulators in virtual time.
type virtual struct {
	// filled is the vault of the last shape that was asked for. One at a time is enough memory.
	filled *emulator.Server
	shape  shape
}

const (
	vaultName = "bench"
	latency   = time.Second
)

// bubble runs do in virtual time, from the same moment each time: six in the evening, so that today has its share of plans.
//
// Only a bubble of testing/synctest knows when every goroutine waits, so that a round trip takes exactly the latency however
// long computing takes. A bubble wants a test to fail; there is none, and none of the bench's code knows of it.
func bubble(ctx context.Context, do func(ctx context.Context, now time.Time) error) (err error) {
	synctest.Test(new(testing.T), func(*testing.T) {
		// A context from outside must not wake what is in the bubble, so its end is looked at between rows only.
		ctx := context.WithoutCancel(ctx)
		time.Sleep(20*24*time.Hour + 18*time.Hour)
		err = do(ctx, time.Now())
	})
	return err
}

func (t *virtual) close(context.Context) error { return nil }

// fill makes sure that there is a server with a vault of the shape.
func (t *virtual) fill(ctx context.Context, s shape) error {
	if t.filled != nil && t.shape == s {
		return nil
	}
	t.filled = nil // before the next one is made
	if s.plans >= largestVault {
		debug.SetGCPercent(30) // as much garbage again is not wanted beside gigabytes of plans
	}
	server := emulator.New(emulator.WithoutLog())
	if s.plans > 0 {
		err := bubble(ctx, func(ctx context.Context, now time.Time) error {
			return fillingAt(s, now).fillServer(ctx, server, vaultName)
		})
		if err != nil {
			return err
		}
	}
	t.filled, t.shape = server, s
	return nil
}

func (t *virtual) measure(ctx context.Context, r row) (res result, err error) {
	if err := t.fill(ctx, r.vault); err != nil {
		return res, err
	}
	large := r.vault.plans >= largestVault
	err = bubble(ctx, func(ctx context.Context, now time.Time) error {
		server := t.filled.Clone()
		m := &meter{next: server.Transport()}
		took, err := perform(ctx, performance{r, now, server.ConnectionString(), vaultName, concurrency, m, func() {
			m.latency = latency
			if large {
				m.heap = newHeapPeak(heapEvery)
			}
		}})
		if err != nil {
			return err
		}
		synctest.Wait() // what was asked for ahead counts, too
		res = newResult(r, m.end())
		trips := int(took / latency)
		res.RoundTrips = &trips
		if large {
			above := m.heap.above()
			res.PeakHeap = &above
		}
		return nil
	})
	if err != nil || large {
		return res, err
	}
	// Once more for the allocations: one request at a time, so that the emulator's can be told from the vault's.
	err = bubble(ctx, func(ctx context.Context, now time.Time) error {
		server := t.filled.Clone()
		m := &meter{next: server.Transport(), apart: true}
		var before uint64
		_, err := perform(ctx, performance{r, now, server.ConnectionString(), vaultName, 1, m, func() { before = allocations() }})
		res.Allocations = allocations() - before - m.mallocs
		return err
	})
	return res, err
}

// heapEvery is how many requests and answers there are to a look at the heap, which takes a collection.
const heapEvery = 20

// performance is one run of a row's operation.
type performance struct {
	row                      row
	now                      time.Time
	connectionString, prefix string
	concurrency              int
	meter                    *meter
	// begin is called when all is prepared.
	begin func()
}

// perform does a row's operation once, on a vault of its own, and says how long it took.
func perform(ctx context.Context, p performance) (took time.Duration, err error) {
	v, err := azblob.NewFromConnectionString(ctx, p.prefix, p.connectionString, plantest.Register(),
		azblob.WithTransport(p.meter), azblob.WithConcurrency(p.concurrency))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, v.Close(ctx)) }()
	s := &scene{vault: v, size: p.row.size}
	if p.row.vault.plans > 0 {
		s.filling = fillingAt(p.row.vault, p.now)
	}
	do, err := p.row.prepare(ctx, s)
	if err != nil {
		return 0, err
	}
	p.meter.reset()
	p.begin()
	started := time.Now()
	if err := do(ctx); err != nil {
		return 0, err
	}
	return time.Since(started), nil
}
