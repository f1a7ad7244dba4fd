package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

var queue = workflow.External{Name: "queue", Ask: "queue show"}

// TestRunPlan runs plans to each of their ends, and again when they are final.
func TestRunPlan(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		e := s.engine(s.process(), engine.Options{})
		for _, a := range []*workflow.Action{second("good"), bad("bad")} {
			p := s.create(plan(block("b", sequence("s", a))))
			for range 2 {
				got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
				must(t, err)
				if want := s.read(p.ID); outline(got.Plan) != outline(want) || !want.State.Status.Final() || want.External != queue || !got.WakeAt.IsZero() {
					t.Errorf("%+v is left of\n%s", got, outline(want))
				}
			}
		}
		s.wantNames("good", "bad")
	})
}

// TestRunPlanWaits leaves a plan that polls each hour between the polls, to an engine of another kind that is not in time,
// and to a fleet and an engine that is alone, which leave it alone.
func TestRunPlanWaits(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		polls := onPolls(s)
		p := s.create(plan(block("b", sequence("s", polls.action(wait{"a", 2, time.Hour})))))
		e := s.engine(s.process(), engine.Options{})
		for calls := 1; ; calls++ {
			got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
			must(t, err)
			if got.Plan.State.Status.Final() {
				if calls != 5 || polls.took("a") != "0s:0/1 1h0m0s:1/1 2h0m0s:2/1" {
					t.Errorf("%d calls, and %s", calls, polls.took("a"))
				}
				return
			}
			if left := time.Until(got.WakeAt); left <= 0 || left > time.Hour || got.LastSignal != 0 || len(got.Waiting) == 0 {
				t.Errorf("it waits for %v as %+v", left, got)
			}
			others, end := context.WithTimeout(t.Context(), time.Until(got.WakeAt)/2)
			for _, o := range []engine.Options{{}, {Fleet: &fleet.Options{}}} {
				go func() { must(t, s.engine(s.process(), o).Run(others)) }()
			}
			time.Sleep(time.Until(got.WakeAt)/2 + time.Minute)
			end()
			if calls%2 == 0 {
				time.Sleep(time.Until(got.WakeAt))
			}
		}
	})
}

// TestRunPlanByTheStoresClock has a computer whose clock is a day ahead of the store's, and one whose clock is a day behind. Plans wait
// and expire as with a right clock.
func TestRunPlanByTheStoresClock(t *testing.T) {
	for name, test := range map[string]struct {
		makes func(s *stage, p *workflow.Plan, now time.Time) *workflow.Action
		want  workflow.Status
		calls int // one more if a clock that has whole seconds makes one come too early
		after time.Duration
	}{
		"NotBefore": {func(_ *stage, p *workflow.Plan, now time.Time) *workflow.Action {
			p.NotBefore = now.Add(10 * time.Minute)
			return second("a")
		}, workflow.Completed, 2, 10 * time.Minute},
		"a key is paused": {func(s *stage, p *workflow.Plan, now time.Time) *workflow.Action {
			p.Keys = []workflow.Key{{Name: "cluster"}}
			must(s.t, fleet.PauseKey(s.t.Context(), s.process(), "cluster", now.Add(10*time.Minute), asked))
			return second("a")
		}, workflow.Completed, 2, 10 * time.Minute},
		"the deadline passes at work": {func(_ *stage, p *workflow.Plan, now time.Time) *workflow.Action {
			p.Deadline = now.Add(10 * time.Minute)
			a := do(job{Name: "long", For: time.Hour})
			a.Timeout = 2 * time.Hour
			return a
		}, workflow.Stopped, 1, time.Hour}, // it waits for the call to end
		"the deadline passes asleep": {func(s *stage, p *workflow.Plan, now time.Time) *workflow.Action {
			p.Deadline = now.Add(10 * time.Minute)
			return onPolls(s).action(wait{"a", 2, time.Hour})
		}, workflow.Stopped, 2, 10 * time.Minute},
		"it polls": {func(s *stage, _ *workflow.Plan, _ time.Time) *workflow.Action {
			return onPolls(s).action(wait{"a", 2, 10 * time.Minute})
		}, workflow.Completed, 3, 20 * time.Minute},
		"the action times out asleep": {func(s *stage, _ *workflow.Plan, _ time.Time) *workflow.Action {
			a := onPolls(s).action(wait{"a", 2, time.Hour})
			a.Timeout = 90 * time.Minute
			return a
		}, workflow.Failed, 3, 90 * time.Minute},
	} {
		for _, off := range []time.Duration{0, -24 * time.Hour, 24 * time.Hour} {
			t.Run(fmt.Sprint(name, off), func(t *testing.T) {
				onStage(t, func(t *testing.T, s *stage) {
					p := plan(block("b", sequence("s")))
					p.Blocks[0].Sequences[0].Actions = []*workflow.Action{test.makes(s, p, time.Now().Add(off))}
					s.create(p)
					v := hooked.Wrap(s.process(), func(c *hooked.Call) error {
						err := c.Do()
						if c.Op == "Roster" {
							c.Roster.Now = c.Roster.Now.Add(off)
						}
						c.Key.Now, c.Key.Stored = c.Key.Now.Add(off), c.Key.Stored.Add(off)
						return err
					})
					e, began := s.engine(v, engine.Options{}), time.Now()
					for calls := 1; ; calls++ {
						got, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
						must(t, err)
						if got.Plan.State.Status.Final() {
							took := time.Since(began)
							if got.Plan.State.Status != test.want || calls < test.calls || calls > test.calls+1 || (took-test.after).Abs() > 20*time.Second {
								t.Errorf("after %d calls and %v, it is\n%s", calls, took, outline(got.Plan))
							}
							return
						}
						time.Sleep(min(time.Until(got.WakeAt), 2*time.Hour))
					}
				})
			})
		}
	}
}

// TestRunPlanTwice has two that place a plan: the second is refused, and with the epoch of the first it fences that one.
func TestRunPlanTwice(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(plan(block("b", sequence("s", do(job{Name: "long", For: time.Minute}), second("next")))))
		e := s.engine(s.process(), engine.Options{})
		beats, first := make(chan engine.Beat, 10), make(chan error, 1)
		go func() {
			_, err := e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue, Heartbeat: func(b engine.Beat) { beats <- b }})
			first <- err
		}()
		epoch := (<-beats).Epoch
		time.Sleep(time.Second)
		again := s.engine(s.process(), engine.Options{})
		_, err := again.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
		if owned, ok := errors.AsType[*fleet.OwnedError](err); !ok || owned.Epoch != epoch || owned.External != queue {
			t.Errorf("the second returned %v", err)
		}
		got, err := again.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue, Epoch: epoch})
		must(t, err)
		if err := <-first; !errors.Is(err, fleet.ErrFenced) {
			t.Errorf("the first returned %v", err)
		}
		if got.Plan.State.Status != workflow.Completed || got.Plan.Epoch != epoch+1 {
			t.Errorf("it is %s in epoch %d", got.Plan.State.Status, got.Plan.Epoch)
		}
		s.wantNames("long", "long", "next")
	})
}

// TestRunPlanEnds ends the context of RunPlan: a request to stop stops the plan, and a shutdown leaves it to the next one, which
// needs no epoch.
func TestRunPlanEnds(t *testing.T) {
	for _, stop := range []bool{true, false} {
		onStage(t, func(t *testing.T, s *stage) {
			p := plan(block("b", sequence("s", do(job{Name: "long", For: 10 * time.Second}), second("next"))))
			p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("d", workflow.Always, second("deferred"))}}
			s.create(p)
			ctx, cancel := context.WithCancelCause(t.Context())
			var cause error
			if stop {
				cause = &fleet.StopError{Attribution: workflow.Attribution{By: "ops", Why: "wrong"}}
			}
			time.AfterFunc(time.Second, func() { cancel(cause) })
			e := s.engine(s.process(), engine.Options{})
			got, err := e.RunPlan(ctx, p.ID, engine.RunOptions{External: queue})
			if !stop {
				if !errors.Is(err, engine.ErrDraining) {
					t.Errorf("a shutdown returned %v", err)
				}
				got, err = e.RunPlan(t.Context(), p.ID, engine.RunOptions{External: queue})
			}
			must(t, err)
			want, names := workflow.Completed, []string{"long", "next", "deferred"}
			if stop {
				want, names = workflow.Stopped, []string{"long", "deferred"}
			}
			if got.Plan.State.Status != want || stop && got.Plan.Stopped.By != "ops" {
				t.Errorf("it is %s, stopped by %+v", got.Plan.State.Status, got.Plan.Stopped)
			}
			s.wantNames(names...)
		})
	}
}

// TestRunPlanFails says what RunPlan refuses.
func TestRunPlanFails(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		owned := func(p *workflow.Plan) {
			p.State.Status, p.Owner, p.Epoch = workflow.Running, workflow.NewV7(), 1
			must(t, s.process().UpdatePlan(t.Context(), p))
		}
		fresh := func() *workflow.Plan { return s.create(plan(block("b", sequence("s", second("a"))))) }
		for _, test := range []struct {
			name string
			plan func() uuid.UUID
			o    engine.RunOptions
			want error
		}{
			{"no name", func() uuid.UUID { return fresh().ID }, engine.RunOptions{}, storage.ErrInvalid},
			{"a negative interval", func() uuid.UUID { return fresh().ID }, engine.RunOptions{External: queue, Every: -1}, storage.ErrInvalid},
			{"no plan", workflow.NewV7, engine.RunOptions{External: queue}, storage.ErrNotFound},
			{"a plan of a fleet", func() uuid.UUID { p := fresh(); owned(p); return p.ID }, engine.RunOptions{External: queue, Epoch: 1}, fleet.ErrOwned},
			{"a plan of another placer", func() uuid.UUID {
				p := plan(block("b", sequence("s", second("a"))))
				p.External.Name = "another"
				return s.create(p).ID
			}, engine.RunOptions{External: queue}, fleet.ErrOwned},
			{"a plan begun without a claim", func() uuid.UUID {
				p := fresh()
				p.State.Status, p.Alone = workflow.Running, true
				must(t, s.process().UpdatePlan(t.Context(), p))
				return p.ID
			}, engine.RunOptions{External: queue}, fleet.ErrOwned},
		} {
			id := test.plan()
			e := s.engine(s.process(), engine.Options{})
			if _, err := e.RunPlan(t.Context(), id, test.o); !errors.Is(err, test.want) {
				t.Errorf("%s: %v", test.name, err)
			}
		}
		synctest.Wait()
		s.wantNames()
	})
}
