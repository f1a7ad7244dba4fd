package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Options are the settings of an engine. A zero field means its default. A negative number is storage.ErrInvalid.
type Options struct {
	// Timeout limits an attempt of an action without a Timeout, and the Init of plugins. Default: 5m.
	Timeout time.Duration
	// RetryDelay is the wait before the second attempt of an action. It doubles with each attempt, up to a
	// minute, unless the action or its plugin has a Backoff. Default: 1s.
	RetryDelay time.Duration
	// ContDelay is the wait between two rounds of continuous checks without a Delay. Default: 10s.
	ContDelay time.Duration
	// Poll is the interval between searches for new plans. In a fleet, Fleet.Interval is, and Poll is the
	// interval between those of UntilIdle. Default: 1s.
	Poll time.Duration
	// Patience is how long Submit, Stop, searches and reads are retried while the vault is unavailable or an outcome
	// unknown. The writes of a plan are retried as long as the plan is this engine's. Default: 2m.
	Patience time.Duration
	// Plans is the number of plans that run concurrently; others wait, or run on other nodes. A plan that only
	// waits, for a delay, a retry or the next round of a continuous check, does not count. Default: [DefaultPlans], 16.
	Plans int
	// Crashes is how many attempts of an action may never end, because their process died or lost the plan, before
	// the action fails. They do not count against its Retries. Actions that run beside the one that ends the
	// process count them, too. The first such attempt of an Idempotent action is not counted, nor any of a node or a RunPlan that
	// was draining when it died, or of a node that a person evicted. Default: 3.
	Crashes int
	// Drain is how long running actions may go on after the context of Run has ended. Then the contexts of their
	// plugins end, and what has not ended a second later is stored as interrupted and runs again elsewhere. Storing
	// that is retried for as long again. A supervisor must wait ten seconds longer than Drain before it kills the process.
	// Default: [DefaultDrain], 20s, as orchestrators wait 30s.
	Drain time.Duration
	// MaxResult and MaxResults limit the response of an action, and all responses of a plan, in bytes of JSON. An
	// action fails whose response exceeds them. A plan must stay below 256 MiB with its requests. Defaults: 16
	// MiB and 128 MiB.
	MaxResult, MaxResults int
	// UntilIdle makes Run return when no plan is left, in a fleet on any node. Plans that this engine can't
	// read or run don't count. Default: Run waits for new plans.
	UntilIdle bool
	// Fleet makes the engine a member of a fleet, with these settings; Plans is the Capacity. The vault must
	// offer storage.Control. Default: nil, and the engine is alone on its vault.
	Fleet *fleet.Options
	// TakeUnclaimed makes an engine that is alone also go on with Running plans that have no owner and that no such engine has
	// begun. Set it if no other program runs them any more. It is not for a fleet, whose option is Fleet.TakeUnclaimed.
	// Default: false; Observer.Problem names each plan that is left alone.
	TakeUnclaimed bool
	// NoRetention leaves the policy of retention to other engines. Default: the engine enforces it, too, if the vault
	// offers retention.Vault, which vaults in memory don't.
	NoRetention bool
	// Ended is called for each plan that this engine ends, with the plan as it will be stored: it becomes final after Ended has
	// returned nil. It is called at least once: again after a death, by the next owner, with the same outcome. Use the plan's
	// ID as an idempotency key. The outcome is stored before, which costs a write, and no stop changes it any more.
	//
	// If Ended fails, panics, or takes longer than Timeout, it is called again, after RetryDelay, doubling up to a minute, for an
	// hour after the outcome was stored, whoever owns the plan. Then the plan ends without it, Ending.Trouble says why, and
	// Observer.Problem is called. The plan holds no place between two calls. At a shutdown the context ends after Drain, and
	// the next owner calls again. An engine without Ended ends such a plan without a call, so all engines that share a vault
	// should have it. Plans that no engine runs are not told of. Calls may be concurrent; the plan is the callee's own.
	// Default: none.
	Ended func(ctx context.Context, plan *workflow.Plan) error
	// PauseOnFailure pauses a plan in place of letting an action of it fail, see fleet.PausePlan: an action whose retries are used
	// up, or that failed for good, stays Running, and "engine" has paused the plan. What else runs ends first. When somebody
	// resumes the plan, the action is tried anew with all its retries. Stop ends the plan instead, and a fork can then skip the
	// action.
	//
	// Actions of bypass checks, of blocks that tolerate failures, and of deferred work fail as always. So does an action whose
	// AtMost or Options.Crashes is used up, and any action of a plan that is being stopped. It needs Fleet. Default: false.
	PauseOnFailure bool
	// Logger gets what a person must know, such as a plan that nobody here can run, at levels warn and error. Default:
	// slog.Default(), or none if Observer has Problem.
	Logger *slog.Logger
	// Observer receives events. Default: none. See [LogObserver].
	Observer Observer
}

// Defaults of [Options] on which the settings of a deployment depend.
const (
	DefaultPlans = 16
	DefaultDrain = 20 * time.Second
)

// withDefaults sets the defaults. Its error joins all faults.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	duration := func(name string, d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
		if *d < 0 {
			errs = append(errs, driver.Invalid("Options."+name, "%v is negative", *d))
		}
	}
	duration("Timeout", &o.Timeout, 5*time.Minute)
	duration("RetryDelay", &o.RetryDelay, time.Second)
	duration("ContDelay", &o.ContDelay, 10*time.Second)
	duration("Poll", &o.Poll, time.Second)
	duration("Patience", &o.Patience, 2*time.Minute)
	duration("Drain", &o.Drain, DefaultDrain)
	number := func(name string, n *int, fallback int) {
		if *n == 0 {
			*n = fallback
		}
		if *n < 0 {
			errs = append(errs, driver.Invalid("Options."+name, "%d is negative", *n))
		}
	}
	if o.PauseOnFailure && o.Fleet == nil {
		errs = append(errs, driver.Invalid("Options.PauseOnFailure", "needs Fleet: an engine that is alone does not see that a plan is resumed"))
	}
	if o.TakeUnclaimed && o.Fleet != nil {
		errs = append(errs, driver.Invalid("Options.TakeUnclaimed", "is for an engine that is alone: set Fleet.TakeUnclaimed"))
	}
	number("Plans", &o.Plans, DefaultPlans)
	number("Crashes", &o.Crashes, 3)
	number("MaxResult", &o.MaxResult, 16<<20)
	number("MaxResults", &o.MaxResults, 128<<20)
	if o.Fleet != nil {
		settings := *o.Fleet
		settings.Capacity = max(0, o.Plans)
		o.Fleet = &settings
		if err := settings.Check(); err != nil {
			errs = append(errs, fmt.Errorf("Options.Fleet: %w", err))
		}
	}
	o.withLogger()
	return o, errors.Join(errs...)
}
