package engine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// Transfer is the request of a plugin that checks it.
type Transfer struct {
	To    string
	Cents int
}

// Check names each wrong field.
func (t Transfer) Check() error {
	var errs []error
	if t.To == "" {
		errs = append(errs, &workflow.FieldError{Field: "To", Problem: "is empty"})
	}
	if t.Cents <= 0 {
		errs = append(errs, &workflow.FieldError{Field: "Cents", Problem: fmt.Sprintf("%d is not positive", t.Cents)})
	}
	return errors.Join(errs...)
}

// A plugin refuses bad requests before their plan is stored. A plugin that only looks is the only one that may stand in Checks.
func ExampleTypedPlugin_With() {
	ctx := context.Background()
	transfer := engine.Task("transfer", func(context.Context, engine.Call, Transfer) (string, error) { return "done", nil }).
		With(engine.TaskOptions[Transfer]{Check: Transfer.Check})
	open := engine.Task("bank is open", func(context.Context, engine.Call, string) (string, error) { return "yes", nil }).
		With(engine.TaskOptions[string]{IsCheck: true})
	e, err := engine.New(memvault.New(registry.Must(transfer, open), memvault.Options{}), engine.Options{})
	check(err)

	rent := transfer.Action("pay rent", Transfer{Cents: -1})
	_, err = e.Submit(ctx, &workflow.Plan{
		PreChecks: &workflow.Checks{Actions: []*workflow.Action{open.Action("open", "Main Street"), transfer.Action("try", Transfer{"me", 1})}},
		Blocks:    []*workflow.Block{{Name: "May", Sequences: []*workflow.Sequence{{Name: "home", Actions: []*workflow.Action{rent}}}}},
	})
	fmt.Println(errors.Is(err, storage.ErrInvalid))
	var about *storage.Error
	if errors.As(err, &about) {
		fmt.Println(about.Err)
	}
	// Output:
	// true
	// invalid: PreChecks.Actions[1].Plugin: plugin "transfer" does not say IsCheck: Checks accept only plugins of the registry that do
	// Blocks[0].Sequences[0].Actions[0].Req.To: plugin "transfer" refuses action May/home/pay rent: is empty
	// Blocks[0].Sequences[0].Actions[0].Req.Cents: plugin "transfer" refuses action May/home/pay rent: -1 is not positive
}

// A plugin logs in before plans run, and says how its actions are retried; its error may say when. An action can say otherwise:
// another backoff, or no retries.
func ExampleTaskOptions() {
	ctx := context.Background()
	send := engine.Task("send", func(_ context.Context, call engine.Call, to string) (string, error) {
		if call.Attempt == 1 {
			return "", &plugins.Error{Code: 429, Message: "too many requests", After: 20 * time.Millisecond} // its Retry-After
		}
		return "sent to " + to, nil
	}).With(engine.TaskOptions[string]{
		Retries: 5, Backoff: plugins.Backoff{First: time.Minute, Factor: 1.5, Most: time.Hour, Jitter: 0.2},
		Init: func(context.Context) error { fmt.Println("logged in"); return nil },
	})
	vault := memvault.New(registry.Must(send), memvault.Options{})
	e, err := engine.New(vault, engine.Options{UntilIdle: true})
	check(err)
	mail := send.Action("mail", "ana@example.com")
	once := send.Action("once", "bob@example.com")
	once.NoRetries = true
	plan := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{mail, once}}}}}}
	_, err = e.Submit(ctx, plan)
	check(err)
	check(e.Run(ctx))
	plan, err = vault.Read(ctx, plan.ID)
	check(err)
	for _, a := range plan.Blocks[0].Sequences[0].Actions {
		fmt.Println(a.Name, a.State.Status, len(a.Attempts))
	}
	attempts := plan.Blocks[0].Sequences[0].Actions[0].Attempts
	waited := attempts[1].Start.Sub(attempts[0].End)
	fmt.Println(waited >= 20*time.Millisecond, waited < time.Minute)
	// Output:
	// logged in
	// mail Completed 2
	// once Failed 1
	// true true
}
