package azblobotel_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"

	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

func (r *rig) fleet() fleet.Observer {
	r.t.Helper()
	o, err := azblobotel.NewFleet(r.opts...)
	must(r.t, err)
	return o
}

// mute is a store whose members can't be renewed.
type mute struct{ fleet.Store }

func (mute) RenewMember(context.Context, storage.Member) (string, error) {
	return "", &storage.Error{Op: "RenewMember", Err: storage.ErrUnavailable}
}

// TestFleet lets a node claim a plan and fall silent. Another one removes it and takes the plan over.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memvault.NewStore()
		a, b := newRig(t), newRig(t)
		plan := small()
		vault := store.Open(nil)
		must(t, vault.Create(t.Context(), plan))

		first, err := fleet.Join(t.Context(), mute{vault}, fleet.Options{Observer: a.fleet()})
		must(t, err)
		for p, err := range first.Plans(t.Context()) {
			must(t, err)
			if p.ID != plan.ID {
				t.Fatal(p.ID)
			}
			break
		}
		second, err := fleet.Join(t.Context(), store.Open(nil), fleet.Options{Observer: b.fleet()})
		must(t, err)
		for _, err := range second.Plans(t.Context()) {
			must(t, err)
			break
		}
		must(t, second.Leave(t.Context()))
		must(t, first.Leave(t.Context()))

		a.wantMeasured("azblob.fleet.claims", "{} 1")
		b.wantMeasured("azblob.fleet.claims")
		b.wantMeasured("azblob.fleet.removals", "{} 1")
		b.wantMeasured("azblob.fleet.takeover.duration", "{} 1")
		wantAttrs(t, "takeover", b.find("takeover").Attributes, map[attribute.Key]string{
			"azblob.plan.id": plan.ID.String(), "azblob.fleet.from": first.ID().String(), "azblob.fleet.epoch": "2", "azblob.fleet.rounds": "1",
		})
	})
}

// TestFleetEvents gives the observer events with durations, which take no time on a vault in memory.
func TestFleetEvents(t *testing.T) {
	r := newRig(t)
	o := r.fleet()
	o.Heartbeat(t.Context(), fleet.HeartbeatEvent{Duration: time.Second})
	o.Heartbeat(t.Context(), fleet.HeartbeatEvent{Err: storage.ErrUnavailable})
	o.Failure(t.Context(), fleet.FailureEvent{Err: storage.ErrDenied})
	o.Takeover(t.Context(), fleet.TakeoverEvent{Duration: time.Second})
	r.wantMeasured("azblob.fleet.heartbeat.duration", "{error.type=unavailable} 1", "{} 1")
	r.wantMeasured("azblob.fleet.failures", "{error.type=denied} 1")
	if s := r.find("takeover"); s.EndTime.Sub(s.StartTime) != time.Second {
		t.Errorf("the span is from %v to %v", s.StartTime, s.EndTime)
	}
}

// TestEngine runs plans on an engine, and shuts it down while one of them runs.
func TestEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		o, err := azblobotel.NewEngine(r.opts...)
		must(t, err)
		ctx, shutdown := context.WithCancel(t.Context())
		plugins := registry.Must(engine.Func("p", func(_ context.Context, _ engine.Call, how string) (string, error) {
			switch how {
			case "fail":
				return "", errors.New("it failed")
			case "hang":
				r.wantMeasured("azblob.engine.plans", "{} 1") // the others have ended
				shutdown()
				time.Sleep(time.Second) // until the engine knows
			}
			return "", nil
		}))
		vault := memvault.NewStore().Open(plugins)
		e, err := engine.New(vault, plugins, engine.Options{Observer: o, Plans: 1})
		must(t, err)
		for _, how := range []string{"succeed", "fail", "succeed", "hang"} {
			plan := small()
			plan.Blocks[0].Sequences[0].Actions = []*workflow.Action{{Name: "a", Plugin: "p", Req: how}, {Name: "b", Plugin: "p", Req: how}}
			must(t, e.Submit(t.Context(), plan))
			time.Sleep(time.Second)
		}
		must(t, e.Run(ctx))
		r.wantMeasured("azblob.engine.plans", "{} 0")
		r.wantMeasured("azblob.engine.ended", "{azblob.plan.status=Completed} 2", "{azblob.plan.status=Failed} 1")
		r.wantMeasured("azblob.engine.left", "{} 1")
	})
}

// TestEnginePicksUpAgain checks that a plan that is picked up twice counts once.
func TestEnginePicksUpAgain(t *testing.T) {
	r := newRig(t)
	o, err := azblobotel.NewEngine(r.opts...)
	must(t, err)
	plan := &workflow.Plan{ID: workflow.NewV7()}
	o.PickedUp(t.Context(), plan)
	o.PickedUp(t.Context(), plan)
	o.Changed(t.Context(), plan) // not yet final
	o.Changed(t.Context(), &workflow.Block{State: workflow.State{Status: workflow.Completed}})
	r.wantMeasured("azblob.engine.plans", "{} 1")
	plan.State.Status = workflow.Stopped
	o.Changed(t.Context(), plan)
	o.Left(t.Context(), plan.ID, nil)
	o.Left(t.Context(), uuid.Nil, nil)
	r.wantMeasured("azblob.engine.plans", "{} 0")
	r.wantMeasured("azblob.engine.left")
	if ended := r.measured("azblob.engine.ended"); !slices.Equal(ended, []string{"{azblob.plan.status=Stopped} 1"}) {
		t.Errorf("%q", ended)
	}
}
