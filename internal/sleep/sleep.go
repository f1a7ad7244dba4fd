// Package sleep waits until a time has passed or a context ends.
package sleep

import (
	"context"
	"time"
)

// For returns after d, or when ctx ends. It reports whether ctx goes on.
func For(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
