package fleet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// createFor stores a plan for which node comes first, before other.
func createFor(t testing.TB, v storage.Vault, node, other *fleet.Node) *workflow.Plan {
	t.Helper()
	weight := func(plan, node uuid.UUID) []byte {
		sum := sha256.Sum256(append(plan[:], node[:]...))
		return sum[:]
	}
	id := workflow.NewV7()
	for bytes.Compare(weight(id, node.ID()), weight(id, other.ID())) < 0 {
		id = workflow.NewV7()
	}
	plan := &workflow.Plan{ID: id, Name: "for one of two"}
	must(t, v.Create(t.Context(), plan))
	return plan
}

// TestNothingIsOverlooked: a node finds what its searches and looks nearly miss. Each case ends when the plan can be
// found. other is the node that has to find it, a second after one of its searches, and n is another member.
func TestNothingIsOverlooked(t *testing.T) {
	for _, test := range []struct {
		what     string
		interval time.Duration // other's
		within   time.Duration
		do       func(t *testing.T, p *processtest.Process, n *fleet.Node, q *processtest.Process, other *fleet.Node)
	}{
		{"let go while it waits for the first node", 10 * time.Second, 15 * time.Second, func(t *testing.T, p *processtest.Process, n *fleet.Node, _ *processtest.Process, other *fleet.Node) {
			plan := createFor(t, p, n, other)
			time.Sleep(10 * time.Second)
			must(t, n.Claim(t.Context(), plan))
			n.LetGo(plan.ID)
		}},
		{"let go while it is claimed", 10 * time.Second, 15 * time.Second, func(t *testing.T, p *processtest.Process, n *fleet.Node, q *processtest.Process, other *fleet.Node) {
			plan := createFor(t, p, n, other)
			must(t, n.Claim(t.Context(), plan))
			n.LetGo(plan.ID)
			q.OnOp("UpdatePlan", func(_ context.Context, _ processtest.Call, do func() error) error {
				time.Sleep(12 * time.Second)
				q.On(nil)
				return do()
			})
			stale := *plan
			stale.State.Status, stale.State.ETag = workflow.NotStarted, "former"
			other.Offer(&stale)
			time.Sleep(12 * time.Second)
		}},
		{"let go again after its owner has just retried", 10 * time.Second, 25 * time.Second, func(t *testing.T, p *processtest.Process, n *fleet.Node, q *processtest.Process, other *fleet.Node) {
			plan := createFor(t, p, n, other)
			must(t, n.Claim(t.Context(), plan))
			n.LetGo(plan.ID)
			asked := make(chan bool)
			q.OnOp("FindMember", func(_ context.Context, _ processtest.Call, do func() error) error {
				q.On(nil)
				must(t, second(n.Take(t.Context(), plan.ID)))
				err := do()
				n.LetGo(plan.ID)
				close(asked)
				return err
			})
			<-asked
		}},
		{"let go, taken by another and let go again between two looks", 30 * time.Second, 105 * time.Second, func(t *testing.T, p *processtest.Process, n *fleet.Node, _ *processtest.Process, other *fleet.Node) {
			third := join(t, p, fleet.Options{})
			plan := createFor(t, p, n, other)
			must(t, n.Claim(t.Context(), plan))
			n.LetGo(plan.ID)
			time.Sleep(32 * time.Second) // other looks, and leaves n half an interval
			must(t, second(third.Take(t.Context(), plan.ID)))
			time.Sleep(8 * time.Second)
			third.LetGo(plan.ID)
			time.Sleep(5 * time.Second)
			must(t, second(n.Take(t.Context(), plan.ID)))
			if _, err := third.Take(t.Context(), plan.ID); !errors.Is(err, fleet.ErrOwned) { // which takes it off third's list
				t.Error(err)
			}
			n.LetGo(plan.ID)
		}},
		{"claimed by a node that leaves while it waits for that node", 10 * time.Second, 15 * time.Second, func(t *testing.T, p *processtest.Process, n *fleet.Node, _ *processtest.Process, other *fleet.Node) {
			plan := createFor(t, p, n, other)
			time.Sleep(10 * time.Second)
			must(t, n.Claim(t.Context(), plan))
			leave(t, n)
		}},
		{"of a node that left while searches failed", 10 * time.Second, time.Minute, func(t *testing.T, p *processtest.Process, n *fleet.Node, q *processtest.Process, other *fleet.Node) {
			must(t, n.Claim(t.Context(), createFor(t, p, n, other)))
			q.Fail("Search", processtest.Unavailable)
			leave(t, n)
			time.Sleep(45 * time.Minute)
			q.On(nil)
		}},
	} {
		t.Run(test.what, func(t *testing.T) {
			onStore(t, func(t *testing.T, store *memvault.Store) {
				p, n := start(t, store, fleet.Options{})
				q, other := start(t, store, fleet.Options{Interval: test.interval})
				time.Sleep(5 * time.Second) // between two of its looks
				found := plans(t.Context(), t, other)
				time.Sleep(2*time.Minute + time.Second)
				test.do(t, p, n, q, other)
				began := time.Now()
				within(t, found, test.within+time.Second/2)
				t.Logf("after %v of %v", time.Since(began), test.within)
			})
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

// TestTakesThatFail: a node tries to take a plan over and over, and fails each time after 5 seconds. Another node gets its
// turn between two tries, whenever it comes.
func TestTakesThatFail(t *testing.T) {
	for phase := range 25 { // in seconds, of a try and the pause after it
		onStore(t, func(t *testing.T, store *memvault.Store) {
			orphan(t, open(store), plantest.Small())
			p, n := start(t, store, fleet.Options{})
			p.OnOp("UpdateAction", func(ctx context.Context, c processtest.Call, _ func() error) error {
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				<-ctx.Done()
				return processtest.Unavailable(c.Op)
			})
			plans(t.Context(), t, n)
			time.Sleep(time.Minute + time.Duration(phase)*time.Second)
			within(t, plans(t.Context(), t, join(t, open(store), fleet.Options{})), 41*time.Second)
		})
	}
}
