package plugins

import (
	"context"
	"time"

	"github.com/planvault/azblob/engine"
)

// Sleep waits.
type Sleep struct{}

// SleepRequest is the request of [Sleep].
type SleepRequest struct {
	// For is a duration such as "1m30s".
	For string `json:"for"`
}

// SleepResponse is the response of [Sleep].
type SleepResponse struct{}

// Run waits for the whole time, even in a rerun. If ctx ends first, its error is returned.
func (Sleep) Run(ctx context.Context, _ engine.Call, r SleepRequest) (SleepResponse, error) {
	d, err := time.ParseDuration(r.For)
	if err != nil || d < 0 {
		return SleepResponse{}, permanent(`sleep: "for" must be a time like "1m30s", not %q`, r.For)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return SleepResponse{}, nil
	case <-ctx.Done():
		return SleepResponse{}, ctx.Err()
	}
}
