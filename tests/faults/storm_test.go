package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
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

// live takes a plan through its life, and passes each call to do. It stops at the first error.
func live(v *azblob.Vault, plan *workflow.Plan, deleted bool, do func(what string, call func(ctx context.Context) error) error) error {
	b := plan.Blocks[0]
	s := b.Sequences[0]
	a := s.Actions[0]
	for _, step := range []struct {
		what string
		call func(ctx context.Context) error
	}{
		{"Create", func(ctx context.Context) error { return v.Create(ctx, plan) }},
		{"UpdatePlan, Running", func(ctx context.Context) error {
			plan.State.Status = workflow.Running
			return v.UpdatePlan(ctx, plan)
		}},
		{"UpdateAction", func(ctx context.Context) error {
			a.State.Status = workflow.Completed
			return v.UpdateAction(ctx, a)
		}},
		{"UpdateSequence", func(ctx context.Context) error {
			s.State.Status = workflow.Completed
			return v.UpdateSequence(ctx, s)
		}},
		{"UpdateBlock", func(ctx context.Context) error {
			b.State.Status = workflow.Completed
			return v.UpdateBlock(ctx, b)
		}},
		{"Read", func(ctx context.Context) error {
			_, err := v.Read(ctx, plan.ID)
			return err
		}},
		{"UpdatePlan, final", func(ctx context.Context) error {
			plan.State.Status = workflow.Completed
			return v.UpdatePlan(ctx, plan)
		}},
		{"Recovery", v.Recovery},
		{"Delete", func(ctx context.Context) error {
			if !deleted {
				return nil
			}
			return v.Delete(ctx, plan.ID)
		}},
	} {
		if err := do(step.what, step.call); err != nil {
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
						server := emulator.New(emulator.WithoutLog(), emulator.WithLatency(10*time.Millisecond))
						vaulttest.Strict(t, server)
						end := time.Now().Add(length)
						server.Inject(storm(effects, share, end))
						// The grace period would end a Create that is delayed by the storm.
						open := func() *azblob.Vault {
							return vaulttest.OpenVault(t, "test", server.ConnectionString(), azblob.WithTransport(server.Transport()), azblob.WithRetry(azblob.Retry{}), azblob.WithGracePeriod(time.Hour))
						}
						plans := make([]*workflow.Plan, workers)
						var wg sync.WaitGroup
						for i := range plans {
							plans[i] = plantest.Small()
							wg.Go(func() {
								time.Sleep(length * time.Duration(i) / workers)
								_ = live(open(), plans[i], i%2 == 1, func(what string, call func(ctx context.Context) error) error {
									deadline := time.Now()
									if deadline.Before(end) {
										deadline = end
									}
									ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(31*time.Second))
									defer cancel()
									err := call(ctx)
									if err != nil {
										t.Errorf("%s of plan %d: %v", what, i, err)
									}
									return err
								})
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

// TestStormAmplification compares the number of requests sent in a storm with the number needed without one.
func TestStormAmplification(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	lives := efforttest.Pick(50, 80, 150)
	send := func(share float64) (sent int64) {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.WithoutLog())
			server.Inject(storm(storms["503"], share, time.Now().Add(1000*time.Hour)))
			m := &meter{Transporter: server.Transport()}
			v := vaulttest.OnEmulator(t, server, azblob.WithTransport(m))
			for range lives {
				vaulttest.Must(t, live(v, plantest.Small(), true, func(_ string, call func(ctx context.Context) error) error { return call(t.Context()) }))
			}
			sent = m.sent.Load()
		})
		return sent
	}
	needed, sent := send(0), send(0.1)
	amplification := float64(sent) / float64(needed)
	if amplification > 1.2 || amplification < 1.05 {
		t.Errorf("%d requests were sent where %d were needed, %.3f times as many; want between 1.05 and 1.2", sent, needed, amplification)
	}
	t.Logf("%d requests needed, %d sent: %.3f", needed, sent, amplification)
}

// TestStormConcurrency counts the requests in flight while many plans run through a storm. The vault never
// sends more than it may, and no storm keeps it from using a few.
func TestStormConcurrency(t *testing.T) {
	for _, limit := range []int{1, 3, 64} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := emulator.New(emulator.WithoutLog(), emulator.WithLatency(10*time.Millisecond))
				server.Inject(storm(storms["mixed"], 0.2, time.Now().Add(time.Hour)))
				m := &meter{Transporter: server.Transport()}
				v := vaulttest.OnEmulator(t, server, azblob.WithTransport(m), azblob.WithConcurrency(limit))
				var wg sync.WaitGroup
				for range efforttest.Pick(10, 20, 40) {
					wg.Go(func() {
						if err := live(v, plantest.Small(), false, func(_ string, call func(ctx context.Context) error) error { return call(t.Context()) }); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if most := m.most.Load(); most > int64(limit) || limit <= 3 && most < int64(limit) {
					t.Errorf("up to %d requests were in flight, want %d", most, limit)
				}
			})
		})
	}
}

// meter counts the requests sent, and the most that were in flight at once.
type meter struct {
	policy.Transporter
	sent, now, most atomic.Int64
}

func (m *meter) Do(req *http.Request) (*http.Response, error) {
	m.sent.Add(1)
	now := m.now.Add(1)
	defer m.now.Add(-1)
	for most := m.most.Load(); now > most && !m.most.CompareAndSwap(most, now); most = m.most.Load() {
	}
	return m.Transporter.Do(req)
}
