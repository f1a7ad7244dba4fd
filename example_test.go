package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// greet is a plugin. A vault needs only its name and its types.
type greet struct{}

type greetRequest struct{ Whom string }

type greetResponse struct{ Said string }

func (greet) Name() string  { return "greet" }
func (greet) Request() any  { return greetRequest{} }
func (greet) Response() any { return greetResponse{} }

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

// act performs an action. It may be called twice with the same ID, which lets the other side recognise the
// repetition.
type act func(ctx context.Context, action *workflow.Action) (response any, err error)

// sayHello performs the actions of the examples.
func sayHello(_ context.Context, action *workflow.Action) (any, error) {
	said := "hello " + action.Req.(greetRequest).Whom
	fmt.Println(said)
	return greetResponse{said}, nil
}

// runPlan runs a plan from its current state to its end. It stores each object as Running before any work on
// it starts, and stores each result before anything depends on it. Checks, retries and failures of actions
// are left out.
func runPlan(ctx context.Context, vault storage.Updater, plan *workflow.Plan, do act) error {
	if err := begin(ctx, vault, plan); err != nil {
		return err
	}
	for _, block := range plan.Blocks {
		if err := begin(ctx, vault, block); err != nil {
			return err
		}
		for _, sequence := range block.Sequences {
			if err := begin(ctx, vault, sequence); err != nil {
				return err
			}
			for _, action := range sequence.Actions {
				if err := runAction(ctx, vault, action, do); err != nil {
					return err
				}
			}
			if err := end(ctx, vault, sequence); err != nil {
				return err
			}
		}
		if err := end(ctx, vault, block); err != nil {
			return err
		}
	}
	return end(ctx, vault, plan)
}

// runAction runs an action that has not ended. An action that is Running may have been done already, and is
// done again.
func runAction(ctx context.Context, vault storage.Updater, action *workflow.Action, do act) error {
	if action.State.Status.Final() {
		return nil
	}
	if err := begin(ctx, vault, action); err != nil {
		return err
	}
	attempt := workflow.Attempt{Start: time.Now()}
	response, err := do(ctx, action)
	if err != nil {
		return err // it stays Running, and whoever goes on does it again
	}
	attempt.Resp, attempt.End = response, time.Now()
	action.Attempts = append(action.Attempts, attempt)
	return end(ctx, vault, action)
}

func begin(ctx context.Context, vault storage.Updater, o workflow.Object) error {
	state := o.Header().State
	if err := ctx.Err(); err != nil || state.Status != workflow.NotStarted {
		return err
	}
	state.Status, state.Start = workflow.Running, time.Now()
	return save(ctx, vault, o)
}

func end(ctx context.Context, vault storage.Updater, o workflow.Object) error {
	state := o.Header().State
	if state.Status.Final() {
		return nil
	}
	state.Status, state.End = workflow.Completed, time.Now()
	return save(ctx, vault, o)
}

// save stores an object, even while a shutdown ends ctx. It repeats a call with an unknown outcome. It
// returns a conflict to the caller, because another engine has the plan.
func save(ctx context.Context, vault storage.Updater, o workflow.Object) (err error) {
	for range 3 {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		err = storage.Update(limited, vault, o)
		cancel()
		if !errors.Is(err, storage.ErrUnknown) {
			break
		}
	}
	return err
}

// A service starts. It opens its vault, runs Recovery, finds the open plans, and continues each where it
// stopped.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := account()

	before := openExample(ctx, server) // an engine that is killed in the middle of the first plan's action
	first, second := hello("world"), hello("moon")
	check(before.Create(ctx, first))
	check(before.Create(ctx, second))
	killed := errors.New("killed")
	err := runPlan(ctx, before, first, func(context.Context, *workflow.Action) (any, error) { return nil, killed })
	fmt.Println(err)

	vault := openExample(ctx, server) // the engine again
	defer vault.Close(ctx)
	if err := vault.Recovery(ctx); err != nil {
		log.Print(err) // what can't be mended does not keep the rest from going on
	}
	for _, status := range []workflow.Status{workflow.Running, workflow.NotStarted} { // what was begun comes first
		open, err := vault.Search(ctx, storage.Filters{ByStatus: []workflow.Status{status}})
		check(err)
		for found := range open {
			if found.Err != nil {
				log.Print(found.Err) // one plan that can't be read
				continue
			}
			plan, err := vault.Read(ctx, found.Result.ID)
			if err != nil {
				log.Print(err)
				continue
			}
			fmt.Printf("%s is %s, its action %s\n", plan.Name, plan.State.Status, plan.Blocks[0].Sequences[0].Actions[0].State.Status)
			check(runPlan(ctx, vault, plan, sayHello))
		}
	}
	// Output:
	// killed
	// hello world is Running, its action Running
	// hello world
	// hello moon is NotStarted, its action NotStarted
	// hello moon
}

// An engine runs a plan. It stores the state before and after each action, so that a later engine knows which
// actions have started and which are done. Another engine with an older version gets ErrConflict and stops.
func Example_running() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := account()
	vault := openExample(ctx, server)
	defer vault.Close(ctx)
	plan := hello("world")
	check(vault.Create(ctx, plan))
	other, err := vault.Read(ctx, plan.ID)
	check(err)

	check(runPlan(ctx, vault, plan, func(ctx context.Context, action *workflow.Action) (any, error) {
		stored, err := vault.Read(ctx, plan.ID)
		check(err)
		fmt.Println("while it runs:", stored.State.Status, stored.Blocks[0].Sequences[0].Actions[0].State.Status)
		return sayHello(ctx, action)
	}))
	stored, err := vault.Read(ctx, plan.ID)
	check(err)
	fmt.Println("at its end:", stored.State.Status, stored.Blocks[0].Sequences[0].Actions[0].State.Status)

	err = runPlan(ctx, vault, other, sayHello)
	fmt.Println("the other one:", errors.Is(err, storage.ErrConflict))
	// Output:
	// while it runs: Running Running
	// hello world
	// at its end: Completed Completed
	// the other one: true
}

// A service shuts down. It accepts no new work, waits for the work under way, and closes the vault, each with
// a deadline. Unfinished work is Running in the vault for the next start.
func Example_shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := account()
	vault := openExample(ctx, server)
	plan := hello("world")
	check(vault.Create(ctx, plan))

	working, stop := context.WithCancel(ctx) // signal.NotifyContext(ctx, syscall.SIGTERM), and no new plans once it ends
	begun := make(chan struct{})
	var runs sync.WaitGroup
	runs.Go(func() {
		err := runPlan(working, vault, plan, func(ctx context.Context, _ *workflow.Action) (any, error) {
			close(begun)
			<-ctx.Done() // a long action
			return nil, ctx.Err()
		})
		fmt.Println("run:", err)
	})
	<-begun
	stop()
	runs.Wait() // updates under way have come to their ends, too

	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("closed:", vault.Close(closing))
	fmt.Println("later calls are refused:", errors.Is(vault.UpdatePlan(ctx, plan), storage.ErrClosed))

	next := openExample(ctx, server)
	defer next.Close(ctx)
	plan, err := next.Read(ctx, plan.ID)
	check(err)
	fmt.Println(plan.Blocks[0].Sequences[0].Actions[0].State.Status)
	check(runPlan(ctx, next, plan, sayHello))
	// Output:
	// run: context canceled
	// closed: <nil>
	// later calls are refused: true
	// Running
	// hello world
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

// Check reads everything and reports what is broken. Recover reports what it did.
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

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
