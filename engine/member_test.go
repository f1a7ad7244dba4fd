package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// process is an engine that is a member of the stage's fleet.
type process struct {
	*processtest.Process
	*engine.Engine
	ended chan error
	end   context.CancelFunc

	mu sync.Mutex
	// nodes are those that the engine was, left the plans that it let go, and why.
	nodes    []uuid.UUID
	left     map[uuid.UUID]error
	problems []error
}

// join starts an engine that is a member of the stage's fleet. Its Run returns when no plan is left.
func (s *stage) join(name string, opts engine.Options) *process {
	s.t.Helper()
	p := &process{Process: s.process(), left: map[uuid.UUID]error{}, ended: make(chan error, 1)}
	note := func(do func()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		do()
	}
	opts.Fleet = &fleet.Options{Name: name}
	opts.Observer.Joined = func(_ context.Context, e engine.JoinedEvent) { note(func() { p.nodes = append(p.nodes, e.Node) }) }
	opts.Observer.Left = func(_ context.Context, e engine.LeftEvent) { note(func() { p.left[e.Plan] = e.Err }) }
	opts.Observer.Problem = func(_ context.Context, e engine.ProblemEvent) {
		note(func() { p.problems = append(p.problems, e.Err) })
	}
	p.Engine = s.engine(p.Process, opts)
	var ctx context.Context
	ctx, p.end = context.WithCancel(context.Background())
	go func() { p.ended <- p.Run(ctx) }()
	return p
}

// fails makes all calls of the process fail.
func (p *process) fails(err error) {
	p.On(func(context.Context, processtest.Call, func() error) error { return err })
}

// stop shuts the engine down.
func (p *process) stop() {
	p.end()
	<-p.ended
}

// wait waits for the end of Run and checks that there was no problem but the expected ones.
func (p *process) wait(t *testing.T, problems int) {
	t.Helper()
	if err := <-p.ended; err != nil || len(p.problems) != problems {
		t.Errorf("%v; problems: %v", err, errors.Join(p.problems...))
	}
}

// long returns a plan of actions that take ten seconds each.
func long(names ...string) *workflow.Plan {
	var actions []*workflow.Action
	for _, name := range names {
		actions = append(actions, do(job{Name: name, For: 10 * time.Second}))
	}
	return plan(block("b", sequence("s", actions...)))
}

// TestUntilIdleBesideExternalPlans: an engine ends when all plans are final but those that an engine of another kind places.
func TestUntilIdleBesideExternalPlans(t *testing.T) {
	onStages(t, []engine.Options{{}, {Fleet: &fleet.Options{TakeUnclaimed: true}}}, func(t *testing.T, s *stage, o engine.Options) {
		own, others := s.create(long("a")), long("b")
		others.External.Name = "queue"
		s.create(others)
		begun := time.Now()
		must(t, s.engine(s.process(), o).Run(t.Context()))
		if took := time.Since(begun); took > 2*time.Minute || s.read(own.ID).State.Status != workflow.Completed || s.read(others.ID).State.Status != workflow.NotStarted {
			t.Errorf("it ended after %v: %s, and %s", took, s.read(own.ID).State.Status, s.read(others.ID).State.Status)
		}
	})
}

// TestAlonePassesSleepersOfFleets: an engine that is alone leaves a plan to the fleet that has let it sleep, also with TakeUnclaimed,
// and says so.
func TestAlonePassesSleepersOfFleets(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := plan(block("b", sequence("s", second("a"))))
		s.create(p)
		v := s.process()
		node, err := fleet.Join(t.Context(), v, fleet.Options{})
		must(t, err)
		must(t, node.Claim(t.Context(), p))
		must(t, node.Sleep(t.Context(), p, node.Now(), 0))
		must(t, node.Leave(t.Context()))
		var problems []string
		o := engine.Options{TakeUnclaimed: true, Observer: engine.Observer{Problem: func(_ context.Context, e engine.ProblemEvent) {
			problems = append(problems, e.Err.Error())
		}}}
		must(t, s.engine(s.process(), o).Run(t.Context()))
		if len(problems) != 1 || !strings.Contains(problems[0], "only a fleet wakes it") {
			t.Errorf("problems: %q", problems)
		}
		s.wantNames()
	})
}

// TestFleet lets three engines share many plans. The process that stored them is gone.
func TestFleet(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		var plans []*workflow.Plan
		for i := range 24 {
			p := s.create(long(fmt.Sprint(i, "a"), fmt.Sprint(i, "b")))
			plans = append(plans, p)
		}
		var all []*process
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, s.join(name, engine.Options{Plans: 4}))
		}
		for _, p := range all {
			p.wait(t, 0)
		}
		shares := map[uuid.UUID]int{}
		for _, p := range plans {
			got := s.read(p.ID)
			if got.State.Status != workflow.Completed || got.Epoch != 1 {
				t.Errorf("epoch %d: %s", got.Epoch, outline(got))
			}
			shares[got.Owner]++
		}
		if len(s.log) != 48 || s.most > 12 {
			t.Errorf("%d actions ran, %d at a time", len(s.log), s.most)
		}
		for _, p := range all {
			if n := shares[p.nodes[0]]; n < 3 {
				t.Errorf("a node ran %d of 24 plans", n)
			}
		}
		left := func(m storage.Member) bool { return m.Phase == storage.PhaseLeft }
		if roster, err := vaulttest.Offered[storage.Control](s.open()).Roster(t.Context()); err != nil || !slices.ContainsFunc(roster.Members, left) || len(slices.DeleteFunc(roster.Members, left)) != 0 {
			t.Errorf("%+v are left, %v", roster.Members, err)
		}
	})
}

// TestFrozenEngine freezes an engine in the middle of a plan until another has taken the plan over. When it
// wakes up, its late write is refused, it cancels the plugin, lets the plan go, and joins as a new node.
func TestFrozenEngine(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(long("a", "b", "c"))
		frozen := s.join("frozen", engine.Options{})
		time.Sleep(15 * time.Second) // a has ended, b runs
		other := s.join("other", engine.Options{})
		frozen.Freeze()
		time.Sleep(50 * time.Second)
		if got := s.read(p.ID); got.Epoch != 2 || got.Owner != other.nodes[0] {
			t.Errorf("after 50s its owner is %s, its epoch %d", got.Owner, got.Epoch)
		}
		frozen.Thaw()
		time.Sleep(time.Second)
		next := long("d")
		s.create(next)
		frozen.wait(t, 1)
		other.wait(t, 0)
		if len(frozen.nodes) != 2 || !errors.Is(frozen.left[p.ID], fleet.ErrFenced) || !errors.Is(frozen.problems[0], fleet.ErrFenced) {
			t.Errorf("it was the nodes %v, left with %v, problem %v", frozen.nodes, frozen.left, frozen.problems)
		}
		if got := s.read(p.ID); got.State.Status != workflow.Completed {
			t.Errorf("%s", outline(got))
		}
		if s.ran["a"] != 1 || s.ran["b"] != 2 || s.ran["c"] != 1 || s.ran["d"] != 1 {
			t.Errorf("ran %v", s.ran)
		}
	})
}

// TestKilledMember kills an engine of a fleet at any of its calls, before or after the call takes effect.
// Another one ends the plan as it would have ended, within the time that a takeover takes.
func TestKilledMember(t *testing.T) {
	var want string
	var calls, at atomic.Int64
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(full())
		e := s.join("a", engine.Options{})
		e.Before("", func() { calls.Add(1) })
		e.wait(t, 0)
		want = s.verdict(p.ID)
	})
	for n := int64(5); n < calls.Load(); n += efforttest.Pick[int64](37, 17, 3) {
		onStage(t, func(t *testing.T, s *stage) {
			p := s.create(full())
			dying := s.join("dying", engine.Options{})
			at.Store(0)
			dying.On(func(_ context.Context, _ processtest.Call, do func() error) error {
				if at.Add(1) < n {
					return do()
				}
				return errKilled
			})
			s.join("other", engine.Options{}).wait(t, 0)
			dying.stop()
			if got := s.verdict(p.ID); got != want {
				t.Errorf("killed at call %d it ends as\n%s\nand otherwise as\n%s", n, got, want)
			}
			if took := time.Since(s.began); took > 3*time.Minute {
				t.Errorf("killed at call %d it ends after %v", n, took)
			}
		})
	}
}

// TestTakeAgain lets somebody else write to a plan that an engine works on. The engine ends its work, fences,
// and continues from what is stored.
func TestTakeAgain(t *testing.T) {
	for name, part := range map[string]func(p *workflow.Plan) workflow.Object{
		"the running action": func(p *workflow.Plan) workflow.Object { return p.Blocks[0].Sequences[0].Actions[1] },
		"the sequence":       func(p *workflow.Plan) workflow.Object { return p.Blocks[0].Sequences[0] },
		"the plan":           func(p *workflow.Plan) workflow.Object { return p },
	} {
		stageRun(t, name, func(t *testing.T, s *stage) {
			p := s.create(long("a", "b"))
			var epochs []int64
			e := s.join("a", engine.Options{Observer: engine.Observer{PickedUp: func(_ context.Context, e engine.PickedUpEvent) { epochs = append(epochs, e.Plan.Epoch) }}})
			time.Sleep(15 * time.Second)
			must(t, storage.Update(t.Context(), s.open(), part(s.read(p.ID))))
			outage := time.Now().Add(30 * time.Second)
			e.OnOp("Read", func(_ context.Context, c processtest.Call, do func() error) error {
				if time.Now().Before(outage) {
					return processtest.Unavailable(c.Op)
				}
				return do()
			})
			e.wait(t, 0)
			got := s.read(p.ID)
			if got.State.Status != workflow.Completed || got.Epoch != 2 || fmt.Sprint(epochs) != "[1 2]" || len(e.left) > 0 {
				t.Errorf("epochs %v, left %v\n%s", epochs, e.left, outline(got))
			}
			if again := s.ran["b"]; s.ran["a"] != 1 || again > 2 || name == "the running action" && again != 2 {
				t.Errorf("ran %v", s.ran)
			}
		})
	}
}

// asked is who stops plans in tests.
var asked = workflow.Attribution{By: "ops@example.com", Why: "wrong cluster"}

func isAsked(d workflow.Attribution) bool {
	return d.By == asked.By && d.Why == asked.Why && !d.At.IsZero()
}

// TestStopElsewhere stops plans from an engine that does not run them.
func TestStopElsewhere(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := plan(block("b", sequence("s", do(job{Name: "a", For: 15 * time.Second}), second("never"))))
		p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("any", workflow.Always, second("d"))}}
		s.create(p)
		owner := s.join("owner", engine.Options{})
		time.Sleep(5 * time.Second)
		other := s.join("other", engine.Options{})
		time.Sleep(2 * time.Second)
		must(t, other.Stop(t.Context(), p.ID, asked))
		fails(t, other.Stop(t.Context(), workflow.NewV7(), asked), storage.ErrNotFound, "no such plan")
		owner.wait(t, 0)
		other.wait(t, 0)
		fails(t, other.Stop(t.Context(), p.ID, asked), fleet.ErrNotRunning, "at the end")
		if got := s.read(p.ID); got.State.Status != workflow.Stopped || got.Reason != workflow.StopRequested || got.Epoch != 1 || s.ran["never"] > 0 || s.done["d"] != 1 || !isAsked(got.Stopped) {
			t.Errorf("ran %v, stopped by %+v\n%s", s.ran, got.Stopped, outline(got))
		}
	})
}

// TestStopDuringTake stops a plan while its owner takes it again after a conflict, and the store does not
// answer. The work before has ended, so the request goes to the store. The work that follows obeys it.
func TestStopDuringTake(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(long("a", "b", "never"))
		owner := s.join("owner", engine.Options{})
		time.Sleep(5 * time.Second)
		got := s.read(p.ID)
		must(t, s.open().UpdateAction(t.Context(), got.Blocks[0].Sequences[0].Actions[0]))
		answers := make(chan struct{})
		owner.On(updates(func(o workflow.Object, update func() error) error {
			if o.Kind() == workflow.KindPlan {
				<-answers
			}
			return update()
		}))
		time.Sleep(10 * time.Second) // a has met the conflict
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		must(t, owner.Stop(ctx, p.ID, asked))
		time.Sleep(10 * time.Second)
		close(answers)
		owner.wait(t, 0)
		if got := s.read(p.ID); got.State.Status != workflow.Stopped || got.Epoch != 2 || s.ran["never"] > 0 {
			t.Errorf("epoch %d, ran %v\n%s", got.Epoch, s.ran, outline(got))
		}
	})
}

// TestPlansOfOthers lets a node meet plans whose plugin it lacks, or can't run. One has not begun, and the owner
// of the other is dead. It neither claims nor takes them and does not wait for them. A node that can run them
// does.
func TestPlansOfOthers(t *testing.T) {
	onStages(t, []bool{false, true}, func(t *testing.T, s *stage, known bool) {
		lacking, all := registry.Must(s), registry.Must(s, engine.Task("alien", func(ctx context.Context, _ engine.Call, _ string) (string, error) {
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
			}
			return "", ctx.Err()
		}))
		if known {
			must(t, lacking.Register(plugins.Typed[string, string]("alien")))
		}
		alien := func() *workflow.Plan {
			return plan(block("b", sequence("s", &workflow.Action{Name: "a", Plugin: "alien", Req: ""})))
		}
		began, fresh, own := alien(), alien(), long("own")
		s.reg = all
		s.create(began)
		dying := s.join("dying", engine.Options{})
		time.Sleep(5 * time.Second)
		dying.fails(errKilled)
		s.create(fresh)
		s.create(own)

		s.reg = lacking
		node := s.join("node", engine.Options{})
		select {
		case err := <-node.ended:
			if err != nil || len(node.problems) != 2 || !errors.Is(node.problems[0], fleet.ErrUnsuited) || !errors.Is(node.problems[1], fleet.ErrUnsuited) {
				t.Errorf("%v, problems %v", err, node.problems)
			}
		case <-time.After(time.Hour):
			t.Error("it does not end")
			node.end()
		}
		s.reg = all
		if a, b, c := s.read(began.ID), s.read(fresh.ID), s.read(own.ID); a.Epoch != 1 || b.State.Status != workflow.NotStarted || c.State.Status != workflow.Completed {
			t.Errorf("epoch %d\n%s%s%s", a.Epoch, outline(a), outline(b), outline(c))
		}
		s.join("other", engine.Options{}).wait(t, 0)
		if a, b := s.read(began.ID), s.read(fresh.ID); a.State.Status != workflow.Completed || a.Epoch != 2 || b.State.Status != workflow.Completed || b.Epoch != 1 {
			t.Errorf("epochs %d and %d\n%s%s", a.Epoch, b.Epoch, outline(a), outline(b))
		}
		dying.stop()
	})
}

// TestEndOfAnOwnedPlan lets the outcome of the plan's last write get lost for longer than the engine's patience, or the
// write take effect and meet its own version.
func TestEndOfAnOwnedPlan(t *testing.T) {
	onStages(t, []bool{false, true}, func(t *testing.T, s *stage, effect bool) {
		p := s.create(long("a"))
		var ended []workflow.Status
		begun := 0
		e := s.join("a", engine.Options{Observer: engine.Observer{PickedUp: func(context.Context, engine.PickedUpEvent) { begun++ }, Changed: func(_ context.Context, e engine.ChangedEvent) {
			if p, ok := e.Object.(*workflow.Plan); ok {
				ended = append(ended, p.State.Status)
			}
		}}})
		until := time.Now().Add(5 * time.Minute)
		e.On(updates(func(o workflow.Object, update func() error) error {
			if o.Kind() != workflow.KindPlan || !o.Header().State.Status.Final() || time.Now().After(until) {
				return update()
			}
			if effect {
				until = time.Now()
				return cmp.Or(update(), storage.ErrConflict)
			}
			return processtest.Unknown("UpdatePlan")
		}))
		e.wait(t, 0)
		if got := s.read(p.ID); got.State.Status != workflow.Completed || fmt.Sprint(ended) != "[Completed]" || len(e.left) > 0 || s.ran["a"] != 1 || begun != 1 {
			t.Errorf("%s: told %v, left %v, ran %v, picked up %d times", got.State.Status, ended, e.left, s.ran, begun)
		}
	})
}

// TestSuspendedVault suspends the vault below a fleet. Running actions end and are stored, nothing else begins, and nobody
// begins again until the vault is open.
func TestSuspendedVault(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		store := s.open()
		p := s.create(long("a", "b", "c", "d", "e"))
		first := s.join("first", engine.Options{})
		time.Sleep(15 * time.Second)
		_, err := fleet.Suspend(t.Context(), store, workflow.Attribution{By: "ana", Why: "a move"}, fleet.SuspendOptions{})
		must(t, err)
		fails(t, <-first.ended, fleet.ErrSuspended, "Run")
		if got := s.read(p.ID); got.State.Status != workflow.Running || s.ran["b"] != 1 || s.done["b"] != 1 || s.ran["c"] != s.done["c"] || s.ran["e"] > 0 {
			t.Errorf("ran %v: %s", s.ran, outline(got))
		}
		fails(t, s.left[p.ID], fleet.ErrSuspended, "the engine left the plan")
		if _, err := first.Submit(t.Context(), long("f")); !errors.Is(err, fleet.ErrSuspended) {
			t.Errorf("Submit returns %v", err)
		}
		for _, members := range []*fleet.Options{nil, {Name: "second"}} {
			v := s.process()
			v.OnOp("Recovery", func(context.Context, processtest.Call, func() error) error {
				t.Error("Recovery of a suspended vault")
				return nil
			})
			fails(t, s.engine(v, engine.Options{Fleet: members}).Run(t.Context()), fleet.ErrSuspended, "an engine of %v", members)
		}
		must(t, fleet.Resume(t.Context(), store, asked))
		s.join("third", engine.Options{}).wait(t, 0)
		if got := s.read(p.ID); got.State.Status != workflow.Completed || len(s.log) != 5 {
			t.Errorf("ran %v: %s", s.ran, outline(got))
		}
	})
}

// compensated returns a plan that runs an action, and then another one that depends on the outcome.
func compensated(work *workflow.Action) *workflow.Plan {
	p := plan(block("b", sequence("s", work)))
	p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
		batch("success", workflow.OnSuccess, do(job{Name: "tell", For: time.Minute})),
		batch("failure", workflow.OnFailure, do(job{Name: "undo", For: time.Minute})),
	}}
	return p
}

// TestLateStop asks a plan to stop while its deferred actions run. It ends as it would have ended, whoever ends it.
func TestLateStop(t *testing.T) {
	for name, ends := range map[string]func(t *testing.T, s *stage, p *process){
		"stays":  func(*testing.T, *stage, *process) {},
		"dies":   func(_ *testing.T, _ *stage, p *process) { p.Kill(); p.end() },
		"drains": func(_ *testing.T, _ *stage, p *process) { p.end() },
		"is evicted": func(t *testing.T, s *stage, p *process) {
			must(t, fleet.Evict(t.Context(), s.open(), p.nodes[0], fleet.EvictOptions{By: asked}))
		},
	} {
		stageRun(t, name, func(t *testing.T, s *stage) {
			p := s.create(compensated(second("work")))
			owner := s.join("owner", engine.Options{})
			time.Sleep(15 * time.Second)
			other := s.join("other", engine.Options{})
			time.Sleep(5 * time.Second)
			must(t, fleet.Stop(t.Context(), s.open(), p.ID, asked))
			ends(t, s, owner)
			<-owner.ended
			<-other.ended
			if got := s.read(p.ID); got.State.Status != workflow.Completed || s.ran["undo"] > 0 || s.done["tell"] != 1 || got.Stopped.By != "" {
				t.Errorf("ran %v, stopped by %+v\n%s", s.ran, got.Stopped, outline(got))
			}
		})
	}
}

// TestStopThatIsNotStored asks a plan to stop while it is stored as Running, for longer than the caller waits. Its
// compensation begins, and the engine dies. The next one begins nothing of the work.
func TestStopThatIsNotStored(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(compensated(second("work")))
		v := s.process()
		slow := true
		v.On(updates(func(o workflow.Object, update func() error) error {
			if slow && o.Kind() == workflow.KindPlan {
				time.Sleep(10 * time.Second)
				slow = false
			}
			return update()
		}))
		e := s.engine(v, engine.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := start(ctx, e)
		time.Sleep(time.Second)
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		if err := e.Stop(short, p.ID, asked); err == nil {
			t.Error("the stop is stored")
		}
		time.Sleep(20 * time.Second)
		v.On(func(context.Context, processtest.Call, func() error) error { return errKilled })
		cancel()
		must(t, <-ended)
		s.run(t.Context(), s.process())
		if got := s.read(p.ID); got.State.Status != workflow.Stopped || !slices.Equal(s.names(), []string{"undo", "undo"}) {
			t.Errorf("ran %v\n%s", s.names(), outline(got))
		}
	})
}
