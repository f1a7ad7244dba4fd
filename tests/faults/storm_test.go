package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/planvault/azblob/internal/settings"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// storms are the effects of a service in trouble on the requests that it hits.
var storms = map[string][]emulator.Effect{
	"503":    {emulator.Answer(503, "ServerBusy")},
	"429":    {emulator.Answer(429, "TooManyRequests")},
	"500":    {emulator.Answer(500, "InternalError"), emulator.Answer(500, "InternalError").Applied()},
	"resets": {emulator.Reset(), emulator.Reset().Applied()},
	"mixed": {
		emulator.Answer(503, "ServerBusy").RetryAfter(5 * time.Second), emulator.Answer(429, "TooManyRequests"),
		emulator.Answer(500, "InternalError").Applied(), emulator.Reset(), emulator.LostAnswer(), emulator.CutBody(10),
	},
}

// storm returns a rule that hits a share of the requests until a point in time.
func storm(effects []emulator.Effect, share float64, until time.Time) *emulator.Rule {
	return emulator.Random(share, 1, effects...).Where(func(emulator.Request) bool { return time.Now().Before(until) })
}

// live takes a plan through its life, each call with a new context. It stops at the first error.
func live(v *azblob.Vault, plan *workflow.Plan, deleted bool, newContext func() (context.Context, context.CancelFunc)) error {
	update := func(o workflow.Object, to workflow.Status) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			o.Header().State.Status = to
			return storage.Update(ctx, v, o)
		}
	}
	b := plan.Blocks[0]
	s := b.Sequences[0]
	for _, call := range []func(ctx context.Context) error{
		func(ctx context.Context) error { return v.Create(ctx, plan) },
		update(plan, workflow.Running),
		update(s.Actions[0], workflow.Completed),
		update(s, workflow.Completed),
		update(b, workflow.Completed),
		func(ctx context.Context) error { return vaulttest.ErrOf(v.Read(ctx, plan.ID)) },
		update(plan, workflow.Completed),
		v.Recovery,
		func(ctx context.Context) error {
			if !deleted {
				return nil
			}
			return v.Delete(ctx, plan.ID)
		},
	} {
		ctx, cancel := newContext()
		err := call(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// TestStorms runs plans through storms. No call fails if its deadline leaves time for one more try after the
// storm. The longest wait between two tries is 20s, changed by up to half.
func TestStorms(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const workers = 4
	runs := 0
	for name, effects := range storms {
		for i, share := range []float64{0.01, 0.1, 0.5, 1} {
			for j, length := range []time.Duration{time.Second, time.Minute, 8 * time.Minute, 30 * time.Minute} {
				if !vaulttest.Sampled(efforttest.Pick(4, 2, 1), i, j) {
					continue
				}
				runs++
				t.Run(fmt.Sprintf("%s, %g%%, %v", name, 100*share, length), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						server := emulator.New(emulator.Options{NoLog: true, Latency: 10 * time.Millisecond})
						vaulttest.Strict(t, server)
						end := time.Now().Add(length)
						server.Inject(storm(effects, share, end))
						// The grace period would end a Create that is delayed by the storm.
						open := func() *azblob.Vault {
							return vaulttest.OpenVault(t, "test", server.ConnectionString(), azblob.Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}, Backoff: azblob.Backoff{}, GracePeriod: time.Hour})
						}
						plans := make([]*workflow.Plan, workers)
						var wg sync.WaitGroup
						for i := range plans {
							plans[i] = plantest.Small()
							wg.Go(func() {
								time.Sleep(length * time.Duration(i) / workers)
								err := live(open(), plans[i], i%2 == 1, func() (context.Context, context.CancelFunc) {
									return context.WithTimeout(t.Context(), max(0, time.Until(end))+31*time.Second)
								})
								if err != nil {
									t.Errorf("plan %d: %v", i, err)
								}
							})
						}
						wg.Wait()
						time.Sleep(time.Until(end))
						v := open()
						for i, plan := range plans {
							if i%2 == 0 {
								vaulttest.Same(t, v, plan)
							} else if vaulttest.WholeOrGone(t, v, plan) != nil {
								t.Errorf("plan %d was deleted, and is there", i)
							}
						}
						vaulttest.Sound(t, v)
					})
				})
			}
		}
	}
	t.Logf("space: %d runs", runs)
}

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
		server := emulator.New(emulator.Options{NoLog: true, Latency: latency})
		var sent, inFlight atomic.Int64
		transport := server.Transport()
		busy := emulator.On().Where(func(emulator.Request) bool { return inFlight.Load() > capacity }).Do(emulator.Answer(503, "ServerBusy"))
		server.Inject(busy)
		v := vaulttest.OnEmulator(t, server, settings.Over(vaulttest.Send(func(req *http.Request) (*http.Response, error) {
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
				vaulttest.Should(t, errors.Join(err, v.UpdatePlan(t.Context(), p)))
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
		server := emulator.New(emulator.Options{Latency: latency})
		v := vaulttest.OnEmulator(t, server, azblob.Options{Concurrency: 8})
		p := vaulttest.CreatedRunning(t, v, plantest.Small())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				vaulttest.Should(t, v.Create(t.Context(), plantest.Sized(2, 10, 13)))
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
