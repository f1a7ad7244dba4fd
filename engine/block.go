package engine

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/workflow"
)

// runBlock runs a block that is not final: its sequences within its checks.
func (r *run) runBlock(scope context.Context, b *workflow.Block) error {
	if b.State.Status.Final() {
		return nil
	}
	if halted, err := r.halted(scope); err != nil || halted && b.State.Status == workflow.NotStarted {
		return err
	}
	// That deferred checks are due must be known after a death and a stop, too.
	if err := r.begin(b, b.EntranceDelay > 0 || b.DeferredChecks != nil); err != nil {
		return err
	}
	r.wait(scope, b.State.Start, b.EntranceDelay)
	reason, err := r.within(scope, b, func(scope context.Context) (workflow.FailureReason, error) {
		return r.runSequences(scope, b)
	})
	if err != nil {
		return err
	}
	return r.end(b, statusOf(reason))
}

// runSequences runs a block's sequences, up to Concurrency at a time. It begins no more when too many have
// failed.
func (r *run) runSequences(scope context.Context, b *workflow.Block) (workflow.FailureReason, error) {
	var failures atomic.Int64
	tooMany := func() bool {
		return b.ToleratedFailures >= 0 && failures.Load() > int64(b.ToleratedFailures)
	}
	var (
		g    errgroup.Group
		open []*workflow.Sequence
	)
	g.SetLimit(max(1, b.Concurrency))
	for _, s := range b.Sequences {
		switch s.State.Status {
		case workflow.Failed:
			failures.Add(1)
		case workflow.NotStarted, workflow.Running:
			open = append(open, s)
		}
	}
	for _, s := range open {
		g.Go(func() error {
			if s.State.Status == workflow.NotStarted && tooMany() {
				return nil
			}
			err := r.runInOrder(scope, s, s.Actions)
			if s.State.Status == workflow.Failed {
				failures.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if tooMany() {
		return workflow.BlockFailed, nil
	}
	for _, s := range b.Sequences {
		if s.State.Status != workflow.Completed && s.State.Status != workflow.Failed {
			return workflow.StopRequested, nil
		}
	}
	return workflow.NoFailure, nil
}
