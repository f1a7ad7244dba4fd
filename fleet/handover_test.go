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

	"github.com/planvault/azblob/internal/settings"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// refused fails the test unless every update by the former owner of a plan is refused.
func refused(t testing.TB, v storage.Vault, former *workflow.Plan) {
	t.Helper()
	for _, o := range append(workflow.Parts(former), former) {
		fails(t, storage.Update(t.Context(), v, o), storage.ErrConflict, "an update of the %s by the former owner", o.Kind())
	}
}

// TestHandOver hands over a plan that live nodes have not noticed. It is fenced at once, and a live node takes it at its
// next look at the members.
func TestHandOver(t *testing.T) {
	onStores(t, []time.Duration{3 * time.Second, 30 * time.Second, 5 * time.Minute}, func(t *testing.T, store *memvault.Store, ttl time.Duration) {
		p, n := start(t, store, fleet.Options{Interval: min(ttl/3, 20*time.Second), TTL: ttl})
		found := plans(t.Context(), t, n)
		time.Sleep(time.Minute + time.Second/2) // after the node's search of all days, and between two others
		plan := orphan(t, p, plantest.Full())
		from := plan.Owner
		time.Sleep(10 * time.Minute)
		if now := read(t, p, plan.ID); now.Owner != from {
			t.Fatal("the node has found the plan by itself")
		}
		began := time.Now()
		h, err := fleet.HandOver(t.Context(), p, plan.ID, fleet.HandOverOptions{By: ana, Name: "operator"})
		must(t, err)
		if took := time.Since(began); took != 0 {
			t.Errorf("with a TTL of %v it took %v", ttl, took)
		}
		if h.From != from || h.Epoch != 2 || h.Status != workflow.Running || len(h.Live) != 1 || h.Live[0].ID != n.ID() {
			t.Errorf("%+v", h)
		}
		refused(t, p, plan)
		taken := within(t, found, ttl)
		if taken.ID != plan.ID || taken.Epoch != 3 || taken.Owner != n.ID() {
			t.Errorf("plan %s has epoch %d of %s", taken.ID, taken.Epoch, taken.Owner)
		}
		if m := roster(t, store); len(m) != 1 || m[n.ID()].ID != n.ID() {
			t.Errorf("the members are %v", m)
		}
		before := plantest.Clone(plan)
		before.Owner, before.Epoch = taken.Owner, taken.Epoch
		if diff := plantest.Diff(before, taken); diff != "" {
			t.Errorf("the plan has changed: %s", diff)
		}
	})
}

// TestHandOverOfASilentOwner waits until the owner is dead, with and without others who bury it.
func TestHandOverOfASilentOwner(t *testing.T) {
	onStores(t, []int{0, 1}, func(t *testing.T, store *memvault.Store, nodes int) {
		p, dying := open(store), open(store)
		n := join(t, dying, fleet.Options{})
		plan := claimed(t, p, n, 2)
		dying.Kill()
		time.Sleep(31 * time.Second)
		for range nodes {
			join(t, p, fleet.Options{})
		}
		began := time.Now()
		h, err := fleet.HandOver(t.Context(), p, plan.ID, fleet.HandOverOptions{By: ana})
		must(t, err)
		if took := time.Since(began); took < 30*time.Second || took > 45*time.Second {
			t.Errorf("it took %v", took)
		}
		if h.From != n.ID() || h.Epoch != 2 || len(h.Live) != nodes {
			t.Errorf("%+v", h)
		}
		refused(t, p, plan)
		// The next engine finds an owner that is gone, and need not watch for a TTL.
		if nodes == 0 {
			if m := roster(t, store); len(m) != 0 {
				t.Errorf("the members are %v", m)
			}
			must(t, finish(t.Context(), p, within(t, plans(t.Context(), t, join(t, p, fleet.Options{})), time.Second)))
		}
	})
}

func TestHandOverFails(t *testing.T) {
	for _, test := range []struct {
		name string
		o    fleet.HandOverOptions
		plan making
		want error
		text string
	}{
		{"of a live node", fleet.HandOverOptions{By: ana, TakeUnclaimed: true}, func(s scene) *workflow.Plan {
			return claimed(s.t, s.p, join(s.t, s.p, fleet.Options{Name: "other"}), 1)
		}, fleet.ErrOwned, "node other ("},
		{"of an engine without claims", fleet.HandOverOptions{By: ana}, func(s scene) *workflow.Plan {
			join(s.t, s.p, fleet.Options{})
			return unclaimed(s)
		}, fleet.ErrOwned, "an engine without a fleet began it"},
		{"of an engine without claims, for nobody", fleet.HandOverOptions{By: ana, TakeUnclaimed: true}, unclaimed, fleet.ErrOwned, "no node is alive to take it"},
		{"that has not begun", fleet.HandOverOptions{By: ana}, unbegun, storage.ErrInvalid, "is NotStarted"},
		{"that is final", fleet.HandOverOptions{By: ana}, ended, storage.ErrInvalid, "is Completed"},
		{"that does not exist", fleet.HandOverOptions{By: ana}, unknownOne, storage.ErrNotFound, "not found"},
		{"that another node takes meanwhile", fleet.HandOverOptions{By: ana}, func(s scene) *workflow.Plan {
			plan, n := orphaned(s), join(s.t, open(s.store), fleet.Options{})
			beforeFirst(s.p, "AddMember", func() { must(s.t, second(n.Take(s.t.Context(), plan.ID))) })
			return plan
		}, fleet.ErrOwned, "somebody else works on the plan"},
		{"of a silent node that wakes up", fleet.HandOverOptions{By: ana}, func(s scene) *workflow.Plan {
			sleeper, n := start(s.t, s.store, fleet.Options{})
			plan := claimed(s.t, s.p, n, 1)
			sleeper.Freeze()
			time.Sleep(time.Minute)
			beforeFirst(s.p, "AddMember", sleeper.Thaw)
			return plan
		}, fleet.ErrOwned, "has renewed its record"},
	} {
		storeRun(t, test.name, func(t *testing.T, store *memvault.Store) {
			p := open(store)
			id := test.plan(scene{t: t, store: store, p: p}).ID
			_, err := fleet.HandOver(t.Context(), p, id, test.o)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), id.String()) || strings.Contains(err.Error(), "\n") {
				t.Errorf("HandOver returned %v", err)
			}
		})
	}
}

// beforeFirst does something before the first call of an operation.
func beforeFirst(p *processtest.Process, op string, before func()) {
	p.OnOp(op, func(_ context.Context, _ processtest.Call, do func() error) error {
		p.On(nil)
		before()
		return do()
	})
}

// TestEvict evicts a member that is alive. It lets go of its plans within its interval, others take them, and the
// store refuses what it writes.
func TestEvict(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, hung := start(t, store, fleet.Options{})
		var owned []*workflow.Plan
		for range 2 {
			plan := claimed(t, p, hung, 2)
			owned = append(owned, plan)
		}
		work, _ := hung.Work(owned[0].ID)
		live := join(t, open(store), fleet.Options{})
		found := plans(t.Context(), t, live)
		time.Sleep(15 * time.Second)
		// A heartbeat comes between the look at the record and its mark.
		operator, renewed := open(store), 0
		operator.OnOp("RenewMember", func(_ context.Context, c processtest.Call, do func() error) error {
			if renewed++; renewed <= 2 {
				time.Sleep(11 * time.Second)
			}
			if renewed == 3 {
				return errors.Join(do(), processtest.Unknown(c.Op)) // the answer is lost
			}
			return do()
		})
		must(t, fleet.Evict(t.Context(), operator, hung.ID(), fleet.EvictOptions{By: ana}))
		if renewed != 4 {
			t.Errorf("%d tries", renewed)
		}
		for range owned {
			within(t, found, 12*time.Second)
		}
		time.Sleep(10 * time.Second)
		if !errors.Is(context.Cause(work), fleet.ErrFenced) || !errors.Is(context.Cause(hung.Context()), fleet.ErrFenced) {
			t.Errorf("the work ended with %v, the node with %v", context.Cause(work), context.Cause(hung.Context()))
		}
		for _, plan := range owned {
			refused(t, p, plan)
		}
		fails(t, fleet.Evict(t.Context(), operator, hung.ID(), fleet.EvictOptions{By: ana}), storage.ErrNotFound, "a second Evict")
		fails(t, fleet.Evict(t.Context(), operator.Fail("RenewMember", processtest.Unavailable), live.ID(), fleet.EvictOptions{By: ana}), storage.ErrUnavailable, "an Evict without the store")
	})
}

// TestHandOverAtEachRequest lets an operator meet a fault at each request of an eviction and a handover, beside a
// live engine: a crash before or after the request takes effect, or a lost answer. After a crash, another
// operator does the same again. The plan is Completed, no Completed action runs again, and the former owner's
// writes are refused.
func TestHandOverAtEachRequest(t *testing.T) {
	effects := []emulator.Effect{emulator.Crash().Applied(), emulator.Crash(), emulator.LostAnswer(), emulator.LostRequest(), emulator.Answer(503, "ServerBusy")}
	for _, effect := range effects[:efforttest.Pick(1, 1, 5)] {
		nth := 1
		for more := true; more; nth += efforttest.Pick(9, 1, 1) {
			synctest.Test(t, func(t *testing.T) { more = handOverWith(t, effect, nth) })
		}
		if nth < 12 {
			t.Errorf("%v at %d requests alone", effect, nth)
		}
	}
}

// handOverWith evicts a node that hangs and hands its plan over while the nth request meets a fault. It reports
// whether there was such a request.
func handOverWith(t *testing.T, effect emulator.Effect, nth int) bool {
	server := emulator.New(emulator.Options{})
	hanging, _ := azure(t, server)
	hung := join(t, hanging, fleet.Options{Name: "hung"})
	plan := claimed(t, hanging, hung, 3)
	must(t, moves(t.Context(), hanging, actions(plan)[0], workflow.Completed))
	must(t, moves(t.Context(), hanging, actions(plan)[1], workflow.Running))

	live, _ := azure(t, server)
	reruns := runsEngine(t, server, actions(plan)[0].ID)
	time.Sleep(15 * time.Second)

	v, transport := azure(t, server)
	transport.Inject(emulator.On().Nth(nth).Do(effect))
	server.ResetRequests()
	err := operate(t, v, hung.ID(), plan.ID)
	met := slices.ContainsFunc(server.Requests(), func(r emulator.Request) bool { return r.Fault != "" }) || transport.Crashed()
	if transport.Crashed() {
		again, _ := azure(t, server)
		err = operate(t, again, hung.ID(), plan.ID)
	}
	must(t, err)
	time.Sleep(time.Minute)
	refused(t, hanging, plan)
	if now := read(t, live, plan.ID); now.State.Status != workflow.Completed || now.Epoch < 2 || reruns.Load() > 0 {
		t.Errorf("%v at request %d: the plan is %s in epoch %d; its Completed action ran %d times", effect, nth, now.State.Status, now.Epoch, reruns.Load())
	}
	checked(t, live)
	return met
}

// runsEngine runs an engine on a server until the test ends, and counts how often it runs an action.
func runsEngine(t *testing.T, server *emulator.Server, action uuid.UUID) *atomic.Int64 {
	var runs atomic.Int64
	reg := registry.Must(engine.Task(plantest.PluginName, func(_ context.Context, c engine.Call, _ plantest.Request) (*plantest.Response, error) {
		if c.Action == action {
			runs.Add(1)
		}
		time.Sleep(time.Second)
		return &plantest.Response{OK: true}, nil
	}))
	v, err := azblob.NewFromConnectionString(t.Context(), "fleet", server.ConnectionString(), reg, settings.Over(server.Transport()))
	must(t, err)
	e, err := engine.New(v, engine.Options{Fleet: &fleet.Options{}})
	must(t, err)
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(t.Context()) })
	t.Cleanup(running.Wait)
	return &runs
}

// operate does what an operator does with a node that hangs and its plan, as often as it takes. It is no error
// that somebody else has done it.
func operate(t *testing.T, v *azblob.Vault, node, plan uuid.UUID) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := fleet.Evict(ctx, v, node, fleet.EvictOptions{By: ana}); err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	_, err := fleet.HandOver(ctx, v, plan, fleet.HandOverOptions{By: ana})
	if errors.Is(err, fleet.ErrOwned) || errors.Is(err, storage.ErrInvalid) {
		return nil // a live node has taken it, or has ended it
	}
	return err
}

// TestHandOverForNobody: where no node is alive, a handover takes no time. A node that joins at any of its steps
// takes the plan at once or when the handover has left.
func TestHandOverForNobody(t *testing.T) {
	onStores(t, []string{"", "AddMember", "Roster", "Read", "UpdatePlan", "UpdateAction", "RenewMember"}, func(t *testing.T, store *memvault.Store, op string) {
		p := open(store)
		plan := orphan(t, p, plantest.Sized(1, 1, 1))
		var found <-chan *workflow.Plan
		late := func() {
			found = plans(t.Context(), t, join(t, open(store), fleet.Options{}))
			synctest.Wait() // it searches all days
		}
		operator := open(store)
		beforeFirst(operator, op, late)
		began := time.Now()
		_, err := fleet.HandOver(t.Context(), operator, plan.ID, fleet.HandOverOptions{By: ana})
		if err != nil && !errors.Is(err, fleet.ErrOwned) || time.Since(began) > 0 {
			t.Errorf("beside a node that joins before %s: %v after %v", op, err, time.Since(began))
		}
		if found == nil {
			late()
		}
		refused(t, p, plan)
		within(t, found, 31*time.Second)
	})
}
