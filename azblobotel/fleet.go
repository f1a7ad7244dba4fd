package azblobotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
)

// NewFleet returns the observer of a node of a fleet. To use it beside others, see [fleet.Tee]. A takeover is
// a span, which begins when the takeover began. Everything else is in the metrics alone, because it is not
// part of a call. The gauges are those of one vault, so nodes of different vaults need observers of their own. An
// error means that the provider of metrics refused an instrument.
func NewFleet(o Options) (fleet.Observer, error) {
	i := instruments{Meter: o.meter()}
	n := &node{
		Options:    o,
		spans:      o.tracer(),
		heartbeats: i.duration("azblob.fleet.heartbeat.duration", "Duration of the tries to renew the node's record."),
		takeovers:  i.duration("azblob.fleet.takeover.duration", "Duration of takeovers of plans, until the fence was finished."),
		failures:   i.counter("azblob.fleet.failures", "{failure}", "Requests of the node's own loops that failed. The node tries again."),
		claims:     i.counter("azblob.fleet.claims", "{plan}", "Plans that the node claimed."),
		removals:   i.counter("azblob.fleet.removals", "{member}", "Members that the node removed because they were silent for too long."),
		fences:     i.counter("azblob.fleet.fences", "{node}", "Nodes that learned that they were no longer members."),
	}
	g := newGauges(o, &i)
	return fleet.Observer{
		Heartbeat: n.heartbeat,
		Failure:   n.failure,
		Takeover:  n.takeover,
		Gauges:    g.report,
		Claim:     func(ctx context.Context, _ fleet.ClaimEvent) { n.claims.Add(ctx, 1, n.with()) },
		Removal:   func(ctx context.Context, _ fleet.RemovalEvent) { n.removals.Add(ctx, 1, n.with()) },
		Fenced:    func(ctx context.Context, _ fleet.FencedEvent) { n.fences.Add(ctx, 1, n.with()) },
	}, errors.Join(i.errs...)
}

// node is the observer of nodes.
type node struct {
	Options
	spans                              trace.Tracer
	heartbeats, takeovers              metric.Float64Histogram
	failures, claims, removals, fences metric.Int64Counter
}

func (n *node) heartbeat(ctx context.Context, e fleet.HeartbeatEvent) {
	n.heartbeats.Record(ctx, e.Duration.Seconds(), n.with(errorOf(e.Err)...))
}

func (n *node) failure(ctx context.Context, e fleet.FailureEvent) {
	n.failures.Add(ctx, 1, n.with(errorOf(e.Err)...))
}

// errorOf returns the error.type of an error in a loop of a node. Unlike a call, a loop has no caller who
// expects certain errors.
func errorOf(err error) []attribute.KeyValue {
	if err == nil {
		return nil
	}
	return withFailure(nil, string(azblob.OutcomeOf(err)))
}

func (n *node) takeover(ctx context.Context, e fleet.TakeoverEvent) {
	n.takeovers.Record(ctx, e.Duration.Seconds(), n.with())
	now := time.Now()
	_, span := n.spans.Start(ctx, "takeover", trace.WithTimestamp(now.Add(-e.Duration)), trace.WithAttributes(n.common(
		keyNode.String(e.Node.String()), keyPlan.String(e.Plan.String()), keyFrom.String(e.From.String()),
		keyEpoch.Int64(e.Epoch), keyRounds.Int(e.Rounds))...))
	span.End(trace.WithTimestamp(now))
}
