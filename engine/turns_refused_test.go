package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestTurnsRefused has a vault that refuses to store who has turns, for an hour. Meanwhile a plan can be stopped, others run, and few
// requests are made. Then the plans go on.
func TestTurnsRefused(t *testing.T) {
	efforttest.NotShort(t, "it polls for hours of virtual time")
	for _, refusal := range []error{storage.ErrDenied, storage.ErrUnavailable} {
		onStages(t, []engine.Options{{}, {Fleet: &fleet.Options{}}}, func(t *testing.T, s *stage, o engine.Options) {
			stopped, late := s.keyed("stopped", second("stopped")), s.keyed("late", second("late"))
			p := s.process()
			var puts atomic.Int64
			began := time.Now()
			p.OnOp("PutKey", func(_ context.Context, c processtest.Call, do func() error) error {
				if puts.Add(1); time.Since(began) > time.Hour {
					return do()
				}
				return &storage.Error{Op: c.Op, Err: refusal}
			})
			e := s.engine(p, o)
			ended := start(t.Context(), e)
			time.Sleep(time.Minute)
			free := s.create(plan(block("b", sequence("s", second("free")))))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if o.Fleet == nil {
				must(t, e.Stop(ctx, stopped.ID, workflow.Attribution{By: "ana"}))
			} else {
				must(t, fleet.Stop(ctx, s.open(), stopped.ID, workflow.Attribution{By: "ana"}))
			}
			time.Sleep(time.Minute)
			if end := s.read(stopped.ID); end.State.Status != workflow.Stopped {
				t.Errorf("it was stopped:\n%s", outline(end))
			}
			if end := s.read(free.ID); end.State.Status != workflow.Completed {
				t.Errorf("it needs no turn:\n%s", outline(end))
			}
			time.Sleep(time.Hour - time.Since(began))
			if n := puts.Load(); n > 60*15 {
				t.Errorf("%d writes in an hour", n)
			}
			time.Sleep(2*time.Minute + 10*time.Second)
			if end := s.read(late.ID); end.State.Status != workflow.Completed {
				t.Errorf("after the outage:\n%s", outline(end))
			}
			must(t, <-ended)
			s.wantTurns("free", "late")
		})
	}
}

// TestSweepAlone ends a plan whose turn can't be given back for some hours, and nobody waits for it: an engine without a fleet sweeps
// it, an hour after its start or a day later.
func TestSweepAlone(t *testing.T) {
	efforttest.NotShort(t, "it polls for hours of virtual time")
	for refused, swept := range map[time.Duration]time.Duration{30 * time.Minute: time.Hour, 2 * time.Hour: 25 * time.Hour} {
		onStage(t, func(t *testing.T, s *stage) {
			s.keyed("first", second("first"))
			v, _ := storage.As[storage.Control](s.open())
			p := s.process()
			p.OnOp("PutKey", func(_ context.Context, c processtest.Call, do func() error) error {
				if k, err := v.FindKey(t.Context(), "key:cluster"); err == nil && len(k.Holders) > 0 && time.Since(s.began) < refused {
					return processtest.Unavailable(c.Op)
				}
				return do()
			})
			ctx, cancel := context.WithTimeout(t.Context(), swept+10*time.Minute)
			defer cancel()
			e, err := engine.New(p, engine.Options{NoRetention: true})
			must(t, err)
			ended := start(ctx, e)
			time.Sleep(swept - 5*time.Minute)
			for _, want := range []int{1, 0} {
				k, err := v.FindKey(t.Context(), "key:cluster")
				if time.Sleep(10 * time.Minute); err != nil || len(k.Holders) != want {
					t.Errorf("refused for %v: the record has %+v: %v", refused, k, err)
				}
			}
			must(t, <-ended)
		})
	}
}

// TestRunPlanTurnRefused has a vault that refuses to say who has turns. RunPlan says so, and when to call again; after the first
// call, it stores nothing.
func TestRunPlanTurnRefused(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p, v, updates := s.keyed("late", second("late")), s.process(), 0
		v.On(func(_ context.Context, c processtest.Call, do func() error) error {
			switch c.Op {
			case "FindKey":
				return &storage.Error{Op: c.Op, Err: storage.ErrDenied}
			case "UpdatePlan":
				updates++
			}
			return do()
		})
		problems := 0
		e := s.engine(v, engine.Options{Observer: engine.Observer{Problem: func(_ context.Context, e engine.ProblemEvent) {
			if problems++; !errors.Is(e.Err, fleet.ErrNoTurn) {
				t.Error(e.Err)
			}
		}}})
		for range 3 {
			got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
			must(t, err)
			if got.Plan.WaitsFor != "cluster" || !got.WakeAt.After(time.Now()) {
				t.Errorf("it waits as %+v", got)
			}
			time.Sleep(time.Until(got.WakeAt))
		}
		if problems != 3 || updates != 2 {
			t.Errorf("%d problems and %d updates of the plan", problems, updates)
		}
		v.On(nil)
		got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
		must(t, err)
		if got.Plan.State.Status != workflow.Completed {
			t.Error(outline(got.Plan))
		}
	})
}
