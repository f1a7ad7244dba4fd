// Command bench counts what each operation of the vault costs: requests by billing class, round trips, bytes
// and the price. It compares them with the operation's budget.
//
//	go run ./bench                       plans of all sizes, vaults of up to a million plans
//	go run ./bench -short                without the largest vaults, in seconds
//	go run ./bench -run 'Read|Search'    some rows; -list names them all
//	go run ./bench -at 6h                at another time of the day
//	go run ./bench -throughput           operations per second through one vault, over sockets
//	go run ./bench -latency              from Submit to the first action and to the end, and plans per second
//	go run ./bench -cpu                  processor time beside that of a bare client of the SDK, or bare plugins
//	go run ./bench -history              searches in a year of past days, by their catalogues
//
// A fleet has rows too: a claim, a takeover, and what a node with the default settings sends over some time,
// with the price of a day.
//
// Rows are counted on the emulator in virtual time. A request takes exactly one second there and computation
// takes none, so the seconds of an operation are its round trips. Runs at the same time of day (-at) send the same
// requests. The round trips of the longest listings vary by a few, with the order of answers that come at one moment.
// Vaults are filled directly in the emulator with copies of the blobs of one plan.
//
// -cpu records the service's answers to each operation once and then repeats the operation with these answers,
// by turns with a client of the SDK that sends the same requests and does nothing else. Its ratios hold on any
// machine, and each has a budget. An engine runs plans on a vault that stores nothing, by turns with calls of their
// plugins; its allocations have budgets, too.
//
// The exit code is 1 if a row fails or exceeds its budget, and 2 for wrong flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], table(), os.Stdout, os.Stderr))
}

const (
	exitPass   = 0
	exitFail   = 1
	exitMisuse = 2
)

// config holds the values of the flags.
type config struct {
	short, list, cpu, history, latency, throughput, token bool
	run                                                   *regexp.Regexp
	worker                                                string
	at                                                    time.Duration
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{run: regexp.MustCompile("")}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&c.short, "short", false, "leave out the largest vaults and a node's long times")
	f.BoolVar(&c.list, "list", false, "print the names of the rows and stop")
	f.Func("run", "measure the rows whose name matches this `regexp`", func(s string) (err error) {
		c.run, err = regexp.Compile(s)
		return err
	})
	f.BoolVar(&c.cpu, "cpu", false, "measure processor time and allocations beside those of a bare client of the SDK; with -short once and without judging them")
	f.BoolVar(&c.token, "token", false, "with -cpu, log in with a token instead of the account's key")
	f.BoolVar(&c.throughput, "throughput", false, "measure operations per second instead of their costs")
	f.BoolVar(&c.history, "history", false, "measure searches in a year of past days; with -short of small ones")
	f.BoolVar(&c.latency, "latency", false, "measure how soon submitted plans begin and end, and plans per second; with -short at 10 ms only")
	f.DurationVar(&c.at, "at", evening, "the time of day at which rows are counted, and until which there are plans: pages depend on it")
	f.StringVar(&c.worker, "worker", "", "internal: the emulator of -throughput, as `text`")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	modes := slices.DeleteFunc([]bool{c.cpu, c.throughput, c.history, c.latency}, func(set bool) bool { return !set })
	switch {
	case c.at <= 0 || c.at >= 24*time.Hour:
		return c, fmt.Errorf("-at %v: want a time of day, such as 18h", c.at)
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q: bench takes flags only", f.Arg(0))
	case len(modes) > 1:
		return c, errors.New("-cpu, -history, -latency and -throughput are mutually exclusive")
	}
	return c, nil
}

func run(ctx context.Context, args []string, rows []row, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitPass
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitMisuse
	case cfg.cpu:
		err = compare(ctx, cfg, stdout)
	case cfg.history:
		err = recall(ctx, cfg, stdout)
	case cfg.latency:
		err = await(ctx, cfg, stdout)
	case cfg.throughput:
		err = drive(ctx, cfg, stdout, stderr)
	default:
		err = count(ctx, cfg, rows, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFail
	}
	return exitPass
}

// eachRow lists the rows that are chosen, or measures them one by one, and continues after a row that fails.
func eachRow[R fmt.Stringer](ctx context.Context, cfg config, rows []R, stdout io.Writer, measure func(R) error) error {
	var errs []error
	for _, r := range rows {
		switch {
		case !cfg.run.MatchString(r.String()):
		case cfg.list:
			fmt.Fprintln(stdout, r)
		case ctx.Err() != nil:
			return errors.Join(append(errs, ctx.Err())...)
		default:
			if err := measure(r); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r, err))
			}
		}
	}
	return errors.Join(errs...)
}

// count measures the rows and compares each with its budget.
func count(ctx context.Context, cfg config, rows []row, stdout io.Writer) error {
	t := &emulators{at: cfg.at}
	rows = slices.DeleteFunc(rows, func(r row) bool { return cfg.short && r.long })
	if !cfg.list {
		printHead(stdout)
	}
	return eachRow(ctx, cfg, rows, stdout, func(r row) error {
		res, err := t.measure(ctx, r)
		if err != nil {
			return err
		}
		res.print(stdout)
		return res.judge()
	})
}
