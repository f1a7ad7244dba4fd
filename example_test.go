package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// greet is a plugin as engines have them; a vault needs only its name and its types.
type greet struct{}

type greetRequest struct{ Whom string }

type greetResponse struct{ Said string }

func (greet) Name() string  { return "greet" }
func (greet) Request() any  { return greetRequest{} }
func (greet) Response() any { return greetResponse{} }

// hello is a plan as an author builds it: names and work, nothing else.
func hello(whom string) *workflow.Plan {
	return &workflow.Plan{
		Name: "hello " + whom,
		Blocks: []*workflow.Block{{
			Name: "greetings",
			Sequences: []*workflow.Sequence{{
				Name:    "one",
				Actions: []*workflow.Action{{Name: "greet", Plugin: "greet", Timeout: time.Minute, Req: greetRequest{whom}}},
			}},
		}},
	}
}

// account is a storage account for the examples: an emulator in this process.
func account() *emulator.Server { return emulator.New() }

// openExample opens a vault in it. A service calls azblob.New with its endpoint and credential.
func openExample(ctx context.Context, server *emulator.Server) *azblob.Vault {
	reg := registry.New()
	if err := reg.Register(greet{}); err != nil {
		log.Fatal(err)
	}
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), reg, azblob.WithTransport(server.Transport()))
	if err != nil {
		log.Fatal(err)
	}
	return vault
}

// A service starts: it opens its vault, lets Recovery clear up, finds what was open, and goes on where it stood.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := account()

	before := openExample(ctx, server) // an engine that runs a plan, and is killed
	plan := hello("world")
	if err := before.Create(ctx, plan); err != nil {
		log.Fatal(err)
	}
	plan.State.Status = workflow.Running
	if err := before.UpdatePlan(ctx, plan); err != nil {
		log.Fatal(err)
	}

	vault := openExample(ctx, server) // the engine again
	defer vault.Close(ctx)
	if err := vault.Recovery(ctx); err != nil {
		log.Print(err) // what can't be mended does not keep the rest from going on
	}
	open, err := vault.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
	if err != nil {
		log.Fatal(err)
	}
	for found := range open {
		if found.Err != nil {
			log.Print(found.Err)
			continue
		}
		plan, err := vault.Read(ctx, found.Result.ID)
		if err != nil {
			log.Print(err)
			continue
		}
		action := plan.Blocks[0].Sequences[0].Actions[0]
		fmt.Printf("%s is %s, %s of %v is %s\n", plan.Name, plan.State.Status, action.Name, action.Req.(greetRequest).Whom, action.State.Status)
	}
	// Output:
	// hello world is Running, greet of world is NotStarted
}

// The parts of a plan are written as they go on, and the plan last.
func ExampleVault_UpdatePlan() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	plan := hello("world")
	check(vault.Create(ctx, plan))

	plan.State.Status, plan.State.Start = workflow.Running, time.Now()
	check(vault.UpdatePlan(ctx, plan)) // before any part of it

	action := plan.Blocks[0].Sequences[0].Actions[0]
	action.State.Status, action.State.Start = workflow.Running, time.Now()
	check(vault.UpdateAction(ctx, action)) // before it is run
	action.State.Status, action.State.End = workflow.Completed, time.Now()
	action.Attempts = append(action.Attempts, workflow.Attempt{Resp: greetResponse{"hello"}, Start: action.State.Start, End: action.State.End})
	check(vault.UpdateAction(ctx, action)) // before anything builds on it

	plan.State.Status, plan.State.End = workflow.Completed, time.Now()
	check(vault.UpdatePlan(ctx, plan)) // settles the whole plan

	plan, err := vault.Read(ctx, plan.ID)
	check(err)
	action = plan.Blocks[0].Sequences[0].Actions[0]
	fmt.Println(plan.State.Status, action.Attempts[0].Resp.(greetResponse).Said)
	// Output:
	// Completed hello
}

// Two writers hold the same version: the second learns that it does.
func ExampleVault_UpdatePlan_conflict() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	plan := hello("world")
	check(vault.Create(ctx, plan))

	mine, err := vault.Read(ctx, plan.ID)
	check(err)
	theirs, err := vault.Read(ctx, plan.ID)
	check(err)
	theirs.State.Status = workflow.Running
	check(vault.UpdatePlan(ctx, theirs))

	mine.State.Status = workflow.Stopped
	err = vault.UpdatePlan(ctx, mine)
	fmt.Println(errors.Is(err, storage.ErrConflict))
	// Output:
	// true
}

// Pages for a web page: the next one begins below the last plan of the one before.
func ExampleVault_Search() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	for _, whom := range []string{"a", "b", "c", "d", "e"} {
		check(vault.Create(ctx, hello(whom)))
		time.Sleep(2 * time.Millisecond) // plans are listed by the millisecond of their creation
	}

	filters := storage.Filters{Limit: 2}
	for {
		found, err := vault.Search(ctx, filters)
		check(err)
		var page []string
		for plan := range found {
			check(plan.Err)
			page = append(page, plan.Result.Name)
			filters.BeforeID = plan.Result.ID
		}
		fmt.Println(page)
		if len(page) < filters.Limit {
			break
		}
	}
	// Output:
	// [hello e hello d]
	// [hello c hello b]
	// [hello a]
}

// Check reads everything and says what is broken; Recover says what it did about it.
func ExampleVault_Check() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	check(vault.Create(ctx, hello("world")))

	report, err := vault.Check(ctx, azblob.CheckOptions{})
	check(err)
	fmt.Println(report.Plans, "plan,", report.Blobs, "blobs,", len(report.Problems), "problems")
	recovered, err := vault.Recover(ctx, azblob.RecoverOptions{DryRun: true})
	check(err)
	fmt.Println(recovered.Open, "open,", len(recovered.Plans), "to mend")
	// Output:
	// 1 plan, 6 blobs, 0 problems
	// 1 open, 0 to mend
}

// An emulator in the process tests an engine against any fault: here the answer to the commit of a plan is lost.
func ExampleWithTransport() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := emulator.New()
	server.Inject(emulator.On(emulator.PutBlob).Path("plans/*-object.json").Nth(1).Do(emulator.LostAnswer()))
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), nil, azblob.WithTransport(server.Transport()))
	check(err)
	fmt.Println(vault.Create(ctx, hello("world")))
	// Output:
	// <nil>
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
