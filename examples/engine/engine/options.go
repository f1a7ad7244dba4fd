package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Options are the settings of an engine. Zero fields stand for their defaults.
type Options struct {
	// Timeout is that of an attempt whose action has none. Default: 5m.
	Timeout time.Duration
	// RetryDelay is the wait before an action's second attempt. It doubles for each further one, up to a minute. Default: 1s.
	RetryDelay time.Duration
	// ContDelay is the wait between two rounds of continuous checks that have no Delay. Default: 10s.
	ContDelay time.Duration
	// Poll is the wait between two looks for new plans. Default: 1s.
	Poll time.Duration
	// Patience is how long a call of the vault is made again while it is unavailable, or an outcome unknown. Default: 2m.
	Patience time.Duration
	// Plans is how many plans are worked on at once; others wait. Default: 16.
	Plans int
	// UntilIdle lets Run return when it finds no plan to work on. Default: it waits for new ones.
	UntilIdle bool
	// Observer is told what happens. Default: nobody.
	Observer Observer
}

// Observer has functions that an engine calls, each of which may be nil. Calls are made by the goroutine that does what they
// tell of, which waits for them; several may come at once. What they are given must not be changed.
type Observer struct {
	// PickedUp is called with a whole plan, before any work on it. The plan is changed after the call returns.
	PickedUp func(plan *workflow.Plan)
	// Changed is called when an object's new state is in the vault. Only its own fields may be read, and only during the call:
	// its parts may be worked on.
	Changed func(o workflow.Object)
	// Left is called when a plan is left unfinished, with the reason: ErrDraining, or what failed.
	Left func(plan uuid.UUID, err error)
	// Problem is called with what went wrong apart from a plan under way: in Recovery, in looking for plans, in reading one.
	Problem func(err error)
	// Draining is called once when the context of Run ends, before Run waits for the actions that are running.
	Draining func()
}

// withDefaults fills in what is not set, and says everything that is wrong.
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
	if o.Observer.PickedUp == nil {
		o.Observer.PickedUp = func(*workflow.Plan) {}
	}
	if o.Observer.Changed == nil {
		o.Observer.Changed = func(workflow.Object) {}
	}
	if o.Observer.Left == nil {
		o.Observer.Left = func(uuid.UUID, error) {}
	}
	if o.Observer.Problem == nil {
		o.Observer.Problem = func(error) {}
	}
	if o.Observer.Draining == nil {
		o.Observer.Draining = func() {}
	}
	return o, errors.Join(errs...)
}
