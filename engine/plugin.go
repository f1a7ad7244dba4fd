package engine

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// Plugin is a plugin that the engine can run.
type Plugin interface {
	plugins.Plugin
	// Run makes one attempt at an action. It must be safe for concurrent use, and must return soon after ctx
	// ends. ctx ends at the attempt's timeout, and when the engine gives the plan up. The engine waits for
	// Run.
	//
	// An action runs at least once: an action that was running when the engine died is rerun. Its ID is
	// unique and stays the same; use it as an idempotency key.
	//
	// req has the type of Request, and resp must have the type of Response or be nil. An error that is or
	// wraps a *plugins.Error is stored as it is; of any other error the text is stored. A Permanent error is
	// not retried.
	Run(ctx context.Context, action uuid.UUID, req any) (resp any, err error)
}
