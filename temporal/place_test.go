package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	flow "go.temporal.io/sdk/workflow"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// scripted is an engine that does as the test says.
type scripted func(ctx context.Context, o engine.RunOptions) (engine.Placed, error)

func (s scripted) RunPlan(ctx context.Context, _ uuid.UUID, o engine.RunOptions) (engine.Placed, error) {
	return s(ctx, o)
}

// rig is a plan in a vault, and a worker of Temporal.
type rig struct {
	*testsuite.TestWorkflowEnvironment
	*testing.T
	vault *memvault.Vault
	plan  *workflow.Plan
	temporalServer
}

// temporalServer is what Temporal's server says to a worker.
type temporalServer struct {
	client.Client
	confirm error // the answer to a heartbeat
	earlier error // the answer to a question about a run that is called earlier
	beats   []any // the details of heartbeats
	events  []*history.HistoryEvent
}

func (s *temporalServer) RecordActivityHeartbeat(_ context.Context, _ []byte, details ...any) error {
	s.beats = append(s.beats, details...)
	return s.confirm
}

func (s *temporalServer) DescribeWorkflowExecution(_ context.Context, _, run string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if run == "earlier" || run == "" { // the server takes the current run if it gets none
		return nil, s.earlier
	}
	return nil, serviceerror.NewNotFound("no such run")
}

func (s *temporalServer) GetWorkflowHistory(context.Context, string, string, bool, enums.HistoryEventFilterType) client.HistoryEventIterator {
	return &events{s.events}
}

type events struct{ left []*history.HistoryEvent }

func (e *events) HasNext() bool { return len(e.left) > 0 }

func (e *events) Next() (*history.HistoryEvent, error) {
	next := e.left[0]
	e.left = e.left[1:]
	return next, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var noop = engine.Task("noop", func(context.Context, engine.Call, struct{}) (struct{}, error) { return struct{}{}, nil })

func planned(keys ...workflow.Key) *workflow.Plan {
	return &workflow.Plan{Name: "rig", Keys: keys, Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{noop.Action("a", struct{}{})}}}}}}
}

func newRig(t *testing.T, run scripted) *rig {
	t.Helper()
	r := &rig{T: t, vault: memvault.New(registry.Must(noop), memvault.Options{})}
	r.plan = planned()
	must(t, r.vault.Create(t.Context(), r.plan))
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	r.TestWorkflowEnvironment = suite.NewTestWorkflowEnvironment()
	r.SetStartWorkflowOptions(StartOptions(r.plan, "plans"))
	Register(r.TestWorkflowEnvironment, Placer{Engine: run, Vault: r.vault, Client: &r.temporalServer})
	return r
}

// ended is what RunPlan returns of a plan that is final.
func ended(status workflow.Status, reason workflow.FailureReason) engine.Placed {
	return engine.Placed{Plan: &workflow.Plan{State: workflow.State{Status: status}, Reason: reason}}
}

// waits is what RunPlan returns of a plan that waits for some time, in its nth epoch.
func waits(n int64, d time.Duration, lastSignal int) engine.Placed {
	return engine.Placed{Plan: &workflow.Plan{State: workflow.State{Status: workflow.Running}, Epoch: n}, WakeAt: time.Now().Add(d), LastSignal: lastSignal}
}

// result runs the workflow and returns its result.
func (r *rig) result(args ...any) (result Result) {
	r.Helper()
	r.ExecuteWorkflow(WorkflowName, args...)
	must(r.T, r.GetWorkflowError())
	must(r.T, r.GetWorkflowResult(&result))
	return result
}

// failed runs the workflow and returns the type of its error.
func (r *rig) failed(args ...any) string {
	r.Helper()
	r.ExecuteWorkflow(WorkflowName, args...)
	var e *temporal.ApplicationError
	if err := r.GetWorkflowError(); !errors.As(err, &e) {
		r.Fatalf("the workflow ended with %v", err)
	}
	return e.Type()
}

func TestResult(t *testing.T) {
	r := newRig(t, func(_ context.Context, o engine.RunOptions) (engine.Placed, error) {
		if o.External.Name != "temporal" || !strings.HasPrefix(o.External.Ask, "temporal workflow describe -n default-test-namespace -w ") || o.Every != 10*time.Second {
			t.Errorf("%+v", o)
		}
		return ended(workflow.Failed, workflow.BlockFailed), nil
	})
	if got, want := r.result(), (Result{r.plan.ID, workflow.Failed, workflow.BlockFailed}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestWaits runs a plan that waits twice: for a short time, and for longer than a look.
func TestWaits(t *testing.T) {
	var begin time.Time
	var looks []time.Duration
	var epochs []int64
	var r *rig
	r = newRig(t, func(_ context.Context, o engine.RunOptions) (engine.Placed, error) {
		if looks == nil {
			begin = r.Now()
		}
		at := r.Now().Sub(begin).Round(time.Second)
		looks, epochs = append(looks, at), append(epochs, o.Epoch)
		switch {
		case at < 2*time.Minute:
			return waits(1, 2*time.Minute-at, 0), nil
		case at < time.Hour:
			return waits(2, time.Hour-at, 0), nil
		}
		return ended(workflow.Completed, 0), nil
	})
	r.result(Settings{Look: 25 * time.Minute})
	if want := []time.Duration{0, 2 * time.Minute, 27 * time.Minute, 52 * time.Minute, time.Hour}; !slices.Equal(looks, want) {
		t.Errorf("looks at %v, want %v", looks, want)
	}
	if want := []int64{0, 1, 2, 2, 2}; !slices.Equal(epochs, want) {
		t.Errorf("epochs %v, want %v", epochs, want)
	}
}

// TestTurns places two plans of one key on an engine. The second is looked at while the first works, and again when its timer fires.
func TestTurns(t *testing.T) {
	one, two := planned(workflow.Key{Name: "k"}), planned(workflow.Key{Name: "k"})
	begun, waits := make(chan struct{}), make(chan struct{})
	var e *engine.Engine
	var working atomic.Int32
	var waited time.Duration // of the second plan, when its first look ended
	looks := 0
	r := newRig(t, func(ctx context.Context, o engine.RunOptions) (engine.Placed, error) {
		id := planOf(ctx)
		if id == two.ID {
			<-begun
			looks++
		}
		works := int32(0)
		o.Heartbeat = func(engine.Beat) {
			if works++; works > 1 {
				return
			}
			if working.Add(1) > 1 {
				t.Error("both plans work at once")
			}
			if id == one.ID {
				close(begun)
				<-waits
			}
		}
		at, err := e.RunPlan(ctx, id, o)
		working.Add(-min(works, 1))
		if id == two.ID && looks == 1 {
			waited = time.Until(at.WakeAt)
			close(waits)
		}
		return at, err
	})
	for _, p := range []*workflow.Plan{one, two} {
		must(t, r.vault.Create(t.Context(), p))
	}
	var err error
	e, err = engine.New(r.vault, engine.Options{})
	must(t, err)
	r.RegisterWorkflowWithOptions(func(ctx flow.Context) (ends []Result, err error) {
		var both []flow.Future
		for _, p := range []*workflow.Plan{one, two} {
			ctx := flow.WithChildOptions(ctx, flow.ChildWorkflowOptions{WorkflowID: p.ID.String()})
			both = append(both, flow.ExecuteChildWorkflow(ctx, WorkflowName, Settings{}))
		}
		for _, f := range both {
			var end Result
			err = errors.Join(err, f.Get(ctx, &end))
			ends = append(ends, end)
		}
		return ends, err
	}, flow.RegisterOptions{Name: "both"})
	begin := r.Now()
	r.ExecuteWorkflow("both")
	must(t, r.GetWorkflowError())
	var ends []Result
	must(t, r.GetWorkflowResult(&ends))
	if want := []Result{{one.ID, workflow.Completed, 0}, {two.ID, workflow.Completed, 0}}; !slices.Equal(ends, want) || looks != 2 {
		t.Errorf("%+v, want %+v; %d looks at the second", ends, want, looks)
	}
	if took := r.Now().Sub(begin); waited <= 0 || took < waited-time.Second {
		t.Errorf("the second was to wait for %v, and both ended after %v", waited, took)
	}
}

// TestLateClock looks at a plan whose time has come, and not by the store's clock.
func TestLateClock(t *testing.T) {
	calls := 0
	r := newRig(t, func(context.Context, engine.RunOptions) (engine.Placed, error) {
		if calls++; calls < 10 {
			return waits(1, -time.Minute, 0), nil
		}
		return ended(workflow.Completed, 0), nil
	})
	begin := r.Now()
	if r.result(); r.Now().Sub(begin) < 18*time.Second {
		t.Errorf("10 looks in %v", r.Now().Sub(begin))
	}
}

// TestSignals sends signals to a workflow while its plan runs, sleeps and is paused.
func TestSignals(t *testing.T) {
	var begin time.Time
	var looks []time.Duration
	var r *rig
	r = newRig(t, func(context.Context, engine.RunOptions) (engine.Placed, error) {
		looks = append(looks, r.Now().Sub(begin).Round(time.Second))
		switch len(looks) {
		case 1:
			return waits(1, time.Hour, 0), nil
		case 2: // the second one comes while it sleeps again; that the first one has the number 1 is no reason to look again
			return waits(2, time.Hour, 0), nil
		case 3: // paused, and nobody need look because of signals
			p := waits(3, 0, fleet.MaxSignals)
			p.WakeAt = time.Time{}
			return p, nil
		}
		return ended(workflow.Completed, 0), nil
	})
	begin = r.Now()
	r.RegisterDelayedCallback(func() {
		r.SignalWorkflow(SignalName, fleet.Signal{Name: "approve", Payload: json.RawMessage(`{"n":1}`)})
	}, time.Minute)
	r.RegisterDelayedCallback(func() { r.SignalWorkflow(SignalName, fleet.Signal{Name: "approve", Key: "mine"}) }, 2*time.Minute)
	r.RegisterDelayedCallback(func() { r.SignalWorkflow(SignalName, 7) }, 150*time.Second)            // no signal
	r.RegisterDelayedCallback(func() { r.SignalWorkflow(SignalName, fleet.Signal{}) }, 3*time.Minute) // without a name
	r.RegisterDelayedCallback(func() { r.SignalWorkflow(SignalName, fleet.Signal{Name: "other"}) }, 4*time.Minute)
	r.RegisterDelayedCallback(func() { r.SignalWorkflow(LookName, nil) }, 5*time.Minute)
	r.result()
	if want := []time.Duration{0, time.Minute, 2 * time.Minute, 5 * time.Minute}; !slices.Equal(looks, want) {
		t.Errorf("looks at %v, want %v", looks, want)
	}
	roster, err := r.vault.Control().Roster(t.Context())
	must(t, err)
	var sent []string
	for _, n := range roster.Notes {
		n, err := r.vault.Control().FindNote(t.Context(), n.Name)
		must(t, err)
		sent = append(sent, string(n.Text))
	}
	want := []string{`{"name":"approve","payload":{"n":1},"key":"/1"}`, `{"name":"approve","key":"mine"}`, `{"name":"other","key":"/5"}`}
	if !slices.Equal(sent, want) {
		t.Errorf("the plan got %s", sent)
	}
}

// TestSendAgain repeats the activity that sends a signal, as Temporal does when it has not heard of the first one's end.
func TestSendAgain(t *testing.T) {
	r := newRig(t, nil)
	r.RegisterWorkflowWithOptions(func(ctx flow.Context) (numbers []int, err error) {
		ctx = flow.WithActivityOptions(ctx, flow.ActivityOptions{StartToCloseTimeout: time.Minute})
		for range 2 {
			var n int
			if err := flow.ExecuteActivity(ctx, sendName, fleet.Signal{Name: "approve", Key: "run/1"}).Get(ctx, &n); err != nil {
				return nil, err
			}
			numbers = append(numbers, n)
		}
		return numbers, nil
	}, flow.RegisterOptions{Name: "twice"})
	r.ExecuteWorkflow("twice")
	must(t, r.GetWorkflowError())
	var numbers []int
	must(t, r.GetWorkflowResult(&numbers))
	if !slices.Equal(numbers, []int{1, 1}) {
		t.Errorf("the signal has the numbers %d", numbers)
	}
}

// TestCancel cancels a workflow while its plan runs or waits: the plan is asked to stop, and its activity goes on.
func TestCancel(t *testing.T) {
	long := strings.Repeat("w", workflow.MaxWhy+1)
	for name, c := range map[string]struct {
		running bool
		why     string
		want    workflow.Attribution
	}{
		"running":   {true, "too dear", workflow.Attribution{By: "ops@host", Why: "too dear"}},
		"waiting":   {false, "", workflow.Attribution{By: "ops@host", Why: "the workflow was canceled"}},
		"long text": {false, long, workflow.Attribution{By: "temporal", Why: "the workflow was canceled"}},
	} {
		t.Run(name, func(t *testing.T) {
			var by workflow.Attribution
			var r *rig
			r = newRig(t, func(ctx context.Context, _ engine.RunOptions) (engine.Placed, error) {
				for first := true; ; first = false {
					roster, err := r.vault.Control().Roster(ctx)
					must(t, err)
					switch {
					case len(roster.Stops) > 0:
						by = workflow.Attribution{By: roster.Stops[0].By, Why: roster.Stops[0].Why}
						return ended(workflow.Stopped, workflow.StopRequested), ctx.Err()
					case !c.running:
						return waits(1, time.Hour, 0), nil
					case first:
						r.CancelWorkflow()
					}
				}
			})
			r.events = []*history.HistoryEvent{{}, {Attributes: &history.HistoryEvent_WorkflowExecutionCancelRequestedEventAttributes{
				WorkflowExecutionCancelRequestedEventAttributes: &history.WorkflowExecutionCancelRequestedEventAttributes{Identity: "ops@host", Cause: c.why},
			}}}
			if !c.running {
				r.RegisterDelayedCallback(r.CancelWorkflow, time.Minute)
			}
			begin := r.Now()
			if got := r.result(); got.Status != workflow.Stopped || r.Now().Sub(begin) > 2*time.Minute {
				t.Errorf("%+v after %v", got, r.Now().Sub(begin))
			}
			if by.At = (time.Time{}); by != c.want {
				t.Errorf("stopped by %+v", by)
			}
		})
	}
}

// TestContinueAsNew sends a signal while the last look of a run is under way: the next run begins after it was sent on.
func TestContinueAsNew(t *testing.T) {
	var r *rig
	r = newRig(t, func(context.Context, engine.RunOptions) (engine.Placed, error) {
		r.SignalWorkflowSkippingWorkflowTask(SignalName, fleet.Signal{Name: "approve"}) // it comes with the activity's end
		return waits(7, time.Hour, 0), nil
	})
	r.SetContinueAsNewSuggested(true)
	r.ExecuteWorkflow(WorkflowName, Settings{Look: time.Minute})
	var again *flow.ContinueAsNewError
	if err := r.GetWorkflowError(); !errors.As(err, &again) {
		t.Fatal(err)
	}
	var s Settings
	must(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &s))
	if want := (Settings{30 * time.Second, time.Minute, 7}); s != want {
		t.Errorf("goes on with %+v", s)
	}
	roster, err := r.vault.Control().Roster(t.Context())
	must(t, err)
	if len(roster.Notes) != 1 {
		t.Errorf("the plan got %d signals", len(roster.Notes))
	}
}

// TestErrors returns each error from RunPlan once: it ends the workflow, or the activity is tried again.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		fate string // the type of the workflow's error; empty if the activity is tried again
	}{
		{storage.ErrNotFound, "NotFound"},
		{storage.ErrInvalid, "Invalid"},
		{storage.ErrCorrupt, "Corrupt"},
		{storage.ErrForeign, "Foreign"},
		{fleet.ErrOwned, "Owned"},
		{fleet.ErrFenced, ""}, // the next attempt finds out by whom
		{storage.ErrSchema, ""},
		{storage.ErrUnavailable, ""},
		{storage.ErrUnknown, ""},
		{storage.ErrConflict, ""},
		{storage.ErrDenied, ""},
		{storage.ErrClosed, ""},
		{fleet.ErrUnsuited, ""},
		{fleet.ErrSuspended, ""},
		{engine.ErrDraining, ""},
		{errors.New("anything else"), ""},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			calls := 0
			r := newRig(t, func(context.Context, engine.RunOptions) (engine.Placed, error) {
				if calls++; calls == 1 {
					return engine.Placed{}, fmt.Errorf("run plan: %w", c.err)
				}
				return ended(workflow.Completed, 0), nil
			})
			begin := r.Now()
			if c.fate != "" {
				if fate := r.failed(); fate != c.fate || calls != 1 {
					t.Errorf("%s after %d calls", fate, calls)
				}
				return
			}
			r.result()
			if after := r.Now().Sub(begin); calls != 2 || errors.Is(c.err, engine.ErrDraining) != (after < 500*time.Millisecond) {
				t.Errorf("%d calls in %v", calls, after)
			}
		})
	}
}

// TestOutage has an account that is away: the waits between attempts stay short.
func TestOutage(t *testing.T) {
	calls := 0
	r := newRig(t, func(context.Context, engine.RunOptions) (engine.Placed, error) {
		if calls++; calls <= 8 {
			return engine.Placed{}, storage.ErrUnavailable
		}
		return ended(workflow.Completed, 0), nil
	})
	begin := r.Now()
	if r.result(); r.Now().Sub(begin) > time.Minute {
		t.Errorf("9 attempts in %v", r.Now().Sub(begin))
	}
}

// TestNoPlan starts workflows whose ID is no plan's, or a plan's in a second form, and one with wrong settings.
func TestNoPlan(t *testing.T) {
	for _, id := range []string{"nightly", "01A21074-C6A7-7E7B-BD78-B9617A68E5EB", "urn:uuid:01a21074-c6a7-7e7b-bd78-b9617a68e5eb"} {
		r := newRig(t, nil)
		r.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id})
		if fate := r.failed(); fate != "Invalid" {
			t.Error(id, fate)
		}
	}
	if fate := newRig(t, nil).failed(Settings{Look: -1}); fate != "Invalid" {
		t.Error(fate)
	}
}

// TestOwned meets owners: those that are an earlier attempt of the same workflow are fenced.
func TestOwned(t *testing.T) {
	stale := errors.New("the activity has ended")
	for name, c := range map[string]struct {
		epoch   int64  // the last one of the workflow
		owner   string // the end of its Ask
		by      string // its Name
		confirm error
		fate    string // the type of the workflow's error, or empty
	}{
		"an attempt that died before its heartbeat": {0, runMark, "temporal", nil, ""},
		"the same, later":                          {3, runMark, "temporal", nil, ""},
		"a workflow that the server has forgotten": {0, runMark + "another", "temporal", nil, ""},
		"a stale attempt of an earlier run":        {3, runMark + "earlier", "temporal", nil, ""},
		"the next run":                             {3, runMark + "earlier", "temporal", stale, "*errors.errorString"},
		"a workflow of another cluster":            {3, runMark + "another", "temporal", nil, "Owned"},
		"another plan's workflow":                  {0, "x" + runMark, "temporal", nil, "Owned"},
		"a queue":                                  {0, runMark, "queue", nil, "Owned"},
		"a node":                                   {0, "", "", nil, "Owned"},
		"the next attempt":                         {0, runMark, "temporal", stale, "*errors.errorString"},
	} {
		t.Run(name, func(t *testing.T) {
			var epochs []int64
			var r *rig
			r = newRig(t, func(_ context.Context, o engine.RunOptions) (engine.Placed, error) {
				if epochs = append(epochs, o.Epoch); o.Epoch == 5 {
					return ended(workflow.Completed, 0), nil
				}
				ask := External("default-test-namespace", r.plan.ID).Ask + c.owner
				return engine.Placed{}, &fleet.OwnedError{Owner: uuid.New(), Epoch: 5, External: workflow.External{Name: c.by, Ask: ask}}
			})
			if r.confirm = c.confirm; c.confirm != nil {
				r.SetWorkflowRunTimeout(time.Second) // it is tried again
				r.ExecuteWorkflow(WorkflowName, Settings{Epoch: c.epoch})
				if len(epochs) == 0 || slices.Contains(epochs, 5) {
					t.Errorf("took over %d", epochs)
				}
				return
			}
			if c.fate != "" {
				if fate := r.failed(Settings{Epoch: c.epoch}); fate != c.fate || len(r.beats) > 0 {
					t.Errorf("%s, %v", fate, r.beats)
				}
				return
			}
			r.result(Settings{Epoch: c.epoch})
			if !slices.Equal(epochs, []int64{c.epoch, 5}) || !slices.Equal(r.beats, []any{int64(5)}) {
				t.Errorf("epochs %v, heartbeats %v", epochs, r.beats)
			}
		})
	}
}

// TestOwnedUnsure meets an owner that may be a stale attempt of an earlier run, while Temporal does not say whether it knows that
// run. The attempt is made again, and then takes the plan over.
func TestOwnedUnsure(t *testing.T) {
	var epochs []int64
	var r *rig
	r = newRig(t, func(_ context.Context, o engine.RunOptions) (engine.Placed, error) {
		if epochs = append(epochs, o.Epoch); o.Epoch == 5 {
			return ended(workflow.Completed, 0), nil
		}
		if len(epochs) == 2 {
			r.earlier = nil
		}
		ask := External("default-test-namespace", r.plan.ID).Ask + runMark + "earlier"
		return engine.Placed{}, &fleet.OwnedError{Owner: uuid.New(), Epoch: 5, External: workflow.External{Name: "temporal", Ask: ask}}
	})
	r.earlier = serviceerror.NewUnavailable("away")
	if r.result(Settings{Epoch: 3}); !slices.Equal(epochs, []int64{3, 3, 5}) {
		t.Errorf("epochs %v", epochs)
	}
}

// TestOwnedByNoRun meets an owner that does not say its run: it may be the current one, for all that Temporal knows.
func TestOwnedByNoRun(t *testing.T) {
	plan, server := uuid.New(), &temporalServer{}
	owned := &fleet.OwnedError{Owner: uuid.New(), Epoch: 5, External: External("default", plan)}
	o := engine.RunOptions{External: workflow.External{Name: Name, Ask: owned.External.Ask + runMark + "mine"}, Epoch: 3}
	if epoch, err := (Placer{Client: server}).former(t.Context(), plan, owned, o); epoch != 0 || err != nil {
		t.Errorf("%d, %v", epoch, err)
	}
}

// TestDrain stops the worker of a plan.
func TestDrain(t *testing.T) {
	stop := make(chan struct{})
	calls := 0
	r := newRig(t, func(ctx context.Context, _ engine.RunOptions) (engine.Placed, error) {
		if calls++; calls > 1 {
			return ended(workflow.Completed, 0), nil
		}
		close(stop)
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), fleet.ErrStopRequested) {
			t.Error("the plan is stopped")
		}
		return engine.Placed{}, engine.ErrDraining
	})
	r.SetWorkerStopChannel(stop)
	if r.result(); calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// TestHeartbeats lets an attempt end after a heartbeat. The next one gets its epoch.
func TestHeartbeats(t *testing.T) {
	var epochs []int64
	r := newRig(t, func(_ context.Context, o engine.RunOptions) (engine.Placed, error) {
		if epochs = append(epochs, o.Epoch); len(epochs) > 1 {
			return ended(workflow.Completed, 0), nil
		}
		o.Heartbeat(engine.Beat{Epoch: 4})
		return engine.Placed{}, storage.ErrUnavailable
	})
	if r.result(); !slices.Equal(epochs, []int64{0, 4}) {
		t.Errorf("epochs %d", epochs)
	}
}

func TestStartOptions(t *testing.T) {
	plan := &workflow.Plan{ID: workflow.NewV7(), GroupID: uuid.New(), Labels: map[string]string{"region": "west", "app": "shop"}}
	o := StartOptions(plan, "plans")
	group, _ := o.TypedSearchAttributes.GetKeyword(GroupAttribute)
	labels, _ := o.TypedSearchAttributes.GetKeywordList(LabelsAttribute)
	if o.ID != plan.ID.String() || group != plan.GroupID.String() || !slices.Equal(labels, []string{"app=shop", "region=west"}) {
		t.Errorf("%+v", o)
	}
	if o := StartOptions(&workflow.Plan{ID: plan.ID}, "plans"); o.TypedSearchAttributes.Size() != 0 {
		t.Errorf("a plain plan has %v", o.TypedSearchAttributes)
	}
}
