package plugins

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Sleep waits.
type Sleep struct{}

// SleepRequest says how long.
type SleepRequest struct {
	// For is as in "1m30s".
	For string `json:"for"`
}

// SleepResponse is empty.
type SleepResponse struct{}

// Name is "sleep".
func (Sleep) Name() string { return "sleep" }

// Request is a SleepRequest.
func (Sleep) Request() any { return SleepRequest{} }

// Response is a SleepResponse.
func (Sleep) Response() any { return SleepResponse{} }

// Run waits for the whole time, also when it is a repetition; or until ctx ends, which is its error then.
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
