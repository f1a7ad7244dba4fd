package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestCrashingAction runs an action during which each process dies. It fails at last, and the plan goes on as its author
// planned.
func TestCrashingAction(t *testing.T) {
	for _, runs := range []int{4, 5} { // of an idempotent one, the first death leaves no trace
		onStage(t, func(t *testing.T, s *stage) {
			b := block("b", sequence("s1", second("first"), second("bomb")), sequence("s2", second("other")))
			b.ToleratedFailures = 1
			p := plan(b)
			if runs == 5 {
				allIdempotent(p)
			}
			s.create(p)
			for range 7 {
				s.run(t.Context(), s.diesAt(func(o workflow.Object) bool {
					a, ok := o.(*workflow.Action)
					return ok && a.Name == "bomb" && !a.Attempts[len(a.Attempts)-1].End.IsZero() && a.State.Status == workflow.Completed
				}))
			}
			got := s.read(p.ID)
			a := got.Blocks[0].Sequences[0].Actions[1]
			if got.State.Status != workflow.Completed || a.State.Status != workflow.Failed || s.ran["bomb"] != runs || s.done["other"] != 1 {
				t.Fatalf("ran %v: %s", s.ran, outline(got))
			}
			if message := a.Attempts[3].Err.Message; !strings.HasPrefix(message, "ExceededRecovery: 4 attempts never ended") {
				t.Error(message)
			}
		})
	}
}

// TestWrites lists what an engine stores of a plan. It stores no beginning of an idempotent action, unless it has picked
// the plan up from another engine that may have begun it.
func TestWrites(t *testing.T) {
	for _, test := range []struct {
		idempotent, dies, deferred bool
		want                       string
	}{
		{false, false, false, "plan Running, checks Running, pre Running, pre Completed, checks Completed, b Running, a Running, a Completed, z Running, z Completed, " +
			"s Completed, b Completed, deferredActions Running, d Running, d Completed, batch Completed, deferredActions Completed, plan Completed"},
		{true, false, false, "plan Running, checks Running, pre Completed, checks Completed, b Running, a Completed, z Completed, " +
			"s Completed, b Completed, deferredActions Running, d Completed, batch Completed, deferredActions Completed, plan Completed"},
		{true, true, false, "plan Running, checks Running, pre Completed, checks Completed, b Running, a Running, a Completed, z Completed, " +
			"s Completed, b Completed, deferredActions Running, d Running, d Completed, batch Completed, deferredActions Completed, plan Completed"},
		{true, false, true, "plan Running, b Running, a Completed, z Completed, s Completed, last Completed, checks Completed, b Completed, plan Completed"},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			b := block("b", sequence("s", second("a"), second("z")))
			b.EntranceDelay = time.Second
			p := plan(b)
			p.PreChecks = checks(second("pre"))
			p.PreChecks.Delay = time.Second
			p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("batch", workflow.Always, second("d"))}}
			if test.deferred {
				b.EntranceDelay, b.DeferredChecks = 0, checks(second("last"))
				p = plan(b)
			}
			if test.idempotent {
				allIdempotent(p)
			}
			s.create(p)
			var writes []string
			note := func(o workflow.Object, update func() error) error {
				name := nameOf(o)
				if name == "-" || name == "plan" {
					name = o.Kind().String()
				}
				if test.dies && s.ran["a"] == 1 && name == "a" && o.Header().State.Status.Final() {
					return errKilled
				}
				writes = append(writes, name+" "+o.Header().State.Status.String())
				return update()
			}
			s.run(t.Context(), s.updating(note))
			s.run(t.Context(), s.updating(note))
			if got := strings.Join(writes, ", "); got != test.want {
				t.Errorf("%+v\ngot  %s", test, got)
			}
		})
	}
}

// TestIdempotentCheck counts the writes of the rounds of a continuous check: one for each, unless an engine has picked the
// plan up, for its first round.
func TestIdempotentCheck(t *testing.T) {
	for idempotent, want := range map[bool]int{false: 16*2 + 1, true: 16 + 1 + 1} {
		onStage(t, func(t *testing.T, s *stage) {
			p := plan(block("b", sequence("s", do(job{Name: "a", For: 10*time.Second - time.Millisecond}), do(job{Name: "z", For: 10*time.Second - time.Millisecond}))))
			check := do(job{Name: "check"})
			check.Idempotent = idempotent
			p.ContChecks = checks(check)
			p.ContChecks.Delay = time.Second
			s.create(p)
			n := 0
			count := func(o workflow.Object, update func() error) error {
				if nameOf(o) == "check" {
					n++
				}
				return update()
			}
			s.runFor(5500*time.Millisecond, s.updating(count)) // it ends with a
			s.run(t.Context(), s.updating(count))
			if got := s.read(p.ID); n != want || got.State.Status != workflow.Completed {
				t.Errorf("idempotent %t: %d writes in %d rounds, want %d: %s", idempotent, n, s.ran["check"], want, outline(got))
			}
		})
	}
}

// TestCrashesBetweenRounds kills each process during a round of a continuous check that succeeds otherwise.
func TestCrashesBetweenRounds(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := plan(block("b", sequence("s", second("a"))))
		p.Blocks[0].EntranceDelay = 90 * time.Second
		p.ContChecks = checks(second("check"))
		p.ContChecks.Delay = 2 * time.Second
		s.create(p)
		for range 6 {
			rounds := 0
			s.run(t.Context(), s.diesAt(func(o workflow.Object) bool {
				if a, ok := o.(*workflow.Action); ok && a.Name == "check" && !a.Attempts[len(a.Attempts)-1].End.IsZero() {
					rounds++
				}
				return rounds >= 2
			}))
		}
		s.run(t.Context(), s.process())
		if got := s.read(p.ID); got.State.Status != workflow.Completed {
			t.Error(outline(got))
		}
	})
}

// TestRefusedForAMinute refuses the writes of a plan for a minute. The node keeps the plan and its results, and says
// what is wrong.
func TestRefusedForAMinute(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(long("a", "b"))
		var hindered atomic.Int64
		e := s.join("a", engine.Options{Observer: engine.Observer{Hindered: func(context.Context, engine.HinderedEvent) { hindered.Add(1) }}})
		time.Sleep(15 * time.Second) // b runs
		e.On(updates(func(workflow.Object, func() error) error { return fmt.Errorf("hooked: %w", storage.ErrDenied) }))
		time.Sleep(time.Minute)
		seen, err := fleet.Inspect(t.Context(), s.open(), fleet.InspectOptions{})
		if err != nil || len(seen.Plans) != 1 || !strings.Contains(seen.Plans[0].Why, "hooked") {
			t.Errorf("%v; %q", err, seen.Plans[0].Why)
		}
		e.On(nil)
		before := time.Now()
		e.wait(t, 0)
		if got := s.read(p.ID); got.State.Status != workflow.Completed || s.ran["b"] != 1 || hindered.Load() < 2 || time.Since(before) > 90*time.Second {
			t.Errorf("after %v, told %d times, ran %v: %s", time.Since(before), hindered.Load(), s.ran, outline(got))
		}
	})
}

// TestDrain ends a node that runs an action of a day. Its other plan goes on elsewhere as soon as its action ends, and the
// long action is interrupted.
func TestDrain(t *testing.T) {
	onStages(t, []bool{false, true}, func(t *testing.T, s *stage, hangs bool) {
		quick := s.create(long("a", "b"))
		slow := do(job{Name: "slow", For: 24 * time.Hour, Hangs: hangs})
		slow.Timeout = 25 * time.Hour
		s.create(plan(block("b", sequence("s", slow))))
		leaving := s.join("leaving", engine.Options{})
		time.Sleep(5 * time.Second)
		other := s.join("other", engine.Options{})
		time.Sleep(time.Second)
		before := time.Now()
		leaving.stop()
		if took := time.Since(before); took > 32*time.Second {
			t.Errorf("leaving took %v", took)
		}
		if got := s.read(quick.ID); got.State.Status != workflow.Completed {
			t.Errorf("after %v the other plan is\n%s", time.Since(before), outline(got))
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if s.ran["slow"] != 2 || s.ran["a"] != 1 {
			t.Errorf("ran %v", s.ran)
		}
		other.stop()
		time.Sleep(25 * time.Hour) // plugins that hang
	})
}

// TestPermanentErrorInADrain ends an engine whose action answers the end of its context with a Permanent error. The action
// has failed for good, and is not tried again.
func TestPermanentErrorInADrain(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		day := do(job{Name: "day", For: 24 * time.Hour, Permanent: true})
		day.Timeout, day.Retries = 25*time.Hour, 2
		p := s.create(plan(block("b", sequence("s", day))))
		s.runFor(time.Minute, s.process())
		s.runFor(time.Minute, s.process())
		got := s.read(p.ID)
		a := got.Blocks[0].Sequences[0].Actions[0]
		if got.State.Status != workflow.Failed || a.State.Status != workflow.Failed || len(a.Attempts) != 1 || a.Attempts[0].Interrupted || s.ran["day"] != 1 {
			t.Errorf("%s\n%+v", outline(got), a.Attempts)
		}
	})
}

// TestDeathsThatCountAsCrashes ends four nodes, one after the other, while they run the same action. A death counts against
// the action unless the node was draining, or a person evicted it.
func TestDeathsThatCountAsCrashes(t *testing.T) {
	const grace = 29 * time.Second // of an orchestrator, and a second until the signal has arrived
	for _, test := range []struct {
		name  string
		drain time.Duration
		ends  func(t *testing.T, s *stage, p *process)
		want  workflow.Status
	}{
		{"killed", 0, func(_ *testing.T, _ *stage, p *process) { p.Kill() }, workflow.Failed},
		{"frozen", 0, func(_ *testing.T, _ *stage, p *process) { p.Freeze(); time.AfterFunc(time.Hour, p.Thaw) }, workflow.Failed},
		{"shut down, and killed after the grace", 0, func(_ *testing.T, _ *stage, p *process) { p.end(); time.Sleep(grace); p.Kill() }, workflow.Running},
		{"killed while it drains", time.Minute, func(_ *testing.T, _ *stage, p *process) { p.end(); time.Sleep(grace); p.Kill() }, workflow.Running},
		{"evicted", 0, func(t *testing.T, s *stage, p *process) {
			must(t, fleet.Evict(t.Context(), s.open(), p.nodes[0], fleet.EvictOptions{By: asked}))
			p.Kill()
		}, workflow.Running},
	} {
		stageRun(t, test.name, func(t *testing.T, s *stage) {
			day := do(job{Name: "day", For: 24 * time.Hour})
			day.Timeout = 25 * time.Hour
			p := s.create(plan(block("b", sequence("s", day))))
			var all []*process
			for range 5 {
				e := s.join("node", engine.Options{Drain: test.drain})
				all = append(all, e)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if len(all) < 5 {
					test.ends(t, s, e)
				}
			}
			if got := s.read(p.ID); got.State.Status != test.want {
				t.Errorf("ran %v: %s", s.ran, outline(got))
			}
			for _, e := range all {
				e.stop()
			}
		})
	}
}

// TestEvictedEngine evicts a node whose plugin hangs. Its engine comes back at once, and another node has the plan.
func TestEvictedEngine(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(plan(block("b", sequence("s", do(job{Name: "stuck", For: time.Hour, Hangs: true})))))
		hangs := s.join("hangs", engine.Options{})
		time.Sleep(5 * time.Second)
		other := s.join("other", engine.Options{})
		time.Sleep(time.Minute)
		synctest.Wait()
		must(t, fleet.Evict(t.Context(), s.open(), hangs.nodes[0], fleet.EvictOptions{By: asked}))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := s.read(p.ID); len(hangs.nodes) != 2 || got.Owner != other.nodes[0] || s.ran["stuck"] != 2 {
			t.Errorf("it was the nodes %v, the plan is of %v, ran %v", hangs.nodes, got.Owner, s.ran)
		}
		hangs.wait(t, 1)
		other.wait(t, 0)
	})
}

// TestWaitingPlansHoldNoPlace runs a quick plan beside one that waits for hours, in an engine for one plan.
func TestWaitingPlansHoldNoPlace(t *testing.T) {
	efforttest.NotShort(t, "it waits for hours of virtual time")
	onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
		waits := block("b", sequence("s", second("late")))
		waits.EntranceDelay = 3 * time.Hour
		s.create(plan(waits))
		opts := engine.Options{Plans: 1, Fleet: members}
		before, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		must(t, s.engine(s.process(), opts).Run(before))
		ended := start(t.Context(), s.engine(s.process(), opts))
		time.Sleep(15 * time.Second)
		quick := s.create(plan(block("b", sequence("s", second("quick")))))
		time.Sleep(time.Minute)
		if got := s.read(quick.ID); got.State.Status != workflow.Completed {
			t.Errorf("fleet %t: a minute later: %s", members != nil, outline(got))
		}
		must(t, <-ended)
		if s.done["late"] != 1 {
			t.Errorf("fleet %t: ran %v", members != nil, s.ran)
		}
	})
}

// TestFullEngine wakes or stops a plan in an engine whose only place an action has for hours. The plan goes on where
// there is room, and is stopped without room.
func TestFullEngine(t *testing.T) {
	for _, test := range []struct {
		members *fleet.Options
		stop    bool
	}{{nil, true}, {&fleet.Options{}, true}, {&fleet.Options{}, false}} {
		onStage(t, func(t *testing.T, s *stage) {
			waits := block("b", sequence("s", second("late")))
			waits.EntranceDelay = time.Hour
			p := s.create(plan(waits))
			opts := engine.Options{Plans: 1, Drain: time.Second, Fleet: test.members}
			ctx, cancel := context.WithCancel(t.Context())
			full := s.engine(s.process(), opts)
			ended := start(ctx, full)
			time.Sleep(15 * time.Second)
			day := do(job{Name: "day", For: 24 * time.Hour})
			day.Timeout = 25 * time.Hour
			s.create(plan(block("b", sequence("s", day))))
			time.Sleep(time.Minute)
			want := workflow.Completed
			if test.stop {
				must(t, full.Stop(t.Context(), p.ID, asked))
				want = workflow.Stopped
			} else {
				defer s.join("idle", opts).stop()
				time.Sleep(time.Hour)
			}
			time.Sleep(time.Minute)
			if got := s.read(p.ID); got.State.Status != want {
				t.Errorf("%+v: %s", test, outline(got))
			}
			cancel()
			must(t, <-ended)
		})
	}
}

// TestStopInAnOutage stops plans while their writes fail. Each one stops when its writes succeed, also if the first of
// them had an effect.
func TestStopInAnOutage(t *testing.T) {
	for _, at := range []time.Duration{0, 5 * time.Second} { // the plan begins, or runs
		onStage(t, func(t *testing.T, s *stage) {
			p := s.create(long("a", "b"))
			over, stored := time.Now().Add(5*time.Minute), ""
			e := s.engine(s.updating(func(o workflow.Object, update func() error) error {
				p, ok := o.(*workflow.Plan)
				if !ok || at > 0 && p.Reason != workflow.StopRequested || p.State.Status.Final() {
					return update()
				}
				if before := p.State.ETag; stored == "" {
					must(t, update())
					stored, p.State.ETag = p.State.ETag, before
				}
				if time.Now().Before(over) {
					return processtest.Unknown("UpdatePlan")
				}
				p.State.ETag = stored
				return nil
			}), engine.Options{})
			time.AfterFunc(at+time.Second, func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := e.Stop(ctx, p.ID, asked); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
			must(t, e.Run(t.Context()))
			if got := s.read(p.ID); got.State.Status != workflow.Stopped || s.ran["b"] > 0 {
				t.Errorf("at %v: ran %v, left %v: %s", at, s.ran, s.left, outline(got))
			}
		})
	}
}

// TestDrainInAnOutage ends engines whose vault refuses or hangs, one of them with a plan that was asked to stop before.
func TestDrainInAnOutage(t *testing.T) {
	onStages(t, []bool{false, true}, func(t *testing.T, s *stage, hangs bool) {
		p := s.create(long("a", "b"))
		dead := s.join("dead", engine.Options{})
		time.Sleep(5 * time.Second)
		dead.fails(errKilled)
		must(t, fleet.Stop(t.Context(), s.open(), p.ID, asked))
		e := s.join("other", engine.Options{Patience: time.Hour})
		e.On(func(ctx context.Context, c processtest.Call, do func() error) error {
			switch p, ok := c.Object.(*workflow.Plan); {
			case !ok || p.Reason != workflow.StopRequested:
				return do()
			case hangs:
				<-ctx.Done()
			}
			return fmt.Errorf("hooked: %w", storage.ErrDenied)
		})
		time.Sleep(2 * time.Minute)
		before := time.Now()
		e.stop()
		if took := time.Since(before); took > time.Minute || !errors.Is(e.left[p.ID], engine.ErrDraining) {
			t.Errorf("hangs: %t: it ended after %v and left %v", hangs, took, e.left)
		}
		dead.stop()
	})
}

// TestTroubleEnds has a node that can't take its own plan again, until the plan is deleted. Its trouble is over then.
func TestTroubleEnds(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p, other := s.create(long("a")), plan(block("b", sequence("s", do(job{Name: "long", For: 4 * time.Minute}))))
		s.create(other)
		var told []error
		e := s.join("a", engine.Options{Observer: engine.Observer{Hindered: func(_ context.Context, e engine.HinderedEvent) { told = append(told, e.Err) }}})
		time.Sleep(5 * time.Second)
		must(t, s.open().UpdateAction(t.Context(), s.read(p.ID).Blocks[0].Sequences[0].Actions[0]))
		refused := time.Now().Add(time.Minute)
		e.OnOp("Read", func(context.Context, processtest.Call, func() error) error {
			if time.Now().Before(refused) {
				return fmt.Errorf("hooked: %w", storage.ErrDenied)
			}
			return fmt.Errorf("hooked: %w", storage.ErrNotFound)
		})
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if n := len(told); n < 2 || told[n-1] != nil {
			t.Errorf("told %v", told)
		}
		e.stop()
	})
}

// TestClockOfAnotherEngine continues a plan that an engine began whose clock was five minutes ahead. No delay takes
// longer than its author said.
func TestClockOfAnotherEngine(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		b := block("b", sequence("s", second("a")))
		b.EntranceDelay = 3 * time.Second
		p := s.create(plan(b))
		p.Alone = true
		for _, o := range []workflow.Object{p, b} {
			o.Header().State.Status, o.Header().State.Start = workflow.Running, time.Now().Add(5*time.Minute).UTC()
			must(t, storage.Update(t.Context(), s.process(), o))
		}
		s.run(t.Context(), s.process())
		if took := time.Since(s.began); s.done["a"] != 1 || took > 6*time.Second {
			t.Errorf("ran %v in %v", s.ran, took)
		}
	})
}

// TestSubmitRunsAtOnce counts the round trips between the end of Submit and the first action: in one the plan becomes
// Running, and in one the action, unless it is idempotent.
func TestSubmitRunsAtOnce(t *testing.T) {
	const trip = 10 * time.Millisecond
	onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
		p := s.process()
		p.On(func(_ context.Context, _ processtest.Call, do func() error) error {
			time.Sleep(trip)
			return do()
		})
		e := s.engine(p, engine.Options{Fleet: members})
		submit(t, e, plan(block("b", sequence("s", do(job{For: time.Minute})))))
		ended := start(t.Context(), e)
		time.Sleep(20 * time.Second)
		for i, name := range []string{"idempotent", "first"} {
			p := plan(block("b", sequence("s", do(job{Name: name, For: time.Second}))))
			p.Blocks[0].Sequences[0].Actions[0].Idempotent = i == 0
			submit(t, e, p)
			time.Sleep(time.Duration(i+1)*trip + trip/2)
			synctest.Wait()
			if s.ran[name] != 1 {
				t.Errorf("fleet %t: the action %s has not begun", members != nil, name)
			}
		}
		must(t, <-ended)
	})
}

// TestPickUpAtOnce starts an engine beside many stored plans.
func TestPickUpAtOnce(t *testing.T) {
	onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
		for range 300 {
			s.create(plan(block("b", sequence("s", do(job{Name: "a", For: time.Second})))))
		}
		p := s.process()
		p.On(func(_ context.Context, _ processtest.Call, do func() error) error {
			time.Sleep(20 * time.Millisecond)
			return do()
		})
		ended := start(t.Context(), s.engine(p, engine.Options{Plans: 300, Fleet: members}))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.ran["a"] != 300 {
			t.Errorf("fleet %t: two seconds after the start %d of 300 plans run", members != nil, s.ran["a"])
		}
		must(t, <-ended)
	})
}

// rude panics when it is encoded or decoded.
type rude string

func (r rude) MarshalJSON() ([]byte, error) {
	if r == "encoded" {
		panic("rude")
	}
	return json.Marshal(string(r))
}

func (r *rude) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*string)(r)); err == nil && *r == "decoded" {
		panic("rude")
	}
	return nil
}

// TestRudeTypes has requests and responses whose methods panic. The actions fail, and nothing else does.
func TestRudeTypes(t *testing.T) {
	for _, test := range []struct {
		req, resp string
		err       error
	}{{"decoded", "", nil}, {"", "encoded", nil}, {"", "encoded", errors.New("no")}, {"", "decoded", nil}} {
		onStage(t, func(t *testing.T, s *stage) {
			s.reg = registry.Must(s, engine.Task("rude", func(context.Context, engine.Call, rude) (rude, error) { return rude(test.resp), test.err }))
			p := plan(block("b", sequence("s", &workflow.Action{Plugin: "rude", Req: json.RawMessage(fmt.Sprintf("%q", test.req))}), sequence("t", second("a"))))
			p.Blocks[0].ToleratedFailures = 1
			var panics atomic.Int64
			s.create(p)
			must(t, s.engine(s.process(), engine.Options{Observer: engine.Observer{Panicked: func(_ context.Context, e engine.PanickedEvent) {
				if len(e.Panic.Stack) > 0 {
					panics.Add(1)
				}
			}}}).Run(t.Context()))
			got := s.read(p.ID)
			a := got.Blocks[0].Sequences[0].Actions[0]
			if got.State.Status != workflow.Completed || a.State.Status != workflow.Failed || len(a.Attempts) != 1 || panics.Load() != 1 ||
				!strings.Contains(a.Attempts[0].Err.Message, "panic: rude\n\ngoroutine") {
				t.Errorf("%+v: %d panics, %+v: %s", test, panics.Load(), a.Attempts, outline(got))
			}
		})
	}
}

// TestTooManyResults ends a plan whose results have grown too large for the vault, whatever stored them.
func TestTooManyResults(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(plan(block("b", sequence("s", do(job{Name: "a", Size: 900}), do(job{Name: "b", Size: 900}), do(job{Name: "c", Size: 900, Fails: -1})))))
		small := func(o workflow.Object, update func() error) error {
			if p, ok := o.(*workflow.Plan); ok && p.State.Status.Final() && p.Blocks[0].Sequences[0].Actions[0].Attempts[0].Resp != nil {
				return fmt.Errorf("hooked: %w", storage.ErrInvalid)
			}
			return update()
		}
		must(t, s.engine(s.updating(small), engine.Options{MaxResults: 2000, Observer: engine.Observer{Problem: func(context.Context, engine.ProblemEvent) {}}}).Run(t.Context()))
		got := s.read(p.ID)
		c := got.Blocks[0].Sequences[0].Actions[2]
		if got.State.Status != workflow.Failed || c.State.Status != workflow.Failed || !strings.Contains(c.Attempts[0].Err.Message, "Options.MaxResults") {
			t.Errorf("%+v: %s", c.Attempts, outline(got))
		}
	})
}
