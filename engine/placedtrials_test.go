package engine_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// place runs a plan on an engine of its own.
func (s *stage) place(ctx context.Context, id uuid.UUID, epoch int64) (engine.Placed, error) {
	return s.engine(s.process(), engine.Options{}).RunPlan(ctx, id, engine.RunOptions{External: queue, Epoch: epoch})
}

var stopped = &fleet.StopError{Attribution: workflow.Attribution{By: "ops", Why: "wrong"}}

// TestRunPlanStopped stops plans with a context that has ended before RunPlan, or ends while RunPlan reads the plan, or lets it
// sleep. Whatever the plan waits for, it is stopped, and its deferred work runs.
func TestRunPlanStopped(t *testing.T) {
	for name, prepare := range map[string]func(s *stage, p *workflow.Plan){
		"a new plan":    func(s *stage, p *workflow.Plan) { s.create(p) },
		"not yet begun": func(s *stage, p *workflow.Plan) { p.NotBefore = time.Now().Add(time.Hour); s.create(p) },
		"asleep": func(s *stage, p *workflow.Plan) {
			_, err := s.place(s.t.Context(), s.create(p).ID, 0)
			must(s.t, err)
		},
		"paused": func(s *stage, p *workflow.Plan) {
			s.create(p)
			must(s.t, fleet.PausePlan(s.t.Context(), s.process(), p.ID, asked))
		},
		"asleep and paused": func(s *stage, p *workflow.Plan) {
			_, err := s.place(s.t.Context(), s.create(p).ID, 0)
			must(s.t, err)
			must(s.t, fleet.PausePlan(s.t.Context(), s.process(), p.ID, asked))
		},
	} {
		for _, when := range []string{"before", "Read", "UpdatePlan"} {
			t.Run(name+", "+when, func(t *testing.T) {
				onStage(t, func(t *testing.T, s *stage) {
					polls := onPolls(s)
					p := plan(block("b", sequence("s", polls.action(wait{"a", 2, time.Hour}))))
					p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("d", workflow.Always, second("deferred"))}}
					prepare(s, p)
					if when == "UpdatePlan" && name != "a new plan" {
						return // it waits already
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					v := s.process()
					if when == "before" {
						cancel(stopped)
					} else {
						v.OnOp(when, func(_ context.Context, c processtest.Call, do func() error) error {
							if plan, ok := c.Object.(*workflow.Plan); !ok || plan.Asleep() {
								defer cancel(stopped)
							}
							return do()
						})
					}
					got, err := s.engine(v, engine.Options{}).RunPlan(ctx, p.ID, engine.RunOptions{External: queue})
					must(t, err)
					if now := s.read(p.ID); got.Plan.State.Status != workflow.Stopped || got.Plan.Stopped.By != "ops" || outline(got.Plan) != outline(now) {
						t.Errorf("it is %s, stopped by %+v:\n%s", got.Plan.State.Status, got.Plan.Stopped, outline(now))
					}
					s.wantNames("deferred")
				})
			})
		}
	}
}

// TestRunPlanShutBefore runs a plan with a context that has ended, or ends while the plan is claimed, which cuts off the request
// after a while. Nothing of the plan begins, and the next worker needs no epoch.
func TestRunPlanShutBefore(t *testing.T) {
	for _, claims := range []bool{false, true} {
		for range 30 {
			onStage(t, func(t *testing.T, s *stage) {
				s.reg = registry.Must(s, initer{engine.Task("other", func(context.Context, engine.Call, string) (string, error) { return "", nil })})
				p := s.create(plan(block("b", sequence("s", second("a")))))
				ctx, cancel := context.WithCancel(t.Context())
				v := s.process()
				if !claims {
					cancel()
				}
				v.OnOp("UpdatePlan", func(ctx context.Context, c processtest.Call, update func() error) error {
					err := update()
					cancel()
					select {
					case <-ctx.Done():
						return processtest.Unknown(c.Op)
					case <-time.After(time.Second):
						return err
					}
				})
				if _, err := s.engine(v, engine.Options{}).RunPlan(ctx, p.ID, engine.RunOptions{External: queue}); !errors.Is(err, engine.ErrDraining) {
					t.Errorf("%v", err)
				}
				s.wantNames()
				time.Sleep(time.Second) // the store's clock is coarse
				got, err := s.place(t.Context(), p.ID, 0)
				must(t, err)
				if s.wantNames("a"); got.Plan.State.Status != workflow.Completed {
					t.Error(outline(got.Plan))
				}
			})
		}
	}
}

// TestRunPlanUnclaimed runs a plan that an engine without claims began, and one that it let sleep, if that is allowed.
func TestRunPlanUnclaimed(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			p := s.create(plan(block("b", sequence("s", second("a")))))
			if p.State.Status, p.Alone = workflow.Running, true; asleep {
				p.WakeAt = time.Now().Add(-time.Minute)
			}
			must(t, s.process().UpdatePlan(t.Context(), p))
			e := s.engine(s.process(), engine.Options{})
			if _, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue}); !errors.Is(err, fleet.ErrOwned) {
				t.Errorf("asleep: %t: %v", asleep, err)
			}
			got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue, TakeUnclaimed: true})
			must(t, err)
			if got.Plan.State.Status != workflow.Completed || got.Plan.Alone || got.Plan.External != queue || got.Plan.Epoch != 2 {
				t.Errorf("asleep: %t: %+v", asleep, got.Plan)
			}
		})
	}
}

type initer struct {
	*engine.TypedPlugin[string, string]
}

func (initer) Init(ctx context.Context) error { return ctx.Err() }

// TestRunPlanRemoved deletes plans that are placed: while they run, and while they sleep.
func TestRunPlanRemoved(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		polls := onPolls(s)
		for _, p := range []*workflow.Plan{plan(block("b", sequence("s", do(job{Name: "a", For: time.Minute}), second("b")))), plan(block("b", sequence("s", polls.action(wait{"a", 2, time.Hour}))))} {
			s.create(p)
			time.AfterFunc(30*time.Second, func() { must(t, s.open().Delete(t.Context(), p.ID)) })
			_, err := s.place(t.Context(), p.ID, 0)
			if err == nil {
				time.Sleep(time.Minute)
				_, err = s.place(t.Context(), p.ID, 0)
			}
			if !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%v", err)
			}
		}
	})
}

// TestRunPlanUnsuited gives a plan to a worker that lacks its plugin, which leaves it as it is.
func TestRunPlanUnsuited(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(plan(block("b", sequence("s", second("a")))))
		all := s.reg
		s.reg = registry.New()
		if _, err := s.place(t.Context(), p.ID, 0); !errors.Is(err, fleet.ErrUnsuited) {
			t.Errorf("without the plugin: %v", err)
		}
		s.reg = all
		if now := s.read(p.ID); now.State.Status != workflow.NotStarted || now.External.Name != "" {
			t.Errorf("it is %+v", now)
		}
	})
}

// TestRunPlanClosed closes the vault at each call of RunPlan. The error says so in one line, unless the plan is final, and another
// process goes on.
func TestRunPlanClosed(t *testing.T) {
	for n, more := 1, true; more; n++ {
		onStage(t, func(t *testing.T, s *stage) {
			p := plan(block("b", sequence("s", second("a"), second("b"))))
			p.External, p.Keys = queue, []workflow.Key{{Name: "cluster"}}
			s.create(p)
			v, calls := s.process(), 0
			v.Before("", func() {
				if calls++; calls == n {
					must(t, v.Store.Close(t.Context()))
				}
			})
			quiet := engine.Options{Observer: engine.Observer{Problem: func(context.Context, engine.ProblemEvent) {}}}
			got, err := s.engine(v, quiet).RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
			if more = calls >= n; err == nil && !got.Plan.State.Status.Final() || err != nil && (!errors.Is(err, storage.ErrClosed) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("call %d: %+v, %v", n, got, err)
			}
			got, err = s.place(t.Context(), p.ID, s.read(p.ID).Epoch)
			if must(t, err); got.Plan.State.Status != workflow.Completed || len(s.names()) > 3 {
				t.Errorf("call %d: %v ran, and it is\n%s", n, s.names(), outline(got.Plan))
			}
		})
	}
}

// TestRunPlanOutage makes the vault unavailable, or lose its answers, for minutes from the claim on. Either RunPlan outlasts it,
// or whoever calls again takes the plan with the epoch that is stored.
func TestRunPlanOutage(t *testing.T) {
	for _, lost := range []bool{true, false} {
		for _, d := range []time.Duration{30 * time.Second, 10 * time.Minute} {
			onStage(t, func(t *testing.T, s *stage) {
				p := s.create(plan(block("b", sequence("s", second("a"), second("b")))))
				v, until := s.process(), time.Now().Add(d)
				v.OnOp("UpdatePlan", func(_ context.Context, c processtest.Call, update func() error) error {
					switch {
					case time.Now().After(until):
						return update()
					case !lost:
						return processtest.Unavailable(c.Op)
					}
					_ = update()
					return processtest.Unknown(c.Op)
				})
				e := s.engine(v, engine.Options{})
				_, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
				if (err == nil) != (d < time.Minute) {
					t.Errorf("%v, lost: %t: %v", d, lost, err)
				}
				time.Sleep(time.Until(until) + time.Second)
				got, err := s.place(t.Context(), p.ID, 0)
				if owned, ok := errors.AsType[*fleet.OwnedError](err); ok {
					got, err = s.place(t.Context(), p.ID, owned.Epoch)
				}
				must(t, err)
				if got.Plan.State.Status != workflow.Completed {
					t.Error(outline(got.Plan))
				}
				s.wantNames("a", "b")
			})
		}
	}
}

// TestRunPlanSuspended suspends the vault while a plan is placed. What runs ends, and after Resume another worker goes on, also
// in the same engine.
func TestRunPlanSuspended(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(plan(block("b", sequence("s", do(job{Name: "a", For: 30 * time.Second}), second("b")))))
		e := s.engine(s.process(), engine.Options{})
		time.AfterFunc(time.Second, func() {
			_, err := fleet.Suspend(t.Context(), s.process(), asked, fleet.SuspendOptions{})
			must(t, err)
		})
		for range 2 {
			if _, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue}); !errors.Is(err, fleet.ErrSuspended) {
				t.Errorf("%v", err)
			}
		}
		must(t, fleet.Resume(t.Context(), s.process(), asked))
		got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
		if owned, ok := errors.AsType[*fleet.OwnedError](err); ok {
			got, err = e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue, Epoch: owned.Epoch})
		}
		must(t, err)
		if got.Plan.State.Status != workflow.Completed {
			t.Error(outline(got.Plan))
		}
		s.wantNames("a", "b")
		_, err = e.Submit(t.Context(), plan(block("b", sequence("s", second("c")))))
		must(t, err)
	})
}

// TestRunPlanRequests pauses, resumes, signals and stops a placed plan, and looks for what is left of the requests.
func TestRunPlanRequests(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		g := onGate(s, time.Hour)
		p := s.create(plan(block("b", sequence("s", do(job{Name: "a", For: 30 * time.Second}), g.action(2), second("z")))))
		time.AfterFunc(time.Second, func() { must(t, fleet.PausePlan(t.Context(), s.process(), p.ID, asked)) })
		for range 2 {
			got, err := s.place(t.Context(), p.ID, 0)
			must(t, err)
			if got.Paused.By != asked.By || !got.WakeAt.IsZero() {
				t.Errorf("it waits as %+v", got)
			}
		}
		must(t, fleet.ResumePlan(t.Context(), s.process(), p.ID, asked))
		got, err := s.place(t.Context(), p.ID, 0)
		must(t, err)
		if got.LastSignal != 0 || got.WakeAt.IsZero() || got.Paused.By != "" {
			t.Errorf("it waits as %+v", got)
		}
		s.send(p, "approved", "ana")
		got, err = s.place(t.Context(), p.ID, 0)
		must(t, err)
		if got.LastSignal != 1 || got.WakeAt.IsZero() {
			t.Errorf("after a signal, it waits as %+v", got)
		}
		must(t, fleet.Stop(t.Context(), s.process(), p.ID, asked))
		got, err = s.place(t.Context(), p.ID, 0)
		must(t, err)
		if got.Plan.State.Status != workflow.Stopped || got.Plan.Stopped.By != asked.By {
			t.Errorf("it is %s", outline(got.Plan))
		}
		s.wantNames("a")
		control, _ := storage.As[storage.Control](s.open())
		r, err := control.Roster(t.Context())
		must(t, err)
		if len(r.Stops) > 0 || len(r.Notes) > 0 || len(r.Members) > 0 {
			t.Errorf("it is left: %+v", r)
		}
	})
}

// TestRunPlanDeadline lets a plan sleep past its deadline, and one wait for a key that is paused. The hook is told once.
func TestRunPlanDeadline(t *testing.T) {
	for _, keys := range [][]workflow.Key{nil, {{Name: "cluster"}}} {
		onStage(t, func(t *testing.T, s *stage) { endsAtItsDeadline(t, s, keys) })
	}
}

func endsAtItsDeadline(t *testing.T, s *stage, keys []workflow.Key) {
	polls := onPolls(s)
	p := plan(block("b", sequence("s", polls.action(wait{"a", 2, time.Hour}))))
	p.Keys, p.Deadline = keys, time.Now().Add(20*time.Minute)
	s.create(p)
	must(t, fleet.PauseKey(t.Context(), s.process(), "cluster", time.Now().Add(time.Hour), asked))
	var told []string
	e := s.engine(s.process(), engine.Options{Ended: func(_ context.Context, p *workflow.Plan) error {
		told = append(told, p.State.Status.String())
		return nil
	}})
	var got engine.Placed
	for range 3 {
		var err error
		got, err = e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
		must(t, err)
		time.Sleep(time.Until(got.WakeAt))
	}
	if got.Plan.State.Status != workflow.Stopped || got.Plan.Reason != workflow.DeadlineExceeded || !slices.Equal(told, []string{"Stopped"}) || time.Since(p.Deadline) > time.Minute {
		t.Errorf("told %v of\n%s", told, outline(got.Plan))
	}
}

// TestRunPlanHeartbeat counts heartbeats, and has one that blocks: RunPlan waits for it.
func TestRunPlanHeartbeat(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(plan(block("b", sequence("s", do(job{Name: "a", For: 35 * time.Second})))))
		beats, began := 0, time.Now()
		e := s.engine(s.process(), engine.Options{})
		_, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue, Heartbeat: func(b engine.Beat) {
			if beats++; beats == 3 {
				time.Sleep(time.Minute)
			}
			if b.Plan != p.ID || b.Epoch != 1 {
				t.Errorf("%+v", b)
			}
		}})
		must(t, err)
		if d := time.Since(began); d != 80*time.Second || beats != 3 {
			t.Errorf("%d beats in %v", beats, d)
		}
	})
}

// TestRunPlanHeartbeatPanics has heartbeats that panic or end their goroutine. The plan goes on, and so do the heartbeats.
func TestRunPlanHeartbeatPanics(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(plan(block("b", sequence("s", do(job{Name: "a", For: 35 * time.Second})))))
		beats, problems := 0, 0
		e := s.engine(s.process(), engine.Options{Observer: engine.Observer{Problem: func(_ context.Context, e engine.ProblemEvent) {
			if _, ok := errors.AsType[*plugins.Panic](e.Err); !ok {
				t.Error(e.Err)
			}
			problems++
		}}})
		got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue, Heartbeat: func(engine.Beat) {
			switch beats++; beats {
			case 1, 2:
				panic("boom")
			case 3:
				runtime.Goexit()
			}
		}})
		must(t, err)
		if got.Plan.State.Status != workflow.Completed || beats != 4 || problems != 3 {
			t.Errorf("%d heartbeats and %d problems of\n%s", beats, problems, outline(got.Plan))
		}
	})
}

// TestRunPlanTwiceHere fences a worker by another one of the same engine. Whatever the first one does meanwhile, the plan sleeps
// and ends as ever.
func TestRunPlanTwiceHere(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		polls := onPolls(s)
		p := s.create(plan(block("b", sequence("s", do(job{Name: "a", For: 20 * time.Second}), polls.action(wait{"poll", 2, time.Hour})))))
		e := s.engine(s.process(), engine.Options{})
		first := make(chan error, 1)
		go func() {
			_, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
			first <- err
		}()
		time.Sleep(5 * time.Second)
		for epoch := int64(1); ; epoch = 0 {
			got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue, Epoch: epoch})
			must(t, err)
			if got.Plan.State.Status.Final() {
				break
			}
			time.Sleep(time.Until(got.WakeAt))
		}
		if err := <-first; !errors.Is(err, fleet.ErrFenced) || len(s.names()) != 2 {
			t.Errorf("the first returned %v, and these ran: %v", err, s.names())
		}
	})
}

// TestRunPlanFinal gives a final plan to a worker again: at once, which completes an end that was interrupted, and when its day
// has a catalogue and is held, which has no effect.
func TestRunPlanFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newStage(t), emulator.New(emulator.Options{})
		s.stored = nil
		vault := s.vault(server)
		e := s.engine(vault, engine.Options{})
		p := plan(block("b", sequence("s", second("a"))))
		must(t, vault.Create(t.Context(), p))
		run := func() {
			t.Helper()
			got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
			must(t, err)
			if got.Plan.State.Status != workflow.Completed {
				t.Error(outline(got.Plan))
			}
		}
		run()
		server.ResetRequests()
		run()
		if !slices.ContainsFunc(server.Requests(), func(r emulator.Request) bool { return r.Method == "PUT" }) {
			t.Error("an end that may have been interrupted was not completed")
		}
		time.Sleep(48 * time.Hour)
		_, err := vault.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{})
		must(t, err)
		must(t, vault.Admin().Hold(t.Context(), storage.DayOf(workflow.Time(p.ID)), asked))
		server.ResetRequests()
		run()
		for _, r := range server.Requests() {
			if r.Method != "GET" && r.Method != "HEAD" {
				t.Errorf("%s %s %s -> %d", r.Method, r.Container, r.Blob, r.Status)
			}
		}
		s.wantNames("a")
		must(t, vault.Close(t.Context()))
	})
}

// TestRunPlanDies kills a worker before or after each of its calls. The next one goes on with the epoch that the store tells, and
// runs again only what was not stored as ended.
func TestRunPlanDies(t *testing.T) {
	for _, after := range []bool{false, true} {
		died := true
		for at := int64(1); died; at++ {
			onStage(t, func(t *testing.T, s *stage) {
				polls := onPolls(s)
				p := plan(block("b", sequence("s", second("a"), second("b")), sequence("s2", polls.action(wait{"poll", 1, time.Hour}))))
				p.Blocks[0].Concurrency, p.PostChecks = 2, checks(second("post"))
				p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("d", workflow.Always, second("deferred"))}}
				s.create(p)
				v := s.process()
				var calls atomic.Int64
				ended := map[string]bool{}
				v.On(func(_ context.Context, c processtest.Call, do func() error) error {
					if calls.Add(1) != at {
						return do()
					}
					if after {
						_ = do()
					}
					v.Kill()
					for o := range workflow.Walk(s.read(p.ID)) {
						if a, ok := o.(*workflow.Action); ok && a.State.Status.Final() {
							ended[a.Name] = true
						}
					}
					return processtest.Unknown(c.Op)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				placed, err := s.engine(v, engine.Options{}).RunPlan(ctx, p.ID, engine.RunOptions{External: queue})
				if died = calls.Load() >= at; died && err == nil {
					t.Errorf("it returned %+v although its process died", placed)
				}
				before := len(s.names())
				for range 5 {
					placed, err = s.place(t.Context(), p.ID, 0)
					if owned, ok := errors.AsType[*fleet.OwnedError](err); ok {
						placed, err = s.place(t.Context(), p.ID, owned.Epoch)
					}
					must(t, err)
					if placed.Plan.State.Status.Final() {
						break
					}
					time.Sleep(time.Until(placed.WakeAt))
				}
				if placed.Plan.State.Status != workflow.Completed {
					t.Errorf("call %d, after: %t:\n%s", at, after, outline(s.read(p.ID)))
				}
				for _, name := range s.names()[before:] {
					if ended[name] {
						t.Errorf("call %d, after: %t: %s ran again", at, after, name)
					}
				}
			})
		}
	}
}

// TestRunPlanHears asks something of each of four plans that one engine runs. Each hears within an interval what is for it, and
// nothing else.
func TestRunPlanHears(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		g := onGate(s, 4*time.Minute) // in memory
		e := s.engine(s.process(), engine.Options{})
		want := []string{"Stopped", "Running, paused by " + asked.By, "Completed", "Completed"}
		got, ids := make([]string, len(want)), make([]uuid.UUID, len(want))
		began, ended := time.Now(), make([]time.Duration, len(want))
		var work sync.WaitGroup
		for i := range want {
			p := s.create(plan(block("b", sequence("s", g.action(i/2%2), do(job{Name: "a", For: 30 * time.Second}), second("b")))))
			if ids[i] = p.ID; i == 2 {
				time.AfterFunc(10*time.Second, func() { s.send(p, "go", "ana") })
			}
			if i == 3 {
				s.send(p, "go", "ana")
			}
			work.Go(func() {
				placed, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
				must(t, err)
				if got[i], ended[i] = placed.Plan.State.Status.String(), time.Since(began); placed.Paused.By != "" {
					got[i] += ", paused by " + placed.Paused.By
				}
			})
		}
		time.Sleep(5 * time.Second)
		must(t, fleet.Stop(t.Context(), s.process(), ids[0], asked))
		must(t, fleet.PausePlan(t.Context(), s.process(), ids[1], asked))
		work.Wait()
		if !slices.Equal(got, want) || slices.Max(ended) > time.Minute {
			t.Errorf("they are %q after %v", got, ended)
		}
	})
}
