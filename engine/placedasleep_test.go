package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/workflow"
)

// TestRunPlanAsleepUnknown: the answer to the update that lets a plan sleep is lost for good, and somebody may pause the plan
// meanwhile. RunPlan finds the plan asleep, and says how it waits.
func TestRunPlanAsleepUnknown(t *testing.T) {
	for _, pauses := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			polls := onPolls(s)
			p := s.create(plan(block("b", sequence("s", polls.action(wait{"a", 2, time.Hour})))))
			v, sent := s.process(), false
			v.OnOp("UpdatePlan", func(_ context.Context, c processtest.Call, update func() error) error {
				if plan := c.Object.(*workflow.Plan); plan.WakeAt.IsZero() {
					return update()
				}
				if !sent {
					sent = true
					etag := c.Object.Header().State.ETag
					must(t, update())
					c.Object.Header().State.ETag = etag // which the caller never got
					if pauses {
						must(t, fleet.PausePlan(t.Context(), s.process(), p.ID, workflow.Attribution{By: "ana"}))
					}
				}
				return processtest.Unknown(c.Op)
			})
			got, err := s.engine(v, engine.Options{}).RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
			if err != nil || got.WakeAt.IsZero() == !pauses || (got.Paused.By == "ana") != pauses || len(got.Waiting) != 1 {
				t.Errorf("paused: %t: %+v, %v", pauses, got, err)
			}
		})
	}
}
