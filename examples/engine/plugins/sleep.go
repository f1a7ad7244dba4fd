package plugins

import (
	"context"
	"time"

	"github.com/google/uuid"
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

// Name returns "sleep".
func (Sleep) Name() string { return "sleep" }

// Request returns a SleepRequest.
func (Sleep) Request() any { return SleepRequest{} }

// Response returns a SleepResponse.
func (Sleep) Response() any { return SleepResponse{} }

// Run waits for the whole time, even in a rerun. If ctx ends first, its error is returned.
func (Sleep) Run(ctx context.Context, _ uuid.UUID, req any) (any, error) {
	r, _ := req.(SleepRequest)
	d, err := time.ParseDuration(r.For)
	if err != nil || d < 0 {
		return nil, permanent(`sleep: "for" must be a time like "1m30s", not %q`, r.For)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return SleepResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
