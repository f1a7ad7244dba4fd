package azblobotel

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/workflow"
)

// NewEngine returns the observer of an engine. It counts the plans that the engine is working on, which takes
// no request. Plans that wait to be picked up do not count. An error means that the provider of metrics refused
// an instrument.
func NewEngine(o Options) (engine.Observer, error) {
	i := instruments{Meter: o.meter()}
	w := &worker{
		Options: o,
		plans:   i.gauge("azblob.engine.plans", "{plan}", "Plans that the engine is working on."),
		ended:   i.counter("azblob.engine.ended", "{plan}", "Plans that reached a final status."),
		left:    i.counter("azblob.engine.left", "{plan}", "Plans that the engine left before their end."),
		work:    map[uuid.UUID]bool{},
	}
	return engine.Observer{PickedUp: w.pickedUp, Changed: w.changed, Left: w.leave}, errors.Join(i.errs...)
}

// worker is the observer of engines.
type worker struct {
	Options
	plans       metric.Int64UpDownCounter
	ended, left metric.Int64Counter

	mu   sync.Mutex
	work map[uuid.UUID]bool // the plans that the engine is working on; a plan may be picked up again
}

func (w *worker) pickedUp(ctx context.Context, e engine.PickedUpEvent) {
	if w.note(e.Plan.ID, true) {
		w.plans.Add(ctx, 1, w.with())
	}
}

func (w *worker) changed(ctx context.Context, e engine.ChangedEvent) {
	if plan, ok := e.Object.(*workflow.Plan); ok && plan.State.Status.Final() {
		w.release(ctx, plan.ID, w.ended, keyStatus.String(plan.State.Status.String()))
	}
}

func (w *worker) leave(ctx context.Context, e engine.LeftEvent) { w.release(ctx, e.Plan, w.left) }

// release counts the end of the work on a plan.
func (w *worker) release(ctx context.Context, plan uuid.UUID, why metric.Int64Counter, attrs ...attribute.KeyValue) {
	if w.note(plan, false) {
		w.plans.Add(ctx, -1, w.with())
		why.Add(ctx, 1, w.with(attrs...))
	}
}

// note notes whether the engine is working on a plan. It reports whether that is new.
func (w *worker) note(plan uuid.UUID, works bool) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = w.work[plan] != works
	if works {
		w.work[plan] = true
	} else {
		delete(w.work, plan)
	}
	return changed
}
