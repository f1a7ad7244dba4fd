package main

import (
	"context"
	"errors"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
)

// emulators measures rows on emulators in virtual time.
type emulators struct {
	// filled holds the vault of one shape. Only one is kept: the largest takes gigabytes.
	filled *emulator.Server
	shape  shape
	// at is the time of day.
	at time.Duration
}

const (
	vaultName = "bench"
	latency   = time.Second
)

// evening is when operations are measured, unless the time is given: today has its share of plans.
const evening = 18 * time.Hour

// bubble runs do in virtual time, from a time of day.
//
// Only a bubble of testing/synctest knows when every goroutine waits: a round trip then takes exactly the
// latency, however long computation takes. A bubble needs a testing.T; do never sees it.
func bubble(ctx context.Context, at time.Duration, do func(ctx context.Context, now time.Time) error) (err error) {
	synctest.Test(new(testing.T), func(*testing.T) {
		// A context from outside the bubble must not wake goroutines inside. Its end is noticed between rows.
		ctx := context.WithoutCancel(ctx)
		time.Sleep(20*24*time.Hour + at)
		err = do(ctx, time.Now())
	})
	return err
}

// fill fills a server with a vault of the shape, unless it is there.
func (t *emulators) fill(ctx context.Context, s shape) error {
	if t.filled != nil && t.shape == s {
		return nil
	}
	t.filled = nil // before the next one is made
	if s.plans >= largestVault {
		debug.SetGCPercent(30) // gigabytes of plans leave little room for garbage
	}
	server := emulator.New(emulator.WithoutLog())
	if s.plans > 0 {
		err := bubble(ctx, t.at, func(ctx context.Context, now time.Time) error {
			return fillingAt(s, now).FillServer(ctx, server, vaultName)
		})
		if err != nil {
			return err
		}
	}
	t.filled, t.shape = server, s
	return nil
}

// measure runs a row's operation on a new vault in a copy of the filled server, and returns what it took.
func (t *emulators) measure(ctx context.Context, r row) (result, error) {
	res := result{row: r}
	if err := t.fill(ctx, r.vault); err != nil {
		return res, err
	}
	return res, bubble(ctx, t.at, func(ctx context.Context, now time.Time) (err error) {
		server := t.filled.Clone()
		m := newMeter(server.Transport())
		v, err := azblob.NewFromConnectionString(ctx, vaultName, server.ConnectionString(), plantest.Register(),
			azblob.Options{ClientOptions: policy.ClientOptions{Transport: m}, Concurrency: concurrency, Observer: m.observer()})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, v.Close(ctx)) }()
		s := &scene{vault: v, size: r.size, period: r.period, filling: fillingAt(r.vault, now)}
		defer func() {
			if s.after != nil {
				err = errors.Join(err, s.after(ctx))
			}
		}()
		do, err := r.prepare(ctx, s)
		if err != nil {
			return err
		}
		m.reset()
		m.latency = latency
		if r.vault.plans >= largestVault {
			m.heap = newHeapPeak()
		}
		started := time.Now()
		if err := do(ctx); err != nil {
			return err
		}
		trips := int(time.Since(started) / latency)
		synctest.Wait() // requests that were sent ahead count too
		if res.measured = m.counts(); r.period == 0 {
			res.trips = &trips
		}
		if m.heap != nil {
			res.heap = new(m.heap.above())
		}
		return nil
	})
}
