package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/workflow"
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

// Observer holds functions that an engine calls. Each may be nil. They are called by the goroutine that does
// the work, which waits for them; calls may be concurrent. They must neither change their arguments nor panic.
// The context is that of the work, and may already have ended.
type Observer struct {
	// Joined is called when the engine has become a member of a fleet, with its node's ID.
	Joined func(ctx context.Context, node uuid.UUID)
	// PickedUp is called with a whole plan, before any work on it. In a fleet the plan is Running already, and
	// PickedUp is called again when the node takes its own plan again. The plan is changed after the call
	// returns.
	PickedUp func(ctx context.Context, plan *workflow.Plan)
	// Changed is called when an object's new state is stored. Only the object's own fields may be read, and
	// only during the call, because other goroutines may change its children.
	Changed func(ctx context.Context, o workflow.Object)
	// Left is called when the engine leaves an unfinished plan, with the reason: ErrDraining, fleet.ErrFenced
	// if another node owns it or may take it, or a failure.
	Left func(ctx context.Context, plan uuid.UUID, err error)
	// Problem is called with failures that belong to no running plan: of Recovery, of a search, of reading a
	// plan, of the membership in a fleet.
	Problem func(ctx context.Context, err error)
	// Draining is called once when the context of Run ends, before Run waits for running actions.
	Draining func(ctx context.Context)
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
	if o.Observer.Joined == nil {
		o.Observer.Joined = func(context.Context, uuid.UUID) {}
	}
	if o.Observer.PickedUp == nil {
		o.Observer.PickedUp = func(context.Context, *workflow.Plan) {}
	}
	if o.Observer.Changed == nil {
		o.Observer.Changed = func(context.Context, workflow.Object) {}
	}
	if o.Observer.Left == nil {
		o.Observer.Left = func(context.Context, uuid.UUID, error) {}
	}
	if o.Observer.Problem == nil {
		o.Observer.Problem = func(context.Context, error) {}
	}
	if o.Observer.Draining == nil {
		o.Observer.Draining = func(context.Context) {}
	}
	return o, errors.Join(errs...)
}
