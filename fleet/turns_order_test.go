package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// forQueue stores a plan with a turn to take that a queue places.
func forQueue(t testing.TB, v storage.Vault, name string, keys ...workflow.Key) *workflow.Plan {
	t.Helper()
	defer time.Sleep(time.Millisecond)
	return keyedBy(t, v, queue, name, keys...)
}

// places lets a queue call for a plan every ten seconds until it has its turn and has ended.
func (c *crew) places(v storage.Vault, plan *workflow.Plan) {
	claim, err := placer(c.t, v).Claim(plan.ID, fleet.ClaimOptions{External: queue})
	must(c.t, err)
	defer claim.Release()
	for {
		plan, err := claim.Take(c.ctx)
		if err == nil {
			c.counts(plan, 1)
			time.Sleep(time.Minute)
			c.counts(plan, -1)
			if err = finish(c.ctx, v, plan); err == nil {
				claim.GiveTurns(c.ctx, plan)
				return
			}
		}
		if c.ctx.Err() != nil || !errors.Is(err, fleet.ErrNoTurn) {
			if c.ctx.Err() == nil {
				c.t.Errorf("place plan %s: %v", plan.Name, err)
			}
			return
		}
		time.Sleep(10 * time.Second)
	}
}

// TestTurnsOfOthersInOrder: a plan waits beside a steady stream of younger ones that others begin: one of a queue beside those of
// a node, and one of a node beside those of a queue. One of the younger ones overtakes it.
func TestTurnsOfOthersInOrder(t *testing.T) {
	node := func(c *crew, store *memvault.Store, _ ...*workflow.Plan) { c.works(open(store), fleet.Options{}) }
	worker := func(c *crew, store *memvault.Store, plans ...*workflow.Plan) {
		c.busy.Go(func() {
			for _, plan := range plans {
				c.places(open(store), plan)
			}
		})
	}
	type engine struct {
		stores func(t testing.TB, v storage.Vault, name string, keys ...workflow.Key) *workflow.Plan
		begins func(c *crew, store *memvault.Store, plans ...*workflow.Plan)
	}
	aNode, aQueue := engine{keyed, node}, engine{forQueue, worker}
	for name, test := range map[string]struct{ older, younger engine }{
		"a queue's beside a node's": {aQueue, aNode}, "a node's beside a queue's": {aNode, aQueue}, "a queue's beside its others": {aQueue, aQueue},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(t *testing.T, store *memvault.Store) {
				p := open(store)
				claim, holder := place(t, placer(t, p), forQueue(t, p, "holder", a).ID, 0)
				older := test.older.stores(t, p, "older", a)
				time.Sleep(time.Millisecond)
				var younger []*workflow.Plan
				for i := range 12 {
					younger = append(younger, test.younger.stores(t, p, fmt.Sprint(i), a))
					time.Sleep(time.Millisecond)
				}
				c := newCrew(t)
				test.older.begins(c, store, older)
				time.Sleep(4 * time.Second)
				test.younger.begins(c, store, younger...)
				time.Sleep(time.Minute - time.Second)
				must(t, finish(t.Context(), p, holder))
				claim.GiveTurns(t.Context(), holder) // a second before a look for the younger ones, and seven before one for the older
				c.awaits("older", 30*time.Minute)
				if got := len(c.order) - 1; got != 1 {
					t.Errorf("%d plans overtook it: %v", got, c.order)
				}
			})
		})
	}
}

// TestOvertakenIsNoted: a look notes that a plan waits for its turn, and until when, if a younger plan has the turn; and not if the
// plan lacks another turn as well, has ended meanwhile, or can't be the next.
func TestOvertakenIsNoted(t *testing.T) {
	type stage struct {
		v           storage.Vault
		n           *fleet.Node
		first, next *workflow.Plan // with the same keys; the younger one has the turn
	}
	pause := func(t *testing.T, s stage) {
		must(t, fleet.PauseKey(t.Context(), s.v, "a", time.Now().Add(time.Hour), ana))
	}
	look := func(t *testing.T, s stage, plan *workflow.Plan) {
		if err := fleet.LookForTurns(t.Context(), s.v, plan); !errors.Is(err, fleet.ErrNoTurn) {
			t.Errorf("a look returned %v", err)
		}
	}
	for name, test := range map[string]struct {
		happens func(t *testing.T, s stage)
		until   time.Duration // of the only note; 0 is none
	}{
		"it waits":         {func(*testing.T, stage) {}, 40 * time.Second},
		"it was noted":     {func(t *testing.T, s stage) { look(t, s, s.next); time.Sleep(20 * time.Second) }, 20 * time.Second},
		"that ends soon":   {func(t *testing.T, s stage) { look(t, s, s.next); time.Sleep(30 * time.Second) }, 40 * time.Second},
		"the key pauses":   {pause, time.Hour + 40*time.Second},
		"it lacks another": {func(t *testing.T, s stage) { holds(t, s.v, s.n, b) }, 0},
		"it has ended":     {func(t *testing.T, s stage) { must(t, s.v.Delete(t.Context(), s.next.ID)) }, 0},
		"an older one is noted": {func(t *testing.T, s stage) {
			look(t, s, s.first)
			must(t, s.v.Delete(t.Context(), s.first.ID))
		}, 40 * time.Second},
		"the pause was lifted": {func(t *testing.T, s stage) {
			pause(t, s)
			look(t, s, s.next)
			must(t, fleet.SetKey(t.Context(), s.v, "a", ana, func(fleet.KeySettings) fleet.KeySettings { return fleet.KeySettings{} }))
		}, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(t *testing.T, store *memvault.Store) {
				p, n := start(t, store, fleet.Options{})
				first := keyed(t, p, "first", a, b)
				time.Sleep(time.Millisecond)
				s := stage{p, n, first, keyed(t, p, "next", a, b)}
				time.Sleep(time.Millisecond)
				holds(t, p, n, a)
				test.happens(t, s)
				look(t, s, s.next)
				k, err := p.FindKey(t.Context(), "key:a")
				must(t, err)
				var left time.Duration
				for _, w := range k.Waiting {
					left = w.Until.Sub(k.Now)
				}
				if len(k.Waiting) > 1 || left != test.until {
					t.Errorf("noted are %+v, the last one for %v", k.Waiting, left)
				}
			})
		})
	}
}

// TestNotesEnd: a queue dies whose plan is noted. Younger plans leave it the turn, and take it when the note is over.
func TestNotesEnd(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		older := forQueue(t, p, "older", a)
		holder := holds(t, p, n, a)
		younger := keyed(t, p, "younger", a)
		if _, _, err := claims(t, placer(t, p), older.ID, fleet.ClaimOptions{External: queue}); !errors.Is(err, fleet.ErrNoTurn) {
			t.Fatal(err)
		}
		ends(t, p, n, holder)
		no, _ := errors.AsType[*fleet.NoTurnError](fleet.LookForTurns(t.Context(), p, younger))
		if no == nil || no.Holder != older.ID {
			t.Errorf("a look says %v", no)
		}
		c := newCrew(t)
		c.serves(p, n)
		if began := c.awaits("younger", time.Hour); began < 40*time.Second || began > 50*time.Second {
			t.Errorf("the younger one began after %v", began)
		}
	})
}

// TestOvertakenByMany: a plan that lets one work at a time waits beside a steady stream of younger ones that let three. No more of
// them begin.
func TestOvertakenByMany(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, three := open(store), workflow.Key{Name: "a", Limit: 3}
		c := newCrew(t)
		older := forQueue(t, p, "older", a)
		c.works(open(store), fleet.Options{})
		for i := range 20 {
			keyed(t, p, fmt.Sprint(i), three)
			time.Sleep(7 * time.Second)
			if i == 5 {
				c.busy.Go(func() { c.places(open(store), older) })
			}
		}
		c.awaits("older", time.Minute)
	})
}

// TestCostOfQueuedTurns bounds the writes of a key's record for each turn beside many plans of a queue that wait for it.
func TestCostOfQueuedTurns(t *testing.T) {
	const minutes = 6
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v, puts := open(store), atomic.Int64{}
		v.OnOp("PutKey", func(_ context.Context, _ processtest.Call, do func() error) error {
			puts.Add(1)
			return do()
		})
		c := newCrew(t)
		for i := range efforttest.Pick(20, 100, 1000) {
			plan := forQueue(t, v, fmt.Sprint(i), a)
			c.busy.Go(func() {
				time.Sleep(time.Duration(i*7919%1000) * 10 * time.Millisecond) // the looks are in no order
				c.places(v, plan)
			})
		}
		time.Sleep(minutes * time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		each := float64(puts.Load()) / float64(len(c.order))
		t.Logf("%.1f writes for each turn, in the order %v", each, c.order)
		if each > 12 || len(c.order) < minutes-2 {
			t.Errorf("%d turns in %d minutes, %.1f writes for each", len(c.order), minutes, each)
		}
	})
}
