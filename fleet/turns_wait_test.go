package fleet_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// crew works on the plans of its nodes, each for a minute, and watches that no more work at once than their keys allow.
type crew struct {
	t    *testing.T
	ctx  context.Context
	busy sync.WaitGroup

	mu    sync.Mutex
	now   map[string]int
	began map[string]time.Duration // since the crew began, by the plan's name
	order []string
	start time.Time
}

func newCrew(t *testing.T) *crew {
	ctx, cancel := context.WithCancel(t.Context())
	c := &crew{t: t, ctx: ctx, now: map[string]int{}, began: map[string]time.Duration{}, start: time.Now()}
	t.Cleanup(func() {
		cancel()
		c.busy.Wait()
	})
	return c
}

// works lets a node work until the test ends, and returns its process.
func (c *crew) works(v storage.Vault, o fleet.Options) *fleet.Node {
	n := join(c.t, v, o)
	c.serves(v, n)
	return n
}

func (c *crew) serves(v storage.Vault, n *fleet.Node) {
	c.busy.Go(func() {
		for next := range n.Plans(c.ctx) {
			if next.Err == nil {
				c.busy.Go(func() { c.work(v, n, next.Result) })
			}
		}
	})
}

func (c *crew) work(v storage.Vault, n *fleet.Node, plan *workflow.Plan) {
	ctx, done := n.Work(plan.ID)
	defer done()
	if !errors.Is(context.Cause(ctx), fleet.ErrStopRequested) {
		c.counts(plan, 1)
		time.Sleep(time.Minute)
		c.counts(plan, -1)
	}
	for finish(c.ctx, v, plan) != nil {
		if time.Sleep(10 * time.Second); c.ctx.Err() != nil {
			return
		}
		if again, err := n.Take(c.ctx, plan.ID); err == nil {
			plan = again
		}
	}
	n.GiveTurns(c.ctx, plan)
}

func (c *crew) counts(plan *workflow.Plan, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by > 0 {
		c.order = append(c.order, plan.Name)
		c.began[plan.Name] = time.Since(c.start)
	}
	for _, k := range plan.Keys {
		if c.now[k.Name] += by; c.now[k.Name] > max(k.Limit, 1) {
			c.t.Errorf("%d plans work at once for key %q", c.now[k.Name], k.Name)
		}
	}
}

// awaits fails the test unless a plan begins within d.
func (c *crew) awaits(name string, d time.Duration) (began time.Duration) {
	c.t.Helper()
	for until := time.Now().Add(d); ; time.Sleep(time.Second) {
		c.mu.Lock()
		began, there := c.began[name]
		c.mu.Unlock()
		if there {
			return began
		}
		if time.Now().After(until) {
			c.t.Fatalf("plan %s did not begin within %v; %v did", name, d, c.order)
		}
	}
}

// holds stores a plan and claims it for a node, which has its turns then.
func holds(t testing.TB, v storage.Vault, n *fleet.Node, keys ...workflow.Key) *workflow.Plan {
	t.Helper()
	plan := keyed(t, v, "holder", keys...)
	must(t, n.Claim(t.Context(), plan))
	return plan
}

// ends ends a plan that a node owns.
func ends(t testing.TB, v storage.Vault, n *fleet.Node, plan *workflow.Plan) {
	t.Helper()
	must(t, finish(t.Context(), v, plan))
	n.GiveTurns(t.Context(), plan)
	_, done := n.Work(plan.ID)
	done()
}

// resting stores a plan that has given its turn for key a back and sleeps.
func resting(t testing.TB, v storage.Vault, n *fleet.Node, d time.Duration) *workflow.Plan {
	t.Helper()
	plan := plantest.Sized(1, 1, 1)
	plan.Name, plan.Keys, plan.KeepTurn = "rests", []workflow.Key{a}, workflow.KeepWhileAwake
	must(t, v.Create(t.Context(), plan))
	must(t, n.Claim(t.Context(), plan))
	must(t, n.Sleep(t.Context(), plan, n.Now().Add(d), 0))
	return plan
}

// becomes waits until a plan has a status.
func becomes(t testing.TB, v storage.Vault, id uuid.UUID, status workflow.Status, d time.Duration) *workflow.Plan {
	t.Helper()
	for until := time.Now().Add(d); ; time.Sleep(time.Second) {
		plan := read(t, v, id)
		if plan.State.Status == status {
			return plan
		}
		if time.Now().After(until) {
			t.Fatalf("plan %s is %s after %v", plan.Name, plan.State.Status, d)
		}
	}
}

var a, b = workflow.Key{Name: "a"}, workflow.Key{Name: "b"}

// TestTurnsStop stops plans that wait for a turn: each ends without one.
func TestTurnsStop(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		rests := resting(t, p, n, 24*time.Hour)
		holder := holds(t, p, n, a)
		c := newCrew(t)
		for range 2 {
			c.works(open(store), fleet.Options{})
		}
		waits := []*workflow.Plan{keyed(t, p, "waits", a), keyed(t, p, "waits", a, b), keyed(t, p, "waits", a)}
		if err := n.Claim(t.Context(), waits[2]); !errors.Is(err, fleet.ErrNoTurn) {
			t.Fatal(err)
		}
		waits = append(waits, rests)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		found := plans(ctx, t, n)
		time.Sleep(5 * time.Minute)
		for _, plan := range waits {
			must(t, fleet.Stop(t.Context(), p, plan.ID, ana))
		}
		time.Sleep(30 * time.Second)
		for i, plan := range waits {
			// The crew completes what it stops, and the first node only has it.
			if got := read(t, p, plan.ID); got.State.Status != workflow.Completed && got.Owner != n.ID() {
				t.Errorf("plan %d is %s", i, got.State.Status)
			}
		}
		for range len(found) {
			plan := <-found
			if ctx, _ := n.Work(plan.ID); !errors.Is(context.Cause(ctx), fleet.ErrStopRequested) {
				t.Errorf("plan %s goes on", plan.ID)
			}
		}
		if len(c.order) > 0 {
			t.Errorf("%v have begun", c.order)
		}
		ends(t, p, n, holder)
	})
}

// TestTurnsKeepWhileAwake: a plan gives its turn back while it sleeps, and others have it when it is due. It goes on when they have
// ended, on the node that let it sleep, and on another one after that has gone.
func TestTurnsKeepWhileAwake(t *testing.T) {
	const I = 10 * time.Second
	for _, test := range []struct {
		name   string
		happen func(*testing.T, *processtest.Process, *fleet.Node)
		within time.Duration // after the turn is given back by another process
	}{
		{"nothing", func(*testing.T, *processtest.Process, *fleet.Node) {}, 4 * I},
		{"its node leaves", func(t *testing.T, _ *processtest.Process, n *fleet.Node) { leave(t, n) }, 4 * I},
		{"its node dies", func(_ *testing.T, p *processtest.Process, _ *fleet.Node) { p.Kill() }, 4 * I},
	} {
		t.Run(test.name, func(t *testing.T) {
			onStore(t, func(t *testing.T, store *memvault.Store) {
				p, n := start(t, store, fleet.Options{})
				q, m := start(t, store, fleet.Options{NoGauges: true})
				plan := resting(t, p, n, 10*time.Minute)
				holder := holds(t, q, m, a)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				plans(ctx, t, n)
				plans(ctx, t, m)
				time.Sleep(5 * time.Minute)
				test.happen(t, p, n)
				c := newCrew(t)
				c.works(open(store), fleet.Options{})
				time.Sleep(time.Hour)
				if read(t, q, plan.ID).Owner != uuid.Nil {
					t.Fatal("it goes on without a turn")
				}
				ends(t, q, m, holder)
				for freed := time.Now(); read(t, q, plan.ID).Owner == uuid.Nil; time.Sleep(time.Second) {
					if since := time.Since(freed); since > test.within {
						t.Fatalf("it does not go on %v after the turn was given back", since)
					}
				}
			})
		})
	}
}

// TestTurnsSignal: a signal does not wake a plan that waits for a turn; it wakes one that gave its turn back, which has to wait for
// it then, and has the signal when it goes on.
func TestTurnsSignal(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := resting(t, p, n, 24*time.Hour)
		q, m := start(t, store, fleet.Options{})
		holder := holds(t, q, m, a)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		found := plans(ctx, t, n)
		send(t, p, plan.ID, fleet.Signal{Name: "go"})
		time.Sleep(10 * time.Minute)
		before := read(t, p, plan.ID).Epoch
		send(t, p, plan.ID, fleet.Signal{Name: "again"})
		time.Sleep(10 * time.Minute)
		if got := read(t, p, plan.ID); got.Owner != uuid.Nil || got.Epoch != before {
			t.Errorf("it has owner %s and epoch %d, and had %d", got.Owner, got.Epoch, before)
		}
		ends(t, q, m, holder)
		if got := within(t, found, time.Minute); got.ID != plan.ID || got.WaitsFor != "" {
			t.Errorf("got %+v", got)
		}
		if last, _ := n.Signals(plan.ID); last != 2 {
			t.Errorf("the last signal is %d", last)
		}
	})
}

// TestTurnsPause pauses plans that wait for a turn and resumes them: the older one still comes first.
func TestTurnsPause(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		holder := holds(t, p, n, a)
		older := keyed(t, p, "older", a)
		time.Sleep(time.Millisecond)
		younger := keyed(t, p, "younger", a)
		c := newCrew(t)
		c.works(open(store), fleet.Options{})
		time.Sleep(time.Minute)
		for _, plan := range []*workflow.Plan{older, younger} {
			must(t, fleet.PausePlan(t.Context(), p, plan.ID, ana))
		}
		time.Sleep(time.Minute)
		ends(t, p, n, holder)
		time.Sleep(10 * time.Minute)
		if len(c.order) > 0 {
			t.Fatalf("%v began while they were paused", c.order)
		}
		must(t, fleet.ResumePlan(t.Context(), p, younger.ID, ana))
		c.awaits("younger", time.Minute)
		must(t, fleet.ResumePlan(t.Context(), p, older.ID, ana))
		c.awaits("older", 2*time.Minute)
	})
}

// TestTurnsResumedInOrder: a plan that is resumed does not overtake an older one for a turn that another node gives back.
func TestTurnsResumedInOrder(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		holder := holds(t, p, n, a)
		keyed(t, p, "older", a)
		time.Sleep(time.Millisecond)
		younger := keyed(t, p, "younger", a)
		must(t, fleet.PausePlan(t.Context(), p, younger.ID, ana))
		c := newCrew(t)
		m := c.works(open(store), fleet.Options{})
		time.Sleep(time.Minute)
		must(t, fleet.ResumePlan(t.Context(), p, younger.ID, ana))
		ends(t, p, n, holder) // the younger one is woken before the older one's next look
		_ = m
		c.awaits("younger", 10*time.Minute)
		if !slices.Equal(c.order, []string{"older", "younger"}) {
			t.Errorf("they began in the order %v", c.order)
		}
	})
}

// TestTurnsConceded: a node that loses the race for a plan does not claim the next one, because the winner is about to take the turn.
func TestTurnsConceded(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, q := open(store), open(store)
		n, winner := join(t, p, fleet.Options{}), join(t, q, fleet.Options{})
		first := keyed(t, p, "first", a)
		time.Sleep(time.Millisecond)
		next := keyed(t, p, "next", a)
		q.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if c.Op == "PutKey" {
				time.Sleep(time.Second)
			}
			return do()
		})
		claimed := make(chan error, 1)
		var once sync.Once
		p.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if c.Op == "UpdatePlan" && c.Plan == first.ID {
				once.Do(func() {
					go func() { claimed <- winner.Claim(t.Context(), first) }()
					time.Sleep(time.Millisecond)
				})
			}
			return do()
		})
		c := newCrew(t)
		c.serves(p, n)
		must(t, <-claimed)
		time.Sleep(time.Minute)
		if plan := read(t, p, next.ID); plan.State.Status != workflow.NotStarted {
			t.Errorf("the next plan was claimed without room: %v, it waits for %q", plan.State.Status, plan.WaitsFor)
		}
		ends(t, q, winner, first)
		c.awaits("next", time.Minute)
	})
}

// TestTurnsPassedOver: an older plan that a node can't begin holds nobody up: its entry can't be written, or the process lacks its
// plugins, or it lacks a turn for another key.
func TestTurnsPassedOver(t *testing.T) {
	for name, hinder := range map[string]func(t *testing.T, p *processtest.Process, older uuid.UUID) error{
		"refused": func(_ *testing.T, p *processtest.Process, older uuid.UUID) error {
			p.On(func(_ context.Context, c processtest.Call, do func() error) error {
				if c.Op == "UpdatePlan" && c.Plan == older {
					return processtest.Unavailable(c.Op)
				}
				return do()
			})
			return nil
		},
		"unsuited": func(_ *testing.T, p *processtest.Process, older uuid.UUID) error {
			p.On(func(_ context.Context, c processtest.Call, do func() error) error {
				if c.Op == "Read" && c.Plan == older {
					return fleet.ErrUnsuited
				}
				return do()
			})
			return nil
		},
		"another key": func(t *testing.T, p *processtest.Process, _ uuid.UUID) error {
			return fleet.PauseKey(t.Context(), p, "b", time.Now().Add(time.Hour), ana)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(t *testing.T, store *memvault.Store) {
				v := open(store)
				older := keyed(t, v, "older", a, b)
				p := open(store)
				must(t, hinder(t, p, older.ID))
				c := newCrew(t)
				c.works(p, fleet.Options{})
				time.Sleep(time.Minute)
				for _, name := range []string{"1", "2", "3"} {
					keyed(t, v, name, a)
				}
				c.awaits("3", 10*time.Minute)
				if _, began := c.began["older"]; began {
					t.Error("the older one began")
				}
			})
		})
	}
}

// TestTurnsOfAFullNode: a plan sleeps on a node without a turn, and the node is full when the turn is given back.
func TestTurnsOfAFullNode(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{Capacity: 1})
		c := newCrew(t)
		q := open(store)
		m := c.works(q, fleet.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.Sleep(5 * time.Second) // between two searches of the others
		plan := keyed(t, p, "waits", a)
		holder := holds(t, q, m, a)
		if err := n.Claim(ctx, plan); !errors.Is(err, fleet.ErrNoTurn) || !errors.Is(err, fleet.ErrAsleep) {
			t.Fatalf("it was claimed: %v", err)
		}
		plans(ctx, t, n)
		time.Sleep(57 * time.Second) // between two searches of both
		must(t, n.Claim(ctx, keyed(t, p, "full")))
		time.Sleep(2 * time.Minute)
		ends(t, q, m, holder)
		c.awaits("waits", time.Minute)
	})
}

// TestTurnsNotBefore has plans with a turn to take and a time to begin.
func TestTurnsNotBefore(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := open(store)
		c := newCrew(t)
		c.works(open(store), fleet.Options{})
		c.works(open(store), fleet.Options{})
		for _, name := range []string{"late", "soon"} {
			plan := plantest.Sized(1, 1, 1)
			plan.Name, plan.Keys, plan.NotBefore = name, []workflow.Key{a}, time.Now().Add(2*time.Hour)
			if name == "soon" {
				plan.NotBefore = time.Time{}
			}
			must(t, v.Create(t.Context(), plan))
		}
		if got := c.awaits("soon", time.Minute); got > time.Minute { // what is not due holds nobody up
			t.Errorf("it began after %v", got)
		}
		if got := c.awaits("late", 3*time.Hour); got < 2*time.Hour || got > 2*time.Hour+time.Minute {
			t.Errorf("it began after %v", got)
		}
	})
}

// TestTurnsDeadline: plans whose deadline passes while they wait go on at once, to end without a turn. One waits for another key,
// too, one was claimed in vain, one sleeps without its turn, one has a Unique, and of one the deadline has passed when it is found.
func TestTurnsDeadline(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		deadline := time.Now().Add(10*time.Minute + 3*time.Second)
		late := func(deadline time.Time, unique string, keys ...workflow.Key) *workflow.Plan {
			plan := plantest.Sized(1, 1, 1)
			plan.Name, plan.Keys, plan.Unique, plan.Deadline, plan.KeepTurn = "late", keys, unique, deadline, workflow.KeepWhileAwake
			must(t, p.Create(t.Context(), plan))
			return plan
		}
		sleeper := late(deadline, "", a)
		must(t, n.Claim(t.Context(), sleeper))
		must(t, n.Sleep(t.Context(), sleeper, n.Now().Add(5*time.Minute), 0))
		holder := late(time.Time{}, "u", a)
		must(t, n.Claim(t.Context(), holder))
		must(t, fleet.PauseKey(t.Context(), p, "b", time.Now().Add(time.Hour), ana))
		waits := []*workflow.Plan{sleeper, late(deadline, "", a), late(deadline, "", a, b), late(deadline, "", a), late(deadline, "u")}
		if err := n.Claim(t.Context(), waits[3]); !errors.Is(err, fleet.ErrNoTurn) {
			t.Fatal(err)
		}
		patient := keyed(t, p, "patient", a)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q, m := start(t, store, fleet.Options{})
		nodes := map[*fleet.Node]<-chan *workflow.Plan{n: plans(ctx, t, n), m: plans(ctx, t, m)}
		time.Sleep(time.Until(deadline) - time.Second)
		for _, found := range nodes {
			if len(found) > 0 {
				t.Error("one goes on before its deadline")
			}
		}
		goOn := func(plans ...*workflow.Plan) {
			t.Helper()
			for i, plan := range plans {
				if got := read(t, q, plan.ID); got.Owner == uuid.Nil {
					t.Errorf("plan %d is %s, and waits for %q", i, got.State.Status, got.WaitsFor)
				}
			}
		}
		time.Sleep(time.Second + time.Millisecond)
		goOn(waits[1:3]...) // that both nodes know
		found := late(time.Now().Add(-time.Hour), "", a)
		time.Sleep(10 * time.Second)
		goOn(waits...)
		time.Sleep(10 * time.Second)
		goOn(found)
		if taken := holders(t, q, "key:a"); len(taken) != 1 || !taken[holder.ID] {
			t.Errorf("the turns have %v", taken)
		}
		if got := read(t, q, patient.ID); got.State.Status != workflow.NotStarted {
			t.Errorf("the plan without a deadline is %s", got.State.Status)
		}
		ends(t, p, n, holder)
		becomes(t, q, patient.ID, workflow.Running, time.Minute)
	})
}

// TestTurnsHandedOver hands a plan over that an engine of another kind has let wait for a turn: it takes none meanwhile.
func TestTurnsHandedOver(t *testing.T) {
	for _, free := range []bool{false, true} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			holder := holds(t, p, n, a)
			plan := keyed(t, p, "external", a)
			claim, err := placer(t, p).Claim(plan.ID, fleet.ClaimOptions{External: queue})
			must(t, err)
			if _, err = claim.Take(t.Context()); !errors.Is(err, fleet.ErrNoTurn) || !errors.Is(err, fleet.ErrAsleep) {
				t.Fatalf("it was claimed: %v", err)
			}
			claim.Release()
			if free {
				ends(t, p, n, holder)
			}
			h, err := fleet.HandOver(t.Context(), p, plan.ID, fleet.HandOverOptions{By: ana, External: true})
			if err != nil || !h.Asleep {
				t.Fatalf("handed over: %+v, %v", h, err)
			}
			k, err := p.FindKey(t.Context(), "key:a")
			must(t, err)
			if slices.ContainsFunc(k.Holders, func(h storage.Holder) bool { return h.Plan == plan.ID }) {
				t.Error("it has a turn, and nobody owns it")
			}
			if !free {
				ends(t, p, n, holder)
			}
			c := newCrew(t)
			c.works(open(store), fleet.Options{})
			c.awaits("external", time.Minute)
		})
	}
}

// TestTurnsOfADeletedPlan deletes a plan between its claim and the write that lets it sleep, because there is no turn for it. The node
// forgets it: another one gets its place, and it is taken when it is restored.
func TestTurnsOfADeletedPlan(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		q, m := start(t, store, fleet.Options{NoGauges: true})
		holder := holds(t, q, m, a)
		p, n := start(t, store, fleet.Options{Capacity: 1})
		plan := keyed(t, p, "deleted", a)
		var claimed *workflow.Plan
		p.OnOp("UpdatePlan", func(_ context.Context, c processtest.Call, do func() error) error {
			if c.Object.(*workflow.Plan).Asleep() {
				claimed = read(t, q, plan.ID)
				must(t, q.Delete(t.Context(), plan.ID))
			}
			return do()
		})
		if err := n.Claim(t.Context(), plan); !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
		p.On(nil)
		ends(t, q, m, holder)
		found := plans(t.Context(), t, n)
		for _, id := range []uuid.UUID{create(t, p, 1).ID, plan.ID} {
			if got := within(t, found, time.Hour+time.Minute); got.ID != id {
				t.Errorf("plan %s came", got.ID)
			}
			_, done := n.Work(id)
			done()
			if restorer, _ := storage.As[storage.Restorer](store.Open(plantest.Register(), memvault.Options{})); id != plan.ID {
				must(t, p.Delete(t.Context(), id))
				must(t, restorer.Restore(t.Context(), claimed))
			}
		}
	})
}

// TestTurnsOutage refuses calls for a while, one kind after the other. Nothing is lost or doubled, all plans go on soon after the
// outage, and few requests are made meanwhile.
func TestTurnsOutage(t *testing.T) {
	efforttest.NotShort(t, "it polls for hours of virtual time")
	for _, op := range []string{"FindKey", "PutKey", "Search", "UpdatePlan", "Read"} {
		for _, refusal := range []error{storage.ErrUnavailable, storage.ErrDenied} {
			t.Run(op+" "+refusal.Error(), func(t *testing.T) {
				onStore(t, func(t *testing.T, store *memvault.Store) {
					v := open(store)
					var mu sync.Mutex
					from, requests := time.Now().Add(90*time.Second), 0
					outage := func(_ context.Context, c processtest.Call, do func() error) error {
						since := time.Since(from)
						if since < 0 || since > 30*time.Minute {
							return do()
						}
						mu.Lock()
						if requests++; c.Op == "Roster" || c.Op == "RenewMember" {
							requests--
						}
						mu.Unlock()
						if c.Op == op {
							return &storage.Error{Op: op, Err: refusal}
						}
						return do()
					}
					c := newCrew(t)
					for range 2 {
						p := open(store)
						p.On(outage)
						c.works(p, fleet.Options{})
					}
					names := []string{"1", "2", "3", "4", "5", "6"}
					for i, name := range names {
						keyed(t, v, name, [][]workflow.Key{{a}, {a, b}, {b}}[i%3]...)
						time.Sleep(time.Millisecond)
					}
					unique := plantest.Sized(1, 1, 1)
					unique.Name, unique.Unique = "unique", "u"
					time.Sleep(time.Until(from) + time.Minute)
					must(t, v.Create(t.Context(), unique))
					time.Sleep(30 * time.Minute)
					for _, name := range append(names, "unique") {
						c.awaits(name, 12*time.Minute)
					}
					if most := 30 * 100; requests > most { // a minute, of both nodes
						t.Errorf("%d requests in half an hour", requests)
					}
					t.Logf("%d requests in half an hour", requests)
					time.Sleep(2 * time.Minute)
					slices.Sort(c.order)
					if len(c.order) != 7 {
						t.Errorf("%v began", c.order)
					}
				})
			})
		}
	}
}

// TestTurnsUnknown loses the answers to all writes of records, for good or not, and nothing is lost or doubled.
func TestTurnsUnknown(t *testing.T) {
	for _, applied := range []bool{true, false} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			v := open(store)
			c := newCrew(t)
			for range 2 {
				p, nth := open(store), 0
				var mu sync.Mutex
				p.OnOp("PutKey", func(_ context.Context, call processtest.Call, do func() error) error {
					mu.Lock()
					nth++
					lost := nth%3 == 1
					mu.Unlock()
					if !lost {
						return do()
					}
					if applied {
						_ = do()
					}
					return processtest.Unknown(call.Op)
				})
				c.works(p, fleet.Options{})
			}
			names := []string{"1", "2", "3", "4"}
			for _, name := range names {
				keyed(t, v, name, a)
			}
			for _, name := range names {
				c.awaits(name, 10*time.Minute)
			}
			time.Sleep(2 * time.Minute)
			for k, err := range keysOf(t, v) {
				if err != nil || k.Holders != 0 {
					t.Errorf("%q has %d holders in the end: %v", k.Name, k.Holders, err)
				}
			}
		})
	}
}

// damageable is a store whose records of keys can be damaged.
type damageable struct {
	store *memvault.Store
	mu    sync.Mutex
	bad   map[storage.Version]bool
}

// open opens the store as a new process.
func (d *damageable) open() *processtest.Process {
	return processtest.New(hooked.Wrap(d.store.Open(plantest.Register(), memvault.Options{}), func(c *hooked.Call) error {
		err := c.Do()
		d.mu.Lock()
		defer d.mu.Unlock()
		if err == nil && c.Op == "FindKey" && d.bad[c.Key.Version] {
			c.Key = storage.KeyRecord{Name: c.Key.Name, Version: c.Key.Version, Stored: c.Key.Stored, Now: c.Key.Now}
			return &storage.Error{Op: c.Op, Err: storage.ErrCorrupt}
		}
		return err
	}))
}

func (d *damageable) damage(t testing.TB, v *processtest.Process, record string) {
	t.Helper()
	k, err := v.FindKey(t.Context(), record)
	must(t, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad[k.Version] = true
}

// TestTurnsDamaged damages a record. Nobody gets a turn until it is repaired, also a plan that has slept with its turn, and one
// whose owner has died. Then each has its turn, and the taker has found who had one.
func TestTurnsDamaged(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		d := &damageable{store: store, bad: map[storage.Version]bool{}}
		p := d.open()
		n := join(t, p, fleet.Options{})
		two := workflow.Key{Name: "a", Limit: 2}
		sleeper := holds(t, p, n, two)
		orphan := holds(t, p, n, two)
		must(t, n.Sleep(t.Context(), sleeper, n.Now().Add(10*time.Minute), 0))
		keyed(t, p, "waits", two)
		time.Sleep(time.Minute)
		d.damage(t, p, "key:a")
		p.Kill()
		var requests atomic.Int64
		c := newCrew(t)
		q := d.open()
		q.On(func(_ context.Context, call processtest.Call, do func() error) error {
			if call.Op != "Roster" && call.Op != "RenewMember" {
				requests.Add(1)
			}
			return do()
		})
		c.works(q, fleet.Options{})
		time.Sleep(10 * time.Minute)
		before := requests.Load()
		time.Sleep(3 * time.Hour)
		if got := requests.Load() - before; got > 180*12 {
			t.Errorf("%d requests in three hours", got)
		} else {
			t.Logf("%d requests in three hours", got)
		}
		if len(c.order) > 0 {
			t.Fatalf("%v began", c.order)
		}
		must(t, fleet.RepairKey(t.Context(), d.open(), "a", ana, fleet.KeySettings{}))
		for _, plan := range []*workflow.Plan{sleeper, orphan} {
			becomes(t, q, plan.ID, workflow.Completed, 5*time.Minute)
		}
		c.awaits("waits", 5*time.Minute)
		synctest.Wait()
	})
}

// TestTurnsGivenBackHere: a node that gives a turn back lets its next plan take it at once.
func TestTurnsGivenBackHere(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		holder := holds(t, p, n, a, b)
		keyed(t, p, "1", a)
		keyed(t, p, "2", b)
		c := newCrew(t)
		c.serves(p, n)
		time.Sleep(time.Minute + time.Second)
		freed := time.Since(c.start)
		ends(t, p, n, holder)
		for _, name := range []string{"1", "2"} {
			if after := c.awaits(name, time.Minute) - freed; after > time.Millisecond {
				t.Errorf("plan %s began after %v", name, after)
			}
		}
	})
}
