package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/workflow"
)

// TestRunPlanDiesDraining kills workers that have been told to shut down, more often than Options.Crashes allows. Such deaths are
// no crashes of the action, whether it is stored before it runs or waits in memory.
func TestRunPlanDiesDraining(t *testing.T) {
	atMost, idempotent := do(job{Name: "a", For: time.Minute}), do(job{Name: "a", For: time.Minute})
	atMost.AtMost, idempotent.Idempotent = 10, true
	for name, a := range map[string]*workflow.Action{"": do(job{Name: "a", For: time.Minute}), "AtMost": atMost, "Idempotent": idempotent} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				p := s.create(plan(block("b", sequence("s", a))))
				epoch := int64(0)
				for range 5 {
					v := s.process()
					ctx, shutdown := context.WithTimeout(t.Context(), time.Second)
					defer shutdown()
					time.AfterFunc(2*time.Second, v.Kill)
					_, err := s.engine(v, engine.Options{}).RunPlan(ctx, p.ID, engine.RunOptions{
						External: queue, Epoch: epoch, Heartbeat: func(b engine.Beat) { epoch = b.Epoch },
					})
					if !errors.Is(err, engine.ErrDraining) {
						t.Errorf("it returned %v", err)
					}
				}
				got, err := s.place(t.Context(), p.ID, epoch)
				must(t, err)
				if got.Plan.State.Status != workflow.Completed {
					t.Error(outline(got.Plan))
				}
			})
		})
	}
}

// TestRunPlanDrains ends the context of RunPlan while an action runs. One that ends within Options.Drain is no interrupted one.
func TestRunPlanDrains(t *testing.T) {
	for _, takes := range []time.Duration{15 * time.Second, time.Minute} {
		onStage(t, func(t *testing.T, s *stage) {
			p := s.create(plan(block("b", sequence("s", do(job{Name: "a", For: takes})))))
			ctx, shutdown := context.WithTimeout(t.Context(), time.Second)
			defer shutdown()
			if _, err := s.place(ctx, p.ID, 0); !errors.Is(err, engine.ErrDraining) {
				t.Errorf("it returned %v", err)
			}
			got := s.read(p.ID).Blocks[0].Sequences[0].Actions[0].Attempts
			if len(got) != 1 || got[0].End.IsZero() || got[0].Interrupted != (takes > engine.DefaultDrain) {
				t.Errorf("%v: %+v", takes, got)
			}
		})
	}
}
