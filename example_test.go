package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

type greetRequest struct{ Whom string }

type greetResponse struct{ Said string }

// greet is a plugin. A vault needs only its name and its types.
var greet = plugins.Typed[greetRequest, greetResponse]("greet")

// hello returns a plan as an author builds it, with names and work only.
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

// openExample opens a vault in the account. A service calls azblob.New with its endpoint and a credential.
func openExample(ctx context.Context, server *emulator.Server) *azblob.Vault {
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), registry.Must(greet), azblob.WithTransport(server.Transport()))
	if err != nil {
		log.Fatal(err)
	}
	return vault
}

// A service opens its vault and runs an engine on it, which continues the plans that an earlier process left.
// Package engine has more examples.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := account()
	before := openExample(ctx, server) // a process that died when it had begun a plan
	plan := hello("world")
	check(before.Create(ctx, plan))
	plan.State.Status = workflow.Running
	check(before.UpdatePlan(ctx, plan))

	reg := registry.Must(engine.Func("greet", func(_ context.Context, _ engine.Call, req greetRequest) (greetResponse, error) {
		fmt.Println("hello", req.Whom)
		return greetResponse{"hello " + req.Whom}, nil
	}))
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), reg, azblob.WithTransport(server.Transport()))
	check(err)
	defer vault.Close(ctx)
	e, err := engine.New(vault, reg, engine.Options{UntilIdle: true})
	check(err)
	check(e.Run(ctx))
	plan, err = vault.Read(ctx, plan.ID)
	check(err)
	fmt.Println(plan.State.Status)
	// Output:
	// hello world
	// Completed
}

// The outcome of an update is unknown when its context ends while it is under way. Storing the same object
// again settles it: here the vault finds that its first write took effect.
func ExampleVault_UpdateAction_unknown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := account()
	vault := openExample(ctx, server)
	defer vault.Close(ctx)
	plan := hello("world")
	check(vault.Create(ctx, plan))
	plan.State.Status = workflow.Running
	check(vault.UpdatePlan(ctx, plan))

	impatient, giveUp := context.WithCancel(ctx)
	server.Inject(emulator.On(emulator.PutBlob).Where(func(emulator.Request) bool { giveUp(); return true }).Nth(1).Do(emulator.Silence().Applied()))
	action := plan.Blocks[0].Sequences[0].Actions[0]
	action.State.Status = workflow.Running
	err := vault.UpdateAction(impatient, action)
	fmt.Println(errors.Is(err, storage.ErrUnknown), errors.Is(err, context.Canceled))
	fmt.Println(vault.UpdateAction(ctx, action))
	// Output:
	// true true
	// <nil>
}

// An engine stores the sub-objects of a plan as they progress, and the plan last.
func ExampleVault_UpdatePlan() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	plan := hello("world")
	check(vault.Create(ctx, plan))

	plan.State.Status, plan.State.Start = workflow.Running, time.Now()
	check(vault.UpdatePlan(ctx, plan)) // before any sub-object

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

// Two writers have the same version. The second one gets ErrConflict.
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

	mine, err = vault.Read(ctx, plan.ID) // and decide anew
	check(err)
	fmt.Println(mine.State.Status)
	// Output:
	// true
	// Running
}

// A web page shows pages of plans. Each page starts below the last plan of the previous one.
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

// Count takes the filters of Search. Here it counts the deployments that failed this month.
func ExampleVault_Count() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	now := time.Now()
	for i, name := range []string{"deploy west", "deploy east", "test"} {
		plan := &workflow.Plan{Name: name}
		check(vault.Create(ctx, plan))
		plan.State.Status, plan.State.End = workflow.Failed, now.Add(time.Duration(i)*time.Minute)
		check(vault.UpdatePlan(ctx, plan))
	}
	n, err := vault.Count(ctx, storage.Filters{
		NamePrefix: "deploy ",
		ByStatus:   []workflow.Status{workflow.Failed, workflow.Stopped},
		EndedAfter: now.AddDate(0, -1, 0),
	})
	fmt.Println(n, err)
	all, err := vault.Count(ctx, storage.Filters{})
	fmt.Println(all, err)
	// Output:
	// 2 <nil>
	// 3 <nil>
}

// Check reads everything and reports what is broken. Repair reports what it did.
func ExampleVault_Check() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)
	check(vault.Create(ctx, hello("world")))

	report, err := vault.Check(ctx, azblob.CheckOptions{})
	check(err)
	fmt.Println(report.Plans, "plan,", report.Blobs, "blobs,", len(report.Problems), "problems")
	recovered, err := vault.Repair(ctx, azblob.RepairOptions{DryRun: true})
	check(err)
	fmt.Println(recovered.Open, "open,", len(recovered.Plans), "to mend")
	// Output:
	// 1 plan, 6 blobs, 0 problems
	// 1 open, 0 to mend
}

// An emulator in the process tests an engine against any fault. Here the answer to the commit of a plan is
// lost.
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

// An observer sees each call of a method, also those that fail, and what they cost.
func ExampleObserver() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := emulator.New()
	observer := azblob.Observer{
		OperationStart: func(ctx context.Context, op azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
			// The context that is returned is used for all requests of the method, so it may have a span.
			return ctx, func(e azblob.OperationEnd) { fmt.Println(e.Name, e.Outcome, e.Requests, "requests") }
		},
	}
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), nil,
		azblob.WithTransport(server.Transport()), azblob.WithObserver(observer))
	check(err)
	plan := &workflow.Plan{Name: "empty"}
	check(vault.Create(ctx, plan))
	check(vault.Delete(ctx, plan.ID))
	err = vault.Delete(ctx, plan.ID) // it is not there, and the observer sees that too
	fmt.Println(errors.Is(err, storage.ErrNotFound))
	// Output:
	// Create ok 4 requests
	// Delete ok 5 requests
	// Delete not_found 5 requests
	// true
}

// Several observers see the same events: here one logs what deserves attention, and one counts writes.
func ExampleTee() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := emulator.New()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var writes atomic.Int64
	observer := azblob.Tee(azblob.LogObserver(logger), azblob.Observer{
		Request: func(_ context.Context, e azblob.RequestEvent) {
			if e.Class == azblob.ClassWrite {
				writes.Add(1)
			}
		},
	})
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), nil,
		azblob.WithTransport(server.Transport()), azblob.WithObserver(observer))
	check(err)
	check(vault.Create(ctx, hello("world"))) // an entry, a marker, an object, and three sub-objects
	check(vault.Close(ctx))
	fmt.Println(writes.Load(), "writes")
	// Output: 6 writes
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
