package approve_test

import (
	"context"
	"fmt"
	"log"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/engine/approve"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// release returns a plan that builds a version, waits until two people have approved it, and deploys it.
func release(build, deploy *engine.TypedPlugin[string, string], approval approve.Plugin, version string) *workflow.Plan {
	return &workflow.Plan{Name: "release", Submitted: workflow.Actor{By: "sub"}, Blocks: []*workflow.Block{{
		Name: "release",
		Sequences: []*workflow.Sequence{{Name: version, Actions: []*workflow.Action{
			build.Action("build", version), approval.Action("approval", approve.Request{Of: 2}), deploy.Action("deploy", version),
		}}},
	}}}
}

// A release waits until two people have approved it, other than the one who submitted it. From five minutes on the plan sleeps,
// and costs nothing. People would run
//
//	planvault approve PLAN approval --reason "the tests are green"
func ExampleTask() {
	say := func(what string) *engine.TypedPlugin[string, string] {
		return engine.Task(what, func(_ context.Context, _ engine.Call, version string) (string, error) {
			fmt.Println(what, version)
			return version, nil
		})
	}
	build, deploy, approval := say("build"), say("deploy"), approve.Task("approval", approve.Options{})
	vault := memvault.New(registry.Must(build, deploy, approval), memvault.Options{})
	e, err := engine.New(vault, engine.Options{UntilIdle: true})
	if err != nil {
		log.Fatal(err)
	}
	plan := release(build, deploy, approval, "v2")
	submitted, err := e.Submit(context.Background(), plan)
	if err != nil {
		log.Fatal(err)
	}
	gate := plan.Blocks[0].Sequences[0].Actions[1]
	for _, who := range []string{"sub", "ana", "ben"} { // here, before the action begins
		if _, err := approve.Approve(context.Background(), vault, plan.ID, gate.ID, workflow.Attribution{By: who, Why: "the tests are green"}); err != nil {
			log.Fatal(err)
		}
	}
	if err := e.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	done, err := submitted.Wait(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range done.Blocks[0].Sequences[0].Actions[1].Attempts[0].Resp.(approve.Response).By {
		fmt.Println(a.By, "approved:", a.Why)
	}
	// Output:
	// build v2
	// deploy v2
	// ana approved: the tests are green
	// ben approved: the tests are green
}
