package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// shape is a form of plan that is taken through its life, and how it ends.
type shape struct {
	name, about string
	plan        func() *workflow.Plan
	end         workflow.Status
	reason      workflow.FailureReason
}

func shapes(seed uint64) []shape {
	return []shape{
		{"small", "one action, the plan fails", plantest.Small, workflow.Failed, workflow.BlockFailed},
		{"empty", "a plan without any work", func() *workflow.Plan { return &workflow.Plan{Name: "empty"} }, workflow.Completed, workflow.NoFailure},
		{"full", "every field set, every optional part there", plantest.Full, workflow.Completed, workflow.NoFailure},
		{"2x3x4", "2 blocks of 3 sequences of 4 actions, the plan is stopped", func() *workflow.Plan { return plantest.Sized(2, 3, 4) }, workflow.Stopped, workflow.StopRequested},
		{"1x10x30", "300 actions, more than one batch of a delete", func() *workflow.Plan { return plantest.Sized(1, 10, 30) }, workflow.Completed, workflow.NoFailure},
		{
			"random", fmt.Sprintf("a plan made at random; -seed %d makes it again", seed),
			func() *workflow.Plan { return plantest.Random(seed) }, workflow.Completed, workflow.NoFailure,
		},
	}
}

// parts lists all objects of a plan but the plan itself.
func parts(p *workflow.Plan) []workflow.Object {
	var list []workflow.Object
	for o, parent := range workflow.Walk(p) {
		if parent != nil {
			list = append(list, o)
		}
	}
	return list
}

// idAt makes a UUIDv7 of a time (RFC 9562, section 5.7: the first 48 bits are milliseconds).
func idAt(t time.Time) uuid.UUID {
	id := workflow.NewV7()
	ms := t.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id
}

// started is when everything here begins, to the nanosecond.
var started = time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)

// start sets an object to Running.
func start(o workflow.Object) {
	st := o.Header().State
	st.Status, st.Start = workflow.Running, started
}

// longText is too long for any header, and has more than ASCII in it.
func longText(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for b.Len() < 100<<10 {
		fmt.Fprintf(&b, "%x план 🚀\n", r.Uint64())
	}
	return b.String()
}
