// Command engine is a small durable engine on a vault. It runs plans. If it is killed at any moment, the next
// start continues them.
//
//	go run ./examples/engine                          the built-in plan, on an emulator that keeps its data in a folder
//	go run ./examples/engine -plan FILE               a plan from JSON
//	go run ./examples/engine -fork ID                 what is left of a plan that failed
//	go run ./examples/engine -submit [-plan FILE]     leaves a plan to the running process or to the next one
//	go run ./examples/engine -serve                   waits for plans until an interrupt
//	go run ./examples/engine -node NAME               beside others with other names, which share the plans
//	go run ./examples/engine -endpoint URL            on an account, with the identity that azidentity finds
//	go run ./examples/engine -connection-string TEXT
//
// The first interrupt lets running actions finish and leaves the plans to the next start. A second interrupt
// ends the process at once. It loses nothing: actions that were running are rerun.
//
// Processes with -node are a fleet: kill one, and the others take its plans over. Without an account they share
// the emulator in the folder of -data. One of them serves it, and if that one is killed, another one does. A plan
// that a node has begun waits for nodes, and a plan that a process without -node has begun waits for one.
//
// Only flags choose an account; environment variables don't. NO_COLOR turns colours off.
//
// The exit code is 0, 1 if a plan was left or is not Completed, or 2 for wrong flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/term"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/examples/engine/view"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

const (
	exitDone   = 0
	exitFail   = 1
	exitMisuse = 2
)

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "engine:", err)
		fmt.Fprintln(stderr, "engine: run with -h to see the flags")
		return exitMisuse
	}
	plan := release(newVersion(time.Now()))
	if c.node != "" {
		plan = releaseOf(c.node, newVersion(time.Now()))
	}
	if c.planFile != "" {
		if plan, err = readPlan(c.planFile); err != nil {
			for problem := range strings.Lines(err.Error()) {
				fmt.Fprintf(stderr, "engine: -plan %s: %s\n", c.planFile, strings.TrimSuffix(problem, "\n"))
			}
			return exitMisuse
		}
	}
	v := view.New(stdout, terminal(stdout, getenv))
	v.Plain = getenv("NO_COLOR") != ""
	done, err := work(ctx, c, plan, v, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "engine:", err)
	}
	if err != nil || !done {
		return exitFail
	}
	return exitDone
}

// terminal returns a function that returns the size of the terminal w. It returns nil if w is not a terminal
// that can draw.
func terminal(w io.Writer, getenv func(string) string) func() (width, height int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || getenv("TERM") == "dumb" {
		return nil
	}
	return func() (width, height int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width == 0 || height == 0 {
			return 80, 24
		}
		return width, height
	}
}

// readPlan reads a plan from JSON. Its error has a line for each fault.
func readPlan(path string) (*workflow.Plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return workflow.ParsePlan(text, requestOf)
}

// work opens the vault and does what the flags say. done is false if a plan is not Completed.
func work(ctx context.Context, c config, plan *workflow.Plan, v *view.View, stdout io.Writer) (done bool, err error) {
	o, err := open(ctx, c, v.Say)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	opts := engine.Options{Poll: c.poll, UntilIdle: !c.serve, Observer: v.Observer()}
	if c.node != "" {
		opts.Fleet = &fleet.Options{Name: c.node, Interval: c.interval, TTL: c.ttl, Observer: v.FleetObserver()}
	}
	e, err := engine.New(o.Vault, o.reg, opts)
	if err != nil {
		return false, err
	}
	if c.fork != uuid.Nil {
		if plan, err = forkOf(ctx, o, c.fork); err != nil {
			return false, err
		}
	}
	if c.submit {
		if err := e.Submit(ctx, plan); err != nil {
			return false, err
		}
		fmt.Fprintf(stdout, "submitted plan %s, %q, to %s\n", plan.ID, plan.Name, o.title)
		return true, nil
	}
	if o.beside && c.node == "" {
		return false, fmt.Errorf("another process works on %s: -submit leaves it a plan, -node shares its work, another -data has a vault of its own", c.data)
	}
	v.Say("plans are in " + o.title)
	if c.node == "" {
		v.Say(fmt.Sprintf("to see it survive: kill -9 %d, and then the same command again", os.Getpid()))
	} else {
		v.Say(fmt.Sprintf("to see the others take over: kill -9 %d, while the same command with another name runs beside it", os.Getpid()))
	}
	if err := submitUnlessOpen(ctx, e, o, c, plan); err != nil {
		return false, err
	}
	if c.serve {
		v.Say("waiting for plans, until an interrupt")
	}
	v.Start()
	if c.node != "" {
		defer lookAtFleet(ctx, o.Vault, c.interval, v)()
	}
	err = e.Run(ctx)
	done = v.End()
	switch {
	case err != nil:
	case ctx.Err() != nil && c.node != "":
		fmt.Fprintln(stdout, "interrupted: the other nodes go on from here, or the same command does")
	case ctx.Err() != nil:
		fmt.Fprintln(stdout, "interrupted: the same command goes on from here")
	case done && c.planFile == "" && c.fork == uuid.Nil:
		fmt.Fprintln(stdout, "the same command makes the next release; -plan examples/engine/hello.json runs a plan from a file")
	}
	return done, err
}

// forkOf returns a fork of a plan, with what is left of it.
func forkOf(ctx context.Context, o *opened, id uuid.UUID) (*workflow.Plan, error) {
	plan, err := o.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	fork, err := workflow.Fork(plan)
	if err != nil {
		return nil, fmt.Errorf("fork plan %s: %w", id, err)
	}
	return fork, nil
}

// lookAtFleet shows the members of the fleet and their plans until the returned function is called.
func lookAtFleet(ctx context.Context, store fleet.Store, interval time.Duration, v *view.View) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			roster, err := store.Roster(ctx)
			var running []storage.ListResult
			if err == nil {
				running, err = storage.Collect(store.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.Running}}))
			}
			if err == nil {
				v.Fleet(roster.Members, running)
			}
			select {
			case <-time.After(interval):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
}

// startUp limits the time to search for open plans and to store the new one.
const startUp = 30 * time.Second

// submitUnlessOpen stores the plan, unless the engine continues an earlier one: any open plan instead of the
// built-in plan, an open release of the same service instead of a node's, an open plan of the same name instead
// of a plan from a file, or an open fork of the same plan.
func submitUnlessOpen(ctx context.Context, e *engine.Engine, o *opened, c config, plan *workflow.Plan) error {
	if c.serve && c.planFile == "" && c.fork == uuid.Nil {
		return nil // other processes submit the plans
	}
	// The vault itself would retry much longer, and the endpoint may be wrong.
	ctx, cancel := context.WithTimeoutCause(ctx, startUp, fmt.Errorf("no success within %v: check the account, the network and the identity", startUp))
	defer cancel()
	open, err := o.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
	if err != nil {
		return err
	}
	for found := range open {
		var about *storage.Error
		switch {
		case errors.As(found.Err, &about) && about.Plan != uuid.Nil:
			continue // one unreadable plan, which the engine reports
		case found.Err != nil:
			return found.Err
		}
		name := found.Result.Name
		switch {
		case c.node == "" && found.Result.Owner != uuid.Nil:
			continue // the nodes run it
		case c.fork != uuid.Nil:
			other, err := o.Read(ctx, found.Result.ID)
			if err == nil && other.ForkedFrom == c.fork {
				return nil
			}
			continue // another plan, or one that can't be read
		case c.planFile != "" && name == plan.Name,
			c.planFile == "" && c.node == "",
			c.planFile == "" && strings.HasPrefix(name, "release "+c.node+" "):
			return nil
		}
	}
	return e.Submit(ctx, plan)
}
