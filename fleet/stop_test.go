package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// stopped returns the plans with requests to stop.
func stopped(t testing.TB, store *memvault.Store) (plans []uuid.UUID) {
	t.Helper()
	r, err := store.Open(nil, memvault.Options{}).Roster(t.Context())
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
		begin func(t *testing.T, p *processtest.Process, n *fleet.Node) *workflow.Plan
		get   func(t *testing.T, n *fleet.Node, id uuid.UUID) // makes the node the owner
	}{
		{
			"the owner's",
			func(t *testing.T, p *processtest.Process, n *fleet.Node) *workflow.Plan { return claimed(t, p, n, 1) },
			func(*testing.T, *fleet.Node, uuid.UUID) {},
		},
		{
			"a dead owner's",
			func(t *testing.T, p *processtest.Process, _ *fleet.Node) *workflow.Plan {
				return orphan(t, p, plantest.Small())
			},
			func(t *testing.T, n *fleet.Node, id uuid.UUID) { must(t, second(n.Take(t.Context(), id))) },
		},
		{
			"nobody's",
			func(t *testing.T, p *processtest.Process, _ *fleet.Node) *workflow.Plan { return create(t, p, 1) },
			func(t *testing.T, n *fleet.Node, _ uuid.UUID) { within(t, plans(t.Context(), t, n), time.Minute) },
		},
	} {
		for _, end := range []string{"final", "deleted"} {
			onStore(t, func(t *testing.T, store *memvault.Store) {
				p, n := start(t, store, fleet.Options{})
				other := claimed(t, p, n, 1)
				id := test.begin(t, p, n).ID
				must(t, fleet.Stop(t.Context(), store.Open(nil, memvault.Options{}), id, workflow.Attribution{}))
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
}

// TestRequestsAreKept: a request that is young, or whose plan can't be looked at, stays.
func TestRequestsAreKept(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		join(t, p, fleet.Options{})
		gone := workflow.NewV7()
		must(t, fleet.Stop(t.Context(), p, gone, workflow.Attribution{}))
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
		for _, plan := range []uuid.UUID{workflow.NewV7At(time.Now().Add(-time.Hour)), damaged, workflow.NewV7At(time.Now().Add(time.Hour))} {
			must(t, fleet.Stop(t.Context(), p, plan, workflow.Attribution{}))
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
		p.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if calls++; calls < 4 {
				return processtest.Unknown(c.Op)
			}
			return do()
		})
		must(t, fleet.Stop(t.Context(), p, workflow.NewV7(), workflow.Attribution{}))
		if calls != 4 {
			t.Errorf("%d calls", calls)
		}
		p.Fail("AddStop", processtest.Unknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := fleet.Stop(ctx, p, workflow.NewV7(), workflow.Attribution{}); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("Stop returned %v", err)
		}
		p.On(nil)
		if err := fleet.Stop(t.Context(), p, uuid.Nil, workflow.Attribution{}); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Stop of no plan returned %v", err)
		}
	})
}
