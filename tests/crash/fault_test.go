package crash_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// rideable are faults of one request that retries overcome.
var rideable = []emulator.Effect{
	emulator.LostRequest(),
	emulator.LostAnswer(),
	emulator.Answer(500, "InternalError"),
	emulator.Answer(500, "InternalError").Applied(),
	emulator.Answer(503, "ServerBusy").RetryAfter(3 * time.Second),
	emulator.Answer(503, "OperationTimedOut").Applied(),
	emulator.Answer(429, "TooManyRequests"),
	emulator.Answer(408, "RequestTimeout"),
	emulator.Answer(502, ""),
	emulator.Answer(504, ""),
	emulator.Answer(409, "ContainerBeingDeleted"),
	emulator.Duplicate(0),
	emulator.Reset(),
	emulator.Reset().Applied(),
	emulator.Silence(),
	emulator.Silence().Applied(),
	emulator.CutBody(0),
	emulator.CutBody(1),
	emulator.CutBody(100),
	emulator.CutBody(400),
	emulator.CutBody(1000),
	emulator.FlipBit(0),
	emulator.FlipBit(1001),
	emulator.FlipBit(3002),
	emulator.Foreign(200, "text/html", vaulttest.Portal),
	emulator.Foreign(404, "text/html", vaulttest.Portal).Applied(),
	emulator.Foreign(520, "", "").Applied(),
	emulator.Strip("ETag"),
}

// smallOnly is enough for most faults.
var smallOnly = map[string]vaulttest.Shape{"small": plantest.Small}

// eachFaulty runs a test on all scenarios with small plans, and on updates with a plan that has an object of
// each kind.
func eachFaulty(t *testing.T, test func(t *testing.T, st stage) (runs int)) {
	t.Helper()
	switch {
	case efforttest.Long():
		everywhere(t, plainWorld, everything(), vaulttest.Shapes, test)
	case testing.Short():
		everywhere(t, plainWorld, slices.Concat(creations, completions), smallOnly, test)
	default:
		everywhere(t, plainWorld, slices.Concat(creations, completions, deletions, recoveries, readings[1:]), smallOnly, test)
		everywhere(t, plainWorld, updates, map[string]vaulttest.Shape{"kinds": vaulttest.EachKind}, test)
	}
	everywhere(t, unversionedWorld, unversioned, smallOnly, test)
}

// everything returns all scenarios.
func everything() []scenario {
	return slices.Concat(creations, updates, completions, deletions, recoveries, readings)
}

// faultsAt makes each fault hit one in so many requests of the call. The call overcomes it.
func faultsAt(t *testing.T, st stage, every int, effects []emulator.Effect) (runs int) {
	t.Helper()
	for i, effect := range effects {
		for _, n := range boundaries(st.requests) {
			if !vaulttest.Sampled(every, i+st.number, n) {
				continue
			}
			runs++
			st.run(t, fmt.Sprintf("%v at %d", effect, n), func(t *testing.T, w vaulttest.World, c *call) {
				rule := emulator.On().Nth(n).Do(effect)
				ctx := vaulttest.Within(t, 5*time.Minute)
				err := c.do(ctx, t, w.Vault(t, vaulttest.Meets(w.Server, rule)))
				if err != nil {
					t.Errorf("it was not ridden out: %v", err)
				}
				if rule.Fired() != 1 {
					t.Errorf("the fault came %d times", rule.Fired())
				}
				c.judge(t, w, err)
			})
		}
	}
	return runs
}

func TestFaults(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	eachFaulty(t, func(t *testing.T, st stage) int { return faultsAt(t, st, len(rideable), rideable) })
}

// TestCancelled ends the context at each request of each call. The call had no effect or returns ErrUnknown;
// then Recovery settles it, and so does the same call again.
func TestCancelled(t *testing.T) {
	eachFaulty(t, func(t *testing.T, st stage) (runs int) {
		for i, when := range []struct {
			name   string
			effect func(func()) emulator.Effect
		}{{"before it took effect", emulator.Before}, {"after it took effect", emulator.After}, {"with its answer", nil}} {
			for _, n := range boundaries(st.requests) {
				if !vaulttest.Sampled(4, i+st.number, n) {
					continue
				}
				runs++
				st.run(t, fmt.Sprintf("%s at %d", when.name, n), func(t *testing.T, w vaulttest.World, c *call) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					transport, answers := w.Server.Transport(), atomic.Int64{}
					if when.effect != nil {
						transport.Inject(emulator.On().Nth(n).Do(when.effect(cancel)))
					}
					v := w.Vault(t, azblob.Options{ClientOptions: policy.ClientOptions{Transport: transport}, Observer: azblob.Observer{Request: func(context.Context, azblob.RequestEvent) {
						if answers.Add(1) == int64(n) {
							cancel()
						}
					}}})
					err := c.do(ctx, t, v)
					if ctx.Err() == nil {
						t.Fatal("the context did not end")
					}
					if err == nil && when.effect != nil || err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("got %v, want the context's error", err)
					}
					c.judge(t, w.Clone(), err)
					if !errors.Is(err, storage.ErrUnknown) {
						return
					}
					c.again(t, w, v, err)
				})
			}
		}
		return runs
	})
}

// TestLateDuplicates delivers a second copy of each request of each call: some requests later, after the
// call, and after the grace period and a Recovery. Recovery repairs any effect that the copy has.
func TestLateDuplicates(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	eachFaulty(t, func(t *testing.T, st stage) (runs int) {
		if st.call().untouched != nil {
			return 0 // a second copy of a read is nothing
		}
		for _, n := range boundaries(st.requests) {
			deliver := func(what string, k int, settled bool) {
				runs++
				st.run(t, fmt.Sprintf("of %d %s", n, what), func(t *testing.T, w vaulttest.World, c *call) {
					err := c.do(t.Context(), t, w.Vault(t, vaulttest.Meets(w.Server, emulator.On().Nth(n).Do(emulator.Duplicate(k)))))
					if err != nil {
						t.Errorf("the duplicate was noticed: %v", err)
					}
					if settled {
						vaulttest.Settled(t, w.Vault(t))
					}
					if w.Server.DeliverLate() != 1 && settled { // what waits for more requests than there were
						t.Error("no duplicate was delivered")
					}
					c.judge(t, w, err)
				})
			}
			for k := range st.requests - n + 3 {
				if vaulttest.Sampled(14, n+st.number, k) {
					deliver(fmt.Sprint("after ", k), k, false)
				}
			}
			if vaulttest.Sampled(2, n, st.number) {
				deliver("when all is settled", 1<<20, true)
			}
		}
		return runs
	})
}

// TestLateDuplicatesOfALife delivers a second copy of each request of a plan's life after its end. After a
// Delete, only copies of the Create's writes can leave debris. No reader shows the debris, Check reports it, and a thorough
// Recovery removes it. It does not take a late object for a plan that lost its entry.
func TestLateDuplicatesOfALife(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, deleted := range []bool{false, true} {
		debris, runs := 0, 0
		for n, more := 1, true; more; n++ {
			more = false
			vaulttest.InBubble(t, fmt.Sprintf("of %d, deleted %v", n, deleted), func(t *testing.T, server *emulator.Server) {
				v := vaulttest.Faulty(t, server, emulator.On().Nth(n).Do(emulator.Duplicate(1<<20)))
				_, plan := vaulttest.Running(t, v, plantest.Small())
				vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
				c := &call{plan: plan, before: plan, after: plan}
				if deleted {
					vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
					c.before, c.after = nil, nil
				}
				before := vaulttest.Contents(server)
				if more = server.DeliverLate() == 1; !more {
					return
				}
				runs++
				again := maps.Clone(vaulttest.Contents(server))
				maps.DeleteFunc(again, func(name, _ string) bool { return before[name] != "" || strings.Contains(name, "/open/") })
				w := vaulttest.WorldOf(server)
				if !deleted || len(again) == 0 {
					c.judge(t, w, nil)
					return
				}
				debris++
				time.Sleep(vaulttest.PastGrace)
				v = vaulttest.OnEmulator(t, server)
				vaulttest.Must(t, v.Recovery(t.Context()))
				unread(t, v, plan)
				report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
				vaulttest.Must(t, err)
				if len(report.Problems) != 1 || report.Problems[0].Plan != plan.ID {
					t.Errorf("Check names %v, the debris is %v", report.Problems, slices.Collect(maps.Keys(again)))
				}
				_, err = v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)
				if errors.Is(err, storage.ErrCorrupt) && strings.Contains(err.Error(), "Delete removes what is there") {
					err = v.Delete(t.Context(), plan.ID)
				}
				vaulttest.Should(t, err)
				unread(t, v, plan)
				vaulttest.Empty(t, server)
			})
			if t.Failed() {
				return
			}
		}
		// Copies of the entry, the three sub-objects and the object of a Create leave debris.
		if want := map[bool]int{true: 5}[deleted]; debris != want {
			t.Errorf("deleted %v: %d duplicates left debris, want %d", deleted, debris, want)
		}
		t.Logf("space: %d runs, of which %d left debris", runs, debris)
	}
}

// TestLateDeletes delivers a second copy of each request of a Delete at each point of a Create or Restore of the same ID,
// and after it. The new plan is whole.
func TestLateDeletes(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	runs := 0
	for name, in := range map[string]vaulttest.State{"not started": vaulttest.NotStarted, "running": vaulttest.AtWork, "final": vaulttest.Final} {
		for nth, next := range []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed} {
			for n, more := 1, true; more; n++ {
				for k, late := 0, false; !late; k++ {
					if !vaulttest.Sampled(5, n+nth, k) {
						continue
					}
					runs++
					vaulttest.InBubble(t, fmt.Sprintf("of %s, %d after %d, then %s", name, n, k, next), func(t *testing.T, server *emulator.Server) {
						w := vaulttest.WorldOf(server)
						plan, _ := in(t, w, vaulttest.EachKind())
						rule := emulator.On().Nth(n).Do(emulator.Duplicate(k))
						v := w.Vault(t, vaulttest.Meets(server, rule))
						vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
						more = rule.Fired() > 0
						again := sameIDs(plan)
						if next == workflow.NotStarted {
							vaulttest.Should(t, v.Create(t.Context(), again))
						} else {
							vaulttest.Copied(again, next)
							vaulttest.Should(t, v.Restore(t.Context(), again))
						}
						late = server.DeliverLate() > 0 || !more
						(&call{plan: again, after: again}).judge(t, w, nil)
					})
					if t.Failed() {
						break
					}
				}
			}
		}
	}
	t.Logf("space: %d runs", runs)
}

// sameIDs returns a new plan with the IDs of another one.
func sameIDs(plan *workflow.Plan) *workflow.Plan {
	again := vaulttest.CopyOf(plan)
	parts := workflow.Parts(plan)
	for i, o := range workflow.Parts(again) {
		*o.Header().ID = *parts[i].Header().ID
	}
	return again
}

// unread checks that Read and List show nothing of a plan in a store that has no other.
func unread(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
	t.Helper()
	vaulttest.Fails(t, vaulttest.ErrOf(v.Read(t.Context(), plan.ID)), storage.ErrNotFound)
	if all, err := storage.Collect(v.List(t.Context(), 0)); err != nil || len(all) > 0 {
		t.Errorf("List shows %+v, %v", all, err)
	}
}

// clockWorld returns worlds in which the service's clock differs from the vaults' clock, which is the
// bubble's. The vaults use tokens, because signatures with a wrong time are refused.
func clockWorld(clock func() time.Time, opts ...emulator.Options) func() vaulttest.World {
	return func() vaulttest.World {
		return vaulttest.WorldOf(emulator.New(merge.Fields(append(opts, emulator.Options{NoLog: true}, emulator.Options{Clock: clock})...)))
	}
}

func skewed(by time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(by) }
}

// backwards is a clock that runs backwards for ten seconds, again and again, and never leaves the hour.
func backwards() time.Time {
	now := time.Now()
	return now.Add(-2 * (time.Duration(now.UnixNano()) % (10 * time.Second)))
}

// atMidnight starts the call of a scenario shortly before midnight UTC, with its first request under way at
// midnight.
func atMidnight(s scenario, latency time.Duration) scenario {
	prepare := s.prepare
	s.prepare = func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
		begin := prepare(t, w, shape)
		day := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(day) - latency*3/4)
		return begin
	}
	return s
}

// representative returns the scenarios for the nth clock: a third of those listed here.
func representative(nth int) (chosen []scenario) {
	for i, s := range []scenario{
		creations[0], completions[0],
		updateOf("UpdateAction", (*azblob.Vault).UpdateAction),
		deletion("running", vaulttest.AtWork),
		recovery("a create without object", vaulttest.CreateBroken("plans/*-object.json", 1)),
		recovery("a completion without object", vaulttest.CompletionBroken(emulator.PutBlob, "plans/*-object.json")),
		recovery("a delete without object", vaulttest.DeleteBroken(emulator.BatchDelete, "")),
	} {
		if vaulttest.Sampled(3, i, nth) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// TestClocks tries crashes and faults while the clocks of the service and the vaults disagree, and while the
// day changes. The outcome is the same as with equal clocks, because the protocol uses the service's clock
// alone.
func TestClocks(t *testing.T) {
	efforttest.NotShort(t, "these are crashes and faults once more, ten times over")
	effects := []emulator.Effect{emulator.LostAnswer(), emulator.Answer(503, "ServerBusy").RetryAfter(3 * time.Second)}
	try := func(name string, newWorld func() vaulttest.World, scenarios []scenario) {
		t.Run(name, func(t *testing.T) {
			crashEverywhere(t, newWorld, scenarios, smallOnly)
			everywhere(t, newWorld, scenarios, smallOnly, func(t *testing.T, st stage) int { return faultsAt(t, st, 8, effects) })
		})
	}
	for i, by := range []time.Duration{15 * time.Minute, -15 * time.Minute, 24 * time.Hour, -24 * time.Hour} {
		try(fmt.Sprintf("the service's is %v ahead", by), clockWorld(skewed(by)), representative(i))
	}
	for _, by := range []time.Duration{14 * time.Minute, -14 * time.Minute} {
		newWorld := clockWorld(skewed(by))
		try(fmt.Sprintf("the service's is %v ahead, with a key", by), func() vaulttest.World {
			w := newWorld()
			w.Open = vaulttest.OnEmulator // a signature may be as old as that
			return w
		}, creations)
	}
	// With latency, so that the clock moves between requests.
	try("the service's goes back", clockWorld(backwards, emulator.Options{Latency: time.Second}), representative(1))

	const latency = 2 * time.Second
	for i, by := range []time.Duration{0, 15 * time.Minute} {
		midnight := representative(i + 2)
		for j, s := range midnight {
			midnight[j] = atMidnight(s, latency)
		}
		try(fmt.Sprintf("over midnight, the service's is %v ahead", by), clockWorld(skewed(by), emulator.Options{Latency: latency}), midnight)
	}
}

// TestSkewRefused signs requests with a key while the clocks are too far apart. Each call fails with the
// reason and changes nothing.
func TestSkewRefused(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	newWorld := func() vaulttest.World {
		skew := &atomic.Int64{} // none while the scenario is prepared
		clock := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
		return vaulttest.World{Server: emulator.New(emulator.Options{NoLog: true, Clock: clock}), Open: vaulttest.Signing, Skew: skew}
	}
	everywhere(t, newWorld, everything(), smallOnly, func(t *testing.T, st stage) (runs int) {
		for _, by := range []time.Duration{16 * time.Minute, -16 * time.Minute} {
			runs++
			st.run(t, fmt.Sprintf("by %v", by), func(t *testing.T, w vaulttest.World, c *call) {
				untouched := vaulttest.Untouched(t, w.Server)
				w.Skew.Store(int64(by))
				err := c.do(t.Context(), t, w.Vault(t))
				if !errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrUnknown) {
					t.Fatalf("got %v, want ErrDenied", err)
				}
				off := regexp.MustCompile(`this machine's clock is (-?)1[56]m\d+s off`).FindStringSubmatch(err.Error())
				if off == nil || (off[1] == "-") != (by > 0) {
					t.Errorf("the error does not say that the clock is off by %v: %v", -by, err)
				}
				untouched()
			})
		}
		return runs
	})
}
