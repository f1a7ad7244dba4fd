package temporal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	flow "go.temporal.io/sdk/workflow"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/workflow"
)

// The names by which Temporal and its tools know the workflow of a plan, and its signals.
const (
	WorkflowName = "planvault.plan"
	SignalName   = "signal" // has a fleet.Signal, as JSON
	LookName     = "look"   // has no payload
)

// The search attributes of a plan's workflow. A label is "key=value".
var (
	GroupAttribute  = temporal.NewSearchAttributeKeyKeyword("PlanGroup")
	LabelsAttribute = temporal.NewSearchAttributeKeyKeywordList("PlanLabels")
)

// Settings are the argument of the workflow. They may be left out, and so may each field.
type Settings struct {
	// HeartbeatTimeout is how long a worker may be silent before another one goes on with the plan. A worker heartbeats three
	// times as often. Default: 30s.
	HeartbeatTimeout time.Duration `json:"heartbeatTimeout,omitzero"`
	// Look is the longest time between two looks at a plan that waits, for what people have told the vault and not the workflow.
	// A look has eleven events. Default: 10m.
	Look time.Duration `json:"look,omitzero"`
	// Epoch is the last one of this workflow, which sets it when it continues as new.
	Epoch int64 `json:"epoch,omitzero"`
}

// Result is the result of the workflow.
type Result struct {
	Plan   uuid.UUID              `json:"plan"`
	Status workflow.Status        `json:"status"` // Completed, Failed or Stopped
	Reason workflow.FailureReason `json:"reason"` // why it is not Completed
}

// StartOptions returns the options for the workflow of a plan, which has an ID, on a task queue. If the workflow runs already,
// ExecuteWorkflow returns that one.
func StartOptions(plan *workflow.Plan, queue string) client.StartWorkflowOptions {
	var attributes []temporal.SearchAttributeUpdate
	if plan.GroupID != uuid.Nil {
		attributes = append(attributes, GroupAttribute.ValueSet(plan.GroupID.String()))
	}
	if len(plan.Labels) > 0 {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(plan.Labels)) {
			labels = append(labels, key+"="+plan.Labels[key])
		}
		attributes = append(attributes, LabelsAttribute.ValueSet(labels))
	}
	return client.StartWorkflowOptions{
		ID: plan.ID.String(), TaskQueue: queue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		TypedSearchAttributes:    temporal.NewSearchAttributes(attributes...),
	}
}

// The names of the activities.
const (
	runName  = "planvault.run"
	sendName = "planvault.send"
	stopName = "planvault.stop"
)

// attempt is the argument of the activity that runs the plan.
type attempt struct {
	External workflow.External `json:"external"` // the workflow
	Epoch    int64             `json:"epoch"`    // its last one
}

// placed is the result of that activity.
type placed struct {
	Result
	Epoch      int64         `json:"epoch"`
	Waits      bool          `json:"waits,omitzero"` // for a time
	Wait       time.Duration `json:"wait,omitzero"`
	LastSignal int           `json:"lastSignal,omitzero"`
}

// placing is a workflow at work. Its coroutines run one at a time.
type placing struct {
	asked   bool // to look at the plan
	sent    int  // the number of the last signal that was sent on since the plan's activity began
	busy    int  // calls of the vault under way
	stopped bool // the vault knows that the workflow was canceled
}

// place is the workflow of a plan.
func place(ctx flow.Context, s Settings) (Result, error) {
	if s.HeartbeatTimeout < 0 || s.Look < 0 {
		return Result{}, temporal.NewNonRetryableApplicationError("the settings have a negative duration", "Invalid", nil)
	}
	if s.HeartbeatTimeout == 0 {
		s.HeartbeatTimeout = 30 * time.Second
	}
	if s.Look == 0 {
		s.Look = 10 * time.Minute
	}
	// A canceled context would end the plan's activity. It must go on, also on another worker, until the plan has stopped.
	work, _ := flow.NewDisconnectedContext(ctx)
	signals := flow.GetSignalChannel(work, SignalName)
	p := &placing{}
	p.listen(ctx, work, signals)
	run := flow.WithActivityOptions(work, flow.ActivityOptions{
		HeartbeatTimeout: s.HeartbeatTimeout, StartToCloseTimeout: 365 * 24 * time.Hour,
		RetryPolicy: &temporal.RetryPolicy{MaximumInterval: 10 * time.Second},
	})
	me := own(flow.GetInfo(ctx))
	for {
		p.asked, p.sent = false, 0 // what was sent before is seen now
		var at placed
		err := flow.ExecuteActivity(run, runName, attempt{me, s.Epoch}).Get(run, &at)
		if err != nil || at.Status.Final() {
			return at.Result, err
		}
		s.Epoch = max(s.Epoch, at.Epoch)
		if flow.GetInfo(ctx).GetContinueAsNewSuggested() {
			// The next run gets neither the signals nor the cancellation of this one.
			told := func() bool { return signals.Len() == 0 && p.busy == 0 && (ctx.Err() == nil || p.stopped) }
			if err := flow.Await(work, told); err != nil {
				return Result{}, err
			}
			return Result{}, flow.NewContinueAsNewError(work, WorkflowName, s)
		}
		wait := s.Look
		if at.Waits {
			wait = min(wait, max(at.Wait, 2*time.Second)) // the store's clock may be late
		}
		if _, err := flow.AwaitWithTimeout(work, wait, func() bool { return p.asked || p.sent > at.LastSignal }); err != nil {
			return Result{}, err
		}
	}
}

// runMark stands in the Ask of a workflow before its first run ID, which no reset and no continuation changes. A shell takes it for
// a comment.
const runMark = " # first run "

// own returns what plans say of the workflow that places them.
func own(info *flow.Info) workflow.External {
	return workflow.External{Name: Name, Ask: ask(info.Namespace, info.WorkflowExecution.ID) + runMark + info.FirstRunID}
}

// listen starts coroutines that tell the vault of signals, and of the end of ctx. They work in another context, which does not end.
func (p *placing) listen(ctx, work flow.Context, signals flow.ReceiveChannel) {
	work = flow.WithActivityOptions(work, flow.ActivityOptions{
		StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumInterval: 10 * time.Second},
	})
	flow.Go(work, func(work flow.Context) {
		run := flow.GetInfo(work).OriginalRunID // a reset does not change it
		for n := 1; ; n++ {
			// A Receive that waits would take a signal out of the channel before it is busy with it.
			if flow.Await(work, func() bool { return signals.Len() > 0 }) != nil {
				return
			}
			var s fleet.Signal
			if !signals.ReceiveAsync(&s) {
				continue // it was none
			}
			s.Key = cmp.Or(s.Key, fmt.Sprint(run, "/", n))
			number := 0
			p.tell(work, &number, sendName, s)
			p.sent = max(p.sent, number)
		}
	})
	flow.Go(work, func(work flow.Context) {
		for looks := flow.GetSignalChannel(work, LookName); ; p.asked = true {
			looks.Receive(work, nil)
		}
	})
	flow.Go(work, func(work flow.Context) {
		ctx.Done().Receive(work, nil)
		p.tell(work, nil, stopName)
		p.stopped, p.asked = true, true
	})
}

// tell calls an activity that tells the vault something.
func (p *placing) tell(work flow.Context, answer any, activity string, args ...any) {
	p.busy++
	if err := flow.ExecuteActivity(work, activity, args...).Get(work, answer); err != nil {
		flow.GetLogger(work).Error("The plan can't be told.", "Activity", activity, "Error", err)
	}
	p.busy--
}
