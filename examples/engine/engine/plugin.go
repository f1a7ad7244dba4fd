package engine

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// Plugin is a plugin that the engine can run: the vault's, and the work itself.
type Plugin interface {
	plugins.Plugin
	// Run makes one attempt at an action. It must be safe for concurrent use, and return soon after ctx ends, which it does at
	// the attempt's timeout and when the engine gives the plan up; the engine waits for it.
	//
	// An action is run at least once: one that was under way when the engine died is run again. Its ID is the same each time and
	// is no other's, so it is a key to tell a repetition by.
	//
	// The request is of the type that Request gives, and so must be the response of Response's, or nil. An error that is or
	// wraps a *plugins.Error is stored as that; of any other the text is. No attempt follows one that is Permanent.
	Run(ctx context.Context, action uuid.UUID, req any) (resp any, err error)
}
