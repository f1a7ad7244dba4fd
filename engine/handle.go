package engine

import "github.com/google/uuid"

// Handle stands for a plan that was submitted. It is safe for concurrent use.
type Handle struct {
	engine *Engine
	id     uuid.UUID
}

// ID returns the plan's ID.
func (h *Handle) ID() uuid.UUID { return h.id }
