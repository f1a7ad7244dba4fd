package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/workflow"
)

// compensated returns a plan that runs an action, and then another one that depends on the outcome.
func compensated(work *workflow.Action) *workflow.Plan {
	p := plan(block("b", sequence("s", work)))
	p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
		batch("success", workflow.OnSuccess, do(job{Name: "tell", For: time.Minute})),
		batch("failure", workflow.OnFailure, do(job{Name: "undo", For: time.Minute})),
	}}
	return p
}

// TestLateStop asks a plan to stop while its deferred actions run. It ends as it would have ended, whoever ends it.
func TestLateStop(t *testing.T) {
	for name, ends := range map[string]func(t *testing.T, s *stage, p *process){
		"stays":  func(*testing.T, *stage, *process) {},
		"dies":   func(_ *testing.T, _ *stage, p *process) { p.Kill(); p.end() },
		"drains": func(_ *testing.T, _ *stage, p *process) { p.end() },
		"is evicted": func(t *testing.T, s *stage, p *process) {
			must(t, fleet.Evict(t.Context(), s.open(), p.nodes[0], fleet.EvictOptions{By: asked}))
		},
	} {
		stageRun(t, name, func(t *testing.T, s *stage) {
			p := s.create(compensated(second("work")))
			owner := s.join("owner", engine.Options{})
			time.Sleep(15 * time.Second)
			other := s.join("other", engine.Options{})
			time.Sleep(5 * time.Second)
			must(t, fleet.Stop(t.Context(), s.open(), p.ID, asked))
			ends(t, s, owner)
			<-owner.ended
			<-other.ended
			if got := s.read(p.ID); got.State.Status != workflow.Completed || s.ran["undo"] > 0 || s.done["tell"] != 1 || got.Stopped.By != "" {
				t.Errorf("ran %v, stopped by %+v\n%s", s.ran, got.Stopped, outline(got))
			}
		})
	}
}

// TestStopThatIsNotStored asks a plan to stop while it is stored as Running, for longer than the caller waits. Its
// compensation begins, and the engine dies. The next one begins nothing of the work.
func TestStopThatIsNotStored(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(compensated(second("work")))
		v := s.process()
		slow := true
		v.On(updates(func(o workflow.Object, update func() error) error {
			if slow && o.Kind() == workflow.KindPlan {
				time.Sleep(10 * time.Second)
				slow = false
			}
			return update()
		}))
		e := s.engine(v, engine.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := start(ctx, e)
		time.Sleep(time.Second)
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		if err := e.Stop(short, p.ID, asked); err == nil {
			t.Error("the stop is stored")
		}
		time.Sleep(20 * time.Second)
		v.On(func(context.Context, processtest.Call, func() error) error { return errKilled })
		cancel()
		must(t, <-ended)
		s.run(t.Context(), s.process())
		if got := s.read(p.ID); got.State.Status != workflow.Stopped || !slices.Equal(s.names(), []string{"undo", "undo"}) {
			t.Errorf("ran %v\n%s", s.names(), outline(got))
		}
	})
}
