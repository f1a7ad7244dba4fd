package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// runNode runs an engine as a node until no plan is left on any node. It calls submit when the node is a member, so that
// the node begins its own plan.
func runNode(ctx context.Context, e *engine.Engine, vault *azblob.Vault, p *progress, submit func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	submitted := make(chan error, 1)
	go func() {
		defer stop()
		select {
		case <-p.joined:
		case <-ctx.Done():
			submitted <- nil
			return
		}
		err := submit(ctx)
		submitted <- err
		for err == nil && !idle(ctx, vault, p) {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
	}()
	err := e.Run(ctx)
	stop()
	return errors.Join(err, <-submitted)
}

// idle reports whether no plan is left for nodes. It says for which ones this node waits.
func idle(ctx context.Context, vault *azblob.Vault, p *progress) bool {
	open, err := openPlans(ctx, vault, "")
	roster, rosterErr := vault.Control().Roster(ctx)
	if err != nil || rosterErr != nil {
		return false // it looks again
	}
	open = slices.DeleteFunc(open, func(plan storage.ListResult) bool { // it belongs to an engine that is alone
		return plan.Owner == uuid.Nil && plan.State.Status == workflow.Running
	})
	p.waitsFor(open, roster.Members)
	return len(open) == 0
}
