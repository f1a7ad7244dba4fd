// Package audited says of a context that what is done with it is part of a change that the audit log has, or routine that the
// log need not have.
package audited

import "context"

type key struct{}

// Mark returns a context for the parts of such a change.
func Mark(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether a context is marked.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
