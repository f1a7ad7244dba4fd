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

	"github.com/planvault/azblob/internal/settings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/google/uuid"

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
	greeting := &workflow.Action{Name: "greet", Plugin: "greet", Timeout: time.Minute, Req: greetRequest{whom}}
	return &workflow.Plan{
		Name:   "hello " + whom,
		Blocks: []*workflow.Block{{Name: "greetings", Sequences: []*workflow.Sequence{{Name: "one", Actions: []*workflow.Action{greeting}}}}},
	}
}

// openExample opens a vault in an account. A service calls azblob.New with its endpoint and a credential.
func openExample(server *emulator.Server, opts azblob.Options) (context.Context, *azblob.Vault) {
	ctx := context.Background()
	opts.ClientOptions = server.ClientOptions()
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), registry.Must(greet), opts)
	check(err)
	return ctx, vault
}

// example opens a vault in a new account, which is an emulator in this process.
func example() (context.Context, *azblob.Vault) {
	return openExample(emulator.New(emulator.Options{}), azblob.Options{})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A service opens its vault and runs an engine on it, which continues the plans that an earlier process left.
// Package engine has more examples.
func Example() {
	server := emulator.New(emulator.Options{})
	ctx, before := openExample(server, azblob.Options{}) // a process that died when it had begun a plan
	plan := hello("world")
	check(before.Create(ctx, plan))
	plan.State.Status, plan.Alone = workflow.Running, true
	check(before.UpdatePlan(ctx, plan))

	reg := registry.Must(engine.Task("greet", func(_ context.Context, _ engine.Call, req greetRequest) (greetResponse, error) {
		fmt.Println("hello", req.Whom)
		return greetResponse{"hello " + req.Whom}, nil
	}))
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), reg, settings.Over(server.Transport()))
	check(err)
	defer vault.Close(ctx)
	e, err := engine.New(vault, engine.Options{UntilIdle: true})
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
	server := emulator.New(emulator.Options{})
	ctx, vault := openExample(server, azblob.Options{})
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
	ctx, vault := example()
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
	ctx, vault := example()
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
	ctx, vault := example()
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
	ctx, vault := example()
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
func ExampleAdmin_Check() {
	ctx, vault := example()
	defer vault.Close(ctx)
	check(vault.Create(ctx, hello("world")))

	report, err := vault.Admin().Check(ctx, azblob.CheckOptions{})
	check(err)
	fmt.Println(report.Plans, "plan,", report.Blobs, "blobs,", len(report.Problems), "problems")
	recovered, err := vault.Admin().Repair(ctx, azblob.RepairOptions{DryRun: true})
	check(err)
	fmt.Println(recovered.Open, "open,", len(recovered.Plans), "to mend")
	// Output:
	// 1 plan, 6 blobs, 0 problems
	// 1 open, 0 to mend
}

// An emulator in the process tests an engine against any fault. Here the answer to the commit of a plan is
// lost.
func ExampleNewFromConnectionString() {
	ctx := context.Background()
	server := emulator.New(emulator.Options{})
	server.Inject(emulator.On(emulator.PutBlob).Path("plans/*-object.json").Nth(1).Do(emulator.LostAnswer()))
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", server.ConnectionString(), nil, azblob.Options{ClientOptions: server.ClientOptions()})
	check(err)
	fmt.Println(vault.Create(ctx, hello("world")))
	// Output:
	// <nil>
}

// An observer sees each call of a method, also those that fail, and what they cost.
func ExampleObserver() {
	observer := azblob.Observer{
		OperationStart: func(ctx context.Context, op azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
			// The context that is returned is used for all requests of the method, so it may have a span.
			return ctx, func(e azblob.OperationEnd) { fmt.Println(e.Name, e.Outcome, e.Requests, "requests") }
		},
	}
	ctx, vault := openExample(emulator.New(emulator.Options{}), azblob.Options{Observer: observer})
	plan := &workflow.Plan{Name: "empty"}
	check(vault.Create(ctx, plan))
	check(vault.Delete(ctx, plan.ID))
	err := vault.Delete(ctx, plan.ID) // it is not there, and the observer sees that too
	fmt.Println(errors.Is(err, storage.ErrNotFound))
	// Output:
	// Create ok 4 requests
	// Delete ok 7 requests
	// Delete not_found 7 requests
	// true
}

// Several observers see the same events: here one logs what deserves attention, and one counts writes.
func ExampleTee() {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var writes atomic.Int64
	observer := azblob.Tee(azblob.LogObserver(logger), azblob.Observer{
		Request: func(_ context.Context, e azblob.RequestEvent) {
			if e.Class == azblob.ClassWrite {
				writes.Add(1)
			}
		},
	})
	ctx, vault := openExample(emulator.New(emulator.Options{}), azblob.Options{Observer: observer})
	check(vault.Create(ctx, hello("world"))) // an entry, a marker, an object, and three sub-objects
	check(vault.Close(ctx))
	fmt.Println(writes.Load(), "writes")
	// Output: 6 writes
}

// On Kubernetes with workload identity, the webhook of the cluster gives the pod its client, its tenant and
// the file of its token in environment variables, which the credential reads. The service account must be
// federated with the identity, and the pod needs the label azure.workload.identity/use: "true". Use one
// credential for all vaults of a process: it keeps tokens, and renews them.
func ExampleNew_workloadIdentity() {
	ctx := context.Background()
	cred, err := azidentity.NewWorkloadIdentityCredential(nil)
	check(err)
	vault, err := azblob.New(ctx, "my-cluster", "https://account.blob.core.windows.net", cred, nil, azblob.Options{})
	check(err)
	defer vault.Close(ctx)
	_, err = vault.Ping(ctx, azblob.PingOptions{Writes: true})
	check(err) // for example: give the identity the role Storage Blob Data Contributor on the account
}

// A URL with a shared access signature is a secret: it comes from a file or a secret store, not from the
// code.
func ExampleNewFromURL() {
	ctx := context.Background()
	url, err := os.ReadFile("/var/run/secrets/vault-url")
	check(err)
	vault, err := azblob.NewFromURL(ctx, "my-cluster", string(url), nil, azblob.Options{})
	check(err)
	defer vault.Close(ctx)
}

// A service pings its vault before it accepts work, and in its readiness check.
func ExampleVault_Ping() {
	ctx, vault := example()
	defer vault.Close(ctx)

	report, err := vault.Ping(ctx, azblob.PingOptions{Writes: true})
	check(err)
	if report.Skew.Abs() > time.Minute {
		fmt.Println("the clock is off by", report.Skew)
	}
	fmt.Println("writable:", report.Writable)
	// Output:
	// writable: true
}

// A report of an account says what is known about it, and why other things are not.
func ExampleAdmin_Account() {
	ctx, vault := example()
	defer vault.Close(ctx)

	report, err := vault.Admin().Account(ctx)
	check(err)
	fmt.Printf("%v, %v, hierarchical namespace: %v\n", report.Kind, report.SKU, report.Hierarchical)
	if why := report.Unknown["Versioning"]; why != nil {
		fmt.Println("versioning:", why)
	}

	// Output:
	// StorageV2, Standard_LRS, hierarchical namespace: false
	// versioning: not found: the newest day has no blob to look at
}

// An operator who has mistyped a prefix looks for those that the account has.
func ExampleAdmin_Prefixes() {
	ctx, vault := example()
	defer vault.Close(ctx)
	check(vault.Create(ctx, hello("world")))

	found, err := vault.Admin().Prefixes(ctx)
	check(err)
	for _, p := range found {
		fmt.Printf("%s: %d day\n", p.Prefix, p.Days)
	}
	// Output:
	// my-cluster: 1 day
}

// A plan that ran is restored into another prefix, with its IDs and states. Restore refuses an ID that is taken.
func ExampleVault_Restore() {
	ctx, vault := example()
	defer vault.Close(ctx)
	plan := hello("world")
	check(vault.Create(ctx, plan))
	plan.State.Status = workflow.Stopped
	check(vault.UpdatePlan(ctx, plan))

	_, other := example()
	defer other.Close(ctx)
	fmt.Println(other.Restore(ctx, plan))
	restored, err := other.Read(ctx, plan.ID)
	check(err)
	fmt.Println(restored.ID == plan.ID, restored.State.Status)
	fmt.Println(errors.Is(other.Restore(ctx, restored), storage.ErrExists))
	// Output:
	// <nil>
	// true Stopped
	// true
}

// The numbers of plans by day, newest day first, and what it takes to store them.
func ExampleAdmin_Stats() {
	ctx, vault := example()
	defer vault.Close(ctx)
	addPast(vault, uuid.Nil, ago(5), workflow.Completed)
	addPast(vault, uuid.Nil, ago(4), workflow.Completed, workflow.Failed)

	days, err := vault.Admin().Stats(ctx, azblob.StatsOptions{Bytes: true})
	check(err)
	for day := range days {
		check(day.Err)
		fmt.Println(day.Result.Total(), "plans, failed:", day.Result.Plans[workflow.Failed], "blobs:", day.Result.Blobs)
	}
	// Output:
	// 2 plans, failed: 1 blobs: 4
	// 1 plans, failed: 0 blobs: 2
}

// A daily job builds the catalogues of the days that have been closed since it last ran, and then drops the days
// that are older than 90 days. It reports the days that it had to skip.
func ExampleAdmin_Expire() {
	ctx, vault := example()
	defer vault.Close(ctx)
	addPast(vault, uuid.Nil, ago(120), workflow.Completed)
	addPast(vault, uuid.Nil, ago(110), workflow.Running)
	addPast(vault, uuid.Nil, ago(5), workflow.Completed)

	report, err := vault.Admin().Catalogue(ctx, azblob.CatalogueOptions{})
	check(err)
	fmt.Println(report.Past, "past days,", len(report.Built), "built,", len(report.Skipped), "skipped")
	expired, err := vault.Admin().Expire(ctx, azblob.ExpireOptions{OlderThanDays: 90, By: workflow.Attribution{By: "nightly job"}})
	check(err)
	for _, day := range expired.Days {
		fmt.Println(day.Result, day.Open)
	}
	// Output:
	// 3 past days, 2 built, 1 skipped
	// dropped 0
	// open 1
}

// A held day keeps its plans until it is released.
func ExampleAdmin_Hold() {
	ctx, vault := example()
	defer vault.Close(ctx)
	day := storage.Day{Year: 2026, Month: time.March, Day: 1}
	plan := &workflow.Plan{Name: "evidence", ID: workflow.NewV7At(day.Start().Add(time.Hour))}
	check(vault.Create(ctx, plan))

	by := workflow.Attribution{By: "ana@example.com", Why: "case 4711"}
	check(vault.Admin().Hold(ctx, day, by))
	held, err := vault.Admin().Holds(ctx)
	check(err)
	fmt.Println(held[0])
	fmt.Println(errors.Is(vault.Delete(ctx, plan.ID), storage.ErrHeld))
	check(vault.Admin().Release(ctx, day, by))
	fmt.Println(vault.Delete(ctx, plan.ID))
	// Output:
	// 2026-03-01
	// true
	// <nil>
}
