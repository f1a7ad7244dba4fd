package fleet_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// asleep stores a plan and lets it sleep.
func asleep(t testing.TB, v storage.Vault, n *fleet.Node, d time.Duration) *workflow.Plan {
	t.Helper()
	plan := claimed(t, v, n, 2)
	must(t, n.Sleep(t.Context(), plan, n.Now().Add(d), 0))
	return plan
}

// TestSleep lets the node of a plan sleep, and looks who wakes the plan, and when.
func TestSleep(t *testing.T) {
	const d, I = 30 * time.Minute, 10 * time.Second
	for _, test := range []struct {
		name   string
		happen func(t *testing.T, p *processtest.Process, n *fleet.Node, plan *workflow.Plan) // meanwhile
		within [2]time.Duration                                                               // after it fell asleep
	}{
		{"nothing", func(*testing.T, *processtest.Process, *fleet.Node, *workflow.Plan) {}, [2]time.Duration{d, d + 2*time.Second}},
		{"its node leaves", func(t *testing.T, _ *processtest.Process, n *fleet.Node, _ *workflow.Plan) { leave(t, n) }, [2]time.Duration{d, d + I}},
		{"its node dies", func(_ *testing.T, p *processtest.Process, _ *fleet.Node, _ *workflow.Plan) { p.Kill() }, [2]time.Duration{d, d + I}},
		{"its node dies when it is due", func(_ *testing.T, p *processtest.Process, _ *fleet.Node, _ *workflow.Plan) {
			time.Sleep(d - time.Second)
			p.Kill()
		}, [2]time.Duration{d, d + 30*time.Second + 15*time.Second}},
		{"it is asked to stop", func(t *testing.T, p *processtest.Process, _ *fleet.Node, plan *workflow.Plan) {
			time.Sleep(time.Minute)
			must(t, fleet.Stop(t.Context(), p, plan.ID, ana))
		}, [2]time.Duration{time.Minute, time.Minute + I + time.Second}},
		{"its node leaves, and it is asked to stop", func(t *testing.T, p *processtest.Process, n *fleet.Node, plan *workflow.Plan) {
			leave(t, n)
			time.Sleep(time.Minute)
			must(t, fleet.Stop(t.Context(), p, plan.ID, ana))
		}, [2]time.Duration{time.Minute, time.Minute + 2*I}},
		{"it gets a signal", func(t *testing.T, p *processtest.Process, _ *fleet.Node, plan *workflow.Plan) {
			time.Sleep(time.Minute)
			send(t, p, plan.ID, fleet.Signal{Name: "go"})
		}, [2]time.Duration{time.Minute, time.Minute + I + time.Second}},
		{"its node leaves, and it gets a signal", func(t *testing.T, p *processtest.Process, n *fleet.Node, plan *workflow.Plan) {
			leave(t, n)
			time.Sleep(time.Minute)
			send(t, p, plan.ID, fleet.Signal{Name: "go"})
		}, [2]time.Duration{time.Minute, time.Minute + 2*I}},
		{"it gets a signal, and its node dies", func(t *testing.T, p *processtest.Process, _ *fleet.Node, plan *workflow.Plan) {
			send(t, p, plan.ID, fleet.Signal{Name: "go"})
			p.Kill()
		}, [2]time.Duration{0, 2*time.Minute + 30*time.Second}},
		{"its node is full", func(t *testing.T, p *processtest.Process, n *fleet.Node, _ *workflow.Plan) {
			claimed(t, p, n, 1)
			claimed(t, p, n, 1)
		}, [2]time.Duration{d, d + 4*I}},
	} {
		storeRun(t, test.name, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{Capacity: 2})
			var fences atomic.Int64
			others := [2]*fleet.Node{}
			found := make(chan *workflow.Plan, 10)
			yields := func(n *fleet.Node) {
				for plan := range plans(t.Context(), t, n) {
					found <- plan
				}
			}
			for i := range others {
				_, others[i] = start(t, store, fleet.Options{Observer: fleet.Observer{Takeover: func(context.Context, fleet.TakeoverEvent) { fences.Add(1) }}})
			}
			for _, n := range append(others[:], n) {
				go yields(n)
			}
			time.Sleep(time.Minute + time.Second) // between two searches
			plan := asleep(t, p, n, d)
			began, was := time.Now(), read(t, open(store), plan.ID)
			if !was.Asleep() || was.Epoch != 1 || !was.WakeAt.Equal(plan.WakeAt) {
				t.Fatalf("the plan is stored as %+v", was)
			}
			if work, _ := n.Work(plan.ID); !errors.Is(context.Cause(work), fleet.ErrFenced) {
				t.Errorf("the work goes on: %v", context.Cause(work))
			}
			go test.happen(t, p, n, plan)
			woken := within(t, found, 2*d)
			if at := time.Since(began); at < test.within[0] || at > test.within[1] {
				t.Errorf("woken after %v, want %v", at, test.within)
			}
			if woken.ID != plan.ID || woken.Epoch != 2 || woken.Asleep() || fences.Load() > 0 {
				t.Errorf("woken as %+v, after %d takeovers", woken, fences.Load())
			}
			if !slices.Equal(versions(woken), versions(was)) {
				t.Error("the sub-objects were stored again")
			}
			time.Sleep(time.Hour)
			if len(found) > 0 {
				t.Error("the plan is woken twice")
			}
		})
	}
}

// TestSignalsWakeOnce: a plan that sleeps is woken by the signals after the one that Sleep names, whenever they come, and by
// no other one, although other nodes know of it.
func TestSignalsWakeOnce(t *testing.T) {
	efforttest.NotShort(t, "it sleeps for days of virtual time; TestSleep wakes plans under the race detector")
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		other, m := start(t, store, fleet.Options{})
		found := make(chan *workflow.Plan, 10)
		for _, n := range []*fleet.Node{n, m} {
			go func() {
				for plan := range plans(t.Context(), t, n) {
					found <- plan
				}
			}()
		}
		time.Sleep(time.Minute + time.Second)
		plan := claimed(t, p, n, 2)
		until := n.Now().Add(24 * time.Hour)
		owner := func() (*processtest.Process, *fleet.Node) {
			if plan.Owner == m.ID() {
				return other, m
			}
			return p, n
		}
		// sleeps puts the plan to sleep, and returns when it was woken, or 0.
		sleeps := func(last int, within time.Duration) bool {
			_, n := owner()
			must(t, n.Sleep(t.Context(), plan, until, last))
			select {
			case plan = <-found:
				return true
			case <-time.After(within):
				return false
			}
		}
		send(t, p, plan.ID, fleet.Signal{Name: "before"})
		time.Sleep(11 * time.Second) // the nodes hear of it
		if !sleeps(0, time.Second) {
			t.Fatal("a signal from before the sleep does not wake the plan")
		}
		owning, _ := owner()
		owning.Before("UpdatePlan", func() {
			owning.On(nil)
			send(t, open(store), plan.ID, fleet.Signal{Name: "meanwhile"})
			time.Sleep(15 * time.Second) // the node hears of it
		})
		if !sleeps(1, 20*time.Second) {
			t.Fatal("a signal in the instant of the sleep does not wake the plan")
		}
		if sleeps(2, 23*time.Hour) {
			t.Fatalf("a signal that was seen wakes the plan: %+v", plan)
		}
		send(t, p, plan.ID, fleet.Signal{Name: "after"})
		select {
		case plan = <-found:
		case <-time.After(10*time.Second + 1):
			t.Fatal("a signal does not wake the plan")
		}
		if plan.Epoch != 4 || plan.LastSignal != 0 {
			t.Errorf("it is woken as %+v", plan)
		}
		until = until.Add(24 * time.Hour)
		if sleeps(fleet.MaxSignals, 12*time.Hour) {
			t.Error("a signal wakes a plan that waits for none")
		}
		if len(found) > 0 {
			t.Error("the plan is woken twice")
		}
	})
}

// TestTakeAsleep refuses to wake a plan before its time, and wakes it from then on. A plan that was let go in between by
// another node is not this node's.
func TestTakeAsleep(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		_, other := start(t, store, fleet.Options{})
		plan := asleep(t, p, n, time.Hour)
		for _, n := range []*fleet.Node{n, other} {
			fails(t, second(n.Take(t.Context(), plan.ID)), fleet.ErrAsleep, "Take")
		}
		fails(t, second(fleet.HandOver(t.Context(), p, plan.ID, fleet.HandOverOptions{By: ana})), fleet.ErrAsleep, "HandOver")
		later := plantest.Small()
		later.NotBefore = n.Now().Add(time.Hour)
		must(t, p.Create(t.Context(), later))
		if err := n.Claim(t.Context(), later); !errors.Is(err, fleet.ErrAsleep) || later.State.Status != workflow.NotStarted {
			t.Errorf("Claim returns %v", err)
		}
		time.Sleep(time.Hour)
		must(t, n.Claim(t.Context(), later))
		got, err := other.Take(t.Context(), plan.ID)
		if err != nil || got.Epoch != 2 || !other.Woken(plan.ID) {
			t.Errorf("Take returns %v, %v", got, err)
		}
		fails(t, second(n.Take(t.Context(), plan.ID)), fleet.ErrOwned, "Take")
		fails(t, n.Sleep(t.Context(), plan, time.Now(), 0), fleet.ErrFenced, "Sleep")
		if err := other.Sleep(t.Context(), plan, time.Now(), 0); !errors.Is(err, storage.ErrConflict) || plan.Owner != n.ID() && plan.WakeAt.IsZero() {
			t.Errorf("Sleep of an old version returns %v", err)
		}
	})
}

// TestManySleepers lets thousands of plans sleep beside a quick plan, and counts the node's calls.
func TestManySleepers(t *testing.T) {
	efforttest.NotShort(t, "it counts calls and bytes of thousands of plans")
	many := efforttest.Pick(600, 1000, 10_000)
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{Capacity: 16})
		all := make([]*workflow.Plan, many)
		for i := range all {
			all[i] = plantest.Small()
			must(t, p.Create(t.Context(), all[i]))
			must(t, n.Claim(t.Context(), all[i]))
		}
		before, due := inUse(), n.Now().Add(2*time.Hour+5*time.Second)
		for _, plan := range all {
			must(t, n.Sleep(t.Context(), plan, due, 0))
		}
		clear(all)
		if each := (int64(inUse()) - int64(before)) / int64(many); each > 2048 {
			t.Errorf("%d bytes are kept for each plan that sleeps", each)
		}
		var calls atomic.Int64
		p.Before("", func() { calls.Add(1) })
		found := plans(t.Context(), t, n)
		const hours = 1
		time.Sleep(hours * time.Hour)
		// Beside the heartbeats and the looks, a search each interval and each hour.
		if got, most := calls.Load(), int64(hours*(3*360+2)+10); got > most {
			t.Errorf("%d calls in %d hours, at most %d without plans that sleep", got, hours, most)
		}
		quick := func() {
			plan, stored := create(t, open(store), 1), time.Now()
			for {
				next := within(t, found, time.Hour)
				_, done := n.Work(next.ID)
				if next.ID == plan.ID {
					done()
					break
				}
				time.AfterFunc(time.Second, done)
			}
			if d := time.Since(stored); d > 20*time.Second {
				t.Errorf("a quick plan waits %v beside %d that sleep or wake", d, many)
			}
		}
		quick()
		time.Sleep(time.Until(due.Add(-time.Second)))
		quick()
	})
}

// inUse returns the bytes that are in use.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestNotBefore offers and creates plans that must not begin yet, and looks when they do, and on how many nodes.
func TestNotBefore(t *testing.T) {
	efforttest.NotShort(t, "it waits for weeks of virtual time; TestSleep wakes plans under the race detector")
	const d = 50 * time.Hour // the searches of each interval no longer find the plan
	for name, happen := range map[string]func(t *testing.T, p *processtest.Process, n *fleet.Node, plan *workflow.Plan) time.Duration{
		"nothing": func(*testing.T, *processtest.Process, *fleet.Node, *workflow.Plan) time.Duration { return d },
		"offered": func(_ *testing.T, _ *processtest.Process, n *fleet.Node, plan *workflow.Plan) time.Duration {
			n.Offer(plantest.Clone(plan))
			return d
		},
		"a node dies": func(_ *testing.T, p *processtest.Process, n *fleet.Node, plan *workflow.Plan) time.Duration {
			n.Offer(plantest.Clone(plan))
			time.Sleep(30 * time.Hour)
			p.Kill()
			return d
		},
		"a stop": func(t *testing.T, p *processtest.Process, _ *fleet.Node, plan *workflow.Plan) time.Duration {
			time.Sleep(30 * time.Hour)
			must(t, fleet.Stop(t.Context(), p, plan.ID, ana))
			return 30 * time.Hour
		},
		"a signal": func(t *testing.T, p *processtest.Process, n *fleet.Node, plan *workflow.Plan) time.Duration {
			n.Offer(plantest.Clone(plan))
			send(t, p, plan.ID, fleet.Signal{Name: "early"})
			return d
		},
	} {
		storeRun(t, name, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			_, other := start(t, store, fleet.Options{})
			found := [2]<-chan *workflow.Plan{plans(t.Context(), t, n), plans(t.Context(), t, other)}
			time.Sleep(time.Minute)
			plan, began := plantest.Small(), time.Now()
			plan.NotBefore = n.Now().Add(d)
			must(t, open(store).Create(t.Context(), plan))
			due := happen(t, p, n, plan)
			var got *workflow.Plan
			select {
			case got = <-found[0]:
			case got = <-found[1]:
			case <-time.After(3 * d):
				t.Fatal("the plan never begins")
			}
			if at := time.Since(began) - due; at < 0 || at > 40*time.Second || got.ID != plan.ID || got.Epoch != 1 {
				t.Errorf("%v begins %v after it is due, with epoch %d", got.ID, at, got.Epoch)
			}
			time.Sleep(time.Hour)
			if len(found[0])+len(found[1]) > 0 {
				t.Error("it begins twice")
			}
		})
	}
}

// TestUnsuitedSleepers: plans sleep, their node leaves, and the first by hash of some lacks their plugins. It reads each once, and
// the others wake them in time; and so again when they have slept once more.
func TestUnsuitedSleepers(t *testing.T) {
	const many, d, I = 3 * storage.MaxLetGo, 5 * time.Minute, 10 * time.Second // half are more than a record lists
	onStore(t, func(t *testing.T, store *memvault.Store) {
		unsuited := open(store)
		var reads atomic.Int64
		unsuited.OnOp("Read", func(_ context.Context, c processtest.Call, _ func() error) error {
			reads.Add(1)
			return &storage.Error{Op: "Read", Plan: c.Plan, Err: fleet.ErrUnsuited}
		})
		n := join(t, unsuited, fleet.Options{})
		_, errs := results(t.Context(), n)
		go func() {
			for range errs { // each is told once
			}
		}()
		p, owner := start(t, store, fleet.Options{})
		var all []*workflow.Plan
		for range many {
			all = append(all, claimed(t, p, owner, 1))
		}
		for round := range int64(2) {
			due := owner.Now().Add(d)
			for _, plan := range all {
				must(t, owner.Sleep(t.Context(), plan, due, 0))
			}
			_, next := start(t, store, fleet.Options{})
			found := plans(t.Context(), t, next)
			time.Sleep(time.Minute)
			leave(t, owner)
			all = all[:0]
			for range many {
				all = append(all, within(t, found, time.Until(due)+4*time.Minute))
			}
			if late := time.Since(due); late > 3*time.Minute+2*I {
				t.Errorf("the last is woken %v late", late)
			}
			if got := reads.Load(); got == 0 || got > many*(round+1) {
				t.Errorf("%d reads in round %d", got, round)
			}
			owner = next
		}
		time.Sleep(2 * time.Minute)
		if listed := roster(t, store)[n.ID()].LetGo; len(listed) > 0 || n.Context().Err() != nil {
			t.Errorf("%d plans are listed: %v", len(listed), n.Context().Err())
		}
	})
}
