// Command engine is a small durable engine on a vault. It runs plans. If it is killed at any moment, its next
// start continues them.
//
//	go run ./examples/engine                 the built-in plan, on an emulator that keeps its data in a folder
//	go run ./examples/engine -plan FILE      a plan from JSON, such as hello.json
//	go run ./examples/engine -node NAME      beside others with other names, which share the plans
//	go run ./examples/engine -endpoint URL   on an account, with the identity that azidentity finds
//
// The first interrupt lets running actions finish and leaves the plans to the next start. A second interrupt
// ends the process at once. It loses nothing: actions that were running are rerun.
//
// Processes with -node are a fleet: kill one, and the others take its plans over. Without an account they share
// the emulator in the folder of -data. One of them serves it, and if that one is killed, another one does.
//
// The exit code is 0, 1 if a plan was left or is not Completed, or 2 for wrong flags.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/settings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	var c config
	flag.StringVar(&c.data, "data", "engine-data", "`folder` for the files that plans write, and without an account for the emulator's data")
	flag.StringVar(&c.endpoint, "endpoint", "", "keep the plans in an account, at the blob endpoint `URL` like https://account.blob.core.windows.net; signs in with azidentity's DefaultAzureCredential")
	flag.StringVar(&c.connectionString, "connection-string", "", "keep the plans in the account of this connection string (`text`)")
	flag.StringVar(&c.prefix, "prefix", "engine", "`prefix` of the vault's containers; only one engine may work on it at a time, unless all have -node")
	flag.StringVar(&c.planFile, "plan", "", "run the plan in this JSON `file` instead of the built-in one, or continue an open plan of the same name")
	flag.StringVar(&c.node, "node", "", "join the fleet of the processes that share the vault, under this `name`, and release a service of this name")
	flag.Parse()
	if flag.NArg() > 0 || c.endpoint != "" && c.connectionString != "" {
		fmt.Fprintln(os.Stderr, "engine: it takes flags only, and one of -endpoint and -connection-string")
		os.Exit(2)
	}
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

// config holds the values of the flags.
type config struct{ data, endpoint, connectionString, prefix, planFile, node string }

func run(ctx context.Context, c config) error {
	work := filepath.Join(c.data, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	reg := registry.Must(command(work), note(filepath.Join(work, notes)))
	service := cmp.Or(c.node, "service")
	plan := release(service, time.Now().Format("0102.150405"))
	like := "release " + service + " " // an open plan whose name begins with it is continued
	if c.planFile != "" {
		var err error
		if plan, err = readPlan(c.planFile, reg); err != nil {
			return err
		}
		like = plan.Name
	}
	return withVault(ctx, c, reg, func(vault *azblob.Vault) error {
		p := newProgress()
		opts := engine.Options{UntilIdle: c.node == "", Observer: p.observer()}
		if c.node != "" {
			// So short that a takeover can be watched. The defaults cost less.
			opts.Fleet = &fleet.Options{Name: c.node, Interval: time.Second, TTL: 4 * time.Second}
		}
		e, err := engine.New(vault, opts)
		if err != nil {
			return err
		}
		fmt.Printf("to see it survive: kill -9 %d, and then the same command again\n", os.Getpid())
		submit := func(ctx context.Context) error {
			open, err := openPlans(ctx, vault, like)
			// Only nodes run the plans of a node.
			if err != nil || slices.ContainsFunc(open, func(p storage.ListResult) bool { return c.node != "" || p.Owner == uuid.Nil }) {
				return err
			}
			_, err = e.Submit(ctx, plan)
			return err
		}
		if c.node != "" {
			return errors.Join(runNode(ctx, e, vault, p, submit), p.err())
		}
		if err := submit(ctx); err != nil {
			return err
		}
		return errors.Join(e.Run(ctx), p.err())
	})
}

// openPlans returns the plans that are not final and whose names begin with a text.
func openPlans(ctx context.Context, vault *azblob.Vault, prefix string) ([]storage.ListResult, error) {
	return storage.Collect(vault.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}, NamePrefix: prefix}))
}

// readPlan reads a plan from JSON. Its error has a line for each fault.
func readPlan(path string, reg *registry.Register) (*workflow.Plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return workflow.ParsePlan(text, func(plugin string) (any, error) {
		p, found := reg.Plugin(plugin)
		if !found {
			return nil, fmt.Errorf("there is no plugin %q", plugin)
		}
		return p.Request(), nil
	})
}

// withVault opens the vault in the account that the flags name, or else in the folder, and closes it after use.
func withVault(ctx context.Context, c config, reg *registry.Register, use func(*azblob.Vault) error) (err error) {
	opts := []azblob.Options{{Observer: azblob.Observer{Retry: func(_ context.Context, e azblob.RetryEvent) {
		if !errors.Is(e.Err, errMoved) {
			fmt.Printf("%s failed and is tried again: %v\n", e.Name, e.Err)
		}
	}}}}
	if c.endpoint == "" && c.connectionString == "" {
		f, openErr := openFolder(c.data, c.node != "")
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, f.close()) }()
		c.connectionString, opts = emulator.New(emulator.Options{}).ConnectionString(), append(opts, settings.Over(f))
	}
	vault, err := open(ctx, c, reg, opts)
	if err != nil {
		return err
	}
	return errors.Join(use(vault), vault.Close(context.WithoutCancel(ctx)))
}

func open(ctx context.Context, c config, reg *registry.Register, opts []azblob.Options) (*azblob.Vault, error) {
	if c.endpoint == "" {
		return azblob.NewFromConnectionString(ctx, c.prefix, c.connectionString, reg, merge.Fields(opts...))
	}
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return azblob.New(ctx, c.prefix, c.endpoint, cred, reg, merge.Fields(opts...))
}
