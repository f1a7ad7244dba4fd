package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// story is a plan, and how it ends if the engine lives.
type story struct {
	name string
	plan func() *workflow.Plan
	// stopAt is when the plan is stopped; 0 means never.
	stopAt time.Duration
}

func stories() []story {
	// with changes a full plan.
	with := func(change func(p *workflow.Plan)) func() *workflow.Plan {
		return func() *workflow.Plan {
			p := full()
			change(p)
			return p
		}
	}
	return []story{
		{"all succeeds", full, 0},
		{"bypass", with(func(p *workflow.Plan) { p.BypassChecks = checks(second("bypass")) }), 0},
		{"bypass of a block", with(func(p *workflow.Plan) { p.Blocks[0].BypassChecks = checks(second("b-bypass")) }), 0},
		{"pre fails", with(func(p *workflow.Plan) { p.PreChecks = checks(bad("pre")) }), 0},
		{"cont fails", with(func(p *workflow.Plan) { p.ContChecks = checks(bad("cont"), second("cont2")) }), 0},
		{"cont of a block fails", with(func(p *workflow.Plan) { p.Blocks[0].ContChecks = checks(bad("b-cont")) }), 0},
		{"post fails", with(func(p *workflow.Plan) { p.PostChecks = checks(bad("post")) }), 0},
		{"deferred fails", with(func(p *workflow.Plan) { p.DeferredChecks = checks(bad("deferred")) }), 0},
		{"a batch fails the plan", with(func(p *workflow.Plan) {
			b := p.DeferredActions.Batches[0]
			b.Actions[0], b.FailElement = bad("d1"), true
		}), 0},
		{"retries", with(func(p *workflow.Plan) {
			a := p.Blocks[0].Sequences[0].Actions[0]
			a.Req, a.Retries = job{Name: "a1", For: time.Second, Fails: 2}, 2
		}), 0},
		{"a sequence fails and is tolerated", with(func(p *workflow.Plan) {
			p.Blocks[0].Sequences[0].Actions[0], p.Blocks[0].ToleratedFailures = bad("a1"), 1
		}), 0},
		{"a sequence fails", with(func(p *workflow.Plan) { p.Blocks[1].Sequences[0].Actions[0] = bad("a5") }), 0},
		{"stopped", full, 17500 * time.Millisecond},
		{"idempotent", with(allIdempotent), 0},
		{"idempotent, a sequence fails", with(func(p *workflow.Plan) {
			allIdempotent(p)
			p.Blocks[1].Sequences[0].Actions[0] = bad("a5")
		}), 0},
		{"idempotent, stopped", with(allIdempotent), 17500 * time.Millisecond},
	}
}

func allIdempotent(p *workflow.Plan) {
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok {
			a.Idempotent = true
		}
	}
}

// TestKilledAtEveryWrite kills the engine at the writes of each story, before or after they take effect, and
// lets a new engine go on. The plan must end as it does without a death, and the stage compares every run of
// an action with the vault.
func TestKilledAtEveryWrite(t *testing.T) {
	deaths := 0
	all := stories()
	for i := 0; i < len(all); i += efforttest.Pick(5, 1, 1) {
		st := all[i]
		t.Run(st.name, func(t *testing.T) {
			var want string
			var writes atomic.Int64
			onStage(t, func(t *testing.T, s *stage) {
				want = st.play(s, func(o workflow.Object, update func() error) error {
					writes.Add(1)
					return update()
				})
			})
			if writes.Load() < 10 {
				t.Fatalf("only %d writes", writes.Load())
			}
			for n := int64(1); n <= writes.Load(); n += efforttest.Pick[int64](61, 11, 1) {
				onStages(t, []bool{false, true}, func(t *testing.T, s *stage, takesEffect bool) {
					deaths++
					if got := st.play(s, dying(n, takesEffect)); got != want {
						t.Errorf("killed at write %d (in effect: %v) it ends as\n%s\nand otherwise as\n%s", n, takesEffect, got, want)
					}
				})
			}
		})
	}
	t.Logf("%d deaths", deaths)
}

// dying returns the hook of a process that dies at its nth update, before or after that takes effect.
func dying(n int64, takesEffect bool) func(o workflow.Object, update func() error) error {
	var left atomic.Int64
	left.Store(n)
	return func(_ workflow.Object, update func() error) error {
		switch left := left.Add(-1); {
		case left == 0 && takesEffect:
			_ = update()
			return errKilled
		case left <= 0:
			return errKilled
		}
		return update()
	}
}

// play runs the story with an engine whose updates pass the hook, and then with a new engine. It returns how
// the plan ended.
func (st story) play(s *stage, hook func(o workflow.Object, update func() error) error) string {
	p := s.create(st.plan())
	for _, v := range []*processtest.Process{s.updating(hook), s.process()} {
		stored := s.read(p.ID)
		if stored.State.Status.Final() {
			break
		}
		e := s.engine(v, engine.Options{})
		if st.stopAt > 0 && stored.Reason != workflow.StopRequested { // again, unless it was stored
			stop := time.AfterFunc(max(st.stopAt-time.Since(s.began), time.Millisecond), func() { _ = e.Stop(context.Background(), p.ID, asked) })
			defer stop.Stop()
		}
		must(s.t, e.Run(context.Background()))
	}
	return s.verdict(p.ID)
}

// verdict returns how the plan ended, and checks what holds for every end. What a stop or a failed continuous
// check cuts off depends on timing; the verdict is then the status of the plan alone.
func (s *stage) verdict(id uuid.UUID) string {
	s.t.Helper()
	p := s.read(id)
	if !p.State.Status.Final() {
		s.t.Errorf("the plan is not final:\n%s", outline(p))
	}
	for o := range workflow.Walk(p) {
		h := o.Header()
		if h.State.Status == workflow.Running {
			s.t.Errorf("%s %s is still Running:\n%s", o.Kind(), nameOf(o), outline(p))
		}
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		if a.State.Status == workflow.Completed && s.done[a.Name] == 0 {
			s.t.Errorf("%s is Completed and has never run to its end", a.Name)
		}
		if failures := countFailed(a); failures > a.Retries+1 && !strings.Contains(a.Name, "cont") {
			s.t.Errorf("%s has %d failed attempts", a.Name, failures)
		}
	}
	if p.Reason == workflow.StopRequested || p.Reason == workflow.ContCheckFailed || p.Blocks[0].ContChecks.State.Status == workflow.Failed {
		return fmt.Sprint(p.State.Status, p.Reason, p.Blocks[0].State.Status == workflow.Completed)
	}
	return outline(p)
}

func countFailed(a *workflow.Action) (n int) {
	for _, t := range a.Attempts {
		if t.Err != nil {
			n++
		}
	}
	return n
}

// TestKilledAgainAndAgain kills engines at random writes of random plans, or shuts them down at random times,
// until the plans have ended. Some are asked to stop between two lives.
func TestKilledAgainAndAgain(t *testing.T) {
	deaths := 0
	for seed := range efforttest.Seeds(t, 4, 30, 3000) {
		onStage(t, func(t *testing.T, s *stage) {
			r := rand.New(rand.NewPCG(seed, 1))
			p := s.create(randomPlan(r))
			for lives := 0; !s.read(p.ID).State.Status.Final(); lives++ {
				if deaths++; r.IntN(2) == 0 {
					s.runFor(time.Duration(1+r.IntN(5000))*time.Millisecond, s.process())
				} else {
					s.run(t.Context(), s.updating(dying(1+r.Int64N(25), r.IntN(2) == 0)))
				}
				if p := s.read(p.ID); lives == int(seed%6) && p.State.Status == workflow.Running && (p.DeferredActions == nil || p.DeferredActions.State.Status == workflow.NotStarted) {
					p.Reason = workflow.StopRequested
					must(t, s.process().UpdatePlan(t.Context(), p))
				}
				if lives > 1000 {
					t.Fatalf("seed %d: it does not come to an end:\n%s", seed, outline(s.read(p.ID)))
				}
			}
			s.held(seed, s.read(p.ID))
		})
	}
	t.Logf("%d deaths and shutdowns", deaths)
}

// held checks an end against the rules.
func (s *stage) held(seed uint64, p *workflow.Plan) {
	s.t.Helper()
	wrong := func(format string, args ...any) {
		s.t.Helper()
		s.t.Errorf("seed %d: %s:\n%s", seed, fmt.Sprintf(format, args...), outline(p))
	}
	inOrder := func(name string, status workflow.Status, actions []*workflow.Action) {
		for i, a := range actions {
			if i > 0 && a.State.Status != workflow.NotStarted && actions[i-1].State.Status != workflow.Completed {
				wrong("%s has begun after one that is not Completed", a.Name)
			}
			if a.State.Status != workflow.Completed && status == workflow.Completed {
				wrong("%s is Completed, and %s is not", name, a.Name)
			}
		}
	}
	for o := range workflow.Walk(p) {
		status := o.Header().State.Status
		if status == workflow.Running {
			wrong("%s %s is Running", o.Kind(), nameOf(o))
		}
		switch o := o.(type) {
		case *workflow.Action:
			if o.AtMost > 0 && p.ForkedFrom == uuid.Nil && s.ran[o.Name] > o.AtMost {
				wrong("%s ran %d times, at most %d are allowed", o.Name, s.ran[o.Name], o.AtMost)
			}
		case *workflow.Sequence:
			inOrder(o.Name, status, o.Actions)
		case *workflow.DeferBatch:
			inOrder(o.Name, status, o.Actions)
		case *workflow.Block:
			failures := 0
			for _, q := range o.Sequences {
				if q.State.Status == workflow.Failed {
					failures++
				}
			}
			if tooMany := o.ToleratedFailures >= 0 && failures > o.ToleratedFailures; tooMany && status != workflow.Failed {
				wrong("block %s has %d failures and is %s", o.Name, failures, status)
			}
		}
		for i, c := range workflow.ChecksOf(o) {
			stopped := i == 4 && status == workflow.Stopped // before the deferred checks
			if i != 0 && !stopped && *c != nil && (*c).State.Status == workflow.Failed && status != workflow.Failed {
				wrong("checks %d of %s %s failed, which is %s", i, o.Kind(), nameOf(o), status)
			}
			if i == 2 && *c != nil && (*c).State.Status == workflow.Completed {
				for part, parent := range workflow.Walk(p) {
					work := part.Kind() == workflow.KindBlock || part.Kind() == workflow.KindSequence
					if end := part.Header().State.End; parent == o && work && end.After((*c).State.End) {
						wrong("the continuous checks of %s %s ended at %v, and %s at %v", o.Kind(), nameOf(o), (*c).State.End, nameOf(part), end)
					}
				}
			}
			if i == 4 && *c != nil && (status != workflow.NotStarted || p.ForkedFrom == uuid.Nil && s.ranBelow(o)) && !(*c).State.Status.Final() {
				wrong("the deferred checks of %s %s are %s", o.Kind(), nameOf(o), (*c).State.Status)
			}
		}
	}
}

// ranBelow reports whether a job below an object has run, also for a plan that this one is a fork of.
func (s *stage) ranBelow(o workflow.Object) bool {
	if a, ok := o.(*workflow.Action); ok {
		return s.ran[a.Name] > 0
	}
	for c := range workflow.Children(o) {
		if s.ranBelow(c) {
			return true
		}
	}
	return false
}

// randomPlan returns a plan with random checks, failures and delays.
func randomPlan(r *rand.Rand) *workflow.Plan {
	n := 0
	action := func() *workflow.Action {
		n++
		j := job{Name: fmt.Sprint("j", n), For: time.Duration(r.IntN(3)) * time.Second}
		a := do(j)
		if a.Idempotent = r.IntN(2) == 0; !a.Idempotent {
			a.AtMost = r.IntN(3)
		}
		if r.IntN(4) == 0 {
			j.Fails = r.IntN(3)
			a.Retries = r.IntN(3)
		}
		a.Req = j
		return a
	}
	actions := func() (all []*workflow.Action) {
		for range 1 + r.IntN(3) {
			all = append(all, action())
		}
		return all
	}
	groups := func(o workflow.Object) {
		for i, c := range workflow.ChecksOf(o) {
			if r.IntN(3) > 0 {
				continue
			}
			*c = checks(actions()...)
			for _, a := range (*c).Actions {
				if i == 2 {
					a.AtMost = 0 // they run any number of times
				}
			}
			(*c).Delay = time.Duration(r.IntN(2)) * time.Second
			if i == 0 { // a bypass that succeeds leaves little to test
				(*c).Actions[0].Req = job{Name: (*c).Actions[0].Name, Fails: -1}
			}
		}
	}
	p := plan()
	groups(p)
	for range 1 + r.IntN(3) {
		b := block(fmt.Sprint("b", len(p.Blocks)))
		b.Concurrency, b.ToleratedFailures = r.IntN(4), r.IntN(4)-1
		b.EntranceDelay, b.ExitDelay = time.Duration(r.IntN(2))*time.Second, time.Duration(r.IntN(2))*time.Second
		groups(b)
		for range 1 + r.IntN(4) {
			b.Sequences = append(b.Sequences, sequence(fmt.Sprint("s", len(b.Sequences)), actions()...))
		}
		p.Blocks = append(p.Blocks, b)
	}
	if r.IntN(2) == 0 {
		p.DeferredActions = &workflow.DeferredActions{}
		for when := range workflow.Always + 1 {
			b := batch(when.String(), when, actions()...)
			b.FailElement = r.IntN(2) == 0
			p.DeferredActions.Batches = append(p.DeferredActions.Batches, b)
		}
	}
	return p
}

// TestContinuousCheckHadFailed checks that a check that failed before a death halts the work after the
// restart.
func TestContinuousCheckHadFailed(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := plan(block("b", sequence("s", do(job{Name: "work", For: 5 * time.Second}), second("never"))))
		p.ContChecks = checks(bad("check"))
		s.create(p)
		s.run(t.Context(), s.diesAt(func(o workflow.Object) bool {
			return o.Kind() == workflow.KindChecks && o.Header().State.Status == workflow.Failed
		}))
		s.run(t.Context(), s.process())
		if s.ran["check"] != 1 || s.ran["work"] != 1 || len(s.ran) != 2 {
			t.Errorf("ran %v", s.ran)
		}
		if got := s.read(p.ID); got.Reason != workflow.ContCheckFailed || got.Blocks[0].Sequences[0].Actions[0].State.Status != workflow.Stopped {
			t.Errorf("%s", outline(got))
		}
	})
}

// TestSequencesUnderWayGoOn checks that running sequences finish after a restart, even if too many others had
// failed.
func TestSequencesUnderWayGoOn(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		b := block("b", sequence("bad", bad("bad")), sequence("long", do(job{Name: "long", For: 5 * time.Second}), second("more")), sequence("never", second("never")))
		b.Concurrency = 2
		p := s.create(plan(b))
		s.runFor(3*time.Second, s.process())
		s.run(t.Context(), s.process())
		if got := s.read(p.ID); s.done["more"] != 1 || s.ran["never"] != 0 || got.Reason != workflow.BlockFailed {
			t.Errorf("%s", outline(got))
		}
	})
}

// TestFailureOutweighsStop stops a plan during its work or during checks after it that fail, and shuts the engine
// down in the middle of the deferred actions, or not. A failure makes the plan Failed in either case.
func TestFailureOutweighsStop(t *testing.T) {
	for _, test := range []struct {
		post, deferred func(name string) *workflow.Action
		stop           time.Duration
		want           workflow.FailureReason
	}{
		{second, bad, 500 * time.Millisecond, workflow.DeferredCheckFailed},
		{second, bad, 2500 * time.Millisecond, workflow.DeferredCheckFailed},
		{bad, second, 500 * time.Millisecond, workflow.StopRequested},
		{bad, second, 1500 * time.Millisecond, workflow.PostCheckFailed},
		{second, second, 1500 * time.Millisecond, workflow.StopRequested},
	} {
		onStages(t, []time.Duration{3500 * time.Millisecond, time.Hour}, func(t *testing.T, s *stage, shutdown time.Duration) {
			p := plan(block("b", sequence("s", second("a"))))
			p.PostChecks, p.DeferredChecks = checks(test.post("post")), checks(test.deferred("deferred"))
			p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("any", workflow.Always, second("d"), second("e"), second("f"))}}
			s.create(p)
			e := s.engine(s.process(), engine.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), shutdown)
			defer cancel()
			time.AfterFunc(test.stop, func() {
				must(t, e.Stop(ctx, p.ID, asked))
			})
			must(t, errors.Join(e.Run(ctx), e.Run(t.Context())))
			if got := s.read(p.ID); got.Reason != test.want {
				t.Errorf("stop at %v, shutdown at %v: %s", test.stop, shutdown, outline(got))
			}
		})
	}
}

// TestGivenUp checks that after a refused write nothing begins in the plan and running plugins are cancelled.
func TestGivenUp(t *testing.T) {
	for name, refused := range map[string]func(o workflow.Object) bool{
		"the end of a sequence":       func(o workflow.Object) bool { return nameOf(o) == "s1" },
		"the beginning of an attempt": func(o workflow.Object) bool { return nameOf(o) == "a" },
		"the end of an attempt":       func(o workflow.Object) bool { return nameOf(o) == "a" && o.Header().State.Status.Final() },
	} {
		stageRun(t, name, func(t *testing.T, s *stage) {
			b := block("b", sequence("s1", second("a")), sequence("s2", do(job{Name: "long", For: 10 * time.Second}), second("never")))
			b.Concurrency = 2
			p := s.create(plan(b))
			s.run(t.Context(), s.diesAt(refused))
			if left := s.left[p.ID]; !errors.Is(left, errKilled) || s.done["long"] > 0 || time.Since(s.began) > 3*time.Second {
				t.Errorf("left with %v after %v; done %v", left, time.Since(s.began), s.done)
			}
		})
	}
}

// TestRequestsInFlightEnd checks that a refused write does not cancel the write of another action, and that the
// engine waits for it.
func TestRequestsInFlightEnd(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		b := block("b", sequence("s1", do(job{Name: "refused", For: 2 * time.Second})), sequence("s2", second("slow")))
		b.Concurrency = 2
		s.create(plan(b))
		var slow error
		v := s.updating(func(o workflow.Object, update func() error) error {
			switch ended := o.Header().State.Status.Final(); {
			case ended && nameOf(o) == "refused":
				return errKilled
			case ended && nameOf(o) == "slow":
				time.Sleep(10 * time.Second)
				slow = update()
				return slow
			}
			return update()
		})
		s.run(t.Context(), v)
		if slow != nil || time.Since(s.began) < 11*time.Second {
			t.Errorf("the write ended with %v after %v", slow, time.Since(s.began))
		}
	})
}

// TestPlansBesideRecovery checks that stored plans run while Recovery takes its time, and that Run waits for it.
func TestPlansBesideRecovery(t *testing.T) {
	onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
		v := s.process()
		must(t, v.Create(t.Context(), plan(block("b", sequence("s", second("a"))))))
		var ran time.Duration
		v.Before("Recovery", func() { time.Sleep(10 * time.Minute) })
		e, err := engine.New(v, engine.Options{Fleet: members, UntilIdle: true, Observer: engine.Observer{
			Changed: func(context.Context, engine.ChangedEvent) { ran = time.Since(s.began) },
		}})
		must(t, err)
		if err := e.Run(t.Context()); err != nil || ran == 0 || ran > time.Minute || time.Since(s.began) != 10*time.Minute {
			t.Errorf("the plan ran until %v, and Run until %v: %v", ran, time.Since(s.began), err)
		}
	})
}

// TestRecoveryEachHour checks that an engine calls Recovery at its start and each hour, and that Draining is called
// once when a shutdown comes during Recovery. It tries often, because which of several reasons to wake up counts is
// random.
func TestRecoveryEachHour(t *testing.T) {
	for range 20 {
		onStage(t, func(t *testing.T, s *stage) {
			ctx, shutdown := context.WithCancel(t.Context())
			v, calls, drained := s.process(), 0, 0
			v.OnOp("Recovery", func(ctx context.Context, _ processtest.Call, do func() error) error {
				if calls++; calls == 3 {
					shutdown()
					<-ctx.Done()
				}
				return do()
			})
			e, err := engine.New(v, engine.Options{Poll: time.Minute, Observer: engine.Observer{Draining: func(context.Context, engine.DrainingEvent) { drained++ }}})
			must(t, err)
			if err := e.Run(ctx); err != nil || calls != 3 || drained != 1 || time.Since(s.began) != 2*time.Hour {
				t.Errorf("%v after %v: %d calls, and %d of Draining", err, time.Since(s.began), calls, drained)
			}
		})
	}
}

// TestSubmitLostAnswer checks that a plan is stored once if the outcome of its Create is unknown.
func TestSubmitLostAnswer(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		v, calls := s.process(), 0
		v.On(func(ctx context.Context, c processtest.Call, create func() error) error {
			switch calls++; calls {
			case 1: // a call that hangs does not use up the deadline
				<-ctx.Done()
				return ctx.Err()
			case 2:
				_ = create()
				return processtest.Unknown(c.Op)
			}
			return create()
		})
		p := plan(block("b", sequence("s", second("a"))))
		e := s.engine(v, engine.Options{})
		by := workflow.Actor{By: "ana@example.com", From: "orders-2"}
		if _, err := e.Submit(storage.WithActor(t.Context(), by), p); err != nil || calls != 3 || p.Submitted != by {
			t.Errorf("%v after %d calls, submitted by %v", err, calls, p.Submitted)
		}
		if _, err := e.Submit(t.Context(), p); !errors.Is(err, storage.ErrExists) {
			t.Errorf("the same again: %v", err)
		}
	})
}

// TestVaultFails checks that passing failures are retried, with and without an effect of the write, and that
// the plan is left to the next engine if they last.
func TestVaultFails(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		lost bool // the write takes effect at first
		fail int  // how often each write fails
		left bool
	}{
		{"unknown, without effect", storage.ErrUnknown, false, 1, false},
		{"too slow", context.DeadlineExceeded, false, 1, false},
		{"unknown, and then another's", storage.ErrUnknown, true, 1, true},
	} {
		stageRun(t, test.name, func(t *testing.T, s *stage) {
			p := s.create(plan(block("b", sequence("s", second("a"), second("b")))))
			failed := map[workflow.Object]int{}
			var one sync.Mutex
			hook := func(o workflow.Object, update func() error) error {
				one.Lock()
				defer one.Unlock()
				if o.Kind() != workflow.KindAction || failed[o] >= test.fail {
					failed[o] = 0
					return update()
				}
				failed[o]++
				if test.lost {
					etag := o.Header().State.ETag
					_ = update()
					o.Header().State.ETag = etag // which the caller never got
				}
				return fmt.Errorf("hooked: %w", test.err)
			}
			s.run(t.Context(), s.updating(hook))
			left := s.left[p.ID]
			if got := s.read(p.ID).State.Status; test.left != (left != nil) || test.left != (got == workflow.Running) || time.Since(s.began) > 30*time.Minute {
				t.Errorf("the plan is %s, left with %v, after %v", got, left, time.Since(s.began))
			}
			if test.left && !test.lost && !errors.Is(left, test.err) {
				t.Errorf("left with %v", left)
			}
			s.run(t.Context(), s.process())
			if got := s.read(p.ID).State.Status; got != workflow.Completed {
				t.Errorf("after another start the plan is %s", got)
			}
		})
	}
}
