package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// holders returns what a record says of plans.
func holders(t testing.TB, v storage.Control, record string) map[uuid.UUID]bool {
	t.Helper()
	k, err := v.FindKey(t.Context(), record)
	must(t, err)
	taken := map[uuid.UUID]bool{}
	for _, h := range k.Holders {
		taken[h.Plan] = h.Taken
	}
	return taken
}

// taking stores a plan and takes its turns, as an owner does.
func taking(t testing.TB, v storage.Vault, keys ...workflow.Key) error {
	t.Helper()
	return fleet.TakeTurns(t.Context(), v, keyed(t, v, "takes", keys...))
}

// waitsFor fails the test unless an error says that a plan waits for a key.
func waitsFor(t testing.TB, err error, key string) *fleet.NoTurnError {
	t.Helper()
	no, ok := errors.AsType[*fleet.NoTurnError](err)
	if !ok || no.Name != key || !errors.Is(err, fleet.ErrNoTurn) || no.Err != nil {
		t.Fatalf("it does not wait for %q: %v", key, err)
	}
	return no
}

// TestTurnIsWritten: somebody removes a plan from a record because it sleeps without turns, and is slow. Meanwhile the plan's next
// owner reads that the plan is still there: only its write refuses the removal.
func TestTurnIsWritten(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		p.OnOp("FindKey", func(_ context.Context, c processtest.Call, do func() error) error { return do() })
		plan := plantest.Sized(1, 1, 1)
		plan.Keys, plan.KeepTurn = []workflow.Key{a}, workflow.KeepWhileAwake
		must(t, p.Create(t.Context(), plan))
		must(t, n.Claim(t.Context(), plan))
		p.OnOp("PutKey", func(_ context.Context, c processtest.Call, _ func() error) error {
			return processtest.Unavailable(c.Op)
		})
		must(t, n.Sleep(t.Context(), plan, n.Now(), 0)) // and gives nothing back
		p.On(nil)
		if taken := holders(t, p, "key:a"); !taken[plan.ID] {
			t.Fatalf("the record has %v", taken)
		}
		q := open(store)
		q.OnOp("PutKey", func(_ context.Context, _ processtest.Call, do func() error) error {
			time.Sleep(time.Minute)
			return do()
		})
		slow := make(chan error, 1)
		go func() { slow <- taking(t, q, a) }()
		time.Sleep(time.Second)
		if _, err := n.Take(t.Context(), plan.ID); err != nil {
			t.Fatal(err)
		}
		waitsFor(t, <-slow, "a")
	})
}

// TestTurnsOfNewKey claims three plans with a new key at once, and of each its owner's search takes long.
func TestTurnsOfNewKey(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		c := newCrew(t)
		for _, name := range []string{"1", "2", "3"} {
			p := open(store)
			p.OnOp("Search", func(_ context.Context, _ processtest.Call, do func() error) error {
				time.Sleep(time.Second)
				return do()
			})
			plan := keyed(t, p, name, a)
			n := join(t, p, fleet.Options{})
			c.busy.Go(func() {
				if n.Claim(c.ctx, plan) == nil {
					c.busy.Go(func() { c.work(p, n, plan) })
				}
				c.serves(p, n)
			})
			time.Sleep(time.Millisecond)
		}
		for _, name := range []string{"1", "2", "3"} {
			c.awaits(name, 10*time.Minute)
		}
	})
}

// TestLostRecord removes a record. The next taker finds who works and who sleeps with a turn; the next owner takes the turn anew.
func TestLostRecord(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		q := open(store)
		lose := func() {
			t.Helper()
			k, err := q.FindKey(t.Context(), "key:a")
			must(t, err)
			must(t, q.RemoveKey(t.Context(), k.Name, k.Version))
		}
		holder := holds(t, p, n, a)
		lose()
		waitsFor(t, taking(t, q, workflow.Key{Name: "a", Limit: 3}), "a") // the holder names 1
		must(t, fleet.RepairKey(t.Context(), q, "a", ana, fleet.KeySettings{}))
		waitsFor(t, taking(t, q, a), "a")
		must(t, n.Sleep(t.Context(), holder, n.Now().Add(time.Minute), 0))
		lose()
		waitsFor(t, taking(t, q, a), "a")
		time.Sleep(2 * time.Minute)
		lose()
		if _, err := n.Take(t.Context(), holder.ID); err != nil || !holders(t, q, "key:a")[holder.ID] {
			t.Errorf("its next owner has no turn: %v", err)
		}
	})
}

// TestRecordSaidToBeAbsent: for long, the store says that a record is not there, and refuses to create it because it is.
func TestRecordSaidToBeAbsent(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		plan := plantest.Sized(1, 1, 1)
		plan.ID, plan.Keys, plan.Unique = workflow.NewV7(), []workflow.Key{a}, "u"
		for _, absent := range []bool{false, true} {
			p := open(store)
			if absent {
				p.OnOp("FindKey", func(context.Context, processtest.Call, func() error) error {
					return &storage.Error{Err: storage.ErrNotFound}
				})
			}
			_, unique := fleet.ReserveUnique(t.Context(), p, plan)
			for what, err := range map[string]error{
				"TakeTurns": fleet.TakeTurns(t.Context(), p, plan), "ReserveUnique": unique,
				"SetKey": fleet.SetKey(t.Context(), p, "a", ana, func(k fleet.KeySettings) fleet.KeySettings { return k }),
			} {
				if errors.Is(err, storage.ErrUnavailable) != absent || !absent && err != nil {
					t.Errorf("%s returned %v", what, err)
				}
			}
		}
	})
}

// TestAllTurnsOrNone: a plan gets one turn and not the other. It is stored as asleep, and gives back what it has then.
func TestAllTurnsOrNone(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		holder := holds(t, p, n, b)
		plan := keyed(t, p, "both", b, a)
		p.OnOp("UpdatePlan", func(_ context.Context, c processtest.Call, do func() error) error {
			if !c.Object.(*workflow.Plan).WakeAt.IsZero() && !holders(t, open(store), "key:a")[plan.ID] {
				t.Error("it gave back before it slept")
			}
			return do()
		})
		waitsFor(t, n.Claim(t.Context(), plan), "b")
		got := read(t, p, plan.ID)
		if got.WaitsFor != "b" || !got.Asleep() || len(holders(t, p, "key:a")) > 0 || len(holders(t, p, "key:b")) != 1 {
			t.Errorf("it waits for %q, and a has %v", got.WaitsFor, holders(t, p, "key:a"))
		}
		ends(t, p, n, holder)
		if taken := holders(t, p, "key:b"); len(taken) > 0 {
			t.Errorf("the end left %v", taken)
		}
		p.Fail("FindKey", processtest.Unavailable)
		if err := fleet.GiveTurns(t.Context(), p, plan); !errors.Is(err, storage.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("GiveTurns returned %v", err)
		}
	})
}

// TestTurnEvidence: a holder that is not in a listing, or that can't be found by itself, stays. One that is gone goes, and so does
// one that is final, or has not started since it was restored.
func TestTurnEvidence(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		holder := holds(t, p, n, a)
		for op, hide := range map[string]func(c *hooked.Call) error{
			"Search": func(c *hooked.Call) error {
				err := c.Do()
				if len(c.Filters.ByIDs) > 0 {
					c.Listing = func(func(storage.Stream[storage.ListResult]) bool) {}
				}
				return err
			},
			"Read": func(c *hooked.Call) error { return &storage.Error{Op: c.Op, Plan: c.ID, Err: storage.ErrNotFound} },
		} {
			v := hooked.Wrap(store.Open(plantest.Register(), memvault.Options{}), hooked.On(op, hide))
			waitsFor(t, taking(t, v, a), "a")
			must(t, fleet.GiveTurns(t.Context(), v, holder)) // not even the owner by mistake
		}
		must(t, p.Delete(t.Context(), holder.ID))
		must(t, taking(t, p, a))
	})
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		holder := holds(t, p, n, a)
		before := read(t, p, holder.ID)
		p.OnOp("PutKey", func(_ context.Context, c processtest.Call, _ func() error) error {
			return processtest.Unavailable(c.Op)
		})
		ends(t, p, n, holder)
		p.On(nil)
		if len(holders(t, p, "key:a")) != 1 {
			t.Fatal("it was given back")
		}
		must(t, p.Delete(t.Context(), holder.ID))
		restorer, _ := storage.As[storage.Restorer](store.Open(plantest.Register(), memvault.Options{}))
		must(t, restorer.Restore(t.Context(), before)) // as it was: Running, of an owner that is gone
		waitsFor(t, taking(t, p, a), "a")
		must(t, p.Delete(t.Context(), holder.ID))
		before.State.Status, before.State.Start, before.Owner, before.Epoch = workflow.NotStarted, time.Time{}, uuid.Nil, 0
		must(t, restorer.Restore(t.Context(), before))
		must(t, taking(t, p, a))
	})
}

// TestLimits changes the limit of a key below the holders and above them. The smallest of all limits holds, and who has a turn keeps
// it, also through a pause.
func TestLimits(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		limit := func(l int, until time.Time) {
			t.Helper()
			must(t, fleet.SetKey(t.Context(), p, "a", ana, func(fleet.KeySettings) fleet.KeySettings { return fleet.KeySettings{Limit: l, PausedUntil: until} }))
		}
		limited := func(l int, key workflow.Key) {
			t.Helper()
			if no := waitsFor(t, taking(t, p, key), "a"); no.Limit != l {
				t.Errorf("the limit is %d, want %d", no.Limit, l)
			}
		}
		three := workflow.Key{Name: "a", Limit: 3}
		var plans []*workflow.Plan
		for range 3 {
			plans = append(plans, holds(t, p, n, three))
		}
		limit(1, time.Now().Add(time.Hour))
		for _, plan := range plans {
			must(t, fleet.TakeTurns(t.Context(), p, plan))
		}
		limit(2, time.Time{})
		ends(t, p, n, plans[0])
		limited(2, three)
		ends(t, p, n, plans[1])
		limited(1, a) // it names 1 itself
		holds(t, p, n, workflow.Key{Name: "a", Limit: 2})
		limit(0, time.Time{})
		limited(2, three) // one of the holders names 2
		limit(1, time.Time{})
		limited(1, three)
	})
}

// TestPauseByTheStoresClock has a computer whose clock is an hour ahead of the store's. It says who waits as any other does.
func TestPauseByTheStoresClock(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := hooked.Wrap(store.Open(plantest.Register(), memvault.Options{}), func(c *hooked.Call) error {
			err := c.Do()
			c.Key.Now, c.Roster.Now = c.Key.Now.Add(-time.Hour), c.Roster.Now.Add(-time.Hour)
			return err
		})
		until := time.Now().Add(-time.Minute)
		must(t, fleet.PauseKey(t.Context(), v, "a", until, ana))
		must(t, fleet.PauseKey(t.Context(), v, "a", until.Add(-time.Minute), ana)) // an earlier one changes nothing
		if no := waitsFor(t, taking(t, v, a), "a"); !no.PausedUntil.Equal(until) {
			t.Errorf("it is paused until %v", no.PausedUntil)
		}
		plan := plantest.Sized(1, 1, 1)
		plan.Keys, plan.Deadline = []workflow.Key{a, b}, time.Now().Add(-30*time.Minute)
		must(t, v.Create(t.Context(), plan))
		all, err := fleet.Keys(t.Context(), v)
		one, _, errOne := fleet.KeyHolders(t.Context(), v, "a", false)
		must(t, errors.Join(err, errOne))
		if k, _, err := fleet.KeyHolders(t.Context(), v, "b", false); err != nil || k.Waiting != 1 { // it has no record
			t.Errorf("it is %+v, %v", k, err)
		}
		for _, k := range []fleet.KeyState{all[0], one} {
			if k.Plans != 2 || k.Waiting != 2 || !k.PausedUntil.Equal(until) {
				t.Errorf("it is %+v", k)
			}
		}
		for range 2 { // the first look leaves nobody among the holders
			waitsFor(t, fleet.LookForTurns(t.Context(), v, keyed(t, v, "looks", a)), "a")
		}
		time.Sleep(time.Hour)
		must(t, taking(t, v, a))
		if all, err = fleet.Keys(t.Context(), v); err != nil || !all[0].PausedUntil.IsZero() {
			t.Errorf("after the pause, it is %+v, %v", all[0], err)
		}
	})
}

// TestHostileKeys has names that differ in little, or mean something elsewhere: each is a key of its own, in all vaults.
func TestHostileKeys(t *testing.T) {
	names := []string{
		"a", "A", "é", "e\u0301", "ﬁ", "fi", "..", ".", "/", "a/", "a//b", "a/b", "a%2Fb", "a%2fb", "%", "%25", "a b", " ", "a ", "?x=y&z", "#", `\`,
		"key:a", "unique:a", "日本語", "\u202e", "\u200b", "\ufeff", strings.Repeat("k", 128), strings.Repeat("k", 127) + "K", strings.Repeat("é", 64), strings.Repeat("/", 128), "\xf4\x8f\xbf\xbf",
	}
	for store, v := range map[string]storage.Vault{
		"memory": memvault.New(plantest.Register(), memvault.Options{}),
		"azure":  func() storage.Vault { v, _ := azure(t, emulator.New(emulator.Options{})); return v }(),
	} {
		t.Run(store, func(t *testing.T) {
			for _, name := range names {
				if err := taking(t, v, workflow.Key{Name: name}); err != nil {
					t.Errorf("%q: %v", name, err)
				}
			}
			listed := map[string]bool{}
			for k, err := range keysOf(t, v) {
				must(t, err)
				name, unique := fleet.KeyOf(k.Name)
				listed[name] = !unique
			}
			for _, name := range names {
				if !listed[name] {
					t.Errorf("%q is not listed", name)
				}
				must(t, fleet.PauseKey(t.Context(), v, name, time.Now().Add(time.Hour), ana))
			}
			for _, keys := range [][]workflow.Key{{{Name: ""}}, {{Name: strings.Repeat("k", 129)}}, {{Name: "a\nb"}}, {{Name: "\xff"}}, {a, a}, {{Name: "a", Limit: 2}, a}, {{Name: "a", Limit: -1}}, {{Name: "a", Limit: 10_001}}, make([]workflow.Key, 9)} {
				plan := plantest.Sized(1, 1, 1)
				plan.Keys = keys
				if err := v.Create(t.Context(), plan); !errors.Is(err, storage.ErrInvalid) {
					t.Errorf("a plan with keys %+v was created: %v", keys, err)
				}
				if len(keys) == 1 && keys[0].Limit == 0 {
					if err := fleet.PauseKey(t.Context(), v, keys[0].Name, time.Now(), ana); !errors.Is(err, storage.ErrInvalid) {
						t.Errorf("key %q was paused: %v", keys[0].Name, err)
					}
				}
			}
		})
	}
}

// TestUniqueAtOnce submits two plans with a Unique at once: one of the processes wins, whatever becomes of the answers.
func TestUniqueAtOnce(t *testing.T) {
	for _, lost := range []bool{false, true} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			var all sync.WaitGroup
			var ids, winners []uuid.UUID
			var mu sync.Mutex
			for range 8 {
				p, asked := open(store), false
				p.OnOp("PutKey", func(_ context.Context, c processtest.Call, do func() error) error {
					time.Sleep(time.Second) // all have read
					if err := do(); err != nil || !lost || asked {
						return err
					}
					asked = true
					return processtest.Unknown(c.Op)
				})
				plan := plantest.Sized(1, 1, 1)
				plan.ID, plan.Unique = workflow.NewV7(), "u"
				ids = append(ids, plan.ID)
				all.Go(func() {
					holder, err := fleet.ReserveUnique(t.Context(), p, plan)
					mu.Lock()
					defer mu.Unlock()
					if holder == uuid.Nil {
						holder = plan.ID
					}
					if err != nil && !errors.Is(err, storage.ErrExists) {
						t.Error(err)
					}
					winners = append(winners, holder)
				})
			}
			all.Wait()
			if len(slices.Compact(winners)) != 1 || !slices.Contains(ids, winners[0]) {
				t.Errorf("they say that %v have it", winners)
			}
		})
	}
}

// TestUniqueOfFork: a fork has the Unique of the plan that it repairs, and nobody has reserved it. While another plan has it, the
// fork waits, and while the fork works, nobody else gets it.
func TestUniqueOfFork(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := func() *workflow.Plan {
			plan := plantest.Sized(1, 1, 1)
			plan.ID, plan.Unique = workflow.NewV7(), "u"
			return plan
		}
		first, fork := plan(), plan()
		_, err := fleet.ReserveUnique(t.Context(), p, first)
		must(t, err)
		must(t, p.Create(t.Context(), first))
		must(t, p.Create(t.Context(), fork)) // as that of a fork
		must(t, n.Claim(t.Context(), first))
		if no := waitsFor(t, n.Claim(t.Context(), fork), "u"); !no.Unique || no.Holder != first.ID {
			t.Errorf("it waits for %+v", no)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		found := plans(ctx, t, n)
		time.Sleep(10 * time.Minute)
		ends(t, p, n, first)
		if got := within(t, found, time.Minute); got.ID != fork.ID {
			t.Fatalf("got plan %s", got.ID)
		}
		if holder, err := fleet.ReserveUnique(t.Context(), p, plan()); holder != fork.ID || !errors.Is(err, storage.ErrExists) {
			t.Errorf("plan %s has it: %v", holder, err)
		}
	})
}

// TestSweepTurns sweeps what nobody waits for, and keeps the rest. One node of a fleet does so each day.
func TestSweepTurns(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{Interval: 10 * time.Minute, NoGauges: true})
		many := workflow.Key{Name: "many", Limit: 1000}
		holder := holds(t, p, n, many, workflow.Key{Name: "kept"})
		var over []*workflow.Plan
		for range 100 {
			over = append(over, holds(t, p, n, many))
		}
		reserved := plantest.Sized(1, 1, 1)
		reserved.ID, reserved.Unique = workflow.NewV7(), "u"
		_, err := fleet.ReserveUnique(t.Context(), p, reserved)
		must(t, err)
		must(t, p.Create(t.Context(), reserved))
		p.OnOp("PutKey", func(_ context.Context, c processtest.Call, _ func() error) error {
			return processtest.Unavailable(c.Op)
		})
		for _, plan := range over {
			ends(t, p, n, plan)
		}
		p.On(nil)
		settings := func(name string, s fleet.KeySettings) {
			must(t, fleet.SetKey(t.Context(), p, name, ana, func(fleet.KeySettings) fleet.KeySettings { return s }))
		}
		settings("limited", fleet.KeySettings{Limit: 3})
		settings("paused", fleet.KeySettings{PausedUntil: time.Now().Add(365 * 24 * time.Hour)})
		settings("was paused", fleet.KeySettings{PausedUntil: time.Now().Add(time.Hour)})
		settings("unused", fleet.KeySettings{})
		repaired := plantest.Sized(1, 1, 1)
		repaired.Unique = "repaired"
		must(t, p.Create(t.Context(), repaired))
		unused := plantest.Sized(1, 1, 1)
		unused.ID, unused.Unique = workflow.NewV7(), "unused"
		_, err = fleet.ReserveUnique(t.Context(), p, unused) // and is not created
		must(t, err)
		for _, unique := range []string{"repaired", "unused"} {
			must(t, fleet.RepairUnique(t.Context(), p, unique, ana))
		}
		var lists atomic.Int64
		q := open(store)
		for _, v := range []*processtest.Process{p, q} {
			v.OnOp("Keys", func(_ context.Context, _ processtest.Call, do func() error) error { lists.Add(1); return do() })
		}
		join(t, q, fleet.Options{Interval: 10 * time.Minute, NoGauges: true})
		time.Sleep(26 * time.Hour)
		if got := holders(t, p, "key:many"); len(got) != 1 || !got[holder.ID] || lists.Load() != 2 {
			t.Errorf("%d holders are left after %d sweeps", len(got), lists.Load())
		}
		time.Sleep(32 * 24 * time.Hour)
		var left []string
		for k, err := range keysOf(t, p) {
			must(t, err)
			left = append(left, fmt.Sprint(k.Name, " ", k.Holders))
		}
		if want := []string{"key:kept 1", "key:limited 0", "key:many 1", "key:paused 0", "unique:repaired 1", "unique:u 1"}; !slices.Equal(left, want) {
			t.Errorf("left are %q", left)
		}
		if lists.Load() < 32 || lists.Load() > 35 {
			t.Errorf("%d sweeps in 33 days", lists.Load())
		}
	})
}

// TestSweepOfShortLives replaces the only node of a fleet each night. All the same, the turns are swept each day.
func TestSweepOfShortLives(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		k := storage.KeyRecord{Name: "key:left", Searched: true}
		for range 3 {
			time.Sleep(30 * time.Minute) // half past midnight
			var err error
			k.Holders = []storage.Holder{{Plan: workflow.NewV7(), Limit: 1, Taken: true}} // which is gone
			k.Version, err = p.PutKey(t.Context(), k)
			must(t, err)
			n := join(t, open(store), fleet.Options{Interval: 10 * time.Minute, NoGauges: true})
			time.Sleep(23*time.Hour + 20*time.Minute)
			if got := holders(t, p, "key:left"); len(got) > 0 {
				t.Errorf("%v: holders %v are left", time.Now(), got)
			}
			must(t, n.Leave(t.Context()))
			k, err = p.FindKey(t.Context(), "key:left")
			must(t, err)
			time.Sleep(10 * time.Minute)
		}
	})
}

// TestDamagedUnique damages the record of a Unique: nobody gets it. When it is repaired, the open plan has it, whether it has begun
// or not.
func TestDamagedUnique(t *testing.T) {
	for _, begun := range []bool{false, true} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			d := &damageable{store: store, bad: map[storage.Version]bool{}}
			p := d.open()
			n := join(t, p, fleet.Options{})
			plan := func() *workflow.Plan {
				plan := plantest.Sized(1, 1, 1)
				plan.ID, plan.Unique = workflow.NewV7(), "u"
				return plan
			}
			first := plan()
			_, err := fleet.ReserveUnique(t.Context(), p, first)
			must(t, err)
			must(t, p.Create(t.Context(), first))
			if begun {
				must(t, n.Claim(t.Context(), first))
			}
			d.damage(t, p, "unique:u")
			if _, err := fleet.ReserveUnique(t.Context(), p, plan()); !errors.Is(err, fleet.ErrNoTurn) || errors.Is(err, storage.ErrExists) {
				t.Errorf("a second one is reserved: %v", err)
			}
			must(t, fleet.RepairUnique(t.Context(), p, "u", ana))
			for range 2 {
				if holder, err := fleet.ReserveUnique(t.Context(), p, plan()); holder != first.ID || !errors.Is(err, storage.ErrExists) {
					t.Errorf("plan %s has it: %v", holder, err)
				}
			}
			if !begun {
				must(t, n.Claim(t.Context(), first))
			}
			ends(t, p, n, first)
		})
	}
}
