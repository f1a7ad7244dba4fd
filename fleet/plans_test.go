package fleet_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestResumption kills one of several nodes at any moment of its interval. The others take all of its plans
// within 45s, nearly always, and spread them.
func TestResumption(t *testing.T) {
	var times []time.Duration
	for seed := range efforttest.Seeds(t, 3, 20, 400) {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			dying, victim := start(t, store, fleet.Options{})
			const owned = 20
			for range owned {
				must(t, victim.Claim(t.Context(), create(t, dying, 1)))
			}
			var died time.Time
			took := map[*processtest.Process]int{}
			resumed := make(chan *processtest.Process, owned)
			for i := range 3 {
				time.Sleep(time.Duration(int(seed)*733+i*3100) * time.Millisecond % (10 * time.Second))
				p, n := start(t, store, fleet.Options{})
				go func() {
					for next := range n.Plans(t.Context()) {
						must(t, next.Err)
						if plan := next.Result; plan.Owner != n.ID() || plan.Epoch != 2 {
							t.Errorf("seed %d: taken for %s with epoch %d", seed, plan.Owner, plan.Epoch)
						}
						resumed <- p
					}
				}()
			}
			time.Sleep(2*time.Minute + time.Duration(seed)*977*time.Millisecond%(10*time.Second))
			dying.Kill()
			died = time.Now()
			for range owned {
				took[<-resumed]++
				times = append(times, time.Since(died))
			}
			if len(took) < 2 {
				t.Errorf("seed %d: one node took all %d plans", seed, owned)
			}
			time.Sleep(time.Minute)
			if len(resumed) > 0 {
				t.Errorf("seed %d: %d plans were taken twice", seed, len(resumed))
			}
			if m := roster(t, store); len(m) != 3 {
				t.Errorf("seed %d: there are %d members", seed, len(m))
			}
		})
	}
	slices.Sort(times)
	p50, p99, most := times[len(times)/2], times[len(times)*99/100], times[len(times)-1]
	t.Logf("from death to resumption, of %d: p50 %v, p99 %v, at most %v", len(times), p50, p99, most)
	if p99 > 45*time.Second {
		t.Errorf("p99 is %v, want at most 45s", p99)
	}
}

// TestShortLife: a node joins, claims a plan and leaves before anybody has seen it. The others find its record, which
// says that it has left, whatever their interval, and remove the record when all of them have.
func TestShortLife(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		slow := plans(t.Context(), t, join(t, open(store), fleet.Options{Interval: time.Minute}))
		time.Sleep(61 * time.Second) // until nobody searches all days soon
		quick := join(t, open(store), fleet.Options{Interval: time.Second, TTL: 3 * time.Second, Capacity: 1})
		p := open(store)
		claimed(t, p, quick, 1) // so it takes nothing else, and is alone to remove old records for most of the time
		short := join(t, p, fleet.Options{})
		plan := claimed(t, p, short, 1)
		time.Sleep(time.Second)
		leave(t, short)
		if taken := within(t, slow, 90*time.Second); taken.ID != plan.ID {
			t.Errorf("plan %s", taken.ID)
		}
		time.Sleep(4 * time.Minute)
		if r, err := p.Roster(t.Context()); err != nil || len(r.Members) != 2 {
			t.Errorf("the roster is %+v, %v", r, err)
		}
	})
}

// TestNewPlans: each new plan is claimed once, by one of the nodes, most of them at the first node's next poll.
func TestNewPlans(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		claimed, shares := map[uuid.UUID]int{}, map[uuid.UUID]int{}
		found := make(chan *workflow.Plan, 1000)
		for range 3 {
			own := plans(t.Context(), t, join(t, open(store), fleet.Options{}))
			go func() {
				for plan := range own {
					found <- plan
				}
			}()
			time.Sleep(3 * time.Second)
		}
		join(t, open(store), fleet.Options{}) // it comes first for some plans, and looks for none
		time.Sleep(30 * time.Second)
		author := store.Open(plantest.Register(), memvault.Options{})
		for range 29 {
			create(t, author, 1)
		}
		yesterday := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1) // its first millisecond
		must(t, author.Create(t.Context(), &workflow.Plan{ID: workflow.NewV7At(yesterday)}))
		late := &workflow.Plan{ID: workflow.NewV7At(time.Now().Add(-100 * time.Hour)), Name: "of an old day"}
		must(t, author.Create(t.Context(), late))
		time.Sleep(30 * time.Second)
		for len(found) > 0 {
			plan := <-found
			claimed[plan.ID]++
			shares[plan.Owner]++
			if claimed[plan.ID] > 1 || plan.Epoch != 1 || plan.State.Status != workflow.Running || plan.State.Start.IsZero() {
				t.Errorf("plan %s, %s, with epoch %d, claimed %d times", plan.ID, plan.State.Status, plan.Epoch, claimed[plan.ID])
			}
		}
		if len(claimed) != 30 || len(shares) != 3 {
			t.Errorf("%d plans are claimed, by %d nodes", len(claimed), len(shares))
		}
		if testing.Short() {
			return // the search of old days is the same code
		}
		if plan := within(t, found, time.Hour+time.Minute); plan.ID != late.ID {
			t.Errorf("plan %s, want the one of an old day", plan.ID)
		}
	})
}

func TestClaimOfAPlanThatBegan(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		for _, plan := range []*workflow.Plan{nil, orphan(t, p, plantest.Small())} {
			fails(t, n.Claim(t.Context(), plan), storage.ErrInvalid, "Claim")
		}
	})
}

// TestCapacity: a node owns no more plans than it may, looks for none while it owns as many, and takes the
// oldest first.
func TestCapacity(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		var ids []uuid.UUID
		for range 10 {
			ids = append(ids, create(t, p, 1).ID)
			time.Sleep(time.Millisecond)
		}
		var searches atomic.Int64
		p.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if c.Op == "Search" {
				searches.Add(1)
			}
			time.Sleep(time.Millisecond)
			return do()
		})
		n := join(t, p, fleet.Options{Capacity: 3})
		found := plans(t.Context(), t, n)
		time.Sleep(time.Minute)
		if len(found) != 3 || searches.Load() != 1 {
			t.Fatalf("the node owns %d plans after %d searches", len(found), searches.Load())
		}
		var got []uuid.UUID
		for range ids {
			plan := within(t, found, time.Second)
			got = append(got, plan.ID)
			_, done := n.Work(plan.ID)
			must(t, finish(t.Context(), p, plan))
			done()
			done()
			time.Sleep(time.Second)
			if len(found) > 3 {
				t.Errorf("the node owns %d plans", len(found))
			}
		}
		slices.SortFunc(got[:3], func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }) // begun at once
		if !slices.Equal(got, ids) {
			t.Errorf("the plans came as %v, want %v", got, ids)
		}
	})
}

// TestUnreadablePlans: a plan that can't be read is yielded once as an error, and keeps the node from no other.
func TestUnreadablePlans(t *testing.T) {
	for _, bad := range []error{storage.ErrCorrupt, storage.ErrSchema} {
		onStores(t, []string{"Read", "Search"}, func(t *testing.T, store *memvault.Store, where string) {
			p := open(store)
			damaged, whole := create(t, p, 1).ID, create(t, p, 1).ID
			reads := damage(p, damaged, where, bad)
			found, errs := results(t.Context(), join(t, p, fleet.Options{}))
			if plan := within(t, found, 30*time.Second); plan.ID != whole {
				t.Errorf("the first plan is %s", plan.ID)
			}
			time.Sleep(efforttest.Pick(70*time.Minute, 3*time.Hour, 3*time.Hour))
			if len(errs) != 1 || !errors.Is(<-errs, bad) || reads.Load() > 5 {
				t.Errorf("%v in %s: it was read %d times, and there are %d more errors", bad, where, reads.Load(), len(errs))
			}
			p.On(nil) // somebody repairs it
			p.OnResult(nil)
			if plan := within(t, found, time.Hour+time.Minute); plan.ID != damaged {
				t.Errorf("the plan after the repair is %s", plan.ID)
			}
		})
	}
}

// damage makes a plan unreadable for a process, where it reads or searches, and returns how often it reads the plan.
func damage(p *processtest.Process, id uuid.UUID, where string, bad error) (reads *atomic.Int64) {
	failed, reads := &storage.Error{Op: where, Plan: id, Err: bad}, &atomic.Int64{}
	if where == "Search" {
		p.OnResult(func(r storage.Stream[storage.ListResult]) storage.Stream[storage.ListResult] {
			if r.Result.ID == id {
				return storage.Stream[storage.ListResult]{Err: failed}
			}
			return r
		})
		return reads
	}
	p.On(func(_ context.Context, c processtest.Call, do func() error) error {
		if c.Op != "Read" || c.Plan != id {
			return do()
		}
		reads.Add(1)
		return failed
	})
	return reads
}

// TestSearchFails: a failure that may pass is not yielded; any other is yielded once, until a search succeeds.
func TestSearchFails(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{{storage.ErrUnavailable, 0}, {context.DeadlineExceeded, 0}, {storage.ErrDenied, 2}} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			fail := func(op string) error { return &storage.Error{Op: op, Err: test.err} }
			p.Fail("Search", fail)
			found, errs := results(t.Context(), n)
			time.Sleep(10 * time.Minute)
			p.On(nil)
			create(t, p, 1)
			within(t, found, 11*time.Minute)
			p.Fail("Search", fail)
			time.Sleep(10 * time.Minute)
			if len(errs) != test.want {
				t.Errorf("%v was yielded %d times, want %d", test.err, len(errs), test.want)
			}
		})
	}
}

// TestSearchIsCut: a search that ends because the node leaves or is fenced, or because the loop's context ends, is
// no error of the loop, even if a store returns the context's cause alone.
func TestSearchIsCut(t *testing.T) {
	onStores(t, []string{"left", "ended"}, func(t *testing.T, store *memvault.Store, cut string) {
		p, n := start(t, store, fleet.Options{})
		p.OnOp("Search", func(ctx context.Context, c processtest.Call, do func() error) error {
			<-ctx.Done()
			return &storage.Error{Op: c.Op, Err: context.Cause(ctx)}
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		time.AfterFunc(time.Second, func() {
			if cut == "left" {
				leave(t, n)
			} else {
				cancel(errors.New("shutdown"))
			}
		})
		for next := range n.Plans(ctx) {
			t.Errorf("%s: Plans yields %+v", cut, next)
		}
	})
}

// TestPlansThatWereNotYielded: what a loop took and did not yield, the next loop yields.
func TestPlansThatWereNotYielded(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{Capacity: 6})
		want := map[uuid.UUID]bool{}
		for range 6 {
			want[create(t, p, 1).ID] = true
		}
		for range 6 {
			for next := range n.Plans(t.Context()) {
				must(t, next.Err)
				if !want[next.Result.ID] {
					t.Errorf("plan %s came twice", next.Result.ID)
				}
				delete(want, next.Result.ID)
				break
			}
		}
		if len(want) > 0 {
			t.Errorf("%d plans did not come", len(want))
		}
	})
}

// TestLoopEndsBesideACall: a loop ends while it waits for a call of its caller that claims the plan, or takes it again. The plan stays
// with whoever made the call.
func TestLoopEndsBesideACall(t *testing.T) {
	for _, claimed := range []bool{false, true} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			plan, call := create(t, p, 1), n.Claim
			p.Fail("Read", processtest.Unavailable)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			plans(ctx, t, n) // it tries again after two intervals
			time.Sleep(time.Second)
			p.On(nil)
			if claimed {
				must(t, n.Claim(t.Context(), plan))
				call = func(ctx context.Context, plan *workflow.Plan) error { _, err := n.Take(ctx, plan.ID); return err }
			}
			p.OnOp("UpdatePlan", func(_ context.Context, _ processtest.Call, do func() error) error {
				time.Sleep(10 * time.Second)
				return do()
			})
			time.Sleep(18 * time.Second)
			ended := make(chan error, 1)
			go func() { ended <- call(t.Context(), plan) }()
			time.Sleep(3 * time.Second)
			cancel()
			must(t, <-ended)
			time.Sleep(time.Minute)
			if work, _ := n.Work(plan.ID); work.Err() != nil || len(roster(t, store)[n.ID()].LetGo) > 0 {
				t.Errorf("claimed before: %t: it is given back: %v, %v", claimed, context.Cause(work), roster(t, store)[n.ID()].LetGo)
			}
		})
	}
}

// TestRefusedAfterUnknown: a claim whose outcome is unknown is repeated, and refused because somebody else claimed
// the plan meanwhile. It is not a success.
func TestRefusedAfterUnknown(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, rival := open(store), open(store)
		a, b := join(t, p, fleet.Options{}), join(t, rival, fleet.Options{})
		plan := create(t, p, 1)
		p.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if c.Op == "UpdatePlan" && read(t, rival, plan.ID).Epoch == 0 {
				must(t, b.Claim(t.Context(), read(t, rival, plan.ID)))
				return processtest.Unknown(c.Op)
			}
			return do()
		})
		if err := a.Claim(t.Context(), plan); !errors.Is(err, storage.ErrConflict) || plan.Owner != uuid.Nil {
			t.Errorf("Claim returned %v for a plan of %s", err, plan.Owner)
		}
	})
}
