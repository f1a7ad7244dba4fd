package fleet

import (
	"cmp"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Options are the settings of a node. Zero fields have their defaults.
type Options struct {
	// Name is what people call the node, such as its host. It may be any text, and need not be unique.
	// Default: empty.
	Name string
	// Interval is the time between two heartbeats, two looks at the other members, and two searches for new
	// plans. It is at least a second. Below two seconds, the whole seconds of a store's clock can delay
	// takeovers. Default: [DefaultInterval].
	Interval time.Duration
	// TTL is how long the node may go without a heartbeat before others remove it. The node waits as long
	// before it removes another one, or longer if the other's TTL is longer. It is at least three times
	// Interval. Default: [DefaultTTL], or three times Interval if that is longer.
	TTL time.Duration
	// Capacity is the number of plans that the node owns at once before Plans stops to look for more.
	// Default: 0, which means no limit.
	Capacity int
	// TakeUnclaimed lets Plans take running plans that have no owner and the epoch 0. An engine without
	// claims began them. Set it once no such engine runs any more. Default: false.
	TakeUnclaimed bool
	// Former are the IDs of nodes that this process has been before, the last of which its record names. If there are
	// other nodes, they have two intervals to take the plans of these IDs before this node takes them: whatever made a
	// former node hang may happen to its process again. Default: none.
	Former []uuid.UUID
	// Gauges is the time between two looks at the open plans for [Observer.Gauges]. One node of the fleet looks: of
	// those that are alive and not leaving, the one that joined first. So give all nodes of a fleet the same Gauges,
	// and an Observer that has them. A look takes no longer than Gauges or a minute. Plans that this
	// node's program can't read, because it lacks their plugins, count as Unread. Default: 1m.
	Gauges time.Duration
	// NoGauges makes the node look at no open plans, even if its Observer has Gauges. Default: false.
	NoGauges bool
	// Observer sees what the node does. Default: none.
	Observer Observer

	suspended bool // the node may join a suspended store: it runs nothing
	handsOver bool // the node takes plans that engines of another kind place

	// external is whom the node takes plans for, if that is an engine of another kind, and former is the epoch of an owner of
	// that kind that is gone.
	external workflow.External
	former   int64
}

// Check returns the error that [Join] would return for these options: [storage.ErrInvalid] with everything that is wrong, or
// nil.
func (o Options) Check() error {
	_, err := o.complete()
	return err
}

// complete fills in the defaults. The error names everything that is wrong with the options.
func (o Options) complete() (Options, error) {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.TTL == 0 {
		o.TTL = max(DefaultTTL, beats*o.Interval)
	}
	o.Gauges = cmp.Or(o.Gauges, time.Minute)
	var errs []error
	if o.Interval < resolution {
		errs = append(errs, driver.Invalid("Options.Interval", "%v is less than %v, the resolution of a store's clock", o.Interval, resolution))
	}
	if o.TTL/beats < o.Interval { // the product may overflow
		errs = append(errs, driver.Invalid("Options.TTL", "%v is less than %d times the Interval of %v", o.TTL, beats, o.Interval))
	}
	if o.Gauges < resolution {
		errs = append(errs, driver.Invalid("Options.Gauges", "%v is less than %v, the resolution of a store's clock", o.Gauges, resolution))
	}
	if o.Capacity < 0 {
		errs = append(errs, driver.Invalid("Options.Capacity", "%d is negative", o.Capacity))
	}
	if name := driver.CheckNewMember(storage.Member{ID: workflow.NewV7(), Name: o.Name}, false); name != nil {
		errs = append(errs, name)
	}
	if err := errors.Join(errs...); err != nil {
		return o, &storage.Error{Op: "Join", Err: err}
	}
	return o, nil
}

// DefaultInterval is the Interval of [Options] that don't set it.
const DefaultInterval = 10 * time.Second

// DefaultTTL is the TTL of a member whose options and record do not say it, unless three times the Interval is longer.
const DefaultTTL = 30 * time.Second

// beats is the least number of intervals in a TTL.
const beats = 3

// patience is how long a heartbeat or a look at the members may take.
func (o Options) patience() time.Duration { return o.Interval * 3 / 10 }

// retry is the time from the start of a try that failed to the next one. maxGap relies on it. A try that fails
// at once is not repeated sooner, because a refusal such as storage.ErrDenied may last for hours.
func (o Options) retry() time.Duration { return o.Interval * 35 / 100 }
