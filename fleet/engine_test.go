package fleet_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// ran is a log of the actions of all engines of a test.
type ran struct {
	mu        sync.Mutex
	completed map[uuid.UUID]bool // by a stored update
	again     int                // how many began after that
}

func newLog() *ran { return &ran{completed: map[uuid.UUID]bool{}} }

// engine runs plans as a node of a fleet until the test ends. A node that is fenced joins again.
func (r *ran) engine(t *testing.T, p fleet.Store) {
	for t.Context().Err() == nil {
		n, err := fleet.Join(t.Context(), p, fleet.Options{})
		if err != nil {
			continue
		}
		var running sync.WaitGroup
		for plan, err := range n.Plans(t.Context()) {
			must(t, err)
			running.Go(func() {
				work, done := n.Work(plan.ID)
				defer done()
				for err := r.run(work, p, plan); errors.Is(err, storage.ErrConflict); err = r.run(work, p, plan) {
					if plan, err = n.Take(context.WithoutCancel(t.Context()), plan.ID); err != nil || plan.State.Status.Final() {
						return
					}
				}
			})
		}
		running.Wait()
		must(t, n.Leave(context.WithoutCancel(t.Context())))
	}
}

// run runs what is left of a plan: each action takes a second.
func (r *ran) run(work context.Context, v storage.Vault, plan *workflow.Plan) error {
	ctx := context.WithoutCancel(work)
	for _, a := range actions(plan) {
		if a.State.Status == workflow.Completed {
			continue
		}
		if err := moves(ctx, v, a, workflow.Running); err != nil {
			return err
		}
		r.begins(a.ID)
		select {
		case <-time.After(time.Second):
		case <-work.Done():
			return context.Cause(work)
		}
		if err := moves(ctx, v, a, workflow.Completed); err != nil {
			return err
		}
		r.completes(a.ID)
	}
	return moves(ctx, v, plan, workflow.Completed)
}

func (r *ran) begins(action uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.completed[action] {
		r.again++
	}
}

func (r *ran) completes(action uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.completed[action] = true
}
