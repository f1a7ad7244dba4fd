//go:build unix

package tests

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/dynamicconfig"
	server "go.temporal.io/server/temporal"
	"go.temporal.io/server/temporaltest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/temporal"
	"github.com/planvault/azblob/workflow"
)

// gated returns a plan whose step waits for the gate of this name.
func gated(gate string) *workflow.Plan { return planOf(1, 1, 1, step{Gate: gate}) }

func begun(by string) func(line) bool {
	return func(l line) bool { return l.What == "begin" && l.Who == by }
}

// TestEvents counts the events of plans of three sizes.
func TestEvents(t *testing.T) {
	s := newStage(t)
	s.worker(s.named("a"), s.client)
	for name, plan := range sizes() {
		run := s.place(plan)
		s.completed(run)
		if n := s.events(run); n != 11 {
			t.Errorf("the history of a plan of size %s has %d events", name, n)
		}
	}
}

// TestFrozen freezes a worker for longer than the heartbeat timeout, in the middle of a call of its plugin. Another one goes on
// and ends the plan. The call ends when the first worker thaws, and its outcome is refused.
func TestFrozen(t *testing.T) {
	s := newStage(t)
	a := s.process(s.named("a"))
	run := s.place(gated("gate"))
	first := s.wait("a to begin", begun("a"))
	s.signal(a, syscall.SIGSTOP)
	s.process(s.named("b"))
	second := s.wait("b to go on", begun("b"))
	s.open("gate")
	s.completed(run)
	s.signal(a, syscall.SIGCONT)
	s.wait("a to leave the plan", func(l line) bool { return l.What == "left" && l.Who == "a" })
	if first.Epoch != 1 || second.Epoch != 2 {
		t.Errorf("epochs %d and %d", first.Epoch, second.Epoch)
	}
	s.once(run, "b")
}

// once checks that a plan of one step has one outcome, which a worker has stored. Empty means any.
func (s *stage) once(run client.WorkflowRun, by string) {
	s.Helper()
	plan, err := s.vault.Read(s.Context(), uuid.MustParse(run.GetID()))
	must(s.T, err)
	if a := plan.Blocks[0].Sequences[0].Actions[0]; a.State.Status != workflow.Completed {
		s.Errorf("the step is %s: %+v", a.State.Status, a.Attempts)
	}
	stored := 0
	for _, l := range s.ledger() {
		if l.What == "stored" && l.Action == plan.Blocks[0].Sequences[0].Actions[0].ID {
			if stored++; by != "" && l.Who != by {
				s.Errorf("%s stored the outcome", l.Who)
			}
		}
	}
	if stored != 1 {
		s.Errorf("%d outcomes of the step were stored", stored)
	}
}

// deaf returns a client whose calls are lost while cut is set, and counts these.
func (s *stage) deaf() (c client.Client, cut *atomic.Bool, lost *atomic.Int64) {
	cut, lost = new(atomic.Bool), new(atomic.Int64)
	intercept := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if cut.Load() {
			if strings.HasSuffix(method, "RecordActivityTaskHeartbeat") {
				lost.Add(1)
			}
			return status.Error(codes.Unavailable, "lost")
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	return s.server.NewClientWithOptions(client.Options{Logger: silent(), ConnectionOptions: client.ConnectionOptions{
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(intercept)},
	}}), cut, lost
}

// TestHeartbeatsLost lets a worker live that Temporal does not hear any more. Another one takes the plan, and the store fences the
// first, which Temporal can't tell.
func TestHeartbeatsLost(t *testing.T) {
	s := newStage(t)
	c, cut, _ := s.deaf()
	s.worker(s.named("a"), c)
	run := s.place(gated("gate"))
	s.wait("a to begin", begun("a"))
	cut.Store(true)
	s.worker(s.named("b"), s.client)
	s.wait("b to go on", begun("b"))
	s.open("gate")
	left := s.wait("a to leave the plan, or to see that it is final", func(l line) bool {
		return l.Who == "a" && (l.What == "left" || l.What == "stored" && l.Action.String() == run.GetID())
	})
	if left.What == "left" && !strings.Contains(left.Why, fleet.ErrFenced.Error()) {
		t.Errorf("the first worker left because %s", left.Why)
	}
	s.completed(run)
	cut.Store(false) // a can end
	s.once(run, "b")
}

// TestAway has a Temporal that answers no heartbeat for a while. The plan goes on in its first attempt.
func TestAway(t *testing.T) {
	s := newStage(t)
	c, cut, lost := s.deaf()
	s.worker(s.named("a"), c)
	plan := planOf(1, 1, 2, step{Gate: "gate"})
	must(t, s.vault.Create(t.Context(), plan))
	run := s.start(plan, temporal.Settings{HeartbeatTimeout: 15 * time.Second})
	s.wait("a to begin", begun("a"))
	cut.Store(true)
	s.until("a heartbeat to be lost, and its retries", func() bool { return lost.Load() > 2 })
	time.Sleep(2 * time.Second) // longer than the SDK retries a heartbeat
	cut.Store(false)
	s.open("gate")
	s.completed(run)
	for _, l := range s.ledger() {
		if l.What == "begin" && l.Epoch != 1 {
			t.Errorf("a step begins in epoch %d", l.Epoch)
		}
	}
}

// TestForgotten deletes the workflow of a plan that runs, as a server that lost its data would. Started again, it goes on.
func TestForgotten(t *testing.T) {
	for _, drains := range []bool{true, false} { // whether the first worker hears of it
		t.Run(fmt.Sprint("drains ", drains), func(t *testing.T) {
			s := newStage(t)
			a := s.process(s.named("a"))
			plan := gated("gate")
			run := s.place(plan)
			s.wait("a to begin", begun("a"))
			if !drains {
				s.signal(a, syscall.SIGKILL)
			}
			_, err := s.client.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: s.Namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
			})
			must(t, err)
			s.until("the server to forget", func() bool {
				_, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
				return err != nil
			})
			s.process(s.named("b"))
			again := s.start(plan, settings)
			s.until("the plan to begin again", func() bool {
				n := 0
				for _, l := range s.ledger() {
					if l.What == "begin" {
						n++
					}
				}
				return n == 2
			})
			s.open("gate")
			s.completed(again)
			s.once(again, "")
		})
	}
}

// TestReset resets a workflow to its beginning while its plan runs. The new run goes on with the plan.
func TestReset(t *testing.T) {
	s := newStage(t)
	s.worker(s.named("a"), s.client)
	run := s.place(gated("gate"))
	s.wait("a to begin", begun("a"))
	reset, err := s.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: s.Namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		Reason: "test", WorkflowTaskFinishEventId: 4, RequestId: uuid.NewString(),
	})
	must(t, err)
	s.wait("the plan to begin again", func(l line) bool { return l.What == "begin" && l.Epoch == 2 })
	s.open("gate")
	again := s.client.GetWorkflow(t.Context(), run.GetID(), reset.GetRunId())
	s.completed(again)
	s.once(again, "")
}

// TestTwoSchedulers lets two namespaces place one plan, as two clusters may. One runs it.
func TestTwoSchedulers(t *testing.T) {
	s := newStage(t)
	s.worker(s.named("a"), s.client)
	plan := gated("gate")
	run := s.place(plan)
	s.wait("a to begin", begun("a"))
	_, err := s.client.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "second", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	must(t, err)
	second := s.server.NewClientWithOptions(client.Options{Namespace: "second", Logger: silent()})
	o := s.named("b")
	o.Queue = "second"
	var other client.WorkflowRun
	s.until("the namespace to exist", func() bool {
		start := temporal.StartOptions(plan, o.Queue)
		other, err = second.ExecuteWorkflow(t.Context(), start, temporal.WorkflowName, settings)
		return err == nil
	})
	s.worker(o, second)
	if fate := s.fails(other); fate != "Owned" {
		t.Errorf("the second workflow fails with %s", fate)
	}
	s.open("gate")
	s.completed(run)
	s.once(run, "")
}

// TestDeleted deletes a plan while it runs, and one that waits for a worker.
func TestDeleted(t *testing.T) {
	s := newStage(t)
	waiting := gated("gate")
	run := s.place(waiting)
	must(t, s.vault.Delete(t.Context(), waiting.ID))
	s.worker(s.named("a"), s.client)
	if fate := s.fails(run); fate != "NotFound" {
		t.Errorf("a deleted plan fails with %s", fate)
	}
	running := gated("gate")
	run = s.place(running)
	s.wait("a to begin", begun("a"))
	must(t, s.vault.Delete(t.Context(), running.ID))
	s.open("gate")
	if fate := s.fails(run); fate != "NotFound" {
		t.Errorf("a plan that was deleted while it ran fails with %s", fate)
	}
}

// TestWorkersDiffer has workers that lack the plugin, or have a closed vault, on one queue with one that can run plans.
func TestWorkersDiffer(t *testing.T) {
	s := newStage(t)
	unsuited, closed := s.named("unsuited"), s.named("closed")
	unsuited.Unsuited, closed.Closed = true, true
	s.worker(unsuited, s.client)
	s.worker(closed, s.client)
	run := s.place(planOf(1, 1, 1, step{}))
	s.until("an attempt to fail", func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
		must(t, err)
		return len(d.GetPendingActivities()) > 0 && d.GetPendingActivities()[0].GetAttempt() > 2
	})
	s.worker(s.named("able"), s.client)
	s.completed(run)
}

// TestShutdown stops a worker. The next one goes on before the heartbeat timeout of an hour.
func TestShutdown(t *testing.T) {
	s := newStage(t)
	stop := s.worker(s.named("a"), s.client)
	plan := gated("gate")
	plan.External = temporal.External(s.Namespace, plan.ID)
	must(t, s.vault.Create(t.Context(), plan))
	run := s.start(plan, temporal.Settings{HeartbeatTimeout: time.Hour})
	s.wait("a to begin", begun("a"))
	s.worker(s.named("b"), s.client)
	stop()
	s.wait("b to go on", begun("b"))
	s.open("gate")
	s.completed(run)
	s.once(run, "")
}

// TestCancel cancels the workflow of a plan that runs. Its deferred work runs to the end.
func TestCancel(t *testing.T) {
	s := newStage(t)
	s.worker(s.named("a"), s.client)
	plan := planOf(1, 1, 100, step{Takes: time.Second}) // it ends after many looks of the worker
	plan.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
		{When: workflow.OnFailure, Actions: []*workflow.Action{{Name: "undo", Plugin: "step", Req: step{Takes: 5 * time.Second}}}},
	}}
	run := s.place(plan)
	s.wait("a to begin", begun("a"))
	_, err := s.client.WorkflowService().RequestCancelWorkflowExecution(t.Context(), &workflowservice.RequestCancelWorkflowExecutionRequest{
		Namespace: s.Namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: run.GetID()}, Identity: "ops", Reason: "too dear",
	})
	must(t, err)
	if r := s.result(run); r.Status != workflow.Stopped || r.Reason != workflow.StopRequested {
		t.Errorf("%+v", r)
	}
	plan, err = s.vault.Read(t.Context(), plan.ID)
	must(t, err)
	if by := plan.Stopped; by.By != "ops" || by.Why != "too dear" {
		t.Errorf("stopped by %+v", by)
	}
	if undo := plan.DeferredActions.Batches[0].Actions[0]; undo.State.Status != workflow.Completed {
		t.Errorf("the deferred action is %s", undo.State.Status)
	}
}

// TestPaused pauses a plan that runs. It goes on when it has been resumed, and the workflow is told to look.
func TestPaused(t *testing.T) {
	s := newStage(t)
	s.worker(s.named("a"), s.client)
	run := s.place(planOf(1, 1, 40, step{Takes: 2 * time.Second})) // it ends after many looks of the worker
	plan := uuid.MustParse(run.GetID())
	s.wait("a to begin", begun("a"))
	by := workflow.Attribution{By: "ops", Why: "lunch"}
	must(t, fleet.PausePlan(t.Context(), s.vault, plan, by))
	s.until("the plan to be paused", func() bool {
		p, err := s.vault.Read(t.Context(), plan)
		must(t, err)
		return p.Paused.By != ""
	})
	must(t, fleet.ResumePlan(t.Context(), s.vault, plan, by))
	steps := len(s.ledger())
	must(t, s.client.SignalWorkflow(t.Context(), run.GetID(), "", temporal.LookName, nil))
	s.until("the plan to go on", func() bool { return len(s.ledger()) > steps })
	must(t, fleet.Stop(t.Context(), s.vault, plan, by))
	if r := s.result(run); r.Status != workflow.Stopped {
		t.Errorf("%+v", r)
	}
}

// TestSignal wakes a plan that sleeps for an hour with a signal of its workflow.
func TestSignal(t *testing.T) {
	s := newStage(t)
	s.worker(s.named("a"), s.client)
	run := s.place(planOf(1, 1, 1, step{Until: "approval"}))
	s.until("the plan to sleep", func() bool {
		p, err := s.vault.Read(t.Context(), uuid.MustParse(run.GetID()))
		must(t, err)
		return p.Asleep()
	})
	must(t, s.client.SignalWorkflow(t.Context(), run.GetID(), "", temporal.SignalName, fleet.Signal{Name: "approval"}))
	s.completed(run)
	if n := s.calls("a"); n != 2 {
		t.Errorf("%d calls", n)
	}
}

// TestFound finds a workflow by the group and a label of its plan, also after it has continued as new, and lets it end.
func TestFound(t *testing.T) {
	s := newStage(t, temporaltest.WithBaseServerOptions(server.WithDynamicConfigClient(dynamicconfig.StaticClient{
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): []dynamicconfig.ConstrainedValue{{Value: true}},
		dynamicconfig.HistoryCountSuggestContinueAsNew.Key():        []dynamicconfig.ConstrainedValue{{Value: 20}},
	})))
	_, err := s.client.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: s.Namespace, SearchAttributes: map[string]enums.IndexedValueType{
			temporal.GroupAttribute.GetName():  enums.INDEXED_VALUE_TYPE_KEYWORD,
			temporal.LabelsAttribute.GetName(): enums.INDEXED_VALUE_TYPE_KEYWORD_LIST,
		},
	})
	must(t, err)
	s.worker(s.named("a"), s.client)
	plan := planOf(1, 1, 1, step{Until: "approval"})
	plan.GroupID, plan.Labels = uuid.New(), map[string]string{"region": "west", "app": "shop"}
	must(t, s.vault.Create(t.Context(), plan))
	var first client.WorkflowRun
	s.until("the attributes to be known", func() bool {
		first, err = s.client.ExecuteWorkflow(t.Context(), temporal.StartOptions(plan, s.Queue), temporal.WorkflowName)
		return err == nil
	})
	s.until("the workflow to continue as new", func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), plan.ID.String(), "")
		must(t, err)
		_ = s.client.SignalWorkflow(t.Context(), plan.ID.String(), "", temporal.LookName, nil)
		return d.GetWorkflowExecutionInfo().GetExecution().GetRunId() != first.GetRunID()
	})
	for _, query := range []string{`PlanLabels = "region=west"`, `PlanGroup = "` + plan.GroupID.String() + `"`} {
		s.until(query, func() bool {
			found, err := s.client.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query + ` AND ExecutionStatus = "Running"`})
			return err == nil && len(found.GetExecutions()) == 1 && found.GetExecutions()[0].GetExecution().GetWorkflowId() == plan.ID.String()
		})
	}
	must(t, s.client.SignalWorkflow(t.Context(), plan.ID.String(), "", temporal.SignalName, fleet.Signal{Name: "approval"}))
	s.completed(first) // Get follows the runs
}
