package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
)

// process is what a run of the tool has of its process.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	// interactive says that somebody can answer questions.
	interactive bool
	// stdoutIsTerm and stderrIsTerm say that these are terminals: stdout may have colors, and stderr progress.
	stdoutIsTerm, stderrIsTerm bool
	// options are those of each vault that is opened.
	options []azblob.Option
}

// app is one run of the tool. The commands are its methods.
type app struct {
	process
	connection connection
	output     outputForm
	yes, cost  bool

	meter   meter
	vaults  []*azblob.Vault
	running bool // the arguments are right, and the command has begun
}

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitMore        = 3
	exitFound       = 4
	exitInterrupted = 130
)

// exitError is an error with an exit code of its own. A nil err prints nothing: the command has said it.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError returns an error of wrong usage, for what flags alone can't tell.
func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// errFound is the error of a command that worked and printed a bad answer.
var errFound = &exitError{code: exitFound}

// errMore is the error of a command that used its budget up and said so.
var errMore = &exitError{code: exitMore}

// run runs the tool with arguments and returns its exit code.
func run(ctx context.Context, p process, args []string) int {
	a := &app{process: p, output: outputTable, meter: meter{requests: price.Tally{}}}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	err := root.ExecuteContext(ctx)
	a.close(ctx)
	if a.cost && a.running {
		fmt.Fprintln(p.stderr, a.meter.String())
	}
	code := a.exitCode(ctx, err)
	a.explain(code, err)
	return code
}

// exitCode returns the exit code of an error.
func (a *app) exitCode(ctx context.Context, err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &exit):
		return exit.code
	case !a.running, errors.Is(err, storage.ErrInvalid) && a.meter.sent() == 0:
		return exitUsage
	case errors.Is(err, storage.ErrNotFound):
		return exitFound
	}
	return exitFailed
}

// explain prints an error, in one line for each error that was joined.
func (a *app) explain(code int, err error) {
	var exit *exitError
	if err == nil || errors.As(err, &exit) && exit.err == nil {
		return
	}
	if code == exitInterrupted {
		fmt.Fprintln(a.stderr, "planvault: interrupted:", err)
		return
	}
	fmt.Fprintln(a.stderr, "planvault:", err)
	if code == exitUsage && !a.running {
		fmt.Fprintln(a.stderr, "Run planvault help, or the command with --help.")
	}
}

// close closes the vaults. All calls have returned.
func (a *app) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, v := range a.vaults {
		_ = v.Close(ctx)
	}
}

// rootCommand returns the command that has all others.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "planvault",
		Short: "Show the plans of a vault, and keep the vault in order",
		Long: `planvault shows what is in a vault of workflow plans on Azure Blob Storage: which plans are
stuck, who owns them, whether anything is lost, and what it costs. It also repairs, removes,
copies and keeps plans.

No command takes a lock: each is safe beside engines, and beside itself.

To try it without an account:

    planvault emulator &
    planvault list --connection-string UseDevelopmentStorage=true --prefix engine`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	flags := root.PersistentFlags()
	a.connection.addFlags(flags, "")
	flags.Var(&a.output, "output", "write results as `FORM`: table, or json (an object a line)")
	flags.BoolVar(&a.yes, "yes", false, "make bulk changes without asking")
	flags.BoolVar(&a.cost, "cost", false, "print at the end how many requests were sent, and their price")
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "Look at plans:"},
		&cobra.Group{ID: groupPlan, Title: "Change one plan:"},
		&cobra.Group{ID: groupVault, Title: "Keep the vault in order:"},
		&cobra.Group{ID: groupHistory, Title: "History:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		groupLook: {
			a.listCommand(),
		},
		groupPlan:    {},
		groupVault:   {},
		groupHistory: {},
	} {
		for _, c := range commands {
			c.GroupID = group
			a.noteStart(c)
			root.AddCommand(c)
		}
	}
	return root
}

// The groups of commands in the help.
const (
	groupLook    = "look"
	groupPlan    = "plan"
	groupVault   = "vault"
	groupHistory = "history"
)

// noteStart lets a command, and those below it, note that it has begun.
func (a *app) noteStart(c *cobra.Command) {
	if act := c.RunE; act != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			a.running = true
			return act(c, args)
		}
	}
	for _, below := range c.Commands() {
		a.noteStart(below)
	}
}

// vault opens the vault that flags, profile and environment name. It is closed when the run ends.
func (a *app) vault(ctx context.Context) (*azblob.Vault, error) {
	return a.open(ctx, a.connection)
}
