package azblobotel

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/planvault/azblob/fleet"
)

// gauges has the figures that a node reported last. Exporters ask for them; what is not known any more has no series.
type gauges struct {
	Options
	open, waiting, asleep, stuck, unread, members, plans, keyWaiting, keyHolders metric.Int64Observable
	oldest, lag                                                                  metric.Float64Observable

	mu   sync.Mutex
	from uuid.UUID // uuid.Nil if nothing is known
	last fleet.Gauges
}

func newGauges(o Options, i *instruments) *gauges {
	g := &gauges{
		Options:    o,
		open:       i.observed("azblob.fleet.open", "{plan}", "Plans that are open."),
		waiting:    i.observed("azblob.fleet.waiting", "{plan}", "Open plans that have not begun."),
		asleep:     i.observed("azblob.fleet.asleep", "{plan}", "Open plans that need no node now: they sleep, wait for a turn, or an engine of another kind places them."),
		stuck:      i.observed("azblob.fleet.stuck", "{plan}", "Open plans that make no progress."),
		unread:     i.observed("azblob.fleet.unread", "{plan}", "Open plans that may be stuck and were not read yet."),
		members:    i.observed("azblob.fleet.members", "{member}", "Members of the fleet."),
		plans:      i.observed("azblob.fleet.node.plans", "{plan}", "Open plans that a node owns."),
		keyWaiting: i.observed("azblob.fleet.key.waiting", "{plan}", "Open plans that wait for a turn for a key, of the ten keys with most."),
		keyHolders: i.observed("azblob.fleet.key.holders", "{plan}", "Plans that have a turn for such a key."),
		oldest:     i.observedTime("azblob.fleet.wait.oldest", "For how long the plan has waited that has not begun for longest."),
		lag:        i.observedTime("azblob.fleet.copy.lag", "How far a copy of the vault is behind."),
	}
	_, err := i.RegisterCallback(g.observe, g.open, g.waiting, g.asleep, g.stuck, g.unread, g.members, g.plans, g.keyWaiting, g.keyHolders, g.oldest, g.lag)
	i.errs = append(i.errs, err)
	return g
}

// report takes over the figures of a node. If two nodes report for a moment, the later figures count.
func (g *gauges) report(_ context.Context, e fleet.GaugesEvent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !e.Stopped:
		g.from, g.last = e.Node, e.Gauges
	case g.from == e.Node:
		g.from, g.last = uuid.Nil, fleet.Gauges{}
	}
}

// observe gives the figures to an exporter.
func (g *gauges) observe(_ context.Context, o metric.Observer) error {
	g.mu.Lock()
	from, last := g.from, g.last
	g.mu.Unlock()
	if from == uuid.Nil {
		return nil
	}
	count := func(i metric.Int64Observable, n int, attrs ...attribute.KeyValue) {
		o.ObserveInt64(i, int64(n), g.with(attrs...))
	}
	count(g.open, last.Open)
	count(g.waiting, last.Waiting)
	count(g.asleep, last.Asleep)
	count(g.unread, last.Unread)
	for _, reason := range fleet.Reasons() {
		count(g.stuck, last.Stuck[reason], keyReason.String(string(reason)))
	}
	count(g.members, last.Alive, keyMember.String("alive"))
	count(g.members, last.Dead, keyMember.String("dead"))
	for _, m := range last.Members {
		count(g.plans, m.Plans, keyNode.String(m.Member.ID.String()), keyName.String(m.Member.Name))
	}
	for _, k := range last.Keys {
		count(g.keyWaiting, k.Waiting, keyKeyName.String(k.Name), keyKeyKind.String(k.Kind()))
		count(g.keyHolders, k.Holders, keyKeyName.String(k.Name), keyKeyKind.String(k.Kind()))
	}
	o.ObserveFloat64(g.oldest, last.OldestWait.Seconds(), g.with())
	for _, c := range last.Copies {
		o.ObserveFloat64(g.lag, c.Lag.Seconds(), g.with(keyCopy.String(c.Name)))
	}
	return nil
}
