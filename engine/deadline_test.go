package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// TestDeadline ends plans at their deadlines, on an engine that is alone and in a fleet: what runs ends, nothing more begins,
// and deferred work runs.
func TestDeadline(t *testing.T) {
	undone := func(p *workflow.Plan, d time.Duration) *workflow.Plan {
		p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("undo", workflow.OnFailure, do(job{Name: "undo", For: d}))}}
		return p
	}
	of := func(names ...string) func() *workflow.Plan { return func() *workflow.Plan { return long(names...) } }
	undo := func(names ...string) func() *workflow.Plan {
		return func() *workflow.Plan { return undone(long(names...), time.Second) }
	}
	failing := func() *workflow.Plan {
		return undone(plan(block("b", sequence("s", bad("a")), sequence("t", do(job{Name: "b", For: 10 * time.Second})))), time.Second)
	}
	delayed := func() *workflow.Plan {
		p := long("a")
		p.Blocks[0].EntranceDelay = 10 * time.Hour
		return p
	}
	for _, test := range []struct {
		name     string
		plan     func() *workflow.Plan
		deadline time.Duration
		down     [2]time.Duration // when no engine runs
		ran      []string
		status   workflow.Status
		reason   workflow.FailureReason
		ends     time.Duration
	}{
		{"while an action runs", undo("a", "b", "c"), 15 * time.Second, [2]time.Duration{}, []string{"a", "b", "undo"}, workflow.Stopped, workflow.DeadlineExceeded, 21 * time.Second},
		{"before it begins", undo("a"), -time.Second, [2]time.Duration{}, []string{"undo"}, workflow.Stopped, workflow.DeadlineExceeded, time.Second},
		{"while it sleeps", delayed, time.Hour, [2]time.Duration{}, nil, workflow.Stopped, workflow.DeadlineExceeded, time.Hour},
		{"while no engine runs", of("a", "b"), 15 * time.Second, [2]time.Duration{5 * time.Second, time.Minute}, []string{"a"}, workflow.Stopped, workflow.DeadlineExceeded, time.Minute},
		{"while deferred actions run, and no engine does", func() *workflow.Plan { return undone(long("a", "b"), 30*time.Second) }, 5 * time.Second, [2]time.Duration{11 * time.Second, time.Minute}, []string{"a", "undo", "undo"}, workflow.Stopped, workflow.DeadlineExceeded, 90 * time.Second},
		{"after it failed", failing, 5 * time.Second, [2]time.Duration{}, []string{"a", "undo"}, workflow.Failed, workflow.BlockFailed, 2 * time.Second},
		{"after its end", of("a"), 11 * time.Second, [2]time.Duration{}, []string{"a"}, workflow.Completed, workflow.NoFailure, 10 * time.Second},
	} {
		for _, members := range []*fleet.Options{nil, {}} {
			stageRun(t, fmt.Sprintf("%s, in a fleet %v", test.name, members != nil), func(t *testing.T, s *stage) {
				opts := engine.Options{Fleet: members}
				p := test.plan()
				p.Deadline = time.Now().Add(test.deadline)
				made := s.create(p)
				if test.down[0] > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), test.down[0])
					_ = s.engine(s.process(), opts).Run(ctx)
					cancel()
					time.Sleep(time.Until(s.began.Add(test.down[1])))
				}
				must(t, s.engine(s.process(), opts).Run(t.Context()))
				got := s.read(made.ID)
				if took := got.State.End.Sub(s.began); got.State.Status != test.status || got.Reason != test.reason || took < test.ends || took > test.ends+15*time.Second {
					t.Errorf("after %v: %s, %v", took, outline(got), got.Reason)
				}
				if ran := s.names(); !slices.Equal(ran, test.ran) && len(ran)+len(test.ran) > 0 {
					t.Errorf("ran %v, want %v", ran, test.ran)
				}
			})
		}
	}
}

// TestNotBefore runs a plan on an engine that is alone no earlier than its author wants.
func TestNotBefore(t *testing.T) {
	efforttest.NotShort(t, "it waits for hours alone")
	onStages(t, []bool{false, true}, func(t *testing.T, s *stage, submits bool) {
		p := long("a")
		p.NotBefore = time.Now().Add(3 * time.Hour)
		e := s.engine(s.process(), engine.Options{Poll: time.Minute})
		if s.create(long("other")); !submits {
			s.create(p)
		}
		ended := start(t.Context(), e)
		if submits {
			time.Sleep(time.Second) // Run has found the other plan
			submit(t, e, p)
		}
		must(t, <-ended)
		if start := s.read(p.ID).State.Start.Sub(s.began); start < 3*time.Hour || start > 3*time.Hour+2*time.Minute {
			t.Errorf("submitted %v, it begins after %v", submits, start)
		}
	})
}

// TestStopNotBefore stops a plan that an engine which is alone has yet to begin. It does not wait for the plan's time.
func TestStopNotBefore(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := long("a")
		p.NotBefore = time.Now().Add(3 * time.Hour)
		s.create(p)
		e := s.engine(s.process(), engine.Options{})
		ended := start(t.Context(), e)
		time.Sleep(time.Minute)
		must(t, e.Stop(t.Context(), p.ID, asked))
		must(t, <-ended)
		if end := s.read(p.ID); end.State.Status != workflow.Stopped || !isAsked(end.Stopped) || end.State.End.Sub(s.began) > 2*time.Minute {
			t.Errorf("%s, stopped by %+v at %v", outline(end), end.Stopped, end.State.End)
		}
	})
}
