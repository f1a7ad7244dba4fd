package temporal_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/temporal"
	"github.com/planvault/azblob/workflow"
)

// A plan is placed by Temporal, which the SDK's test environment stands for. With a server, a worker from worker.New and its
// client take the place of the environment, and the client's ExecuteWorkflow starts the workflow.
func Example() {
	greet := engine.Task("greet", func(_ context.Context, call engine.Call, name string) (string, error) {
		fmt.Println("hello,", name, "in epoch", call.Epoch)
		return "", nil
	})
	vault := memvault.New(registry.Must(greet), memvault.Options{})
	e, err := engine.New(vault, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	plan := &workflow.Plan{ID: workflow.NewV7(), Name: "hello"}
	plan.External = temporal.External("default", plan.ID)
	plan.Blocks = []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{greet.Action("greet", "world")}}}}}
	if err := vault.Create(context.Background(), plan); err != nil {
		log.Fatal(err)
	}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	temporal.Register(env, temporal.Placer{Engine: e, Vault: vault})
	env.SetStartWorkflowOptions(temporal.StartOptions(plan, "plans"))
	env.ExecuteWorkflow(temporal.WorkflowName)
	var result temporal.Result
	if err := env.GetWorkflowResult(&result); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Plan == plan.ID, result.Status)
	// Output:
	// hello, world in epoch 1
	// true Completed
}
