package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// Store is what a fleet needs of a vault. The vaults of this module implement it.
type Store interface {
	storage.Vault
	storage.Members
}

// Options are the settings of a node. Zero fields have their defaults.
type Options struct {
	// Name is what people call the node, such as its host. It may be any text, and need not be unique.
	// Default: empty.
	Name string
	// Interval is the time between two heartbeats, two looks at the other members, and two searches for new
	// plans. It is at least a second. Below two seconds, the whole seconds of a store's clock can delay
	// takeovers. Default: 10s.
	Interval time.Duration
	// TTL is how long the node may go without a heartbeat before others remove it. The node waits as long
	// before it removes another one, or longer if the other's TTL is longer. It is at least three times
	// Interval. Default: 30s, or three times Interval if that is longer.
	TTL time.Duration
	// Capacity is the number of plans that the node owns at once before Plans stops to look for more.
	// Default: 0, which means no limit.
	Capacity int
	// TakeUnclaimed lets Plans take running plans that have no owner and the epoch 0. An engine without
	// claims began them. Set it once no such engine runs any more. Default: false.
	TakeUnclaimed bool
	// Observer is told what the node does. Default: none.
	Observer Observer
}

// Observer has functions that a node calls when something happens. Each may be nil. A function is called from
// the goroutine that does the work, and delays it while it runs, so it must not call [Node.Leave]; many calls
// may run at a time. The context is that of the work.
type Observer struct {
	// Heartbeat is called after each try to renew the node's record.
	Heartbeat func(ctx context.Context, err error)
	// Failed is called when a request of the node's own loops failed. The node tries again.
	Failed func(ctx context.Context, doing string, err error)
	// Removed is called when the node removed the record of a member that was silent for too long.
	Removed func(ctx context.Context, m storage.Member)
	// Claimed is called when the node claimed a plan that had not begun.
	Claimed func(ctx context.Context, plan uuid.UUID)
	// Taken is called when the node took a plan over and its fence is finished.
	Taken func(ctx context.Context, t Takeover)
	// Fenced is called once, when the node learns that it is no longer a member.
	Fenced func(ctx context.Context)
}

// Takeover is a plan that a node took over.
type Takeover struct {
	Plan uuid.UUID
	// From is the former owner. It is the node itself if the node took its own plan again.
	From uuid.UUID
	// Epoch is the new epoch.
	Epoch int64
	// Rounds is how many times the takeover began. Each further one is a write of the former owner.
	Rounds int
	// Took is how long the takeover took.
	Took time.Duration
}

// complete fills in the defaults. The error names everything that is wrong with the options.
func (o Options) complete() (Options, error) {
	if o.Interval == 0 {
		o.Interval = 10 * time.Second
	}
	if o.TTL == 0 {
		o.TTL = max(30*time.Second, beats*o.Interval)
	}
	var errs []error
	if o.Interval < resolution {
		errs = append(errs, driver.Invalid("Options.Interval", "%v is less than %v, the resolution of a store's clock", o.Interval, resolution))
	}
	if o.TTL/beats < o.Interval { // the product may overflow
		errs = append(errs, driver.Invalid("Options.TTL", "%v is less than %d times the Interval of %v", o.TTL, beats, o.Interval))
	}
	if o.Capacity < 0 {
		errs = append(errs, driver.Invalid("Options.Capacity", "%d is negative", o.Capacity))
	}
	if err := errors.Join(errs...); err != nil {
		return o, &storage.Error{Op: "Join", Err: err}
	}
	return o, nil
}

// beats is the least number of intervals in a TTL.
const beats = 3

// patience is how long a heartbeat or a look at the members may take.
func (o Options) patience() time.Duration { return o.Interval * 3 / 10 }

// retry is the time from the start of a try that failed to the next one. maxGap relies on it. A try that fails
// at once is not repeated sooner, because a refusal such as storage.ErrDenied may last for hours.
func (o Options) retry() time.Duration { return o.Interval * 35 / 100 }
