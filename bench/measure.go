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
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/workflow/plantest"
)

// result is the measurement of one row.
type result struct {
	Row        string      `json:"row"`
	SubObjects int         `json:"subObjects,omitzero"`
	Plans      int         `json:"plans,omitzero"`
	Days       int         `json:"days,omitzero"`
	Requests   price.Tally `json:"requests"`
	Total      int         `json:"total"`
	// RoundTrips is nil if it was measured in real time, or over a period.
	RoundTrips *int  `json:"roundTrips,omitempty"`
	Sent       int64 `json:"sent"` // bytes of bodies, like Received
	Received   int64 `json:"received"`
	// Allocations are those of vault and SDK; 0 if they were not counted.
	Allocations uint64 `json:"allocations,omitzero"`
	// PeakHeap is how much the live heap grew, in bytes; nil if it was not measured.
	PeakHeap *int64 `json:"peakHeap,omitempty"`
	// Price is in US dollars for 10,000 operations.
	Price float64 `json:"price"`
	// Period is the virtual time that a node worked for; 0 for other operations.
	Period time.Duration `json:"periodNanoseconds,omitzero"`
	// Wall is real time; 0 if it was measured in virtual time.
	Wall   time.Duration `json:"wallNanoseconds,omitzero"`
	Budget budget        `json:"budget"`
	Over   []string      `json:"over,omitempty"` // what exceeds the budget
}

func newResult(r row, n measured) result {
	res := result{
		Row: r.String(), Plans: r.vault.plans, Days: r.vault.days,
		Requests: n.requests, Total: n.requests.Total(), Price: 10_000 * n.requests.Dollars(),
		Sent: n.sent, Received: n.received, Period: r.period,
	}
	s := subject{vault: r.vault, period: r.period}
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
	return &virtual{short: c.short}, nil
}

// virtual measures on emulators in virtual time.
type virtual struct {
	// short leaves out the second run of rows of the largest plan and of large vaults, which has no budget.
	short bool
	// filled holds the vault of one shape. Only one is kept: the largest takes gigabytes.
	filled *emulator.Server
	shape  shape
}

const (
	vaultName = "bench"
	latency   = time.Second
)

// bubble runs do in virtual time, always from the same moment: 18:00, so that today has its share of plans.
//
// Only a bubble of testing/synctest knows when every goroutine waits: a round trip then takes exactly the
// latency, however long computation takes. A bubble needs a testing.T; do never sees it.
func bubble(ctx context.Context, do func(ctx context.Context, now time.Time) error) (err error) {
	synctest.Test(new(testing.T), func(*testing.T) {
		// A context from outside the bubble must not wake goroutines inside. Its end is noticed between rows.
		ctx := context.WithoutCancel(ctx)
		time.Sleep(20*24*time.Hour + 18*time.Hour)
		err = do(ctx, time.Now())
	})
	return err
}

func (t *virtual) close(context.Context) error { return nil }

// fill fills a server with a vault of the shape, unless it is there.
func (t *virtual) fill(ctx context.Context, s shape) error {
	if t.filled != nil && t.shape == s {
		return nil
	}
	t.filled = nil // before the next one is made
	if s.plans >= largestVault {
		debug.SetGCPercent(30) // gigabytes of plans leave little room for garbage
	}
	server := emulator.New(emulator.WithoutLog())
	if s.plans > 0 {
		err := bubble(ctx, func(ctx context.Context, now time.Time) error {
			return fillingAt(s, now).FillServer(ctx, server, vaultName)
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
		m := newMeter(server.Transport())
		return perform(ctx, performance{r, now, server.ConnectionString(), vaultName, concurrency, m, func() {
			m.latency = latency
			if large {
				m.heap = newHeapPeak(heapEvery)
			}
		}, func(took time.Duration) {
			synctest.Wait() // requests that were sent ahead count too
			res = newResult(r, m.end())
			if r.period == 0 {
				res.RoundTrips = new(int(took / latency))
			}
			if large {
				res.PeakHeap = new(m.heap.above())
			}
		}})
	})
	if err != nil || large || r.period > 0 || t.short && (r.size.name == largestPlan || r.vault.plans > smallestVault) {
		return res, err
	}
	// A second run counts allocations, one request at a time, so that the emulator's can be subtracted.
	err = bubble(ctx, func(ctx context.Context, now time.Time) error {
		server := t.filled.Clone()
		m := newMeter(server.Transport())
		m.apart = true
		var before uint64
		return perform(ctx, performance{
			r, now, server.ConnectionString(), vaultName, 1, m, func() { before = allocations() },
			func(time.Duration) { res.Allocations = allocations() - before - m.mallocs },
		})
	})
	return res, err
}

// heapEvery is how many requests and answers pass between two measurements of the heap, each of which takes a
// collection.
const heapEvery = 20

// performance is one run of a row's operation.
type performance struct {
	row                      row
	now                      time.Time
	connectionString, prefix string
	concurrency              int
	meter                    *meter
	// begin is called when everything is prepared, and end after the operation, with the time that it took.
	begin func()
	end   func(took time.Duration)
}

// perform runs a row's operation once, on a new vault.
func perform(ctx context.Context, p performance) (err error) {
	v, err := azblob.NewFromConnectionString(ctx, p.prefix, p.connectionString, plantest.Register(),
		azblob.WithTransport(p.meter), azblob.WithConcurrency(p.concurrency), azblob.WithObserver(p.meter.observer()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close(ctx)) }()
	s := &scene{vault: v, size: p.row.size, period: p.row.period}
	defer func() {
		if s.after != nil {
			err = errors.Join(err, s.after(ctx))
		}
	}()
	if p.row.vault.plans > 0 {
		s.filling = fillingAt(p.row.vault, p.now)
	}
	do, err := p.row.prepare(ctx, s)
	if err != nil {
		return err
	}
	p.meter.reset()
	p.begin()
	started := time.Now()
	if err := do(ctx); err != nil {
		return err
	}
	p.end(time.Since(started))
	return nil
}
