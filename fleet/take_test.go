package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// orphan stores a running plan of a node that is no member.
func orphan(t testing.TB, v storage.Vault, plan *workflow.Plan) *workflow.Plan {
	t.Helper()
	must(t, v.Create(t.Context(), plan))
	plan.Owner, plan.Epoch = workflow.NewV7(), 1
	must(t, moves(t.Context(), v, plan, workflow.Running))
	return plan
}

// versions returns the versions of a plan's sub-objects.
func versions(plan *workflow.Plan) (list []string) {
	for _, o := range workflow.Parts(plan) {
		list = append(list, o.Header().State.ETag)
	}
	return list
}

func TestTake(t *testing.T) {
	for _, test := range []struct {
		name  string
		o     fleet.Options
		plan  making
		want  error
		epoch int64
		state workflow.Status
	}{
		{"of a dead member", fleet.Options{}, func(s scene) *workflow.Plan {
			plan := orphan(s.t, s.p, plantest.Full())
			for i, o := range workflow.Parts(plan) {
				for range i % 3 { // NotStarted, Running and Completed ones
					must(s.t, moves(s.t.Context(), s.p, o, o.Header().State.Status+1))
				}
			}
			return plan
		}, nil, 2, workflow.Running},
		{"that is the node's own", fleet.Options{}, ofTheNode, nil, 2, workflow.Running},
		{"that was let go", fleet.Options{}, func(s scene) *workflow.Plan {
			plan := ofTheNode(s)
			_, done := s.n.Work(plan.ID)
			done()
			return plan
		}, nil, 2, workflow.Running},
		{"that has not begun", fleet.Options{}, unbegun, nil, 1, workflow.Running},
		{"that is final", fleet.Options{}, ended, nil, 1, workflow.Completed},
		{"of another member", fleet.Options{}, func(s scene) *workflow.Plan {
			return claimed(s.t, s.p, join(s.t, s.p, fleet.Options{}), 2) // joined since the last look
		}, fleet.ErrOwned, 1, workflow.Running},
		{"of a member that took it from the node", fleet.Options{}, func(s scene) *workflow.Plan {
			plan := ofTheNode(s)
			plan.Owner, plan.Epoch = workflow.NewV7(), 2
			must(s.t, s.p.UpdatePlan(s.t.Context(), plan))
			return plan
		}, fleet.ErrFenced, 2, workflow.Running},
		{"of an engine without claims", fleet.Options{}, unclaimed, fleet.ErrOwned, 0, workflow.Running},
		{"of an engine without claims, which may be taken", fleet.Options{TakeUnclaimed: true}, unclaimed, nil, 2, workflow.Running},
		{"that does not exist", fleet.Options{}, unknownOne, storage.ErrNotFound, 0, 0},
	} {
		storeRun(t, test.name, func(t *testing.T, store *memvault.Store) {
			p := open(store)
			n := join(t, p, test.o)
			id := test.plan(scene{t, store, p, n}).ID
			var before *workflow.Plan
			if !errors.Is(test.want, storage.ErrNotFound) {
				before = read(t, p, id)
			}
			held, _ := n.Work(id)
			plan, err := n.Take(t.Context(), id)
			if !errors.Is(err, test.want) || (plan == nil) != (err != nil) {
				t.Fatalf("%v, %v, want %v", plan, err, test.want)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), id.String())) {
				t.Errorf("the error is %q", err)
			}
			if errors.Is(err, fleet.ErrFenced) && !errors.Is(context.Cause(held), fleet.ErrFenced) {
				t.Errorf("the work ended with %v", context.Cause(held))
			}
			if before == nil {
				return
			}
			now := read(t, p, id)
			if now.Epoch != test.epoch || now.State.Status != test.state {
				t.Errorf("the plan is %s with epoch %d", now.State.Status, now.Epoch)
			}
			if err != nil || now.State.Status.Final() {
				return
			}
			if now.Owner != n.ID() {
				t.Errorf("the owner is %s", now.Owner)
			}
			if diff := plantest.Diff(now, plan); diff != "" || !slices.Equal(versions(now), versions(plan)) {
				t.Errorf("Take returned another plan than is stored: %s", diff)
			}
			if work, _ := n.Work(id); work.Err() != nil {
				t.Errorf("the work has ended with %v", context.Cause(work))
			}
			if before.State.Status != workflow.Running {
				return
			}
			for i, v := range versions(before) {
				if versions(now)[i] == v {
					t.Errorf("the %s was not stored again", workflow.Parts(now)[i].Kind())
				}
			}
			before.Owner, before.Epoch = now.Owner, now.Epoch
			if diff := plantest.Diff(before, now); diff != "" {
				t.Errorf("the take changed the plan: %s", diff)
			}
		})
	}
}

// TestTakeBeginsAgain lets the former owner write while its plan is taken: before and during the fence. The
// take begins again, and returns what the former owner wrote.
func TestTakeBeginsAgain(t *testing.T) {
	onStores(t, []string{"UpdatePlan", "UpdateAction"}, func(t *testing.T, store *memvault.Store, at string) {
		former, p := open(store), open(store)
		plan := orphan(t, former, plantest.Sized(1, 1, 3))
		var took []fleet.TakeoverEvent
		n := join(t, p, fleet.Options{Observer: fleet.Observer{Takeover: func(_ context.Context, o fleet.TakeoverEvent) { took = append(took, o) }}})
		var once sync.Once // the updates of a fence are made at once
		p.OnOp(at, func(_ context.Context, _ processtest.Call, do func() error) error {
			once.Do(func() { must(t, moves(t.Context(), former, actions(plan)[2], workflow.Running)) })
			return do()
		})
		taken, err := n.Take(t.Context(), plan.ID)
		must(t, err)
		if s := actions(taken)[2].State.Status; s != workflow.Running {
			t.Errorf("at %s: the action that the former owner began is %s", at, s)
		}
		if len(took) != 1 || took[0].Rounds != 2 || took[0].Epoch != taken.Epoch || took[0].Plan != plan.ID {
			t.Errorf("at %s: took %+v with epoch %d", at, took, taken.Epoch)
		}
		for _, o := range workflow.Parts(plan) {
			fails(t, storage.Update(t.Context(), former, o), storage.ErrConflict, "at %s: the former owner's update of the %s", at, o.Kind())
		}
		must(t, finish(t.Context(), p, taken))
	})
}

func TestTakeOfAPlanThatKeepsChanging(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		former, p := open(store), open(store)
		plan := orphan(t, former, plantest.Sized(1, 1, 3))
		n := join(t, p, fleet.Options{})
		reads := 0
		p.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if c.Op == "UpdateBlock" {
				must(t, former.UpdateBlock(t.Context(), read(t, former, plan.ID).Blocks[0]))
			}
			if c.Op == "Read" {
				reads++
			}
			return do()
		})
		if _, err := n.Take(t.Context(), plan.ID); !errors.Is(err, storage.ErrConflict) || reads != 16 {
			t.Errorf("Take returned %v after %d rounds", err, reads)
		}
	})
}

// TestTakesOfOneNode: two takes of a plan by one node wait for each other, and the second one's plan is the one
// that can be worked on.
func TestTakesOfOneNode(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		plan := orphan(t, p, plantest.Full())
		n := join(t, p, fleet.Options{})
		p.Before("", func() { time.Sleep(time.Millisecond) })
		epochs := make(chan int64, 2)
		for range 2 {
			go func() {
				taken, err := n.Take(t.Context(), plan.ID)
				must(t, err)
				epochs <- taken.Epoch
			}()
		}
		if a, b := <-epochs, <-epochs; a != 2 || b != 3 {
			t.Errorf("the epochs are %d and %d", a, b)
		}
	})
}

// TestTakeCutShort ends a take at each of its calls, before and after the call takes effect: the taker dies, its
// context ends, or the outcome is unknown. The next take finishes, and its owner alone ends the plan.
func TestTakeCutShort(t *testing.T) {
	for _, after := range []bool{false, true} {
		for _, how := range []string{"dies", "cancelled", "unknown"} {
			for n, more := 1, true; more; n++ {
				synctest.Test(t, func(t *testing.T) { more = cutShort(t, n, after, how) })
			}
		}
	}
}

// cutShort cuts a take short at its nth call. It reports whether there was such a call.
func cutShort(t *testing.T, nth int, after bool, how string) bool {
	store := memvault.NewStore()
	first, second := open(store), open(store)
	plan := orphan(t, first, efforttest.Pick(plantest.Small, plantest.Small, plantest.Full)())
	a := join(t, first, fleet.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	calls, met := 0, false
	first.On(func(ctx context.Context, c processtest.Call, do func() error) error {
		if c.Op == "RenewMember" || c.Op == "Roster" || c.Op == "RemoveMember" {
			return do()
		}
		mu.Lock()
		calls++
		hit, dead := calls == nth, met && how == "dies"
		met = met || hit
		mu.Unlock()
		if dead {
			return processtest.Unavailable(c.Op)
		}
		if !hit {
			return do()
		}
		if after {
			_ = do()
		}
		switch how {
		case "dies":
			return processtest.Unavailable(c.Op)
		case "cancelled":
			cancel()
			return errors.Join(ctx.Err(), processtest.Unknown(c.Op))
		}
		return processtest.Unknown(c.Op)
	})
	taken, err := a.Take(ctx, plan.ID)
	isRead := nth == 1 || nth == 2 // Read and FindMember have no outcome that could be processtest.Unknown, and are not repeated here
	if how == "unknown" && met && !isRead && err != nil {
		t.Fatalf("call %d, after %t: Take after an unknown outcome returned %v", nth, after, err)
	}
	if err == nil {
		must(t, finish(t.Context(), first.Store, taken))
		return met
	}
	time.Sleep(11 * time.Second) // so that the others may have seen it
	leave(t, a)                  // as death does, sooner or later
	b := join(t, second, fleet.Options{})
	taken, err = b.Take(t.Context(), plan.ID)
	if err != nil {
		t.Fatalf("call %d, after %t, %s: the next take returned %v", nth, after, how, err)
	}
	fails(t, finish(t.Context(), first.Store, plan), storage.ErrConflict, "call %d, after %t, %s: the first owner's update", nth, after, how)
	must(t, finish(t.Context(), second, taken))
	return met
}

// TestTakeBesideAnOutage: an owner that can't be looked up is not dead.
func TestTakeBesideAnOutage(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		plan := orphan(t, p, plantest.Small())
		n := join(t, p.Fail("FindMember", processtest.Unavailable), fleet.Options{})
		fails(t, second(n.Take(t.Context(), plan.ID)), storage.ErrUnavailable, "Take")
		if now := read(t, p, plan.ID); now.Epoch != 1 {
			t.Errorf("the plan has epoch %d", now.Epoch)
		}
	})
}

// TestExcuseOfAnEviction takes a plan from a dead node that a person evicted just before the taker could mark it.
func TestExcuseOfAnEviction(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, person := open(store), open(store)
		plan := orphan(t, p, plantest.Small())
		evicted, n := start(t, store, fleet.Options{})
		taken, err := n.Take(t.Context(), plan.ID)
		must(t, err)
		a := actions(taken)[0]
		a.State.Status, a.Attempts = workflow.Running, []workflow.Attempt{{Start: time.Now(), Owner: n.ID()}}
		must(t, storage.Update(t.Context(), evicted, a))
		evicted.Kill()
		var judged atomic.Bool
		p.OnOp("RenewMember", func(ctx context.Context, c processtest.Call, do func() error) error {
			if c.Plan != n.ID() { // the member
				return do()
			}
			judged.Store(true)
			return errors.Join(fleet.Evict(ctx, person, n.ID(), fleet.EvictOptions{By: ana}), do())
		})
		next := join(t, p, fleet.Options{})
		for !judged.Load() {
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if taken, err = next.Take(t.Context(), plan.ID); err != nil || !actions(taken)[0].Attempts[0].Interrupted {
			t.Errorf("not interrupted, %v", err)
		}
	})
}

// TestExcusedAttempts takes a plan from a node that drained and died. An attempt of it that never ended was interrupted, also
// if an earlier take was cut short, and that of an owner before it was not.
func TestExcusedAttempts(t *testing.T) {
	for _, test := range []struct {
		name            string
		earlier, broken bool // the attempt is an earlier owner's; the first take fails behind the entry
		want            bool
	}{
		{name: "its own", want: true},
		{name: "its own, and a take was cut short", broken: true, want: true},
		{name: "of an earlier owner", earlier: true},
	} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p := open(store)
			plan := orphan(t, p, plantest.Small())
			earlier := plan.Owner
			drained, n := start(t, store, fleet.Options{})
			taken, err := n.Take(t.Context(), plan.ID)
			must(t, err)
			a := actions(taken)[0]
			a.State.Status, a.Attempts = workflow.Running, []workflow.Attempt{{Start: time.Now(), Owner: n.ID()}}
			if test.earlier {
				a.Attempts[0].Owner = earlier
			}
			must(t, storage.Update(t.Context(), drained, a))
			n.Drain()
			time.Sleep(time.Second)
			drained.Kill()
			cut := false
			p.OnOp("UpdateAction", func(_ context.Context, c processtest.Call, do func() error) error {
				if cut {
					return processtest.Unavailable(c.Op)
				}
				return do()
			})
			next := join(t, p, fleet.Options{})
			time.Sleep(2 * time.Minute)
			if cut = test.broken; cut {
				if _, err = next.Take(t.Context(), plan.ID); !errors.Is(err, storage.ErrUnavailable) {
					t.Errorf("%s: a take that is cut short returned %v", test.name, err)
				}
				cut = false
			}
			if taken, err = next.Take(t.Context(), plan.ID); err != nil || actions(taken)[0].Attempts[0].Interrupted != test.want {
				t.Errorf("%s: interrupted is %t, %v", test.name, !test.want, err)
			}
		})
	}
}
