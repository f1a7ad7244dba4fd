// Command integration plays a story on an Azure Blob service and checks at each step that the vault keeps its
// promises: whole lives of plans, a crash in the middle of a write, recovery, what is done with finished plans,
// listings. The first step reports how the service answers where only a real account can settle it. In the end it
// runs the conformance suite, storage/storagetest, which has the conflicts, the members of a fleet, and every filter.
// The long cases of the suite need -all; the last lines say how many were left out. Only flags choose an account;
// environment variables don't.
//
//	go run ./integration                    against the emulator, in this process, within 20 seconds
//	go run ./integration -all               with the long cases, a minute more
//	go run ./integration -real              against the emulator as real accounts were recorded to answer
//	go run ./integration -azurite           against the pinned Azurite, which it installs, starts and stops
//	go run ./integration -endpoint URL      against an account, with the identity that azidentity finds
//	go run ./integration -connection-string TEXT
//
//	go run ./integration -otel              prints the trace of a plan's life, by OpenTelemetry
//	go run ./integration -list              prints the names of all steps and cases
//	go run ./integration -run REGEXP        plays those whose names match
//
//	go run ./integration -soak 1h -clients 16 -faults
//
// The last command is a soak: processes do random operations on one vault over connections that fail at
// random. They are killed at random and started again. In the end the vault must agree with what the
// processes were told: no plan is lost or half there, and nothing is left over. An interrupt ends the soak
// early, with the same checks.
//
//	go run ./integration -fleet 8 -chaos 2m -faults
//
// This command is a fleet under chaos: processes run plans as nodes of a fleet. Some are killed with SIGKILL,
// some frozen with SIGSTOP for 5 to 60 seconds, some leave, and new ones join. Each node reports every call of
// its plugin. In the end all plans must be final, no result may have been stored after the fence of a later
// epoch, and no action may have run after its outcome was stored. The figures say how long plans waited for
// another node. With -interval 2s everything is five times as fast as with the defaults of a fleet. Shorter
// intervals are close to the resolution of the service's clock, and takeovers may then last longer.
//
// The program prints each step with its requests, and each case on a line. A step that fails ends the run; a
// case does not. The last line is PASS, or "FAIL: " with the reason. The exit code is 0, 1, or 2 for wrong
// flags.
//
// The program uses containers of its own prefix only, refuses to start if there are any, and deletes the
// containers that it made. Each case has a prefix of its own, the run's with a number.
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

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
)

func main() {
	if isSoakClient(os.Args[1:]) {
		os.Exit(runSoakClient(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once, without cleaning up
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const (
	exitPass   = 0
	exitFail   = 1
	exitMisuse = 2
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitPass
	case err != nil:
		fmt.Fprintln(stderr, "integration:", err)
		return exitMisuse
	}
	cases := suiteCases()
	names := names(cfg, cases)
	if len(names) == 0 {
		fmt.Fprintln(stderr, "integration: -run matches no step and no case; -list prints their names")
		return exitMisuse
	}
	if cfg.list {
		for _, name := range names {
			fmt.Fprintln(stdout, name)
		}
		return exitPass
	}
	var out reporter = &people{w: stdout}
	if cfg.json {
		out = &machines{enc: encoder(stdout), notes: stderr}
	}
	if cfg.otel {
		if err := printTrace(ctx, stdout, stderr); err != nil {
			return fail(out, err)
		}
		out.end(verdict{Result: "PASS"})
		return exitPass
	}
	t, err := openTarget(ctx, cfg, stderr)
	if err != nil {
		return fail(out, err)
	}
	code := conduct(ctx, cfg, t, out, cases)
	if code == exitMisuse {
		fmt.Fprintln(stderr, "integration: run with -h to see the flags")
	}
	return code
}

// fail reports an error before the first step.
func fail(out reporter, err error) int {
	out.end(verdict{Result: "FAIL", What: oneLine(err)})
	return exitFail
}

// names returns the names of the steps and cases to play.
func names(cfg config, cases []storagetest.Case) []string {
	var all []string
	for _, st := range story(cfg) {
		if cfg.plays(st.name, false) {
			all = append(all, st.name)
		}
	}
	for _, c := range cases {
		if cfg.playsCase(c) {
			all = append(all, suiteName(c))
		}
	}
	return all
}

// conduct plays all steps on a target, and then the cases if no step failed. It cleans up and closes the
// target.
func conduct(ctx context.Context, cfg config, t *target, out reporter, cases []storagetest.Case) int {
	s := newStage(cfg, t, out)
	out.begin(t.title, cfg.prefix)
	var err error
	switch {
	case cfg.soak > 0:
		err = s.playSoak(ctx)
	case cfg.chaos > 0:
		err = s.playChaos(ctx)
	default:
		if err = s.play(ctx); err == nil {
			err = s.playCases(ctx, cases)
		}
	}
	// Clean up after an interrupt, too.
	err = errors.Join(err, s.clearUp(context.WithoutCancel(ctx)), t.close())
	v := s.verdict(err)
	out.end(v)
	switch {
	case err == nil:
		return exitPass
	case len(s.sums) == 0 && errors.Is(err, storage.ErrInvalid):
		return exitMisuse // the vault refused the prefix or the endpoint before any request
	}
	return exitFail
}
