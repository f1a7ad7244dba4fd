package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// keyed stores a plan with keys.
func keyed(t testing.TB, v storage.Vault, name string, keys ...workflow.Key) *workflow.Plan {
	t.Helper()
	return keyedBy(t, v, workflow.External{}, name, keys...)
}

// keyedBy stores a plan with keys that somebody places.
func keyedBy(t testing.TB, v storage.Vault, by workflow.External, name string, keys ...workflow.Key) *workflow.Plan {
	t.Helper()
	plan := plantest.Sized(1, 1, 1)
	plan.Name, plan.Keys, plan.External = name, keys, by
	must(t, v.Create(t.Context(), plan))
	return plan
}

// TestTurns has two nodes and plans with keys: no more than the limit work at once, the oldest first, and each in the end. The nodes
// search at different times, and no plan ends then: otherwise a plan may overtake another by one (docs/fleet.md).
func TestTurns(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := open(store)
		a, b := workflow.Key{Name: "a"}, workflow.Key{Name: "b", Limit: 2}
		for i := range 4 {
			keyed(t, v, fmt.Sprint("a", i), a)
			time.Sleep(time.Millisecond)
		}
		for i, keys := range [][]workflow.Key{{b}, {b, a}, {a, b}, {b}, {b}} {
			keyed(t, v, fmt.Sprint("b", i), keys...)
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		now, ended := map[string]int{}, make(chan string, 9)
		var order []string
		var mu sync.Mutex
		began := time.Now()
		for range 2 {
			p := open(store)
			n := join(t, p, fleet.Options{})
			go func() {
				for next := range n.Plans(ctx) {
					must(t, next.Err)
					go func() {
						plan := next.Result
						_, done := n.Work(plan.ID)
						defer done()
						mu.Lock()
						order = append(order, plan.Name)
						for _, k := range plan.Keys {
							if now[k.Name]++; now[k.Name] > max(k.Limit, 1) {
								t.Errorf("%d plans work at once for key %q", now[k.Name], k.Name)
							}
						}
						mu.Unlock()
						time.Sleep(time.Minute + time.Second)
						mu.Lock()
						for _, k := range plan.Keys {
							now[k.Name]--
						}
						mu.Unlock()
						must(t, finish(ctx, p, plan))
						n.GiveTurns(ctx, plan)
						ended <- plan.Name
					}()
				}
			}()
			time.Sleep(3 * time.Second)
		}
		for range 9 {
			<-ended
		}
		cancel()
		var as []string
		for _, name := range order {
			if name[0] == 'a' {
				as = append(as, name)
			}
		}
		if !slices.IsSorted(as) {
			t.Errorf("began in the order %v", order)
		}
		if took := time.Since(began); took > 9*time.Minute {
			t.Errorf("they took %v", took)
		}
		for k, err := range keysOf(t, v) {
			must(t, err)
			if k.Holders != 0 {
				t.Errorf("%q has %d holders in the end", k.Name, k.Holders)
			}
		}
	})
}

func keysOf(t testing.TB, v storage.Vault) func(yield func(storage.ListedKey, error) bool) {
	control, _ := storage.As[storage.Control](v)
	all, err := control.Keys(t.Context())
	must(t, err)
	return func(yield func(storage.ListedKey, error) bool) {
		for k := range all {
			if !yield(k.Result, k.Err) {
				return
			}
		}
	}
}

// TestTurnsOutliveNodes kills the node that works on a plan with a key: its next owner has the turn, and nobody else gets it.
func TestTurnsOutliveNodes(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		n := join(t, p, fleet.Options{})
		plan, next := keyed(t, p, "first", workflow.Key{Name: "a"}), (*workflow.Plan)(nil)
		must(t, n.Claim(t.Context(), plan))
		p.Kill()
		next = keyed(t, open(store), "next", workflow.Key{Name: "a"})
		q := open(store)
		m := join(t, q, fleet.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		found := plans(ctx, t, m)
		again := within(t, found, time.Minute)
		if again.ID != plan.ID {
			t.Fatalf("plan %s came first", again.Name)
		}
		synctest.Wait()
		select {
		case other := <-found:
			t.Errorf("plan %s has a turn, too", other.Name)
		case <-time.After(10 * time.Minute):
		}
		must(t, finish(ctx, q, again))
		if got := within(t, found, time.Minute); got.ID != next.ID {
			t.Errorf("plan %s came next", got.Name)
		}
	})
}

// TestUnique reserves a text for one open plan.
func TestUnique(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := open(store)
		first, second := plantest.Sized(1, 1, 1), plantest.Sized(1, 1, 1)
		first.Unique, second.Unique = "cluster 7", "cluster 7"
		first.ID, second.ID = workflow.NewV7(), workflow.NewV7()
		_, err := fleet.ReserveUnique(t.Context(), v, first)
		must(t, err)
		refused := func() {
			t.Helper()
			if holder, err := fleet.ReserveUnique(t.Context(), v, second); !errors.Is(err, storage.ErrExists) || holder != first.ID {
				t.Errorf("plan %s has it: %v", holder, err)
			}
		}
		refused()
		must(t, v.Create(t.Context(), first))
		time.Sleep(time.Hour)
		refused()
		must(t, v.Delete(t.Context(), first.ID))
		_, err = fleet.ReserveUnique(t.Context(), v, second)
		must(t, err)
		time.Sleep(time.Hour) // it was never created
		_, err = fleet.ReserveUnique(t.Context(), v, first)
		must(t, err)
	})
}
