package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/workflow"
)

// TestSuspendedVault suspends the vault below a fleet. Running actions end and are stored, nothing else begins, and nobody
// begins again until the vault is open.
func TestSuspendedVault(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		store := s.open()
		p := s.create(long("a", "b", "c", "d", "e"))
		first := s.join("first", engine.Options{})
		time.Sleep(15 * time.Second)
		_, err := fleet.Suspend(t.Context(), store, workflow.Attribution{By: "ana", Why: "a move"}, fleet.SuspendOptions{})
		must(t, err)
		fails(t, <-first.ended, fleet.ErrSuspended, "Run")
		if got := s.read(p.ID); got.State.Status != workflow.Running || s.ran["b"] != 1 || s.done["b"] != 1 || s.ran["c"] != s.done["c"] || s.ran["e"] > 0 {
			t.Errorf("ran %v: %s", s.ran, outline(got))
		}
		fails(t, s.left[p.ID], fleet.ErrSuspended, "the engine left the plan")
		if _, err := first.Submit(t.Context(), long("f")); !errors.Is(err, fleet.ErrSuspended) {
			t.Errorf("Submit returns %v", err)
		}
		for _, members := range []*fleet.Options{nil, {Name: "second"}} {
			v := s.process()
			v.OnOp("Recovery", func(context.Context, processtest.Call, func() error) error {
				t.Error("Recovery of a suspended vault")
				return nil
			})
			fails(t, s.engine(v, engine.Options{Fleet: members}).Run(t.Context()), fleet.ErrSuspended, "an engine of %v", members)
		}
		must(t, fleet.Resume(t.Context(), store, asked))
		s.join("third", engine.Options{}).wait(t, 0)
		if got := s.read(p.ID); got.State.Status != workflow.Completed || len(s.log) != 5 {
			t.Errorf("ran %v: %s", s.ran, outline(got))
		}
	})
}
