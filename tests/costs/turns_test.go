package costs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// turnstile is two nodes that run plans of one action, on an emulator in virtual time.
type turnstile struct {
	*emulator.Server
	vault *azblob.Vault
	ended chan struct{}
	plan  func(takes time.Duration, keys ...string) *workflow.Plan
}

// onTurnstile calls do before the nodes join, and what it returns once they have made their first searches.
func onTurnstile(t *testing.T, do func(t *testing.T, s *turnstile) func()) {
	synctest.Test(t, func(t *testing.T) {
		s := &turnstile{Server: emulator.New(emulator.Options{}), ended: make(chan struct{})}
		wait := engine.Task("wait", func(_ context.Context, _ engine.Call, d time.Duration) (string, error) {
			time.Sleep(d)
			return "", nil
		})
		open := func() *azblob.Vault {
			v, err := azblob.NewFromConnectionString(t.Context(), "turns", s.ConnectionString(), registry.Must(wait), azblob.Options{ClientOptions: s.ClientOptions()})
			vaulttest.Must(t, err)
			return v
		}
		s.vault = open()
		s.plan = func(takes time.Duration, keys ...string) *workflow.Plan {
			a := wait.Action("wait", takes)
			a.Timeout = 24 * time.Hour
			p := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{a}}}}}}
			for _, k := range keys {
				p.Keys = append(p.Keys, workflow.Key{Name: k})
			}
			vaulttest.Must(t, s.vault.Create(t.Context(), p))
			return p
		}
		then := do(t, s)
		ctx, end := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for range 2 {
			e, err := engine.New(open(), engine.Options{NoRetention: true, Plans: 64, Fleet: &fleet.Options{}, Observer: engine.Observer{
				Changed: func(_ context.Context, e engine.ChangedEvent) {
					if e.Object.Kind() == workflow.KindPlan && e.Object.Header().State.Status.Final() {
						s.ended <- struct{}{}
					}
				},
			}})
			vaulttest.Must(t, err)
			work.Go(func() { vaulttest.Must(t, e.Run(ctx)) })
		}
		then()
		end()
		work.Wait()
	})
}

// counted returns how many requests do made, and how many of these were for the records of keys.
func (s *turnstile) counted(do func()) (all, keys float64) {
	s.ResetRequests()
	do()
	for _, r := range s.Requests() {
		all++
		if strings.HasPrefix(r.Blob, "keys/") {
			keys++
		}
	}
	return all, keys
}

// run waits until plans have ended.
func (s *turnstile) run(plans int) func() {
	return func() {
		for range plans {
			<-s.ended
		}
	}
}

// TestCostOfTurns bounds the requests of plans that work one after the other, and of plans with keys of their own. None depends
// on how many plans wait.
func TestCostOfTurns(t *testing.T) {
	efforttest.NotShort(t, "it counts, and fleet's tests have the rules of turns")
	plans := 200
	if *largest {
		plans = 1000
	}
	for _, test := range []struct {
		name  string
		keys  func(i int) []string
		bound float64 // for each plan
	}{
		{"no key", func(int) []string { return nil }, 18},
		{"one key for all", func(int) []string { return []string{"a"} }, 34},
		{"a new key for each", func(i int) []string { return []string{fmt.Sprint(i)} }, 34},
		{"two keys of ten", func(i int) []string { return []string{fmt.Sprint(i % 10), fmt.Sprint((i + 1 + i/10%9) % 10)} }, 50},
	} {
		t.Run(test.name, func(t *testing.T) {
			onTurnstile(t, func(t *testing.T, s *turnstile) func() {
				for i := range plans {
					s.plan(5*time.Second, test.keys(i)...)
				}
				return func() {
					began := time.Now()
					all, keys := s.counted(s.run(plans))
					each := all / float64(plans)
					t.Logf("%d plans: %.1f requests for each, %.1f for records of keys, in %v", plans, each, keys/float64(plans), time.Since(began))
					if each > test.bound {
						t.Errorf("%.1f requests for each plan, at most %.0f are allowed", each, test.bound)
					}
				}
			})
		})
	}
}

// TestCostOfWaiting bounds the requests of two nodes beside plans that wait for one key.
func TestCostOfWaiting(t *testing.T) {
	efforttest.NotShort(t, "it counts")
	const bound = 20 // an interval
	many := []int{0, 1, 100}
	if *largest {
		many = append(many, 1000)
	}
	for _, waiting := range many {
		t.Run(fmt.Sprint(waiting), func(t *testing.T) {
			onTurnstile(t, func(t *testing.T, s *turnstile) func() {
				s.plan(time.Hour, "a")
				for range waiting {
					s.plan(0, "a")
				}
				return func() {
					time.Sleep(10 * time.Minute)
					const intervals = 120
					all, keys := s.counted(func() { time.Sleep(intervals * 10 * time.Second) })
					t.Logf("%d wait: %.2f requests an interval, %.2f for the record", waiting, all/intervals, keys/intervals)
					if all > bound*intervals {
						t.Errorf("%.2f requests an interval, at most %d are allowed", all/intervals, bound)
					}
					s.run(1 + waiting)()
				}
			})
		})
	}
}

// TestCostOfPlacedWaiting bounds the requests of RunPlan for plans that wait for one key, called again and again as it says, by a
// process for each plan and by one for all. One waits for the turn of a younger plan. They don't depend on the size of a plan but for
// its Read, and each plan makes its own.
func TestCostOfPlacedWaiting(t *testing.T) {
	efforttest.NotShort(t, "it counts")
	const bound, turn = 12, time.Minute // a call, with the engine's looks in between
	type many struct {
		processes, waiting int
		bound              float64 // a turn
	}
	all := []many{{1, 1, 70}, {1, 20, 700}}
	if *largest {
		all = append(all, many{20, 20, 1200}, many{100, 100, 6000}, many{1, 100, 1500}, many{10, 1000, 20000}, many{1, 1000, 5000})
	}
	for _, many := range all {
		t.Run(fmt.Sprint(many.processes, many.waiting), func(t *testing.T) {
			onTurnstile(t, func(t *testing.T, s *turnstile) func() {
				o := engine.RunOptions{External: workflow.External{Name: "queue"}}
				next := []*workflow.Plan{s.plan(0, "a")}
				time.Sleep(time.Millisecond)
				first := s.plan(8*turn, "a")
				for len(next) < many.waiting {
					next = append(next, s.plan(0, "a"))
				}
				var processes []*engine.Engine
				for range many.processes {
					e, err := engine.New(s.vault, engine.Options{})
					vaulttest.Must(t, err)
					processes = append(processes, e)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var work sync.WaitGroup
				var calls atomic.Int64
				for i, p := range slices.Insert(next, 0, first) {
					work.Go(func() {
						time.Sleep(time.Duration(i*7919%10007) * time.Millisecond) // the looks are in no order
						for calls := &calls; ; calls.Add(1) {
							placed, err := processes[rand.IntN(many.processes)].RunPlan(ctx, p.ID, o)
							if ctx.Err() != nil || placed.Plan.State.Status.Final() {
								return
							}
							vaulttest.Must(t, err)
							sleep.For(ctx, time.Until(placed.WakeAt))
						}
					})
				}
				time.Sleep(5 * turn)
				calls.Store(0)
				all, keys := s.counted(func() { time.Sleep(2 * turn) })
				each := float64(calls.Load())
				cancel()
				work.Wait()
				time.Sleep(2 * turn) // the first plan's call does not end before
				t.Logf("%d wait, %d processes: %.2f requests a call, %.2f for the record of the key, and %.0f in a turn of %v", many.waiting, many.processes, all/each, keys/each, all/2, turn)
				if all > bound*each || all/2 > many.bound {
					t.Errorf("%.2f requests a call, at most %d are allowed; %.0f a turn, at most %.0f are allowed", all/each, bound, all/2, many.bound)
				}
				return func() {}
			})
		})
	}
}
