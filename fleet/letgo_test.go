package fleet_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestLetGoTo: plans that a live node lets go are taken by another one at its next look at the members, without a
// search of all days. The first node takes nothing of them again as long as the other works.
func TestLetGoTo(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		var owned []*workflow.Plan
		for range 8 {
			owned = append(owned, claimed(t, p, n, 2))
		}
		own := plans(t.Context(), t, n)
		time.Sleep(3 * time.Second) // the nodes look at different times
		other := join(t, open(store), fleet.Options{})
		found := plans(t.Context(), t, other)
		time.Sleep(time.Minute + time.Second)
		for _, plan := range owned {
			work, done := n.Work(plan.ID)
			n.LetGo(plan.ID)
			done()
			if work.Err() == nil {
				t.Error("the work goes on")
			}
		}
		began := time.Now()
		for range owned {
			if taken := within(t, found, 15*time.Second); taken.Epoch != 2 || taken.Owner != other.ID() {
				t.Errorf("plan %s has epoch %d of %s", taken.ID, taken.Epoch, taken.Owner)
			}
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, plan := range owned {
			refused(t, p, plan)
		}
		time.Sleep(3 * time.Hour)
		if len(own) > 0 || len(roster(t, store)[n.ID()].LetGo) > 0 {
			t.Errorf("the first node got %d plans, and its record is %+v", len(own), roster(t, store)[n.ID()])
		}
	})
}

// TestLetGoAlone: where nobody else takes a plan, its node takes it again after pauses that double up to an hour.
func TestLetGoAlone(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		join(t, open(store), fleet.Options{}) // it looks for no plans
		found := plans(t.Context(), t, n)
		id := create(t, p, 1).ID
		within(t, found, 31*time.Second) // of which the other one has a head start of two intervals
		for _, minutes := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			n.LetGo(id)
			began := time.Now()
			p.OnOp("Read", func(_ context.Context, c processtest.Call, _ func() error) error {
				p.On(nil)
				began = began.Add(20 * time.Second) // a take that failed leaves others two intervals
				return processtest.Unavailable(c.Op)
			})
			plan := within(t, found, 2*time.Hour)
			if took := time.Since(began); took != minutes*time.Minute {
				t.Errorf("the plan came after %v, want %d minutes", took, minutes)
			}
			if listed := roster(t, store)[n.ID()].LetGo; len(listed) > 0 {
				t.Errorf("when it came, the record named %v", listed)
			}
			must(t, moves(t.Context(), p, actions(plan)[0], workflow.Running))
		}
		n.LetGo(id)
		time.Sleep(2 * time.Minute)
		must(t, fleet.Stop(t.Context(), p, id, ana))
		within(t, found, 11*time.Second)
		n.LetGo(id)
		within(t, found, time.Minute+time.Second)
		n.LetGo(workflow.NewV7()) // which is not its own
		time.Sleep(time.Second)   // between two searches
		for range 150 {
			plan := claimed(t, p, n, 0)
			n.LetGo(plan.ID)
		}
		time.Sleep(time.Second)
		if listed := len(roster(t, store)[n.ID()].LetGo); listed != storage.MaxLetGo {
			t.Errorf("the record names %d plans", listed)
		}
	})
}

// TestPauseOfAnotherOwner: a node that has let a plan go many times pauses for long. If another node takes the plan and
// dies, the first one takes it as if it had never had it.
func TestPauseOfAnotherOwner(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := claimed(t, p, n, 1)
		for range 6 { // to a pause of 32 minutes
			n.LetGo(plan.ID)
			must(t, second(n.Take(t.Context(), plan.ID)))
		}
		own := plans(t.Context(), t, n)
		time.Sleep(time.Second)
		n.LetGo(plan.ID)
		dying, other := start(t, store, fleet.Options{})
		within(t, plans(t.Context(), t, other), 16*time.Second)
		dying.Kill()
		if taken := within(t, own, 45*time.Second); taken.Owner != n.ID() {
			t.Errorf("the plan is %s's", taken.Owner)
		}
	})
}

// TestDrain: others see at once that a node drains. They claim new plans without waiting for it, and its loop ends.
func TestDrain(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := claimed(t, p, n, 1)
		own := plans(t.Context(), t, n)
		found := plans(t.Context(), t, join(t, open(store), fleet.Options{}))
		time.Sleep(time.Minute + time.Second)
		n.Drain()
		synctest.Wait()
		if m := roster(t, store)[n.ID()]; m.Phase != storage.PhaseLeaving {
			t.Errorf("the record is %+v", m)
		}
		if _, more := <-own; more {
			t.Error("the loop yields a plan")
		}
		time.Sleep(10 * time.Second) // until the other node has looked
		for range 20 {
			create(t, p, 1)
		}
		for range 20 {
			if got := within(t, found, 11*time.Second); got.ID == plan.ID {
				t.Error("the plan of the node that drains was taken")
			}
		}
		must(t, finish(t.Context(), p, plan))
	})
}

// TestDrainDuringATake: what a node was about to take when it drained, another one takes at once.
func TestDrainDuringATake(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := orphan(t, open(store), plantest.Small())
		p.OnOp("UpdateAction", func(ctx context.Context, c processtest.Call, _ func() error) error {
			<-ctx.Done()
			return processtest.Unknown(c.Op)
		})
		own := plans(t.Context(), t, n)
		time.Sleep(time.Second)
		found := plans(t.Context(), t, join(t, open(store), fleet.Options{}))
		time.Sleep(time.Minute)
		n.Drain()
		if taken := within(t, found, 15*time.Second); taken.ID != plan.ID || taken.Epoch != 3 || len(own) > 0 {
			t.Errorf("plan %s has epoch %d", taken.ID, taken.Epoch)
		}
	})
}

// TestHalfTakenPlan: a node becomes the owner of a plan and fails to finish the fence, after 10 seconds at each try. Another
// node takes the plan between two tries, whenever it comes, although the owner is alive.
func TestHalfTakenPlan(t *testing.T) {
	for phase := range 30 { // in seconds, of a try and the pause after it
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			plan := orphan(t, open(store), plantest.Small())
			p.OnOp("UpdateAction", func(ctx context.Context, c processtest.Call, _ func() error) error {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				<-ctx.Done()
				return processtest.Unavailable(c.Op)
			})
			plans(t.Context(), t, n)
			time.Sleep(time.Minute + time.Duration(phase)*time.Second)
			if now := read(t, p, plan.ID); now.Owner != n.ID() {
				t.Fatalf("the owner is %s", now.Owner)
			}
			taken := within(t, plans(t.Context(), t, join(t, open(store), fleet.Options{})), 26*time.Second)
			must(t, finish(t.Context(), open(store), taken))
			if taken.ID != plan.ID || n.Context().Err() != nil {
				t.Errorf("plan %s was taken", taken.ID)
			}
		})
	}
}

// TestAnnouncementAfterAnUnknownHeartbeat: the answer to a heartbeat is lost, and what the record says changes before
// the heartbeat is repeated. The node is not fenced, and others see the change.
func TestAnnouncementAfterAnUnknownHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		v, transport := azure(t, server)
		n := join(t, v, fleet.Options{})
		plan := claimed(t, v, n, 1)
		transport.Inject(emulator.On(emulator.PutBlob).Path("*/nodes/*").Times(20).Do(emulator.LostAnswer()))
		time.Sleep(12 * time.Second)
		n.LetGo(plan.ID)
		transport.ClearFaults()
		time.Sleep(12 * time.Second)
		if err := context.Cause(n.Context()); err != nil {
			t.Error(err)
		}
		m, err := v.Control().FindMember(t.Context(), n.ID())
		if err != nil || !slices.Equal(m.LetGo, []uuid.UUID{plan.ID}) {
			t.Errorf("the record is %+v, %v", m, err)
		}
		must(t, second(n.Take(t.Context(), plan.ID)))
	})
}

// TestFormer: a process that was evicted and joins again leaves its former plans to other nodes, if there are any.
func TestFormer(t *testing.T) {
	for _, others := range []int{0, 1} {
		onStores(t, []bool{false, true}, func(t *testing.T, store *memvault.Store, handsOver bool) {
			p, n := start(t, store, fleet.Options{})
			const owned = 8
			var last *workflow.Plan
			for range owned {
				last = claimed(t, p, n, 1)
			}
			var found <-chan *workflow.Plan
			for range others {
				found = plans(t.Context(), t, join(t, open(store), fleet.Options{}))
			}
			time.Sleep(time.Minute + 3*time.Second) // between two looks: a node that looks now would take the plans before HandOver
			evicted := time.Now()
			must(t, fleet.Evict(t.Context(), open(store), n.ID(), fleet.EvictOptions{By: ana}))
			if handsOver {
				must(t, second(fleet.HandOver(t.Context(), open(store), last.ID, fleet.HandOverOptions{By: ana})))
			}
			<-n.Context().Done()
			joined := join(t, p, fleet.Options{Former: []uuid.UUID{workflow.NewV7(), n.ID()}})
			if former := roster(t, store)[joined.ID()].Former; former != n.ID() {
				t.Errorf("the record names %s as its former ID, not %s", former, n.ID())
			}
			again := plans(t.Context(), t, joined)
			if others == 0 {
				found = again
			}
			for range owned {
				within(t, found, time.Until(evicted.Add(15*time.Second)))
			}
		})
	}
}

// TestRest: a plan that rests holds no place.
func TestRest(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{Capacity: 2})
		for range 6 {
			create(t, p, 1)
		}
		found := plans(t.Context(), t, n)
		sleeping := []*workflow.Plan{within(t, found, time.Minute), within(t, found, time.Minute)}
		time.Sleep(time.Minute)
		owns := func(more int) {
			t.Helper()
			time.Sleep(time.Minute)
			if len(found) != more {
				t.Errorf("the node got %d plans more, want %d", len(found), more)
			}
		}
		owns(0)
		wake, again := n.Rest(sleeping[0].ID), n.Rest(sleeping[0].ID)
		owns(1)
		wake()
		wake() // in vain
		_, done := n.Work(sleeping[1].ID)
		done()
		owns(2) // one sleeps, two do not
		again()
		_, done = n.Work(within(t, found, time.Millisecond).ID)
		done()
		owns(1) // three are awake, and now two
		n.Rest(sleeping[0].ID)
		_, done = n.Work(sleeping[0].ID)
		done() // which ends the rest too
		owns(2)
		n.Rest(workflow.NewV7())()
	})
}

// TestOffer: a plan that is offered is claimed at once, by its first request, even while a search hangs.
func TestOffer(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{Capacity: 2})
		n.Offer(create(t, p, 1)) // there is no loop yet
		found := plans(t.Context(), t, n)
		time.Sleep(time.Minute)
		_, done := n.Work(within(t, found, time.Millisecond).ID)
		ops := make(chan string, 1000)
		p.On(func(ctx context.Context, c processtest.Call, do func() error) error {
			ops <- c.Op
			if c.Op == "Search" {
				<-ctx.Done()
				return ctx.Err()
			}
			return do()
		})
		time.Sleep(15 * time.Second) // a search hangs
		for len(ops) > 0 {
			<-ops
		}
		plan := create(t, p.Store, 1)
		n.Offer(plan)
		if got := within(t, found, time.Millisecond); got != plan || got.Owner != n.ID() || got.State.Status != workflow.Running {
			t.Errorf("%+v", got)
		}
		if n, op := len(ops), <-ops; n != 1 || op != "UpdatePlan" {
			t.Errorf("%d requests, the first %s", n, op)
		}
		full := create(t, p.Store, 1)
		n.Offer(full)
		time.Sleep(time.Second)
		done()
		p.On(nil)
		if got := within(t, found, 25*time.Second); got.ID != full.ID {
			t.Errorf("plan %s", got.ID)
		}
	})
}

// TestOfferOfAPlanThatChanged: others may have claimed a plan that is offered, and then it is theirs. If a search has found it, and
// this node works on it, the work goes on.
func TestOfferOfAPlanThatChanged(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		found := plans(t.Context(), t, n)
		time.Sleep(time.Second)
		plan := create(t, p, 1)
		other := join(t, open(store), fleet.Options{})
		must(t, other.Claim(t.Context(), read(t, p, plan.ID)))
		n.Offer(plan)
		n.Offer(claimed(t, p, other, 1))
		n.Offer(nil)
		time.Sleep(time.Hour)
		if len(found) > 0 || plan.State.Status != workflow.NotStarted {
			t.Errorf("it was claimed twice: %+v", plan)
		}
		late := create(t, p, 1)
		if got := within(t, found, time.Minute); got.ID != late.ID {
			t.Errorf("plan %s", got.ID)
		}
		work, _ := n.Work(late.ID)
		n.Offer(late)
		if time.Sleep(time.Hour); work.Err() != nil || len(found) > 0 {
			t.Errorf("the work ended: %v", context.Cause(work))
		}
	})
}

// TestUnsuitedPlans: a plan that a program has no plugins for is read once, and again in a new version. If it sleeps, one node
// lists it for the others.
func TestUnsuitedPlans(t *testing.T) {
	efforttest.NotShort(t, "it looks each second for hours of virtual time")
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		var reads, errs atomic.Int64
		for range 2 {
			p := open(store)
			p.OnOp("Read", func(context.Context, processtest.Call, func() error) error {
				reads.Add(1)
				return fleet.ErrUnsuited
			})
			_, failed := results(t.Context(), join(t, p, fleet.Options{}))
			go func() {
				for range failed {
					errs.Add(1)
				}
			}()
		}
		time.Sleep(15 * time.Second) // they know each other
		all := []*workflow.Plan{orphan(t, p, plantest.Small()), create(t, p, 1), asleep(t, p, n, 2*time.Hour)}
		leave(t, n)
		listed, until := 0, time.Now().Add(10*time.Hour)
		for time.Now().Before(until) {
			time.Sleep(time.Second)
			now := 0
			for _, m := range roster(t, store) {
				now += len(m.LetGo)
			}
			listed = max(listed, now)
		}
		if reads.Load() != 6 || errs.Load() != 6 || listed != 1 {
			t.Errorf("%d reads, %d errors, %d listed", reads.Load(), errs.Load(), listed)
		}
		for _, stored := range all {
			must(t, p.Store.UpdatePlan(t.Context(), stored))
		}
		time.Sleep(61 * time.Minute)
		if reads.Load() != 12 {
			t.Errorf("after an update of all, %d reads", reads.Load())
		}
	})
}

// skewed is a store whose clock differs from the processes'.
type skewed struct {
	*processtest.Process
	by func() time.Duration
}

func (s skewed) Roster(ctx context.Context) (storage.Roster, error) {
	r, err := s.Process.Roster(ctx)
	r.Now = r.Now.Add(s.by()).Truncate(time.Second)
	for i := range r.Members {
		r.Members[i].Renewed = r.Members[i].Renewed.Add(s.by())
	}
	return r, err
}

// TestNow: a node tells the store's time, and stores it when it claims a plan.
func TestNow(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		var by atomic.Int64
		by.Store(int64(-10 * time.Minute))
		p := skewed{open(store), func() time.Duration { return time.Duration(by.Load()) }}
		off := func(n *fleet.Node) time.Duration { return time.Until(n.Now()).Round(time.Second) }
		n := join(t, p, fleet.Options{})
		if off := off(n); off != p.by() {
			t.Errorf("the clock is off by %v", off)
		}
		if plan := claimed(t, p, n, 1); time.Since(plan.State.Start).Round(time.Second) != -p.by() {
			t.Errorf("the plan started at %v", plan.State.Start)
		}
		for _, step := range []struct{ by, want time.Duration }{{time.Second, time.Second}, {time.Hour, time.Hour}, {time.Hour + 2*time.Second, time.Hour}} {
			by.Store(int64(step.by))
			time.Sleep(11 * time.Second)
			if off := off(n); off < step.want-time.Second || off > step.want+time.Second {
				t.Errorf("where the store is off by %v, the node is by %v", step.by, off)
			}
		}
		by.Store(0)
		if n := join(t, p, fleet.Options{}); time.Until(n.Now()) > 0 || n.Now().Location() != time.UTC {
			t.Errorf("now is %v, want %v", n.Now(), time.Now())
		}
	})
}

// TestReport: what a node reports is on its record from the next heartbeat on, fit for people, and explains its plans.
func TestReport(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := claimed(t, p, n, 1)
		n.Report("403 at the\nentry of plan \xff" + strings.Repeat("ж", 1000))
		time.Sleep(20 * time.Minute)
		why := inspect(t, p, fleet.InspectOptions{}).Plans[0].Why
		if trouble := roster(t, store)[n.ID()].Trouble; !strings.HasPrefix(trouble, "403 at the entry of plan \uFFFDж") || len(trouble) > 500 {
			t.Errorf("the record says %q", trouble)
		}
		if !strings.Contains(why, `It reports: 403 at the entry`) {
			t.Errorf("%s", why)
		}
		n.Report("")
		n.LetGo(plan.ID)
		time.Sleep(20 * time.Second)
		i := inspect(t, p, fleet.InspectOptions{})
		if trouble := roster(t, store)[n.ID()].Trouble; trouble != "" || i.Plans[0].Condition != fleet.ConditionOrphaned || !strings.Contains(i.Plans[0].Why, "has let it go") {
			t.Errorf("the record says %q, and the plan is %+v", trouble, i.Plans[0])
		}
	})
}

// TestClusterRestart: all nodes die, and five new ones start. They take a thousand plans as soon as they may judge the
// owners, at 20 ms a request.
func TestClusterRestart(t *testing.T) {
	orphans := efforttest.Pick(100, 1000, 1000)
	onStore(t, func(t *testing.T, store *memvault.Store) {
		old, n := start(t, store, fleet.Options{})
		for range orphans {
			claimed(t, old, n, 10)
		}
		old.Kill()
		taken := make(chan *workflow.Plan, orphans)
		for range 5 {
			p := open(store)
			p.Before("", func() { time.Sleep(20 * time.Millisecond) })
			n := join(t, p, fleet.Options{})
			go func() {
				for next := range n.Plans(t.Context()) {
					must(t, next.Err)
					taken <- next.Result
				}
			}()
		}
		began := time.Now()
		for range orphans {
			within(t, taken, time.Minute)
		}
		took := time.Since(began)
		t.Logf("the last plan was taken after %v", took)
		if took > 31*time.Second {
			t.Errorf("the last plan was taken after %v", took)
		}
	})
}
