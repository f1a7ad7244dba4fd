// Command integration takes plans through their whole lives on an Azure Blob service and checks at each step that the vault
// keeps its promises: create, read, run, complete, list, search, conflicts of two writers, crashes in the middle of writes,
// recovery, check, delete.
//
//	go run ./integration                    against the emulator, in this process
//	go run ./integration -azurite           against the pinned Azurite, which it installs, starts and stops
//	go run ./integration -endpoint URL      against an account, with the identity that azidentity finds
//	go run ./integration -connection-string TEXT
//
// It prints each step with the requests that it took. The last line is PASS, and the exit code 0; or "FAIL: " with what
// failed, and 1. Wrong flags are 2.
//
// It works on containers of its own prefix only, refuses to start where there are any, and deletes those that it made.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once, without clearing up
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

const (
	exitPass   = 0
	exitFail   = 1
	exitMisuse = 2
)

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, getenv, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitPass
	case err != nil:
		fmt.Fprintln(stderr, "integration:", err)
		return exitMisuse
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
	code := conduct(ctx, cfg, t, out)
	if code == exitMisuse {
		fmt.Fprintln(stderr, "integration: run with -h to see the flags")
	}
	return code
}

// conduct runs all steps on a target, clears up and closes it.
func conduct(ctx context.Context, cfg config, t *target, out reporter) int {
	s := newStage(cfg, t, out)
	out.begin(t.title, cfg.prefix)
	err := s.play(ctx)
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
