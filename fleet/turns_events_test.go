package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// queued stores three plans that wait for key a. A node has claimed the second one in vain.
func queued(t testing.TB, v storage.Vault, n *fleet.Node) (all []*workflow.Plan) {
	t.Helper()
	for _, name := range []string{"1", "2", "3"} {
		time.Sleep(time.Millisecond)
		all = append(all, keyed(t, v, name, a))
	}
	if err := n.Claim(t.Context(), all[1]); !errors.Is(err, fleet.ErrNoTurn) {
		t.Fatal(err)
	}
	return all
}

// wants fails the test unless these plans begin one after the other, and all turns have been given back two minutes after the last
// one began.
func (c *crew) wants(v storage.Vault, names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.awaits(name, 5*time.Minute)
	}
	time.Sleep(2 * time.Minute)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.order, names) {
		c.t.Errorf("they began in the order %v, want %v", c.order, names)
	}
	for k, err := range keysOf(c.t, v) {
		if err != nil || k.Holders != 0 {
			c.t.Errorf("%q has %d holders in the end: %v", k.Name, k.Holders, err)
		}
	}
}

// TestTurnsSuspended suspends a vault while plans have turns and wait for them: nothing begins until it is resumed. Then the plan
// that had the turn goes on first, with its turn, and the others follow in order.
func TestTurnsSuspended(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		_, m := start(t, store, fleet.Options{})
		holder := holds(t, p, n, a)
		waits := queued(t, p, n)
		found := []<-chan *workflow.Plan{plans(t.Context(), t, n), plans(t.Context(), t, m)}
		time.Sleep(5 * time.Minute)
		_, err := fleet.Suspend(t.Context(), p, ana, fleet.SuspendOptions{})
		must(t, err)
		time.Sleep(11 * time.Second)
		if work, _ := n.Work(holder.ID); !errors.Is(context.Cause(work), fleet.ErrSuspended) {
			t.Errorf("the work goes on: %v", context.Cause(work))
		}
		n.LetGo(holder.ID)
		for i, node := range []*fleet.Node{n, m} {
			for plan := range found[i] {
				t.Errorf("plan %s went on", plan.Name)
			}
			leave(t, node)
		}
		time.Sleep(time.Hour)
		if taken := holders(t, p, "key:a"); len(taken) != 1 || !taken[holder.ID] {
			t.Errorf("the turns have %v", taken)
		}
		for _, plan := range waits {
			if got := read(t, p, plan.ID); got.Owner != uuid.Nil {
				t.Errorf("plan %s has an owner", plan.Name)
			}
		}
		must(t, fleet.Resume(t.Context(), p, ana))
		c := newCrew(t)
		for range 2 {
			c.works(open(store), fleet.Options{})
		}
		c.wants(p, "holder", "1", "2", "3")
	})
}

// TestTurnsDrained drains the node that works on a plan with a turn, or on which a plan waits for one, while another node works: the
// plan that had the turn keeps it, and the others follow in order.
func TestTurnsDrained(t *testing.T) {
	for _, held := range []bool{true, false} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			q, m := start(t, store, fleet.Options{})
			owner := m
			if held {
				owner = n
			}
			holder := holds(t, p, owner, a)
			queued(t, p, n)
			found := plans(t.Context(), t, n)
			c := newCrew(t)
			c.serves(q, m)
			time.Sleep(5 * time.Minute)
			n.Drain()
			for plan := range found {
				t.Errorf("plan %s went on", plan.Name)
			}
			if held {
				n.LetGo(holder.ID)
				c.awaits("holder", time.Minute)
			}
			leave(t, n)
			want := []string{"1", "2", "3"}
			if held {
				want = append([]string{"holder"}, want...)
			} else {
				time.Sleep(5 * time.Minute)
				if len(c.order) > 0 {
					t.Errorf("%v began", c.order)
				}
				ends(t, q, m, holder)
			}
			c.wants(p, want...)
		})
	}
}

// TestTurnsRestored restores a plan that had a turn, in each of the states in which it may have been saved, while another plan has the
// turn: it waits for that one, and comes before younger ones.
func TestTurnsRestored(t *testing.T) {
	for name, change := range map[string]func(p *workflow.Plan){
		"running": func(*workflow.Plan) {},
		"asleep, with its turn": func(p *workflow.Plan) {
			p.Owner, p.WakeAt = uuid.Nil, time.Now()
		},
		"not started": func(p *workflow.Plan) {
			p.State.Status, p.State.Start, p.Owner, p.Epoch = workflow.NotStarted, time.Time{}, uuid.Nil, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(t *testing.T, store *memvault.Store) {
				p, n := start(t, store, fleet.Options{})
				restored := keyed(t, p, "restored", a)
				must(t, n.Claim(t.Context(), restored))
				saved := read(t, p, restored.ID)
				change(saved)
				ends(t, p, n, restored)
				must(t, p.Delete(t.Context(), restored.ID))
				leave(t, n)
				q, m := start(t, store, fleet.Options{})
				holder := holds(t, q, m, a)
				c := newCrew(t)
				c.works(open(store), fleet.Options{})
				time.Sleep(5 * time.Minute)
				restorer, _ := storage.As[storage.Restorer](store.Open(plantest.Register(), memvault.Options{}))
				must(t, restorer.Restore(t.Context(), saved))
				keyed(t, p, "younger", a)
				time.Sleep(2 * time.Hour) // a search of all days finds it
				if taken := holders(t, q, "key:a"); len(taken) != 1 || !taken[holder.ID] || len(c.order) > 0 {
					t.Errorf("the turns have %v, and %v began", taken, c.order)
				}
				ends(t, q, m, holder)
				c.wants(q, "restored", "younger")
			})
		})
	}
}

// TestTurnsOfAnExpiredDay: a plan ended and did not give its turn back, and its day expires. Only a listing and a read which both lack
// the plan take its turn away. Then the next plan goes on.
func TestTurnsOfAnExpiredDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := azure(t, emulator.New(emulator.Options{NoLog: true}))
		n := join(t, v, fleet.Options{})
		holder := holds(t, v, n, a)
		must(t, finish(t.Context(), v, holder))
		leave(t, n)
		time.Sleep(3 * 24 * time.Hour)
		report, err := v.Admin().Expire(t.Context(), azblob.ExpireOptions{OlderThanDays: 2, By: ana})
		if err != nil || report.Dropped() != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		waits := keyed(t, v, "waits", a)
		blind := hooked.Wrap(v, hooked.On("Read", func(c *hooked.Call) error { return processtest.Unavailable(c.Op) }))
		no, ok := errors.AsType[*fleet.NoTurnError](fleet.LookForTurns(t.Context(), blind, waits))
		if !ok || !errors.Is(no.Err, storage.ErrUnavailable) {
			t.Errorf("a listing alone took its turn away: %+v", no)
		}
		if taken := holders(t, v.Control(), "key:a"); !taken[holder.ID] {
			t.Errorf("the turns have %v", taken)
		}
		c := newCrew(t)
		c.works(v, fleet.Options{})
		c.wants(v, "waits")
	})
}
