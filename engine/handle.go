package engine

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/workflow"
)

// Handle stands for a plan that was submitted. It is safe for concurrent use.
type Handle struct {
	engine *Engine
	id     uuid.UUID
}

// ID returns the plan's ID.
func (h *Handle) ID() uuid.UUID { return h.id }

// Wait is [Engine.Wait] for the plan.
func (h *Handle) Wait(ctx context.Context) (*workflow.Plan, error) { return h.engine.Wait(ctx, h.id) }

// Status is [Engine.Status] of the plan.
func (h *Handle) Status(ctx context.Context) (fleet.OpenPlan, error) {
	return h.engine.Status(ctx, h.id)
}
