package engine_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// Greet is the request of the plugin, and Greeting its response.
type (
	Greet    struct{ Whom string }
	Greeting struct{ Said string }
)

// greet is a plugin. An action may run more than once; call.Action would tell the other side.
var greet = engine.Task("greet", func(_ context.Context, _ engine.Call, g Greet) (Greeting, error) {
	return Greeting{"hello " + g.Whom}, nil
})

// A program submits a plan and runs it. If the process dies on the way, its next start runs the rest.
func Example() {
	ctx := context.Background()
	reg := registry.Must(greet)
	vault := memvault.NewStore().Open(reg, memvault.Options{}) // a service opens an azblob.Vault
	e, err := engine.New(vault, engine.Options{UntilIdle: true})
	check(err)
	action := greet.Action("say hello", Greet{"world"})
	plan := &workflow.Plan{Name: "hello", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}}
	submitted, err := e.Submit(ctx, plan)
	check(err)
	check(e.Run(ctx))
	plan, err = submitted.Wait(ctx)
	check(err)
	fmt.Println(plan.State.Status, plan.Blocks[0].Sequences[0].Actions[0].Attempts[0].Resp.(Greeting).Said)
	// Output: Completed hello world
}

// A program submits a plan and waits until it is final. The engine that runs it may be in any process on the vault.
func ExampleEngine_Submit() {
	ctx, shutdown := context.WithCancel(context.Background())
	vault := memvault.New(registry.Must(greet), memvault.Options{})
	e, err := engine.New(vault, engine.Options{})
	check(err)
	var running sync.WaitGroup
	running.Go(func() { check(e.Run(ctx)) })

	action := greet.Action("say hello", Greet{"world"})
	submitted, err := e.Submit(ctx, &workflow.Plan{Name: "hello", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}})
	check(err)
	plan, err := submitted.Wait(ctx)
	check(err)
	fmt.Println(plan.State.Status, plan.Blocks[0].Sequences[0].Actions[0].Attempts[0].Resp.(Greeting).Said)
	shutdown()
	running.Wait()
	// Output: Completed hello world
}

// A service runs an engine until it is told to end. Other goroutines, and other processes on the same vault,
// submit plans. An observer logs what happens.
func ExampleEngine_Run() {
	ctx, shutdown := context.WithCancel(context.Background())
	reg := registry.Must(greet)
	var vault storage.Vault = memvault.NewStore().Open(reg, memvault.Options{})
	e, err := engine.New(vault, engine.Options{
		Poll: 10 * time.Millisecond,
		Observer: engine.Observer{
			Changed: func(_ context.Context, e engine.ChangedEvent) {
				if p, ok := e.Object.(*workflow.Plan); ok {
					fmt.Println(p.Name, "is", p.State.Status)
				}
				if e.Object.Kind() == workflow.KindPlan && e.Object.Header().State.Status.Final() {
					shutdown() // a service ends at a signal
				}
			},
			Left: func(_ context.Context, e engine.LeftEvent) {
				log.Printf("plan %s waits for the next start: %v", e.Plan, e.Err)
			},
			Problem: func(_ context.Context, e engine.ProblemEvent) { log.Print(e.Err) },
		},
	})
	check(err)
	action := greet.Action("say hello", Greet{"world"})
	plan := &workflow.Plan{Name: "hello", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}}
	if err := vault.Create(ctx, plan); err != nil { // as another process does
		log.Fatal(err)
	}
	check(e.Run(ctx))
	check(vault.Close(context.Background()))
	// Output:
	// hello is Running
	// hello is Completed
}

// Two engines share a vault. Each runs in a process of its own, on a vault of its own; one of them claims the
// plan. If it died, the other one would take the plan over, with the epoch 2.
func ExampleOptions_fleet() {
	ctx := context.Background()
	reg := registry.Must(greet)
	store := memvault.NewStore()
	action := greet.Action("say hello", Greet{"world"})
	plan := &workflow.Plan{Name: "hello", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}}
	check(store.Open(reg, memvault.Options{}).Create(ctx, plan))
	var engines sync.WaitGroup
	for _, host := range []string{"host-1", "host-2"} {
		engines.Go(func() {
			e, err := engine.New(store.Open(reg, memvault.Options{}), engine.Options{
				Fleet:     &fleet.Options{Name: host},
				UntilIdle: true, Poll: 10 * time.Millisecond, // a service runs until a signal
			})
			check(err)
			check(e.Run(ctx))
		})
	}
	engines.Wait()
	plan, err := store.Open(reg, memvault.Options{}).Read(ctx, plan.ID)
	check(err)
	fmt.Println(plan.State.Status, "in epoch", plan.Epoch)
	// Output: Completed in epoch 1
}

// Status says what a plan does, on whichever node it runs.
func ExampleEngine_Status() {
	ctx := context.Background()
	started, goOn := make(chan bool), make(chan bool)
	work := engine.Task("work", func(context.Context, engine.Call, string) (string, error) {
		started <- true
		<-goOn
		return "done", nil
	})
	e, err := engine.New(memvault.New(registry.Must(work), memvault.Options{}), engine.Options{UntilIdle: true})
	check(err)
	plan := &workflow.Plan{Blocks: []*workflow.Block{{Name: "kitchen", Sequences: []*workflow.Sequence{{Name: "stove", Actions: []*workflow.Action{work.Action("cook", "")}}}}}}
	submitted, err := e.Submit(ctx, plan)
	check(err)
	show := func() {
		status, err := e.Status(ctx, submitted.ID()) // or submitted.Status
		check(err)
		fmt.Printf("%s: %d of %d actions done %s\n", status.Plan.State.Status, status.Done, status.Actions, status.Doing())
	}
	go func() { <-started; show(); close(goOn) }()
	check(e.Run(ctx))
	show()
	// Output:
	// Running: 0 of 1 actions done kitchen/stove/cook
	// Completed: 1 of 1 actions done
}

// Stop ends a plan. Its running actions finish, and its deferred actions run.
func ExampleEngine_Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	started := make(chan uuid.UUID, 1)
	reg := registry.Must(engine.Task("work", func(ctx context.Context, call engine.Call, _ struct{}) (string, error) {
		started <- call.Plan
		<-ctx.Done() // the end of the attempt's timeout
		return "", ctx.Err()
	}))
	e, err := engine.New(memvault.NewStore().Open(reg, memvault.Options{}), engine.Options{UntilIdle: true, Timeout: 100 * time.Millisecond, Observer: engine.Observer{
		Changed: func(_ context.Context, e engine.ChangedEvent) {
			if p, ok := e.Object.(*workflow.Plan); ok && p.State.Status.Final() {
				fmt.Println(p.State.Status, p.Reason)
			}
		},
	}})
	check(err)
	action := &workflow.Action{Name: "work", Plugin: "work", Retries: 1000}
	_, err = e.Submit(ctx, &workflow.Plan{Name: "endless", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}})
	check(err)
	go func() {
		if err := e.Stop(ctx, <-started, asked); err != nil {
			log.Print(err)
		}
	}()
	check(e.Run(ctx))
	// Output: Stopped StopRequested
}

// A service tells its user when a plan has ended, whichever of its processes ends it. The plan's ID is the idempotency key.
func ExampleOptions_ended() {
	ctx := context.Background()
	e, err := engine.New(memvault.New(registry.Must(greet), memvault.Options{}), engine.Options{
		UntilIdle: true,
		Ended: func(_ context.Context, plan *workflow.Plan) error {
			_, err := fmt.Println("mail:", plan.Name, "is", plan.State.Status) // an error makes the engine call again
			return err
		},
	})
	check(err)
	action := greet.Action("say hello", Greet{"world"})
	_, err = e.Submit(ctx, &workflow.Plan{Name: "order 7", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}})
	check(err)
	check(e.Run(ctx))
	// Output: mail: order 7 is Completed
}

type deployer struct{ target string }

type release struct{ Version string }

func (d deployer) Run(_ context.Context, call engine.Call, r release) (string, error) {
	return fmt.Sprintf("%s runs %s (attempt %d, epoch %d)", d.target, r.Version, call.Attempt, call.Epoch), nil
}

// A method of a value that holds what the plugin needs is a plugin too.
func ExampleTask() {
	plugin := engine.Task("deploy", deployer{"production"}.Run)
	resp, err := plugin.Run(context.Background(), engine.Call{Attempt: 1, Epoch: 7}, release{"v2"})
	fmt.Println(plugin.Name(), "says:", resp, err)
	// Output: deploy says: production runs v2 (attempt 1, epoch 7) <nil>
}

type login struct {
	User     string
	Password string `vault:"secret"`
}

// A field with the tag vault:"secret" is stored, and shown nowhere: not by the tool, and not in a failure that quotes it.
func ExampleTask_secret() {
	plugin := engine.Task("log in", func(_ context.Context, _ engine.Call, l login) (string, error) {
		return "", fmt.Errorf("%s can't log in with %q", l.User, l.Password)
	})
	reg := registry.Must(plugin)
	fmt.Println("fields without a tag:", reg.Untagged())
	action := plugin.Action("log in", login{"ana", "correct horse"})
	e, err := engine.New(memvault.New(reg, memvault.Options{}), engine.Options{UntilIdle: true, Observer: engine.Observer{
		Changed: func(_ context.Context, e engine.ChangedEvent) {
			if a, ok := e.Object.(*workflow.Action); ok && a.State.Status == workflow.Failed {
				fmt.Printf("%s: %s\n", a.Redacted().Req, a.Attempts[0].Err)
			}
		},
	}})
	check(err)
	_, err = e.Submit(context.Background(), &workflow.Plan{Name: "secret", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}})
	check(err)
	check(e.Run(context.Background()))
	// Output:
	// fields without a tag: []
	// {"User":"ana","Password":"(secret)"}: ana can't log in with "(secret)"
}

// An action uses what an earlier one of its plan has returned.
func ExampleTypedPlugin_Result() {
	order := engine.Task("order", func(context.Context, engine.Call, string) (int, error) { return 7, nil })
	ship := engine.Task("ship", func(_ context.Context, call engine.Call, goods string) (string, error) {
		number, err := order.Result(call, "order goods")
		return fmt.Sprintf("shipped %s of order %d", goods, number), err
	})
	vault := memvault.New(registry.Must(order, ship), memvault.Options{})
	e, err := engine.New(vault, engine.Options{UntilIdle: true})
	check(err)
	actions := []*workflow.Action{order.Action("order goods", "tea"), ship.Action("ship goods", "tea")}
	plan := &workflow.Plan{Name: "buy", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: actions}}}}}
	submitted, err := e.Submit(context.Background(), plan)
	check(err)
	check(e.Run(context.Background()))
	plan, err = submitted.Wait(context.Background())
	check(err)
	fmt.Println(plan.Blocks[0].Sequences[0].Actions[1].Attempts[0].Resp)
	// Output: shipped tea of order 7
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
