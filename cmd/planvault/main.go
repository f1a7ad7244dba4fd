// Command planvault shows what a vault holds, and keeps it in order: which plans are stuck, who owns them, whether
// anything is lost, what it costs. `planvault help` lists its commands.
//
// No command takes a lock. Each is safe beside engines, and beside itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second interrupt ends the process at once, unless it comes with the first: timeout(1) sends each signal twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(100*time.Millisecond, stop) })
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a write to a closed pipe fails, and does not end the process
	os.Exit(run(ctx, process{
		stdin:        os.Stdin,
		stdout:       os.Stdout,
		stderr:       os.Stderr,
		getenv:       os.Getenv,
		interactive:  term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
		stdoutIsTerm: term.IsTerminal(int(os.Stdout.Fd())),
		stderrIsTerm: term.IsTerminal(int(os.Stderr.Fd())),
		terminalSize: terminalSize,
		whoami:       userAtHost,
	}, os.Args[1:]))
}

// terminalSize returns the size of the terminal of stdout. A terminal that does not tell has the usual one.
func terminalSize() (width, height int) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
