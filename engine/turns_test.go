package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// keyed stores a plan with one action and a key.
func (s *stage) keyed(name string, a *workflow.Action) *workflow.Plan {
	p := plan(block("b", sequence("s", a)))
	p.Name, p.Keys = name, []workflow.Key{{Name: "cluster"}}
	return s.create(p)
}

// wantTurns checks that all jobs have run, one at a time and in order.
func (s *stage) wantTurns(names ...string) {
	s.t.Helper()
	if s.wantNames(names...); s.most > 1 {
		s.t.Errorf("%d jobs ran at once", s.most)
	}
	control, _ := storage.As[storage.Control](s.open())
	k, err := control.FindKey(s.t.Context(), "key:cluster")
	if must(s.t, err); len(k.Holders) > 0 {
		s.t.Errorf("the turn has not been given back: %+v", k)
	}
}

// startOf returns when a job began.
func (s *stage) startOf(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.log {
		if at, is, _ := strings.Cut(line, " "); is == name {
			d, _ := time.ParseDuration(at)
			return d
		}
	}
	return -1
}

// TestTurns runs plans that share a key in an engine that is alone, and in a fleet of two.
func TestTurns(t *testing.T) {
	for _, engines := range [][]engine.Options{{{}}, {{Fleet: &fleet.Options{}}, {Fleet: &fleet.Options{}}}} {
		onStage(t, func(t *testing.T, s *stage) {
			var names []string
			for i := range 5 {
				names = append(names, fmt.Sprint(i))
				s.keyed(names[i], do(job{Name: names[i], For: 20 * time.Second}))
				time.Sleep(time.Second)
			}
			began, ended := time.Now(), make(chan error, len(engines))
			for _, o := range engines {
				go func() { ended <- s.engine(s.process(), o).Run(t.Context()) }()
				time.Sleep(3 * time.Second) // a node that searches between a claim of the other and its turn begins the plan after that
			}
			for range engines {
				must(t, <-ended)
			}
			s.wantTurns(names...)
			if took := time.Since(began); took > 3*time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestTurnOfASleeper has a plan that polls each hour: it keeps its turn while it sleeps, or gives it back, as KeepTurn says.
func TestTurnOfASleeper(t *testing.T) {
	efforttest.NotShort(t, "it polls for hours of virtual time")
	for _, o := range []engine.Options{{}, {Fleet: &fleet.Options{}}} {
		for keep, wantFrom := range map[workflow.KeepTurn]time.Duration{workflow.KeepAlways: 2 * time.Hour, workflow.KeepWhileAwake: 0} {
			onStage(t, func(t *testing.T, s *stage) {
				polls := onPolls(s)
				p := plan(block("b", sequence("s", polls.action(wait{"a", 2, time.Hour}))))
				p.Keys, p.KeepTurn = []workflow.Key{{Name: "cluster"}}, keep
				s.create(p)
				time.Sleep(time.Second)
				next := s.keyed("next", second("next"))
				must(t, s.engine(s.process(), o).Run(t.Context()))
				for _, id := range []*workflow.Plan{p, next} {
					if end := s.read(id.ID); end.State.Status != workflow.Completed || end.WaitsFor != "" {
						t.Errorf("%v: %s waits for %q\n%s", keep, end.Name, end.WaitsFor, outline(end))
					}
				}
				if after := s.startOf("next"); after < wantFrom || after > wantFrom+time.Minute {
					t.Errorf("%v: the next began after %v", keep, after)
				}
				s.wantTurns("next")
			})
		}
	}
}

// TestStopWaitsForNoTurn stops plans that wait for a turn, or lets their deadlines pass: they end, and nothing of them runs.
func TestStopWaitsForNoTurn(t *testing.T) {
	onStages(t, []engine.Options{{}, {Fleet: &fleet.Options{}}}, func(t *testing.T, s *stage, o engine.Options) {
		long := do(job{Name: "first", For: time.Hour})
		long.Timeout = 2 * time.Hour
		s.keyed("first", long)
		time.Sleep(time.Second)
		stopped, late := plan(block("b", sequence("s", second("no")))), plan(block("b", sequence("s", second("no"))))
		for _, p := range []*workflow.Plan{stopped, late} {
			p.Keys = []workflow.Key{{Name: "cluster"}}
			p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("d", workflow.Always, second("no"))}}
		}
		late.Deadline = time.Now().Add(10 * time.Minute)
		s.create(stopped)
		s.create(late)
		e := s.engine(s.process(), o)
		ended := start(t.Context(), e)
		time.Sleep(5 * time.Minute)
		must(t, e.Stop(t.Context(), stopped.ID, workflow.Attribution{By: "ops"}))
		time.Sleep(time.Minute)
		if end := s.read(stopped.ID); end.State.Status != workflow.Stopped || end.Reason != workflow.StopRequested {
			t.Errorf("a minute after the stop:\n%s", outline(end))
		}
		time.Sleep(4*time.Minute + 20*time.Second)
		if end := s.read(late.ID); end.State.Status != workflow.Stopped {
			t.Errorf("after the deadline:\n%s", outline(end))
		}
		must(t, <-ended)
		if end := s.read(late.ID); end.State.Status != workflow.Stopped || end.Reason != workflow.DeadlineExceeded {
			t.Errorf("in the end:\n%s", outline(end))
		}
		s.wantTurns("first")
	})
}

// TestPauseKey has a plugin that was told to come back later: nobody gets a turn until then.
func TestPauseKey(t *testing.T) {
	onStages(t, []engine.Options{{}, {Fleet: &fleet.Options{}}}, func(t *testing.T, s *stage, o engine.Options) {
		busy := engine.Task("busy", func(_ context.Context, call engine.Call, _ struct{}) (string, error) {
			return "", call.PauseKey("cluster", time.Now().Add(time.Hour))
		})
		s.reg = registry.Must(s, busy)
		s.keyed("first", busy.Action("first", struct{}{}))
		time.Sleep(time.Second)
		s.keyed("next", second("next"))
		must(t, s.engine(s.process(), o).Run(t.Context()))
		if after := s.startOf("next"); after < time.Hour || after > time.Hour+2*time.Minute {
			t.Errorf("the next began after %v", after)
		}
		s.wantTurns("next")
	})
}

// TestRunPlanTurns has an engine of another kind place two plans that share a key. The one that waits is looked at less and less often
// while the other works, unless it is the older one: then its notes keep the next turn for it.
func TestRunPlanTurns(t *testing.T) {
	const turn = 2 * time.Hour
	for _, test := range []struct {
		order       []string // of submission
		least, most int      // calls
		late        time.Duration
	}{{[]string{"first", "next"}, 40, 60, 5 * time.Minute}, {[]string{"next", "first"}, 715, 725, 10 * time.Second}} {
		t.Run(fmt.Sprint(test.order), func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				long := do(job{Name: "first", For: turn})
				long.Timeout = 2 * turn
				plans, does := map[string]*workflow.Plan{}, map[string]*workflow.Action{"first": long, "next": second("next")}
				for _, name := range test.order {
					plans[name] = s.keyed(name, does[name])
					time.Sleep(time.Second)
				}
				first, next := plans["first"], plans["next"]
				e := s.engine(s.process(), engine.Options{})
				ended := make(chan error, 1)
				began := time.Now()
				go func() {
					_, err := e.RunPlan(t.Context(), first.ID, engine.RunOptions{External: queue})
					ended <- err
				}()
				time.Sleep(time.Second)
				calls := 0
				for {
					got, err := e.RunPlan(t.Context(), next.ID, engine.RunOptions{External: queue})
					must(t, err)
					if calls++; got.Plan.State.Status.Final() {
						break
					}
					if w := got.Waiting; len(w) != 1 || w[0].For != "turn" || !strings.Contains(w[0].What, first.ID.String()+` is before it for key "cluster"`) || !got.WakeAt.After(time.Now()) {
						t.Errorf("it waits as %+v", got)
					}
					time.Sleep(time.Until(got.WakeAt))
				}
				must(t, <-ended)
				synctest.Wait()
				if s.wantTurns("first", "next"); calls < test.least || calls > test.most || time.Since(began) > turn+test.late+2*time.Second {
					t.Errorf("it was placed %d times in %v", calls, time.Since(began))
				}
			})
		})
	}
}

// TestSubmitUnique submits plans with one Unique: while the first is open, its handle comes with storage.ErrExists.
func TestSubmitUnique(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		e := s.engine(s.process(), engine.Options{})
		unique := func() *workflow.Plan {
			p := plan(block("b", sequence("s", second("a"))))
			p.Unique = "cluster 7"
			return p
		}
		first := unique()
		submit(t, e, first)
		if handle, err := e.Submit(t.Context(), unique()); !errors.Is(err, storage.ErrExists) || handle == nil || handle.ID() != first.ID {
			t.Errorf("the second Submit returned %v", err)
		}
		must(t, e.Run(t.Context()))
		submit(t, e, unique())
	})
}

// TestRunPlanStopsWithoutTurn stops a plan that an engine of another kind places, by ctx, while another has its turn: it ends at
// once, and nothing of it runs.
func TestRunPlanStopsWithoutTurn(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		first, next := s.keyed("first", do(job{Name: "first", For: time.Minute})), s.keyed("next", second("next"))
		e := s.engine(s.process(), engine.Options{})
		ended := make(chan error, 1)
		go func() {
			_, err := e.RunPlan(t.Context(), first.ID, engine.RunOptions{External: queue})
			ended <- err
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(&fleet.StopError{Attribution: workflow.Attribution{By: "ops"}})
		got, err := e.RunPlan(ctx, next.ID, engine.RunOptions{External: queue})
		must(t, err)
		if got.Plan.State.Status != workflow.Stopped || got.Plan.Stopped.By != "ops" {
			t.Errorf("it is left as %+v", got)
		}
		must(t, <-ended)
		s.wantTurns("first")
	})
}

// TestEndingWaitsForNoTurn: a plan sleeps without its turn, which another one has, and its outcome is stored already, or that its
// deadline has passed, by another clock. An engine that is alone ends it at once.
func TestEndingWaitsForNoTurn(t *testing.T) {
	for name, change := range map[string]func(p *workflow.Plan){
		"the outcome is stored": func(p *workflow.Plan) { p.Ending.At = time.Now() },
		"the deadline has passed": func(p *workflow.Plan) {
			p.Reason, p.Deadline = workflow.DeadlineExceeded, time.Now().Add(time.Hour)
		},
	} {
		stageRun(t, name, func(t *testing.T, s *stage) {
			holder, v := s.keyed("holder", second("no")), s.open()
			must(t, fleet.TakeTurns(t.Context(), v, holder))
			holder.State.Status, holder.State.Start, holder.Owner, holder.Epoch = workflow.Running, time.Now(), workflow.NewV7(), 1
			must(t, v.UpdatePlan(t.Context(), holder))
			p := s.keyed("ending", second("no"))
			change(p)
			p.State.Status, p.State.Start, p.Alone = workflow.Running, time.Now(), true
			p.WakeAt, p.WaitsFor = time.Now(), "cluster"
			must(t, v.UpdatePlan(t.Context(), p))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			must(t, s.engine(s.process(), engine.Options{}).Run(ctx))
			if got := s.read(p.ID); !got.State.Status.Final() {
				t.Errorf("it is\n%s", outline(got))
			}
			s.wantNames()
		})
	}
}

// TestTurnsOfOthersInOrder: a plan waits beside a steady stream of younger ones that others begin: one of an engine that is alone
// beside those of a queue, and one of a queue beside those of the engine. One of the younger ones overtakes it.
func TestTurnsOfOthersInOrder(t *testing.T) {
	for _, alone := range []bool{true, false} { // the plan that waits
		onStage(t, func(t *testing.T, s *stage) {
			var queued []uuid.UUID
			for i := range 5 {
				p := plan(block("b", sequence("s", do(job{Name: fmt.Sprint(i), For: 25 * time.Second}))))
				if p.Keys = []workflow.Key{{Name: "cluster"}}; alone != (i == 1) {
					p.External = queue
				}
				if s.create(p); p.External.Name != "" {
					queued = append(queued, p.ID)
				}
				time.Sleep(time.Millisecond)
			}
			e, ended := s.engine(s.process(), engine.Options{}), make(chan error, 2)
			works := func() {
				for _, id := range queued {
					for got := (engine.Placed{}); got.Plan == nil || !got.Plan.State.Status.Final(); time.Sleep(time.Until(got.WakeAt)) {
						var err error
						if got, err = s.place(t.Context(), id, 0); err != nil {
							ended <- err
							return
						}
					}
				}
				ended <- nil
			}
			runs := func() { ended <- e.Run(t.Context()) }
			if !alone {
				works, runs = runs, works
			}
			go works()
			time.Sleep(3*time.Second + time.Second/2) // between two looks of the engine
			go runs()
			must(t, errors.Join(<-ended, <-ended))
			s.wantTurns("0", "2", "1", "3", "4")
		})
	}
}
