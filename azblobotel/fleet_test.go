package azblobotel_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"

	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func TestFleet(t *testing.T) {
	r := newRig(t, "")
	o, err := azblobotel.NewFleet(r.opts)
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

// TestGauges checks that the latest figures are exported, and none after they are not known any more.
func TestGauges(t *testing.T) {
	r := newRig(t, "")
	o, err := azblobotel.NewFleet(r.opts)
	must(t, err)
	r.wantMeasured("azblob.fleet.open")
	a, b := uuid.UUID(workflow.NewV7()), uuid.UUID(workflow.NewV7())
	o.Gauges(t.Context(), fleet.GaugesEvent{Node: a, Gauges: fleet.Gauges{Open: 9}})
	o.Gauges(t.Context(), fleet.GaugesEvent{Node: b, Gauges: fleet.Gauges{
		Open: 7, Waiting: 2, Asleep: 3, Unread: 1, OldestWait: time.Minute, Alive: 1, Dead: 2, Stuck: map[fleet.Reason]int{fleet.ReasonNoProgress: 3},
		Members: []fleet.MemberState{{Member: storage.Member{ID: a, Name: "host-1"}, Plans: 4}},
		Keys:    []fleet.KeyState{{Name: "a", Waiting: 6, Holders: 2}, {Name: "a", Unique: true, Waiting: 1}},
		Copies:  []fleet.CopyState{{Name: "west", Lag: time.Hour}},
	}})
	o.Gauges(t.Context(), fleet.GaugesEvent{Node: a, Stopped: true})
	for name, want := range map[string][]string{
		"open": {"{} 7"}, "waiting": {"{} 2"}, "asleep": {"{} 3"}, "unread": {"{} 1"}, "wait.oldest": {"{} 60"}, "copy.lag": {"{azblob.copy.name=west} 3600"},
		"members":     {"{azblob.member.state=alive} 1", "{azblob.member.state=dead} 2"},
		"key.waiting": {"{azblob.key.kind=key,azblob.key.name=a} 6", "{azblob.key.kind=unique,azblob.key.name=a} 1"},
		"key.holders": {"{azblob.key.kind=key,azblob.key.name=a} 2", "{azblob.key.kind=unique,azblob.key.name=a} 0"},
		"node.plans":  {"{azblob.fleet.node=" + a.String() + ",azblob.node.name=host-1} 4"},
	} {
		r.wantMeasured("azblob.fleet."+name, want...)
	}
	stuck := r.measured("azblob.fleet.stuck")
	if !slices.Contains(stuck, "{azblob.stuck.reason=no-progress} 3") || len(stuck) != len(fleet.Reasons()) {
		t.Errorf("stuck are %q", stuck)
	}
	o.Gauges(t.Context(), fleet.GaugesEvent{Node: b, Stopped: true})
	for _, s := range r.series() {
		t.Errorf("after the last node has stopped, there is %s", s)
	}
}

// TestEngine checks that a plan that is picked up twice counts once, and so does its end.
func TestEngine(t *testing.T) {
	r := newRig(t, "")
	o, err := azblobotel.NewEngine(r.opts)
	must(t, err)
	ended, left := &workflow.Plan{ID: workflow.NewV7()}, &workflow.Plan{ID: workflow.NewV7()}
	for _, p := range []*workflow.Plan{ended, ended, left} {
		o.PickedUp(t.Context(), engine.PickedUpEvent{Plan: p})
	}
	o.Changed(t.Context(), engine.ChangedEvent{Object: ended}) // not yet final
	o.Changed(t.Context(), engine.ChangedEvent{Object: &workflow.Block{State: workflow.State{Status: workflow.Completed}}})
	r.wantMeasured("azblob.engine.plans", "{} 2")
	ended.State.Status = workflow.Stopped
	o.Changed(t.Context(), engine.ChangedEvent{Object: ended})
	for _, p := range []*workflow.Plan{ended, left, left, {}} {
		o.Left(t.Context(), engine.LeftEvent{Plan: p.ID})
	}
	r.wantMeasured("azblob.engine.plans", "{} 0")
	r.wantMeasured("azblob.engine.ended", "{azblob.plan.status=Stopped} 1")
	r.wantMeasured("azblob.engine.left", "{} 1")
}
