package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// joinUntilEnd is join for an engine that is shut down at the end of the test.
func joinUntilEnd(t *testing.T, s *stage, name string, opts engine.Options) *process {
	p := s.join(name, opts)
	t.Cleanup(func() {
		p.end()
		time.Sleep(10 * time.Minute)
	})
	return p
}

// TestPause pauses a plan while an action runs. It ends, and nothing more begins, whatever becomes of the engines, until the
// plan is resumed or stopped.
func TestPause(t *testing.T) {
	for _, test := range []struct {
		name   string
		happen func(t *testing.T, s *stage, p *process) // 2 seconds after the pause
		ran    []string
		stops  bool
	}{
		{"nothing", func(*testing.T, *stage, *process) {}, []string{"a", "b", "c"}, false},
		{"a death", func(t *testing.T, s *stage, p *process) { p.Kill(); joinUntilEnd(t, s, "third", engine.Options{}) }, []string{"a", "a", "b", "c"}, false},
		{"a shutdown", func(t *testing.T, s *stage, p *process) { p.stop(); joinUntilEnd(t, s, "third", engine.Options{}) }, []string{"a", "b", "c"}, false},
		{"a death when it is stored as paused", func(t *testing.T, s *stage, p *process) {
			p.On(updates(func(o workflow.Object, update func() error) error {
				if plan, ok := o.(*workflow.Plan); ok && plan.Asleep() {
					p.Kill()
					return errKilled
				}
				return update()
			}))
		}, []string{"a", "b", "c"}, false},
		{"a stop", func(*testing.T, *stage, *process) {}, []string{"a"}, true},
	} {
		stageRun(t, test.name, func(t *testing.T, s *stage) {
			store := s.open()
			half := func(name string) *workflow.Action { return do(job{Name: name, For: 30 * time.Second}) }
			id := s.create(plan(block("b", sequence("s", half("a"), half("b"), half("c"))))).ID
			first := joinUntilEnd(t, s, "first", engine.Options{})
			time.Sleep(2 * time.Second) // until it is claimed
			second := joinUntilEnd(t, s, "second", engine.Options{})
			time.Sleep(10 * time.Second)
			must(t, fleet.PausePlan(t.Context(), store, id, asked))
			time.Sleep(2 * time.Second)
			test.happen(t, s, first)
			time.Sleep(time.Hour)
			got := s.read(id)
			if !got.Asleep() || got.Paused.By != asked.By || slices.Contains(s.names(), "b") {
				t.Errorf("after an hour, %v have run, and it is %s, paused by %q", s.names(), outline(got), got.Paused.By)
			}
			if status, err := second.Status(t.Context(), id); err != nil || status.Condition != fleet.ConditionPaused || status.Stuck || !strings.Contains(status.Why, asked.By) {
				t.Errorf("its status is %+v, %v", status, err)
			}
			want := workflow.Completed
			if test.stops {
				want = workflow.Stopped
				must(t, second.Stop(t.Context(), id, asked))
			} else {
				must(t, fleet.ResumePlan(t.Context(), store, id, asked))
			}
			plan, err := second.Wait(t.Context(), id)
			must(t, err)
			if plan.State.Status != want || !slices.Equal(s.names(), test.ran) || plan.Paused != (workflow.Attribution{}) {
				t.Errorf("%v have run: %s", s.names(), outline(plan))
			}
		})
	}
}

// TestPauseOnFailure uses up the retries of an action: the plan pauses, and the action is tried anew when it is resumed.
func TestPauseOnFailure(t *testing.T) {
	retried := func(j job) *workflow.Action {
		a := do(j)
		a.Retries = 1
		return a
	}
	fails := func(n int) *workflow.Plan {
		return plan(block("b", sequence("s", retried(job{Name: "a", For: time.Second, Fails: n}), second("next"))))
	}
	tolerant := plan(block("b", sequence("s", bad("a")), sequence("t", second("other"))))
	tolerant.Blocks[0].ToleratedFailures = 1
	bypassed := plan(block("b", sequence("s", second("a"))))
	bypassed.BypassChecks = checks(bad("bypass"))
	once := do(job{Name: "once", Fails: -1})
	once.AtMost = 1
	cleans := plan(block("b", sequence("s", second("a"))))
	cleans.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("undo", workflow.Always, bad("undo"))}}
	for _, test := range []struct {
		name   string
		plan   *workflow.Plan
		why    string // of the pause, if there is one
		status workflow.Status
		stops  bool
		dies   bool // when the attempt is stored
	}{
		{"retries are used up", fails(3), "action b/s/a failed: ", workflow.Completed, false, false},
		{"a death before the attempt is stored", fails(2), "action b/s/a failed: ", workflow.Completed, false, true},
		{"a stop", fails(3), "action b/s/a failed: ", workflow.Stopped, true, false},
		{"a failure after a stop", plan(block("b", sequence("s", do(job{Name: "slow", For: 20 * time.Second, Fails: -1})))), "", workflow.Failed, true, false},
		{"a permanent failure", plan(block("b", sequence("s", do(job{Name: "p", Fails: 1, Permanent: true})))), "action b/s/p failed: ", workflow.Completed, false, false},
		{"two failures", plan(block("b", sequence("s", do(job{Name: "p", For: time.Second, Fails: 1})), sequence("t", do(job{Name: "q", For: time.Second, Fails: 1})))), "action b/", workflow.Completed, false, false},
		{"a failure that the block tolerates", tolerant, "", workflow.Completed, false, false},
		{"a bypass check", bypassed, "", workflow.Completed, false, false},
		{"AtMost", plan(block("b", sequence("s", once))), "", workflow.Failed, false, false},
		{"a deferred action", cleans, "", workflow.Completed, false, false},
	} {
		stageRun(t, test.name, func(t *testing.T, s *stage) {
			test.plan.Blocks[0].Concurrency = 2
			made, store := s.create(test.plan), s.open()
			first := joinUntilEnd(t, s, "first", engine.Options{PauseOnFailure: true})
			if test.dies {
				first.On(updates(func(o workflow.Object, update func() error) error {
					if a, ok := o.(*workflow.Action); ok && len(a.Attempts) > 0 && a.Attempts[len(a.Attempts)-1].Paused {
						first.Kill()
						return errKilled
					}
					return update()
				}))
			}
			time.Sleep(500 * time.Millisecond)
			if test.stops && test.why == "" {
				must(t, fleet.Stop(t.Context(), store, made.ID, asked))
			}
			joinUntilEnd(t, s, "second", engine.Options{PauseOnFailure: true})
			time.Sleep(time.Hour)
			got := s.read(made.ID)
			if test.why == "" {
				if got.State.Status != test.status {
					t.Errorf("it is %s", outline(got))
				}
				return
			}
			a := got.Blocks[0].Sequences[0].Actions[0]
			if !got.Asleep() || got.Paused.By != "engine" || !strings.HasPrefix(got.Paused.Why, test.why) || a.State.Status != workflow.Running {
				t.Fatalf("it is %s, paused by %+v", outline(got), got.Paused)
			}
			if !test.dies && !a.Attempts[len(a.Attempts)-1].Paused {
				t.Errorf("its attempts are %+v", a.Attempts)
			}
			if test.stops {
				must(t, fleet.Stop(t.Context(), store, made.ID, asked))
			} else {
				must(t, fleet.ResumePlan(t.Context(), store, made.ID, asked))
			}
			time.Sleep(time.Minute)
			if got := s.read(made.ID); got.State.Status != test.status {
				t.Errorf("it is %s, paused by %+v; ran %v", outline(got), got.Paused, s.log)
			}
		})
	}
}

// TestPauseOnFailureAlone needs a fleet.
func TestPauseOnFailureAlone(t *testing.T) {
	s := inMemory(t)
	if _, err := engine.New(s.open(), engine.Options{PauseOnFailure: true}); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("New returns %v", err)
	}
}
