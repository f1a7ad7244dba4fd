// Command integration takes plans through their whole lives on an Azure Blob service and checks at each step that the vault
// keeps its promises: create, read, run, complete, list, search, conflicts of two writers, crashes in the middle of writes,
// recovery, check, delete. Then it runs the conformance suite, storage/storagetest, without its long cases unless -all is
// given. The last lines say how many were left out. Only flags choose an account; environment variables don't.
//
//	go run ./integration                    against the emulator, in this process, within 20 seconds
//	go run ./integration -all               with the long cases, which take a minute more
//	go run ./integration -azurite           against the pinned Azurite, which it installs, starts and stops
//	go run ./integration -endpoint URL      against an account, with the identity that azidentity finds
//	go run ./integration -connection-string TEXT
//
//	go run ./integration -list              names all steps and cases
//	go run ./integration -run REGEXP        plays those whose names match
//
//	go run ./integration -soak 1h -clients 16 -faults
//
// The last one is a soak: so many processes do random operations on one vault, over connections that fail now and then, and
// are killed at random and started again. In the end all that they were told must be so: no plan is lost, none is half there,
// nothing is left over. An interrupt ends it early, with the same look at the end.
//
// It prints each step with the requests that it took, and each case on a line. A step that fails ends the run, a case does
// not. The last line is PASS, and the exit code 0; or "FAIL: " with what failed, and 1. Wrong flags are 2.
//
// It works on containers of its own prefix only, refuses to start where there are any, and deletes those that it made: those
// of a case, whose prefix is the run's and a number, as soon as the case has ended.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
)

func main() {
	if isSoakClient(os.Args[1:]) {
		os.Exit(runSoakClient(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once, without clearing up
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
		fmt.Fprintln(stderr, "integration: -run: no step and no case has such a name; -list names them all")
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
	t, err := openTarget(ctx, cfg, stderr)
	if err != nil {
		out.end(verdict{Result: "FAIL", What: oneLine(err)})
		return exitFail
	}
	code := conduct(ctx, cfg, t, out, cases)
	if code == exitMisuse {
		fmt.Fprintln(stderr, "integration: run with -h to see the flags")
	}
	return code
}

// names lists the steps and cases that are to be played.
func names(cfg config, cases []storagetest.Case) []string {
	var all []string
	for _, st := range story(cfg) {
		all = append(all, st.name)
	}
	for _, c := range cases {
		all = append(all, suiteName(c))
	}
	return slices.DeleteFunc(all, func(name string) bool { return !cfg.plays(name) })
}

// conduct plays all steps on a target, and the cases if none of them fails; then it clears up and closes the target.
func conduct(ctx context.Context, cfg config, t *target, out reporter, cases []storagetest.Case) int {
	s := newStage(cfg, t, out)
	out.begin(t.title, cfg.prefix)
	var err error
	if cfg.soak > 0 {
		err = s.playSoak(ctx)
	} else if err = s.play(ctx); err == nil {
		err = s.playCases(ctx, cases)
	}
	// What follows must be done after an interrupt, too.
	err = errors.Join(err, s.clearUp(context.WithoutCancel(ctx)), t.close())
	v := s.verdict(err)
	out.end(v)
	switch {
	case err == nil:
		return exitPass
	case len(s.sums) == 0 && errors.Is(err, storage.ErrInvalid):
		return exitMisuse // the vault refused the prefix or the endpoint before anything was sent
	}
	return exitFail
}
