package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/fleet"
)

// Options are the settings of an engine. A zero field means its default.
type Options struct {
	// Timeout limits an attempt of an action without a Timeout. Default: 5m.
	Timeout time.Duration
	// RetryDelay is the wait before the second attempt of an action. It doubles with each attempt, up to a
	// minute. Default: 1s.
	RetryDelay time.Duration
	// ContDelay is the wait between two rounds of continuous checks without a Delay. Default: 10s.
	ContDelay time.Duration
	// Poll is the interval between searches for new plans. In a fleet, Fleet.Interval is, and Poll is the
	// interval between those of UntilIdle. Default: 1s.
	Poll time.Duration
	// Patience is how long a call is retried while the vault is unavailable or an outcome unknown. Default:
	// 2m.
	Patience time.Duration
	// Plans is the number of plans that run concurrently; others wait, or run on other nodes. Default: 16.
	Plans int
	// UntilIdle makes Run return when no plan is left, in a fleet on any node. Plans that this engine can't
	// read or run don't count. Default: Run waits for new plans.
	UntilIdle bool
	// Fleet makes the engine a member of a fleet, with these settings; Plans is the Capacity. The vault must
	// implement storage.Members. Default: nil, and the engine is alone on its vault.
	Fleet *fleet.Options
	// Observer receives events. Default: none.
	Observer Observer
}

// withDefaults sets the defaults. Its error joins all faults.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	duration := func(name string, d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
		if *d < 0 {
			errs = append(errs, fmt.Errorf("engine: Options.%s: %v is negative", name, *d))
		}
	}
	duration("Timeout", &o.Timeout, 5*time.Minute)
	duration("RetryDelay", &o.RetryDelay, time.Second)
	duration("ContDelay", &o.ContDelay, 10*time.Second)
	duration("Poll", &o.Poll, time.Second)
	duration("Patience", &o.Patience, 2*time.Minute)
	if o.Plans == 0 {
		o.Plans = 16
	}
	if o.Plans < 0 {
		errs = append(errs, fmt.Errorf("engine: Options.Plans: %d is negative", o.Plans))
	}
	if o.Fleet != nil {
		settings := *o.Fleet
		settings.Capacity = o.Plans
		o.Fleet = &settings
	}
	o.Observer = Tee(o.Observer) // no function of it is nil
	return o, errors.Join(errs...)
}
