package fleet

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/tee"
	"github.com/planvault/azblob/storage"
)

// Observer has functions that a node calls when something happens. Each may be nil. A function is called from
// the goroutine that does the work, and delays it while it runs, so it must not call [Node.Leave]; many calls
// may run at a time. The context is the context of the work. A function must not panic: the node does not recover.
//
// The vault's own observer sees the node's requests.
type Observer struct {
	// Heartbeat is called after each try to renew the node's record.
	Heartbeat func(ctx context.Context, e HeartbeatEvent)
	// Failure is called when a request of the node's own loops failed. The node tries again.
	Failure func(ctx context.Context, e FailureEvent)
	// Removal is called when the node marked a member as left that was silent for too long.
	Removal func(ctx context.Context, e RemovalEvent)
	// Claim is called when the node claimed a plan that had not begun.
	Claim func(ctx context.Context, e ClaimEvent)
	// Takeover is called when the node took a plan over and its fence is finished.
	Takeover func(ctx context.Context, e TakeoverEvent)
	// Fenced is called once, when the node learns that it is no longer a member.
	Fenced func(ctx context.Context, e FencedEvent)
	// Gauges is called each [Options.Gauges] in the one node of the fleet that looks at the open plans. If it is nil,
	// the node does not look.
	Gauges func(ctx context.Context, e GaugesEvent)
}

// HeartbeatEvent is a try to renew the record of a node.
type HeartbeatEvent struct {
	Node     uuid.UUID
	Duration time.Duration
	// Err is nil if the record is renewed.
	Err error
}

// FailureEvent is a failed request of a node's own loops.
type FailureEvent struct {
	Node uuid.UUID
	// Doing says what failed, such as "look at the members".
	Doing string
	Err   error
}

// RemovalEvent is a member that a node has found dead.
type RemovalEvent struct {
	Node   uuid.UUID
	Member storage.Member
}

// ClaimEvent is a plan that a node claimed.
type ClaimEvent struct {
	Node, Plan uuid.UUID
	// Epoch is the new epoch.
	Epoch int64
}

// TakeoverEvent is a plan that a node took over.
type TakeoverEvent struct {
	Node, Plan uuid.UUID
	// From is the former owner. It is the node itself if the node took its own plan again.
	From uuid.UUID
	// Epoch is the new epoch.
	Epoch int64
	// Rounds is how many times the takeover began. Each further one is a write of the former owner.
	Rounds int
	// Duration is how long the takeover took.
	Duration time.Duration
}

// FencedEvent is a node that is no longer a member.
type FencedEvent struct{ Node uuid.UUID }

// GaugesEvent is what a node has found that looks at the open plans for its fleet.
type GaugesEvent struct {
	Node uuid.UUID
	// Gauges are the figures. They are zero if Stopped.
	Gauges Gauges
	// Stopped reports that the figures that the node reported before are not known to it any more: another node
	// looks, or the looks fail, or the node is no longer a member. Drop the figures.
	Stopped bool
	// Duration is how long the look took.
	Duration time.Duration
}

// notify calls a function of an observer unless it is nil.
func notify[E any](ctx context.Context, f func(context.Context, E), event E) {
	if f != nil {
		f(ctx, event)
	}
}

// LogObserver returns an observer that writes to a logger, with the contexts of the events: gauges and successful
// heartbeats at level debug, claims at info, a node that is fenced at error, and everything else at warn.
func LogObserver(l *slog.Logger) Observer {
	log := func(ctx context.Context, level slog.Level, msg string, node uuid.UUID, attrs ...slog.Attr) {
		l.LogAttrs(ctx, level, msg, append([]slog.Attr{slog.Any("node", node)}, attrs...)...)
	}
	return Observer{
		Heartbeat: func(ctx context.Context, e HeartbeatEvent) {
			level := slog.LevelDebug
			if e.Err != nil {
				level = slog.LevelWarn
			}
			log(ctx, level, "heartbeat", e.Node, slog.Duration("duration", e.Duration), slog.Any("err", e.Err))
		},
		Failure: func(ctx context.Context, e FailureEvent) {
			log(ctx, slog.LevelWarn, "failure", e.Node, slog.String("doing", e.Doing), slog.Any("err", e.Err))
		},
		Removal: func(ctx context.Context, e RemovalEvent) {
			log(ctx, slog.LevelWarn, "removal", e.Node, slog.Any("member", e.Member.ID), slog.String("name", e.Member.Name), slog.Time("renewed", e.Member.Renewed))
		},
		Claim: func(ctx context.Context, e ClaimEvent) {
			log(ctx, slog.LevelInfo, "claim", e.Node, slog.Any("plan", e.Plan), slog.Int64("epoch", e.Epoch))
		},
		Takeover: func(ctx context.Context, e TakeoverEvent) {
			log(ctx, slog.LevelWarn, "takeover", e.Node, slog.Any("plan", e.Plan), slog.Any("from", e.From), slog.Int64("epoch", e.Epoch),
				slog.Int("rounds", e.Rounds), slog.Duration("duration", e.Duration))
		},
		Fenced: func(ctx context.Context, e FencedEvent) { log(ctx, slog.LevelError, "fenced", e.Node) },
		Gauges: func(ctx context.Context, e GaugesEvent) {
			g := e.Gauges
			log(ctx, slog.LevelDebug, "gauges", e.Node, slog.Bool("stopped", e.Stopped), slog.Int("open", g.Open), slog.Int("waiting", g.Waiting),
				slog.Any("stuck", g.Stuck), slog.Int("unread", g.Unread), slog.Duration("oldest_wait", g.OldestWait),
				slog.Int("alive", g.Alive), slog.Int("dead", g.Dead), slog.Duration("duration", e.Duration))
		},
	}
}

// Tee returns an observer that calls several observers, in their order.
func Tee(observers ...Observer) Observer {
	return Observer{
		Heartbeat: tee.Of(observers, func(o Observer) func(context.Context, HeartbeatEvent) { return o.Heartbeat }),
		Failure:   tee.Of(observers, func(o Observer) func(context.Context, FailureEvent) { return o.Failure }),
		Removal:   tee.Of(observers, func(o Observer) func(context.Context, RemovalEvent) { return o.Removal }),
		Claim:     tee.Of(observers, func(o Observer) func(context.Context, ClaimEvent) { return o.Claim }),
		Takeover:  tee.Of(observers, func(o Observer) func(context.Context, TakeoverEvent) { return o.Takeover }),
		Fenced:    tee.Of(observers, func(o Observer) func(context.Context, FencedEvent) { return o.Fenced }),
		Gauges:    tee.Of(observers, func(o Observer) func(context.Context, GaugesEvent) { return o.Gauges }),
	}
}
