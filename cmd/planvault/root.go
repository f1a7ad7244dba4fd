package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine/approve"
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
	// terminalSize returns how many columns and lines the terminal of stdout has.
	terminalSize func() (width, height int)
	// whoami names the user and the machine.
	whoami func() string
	// zone is the local time zone. The default is that of the machine.
	zone *time.Location
	// options are those of each vault that is opened.
	options []azblob.Options
	// transport sends requests that are not a vault's. If it is nil, they are sent over the network.
	transport policy.Transporter
}

// app is one run of the tool. The commands are its methods.
type app struct {
	process
	connection connection
	output     string // outputTable or outputJSON
	times      string
	wide       bool
	yes, cost  bool
	allowEmpty bool
	timeout    time.Duration
	who        who
	args       []string
	told       string                 // the flags of the command, for the log
	login      azcore.TokenCredential // of the last vault that was opened; nil if it has no tokens

	meter   meter
	outage  outage
	vaults  []*azblob.Vault
	places  []string // where the vaults are
	sites   []*site  // the vaults that should have containers
	screen  screen
	reached atomic.Pointer[progress] // how far the command has come
	grace   atomic.Int64             // how long the command may take to return when it is interrupted, if not interruptGrace
	printed bool                     // results were written
	enough  bool                     // nobody reads the results any more
	running atomic.Bool              // the arguments are right, and the command has begun
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
	a := newApp(p)
	err := a.execute(ctx, args)
	a.outage.end()
	a.screen.erase()
	if a.cost && a.running.Load() {
		fmt.Fprintln(a.stderr, a.meter.traffic())
	}
	code := a.exitCode(ctx, err)
	a.explain(code, err)
	return code
}

// newApp returns a run of the tool that has not begun.
func newApp(p process) *app {
	a := &app{process: p, output: outputTable, times: timeUTC, meter: meter{sums: traffic{requests: price.Tally{}}}}
	a.stderr = &oneWriter{w: p.stderr}
	if a.drawsOn(p.stderrIsTerm) {
		a.screen.w = a.stderr
		a.stderr = a.screen.above(a.stderr)
		if p.stdoutIsTerm {
			a.stdout = a.screen.above(p.stdout)
		}
	}
	a.outage.say = func(why error) {
		limit := ""
		if a.timeout > 0 {
			limit = ", up to " + span(a.timeout) + " in all (--timeout)"
		}
		a.complain(fmt.Errorf("waiting for the service%s: %w", limit, why))
	}
	return a
}

// drawsOn reports whether a terminal, if it is one, moves its cursor and shows colors.
func (a *app) drawsOn(isTerm bool) bool { return isTerm && a.getenv("TERM") != "dumb" }

// oneWriter lets one goroutine write at a time: the service may be in trouble while a command writes.
type oneWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneWriter) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

// interruptGrace is how long an interrupted command may take to return.
const interruptGrace = 2 * time.Second

// execute runs the command that the arguments name. An interrupted command that does not return is left alone: it waits
// for something that no context ends, such as a pipe that nobody reads.
func (a *app) execute(ctx context.Context, args []string) error {
	if form := a.getenv("PLANVAULT_OUTPUT"); form != "" {
		if err := a.outputFlag().Set(form); err != nil {
			return usageError("PLANVAULT_OUTPUT: %w", err)
		}
	}
	root := a.rootCommand()
	root.SetArgs(args)
	a.args = args
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		a.close(ctx)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(cmp.Or(time.Duration(a.grace.Load()), interruptGrace))
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return ctx.Err()
	}
}

// exitCode returns the exit code of an error.
func (a *app) exitCode(ctx context.Context, err error) int {
	var exit *exitError
	said := errors.As(err, &exit)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(ctx.Err(), context.Canceled) && (!said || errors.Is(err, context.Canceled)):
		return exitInterrupted
	case said:
		return exit.code
	case !a.running.Load(), errors.Is(err, storage.ErrInvalid) && a.meter.traffic().requests.Total() == 0:
		return exitUsage
	case errors.Is(err, storage.ErrNotFound):
		return exitFound
	}
	return exitFailed
}

// explain prints why the run did not end as it should.
func (a *app) explain(code int, err error) {
	var exit *exitError
	switch {
	case code == exitInterrupted:
		if p := a.reached.Load(); p != nil {
			a.complain(fmt.Errorf("interrupted: %s", p))
		} else {
			a.complain(fmt.Errorf("interrupted: %w", err))
		}
		if why := a.meter.traffic().unanswered; why != nil {
			a.complain(fmt.Errorf("the latest request had no answer: %w", withoutURL(why)))
		}
	case err == nil, errors.As(err, &exit) && exit.err == nil:
	default:
		a.complain(err)
		if code == exitUsage && !a.running.Load() {
			fmt.Fprintln(a.stderr, "Run planvault help, or the command with --help.")
		}
	}
}

// credentials are the values that an argument in the wrong place could bring into an error.
var credentials = regexp.MustCompile(`(?i)(\b(?:sig|AccountKey|SharedAccessSignature)=)[^\s;&"']+`)

// longestError is how many columns of a line of an error are shown: an argument may be of any length.
const longestError = 2000

// complain prints an error on stderr. It prints each error that was joined on a line of its own.
func (a *app) complain(err error) {
	for line := range strings.Lines(storage.Detail(err)) {
		if line = strings.TrimSpace(credentials.ReplaceAllString(line, "${1}…")); line != "" {
			fmt.Fprintln(a.stderr, "planvault:", printable(line, longestError))
		}
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
		Use:               "planvault",
		Short:             "Show the plans of a vault, and keep the vault in order",
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	a.connection.addFlags(flags, "")
	flags.Var(a.outputFlag(), "output", "`FORM` of results: table, or json, an object on each line")
	flags.BoolVar(&a.wide, "wide", false, "show whole IDs and all columns, however wide the terminal is")
	flags.Var(a.timeFlag(), "time", "`FORM` of times in tables: utc, local or relative")
	flags.BoolVar(&a.yes, "yes", false, "make a bulk change without asking")
	flags.BoolVar(&a.cost, "cost", false, "say at the end how many requests were sent, and what they cost")
	flags.BoolVar(&a.allowEmpty, "allow-empty", false, "a vault may have no container, because it is new")
	flags.DurationVar(&a.timeout, "timeout", 0, "end after this `TIME`, such as 30s; 0 is no limit (default 1m for looks, 0 for other commands)")
	root.Version = builtVersion(debug.ReadBuildInfo()).String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.Long, root.Example = helpOf("planvault")
	for _, g := range a.commands() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.title
			a.prepare(c)
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID(theTool)
	root.SetCompletionCommandGroupID(theTool)
	root.AddCommand(a.topics()...)
	refuseUnknownTopics(root)
	a.addCompletion(root)
	return root
}

// group is the commands below a title in the help.
type group struct {
	title    string
	commands []*cobra.Command
}

// theTool is the title of the group that has the commands of cobra.
const theTool = "The tool"

// commands returns all commands.
func (a *app) commands() []group {
	return []group{
		{"Look at plans", []*cobra.Command{
			a.countCommand(), a.getCommand(), a.keysCommand(), a.listCommand(), a.logCommand(), a.nodesCommand(), a.reportCommand(),
			a.showCommand(), a.stuckCommand(), a.vaultsCommand(), a.waitCommand(), a.webCommand(),
		}},
		{"Change one plan", []*cobra.Command{
			a.decisionCommand("approve", "Approve an action that waits for it", approve.Approve),
			a.decisionCommand("reject", "Reject an action that waits for an approval", approve.Reject),
			a.forkCommand(), a.pauseCommand(), a.retryCommand(), a.signalCommand(), a.stopCommand(), a.takeoverCommand(),
		}},
		{"Keep the vault in order", []*cobra.Command{a.checkCommand(), a.doctorCommand(), a.drillCommand(), a.keyCommand(), a.recoverCommand(), a.resumeCommand(), a.statsCommand(), a.suspendCommand()}},
		{"History", []*cobra.Command{
			a.expireCommand(), a.exportCommand(), a.holdCommand(), a.importCommand(),
			a.mirrorCommand(), a.policyCommand(), a.purgeCommand(), a.releaseCommand(), a.switchCommand(),
		}},
		{theTool, []*cobra.Command{a.emulatorCommand(), a.profileCommand(), a.versionCommand()}},
	}
}

// helpWidth is how many columns help takes.
const helpWidth = 100

// prepare gives a command, and those below it, their pages of help, and lets them note that they have begun. A command
// that has others below it and does nothing by itself shows its help.
func (a *app) prepare(c *cobra.Command) {
	c.Long, c.Example = helpOf(c.CommandPath())
	if act := c.RunE; act != nil {
		if fits := c.Args; fits != nil {
			c.Args = func(c *cobra.Command, args []string) error {
				if fits(c, args) != nil {
					return usageError("wrong number of arguments: %s", c.UseLine())
				}
				return nil
			}
		}
		c.RunE = func(c *cobra.Command, args []string) error {
			if a.timeout < 0 {
				return usageError("--timeout must not be negative")
			}
			a.running.Store(true)
			ctx, cancel := a.limited(c)
			defer cancel()
			c.SetContext(ctx)
			return a.expectVaults(ctx, act(c, args))
		}
	} else {
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError("unknown command %q for %q", args[0], c.CommandPath())
			}
			return c.Help()
		}
	}
	for _, below := range c.Commands() {
		a.prepare(below)
	}
}

// lookLimit is how long a look may take without --timeout.
const lookLimit = time.Minute

// limited returns the context of a command, which ends after --timeout. Without it, looks that ask for little end after
// lookLimit. What follows a plan, or reads or changes much, goes on.
func (a *app) limited(c *cobra.Command) (context.Context, context.CancelFunc) {
	set := func(flag string) bool { return c.Flags().Changed(flag) }
	switch c.Name() {
	case "count", "get", "hold", "keys", "list", "log", "nodes", "report", "show", "stats", "stuck", "vaults":
		if !set("timeout") && !set("all") && !set("bytes") && !set("watch") && (c.Name() != "hold" || set("list")) {
			a.timeout = lookLimit
		}
	}
	if a.timeout == 0 {
		return context.WithCancel(c.Context())
	}
	cause := fmt.Errorf("%s did not end within %s (--timeout)", c.Name(), span(a.timeout))
	return context.WithTimeoutCause(c.Context(), a.timeout, cause)
}

// refuseUnknownTopics makes help about a command that does not exist an error. Cobra says it on stdout.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = func(_ *cobra.Command, args []string) error {
				_, _, err := root.Find(args)
				return err
			}
		}
	}
}

// onVault returns a command without arguments that works on the vault that flags, profile and environment name. The vault
// is closed when the run ends.
func (a *app) onVault(use, short string, act func(ctx context.Context, v *azblob.Vault, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, args []string) error {
		v, err := a.open(c.Context(), a.connection)
		if err != nil {
			return err
		}
		return act(c.Context(), v, args)
	}}
}
