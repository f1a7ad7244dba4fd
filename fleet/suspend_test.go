package fleet_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

var closing = workflow.Attribution{By: "ana@ops", Why: "it moves to the account next"}

// TestSuspend suspends a store while a node works. The node releases its plan, and nobody joins until the store is resumed.
func TestSuspend(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{Name: "host-3"})
		v := open(store)
		plan := claimed(t, v, n, 2)
		work, done := n.Work(plan.ID)
		c, err := fleet.Suspend(t.Context(), v, closing, fleet.SuspendOptions{})
		must(t, err)
		if !c.At.Equal(time.Now()) {
			t.Errorf("suspended at %v", c.At)
		}
		if again, err := fleet.Suspend(t.Context(), v, workflow.Attribution{By: "bob"}, fleet.SuspendOptions{}); err != nil || again.By != c.By {
			t.Errorf("suspended again by %+v, %v", again, err)
		}
		time.Sleep(11 * time.Second)
		if cause := context.Cause(work); !errors.Is(cause, fleet.ErrSuspended) || !n.Suspended() {
			t.Fatalf("the work goes on: %v", cause)
		}
		done()
		for next := range n.Plans(t.Context()) {
			t.Errorf("it yields %+v", next)
		}
		fails(t, n.Claim(t.Context(), create(t, v, 1)), fleet.ErrSuspended, "it claims")
		leave(t, n)
		if _, err := fleet.Join(t.Context(), p, fleet.Options{}); !errors.Is(err, fleet.ErrSuspended) || !strings.Contains(err.Error(), "ana@ops") || !strings.Contains(err.Error(), "fleet.Resume") || strings.Contains(err.Error(), "\n") {
			t.Errorf("it joins: %v", err)
		}
		if r, err := v.Roster(t.Context()); err != nil || len(r.Members) != 1 || r.Members[0].Phase != storage.PhaseLeft {
			t.Errorf("%+v, %v", r.Members, err)
		}
		if i, err := fleet.Inspect(t.Context(), v, fleet.InspectOptions{}); err != nil || i.Suspended == nil || i.Suspended.By != closing.By {
			t.Errorf("%+v, %v", i, err)
		}
		must(t, fleet.Resume(t.Context(), v, ana))
		must(t, fleet.Resume(t.Context(), v, ana))
		if i, err := fleet.Inspect(t.Context(), v, fleet.InspectOptions{}); err != nil || i.Suspended != nil {
			t.Errorf("%+v, %v", i, err)
		}
		join(t, p, fleet.Options{})
	})
}

// TestClear suspends a store with a node that leaves, one that is frozen, and one that does not listen. When Clear returns,
// none of them gets a write through or takes a plan, whatever it had begun.
func TestClear(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := open(store)
		_, leaves := start(t, store, fleet.Options{})
		late, frozen := start(t, store, fleet.Options{Name: "frozen"})
		stubborn, busy := start(t, store, fleet.Options{Name: "busy", TTL: time.Minute})
		own := claimed(t, v, frozen, 2)
		other := claimed(t, v, busy, 2)
		waiting, alone := create(t, v, 1), ownerless(t, v, 1)
		seen := read(t, v, waiting.ID)
		late.Freeze()
		stubborn.OnOp("Roster", func(context.Context, processtest.Call, func() error) error { return processtest.Unavailable("Roster") })
		outcomes := make(chan error, 2)
		go func() { outcomes <- moves(t.Context(), late, actions(own)[0], workflow.Running) }()
		go func() { outcomes <- frozen.Claim(t.Context(), seen) }()
		_, err := fleet.Suspend(t.Context(), v, closing, fleet.SuspendOptions{})
		must(t, err)
		time.AfterFunc(15*time.Second, func() { leave(t, leaves) })
		began := time.Now()
		unclaimed, err := fleet.Clear(t.Context(), v, fleet.ClearOptions{By: ana})
		if took := time.Since(began); err != nil || unclaimed != 1 || took < 3*time.Minute || took > 5*time.Minute {
			t.Errorf("%d unclaimed plans, %v, after %v", unclaimed, err, took)
		}
		late.Thaw()
		for range 2 {
			if err := <-outcomes; !errors.Is(err, storage.ErrConflict) && !errors.Is(err, fleet.ErrSuspended) && !errors.Is(err, fleet.ErrFenced) {
				t.Errorf("a late call returns %v", err)
			}
		}
		if _, err := frozen.Take(t.Context(), own.ID); err == nil {
			t.Error("it takes its plan again")
		}
		fails(t, moves(t.Context(), v, actions(other)[0], workflow.Running), storage.ErrConflict, "a node that was evicted writes")
		for _, p := range []*workflow.Plan{own, other} {
			if got := read(t, v, p.ID); got.Epoch != 2 {
				t.Errorf("epoch %d", got.Epoch)
			}
		}
		if got := read(t, v, alone.ID); got.Epoch != 0 {
			t.Errorf("epoch %d", got.Epoch)
		}
		began = time.Now()
		if _, err := fleet.Clear(t.Context(), v, fleet.ClearOptions{By: ana}); err != nil || time.Since(began) > time.Minute {
			t.Errorf("again: %v, after %v", err, time.Since(began))
		}
	})
}

// TestClearExternal suspends a store in which engines of another kind own two plans: one sees it, and one is frozen. What the
// frozen one does later is refused, and both plans are still theirs.
func TestClearExternal(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v, late := open(store), open(store)
		sees, seen := placed(t, v)
		frozen, own := placed(t, late)
		sleeps := rests(t, v, time.Hour, 0)
		late.Freeze()
		must(t, second(fleet.Suspend(t.Context(), v, closing, fleet.SuspendOptions{})))
		began := time.Now()
		unclaimed, err := fleet.Clear(t.Context(), v, fleet.ClearOptions{By: ana})
		if took := time.Since(began); err != nil || unclaimed != 0 || took < fleet.DefaultTTL || took > time.Minute {
			t.Errorf("%d unclaimed plans, %v, after %v", unclaimed, err, took)
		}
		if cause := context.Cause(sees.Work()); !errors.Is(cause, fleet.ErrSuspended) {
			t.Errorf("the work goes on: %v", cause)
		}
		late.Thaw()
		for c, plan := range map[*fleet.Claim]*workflow.Plan{sees: seen, frozen: own} {
			refused(t, v, plan)
			fails(t, second(c.Take(t.Context())), fleet.ErrSuspended, "its owner takes it again")
			if now := read(t, v, plan.ID); now.Owner != plan.Owner || now.Epoch != plan.Epoch || now.External != queue {
				t.Errorf("it is now %+v", now)
			}
		}
		if now := read(t, v, sleeps.ID); !now.Asleep() || now.External != queue {
			t.Errorf("it no longer sleeps: %+v", now)
		}
		began = time.Now()
		if _, err := fleet.Clear(t.Context(), v, fleet.ClearOptions{By: ana}); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("again: %v, after %v", err, time.Since(began))
		}
	})
}

// TestSleepingNode lets a node sleep for longer than its TTL. It looks at the members before it claims.
func TestSleepingNode(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := create(t, open(store), 1)
		p.OnOp("Roster", func(context.Context, processtest.Call, func() error) error { return processtest.Unavailable("Roster") })
		time.Sleep(31 * time.Second)
		fails(t, n.Claim(t.Context(), plan), storage.ErrUnavailable, "it claims without a look")
		p.On(nil)
		must(t, n.Claim(t.Context(), plan))
	})
}

// TestClearDies kills Clear at each of its calls, and runs it again.
func TestClearDies(t *testing.T) {
	for n := 1; n < 47; n++ {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			v := open(store)
			_, busy := start(t, store, fleet.Options{})
			plan, waiting := claimed(t, v, busy, 2), create(t, v, 1)
			stale := read(t, v, plan.ID)
			_, err := fleet.Suspend(t.Context(), v, closing, fleet.SuspendOptions{})
			must(t, err)
			p := open(store)
			calls := 0
			p.On(func(_ context.Context, c processtest.Call, do func() error) error {
				if calls++; calls == n {
					_ = do()
				}
				if calls >= n {
					return processtest.Unavailable(c.Op)
				}
				return do()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			_, err = fleet.Clear(ctx, p, fleet.ClearOptions{By: ana, Patience: 20 * time.Second})
			if calls < n && err != nil {
				t.Error(err)
			}
			unclaimed, err := fleet.Clear(t.Context(), v, fleet.ClearOptions{By: ana, Patience: 20 * time.Second})
			if err != nil || unclaimed != 0 {
				t.Fatalf("%d: %d unclaimed, %v", n, unclaimed, err)
			}
			fails(t, moves(t.Context(), v, actions(stale)[0], workflow.Running), storage.ErrConflict, "%d: a former owner writes", n)
			stale = waiting
			stale.State.Status = workflow.Running
			fails(t, v.UpdatePlan(t.Context(), stale), storage.ErrConflict, "%d: a late claim", n)
			r, err := v.Roster(t.Context())
			must(t, err)
			for _, m := range r.Members {
				if m.Phase != storage.PhaseLeft {
					t.Errorf("%d: member %+v", n, m)
				}
			}
		})
	}
}

// TestShortRosters suspends a store whose listing of members and notes is cut short once. No node joins, and Clear returns
// when none is left.
func TestShortRosters(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := open(store)
		start(t, store, fleet.Options{})
		_, err := fleet.Suspend(t.Context(), v, closing, fleet.SuspendOptions{})
		must(t, err)
		lies := 1
		liar := hooked.Wrap(v, hooked.On("Roster", func(c *hooked.Call) error {
			err := c.Do()
			if lies--; lies >= 0 {
				c.Roster = storage.Roster{Now: c.Roster.Now}
			}
			return err
		}))
		fails(t, second(fleet.Join(t.Context(), liar, fleet.Options{})), fleet.ErrSuspended, "a node joins")
		lies = 1
		_, err = fleet.Clear(t.Context(), liar, fleet.ClearOptions{By: ana})
		must(t, err)
		if r, err := v.Roster(t.Context()); err != nil || len(r.Members) != 1 || r.Members[0].Phase != storage.PhaseLeft {
			t.Errorf("it is cleared with %+v, %v", r.Members, err)
		}
	})
}
