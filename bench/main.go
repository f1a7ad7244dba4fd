// Command bench counts what each operation of the vault costs: requests by billing class, round trips, bytes,
// allocations and the price. It compares them with the operation's budget.
//
//	go run ./bench                       plans of all sizes, vaults of up to a million plans
//	go run ./bench -short                without the largest vaults, in seconds
//	go run ./bench -run 'Read|Search'    some rows; -list names them all
//	go run ./bench -json                 one JSON object for each row
//	go run ./bench -connection-string T  wall times on Azurite or an account; it deletes the containers that it made
//	go run ./bench -throughput           operations per second through one vault, over sockets
//	go run ./bench -cpu                  processor time beside that of a bare client of the SDK
//	go run ./bench -history              searches in a year of closed days, by their catalogues
//
// A fleet has rows too: a claim, a takeover, and what a node with the default settings sends over some time,
// with the price of a day.
//
// Rows are counted on the emulator in virtual time. A request takes exactly one second there and computation
// takes none, so the seconds of an operation are its round trips, and all runs give the same counts. Vaults
// are filled directly in the emulator with copies of the blobs of one plan.
//
// -cpu records the service's answers to each operation once and then repeats the operation with these answers,
// by turns with a client of the SDK that sends the same requests and does nothing else. Its ratios hold on any
// machine, and each has a budget.
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
	"syscall"
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

func run(ctx context.Context, args []string, rows []row, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitPass
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitMisuse
	}
	switch {
	case cfg.cpu:
		err = compare(ctx, cfg, stdout)
	case cfg.history:
		err = recall(ctx, cfg, stdout)
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

// count measures the rows one by one and compares each with its budget.
func count(ctx context.Context, cfg config, rows []row, stdout io.Writer) (err error) {
	rows = cfg.pick(rows)
	if cfg.list {
		for _, r := range rows {
			fmt.Fprintln(stdout, r)
		}
		return nil
	}
	t, err := openTarget(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close(context.WithoutCancel(ctx))) }()
	return measureAll(ctx, t, rows, newReport(cfg, stdout))
}

// measureAll measures the rows. It continues after a row that fails.
func measureAll(ctx context.Context, t target, rows []row, out report) error {
	var errs []error
	for _, r := range rows {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		res, err := t.measure(ctx, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r, err))
			continue
		}
		res.judge()
		for _, over := range res.Over {
			errs = append(errs, fmt.Errorf("%s exceeds its budget: %s", r, over))
		}
		if err := out.row(res); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
