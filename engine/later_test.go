package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// wait is a request of the plugin of a poller.
type wait struct {
	Name  string
	Polls int // that are not the last
	Every time.Duration
}

// polled is the state of a poller between two calls.
type polled struct{ Polls int }

// poller has a plugin that polls.
type poller struct {
	*engine.TypedPlugin[wait, string]

	mu    sync.Mutex
	began time.Time
	calls map[string][]string // when each was, and with what state
}

// onPolls adds a poller to a stage.
func onPolls(s *stage) *poller {
	p := &poller{began: time.Now(), calls: map[string][]string{}}
	p.TypedPlugin = engine.Task("poll", p.poll)
	s.reg = registry.Must(s, p.TypedPlugin)
	return p
}

func (p *poller) poll(_ context.Context, call engine.Call, req wait) (string, error) {
	var state polled
	again, err := call.State(&state)
	if err != nil || again != (state.Polls > 0) {
		return "", fmt.Errorf("again %v with %+v: %w", again, state, err)
	}
	p.mu.Lock()
	p.calls[req.Name] = append(p.calls[req.Name], fmt.Sprintf("%v:%d/%d", time.Since(p.began).Round(time.Minute), state.Polls, call.Attempt))
	p.mu.Unlock()
	if state.Polls == req.Polls {
		return "done", nil
	}
	return "ignored", engine.Later(req.Every, polled{state.Polls + 1})
}

// took returns the calls for an action.
func (p *poller) took(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.calls[name], " ")
}

// action returns an action that polls, and has time for it.
func (p *poller) action(req wait) *workflow.Action {
	a := p.Action(req.Name, req)
	a.Timeout = 1000 * time.Hour
	return a
}

// TestLater polls each minute, for which the plan stays where it is, and each hour, for which it sleeps. Attempts don't
// grow, and the engine sees nothing of a response beside Later.
func TestLater(t *testing.T) {
	for _, members := range []*fleet.Options{nil, {}} {
		for every, sleeps := range map[time.Duration]bool{time.Minute: false, time.Hour: true} {
			onStage(t, func(t *testing.T, s *stage) {
				p, opts := onPolls(s), engine.Options{Poll: time.Minute, Fleet: members}
				made := s.create(plan(block("b", sequence("s", p.action(wait{"a", 3, every}), second("next")))))
				ended := start(t.Context(), s.engine(s.process(), opts))
				time.Sleep(every + every/2)
				now := s.read(made.ID)
				a := now.Blocks[0].Sequences[0].Actions[0]
				if l := a.Later(); l == nil || len(a.Attempts) != 1 || string(l.State) != `{"Polls":2}` || a.State.Status != workflow.Running {
					t.Errorf("every %v: stored as %+v", every, a.Attempts)
				}
				if now.Asleep() != sleeps {
					t.Errorf("every %v, the plan sleeps: %v", every, now.Asleep())
				}
				if sleeps && now.WakeAt.Sub(a.Later().At).Abs() > time.Second {
					t.Errorf("it sleeps until %v, and is due at %v", now.WakeAt, a.Later().At)
				}
				must(t, <-ended)
				end := s.read(made.ID)
				a = end.Blocks[0].Sequences[0].Actions[0]
				if end.State.Status != workflow.Completed || len(a.Attempts) != 1 || a.Attempts[0].Later != nil || end.Asleep() {
					t.Errorf("every %v: %s", every, outline(end))
				}
				want := fmt.Sprintf("0s:0/1 %v:1/1 %v:2/1 %v:3/1", every, 2*every, 3*every)
				if got := p.took("a"); got != want {
					t.Errorf("every %v, in a fleet %v: called at\n%s, want\n%s", every, members != nil, got, want)
				}
			})
		}
	}
}

// TestLaterBounds lets a plugin ask for what can't be, and wait for longer than its timeout.
func TestLaterBounds(t *testing.T) {
	for name, test := range map[string]struct {
		d     time.Duration
		state any
		want  string // of the error
		after time.Duration
	}{
		"negative":        {-time.Second, nil, "engine.Later: -1s is negative", 0},
		"too large":       {time.Minute, strings.Repeat("x", engine.MaxState), "engine.Later: the state has 65538 bytes, at most 65536 are allowed", 0},
		"no JSON":         {time.Minute, math.Inf(1), "engine.Later: the state can't be stored", 0},
		"for ever":        {math.MaxInt64, nil, "timed out after 3h0m0s", 3 * time.Hour},
		"again and again": {10 * time.Minute, nil, "timed out after 3h0m0s", 3 * time.Hour},
	} {
		onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
			calls := 0
			s.reg = registry.Must(s, engine.Task("later", func(context.Context, engine.Call, int) (string, error) {
				calls++
				return "", fmt.Errorf("wrapped: %w", engine.Later(test.d, test.state))
			}))
			opts := engine.Options{Poll: time.Minute, Fleet: members}
			p := s.create(plan(block("b", sequence("s", &workflow.Action{Name: "a", Plugin: "later", Timeout: 3 * time.Hour}))))
			must(t, s.engine(s.process(), opts).Run(t.Context()))
			a := s.read(p.ID).Blocks[0].Sequences[0].Actions[0]
			if a.State.Status != workflow.Failed || len(a.Attempts) != 1 || !strings.Contains(a.Attempts[0].Err.Message, test.want) {
				t.Errorf("%s: %s: %+v", name, a.State.Status, a.Attempts)
			}
			if took := a.State.End.Sub(a.State.Start).Truncate(time.Minute); took != test.after {
				t.Errorf("%s: it took %v, want %v", name, took, test.after)
			}
		})
	}
}

// TestLaterKilled kills the engine at each of its updates, before or after it takes effect. The next one ends the plan. No
// call of an action with AtMost is made twice.
func TestLaterKilled(t *testing.T) {
	for _, members := range []*fleet.Options{nil, {}} {
		for _, atMost := range []int{0, 1} {
			for _, after := range []bool{false, true} {
				for at := 1; ; at += efforttest.Pick(3, 1, 1) {
					var reached atomic.Bool
					onStage(t, func(t *testing.T, s *stage) {
						s.stored = nil
						p, opts := onPolls(s), engine.Options{Poll: time.Minute, Fleet: members}
						a := p.action(wait{"a", 2, 10 * time.Minute})
						a.AtMost = atMost
						made := s.create(plan(block("b", sequence("s", a, second("next")))))
						n, died := 0, processtest.New(s.open())
						ctx, cancel := context.WithCancel(t.Context())
						died.On(func(_ context.Context, c processtest.Call, do func() error) error {
							if reached.Load() {
								return errKilled
							}
							if c.Object == nil || c.Op == "Create" {
								return do()
							}
							if n++; n == at {
								if reached.Store(true); after {
									_ = do()
								}
								died.Kill()
								cancel()
								return errKilled
							}
							return do()
						})
						opts.Drain, opts.Observer.Problem = time.Second, func(context.Context, engine.ProblemEvent) {}
						_ = s.engine(died, opts).Run(ctx)
						cancel()
						time.Sleep(time.Minute)
						must(t, s.engine(s.process(), opts).Run(t.Context()))
						end := s.read(made.ID)
						if atMost == 0 && end.State.Status != workflow.Completed || !end.State.Status.Final() || end.Asleep() {
							t.Errorf("in a fleet %v, killed at update %d, %v: %s", members != nil, at, after, outline(end))
						}
						seen := map[string]bool{}
						for call := range strings.FieldsSeq(p.took("a")) {
							_, state, _ := strings.Cut(call, ":")
							if atMost == 1 && seen[state] {
								t.Errorf("in a fleet %v, killed at update %d, %v: called twice: %s", members != nil, at, after, p.took("a"))
							}
							seen[state] = true
						}
						if calls := strings.Fields(p.took("a")); atMost == 0 && (len(seen) < 3 || len(calls) > 5) {
							t.Errorf("in a fleet %v, killed at update %d, %v: calls %s", members != nil, at, after, p.took("a"))
						}
					})
					if !reached.Load() {
						if at < 8 {
							t.Errorf("only %d updates", at-1)
						}
						break
					}
				}
			}
		}
	}
}

// TestStopAsleep stops plans that sleep. What waits is Stopped, and its attempt has an end.
func TestStopAsleep(t *testing.T) {
	onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
		p, opts := onPolls(s), engine.Options{Poll: time.Minute, Fleet: members}
		deferred := plan(block("b", sequence("s", p.action(wait{"a", 3, time.Hour}))))
		deferred.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("d", workflow.OnFailure, second("clean"))}}
		made := s.create(deferred)
		e := s.engine(s.process(), opts)
		ended := start(t.Context(), e)
		time.Sleep(10 * time.Minute)
		if !s.read(made.ID).Asleep() {
			t.Fatal("the plan does not sleep")
		}
		must(t, e.Stop(t.Context(), made.ID, asked))
		time.Sleep(time.Minute)
		end := s.read(made.ID)
		a := end.Blocks[0].Sequences[0].Actions[0]
		if end.State.Status != workflow.Stopped || !isAsked(end.Stopped) || a.State.Status != workflow.Stopped || a.Attempts[0].End.IsZero() || !a.Attempts[0].Interrupted || a.Attempts[0].Later != nil || s.done["clean"] != 1 {
			t.Errorf("in a fleet %v: %s%+v, stopped by %+v", members != nil, outline(end), a.Attempts, end.Stopped)
		}
		must(t, <-ended)
	})
}

// TestStoppedPlansStayAwake: the deferred work of a plan that was asked to stop waits for an hour. The plan waits in memory,
// since a request to stop wakes what sleeps, and the work on it does not begin again and again.
func TestStoppedPlansStayAwake(t *testing.T) {
	for name, late := range map[string]bool{"stopped": false, "asked too late": true} {
		onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
			p, opts, pickUps := onPolls(s), engine.Options{Poll: time.Minute, Fleet: members}, 0
			opts.Observer.PickedUp = func(context.Context, engine.PickedUpEvent) { pickUps++ }
			first := second("first")
			if !late {
				first = p.action(wait{"first", 1, time.Hour})
			}
			stopped := plan(block("b", sequence("s", first)))
			stopped.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("d", workflow.Always, p.action(wait{"clean", 1, time.Hour}))}}
			made := s.create(stopped)
			e := s.engine(s.process(), opts)
			ended := start(t.Context(), e)
			time.Sleep(time.Minute)
			if members != nil {
				must(t, fleet.Stop(t.Context(), s.open(), made.ID, asked))
			} else {
				if err := e.Stop(t.Context(), made.ID, asked); errors.Is(err, fleet.ErrNotRunning) != late {
					t.Errorf("%s: %v", name, err)
				}
			}
			must(t, <-ended)
			want := map[bool]workflow.Status{false: workflow.Stopped, true: workflow.Completed}[late]
			if end := s.read(made.ID); end.State.Status != want || len(p.calls["clean"]) != 2 || pickUps > 3 {
				t.Errorf("%s, in a fleet %t: picked up %d times, calls %v, %s", name, members != nil, pickUps, p.calls, outline(end))
			}
		})
	}
}

// TestSleepOfDelays lets plans sleep that wait for a delay, a retry, or the next round of continuous checks, and looks that
// what follows begins when it would have without that.
func TestSleepOfDelays(t *testing.T) {
	retried := do(job{Name: "retried", Fails: 1})
	retried.Retries, retried.Backoff.First, retried.Backoff.Most = 1, time.Hour, time.Hour
	entrance, exit, pre := block("b", sequence("s", do(job{Name: "a"}))), block("b", sequence("s", do(job{Name: "a"}))), block("b", sequence("s", do(job{Name: "a"})))
	entrance.EntranceDelay, exit.ExitDelay = time.Hour, time.Hour
	pre.PreChecks = checks(do(job{Name: "check"}))
	pre.PreChecks.Delay = time.Hour
	for name, test := range map[string]struct {
		plan *workflow.Plan
		want string
	}{
		"entrance": {plan(entrance), "1h0m0s a"},
		"exit":     {plan(exit, block("c", sequence("s", do(job{Name: "b"})))), "0s a, 1h0m0s b"},
		"checks":   {plan(pre), "1h0m0s check, 1h0m0s a"},
		"retry":    {plan(block("b", sequence("s", retried))), "0s retried, 1h0m0s retried"},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			s.create(test.plan)
			ended := start(t.Context(), s.engine(s.process(), engine.Options{Poll: time.Minute}))
			time.Sleep(30 * time.Minute)
			if !s.read(test.plan.ID).Asleep() {
				t.Errorf("%s: the plan does not sleep", name)
			}
			must(t, <-ended)
			var got []string
			for _, line := range s.log {
				at, job, _ := strings.Cut(line, " ")
				d, _ := time.ParseDuration(at)
				got = append(got, fmt.Sprintf("%v %s", d.Round(time.Minute), job))
			}
			if strings.Join(got, ", ") != test.want || s.read(test.plan.ID).State.Status != workflow.Completed {
				t.Errorf("%s: ran %q, want %q", name, got, test.want)
			}
		})
	}
}

// TestSleepOfRounds lets plans sleep between two rounds of a continuous check, which keep their distance although an action
// wakes the plan more often; within a round, of which nothing is checked again; and before each retry of a check, which fails
// when its retries are used up.
func TestSleepOfRounds(t *testing.T) {
	failing := do(job{Name: "check", FailsFrom: 2})
	failing.Retries, failing.Backoff.First, failing.Backoff.Most = 2, 10*time.Minute, 10*time.Minute
	for name, test := range map[string]struct {
		work, slow wait // the work, and what follows the check in its round
		check      *workflow.Action
		ran        int // the check
		reason     workflow.FailureReason
		within     time.Duration
	}{
		"between rounds": {wait{"a", 3, 50 * time.Minute}, wait{"slow", 0, 0}, do(job{Name: "check"}), 3, workflow.NoFailure, 3 * time.Hour},
		"in a round":     {wait{"a", 1, 210 * time.Minute}, wait{"slow", 3, time.Hour}, do(job{Name: "check"}), 1, workflow.NoFailure, 4 * time.Hour},
		"retries":        {wait{"a", 1, 20 * time.Hour}, wait{"slow", 0, 0}, failing, 4, workflow.ContCheckFailed, 2 * time.Hour},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			p := onPolls(s)
			made := plan(block("b", sequence("s", p.action(test.work))))
			made.ContChecks = checks(test.check, p.action(test.slow))
			made.ContChecks.Delay = time.Hour
			s.create(made)
			must(t, s.engine(s.process(), engine.Options{Poll: time.Minute}).Run(t.Context()))
			end := s.read(made.ID)
			if took := end.State.End.Sub(s.began); end.Reason != test.reason || s.ran["check"] != test.ran || took > test.within {
				t.Errorf("%s: after %v, checked %d times, %s", name, took, s.ran["check"], outline(end))
			}
		})
	}
}

// TestPollers lets a thousand actions of a plan poll each minute, in an engine with 16 places, beside a quick plan each
// minute. It counts the updates.
func TestPollers(t *testing.T) {
	actions, polls := efforttest.Pick(100, 1000, 1000), 10
	onStage(t, func(t *testing.T, s *stage) {
		s.stored = nil
		p := onPolls(s)
		b := block("b")
		b.Concurrency = actions
		for i := range actions {
			b.Sequences = append(b.Sequences, sequence("s", p.action(wait{fmt.Sprint(i), polls, time.Minute})))
		}
		made := s.create(plan(b))
		v, count := s.counted()
		e := s.engine(v, engine.Options{Plans: 1})
		ended := start(t.Context(), e)
		for range polls / 2 {
			time.Sleep(65 * time.Second)
			quick := submit(t, e, plan(block("b", sequence("s", second("quick")))))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			_, err := quick.Wait(ctx)
			cancel()
			must(t, err)
		}
		must(t, <-ended)
		if s.read(made.ID).State.Status != workflow.Completed {
			t.Error(outline(s.read(made.ID)))
		}
		// An action is stored before its first call, and after each call.
		if got, most := count.take()["UpdateAction"], actions*(1+polls+1)+2*(polls/2); got > most {
			t.Errorf("%d updates of actions, at most %d", got, most)
		}
	})
}

// TestSleepFails lets the update fail that puts a plan to sleep. The plan goes on, and sleeps later.
func TestSleepFails(t *testing.T) {
	for _, members := range []*fleet.Options{nil, {}} {
		onStages(t, []func(string) error{processtest.Unavailable, processtest.Unknown}, func(t *testing.T, s *stage, with func(string) error) {
			s.stored = nil
			p, opts, fails := onPolls(s), engine.Options{Poll: time.Minute, Fleet: members}, 2
			made := s.create(plan(block("b", sequence("s", p.action(wait{"a", 1, time.Hour})))))
			v := s.updating(func(o workflow.Object, update func() error) error {
				if p, ok := o.(*workflow.Plan); ok && p.Asleep() && fails > 0 {
					fails--
					return with("UpdatePlan")
				}
				return update()
			})
			ended := start(t.Context(), s.engine(v, opts))
			time.Sleep(10 * time.Minute)
			if !s.read(made.ID).Asleep() || fails > 0 {
				t.Errorf("in a fleet %v, with %v: the plan does not sleep: %d, %+v", members != nil, with(""), fails, s.read(made.ID))
			}
			must(t, <-ended)
			if got := p.took("a"); s.read(made.ID).State.Status != workflow.Completed || got != "0s:0/1 1h0m0s:1/1" {
				t.Errorf("in a fleet %v: called at %s", members != nil, got)
			}
		})
	}
}

// TestCostOfSleep counts the requests about a plan from one call of its plugin to the next, an hour later: the update of the
// action, the update that lets the plan sleep, its read, and the update that wakes it.
func TestCostOfSleep(t *testing.T) {
	efforttest.NotShort(t, "it counts requests")
	for _, members := range []*fleet.Options{nil, {}} {
		onEmulator(t, func(t *testing.T, s *stage, server *emulator.Server) {
			p, opts := onPolls(s), engine.Options{NoRetention: true, Fleet: members}
			made := plan(block("b", sequence("s", p.action(wait{"a", 3, time.Hour}))))
			must(t, s.open().Create(t.Context(), made))
			e, err := engine.New(s.open(), opts)
			must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := start(ctx, e)
			time.Sleep(30 * time.Minute)
			server.ResetRequests()
			time.Sleep(time.Hour)
			got := map[emulator.Op]int{}
			for _, r := range server.Requests() {
				if strings.Contains(r.Blob+r.Prefix, made.ID.String()) {
					got[r.Op]++
				}
			}
			want := "map[GetBlob:5 HeadBlob:4 PutBlob:3]" // two HEADs are of searches, which see that the plan has changed
			if members != nil {
				want = "map[GetBlob:5 HeadBlob:5 PutBlob:3]" // and one of the hourly search
			}
			if fmt.Sprint(got) != want {
				t.Errorf("in a fleet %v: %v, want %s", members != nil, got, want)
			}
			cancel()
			must(t, <-ended)
		})
	}
}

// TestLaterCrashes kills engines while an action waits to be called again, which is no fault of the action, and then one that
// calls it again: the state is not lost.
func TestLaterCrashes(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.stored = nil
		p := onPolls(s)
		made := s.create(plan(block("b", sequence("s", p.action(wait{"a", 2, 4 * time.Minute})))))
		dies := func(v *processtest.Process, after time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), after+5*time.Second)
			defer cancel()
			time.AfterFunc(after, v.Kill)
			opts := engine.Options{Drain: time.Second, Crashes: 1}
			opts.Observer.Problem = func(context.Context, engine.ProblemEvent) {}
			_ = s.engine(v, opts).Run(ctx)
		}
		for range 6 { // more than Options.Crashes
			dies(s.process(), 10*time.Second)
		}
		died := s.process()
		died.On(updates(func(o workflow.Object, update func() error) error {
			err := update()
			if a, ok := o.(*workflow.Action); ok && a.Later() != nil && a.Later().Called {
				died.Kill()
				return errKilled
			}
			return err
		}))
		dies(died, 10*time.Minute)
		dies(s.process(), 2*time.Minute) // one crash, and the attempt after it waits
		must(t, s.engine(s.process(), engine.Options{Crashes: 1}).Run(t.Context()))
		end := s.read(made.ID)
		if a := end.Blocks[0].Sequences[0].Actions[0]; end.State.Status != workflow.Completed || len(a.Attempts) != 2 || a.Attempts[0].Later != nil {
			t.Errorf("%s%+v", outline(end), a.Attempts)
		}
		// When the engine that died returns depends on whether it searches once more.
		if got := p.took("a"); !strings.HasPrefix(got, "0s:0/1 ") || !strings.Contains(got, ":1/2 ") || !strings.HasSuffix(got, ":2/2") {
			t.Errorf("called at %s", got)
		}
	})
}

// TestLaterInterrupted shuts the engine down while the second call of an attempt runs. The next engine makes the call again,
// with its state, in the same attempt, or in another one if AtMost allows that.
func TestLaterInterrupted(t *testing.T) {
	for atMost, want := range map[int]struct {
		calls  string
		status workflow.Status
	}{
		0: {"1:0 1:1 1:1", workflow.Completed},
		1: {"1:0 1:1", workflow.Failed},
		2: {"1:0 1:1 2:1", workflow.Completed},
	} {
		onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
			var calls []string
			s.reg = registry.Must(s, engine.Task("later", func(ctx context.Context, call engine.Call, _ int) (string, error) {
				var n int
				_, err := call.State(&n)
				switch calls = append(calls, fmt.Sprintf("%d:%d", call.Attempt, n)); len(calls) {
				case 1:
					return "", engine.Later(time.Minute, 1)
				case 2:
					<-ctx.Done()
					return "", ctx.Err()
				}
				return "", err
			}))
			opts := engine.Options{Drain: time.Second, Fleet: members}
			made := s.create(plan(block("b", sequence("s", &workflow.Action{Name: "a", Plugin: "later", AtMost: atMost, Timeout: time.Hour}))))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			must(t, s.engine(s.process(), opts).Run(ctx))
			must(t, s.engine(s.process(), opts).Run(t.Context()))
			a := s.read(made.ID).Blocks[0].Sequences[0].Actions[0]
			if got := strings.Join(calls, " "); got != want.calls || a.State.Status != want.status || a.Attempts[len(a.Attempts)-1].Later != nil {
				t.Errorf("at most %d, in a fleet %v: called %s, %s: %+v", atMost, members != nil, got, a.State.Status, a.Attempts)
			}
		})
	}
}

// TestStopOfRounds stops a plan whose continuous check waits to be called again, while no engine runs. The attempt has an end,
// and no state is left.
func TestStopOfRounds(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := onPolls(s)
		made := plan(block("b", sequence("s", do(job{Name: "a", For: 10 * time.Second}), second("b"))))
		made.ContChecks = checks(p.action(wait{"check", 1, time.Minute}))
		s.create(made)
		s.runFor(5*time.Second, s.process())
		stopped := s.read(made.ID)
		stopped.Reason = workflow.StopRequested
		must(t, s.process().UpdatePlan(t.Context(), stopped))
		s.run(t.Context(), s.process())
		end := s.read(made.ID)
		if a := end.ContChecks.Actions[0]; a.State.Status != workflow.Stopped || a.Attempts[0].Later != nil || a.Attempts[0].End.IsZero() {
			t.Errorf("%s%+v", outline(end), a.Attempts)
		}
	})
}
