package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// queue is an engine of another kind.
var queue = workflow.External{Name: "queue", Ask: "queue show"}

func placer(t testing.TB, v storage.Vault) *fleet.Placer {
	t.Helper()
	p, err := fleet.NewPlacer(v, fleet.PlacerOptions{})
	must(t, err)
	return p
}

// claims tries to own a plan.
func claims(t testing.TB, p *fleet.Placer, id uuid.UUID, o fleet.ClaimOptions) (*fleet.Claim, *workflow.Plan, error) {
	t.Helper()
	c, err := p.Claim(id, o)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(c.Release)
	plan, err := c.Take(t.Context())
	return c, plan, err
}

// place claims a plan for the queue, which goes on from an epoch.
func place(t testing.TB, p *fleet.Placer, id uuid.UUID, epoch int64) (*fleet.Claim, *workflow.Plan) {
	t.Helper()
	c, plan, err := claims(t, p, id, fleet.ClaimOptions{External: queue, Epoch: epoch})
	must(t, err)
	return c, plan
}

// placed stores a plan that the queue has claimed.
func placed(t testing.TB, v storage.Vault) (*fleet.Claim, *workflow.Plan) {
	t.Helper()
	return place(t, placer(t, v), create(t, v, 2).ID, 0)
}

// rests stores a plan that the queue has put to sleep.
func rests(t testing.TB, v storage.Vault, d time.Duration, lastSignal int) *workflow.Plan {
	t.Helper()
	c, plan := placed(t, v)
	must(t, c.Sleep(t.Context(), plan, c.Now().Add(d), lastSignal))
	c.Release()
	return plan
}

// authored stores a plan whose author wants the queue to place it, after a while.
func authored(t testing.TB, v storage.Vault, d time.Duration) *workflow.Plan {
	t.Helper()
	plan := plantest.Sized(1, 1, 2)
	plan.External = queue
	if d > 0 {
		plan.NotBefore = time.Now().Add(d)
	}
	must(t, v.Create(t.Context(), plan))
	return plan
}

// TestPlacer says whom a plan belongs to that an engine of another kind places, from its claim on. The former owner is fenced.
func TestPlacer(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		vault := open(store)
		p := placer(t, vault)
		first, claimed := place(t, p, create(t, vault, 2).ID, 0)
		if claimed.Epoch != 1 || claimed.External != queue || claimed.State.Status != workflow.Running || first.Woken() {
			t.Fatalf("it was claimed as %+v", claimed)
		}
		_, _, err := claims(t, p, claimed.ID, fleet.ClaimOptions{External: queue})
		if owned, ok := errors.AsType[*fleet.OwnedError](err); !ok || owned.Epoch != 1 || owned.External != queue || !strings.Contains(err.Error(), "ask it: queue show") {
			t.Errorf("a second claim returned %v", err)
		}
		second, taken := place(t, p, claimed.ID, 1)
		if taken.Epoch != 2 || taken.External != queue {
			t.Errorf("it was taken as %+v", taken)
		}
		refused(t, vault, claimed)
		if _, err := first.Take(t.Context()); !errors.Is(err, fleet.ErrFenced) || !errors.Is(context.Cause(first.Work()), fleet.ErrFenced) {
			t.Errorf("the first owner took it again: %v", err)
		}
		if again, err := second.Take(t.Context()); err != nil || again.Epoch != 3 {
			t.Errorf("the second owner took it again: %+v, %v", again, err)
		}
		must(t, finish(t.Context(), vault, read(t, vault, claimed.ID)))
		if _, final := place(t, p, claimed.ID, 0); final.State.Status != workflow.Completed {
			t.Errorf("it ended as %s", final.State.Status)
		}
	})
}

// TestClaimNeedsVersions: nothing fences the updates of a vault that accepts them without versions, so it places no plans, as its
// process can't join a fleet.
func TestClaimNeedsVersions(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := store.Open(plantest.Register(), memvault.Options{UnversionedUpdates: true})
		if _, err := fleet.NewPlacer(processtest.New(v), fleet.PlacerOptions{}); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "open it without UnversionedUpdates") {
			t.Errorf("it places plans: %v", err)
		}
	})
}

// TestClaimIsRefused has each plan that is not for the queue, or not now.
func TestClaimIsRefused(t *testing.T) {
	of := func(epoch int64, name string) fleet.ClaimOptions {
		return fleet.ClaimOptions{External: workflow.External{Name: name}, Epoch: epoch}
	}
	sleeps := func(s scene) *workflow.Plan { return rests(s.t, s.p, time.Hour, 0) }
	pauses := func(make making) making {
		return func(s scene) *workflow.Plan {
			plan := make(s)
			must(s.t, fleet.PausePlan(s.t.Context(), s.p, plan.ID, ana))
			return plan
		}
	}
	for _, test := range []struct {
		name string
		plan making
		o    fleet.ClaimOptions
		want error
		text string
	}{
		{"its owner may live", ofTheQueue, of(0, "queue"), fleet.ErrOwned, "queue places it, in epoch 1; ask it: queue show"},
		{"an epoch that is over", ofTheQueue, of(2, "queue"), fleet.ErrOwned, "in epoch 1"},
		{"another engine's", ofTheQueue, of(1, "other"), fleet.ErrOwned, "queue places it"},
		{"another engine's, asleep", sleeps, of(1, "other"), fleet.ErrOwned, "queue places it"},
		{"another engine's, not begun", func(s scene) *workflow.Plan { return authored(s.t, s.p, 0) }, of(0, "other"), fleet.ErrOwned, "queue places it"},
		{"begun for the queue by an engine without claims", func(s scene) *workflow.Plan {
			plan := authored(s.t, s.p, 0)
			must(s.t, moves(s.t.Context(), s.p, plan, workflow.Running))
			return plan
		}, of(0, "queue"), fleet.ErrOwned, "queue places it"},
		{"the fleet's", ofTheNode, of(1, "queue"), fleet.ErrOwned, "with epoch 1"},
		{"the fleet's, whose owner is gone", orphaned, of(1, "queue"), fleet.ErrOwned, "with epoch 1"},
		{"the fleet's, asleep", func(s scene) *workflow.Plan { return asleep(s.t, s.p, s.n, -time.Minute) }, of(1, "queue"), fleet.ErrOwned, "the fleet places it"},
		{"unclaimed", unclaimed, of(0, "queue"), fleet.ErrOwned, "TakeUnclaimed"},
		{"asleep", sleeps, of(1, "queue"), fleet.ErrAsleep, "sleeps until"},
		{"not to begin yet", func(s scene) *workflow.Plan { return authored(s.t, s.p, time.Hour) }, of(0, "queue"), fleet.ErrAsleep, "sleeps until"},
		{"paused before it began", pauses(unbegun), of(0, "queue"), fleet.ErrPaused, ""},
		{"paused and due", pauses(func(s scene) *workflow.Plan { return rests(s.t, s.p, 0, 0) }), of(0, "queue"), fleet.ErrPaused, ""},
		{"in a suspended vault", func(s scene) *workflow.Plan {
			must(s.t, second(fleet.Suspend(s.t.Context(), s.p, closing, fleet.SuspendOptions{})))
			return unbegun(s)
		}, of(0, "queue"), fleet.ErrSuspended, ""},
		{"deleted", func(s scene) *workflow.Plan {
			plan := ofTheQueue(s)
			must(s.t, s.p.Delete(s.t.Context(), plan.ID))
			return plan
		}, of(1, "queue"), storage.ErrNotFound, ""},
		{"by nobody", ofTheQueue, of(1, ""), storage.ErrInvalid, "External.Name"},
		{"by a name of two lines", ofTheQueue, of(1, "a\nb"), storage.ErrInvalid, "External"},
		{"with a negative epoch", ofTheQueue, of(-1, "queue"), storage.ErrInvalid, "Epoch"},
	} {
		storeRun(t, test.name, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			id := test.plan(scene{t, store, p, n}).ID
			before, _ := p.Read(t.Context(), id)
			_, _, err := claims(t, placer(t, p), id, test.o)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %v with %q", err, test.want, test.text)
			}
			if after, _ := p.Read(t.Context(), id); plantest.Diff(before, after) != "" {
				t.Error("the plan has changed")
			}
		})
	}
	onStore(t, func(t *testing.T, store *memvault.Store) {
		o := of(0, "queue")
		o.TakeUnclaimed = true
		p := open(store)
		plan := ownerless(t, p, 2)
		_, taken, err := claims(t, placer(t, p), plan.ID, o)
		must(t, err)
		if taken.Epoch != 2 || taken.External.Name != "queue" {
			t.Errorf("an unclaimed plan was taken as %+v", taken)
		}
		refused(t, p, plan)
		for _, d := range []time.Duration{time.Millisecond, time.Minute} {
			fails(t, second(fleet.NewPlacer(p, fleet.PlacerOptions{Interval: d})), storage.ErrInvalid, "an interval of %v", d)
		}
	})
}

// TestClaimsAtOnce lets one placer claim a plan between another's read and update of it. The first update wins.
func TestClaimsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		plan  making
		epoch int64
	}{
		"not begun":         {unbegun, 0},
		"asleep":            {func(s scene) *workflow.Plan { return rests(s.t, s.p, 0, 0) }, 0},
		"its owner is gone": {ofTheQueue, 1},
	} {
		storeRun(t, name, func(t *testing.T, store *memvault.Store) {
			p, quick := open(store), open(store)
			plan := test.plan(scene{t: t, p: p})
			var winner *workflow.Plan
			beforeFirst(p, "UpdatePlan", func() { _, winner = place(t, placer(t, quick), plan.ID, test.epoch) })
			_, _, err := claims(t, placer(t, p), plan.ID, fleet.ClaimOptions{External: queue, Epoch: test.epoch})
			if owned, ok := errors.AsType[*fleet.OwnedError](err); !ok || owned.Owner != winner.Owner || owned.Epoch != winner.Epoch {
				t.Errorf("the second claim returned %v", err)
			}
			if diff := plantest.Diff(winner, read(t, quick, plan.ID)); diff != "" {
				t.Errorf("the first one's plan has changed: %s", diff)
			}
		})
	}
}

// TestNodesLeaveExternalPlansAlone lets nodes look for hours at plans that the queue places, and asks them for each.
func TestNodesLeaveExternalPlansAlone(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		outside := open(store)
		_, owned := placed(t, outside)
		begun := authored(t, outside, 0)
		must(t, moves(t.Context(), outside, begun, workflow.Running))
		stopped, told, resumed := rests(t, outside, 24*time.Hour, 0), rests(t, outside, 24*time.Hour, 0), rests(t, outside, 0, 0)
		stays := []*workflow.Plan{authored(t, outside, 0), authored(t, outside, time.Minute), owned, begun, rests(t, outside, time.Minute, 0), stopped, told, resumed}
		must(t, fleet.PausePlan(t.Context(), outside, resumed.ID, ana))
		p, n := start(t, store, fleet.Options{TakeUnclaimed: true})
		found := plans(t.Context(), t, n)
		time.Sleep(time.Minute)
		must(t, fleet.Stop(t.Context(), outside, stopped.ID, ana))
		must(t, fleet.Stop(t.Context(), outside, owned.ID, ana))
		send(t, outside, told.ID, fleet.Signal{Name: "go"})
		must(t, fleet.ResumePlan(t.Context(), outside, resumed.ID, ana))
		outside.Kill()
		_, second := start(t, store, fleet.Options{}) // a join and a leave start searches of all days
		leave(t, second)
		time.Sleep(3 * time.Hour)
		for _, plan := range stays {
			now := read(t, p, plan.ID)
			if now.Owner != plan.Owner || now.Epoch != plan.Epoch || now.External != queue {
				t.Errorf("it is now stored as %+v", now)
			}
			n.Offer(plantest.Clone(plan))
			_, err := n.Take(t.Context(), plan.ID)
			if claim := n.Claim(t.Context(), plan); !errors.Is(err, fleet.ErrOwned) || !errors.Is(claim, fleet.ErrOwned) && plan.State.Status == workflow.NotStarted {
				t.Errorf("a node takes it: %v, %v", err, claim)
			}
		}
		time.Sleep(time.Hour)
		own := create(t, p, 1)
		if plan := within(t, found, 15*time.Second); plan.ID != own.ID {
			t.Errorf("a node runs %+v", plan)
		}
	})
}

// TestPlacerWakes wakes a plan that sleeps as soon as it should go on, and not before.
func TestPlacerWakes(t *testing.T) {
	for _, test := range []struct {
		name  string
		ask   func(t *testing.T, v storage.Vault, id uuid.UUID)
		woken error // nil if the plan is woken
		work  error // the cause with which the work has ended
	}{
		{"it is due", func(*testing.T, storage.Vault, uuid.UUID) { time.Sleep(time.Hour) }, nil, nil},
		{"a moment before it is due", func(*testing.T, storage.Vault, uuid.UUID) { time.Sleep(time.Hour - time.Second) }, fleet.ErrAsleep, nil},
		{"a signal that it knows", func(t *testing.T, v storage.Vault, id uuid.UUID) { send(t, v, id, fleet.Signal{Name: "go"}) }, fleet.ErrAsleep, nil},
		{"a new signal", func(t *testing.T, v storage.Vault, id uuid.UUID) {
			send(t, v, id, fleet.Signal{Name: "go"})
			send(t, v, id, fleet.Signal{Name: "go"})
		}, nil, nil},
		{"a request to stop", func(t *testing.T, v storage.Vault, id uuid.UUID) { must(t, fleet.Stop(t.Context(), v, id, ana)) }, nil, fleet.ErrStopRequested},
		{"paused when it is due", func(t *testing.T, v storage.Vault, id uuid.UUID) {
			must(t, fleet.PausePlan(t.Context(), v, id, ana))
			time.Sleep(time.Hour)
		}, fleet.ErrPaused, nil},
		{"paused, and a request to stop", func(t *testing.T, v storage.Vault, id uuid.UUID) {
			must(t, fleet.PausePlan(t.Context(), v, id, ana))
			must(t, fleet.Stop(t.Context(), v, id, ana))
		}, nil, fleet.ErrStopRequested},
		{"resumed when it is due", func(t *testing.T, v storage.Vault, id uuid.UUID) {
			must(t, fleet.PausePlan(t.Context(), v, id, ana))
			time.Sleep(time.Hour)
			must(t, fleet.ResumePlan(t.Context(), v, id, ana))
		}, nil, nil},
	} {
		storeRun(t, test.name, func(t *testing.T, store *memvault.Store) {
			v := open(store)
			plan := rests(t, v, time.Hour, 1)
			was := read(t, v, plan.ID)
			test.ask(t, v, plan.ID)
			by := workflow.External{Name: queue.Name, Ask: "queue log"}
			c, woken, err := claims(t, placer(t, v), plan.ID, fleet.ClaimOptions{External: by})
			if !errors.Is(err, test.woken) || (err == nil) != (test.woken == nil) {
				t.Fatalf("the claim returned %v", err)
			}
			if err != nil {
				return
			}
			if !c.Woken() || woken.Asleep() || woken.Epoch != 2 || woken.External != by || !slices.Equal(versions(woken), versions(was)) {
				t.Errorf("woken as %+v", woken)
			}
			if cause := context.Cause(c.Work()); !errors.Is(cause, test.work) {
				t.Errorf("the work has ended with %v", cause)
			}
		})
	}
}

// TestPlacerHears: what is asked of a plan that the queue works on ends the work within an interval, or tells it.
func TestPlacerHears(t *testing.T) {
	for name, test := range map[string]struct {
		ask  func(t *testing.T, v storage.Vault, id uuid.UUID)
		want error
	}{
		"stop":  {func(t *testing.T, v storage.Vault, id uuid.UUID) { must(t, fleet.Stop(t.Context(), v, id, ana)) }, fleet.ErrStopRequested},
		"pause": {func(t *testing.T, v storage.Vault, id uuid.UUID) { must(t, fleet.PausePlan(t.Context(), v, id, ana)) }, fleet.ErrPaused},
		"suspended": {func(t *testing.T, v storage.Vault, _ uuid.UUID) {
			must(t, second(fleet.Suspend(t.Context(), v, closing, fleet.SuspendOptions{})))
		}, fleet.ErrSuspended},
		"signal": {func(t *testing.T, v storage.Vault, id uuid.UUID) { send(t, v, id, fleet.Signal{Name: "go"}) }, nil},
	} {
		storeRun(t, name, func(t *testing.T, store *memvault.Store) {
			v := open(store)
			var failures atomic.Int64
			p, err := fleet.NewPlacer(v, fleet.PlacerOptions{Observer: fleet.Observer{Failure: func(context.Context, fleet.FailureEvent) { failures.Add(1) }}})
			must(t, err)
			c, plan := place(t, p, create(t, v, 2).ID, 0)
			last, more := c.Signals()
			if last != 0 || c.Asked() || c.Work().Err() != nil {
				t.Errorf("something is asked of a new plan: %d, %t, %v", last, c.Asked(), context.Cause(c.Work()))
			}
			v.Fail("Roster", processtest.Unavailable)
			test.ask(t, open(store), plan.ID)
			time.Sleep(time.Minute)
			if failures.Load() < 10 || c.Work().Err() != nil {
				t.Errorf("in an outage: %d failures, %v", failures.Load(), c.Work().Err())
			}
			v.On(nil)
			time.Sleep(4 * time.Second) // it tries again
			if cause := context.Cause(c.Work()); !errors.Is(cause, test.want) {
				t.Errorf("the work ends with %v", cause)
			}
			if test.want == nil {
				<-more
				last, _ = c.Signals()
			}
			if c.Asked() != (test.want != fleet.ErrSuspended) || (last == 1) != (test.want == nil) {
				t.Errorf("asked: %t, %d signals", c.Asked(), last)
			}
			if _, err := c.Take(t.Context()); test.want == fleet.ErrSuspended && !errors.Is(err, fleet.ErrSuspended) {
				t.Errorf("it is taken again in a suspended vault: %v", err)
			}
		})
	}
}

// TestPlacerLooks counts what claims cost while nothing is asked of their plans.
func TestPlacerLooks(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := open(store)
		var looks, others atomic.Int64
		p := placer(t, hooked.Wrap(v, func(c *hooked.Call) error {
			if c.Op == "Roster" {
				looks.Add(1)
			} else {
				others.Add(1)
			}
			return c.Do()
		}))
		var all []*fleet.Claim
		for range 100 {
			c, _ := place(t, p, create(t, v, 1).ID, 0)
			all = append(all, c)
		}
		if looks.Swap(0) != 100 || others.Swap(0) != 200 {
			t.Error("a claim is not a look, a read and an update")
		}
		time.Sleep(time.Hour + time.Second)
		if got := looks.Swap(0); got != 360 || others.Load() != 0 {
			t.Errorf("%d looks in an hour, and %d other calls", got, others.Load())
		}
		for _, c := range all[1:] {
			c.Release()
			c.Release()
		}
		time.Sleep(time.Minute)
		if got := looks.Swap(0); got != 6 {
			t.Errorf("%d looks in a minute for the last claim", got)
		}
		all[0].Release()
		synctest.Wait()
		time.Sleep(time.Hour)
		if got := looks.Load(); got != 0 {
			t.Errorf("%d looks after the last claim", got)
		}
		if cause := context.Cause(all[0].Work()); !errors.Is(cause, fleet.ErrFenced) && !errors.Is(cause, fleet.ErrLeft) {
			t.Errorf("the work of a claim that is over: %v", cause)
		}
		fails(t, second(all[0].Take(t.Context())), fleet.ErrLeft, "a claim that is over takes")
	})
}

// TestHandOverOfExternalPlans gives plans of the queue to the fleet, which goes on with each when it should. The queue can't
// claim them any more.
func TestHandOverOfExternalPlans(t *testing.T) {
	for _, test := range []struct {
		name   string
		plan   making
		asleep bool
		epoch  int64 // after the handover
		after  time.Duration
		taken  int64 // the epoch in which a node has it
	}{
		{"running", ofTheQueue, false, 2, 0, 3},
		{"asleep", func(s scene) *workflow.Plan { return rests(s.t, s.p, time.Hour, 0) }, true, 1, time.Hour, 2},
		{"overdue", func(s scene) *workflow.Plan { return rests(s.t, s.p, 0, 0) }, true, 1, 0, 2},
		{"not begun", func(s scene) *workflow.Plan { return authored(s.t, s.p, 0) }, true, 0, 0, 1},
		{"not to begin yet", func(s scene) *workflow.Plan { return authored(s.t, s.p, time.Hour) }, true, 0, time.Hour, 1},
	} {
		storeRun(t, test.name, func(t *testing.T, store *memvault.Store) {
			v, n := start(t, store, fleet.Options{})
			found := plans(t.Context(), t, n)
			time.Sleep(time.Minute + time.Second)
			began := time.Now()
			plan := test.plan(scene{t: t, p: v})
			former := plantest.Clone(plan)
			time.Sleep(time.Minute)
			if _, err := fleet.HandOver(t.Context(), v, plan.ID, fleet.HandOverOptions{By: ana, TakeUnclaimed: true}); !errors.Is(err, fleet.ErrOwned) || !strings.Contains(err.Error(), "queue, an engine of another kind, places it") {
				t.Errorf("without External: %v", err)
			}
			h, err := fleet.HandOver(t.Context(), v, plan.ID, fleet.HandOverOptions{By: ana, External: true})
			must(t, err)
			if h.From != former.Owner || h.External != "queue" || h.Epoch != test.epoch || h.Asleep != test.asleep || h.Status != former.State.Status || len(h.Live) != 1 {
				t.Errorf("%+v", h)
			}
			if !test.asleep {
				refused(t, v, former)
			}
			taken := within(t, found, 2*time.Hour)
			if at := time.Since(began); taken.ID != plan.ID || taken.Epoch != test.taken || taken.Owner != n.ID() || taken.External.Name != "" || at < test.after || at > test.after+90*time.Second {
				t.Errorf("after %v a node has %+v", at, taken)
			}
			if _, _, err := claims(t, placer(t, v), plan.ID, fleet.ClaimOptions{External: queue, Epoch: taken.Epoch}); !errors.Is(err, fleet.ErrOwned) {
				t.Errorf("the queue claims it again: %v", err)
			}
			fails(t, second(fleet.HandOver(t.Context(), v, plan.ID, fleet.HandOverOptions{By: ana, External: true})), fleet.ErrOwned, "it is handed over twice")
		})
	}
}

// TestFencedOwnerOfASleeper: a plan was taken from an owner that lives, and sleeps by now, due or not. The former owner learns
// that it is fenced, and does not wake the plan for itself.
func TestFencedOwnerOfASleeper(t *testing.T) {
	onStores(t, []time.Duration{0, time.Hour}, func(t *testing.T, store *memvault.Store, d time.Duration) {
		v := open(store)
		former, first := placed(t, v)
		owner, plan := place(t, placer(t, v), first.ID, first.Epoch)
		must(t, owner.Sleep(t.Context(), plan, owner.Now().Add(d), 0))
		if _, err := former.Take(t.Context()); !errors.Is(err, fleet.ErrFenced) || !errors.Is(context.Cause(former.Work()), fleet.ErrFenced) {
			t.Errorf("asleep for %v: the former owner's Take returned %v, and its work ended with %v", d, err, context.Cause(former.Work()))
		}
		if now := read(t, v, plan.ID); !now.Asleep() || now.Epoch != plan.Epoch {
			t.Errorf("asleep for %v: it is stored as %+v", d, now)
		}
	})
}
