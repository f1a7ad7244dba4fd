package azblobotel_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func TestFleet(t *testing.T) {
	r := newRig(t)
	o, err := azblobotel.NewFleet(r.opts...)
	must(t, err)
	ctx, plan, from := t.Context(), workflow.NewV7(), workflow.NewV7()
	o.Heartbeat(ctx, fleet.HeartbeatEvent{Duration: time.Second})
	o.Heartbeat(ctx, fleet.HeartbeatEvent{Err: storage.ErrUnavailable})
	o.Failure(ctx, fleet.FailureEvent{Err: storage.ErrDenied})
	o.Claim(ctx, fleet.ClaimEvent{Plan: plan})
	o.Removal(ctx, fleet.RemovalEvent{})
	o.Fenced(ctx, fleet.FencedEvent{})
	o.Takeover(ctx, fleet.TakeoverEvent{Plan: plan, From: from, Epoch: 2, Rounds: 1, Duration: time.Second})
	r.wantMeasured("azblob.fleet.heartbeat.duration", "{error.type=unavailable} 1", "{} 1")
	r.wantMeasured("azblob.fleet.failures", "{error.type=denied} 1")
	for _, name := range []string{"claims", "removals", "fences", "takeover.duration"} {
		r.wantMeasured("azblob.fleet."+name, "{} 1")
	}
	s := r.find("takeover")
	if s.EndTime.Sub(s.StartTime) != time.Second {
		t.Errorf("the span is from %v to %v", s.StartTime, s.EndTime)
	}
	wantAttrs(t, "takeover", s.Attributes, map[attribute.Key]string{
		"azblob.plan.id": plan.String(), "azblob.fleet.from": from.String(), "azblob.fleet.epoch": "2", "azblob.fleet.rounds": "1",
	})
}

// TestEngine checks that a plan that is picked up twice counts once, and so does its end.
func TestEngine(t *testing.T) {
	r := newRig(t)
	o, err := azblobotel.NewEngine(r.opts...)
	must(t, err)
	ended, left := &workflow.Plan{ID: workflow.NewV7()}, &workflow.Plan{ID: workflow.NewV7()}
	for _, p := range []*workflow.Plan{ended, ended, left} {
		o.PickedUp(t.Context(), p)
	}
	o.Changed(t.Context(), ended) // not yet final
	o.Changed(t.Context(), &workflow.Block{State: workflow.State{Status: workflow.Completed}})
	r.wantMeasured("azblob.engine.plans", "{} 2")
	ended.State.Status = workflow.Stopped
	o.Changed(t.Context(), ended)
	for _, p := range []*workflow.Plan{ended, left, left, {}} {
		o.Left(t.Context(), p.ID, nil)
	}
	r.wantMeasured("azblob.engine.plans", "{} 0")
	r.wantMeasured("azblob.engine.ended", "{azblob.plan.status=Stopped} 1")
	r.wantMeasured("azblob.engine.left", "{} 1")
}
