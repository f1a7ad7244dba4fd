package faults_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestServiceAtItsCapacity runs large plans against a service that refuses what exceeds a number of requests in
// flight. The vault sends few requests in vain, and uses most of the service.
func TestServiceAtItsCapacity(t *testing.T) {
	efforttest.NotShort(t, "TestSmallCallsBesideLargeOnes shares one vault between calls under the race detector")
	const (
		capacity = 40
		latency  = 10 * time.Millisecond
		plans    = 4
	)
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.WithoutLog(), emulator.WithLatency(latency))
		var sent, inFlight atomic.Int64
		transport := server.Transport()
		busy := emulator.On().Where(func(emulator.Request) bool { return inFlight.Load() > capacity }).Do(emulator.Answer(503, "ServerBusy"))
		server.Inject(busy)
		v := vaulttest.OnEmulator(t, server, azblob.WithTransport(vaulttest.Send(func(req *http.Request) (*http.Response, error) {
			sent.Add(1)
			inFlight.Add(1)
			defer inFlight.Add(-1)
			return transport.Do(req)
		})))
		began := time.Now()
		var wg sync.WaitGroup
		for range plans {
			wg.Go(func() {
				p := plantest.Sized(4, 10, 25)
				err := v.Create(t.Context(), p)
				p.State.Status = workflow.Running
				if err := errors.Join(err, v.UpdatePlan(t.Context(), p)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		refused, needed := busy.Fired(), sent.Load()-int64(busy.Fired())
		ideal := time.Duration(needed/capacity) * latency
		if amplification := float64(sent.Load()) / float64(needed); amplification > 1.25 || took > 4*ideal || refused == 0 {
			t.Errorf("%d requests were needed, %.3f times as many were sent; it took %v, ideal is %v", needed, amplification, took, ideal)
		}
		t.Logf("%d requests needed, %d refused, %v, ideal is %v", needed, refused, took, ideal)
	})
}

// TestSmallCallsBesideLargeOnes checks that calls of one request don't wait for all requests of large calls.
func TestSmallCallsBesideLargeOnes(t *testing.T) {
	const latency = time.Second
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.WithLatency(latency))
		v := vaulttest.OnEmulator(t, server, azblob.WithConcurrency(8))
		p := vaulttest.CreatedRunning(t, v, plantest.Small())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := v.Create(t.Context(), plantest.Sized(2, 10, 13)); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10*latency + latency/2)
		for range 20 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 5*latency/2)
			if err := v.UpdateAction(ctx, p.Blocks[0].Sequences[0].Actions[0]); err != nil {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			cancel()
		}
		wg.Wait()
	})
}
