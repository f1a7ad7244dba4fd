//go:build unix

package tests

import (
	"context"
	"errors"
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
	"google.golang.org/grpc"
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

// TestFrozen freezes a worker for longer than the heartbeat timeout. Another one goes on, and the first is fenced when it thaws.
func TestFrozen(t *testing.T) {
	s := newStage(t)
	a := s.process(s.named("a"))
	run := s.place(gated("gate"))
	first := s.wait("a to begin", begun("a"))
	s.signal(a, syscall.SIGSTOP)
	s.process(s.named("b"))
	second := s.wait("b to go on", begun("b"))
	s.signal(a, syscall.SIGCONT)
	cut := s.wait("a to be cut off", func(l line) bool { return l.What == "cut" && l.Who == "a" })
	s.open("gate")
	s.completed(run)
	if first.Epoch != 1 || second.Epoch != 2 {
		t.Errorf("epochs %d and %d", first.Epoch, second.Epoch)
	}
	s.once(run)
	t.Log("the frozen worker's context ended with:", cut.Why)
}

// once checks that a plan of one step has one outcome, by the last of those who began it.
func (s *stage) once(run client.WorkflowRun) {
	s.Helper()
	plan, err := s.vault.Read(s.Context(), uuid.MustParse(run.GetID()))
	must(s.T, err)
	if a := plan.Blocks[0].Sequences[0].Actions[0]; a.State.Status != workflow.Completed {
		s.Errorf("the step is %s: %+v", a.State.Status, a.Attempts)
	}
	stored := 0
	for _, l := range s.ledger() {
		if l.What == "stored" && l.Action == plan.Blocks[0].Sequences[0].Actions[0].ID {
			stored++
		}
	}
	if stored != 1 {
		s.Errorf("%d outcomes of the step were stored", stored)
	}
}

// TestHeartbeatsLost lets a worker live whose heartbeats do not reach Temporal. Another one takes the plan, and the store fences
// the first, which Temporal can't tell.
func TestHeartbeatsLost(t *testing.T) {
	s := newStage(t)
	var cut atomic.Bool
	deaf := s.server.NewClientWithOptions(client.Options{Logger: silent(), Identity: "a", ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if cut.Load() && !strings.HasSuffix(method, "GetSystemInfo") {
				return errors.New("lost")
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
	}}})
	s.worker(s.named("a"), deaf)
	run := s.place(gated("gate"))
	s.wait("a to begin", begun("a"))
	cut.Store(true)
	s.worker(s.named("b"), s.client)
	s.wait("b to go on", begun("b"))
	s.open("gate")
	s.completed(run)
	cut.Store(false) // a can end
	s.once(run)
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
			s.once(again)
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
	s.once(again)
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
	s.once(run)
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
	s.once(run)
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

// TestSearchAttributes finds a workflow by the group and a label of its plan.
func TestSearchAttributes(t *testing.T) {
	s := newStage(t)
	_, err := s.client.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: s.Namespace, SearchAttributes: map[string]enums.IndexedValueType{
			temporal.GroupAttribute.GetName():  enums.INDEXED_VALUE_TYPE_KEYWORD,
			temporal.LabelsAttribute.GetName(): enums.INDEXED_VALUE_TYPE_KEYWORD_LIST,
		},
	})
	must(t, err)
	s.worker(s.named("a"), s.client)
	plan := planOf(1, 1, 1, step{})
	plan.GroupID, plan.Labels = uuid.New(), map[string]string{"region": "west", "app": "shop"}
	must(t, s.vault.Create(t.Context(), plan))
	var run client.WorkflowRun
	s.until("the attributes to be known", func() bool {
		run, err = s.client.ExecuteWorkflow(t.Context(), temporal.StartOptions(plan, s.Queue), temporal.WorkflowName)
		return err == nil
	})
	s.completed(run)
	for _, query := range []string{`PlanLabels = "region=west"`, `PlanGroup = "` + plan.GroupID.String() + `"`} {
		s.until(query, func() bool {
			found, err := s.client.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query})
			return err == nil && len(found.GetExecutions()) == 1 && found.GetExecutions()[0].GetExecution().GetWorkflowId() == plan.ID.String()
		})
	}
}
