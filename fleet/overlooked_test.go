package fleet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// pair are two nodes. other has to find the plans of n.
type pair struct {
	p, q     *processtest.Process
	n, other *fleet.Node
}

// stores stores a plan for which n comes before other.
func (s pair) stores(t *testing.T) *workflow.Plan {
	weight := func(plan, node uuid.UUID) []byte {
		sum := sha256.Sum256(append(plan[:], node[:]...))
		return sum[:]
	}
	plan := &workflow.Plan{Name: "overlooked", ID: workflow.NewV7()}
	for bytes.Compare(weight(plan.ID, s.n.ID()), weight(plan.ID, s.other.ID())) < 0 {
		plan.ID = workflow.NewV7()
	}
	must(t, s.p.Create(t.Context(), plan))
	return plan
}

// claims stores such a plan, and later claims it for n.
func (s pair) claims(t *testing.T, after time.Duration) *workflow.Plan {
	plan := s.stores(t)
	time.Sleep(after)
	must(t, s.n.Claim(t.Context(), plan))
	return plan
}

// TestNothingIsOverlooked: a node finds what its searches and looks nearly miss. Its looks are at full intervals, and its
// searches 5 seconds later. Each case begins a second after a search and ends when the plan can be found.
func TestNothingIsOverlooked(t *testing.T) {
	for _, test := range []struct {
		what             string
		interval, within time.Duration
		do               func(t *testing.T, s pair)
	}{
		{"let go while it waits for the first node", 10 * time.Second, 15 * time.Second, func(t *testing.T, s pair) {
			s.n.LetGo(s.claims(t, 10*time.Second).ID)
		}},
		{"let go while it is claimed", 10 * time.Second, 15 * time.Second, func(t *testing.T, s pair) {
			plan := s.stores(t)
			offered := *plan
			must(t, s.n.Claim(t.Context(), plan))
			s.n.LetGo(plan.ID)
			s.q.Before("UpdatePlan", func() {
				time.Sleep(12 * time.Second)
				s.q.On(nil)
			})
			s.other.Offer(&offered)
			time.Sleep(12 * time.Second)
		}},
		{"tried again by its owner for a moment", 10 * time.Second, 10 * time.Second, func(t *testing.T, s pair) {
			plan := s.claims(t, 0)
			s.n.LetGo(plan.ID)
			asked := make(chan error)
			s.q.OnOp("FindMember", func(_ context.Context, _ processtest.Call, do func() error) (err error) {
				s.q.On(nil)
				asked <- second(s.n.Take(t.Context(), plan.ID))
				err = do()
				s.n.LetGo(plan.ID)
				return err
			})
			must(t, <-asked)
		}},
		{"let go, taken, and let go again between two looks", 30 * time.Second, 105 * time.Second, func(t *testing.T, s pair) {
			third := join(t, s.p, fleet.Options{})
			plan := s.claims(t, 0)
			s.n.LetGo(plan.ID)
			time.Sleep(32 * time.Second) // other looks, and leaves n half an interval
			must(t, second(third.Take(t.Context(), plan.ID)))
			time.Sleep(8 * time.Second)
			third.LetGo(plan.ID)
			time.Sleep(5 * time.Second)
			must(t, second(s.n.Take(t.Context(), plan.ID)))
			if _, err := third.Take(t.Context(), plan.ID); !errors.Is(err, fleet.ErrOwned) { // which takes it off third's list
				t.Error(err)
			}
			s.n.LetGo(plan.ID)
		}},
		{"begun by the first node, which leaves", 10 * time.Second, 15 * time.Second, func(t *testing.T, s pair) {
			s.claims(t, 10*time.Second)
			leave(t, s.n)
		}},
		{"left by a member that came, left and was forgotten while looks failed", 10 * time.Second, 15 * time.Second, func(t *testing.T, s pair) {
			s.q.Fail("Roster", processtest.Unavailable)
			short := join(t, s.p, fleet.Options{})
			claimed(t, s.p, short, 1)
			leave(t, short)
			time.Sleep(2 * time.Minute)
			fails(t, second(s.p.FindMember(t.Context(), short.ID())), storage.ErrNotFound, "the record is there")
			s.q.On(nil)
		}},
		{"left while searches failed", 10 * time.Second, time.Minute, func(t *testing.T, s pair) {
			s.claims(t, 0)
			s.q.Fail("Search", processtest.Unavailable)
			leave(t, s.n)
			time.Sleep(45 * time.Minute)
			s.q.On(nil)
		}},
	} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			q, other := start(t, store, fleet.Options{Interval: test.interval})
			time.Sleep(5 * time.Second)
			found := plans(t.Context(), t, other)
			time.Sleep(2*time.Minute + time.Second)
			t.Logf("%s: within %v", test.what, test.within)
			test.do(t, pair{p, q, n, other})
			within(t, found, test.within+time.Second/2)
			var searches atomic.Int64
			q.Before("Search", func() { searches.Add(1) })
			time.Sleep(10 * time.Minute)
			if searches.Load() > 61 { // those for new plans, although n may still list what other owns
				t.Errorf("%d searches", searches.Load())
			}
		})
	}
}

// TestPlanOfTomorrow: the ID of a plan may be 15 minutes ahead of the store. The search for new plans reaches no farther.
func TestPlanOfTomorrow(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
		time.Sleep(time.Until(midnight.Add(-30 * time.Minute)))
		p, n := start(t, store, fleet.Options{})
		found := plans(t.Context(), t, n)
		time.Sleep(time.Minute)
		must(t, p.Create(t.Context(), &workflow.Plan{ID: workflow.NewV7At(midnight), Name: "of tomorrow"}))
		within(t, found, time.Hour)
		if left := time.Until(midnight); left > 15*time.Minute || left < 15*time.Minute-21*time.Second {
			t.Errorf("it was found %v before midnight", left)
		}
	})
}

// TestOrphansBesideABacklog: a node has plans of a minute for hours. It takes those of a node that dies, which are newer,
// at its next free places, also if its searches take long or other members come first, and learns that they were asked to
// stop.
func TestOrphansBesideABacklog(t *testing.T) {
	for _, test := range []struct {
		offered bool
		idle    int           // members that look for no plans
		turn    time.Duration // that a plan may lose while those that come first have their time
	}{{offered: true}, {}, {idle: 3, turn: time.Minute + 7*time.Second}} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			for range test.idle {
				join(t, open(store), fleet.Options{})
			}
			p, n := start(t, store, fleet.Options{Capacity: 2})
			p.Before("Search", func() { time.Sleep(9 * time.Second) })
			found := plans(t.Context(), t, n)
			dying, victim := start(t, store, fleet.Options{})
			time.Sleep(15 * time.Second) // the first search has ended
			for range 200 {
				if plan := create(t, p, 1); test.offered {
					n.Offer(plan)
				}
			}
			orphans := map[uuid.UUID]bool{}
			for range 2 {
				orphans[claimed(t, dying, victim, 1).ID] = true
			}
			var asked atomic.Int64
			work := func(plan *workflow.Plan) {
				ctx, done := n.Work(plan.ID)
				time.Sleep(time.Minute + time.Duration(plan.ID[15]%7)*time.Second)
				if errors.Is(context.Cause(ctx), fleet.ErrStopRequested) {
					asked.Add(1)
				}
				must(t, finish(t.Context(), p, plan))
				done()
			}
			died := time.Now().Add(5*time.Minute + 3*time.Second)
			time.AfterFunc(time.Until(died), dying.Kill)
			for len(orphans) > 0 {
				plan := within(t, found, 2*time.Minute)
				if orphans[plan.ID] {
					if took := time.Since(died); took > time.Duration(4-len(orphans))*time.Minute+test.turn {
						t.Errorf("%+v: it took the plan of a dead node after %v", test, took)
					}
					delete(orphans, plan.ID)
				}
				go work(plan)
				for id := range orphans {
					must(t, fleet.Stop(t.Context(), p, id, ana))
				}
			}
			time.Sleep(2 * time.Minute)
			if asked.Load() != 2 {
				t.Errorf("%+v: %d of the plans were asked to stop", test, asked.Load())
			}
		})
	}
}

// TestBacklogBesideASearchThatHangs: the search that a departure calls for does not end. What the node knows waits for an
// Interval, and then no more.
func TestBacklogBesideASearchThatHangs(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		for range 5 {
			create(t, p, 1)
		}
		_, other := start(t, store, fleet.Options{})
		n := join(t, p, fleet.Options{Capacity: 1})
		found := plans(t.Context(), t, n)
		plan := within(t, found, time.Minute)
		p.OnOp("Search", func(ctx context.Context, _ processtest.Call, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(time.Minute) // until all are due
		must(t, other.Claim(t.Context(), create(t, p, 1)))
		leave(t, other)
		time.Sleep(time.Minute)
		for range 4 {
			_, done := n.Work(plan.ID)
			done()
			plan = within(t, found, 11*time.Second)
		}
	})
}
