package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// stopped returns the plans with requests to stop.
func stopped(t testing.TB, store *memvault.Store) (plans []uuid.UUID) {
	t.Helper()
	r, err := store.Open(nil, memvault.Options{}).Control().Roster(t.Context())
	must(t, err)
	for _, s := range r.Stops {
		plans = append(plans, s.Plan)
	}
	return plans
}

// TestStop: a request reaches the owner within an interval, and whoever takes or claims the plan later at once.
// It is removed once the plan is final or gone.
func TestStop(t *testing.T) {
	for _, test := range []struct {
		name  string
		begin making
		get   func(t *testing.T, n *fleet.Node, id uuid.UUID) // makes the node the owner
	}{
		{"the owner's", ofTheNode, func(*testing.T, *fleet.Node, uuid.UUID) {}},
		{"a dead owner's", orphaned, func(t *testing.T, n *fleet.Node, id uuid.UUID) { must(t, second(n.Take(t.Context(), id))) }},
		{"nobody's", unbegun, func(t *testing.T, n *fleet.Node, _ uuid.UUID) { within(t, plans(t.Context(), t, n), time.Minute) }},
	} {
		onStores(t, []string{"final", "deleted"}, func(t *testing.T, store *memvault.Store, end string) {
			p, n := start(t, store, fleet.Options{})
			other := claimed(t, p, n, 1)
			id := test.begin(scene{t, store, p, n}).ID
			must(t, fleet.Stop(t.Context(), store.Open(nil, memvault.Options{}), id, ana))
			time.Sleep(10*time.Second + 1)
			test.get(t, n, id)
			work, done := n.Work(id)
			if !errors.Is(context.Cause(work), fleet.ErrStopRequested) {
				t.Errorf("the work on %s plan ended with %v", test.name, context.Cause(work))
			}
			if work, _ := n.Work(other.ID); work.Err() != nil {
				t.Errorf("the work on another plan ended with %v", context.Cause(work))
			}
			time.Sleep(10 * time.Minute)
			if s := stopped(t, store); len(s) != 1 {
				t.Errorf("%s: the requests are %v while the plan runs", test.name, s)
			}
			if end == "final" {
				must(t, moves(t.Context(), p, read(t, p, id), workflow.Stopped))
			} else {
				must(t, p.Delete(t.Context(), id))
			}
			done()
			time.Sleep(time.Minute + 10*time.Second)
			if s := stopped(t, store); len(s) > 0 {
				t.Errorf("%s: the requests are %v after the plan is %s", test.name, s, end)
			}
		})
	}
}

// TestRequestsAreKept: a request that is young, or whose plan can't be looked at, stays.
func TestRequestsAreKept(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		join(t, p, fleet.Options{})
		gone := workflow.NewV7()
		must(t, p.AddStop(t.Context(), gone, ana))
		time.Sleep(55 * time.Second)
		if s := stopped(t, store); len(s) != 1 {
			t.Errorf("after 55s the requests are %v", s)
		}
		p.Fail("Search", processtest.Unavailable)
		time.Sleep(time.Hour)
		if s := stopped(t, store); len(s) != 1 {
			t.Errorf("the requests are %v, although their plans could not be looked at", s)
		}
		p.On(nil)
		time.Sleep(2 * time.Minute)
		if s := stopped(t, store); len(s) != 0 {
			t.Errorf("the requests are %v", s)
		}
	})
}

// TestRequestsBesideADamagedPlan: a request whose plan can't be read stays, and keeps no other request.
func TestRequestsBesideADamagedPlan(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		damaged := create(t, p, 1).ID
		damage(p, damaged, "Search", storage.ErrCorrupt)
		join(t, p, fleet.Options{})
		must(t, fleet.Stop(t.Context(), p, damaged, ana))
		for _, gone := range []time.Duration{-time.Hour, time.Hour} {
			must(t, p.AddStop(t.Context(), workflow.NewV7At(time.Now().Add(gone)), ana))
		}
		time.Sleep(2 * time.Minute)
		if s := stopped(t, store); !slices.Equal(s, []uuid.UUID{damaged}) {
			t.Errorf("the requests are %v, want that of plan %s", s, damaged)
		}
	})
}

// TestStopIsRepeated: Stop repeats a request whose outcome is unknown until its context ends.
func TestStopIsRepeated(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		calls := 0
		p.OnOp("AddStop", func(_ context.Context, c processtest.Call, do func() error) error {
			if calls++; calls < 4 {
				return processtest.Unknown(c.Op)
			}
			return do()
		})
		plan := create(t, p, 1)
		must(t, fleet.Stop(t.Context(), p, plan.ID, ana))
		if calls != 4 {
			t.Errorf("%d calls", calls)
		}
		p.Fail("AddStop", processtest.Unknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		fails(t, fleet.Stop(ctx, p, plan.ID, ana), storage.ErrUnknown, "Stop")
	})
}

// TestChangesOfPeople checks what Stop and its kin refuse, and which of them are in the log.
func TestChangesOfPeople(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan, final := claimed(t, p, n, 1).ID, claimed(t, p, n, 1)
		must(t, finish(t.Context(), p, final))
		changes := map[string]func(v storage.Vault, id uuid.UUID, by workflow.Attribution) error{
			"stop": func(v storage.Vault, id uuid.UUID, by workflow.Attribution) error {
				return fleet.Stop(t.Context(), v, id, by)
			},
			"takeover": func(v storage.Vault, id uuid.UUID, by workflow.Attribution) error {
				return second(fleet.HandOver(t.Context(), v, id, fleet.HandOverOptions{By: by}))
			},
			"evict": func(v storage.Vault, _ uuid.UUID, by workflow.Attribution) error {
				return fleet.Evict(t.Context(), v, n.ID(), fleet.EvictOptions{By: by})
			},
			"suspend": func(v storage.Vault, _ uuid.UUID, by workflow.Attribution) error {
				return second(fleet.Suspend(t.Context(), v, by, fleet.SuspendOptions{}))
			},
			"clear": func(v storage.Vault, _ uuid.UUID, by workflow.Attribution) error {
				return second(fleet.Clear(t.Context(), v, fleet.ClearOptions{By: by}))
			},
			"resume": func(v storage.Vault, _ uuid.UUID, by workflow.Attribution) error {
				return fleet.Resume(t.Context(), v, by)
			},
		}
		for name, change := range changes {
			fails(t, change(struct{ storage.Vault }{p}, plan, ana), errors.ErrUnsupported, "%s without storage.Control", name)
			fails(t, change(p, plan, workflow.Attribution{Why: "nobody asks"}), storage.ErrInvalid, "%s by nobody", name)
		}
		for id, want := range map[uuid.UUID]error{uuid.Nil: storage.ErrNotFound, workflow.NewV7(): storage.ErrNotFound, final.ID: fleet.ErrNotRunning} {
			fails(t, changes["stop"](p, id, ana), want, "stop of %s", id)
		}
		inOrder := []string{"stop", "evict", "takeover", "suspend", "clear", "resume"}
		for _, name := range inOrder {
			if err := changes[name](p, plan, ana); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(time.Minute)
		}
		var logged []string
		found, err := storage.Collect(p.AuditEntries(t.Context(), storage.AuditFilters{}))
		must(t, err)
		for _, e := range slices.Backward(found) {
			logged = append(logged, e.What)
			if e.By.By != ana.By || e.Result != "done" {
				t.Errorf("the log has %+v", e)
			}
		}
		if !slices.Equal(logged, inOrder) {
			t.Errorf("the log has %q, want %q", logged, inOrder)
		}
	})
}
