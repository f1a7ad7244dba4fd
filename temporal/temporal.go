package temporal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	flow "go.temporal.io/sdk/workflow"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Name is the Name of the [workflow.External] of plans that Temporal places.
const Name = "temporal"

// External says that Temporal places a plan, and how to ask it.
func External(namespace string, plan uuid.UUID) workflow.External {
	return workflow.External{Name: Name, Ask: ask(namespace, plan.String())}
}

func ask(namespace, id string) string {
	return fmt.Sprintf("temporal workflow describe -n %s -w %s", namespace, id)
}

// Runner runs a plan to its end, or until it only waits. An [engine.Engine] does.
type Runner interface {
	RunPlan(ctx context.Context, plan uuid.UUID, o engine.RunOptions) (engine.Placed, error)
}

// Placer is what a worker needs to run the plans of a vault. All fields are required.
type Placer struct {
	Engine Runner
	Vault  storage.Vault // the engine's, which must offer storage.Control
	Client client.Client // the worker's
}

// Register makes a worker run the plans of a vault. Call it before the worker starts, once for a task queue: its workflows
// have plans of this vault.
func Register(w worker.Registry, p Placer) {
	w.RegisterWorkflowWithOptions(place, flow.RegisterOptions{Name: WorkflowName})
	w.RegisterActivityWithOptions(p.run, activity.RegisterOptions{Name: runName})
	w.RegisterActivityWithOptions(p.send, activity.RegisterOptions{Name: sendName})
	w.RegisterActivityWithOptions(p.stop, activity.RegisterOptions{Name: stopName})
}

// WorkerOptions returns the options that a worker needs, for an engine with this Options.Drain: its stop waits until plans
// have been handed over, and its heartbeats are not held back. Whoever kills the process must wait still longer.
func WorkerOptions(drain time.Duration) worker.Options {
	return worker.Options{WorkerStopTimeout: drain + 10*time.Second, MaxHeartbeatThrottleInterval: time.Second}
}

// errStopping is why the context of RunPlan ends when the worker stops.
var errStopping = errors.New("the worker stops")

// run is the activity that runs a plan, to its end or until it only waits.
func (p Placer) run(ctx context.Context, a attempt) (placed, error) {
	info := activity.GetInfo(ctx)
	plan := planOf(ctx)
	if plan == uuid.Nil {
		return placed{}, temporal.NewNonRetryableApplicationError("the workflow's ID is not the ID of a plan, in lower case with four hyphens", "Invalid", nil)
	}
	o := engine.RunOptions{
		External: a.External, Epoch: a.Epoch, Every: info.HeartbeatTimeout / 3,
		Heartbeat: func(b engine.Beat) { activity.RecordHeartbeat(context.WithoutCancel(ctx), b.Epoch) },
	}
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &o.Epoch); err != nil {
			return placed{}, fmt.Errorf("read the epoch of the last heartbeat of plan %s: %w", plan, err)
		}
	}
	work, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !lostContact(cause) {
			end(cause)
		}
	})()
	go func() {
		select {
		case <-activity.GetWorkerStopChannel(ctx):
			end(errStopping)
		case <-work.Done():
		}
	}()
	at, err := p.Engine.RunPlan(work, plan, o)
	former, unsure := p.former(ctx, plan, err, o)
	if former > 0 {
		// If the owner were a later attempt, Temporal would know it by now, and refuse the heartbeat of this one.
		if err := p.Client.RecordActivityHeartbeat(ctx, info.TaskToken, former); err != nil {
			return placed{}, fmt.Errorf("ask Temporal whether to take over plan %s: %w", plan, err)
		}
		o.Epoch = former
		at, err = p.Engine.RunPlan(work, plan, o)
		former, unsure = p.former(ctx, plan, err, o)
	}
	switch {
	case unsure != nil:
		return placed{}, unsure
	case err != nil:
		return placed{}, failure(err, former > 0)
	}
	left := placed{Result: Result{plan, at.Plan.State.Status, at.Plan.Reason}, Epoch: at.Plan.Epoch, LastSignal: at.LastSignal}
	if !at.WakeAt.IsZero() {
		left.Waits, left.Wait = true, time.Until(at.WakeAt) // Temporal may have another clock
	}
	return left, nil
}

// lostContact reports whether an activity's context ended because Temporal does not answer heartbeats. The plan then goes on: the
// store fences it if Temporal gives it to another worker. Otherwise Temporal has said that the activity is over, or the worker has.
func lostContact(cause error) bool {
	over := is[*serviceerror.NotFound](cause) || is[*serviceerror.NamespaceNotFound](cause) || is[*serviceerror.NamespaceNotActive](cause)
	return is[serviceerror.ServiceError](cause) && !over
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// former returns the epoch of the owner that an error names, if it is an earlier attempt of the same workflow, or 0. As an ID has
// one open workflow, an owner of another run is of an earlier one, unless this run has owned the plan: then it may also be of
// another cluster, which this one does not know. A stale attempt of an earlier run may wake a plan that this run has let sleep.
func (p Placer) former(ctx context.Context, plan uuid.UUID, err error, o engine.RunOptions) (epoch int64, unsure error) {
	owned, ok := errors.AsType[*fleet.OwnedError](err)
	if !ok || owned.External.Name != Name {
		return 0, nil
	}
	id, run, _ := strings.Cut(owned.External.Ask, runMark)
	myID, myRun, _ := strings.Cut(o.External.Ask, runMark)
	switch {
	case id != myID:
		return 0, nil
	case run == myRun || o.Epoch == 0:
		return owned.Epoch, nil
	case run == "":
		return 0, nil
	}
	_, err = p.Client.DescribeWorkflowExecution(ctx, plan.String(), run)
	switch {
	case is[*serviceerror.NotFound](err) || is[*serviceerror.InvalidArgument](err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("ask Temporal whether it knows run %s, which owns plan %s: %w", run, plan, err)
	}
	return owned.Epoch, nil
}

// failure returns the error with which Temporal tries the activity again, or does not. A contested plan may soon be free, and after
// a fence the next attempt finds out whose the plan is.
func failure(err error, contested bool) error {
	if errors.Is(err, engine.ErrDraining) {
		return temporal.NewApplicationErrorWithOptions(err.Error(), "Draining", temporal.ApplicationErrorOptions{NextRetryDelay: time.Millisecond})
	}
	for _, hopeless := range []struct {
		err  error
		name string
	}{
		{storage.ErrNotFound, "NotFound"},
		{storage.ErrInvalid, "Invalid"},
		{storage.ErrCorrupt, "Corrupt"},
		{storage.ErrForeign, "Foreign"},
		{fleet.ErrOwned, "Owned"},
	} {
		if errors.Is(err, hopeless.err) && !contested {
			return temporal.NewNonRetryableApplicationError(err.Error(), hopeless.name, nil)
		}
	}
	return err
}

// send is the activity that sends a signal on to the plan.
func (p Placer) send(ctx context.Context, s fleet.Signal) (int, error) {
	number, err := fleet.Send(ctx, p.Vault, planOf(ctx), s)
	if errors.Is(err, fleet.ErrNotRunning) {
		return 0, nil // it comes too late
	}
	return number, failure(err, false)
}

// stop is the activity that asks the plan to stop when the workflow was canceled.
func (p Placer) stop(ctx context.Context) error {
	err := fleet.Stop(ctx, p.Vault, planOf(ctx), p.canceledBy(ctx))
	if errors.Is(err, fleet.ErrNotRunning) {
		return nil
	}
	return failure(err, false)
}

// planOf returns the ID of the workflow's plan, or uuid.Nil, which no plan has. It takes one form of an ID, as an ID in another
// form is another workflow, and both would place the plan.
func planOf(ctx context.Context) uuid.UUID {
	id := activity.GetInfo(ctx).WorkflowExecution.ID
	if plan, err := uuid.Parse(id); err == nil && plan.String() == id {
		return plan
	}
	return uuid.Nil
}

// canceledBy returns who canceled the workflow, and why, as Temporal has it.
func (p Placer) canceledBy(ctx context.Context) workflow.Attribution {
	unknown := workflow.Attribution{By: Name, Why: "the workflow was canceled"}
	by := unknown
	w := activity.GetInfo(ctx).WorkflowExecution
	for events := p.Client.GetWorkflowHistory(ctx, w.ID, w.RunID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		e, err := events.Next()
		if err != nil {
			break // the stop matters more than its author
		}
		if c := e.GetWorkflowExecutionCancelRequestedEventAttributes(); c != nil {
			by.By, by.Why = cmp.Or(c.GetIdentity(), by.By), cmp.Or(c.GetCause(), by.Why)
		}
	}
	if workflow.CheckAttribution(by) != nil {
		return unknown // Temporal allows longer texts
	}
	return by
}
