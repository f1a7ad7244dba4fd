//go:build unix

package tests

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/server/temporaltest"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/temporal"
	"github.com/planvault/azblob/workflow"
)

// stage has a Temporal server, an account, and a folder with the ledger of all workers.
type stage struct {
	*testing.T
	order   // for the workers, without a name
	server  *temporaltest.TestServer
	client  client.Client
	account *emulator.Server
	vault   *azblob.Vault
	folder  string
}

func newStage(t *testing.T, options ...temporaltest.TestServerOption) *stage {
	t.Helper()
	s := &stage{T: t, folder: t.TempDir(), account: emulator.New(emulator.Options{})}
	l, err := s.account.Listen("127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	options = append(options, temporaltest.WithT(t), temporaltest.WithBaseClientOptions(client.Options{Logger: silent()}))
	s.server = temporaltest.NewServer(options...)
	s.client = s.server.GetDefaultClient()
	s.order = order{
		HostPort: s.server.GetFrontendHostPort(), Namespace: s.server.GetDefaultNamespace(), Queue: "plans",
		Account: l.ConnectionString(), Folder: s.folder,
	}
	s.vault, err = azblob.NewFromConnectionString(t.Context(), "plans", s.Account, registry.Must(s.step()), azblob.Options{})
	must(t, err)
	t.Cleanup(func() { _ = s.vault.Close(context.Background()) })
	return s
}

// named returns the order for a worker.
func (s *stage) named(name string) order {
	o := s.order
	o.Name = name
	return o
}

// worker starts a worker in this process. It stops with the test at the latest.
func (s *stage) worker(o order, c client.Client) (stop func()) {
	s.Helper()
	end, err := o.start(context.Background(), c)
	must(s.T, err)
	stop = sync.OnceFunc(end)
	s.Cleanup(stop)
	return stop
}

// settings detect a death soon.
var settings = temporal.Settings{HeartbeatTimeout: 3 * time.Second, Look: time.Minute}

// place creates a plan and starts its workflow.
func (s *stage) place(plan *workflow.Plan) client.WorkflowRun {
	s.Helper()
	plan.External = temporal.External(s.Namespace, plan.ID)
	must(s.T, s.vault.Create(s.Context(), plan))
	return s.start(plan, settings)
}

// start starts the workflow of a plan.
func (s *stage) start(plan *workflow.Plan, settings temporal.Settings) client.WorkflowRun {
	s.Helper()
	o := temporal.StartOptions(plan, s.Queue)
	o.TypedSearchAttributes = sdk.SearchAttributes{}
	run, err := s.client.ExecuteWorkflow(s.Context(), o, temporal.WorkflowName, settings)
	must(s.T, err)
	return run
}

// result waits for the end of a workflow.
func (s *stage) result(run client.WorkflowRun) (result temporal.Result) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 4*time.Minute)
	defer cancel()
	must(s.T, run.Get(ctx, &result))
	return result
}

// completed waits for the end of a workflow whose plan is to be completed.
func (s *stage) completed(run client.WorkflowRun) {
	s.Helper()
	if r := s.result(run); r.Status != workflow.Completed || r.Plan.String() != run.GetID() {
		s.Errorf("workflow %s: %+v", run.GetID(), r)
	}
}

// fails waits for the end of a workflow, and returns the type of its error.
func (s *stage) fails(run client.WorkflowRun) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 4*time.Minute)
	defer cancel()
	err := run.Get(ctx, nil)
	var e *sdk.ApplicationError
	if !errors.As(err, &e) {
		s.Fatalf("the workflow ended with %v", err)
	}
	return e.Type()
}

// history returns the events of a workflow.
func (s *stage) history(run client.WorkflowRun) (events []*history.HistoryEvent) {
	s.Helper()
	for all := s.client.GetWorkflowHistory(s.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); all.HasNext(); {
		e, err := all.Next()
		must(s.T, err)
		events = append(events, e)
	}
	return events
}

func (s *stage) events(run client.WorkflowRun) int { return len(s.history(run)) }
