package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// works ranges over the node's plans, lets those that are paused sleep, and sends the others.
func works(t *testing.T, n *fleet.Node, running chan<- *workflow.Plan) {
	go func() {
		for next := range n.Plans(t.Context()) {
			if next.Err != nil {
				t.Error(next.Err)
				continue
			}
			work, _ := n.Work(next.Result.ID)
			if errors.Is(context.Cause(work), fleet.ErrPaused) {
				must(t, n.Sleep(t.Context(), next.Result, n.Now(), fleet.MaxSignals))
				continue
			}
			running <- next.Result
		}
	}()
}

// TestPause pauses plans in each state, and resumes them after something has happened: until then nobody works on them, and
// then somebody does.
func TestPause(t *testing.T) {
	const I, d = 10 * time.Second, 2 * time.Hour
	type scene struct {
		p     *processtest.Process
		n     *fleet.Node
		other *fleet.Node
		plan  *workflow.Plan
		found <-chan *workflow.Plan // on all nodes
	}
	nothing := func(*testing.T, scene) {}
	for _, test := range []struct {
		name   string
		begin  func(t *testing.T, s scene) *workflow.Plan // the plan, which is then paused
		happen func(t *testing.T, s scene)                // before the resume
		within time.Duration                              // after the resume
		epoch  int64
	}{
		{"a plan that runs", func(t *testing.T, s scene) *workflow.Plan { return claimed(t, s.p, s.n, 2) }, func(t *testing.T, s scene) {
			time.Sleep(I)
			work, _ := s.n.Work(s.plan.ID)
			if !errors.Is(context.Cause(work), fleet.ErrPaused) {
				t.Fatalf("the work ends with %v", context.Cause(work))
			}
			time.Sleep(time.Minute) // an action ends
			must(t, s.n.Sleep(t.Context(), s.plan, s.n.Now(), fleet.MaxSignals))
			if got := read(t, s.p, s.plan.ID); !got.Asleep() || got.Paused.By != ana.By || got.Paused.At.IsZero() {
				t.Errorf("it is stored as %+v", got)
			}
		}, I + 2*time.Second, 2},
		{"a plan whose node leaves", func(t *testing.T, s scene) *workflow.Plan { return claimed(t, s.p, s.n, 2) }, func(t *testing.T, s scene) {
			time.Sleep(I)
			must(t, s.n.Sleep(t.Context(), s.plan, s.n.Now(), fleet.MaxSignals))
			leave(t, s.n)
		}, 2 * I, 2},
		{"a plan whose node dies while it is paused", func(t *testing.T, s scene) *workflow.Plan { return claimed(t, s.p, s.n, 2) }, func(t *testing.T, s scene) {
			time.Sleep(I)
			s.p.Kill()
		}, 2 * I, 3},
		{"a plan whose node resumes it before it sleeps", func(t *testing.T, s scene) *workflow.Plan { return claimed(t, s.p, s.n, 2) }, func(t *testing.T, s scene) {
			time.Sleep(I)
			must(t, fleet.ResumePlan(t.Context(), s.p, s.plan.ID, ana))
			must(t, s.n.Sleep(t.Context(), s.plan, s.n.Now(), fleet.MaxSignals))
			if got := read(t, s.p, s.plan.ID); got.Paused != (workflow.Attribution{}) {
				t.Errorf("it is stored as %+v", got)
			}
			must(t, fleet.PausePlan(t.Context(), s.p, s.plan.ID, ana))
		}, I + 2*time.Second, 2},
		{"a plan that sleeps", func(t *testing.T, s scene) *workflow.Plan { return asleep(t, s.p, s.n, time.Hour) }, nothing, I + 2*time.Second, 2},
		{"a plan that sleeps for longer", func(t *testing.T, s scene) *workflow.Plan { return asleep(t, s.p, s.n, d+time.Hour) }, nothing, time.Hour + 2*time.Second, 2},
		{"a plan that sleeps, and whose node dies", func(t *testing.T, s scene) *workflow.Plan { return asleep(t, s.p, s.n, time.Hour) }, func(_ *testing.T, s scene) { s.p.Kill() }, 2 * I, 2},
		{"a plan that has not begun", func(t *testing.T, s scene) *workflow.Plan {
			plan := plantest.Small()
			plan.NotBefore = s.n.Now().Add(time.Minute)
			must(t, s.p.Create(t.Context(), plan))
			return plan
		}, nothing, 2*I + time.Second, 1},
		{"a plan that no node has seen", func(t *testing.T, s scene) *workflow.Plan {
			plan := plantest.Small()
			plan.ID = workflow.NewV7()
			n, err := storage.NewNote(fmt.Sprintf("pause-%x", plan.ID[:]), ana, "")
			must(t, err)
			_, err = s.p.PutNote(t.Context(), n)
			must(t, err)
			time.Sleep(I)
			must(t, s.p.Create(t.Context(), plan))
			return plan
		}, nothing, 2*I + time.Second, 1},
		{"a plan that was asked to stop", func(t *testing.T, s scene) *workflow.Plan { return asleep(t, s.p, s.n, time.Hour) }, func(t *testing.T, s scene) {
			time.Sleep(d)
			must(t, fleet.Stop(t.Context(), s.p, s.plan.ID, ana))
			plan := within(t, s.found, I+2*time.Second)
			owner := s.n
			if plan.Owner == s.other.ID() {
				owner = s.other
			}
			work, done := owner.Work(plan.ID)
			if !errors.Is(context.Cause(work), fleet.ErrStopRequested) || plan.Paused != (workflow.Attribution{}) {
				t.Errorf("it wakes as %+v, and the work ends with %v", plan, context.Cause(work))
			}
			must(t, finish(t.Context(), s.p, plan))
			done()
		}, 0, 0},
	} {
		storeRun(t, test.name, func(t *testing.T, store *memvault.Store) {
			p, n := start(t, store, fleet.Options{})
			_, other := start(t, store, fleet.Options{})
			found := make(chan *workflow.Plan, 100)
			for _, n := range []*fleet.Node{n, other} {
				works(t, n, found)
			}
			time.Sleep(time.Minute + time.Second)
			s := scene{p: p, n: n, other: other, found: found}
			s.plan = test.begin(t, s)
			must(t, fleet.PausePlan(t.Context(), open(store), s.plan.ID, ana))
			must(t, fleet.PausePlan(t.Context(), open(store), s.plan.ID, workflow.Attribution{By: "another"}))
			test.happen(t, s)
			time.Sleep(d)
			if len(found) > 0 {
				t.Fatalf("somebody works on %+v", <-found)
			}
			if test.within == 0 {
				return
			}
			began := time.Now()
			must(t, fleet.ResumePlan(t.Context(), open(store), s.plan.ID, ana))
			got := within(t, found, d)
			if took := time.Since(began); took > test.within || got.Epoch != test.epoch || got.ID != s.plan.ID || got.Paused != (workflow.Attribution{}) {
				t.Errorf("%v after the resume, somebody works on %+v; want %v, epoch %d", took, got, test.within, test.epoch)
			}
			time.Sleep(d)
			if len(found) > 0 {
				t.Errorf("somebody works on it again: %+v", <-found)
			}
		})
	}
}

// TestPauseOfAnOldList lets a node whose list is old take a plan that was paused: it asks, once, if the plan has the mark.
func TestPauseOfAnOldList(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		q, old := start(t, store, fleet.Options{})
		asked := 0
		q.On(func(_ context.Context, c processtest.Call, do func() error) error {
			switch c.Op {
			case "Roster":
				return storage.ErrUnavailable
			case "FindNote":
				asked++
			}
			return do()
		})
		plan, unmarked := claimed(t, p, n, 1), asleep(t, p, n, 0)
		must(t, n.Pause(t.Context(), plan.ID, ana))
		if work, _ := n.Work(plan.ID); !errors.Is(context.Cause(work), fleet.ErrPaused) {
			t.Errorf("the work ends with %v", context.Cause(work))
		}
		must(t, n.Sleep(t.Context(), plan, n.Now(), fleet.MaxSignals))
		for range 2 {
			fails(t, second(old.Take(t.Context(), plan.ID)), fleet.ErrPaused, "Take")
		}
		if _, err := old.Take(t.Context(), unmarked.ID); err != nil || asked != 1 {
			t.Errorf("Take returns %v, and the node has asked %d times", err, asked)
		}
		must(t, fleet.ResumePlan(t.Context(), p, plan.ID, ana))
		q.On(nil)
		time.Sleep(20 * time.Second)
		if got, err := old.Take(t.Context(), plan.ID); err != nil || got.Paused != (workflow.Attribution{}) {
			t.Errorf("Take returns %+v, %v", got, err)
		}
	})
}

// TestPauseFails pauses and resumes what can't be.
func TestPauseFails(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		ended, alone, fresh := create(t, p, 1), ownerless(t, p, 1), create(t, p, 1)
		must(t, moves(t.Context(), p, ended, workflow.Running))
		must(t, finish(t.Context(), p, ended))
		for _, test := range []struct {
			plan uuid.UUID
			by   workflow.Attribution
			want [2]error // of a pause and a resume
		}{
			{fresh.ID, workflow.Attribution{}, [2]error{storage.ErrInvalid, storage.ErrInvalid}},
			{workflow.NewV7(), ana, [2]error{storage.ErrNotFound, storage.ErrNotFound}},
			{ended.ID, ana, [2]error{fleet.ErrNotRunning, nil}},
			{alone.ID, ana, [2]error{errors.ErrUnsupported, nil}},
			{fresh.ID, ana, [2]error{}},
		} {
			got := [2]error{fleet.PausePlan(t.Context(), p, test.plan, test.by), fleet.ResumePlan(t.Context(), p, test.plan, test.by)}
			for i := range got {
				if !errors.Is(got[i], test.want[i]) {
					t.Errorf("call %d returns %v, want %v", i, got[i], test.want[i])
				}
			}
		}
		// The notes of plans that are final or gone are removed.
		must(t, fleet.PausePlan(t.Context(), p, fresh.ID, ana))
		must(t, p.Delete(t.Context(), fresh.ID))
		join(t, p, fleet.Options{})
		time.Sleep(2 * time.Minute)
		if r, _ := p.Roster(t.Context()); len(r.Notes) != 0 {
			t.Errorf("the notes are %v", r.Notes)
		}
	})
}

// TestPausesAndSignalsOfACopy promotes a copy of a vault with a plan that is paused and one that waits for a signal. Both are so
// in the copy.
func TestPausesAndSignalsOfACopy(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		paused, waits := claimed(t, p, n, 1), claimed(t, p, n, 1)
		must(t, fleet.PausePlan(t.Context(), p, paused.ID, ana))
		time.Sleep(11 * time.Second) // the node has seen it
		must(t, n.Sleep(t.Context(), paused, n.Now(), fleet.MaxSignals))
		must(t, n.Sleep(t.Context(), waits, n.Now().Add(24*time.Hour), send(t, p, waits.ID, fleet.Signal{Name: "first"})))
		send(t, p, waits.ID, fleet.Signal{Name: "second"})
		leave(t, n)
		copied := memvault.NewStore()
		to := open(copied)
		_, err := mirror.Run(t.Context(), mirror.Pair{Source: p, Copy: to}, mirror.Options{By: ana})
		must(t, err)
		must(t, mirror.Promote(t.Context(), to, ana))

		_, there := start(t, copied, fleet.Options{})
		found := plans(t.Context(), t, there)
		if got := within(t, found, time.Minute); got.ID != waits.ID {
			t.Errorf("plan %s runs", got.ID)
		}
		if got := signals(t, to, waits.ID, 0); len(got) != 2 {
			t.Errorf("the copy has the signals %q", got)
		}
		time.Sleep(3 * time.Hour)
		if len(found) > 0 {
			t.Error("the paused plan runs")
		}
		must(t, fleet.ResumePlan(t.Context(), to, paused.ID, ana))
		if got := within(t, found, time.Minute); got.ID != paused.ID {
			t.Errorf("plan %s is resumed", got.ID)
		}
	})
}
