package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/workflow"
)

// TestRefusedForHours refuses an engine one kind of call for two hours, while it runs a plan and gets another. It says so, and
// afterwards, or at its next start if Run has failed, both plans are completed. No action runs twice.
func TestRefusedForHours(t *testing.T) {
	for name, member := range map[string]*fleet.Options{"alone": nil, "in a fleet": {}} {
		t.Run(name, func(t *testing.T) {
			processtest.EachRefusal(t, func(t *testing.T, refuse func(op string) error) int64 {
				return inMemory(t).refuses(member, refuse)
			})
		})
	}
}

// refuses runs two plans while calls are refused, and returns how often somebody was told.
func (s *stage) refuses(member *fleet.Options, refuse func(op string) error) int64 {
	var told atomic.Int64
	tell := func(err error) {
		if err != nil {
			told.Add(1)
		}
	}
	o := engine.Options{Observer: engine.Observer{
		Problem:  func(_ context.Context, e engine.ProblemEvent) { tell(e.Err) },
		Hindered: func(_ context.Context, e engine.HinderedEvent) { tell(e.Err) },
	}}
	if member != nil {
		o.Fleet = &fleet.Options{Observer: fleet.Observer{
			Failure:   func(_ context.Context, e fleet.FailureEvent) { tell(e.Err) },
			Heartbeat: func(_ context.Context, e fleet.HeartbeatEvent) { tell(e.Err) },
		}}
	}
	v := s.process()
	v.On(func(_ context.Context, c processtest.Call, do func() error) error {
		if err := refuse(c.Op); err != nil {
			return err
		}
		return do()
	})
	first, second := s.create(long("a", "b")), long("c", "d")
	e := s.engine(v, o)
	ended := start(s.t.Context(), e)
	time.Sleep(1500 * time.Millisecond) // no search runs beside Create, whose note would come late
	if _, err := e.Submit(s.t.Context(), second); err != nil {
		tell(err)
		time.Sleep(processtest.Outage)
		submit(s.t, e, second)
	}
	switch err := <-ended; {
	case err != nil:
		tell(err)
	case s.read(first.ID).State.Status != workflow.Completed:
		s.t.Error("Run has ended, and the plan has not")
	}
	time.Sleep(processtest.Outage)
	s.run(s.t.Context(), s.process())
	for _, p := range []*workflow.Plan{first, second} {
		if got := s.read(p.ID); got.State.Status != workflow.Completed {
			s.t.Errorf("at the end:\n%s", outline(got))
		}
	}
	if fmt.Sprint(s.ran) != "map[a:1 b:1 c:1 d:1]" {
		s.t.Errorf("ran %v", s.ran)
	}
	return told.Load()
}

// TestPlanIsFoundBeforeSubmitReturns lets the answer to a Create take until a search has found the plan. It runs once.
func TestPlanIsFoundBeforeSubmitReturns(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		v := s.process()
		v.OnOp("Create", func(_ context.Context, _ processtest.Call, do func() error) error {
			defer time.Sleep(time.Minute)
			return do()
		})
		s.create(plan(block("b", sequence("s", do(job{Name: "other", For: time.Hour})))))
		e := s.engine(v, engine.Options{})
		submitted := plan(block("b", sequence("s", do(job{Name: "a", For: 10 * time.Minute}))))
		time.AfterFunc(1500*time.Millisecond, func() { submit(t, e, submitted) }) // between two searches
		must(t, e.Run(t.Context()))
		must(t, s.left[submitted.ID])
		s.wantNames("other", "a")
	})
}
