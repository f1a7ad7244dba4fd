package main

import (
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// shape is a form of plan, and how its life ends.
type shape struct {
	name, about string
	plan        func() *workflow.Plan
	end         workflow.Status
	reason      workflow.FailureReason
}

var shapes = []shape{
	{"small", "one action; the plan fails", plantest.Small, workflow.Failed, workflow.BlockFailed},
	{"full", "every field and every optional sub-object is set", plantest.Full, workflow.Completed, workflow.NoFailure},
	{
		"large", "300 actions, more than one batch of a Delete; the plan is stopped",
		func() *workflow.Plan { return plantest.Sized(1, 10, 30) }, workflow.Stopped, workflow.StopRequested,
	},
}

// idAt returns a UUIDv7 of a time. Its first 48 bits are milliseconds (RFC 9562, section 5.7).
func idAt(t time.Time) uuid.UUID {
	id := workflow.NewV7()
	ms := t.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id
}

// started is when all objects start, to the nanosecond.
var started = time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)

// start sets an object to Running.
func start(o workflow.Object) {
	st := o.Header().State
	st.Status, st.Start = workflow.Running, started
}
