package engine_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// onceEach returns a plan whose actions have different names and may run once, but for those of continuous checks.
func onceEach() *workflow.Plan {
	p := full()
	p.BypassChecks, p.Blocks[0].BypassChecks, p.PreChecks.Actions[1] = nil, nil, second("pre 2")
	for o, parent := range workflow.Walk(p) {
		checks, isChecks := parent.(*workflow.Checks)
		a, ok := o.(*workflow.Action)
		if !ok || isChecks && (checks == p.ContChecks || checks == p.Blocks[0].ContChecks) {
			continue
		}
		a.AtMost = 1
	}
	return p
}

// TestAtMostOnce kills the engine at each write of a plan whose actions may run once. What the plugin did is the ledger: no
// action has run twice, and one that ran and is not Completed says what became of it.
func TestAtMostOnce(t *testing.T) {
	var writes atomic.Int64
	onStage(t, func(_ *testing.T, s *stage) {
		story{plan: onceEach}.play(s, func(_ workflow.Object, update func() error) error {
			writes.Add(1)
			return update()
		})
	})
	cutOff := 0
	for n := int64(1); n <= writes.Load(); n += efforttest.Pick[int64](5, 1, 1) {
		onStages(t, []bool{false, true}, func(t *testing.T, s *stage, takesEffect bool) {
			p := s.create(onceEach())
			s.run(t.Context(), s.updating(dying(n, takesEffect)))
			synctest.Wait() // the goroutines of a process that is dead have ended
			s.run(t.Context(), s.process())
			for o := range workflow.Walk(s.read(p.ID)) {
				a, ok := o.(*workflow.Action)
				if !ok || a.AtMost == 0 {
					continue
				}
				if s.ran[a.Name] > 1 || !a.State.Status.Final() && a.State.Status != workflow.NotStarted {
					t.Errorf("killed at write %d (in effect: %v), %s ran %d times and is %s", n, takesEffect, a.Name, s.ran[a.Name], a.State.Status)
				}
				if a.State.Status != workflow.Failed {
					continue
				}
				const want = "attempt 1 never ended, and AtMost allows no other one: the action may have had its effect"
				if cutOff++; len(a.Attempts) != 1 || a.Attempts[0].Err.Error() != want {
					t.Errorf("%s has failed with %+v", a.Name, a.Attempts)
				}
			}
		})
	}
	if cutOff == 0 {
		t.Error("no action was cut off")
	}
}

// TestAtMost checks which attempts count.
func TestAtMost(t *testing.T) {
	for name, test := range map[string]struct {
		job             job
		retries, atMost int
		stop            time.Duration // of the first engine
		ran             int
		want            string // the last failure
	}{
		"failures":             {job{Name: "a", Fails: -1}, 3, 2, time.Hour, 2, "no \uFFFD (code 2)"},
		"fewer retries":        {job{Name: "a", Fails: -1}, 1, 3, time.Hour, 2, "no \uFFFD (code 2)"},
		"success":              {job{Name: "a", Fails: 1}, 3, 2, time.Hour, 2, ""},
		"an interruption":      {job{Name: "a", For: time.Minute}, 3, 1, time.Second, 1, "attempt 1 was interrupted, and AtMost allows no other one: the action may have had its effect: cut off: context canceled"},
		"an interruption of 2": {job{Name: "a", For: 30 * time.Second}, 0, 2, time.Second, 2, ""},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			a := do(test.job)
			a.Retries, a.AtMost = test.retries, test.atMost
			p := s.create(plan(block("b", sequence("s", a))))
			s.runFor(test.stop, s.process())
			s.run(t.Context(), s.process())
			got := s.read(p.ID).Blocks[0].Sequences[0].Actions[0]
			last, status := "", workflow.Completed
			if test.want != "" {
				status = workflow.Failed
			}
			if err := got.Attempts[len(got.Attempts)-1].Err; err != nil {
				last = err.Error()
			}
			if s.ran["a"] != test.ran || len(got.Attempts) != test.ran || got.State.Status != status || !strings.HasPrefix(last, test.want) || (last == "") != (test.want == "") {
				t.Errorf("%s: it ran %d times, and is %s with %d attempts: %s", name, s.ran["a"], got.State.Status, len(got.Attempts), last)
			}
		})
	}
}

// TestAtMostIsOver stops a plan whose action may not run again: the action has not failed, because it was to stop.
func TestAtMostIsOver(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := second("a")
		a.AtMost = 1
		p := s.create(plan(block("b", sequence("s", a))))
		s.run(t.Context(), s.diesAt(func(o workflow.Object) bool {
			a, ok := o.(*workflow.Action)
			return ok && !a.Attempts[0].End.IsZero()
		}))
		p = s.read(p.ID)
		p.Reason = workflow.StopRequested
		must(t, s.process().UpdatePlan(t.Context(), p))
		must(t, s.engine(s.process(), engine.Options{}).Run(t.Context()))
		if a := s.read(p.ID).Blocks[0].Sequences[0].Actions[0]; a.State.Status != workflow.Stopped || s.ran["a"] != 1 {
			t.Errorf("it ran %d times and is %s", s.ran["a"], a.State.Status)
		}
	})
}
