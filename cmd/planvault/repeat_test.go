package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// TestWatchTables watches tables through an outage and until an interrupt, which is no failure.
func TestWatchTables(t *testing.T) {
	for _, c := range []struct {
		args     string
		terminal bool
		table    string // what a table begins with
	}{
		{"list --watch", false, "PLAN"},
		{"list --watch --output json", false, "{"},
		{"stuck --watch --older 1s", false, "PLAN"},
		{"stuck --watch --older 1s", true, "PLAN"},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(pageTime))
			s := newStage(t)
			s.store(t, workflow.NewV7At(time.Now().Add(-time.Hour)), workflow.Running, "nightly")
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(150 * time.Second)
				s.server.Inject(emulator.On().Do(emulator.Answer(503, "ServerBusy")))
				time.Sleep(20 * time.Minute)
				s.server.ClearFaults()
				time.Sleep(20 * time.Minute) // each look is patient for a quarter of an hour
				cancel()
			}()
			r := s.runAs(ctx, func(p *process) {
				p.stdoutIsTerm, p.stderrIsTerm, p.terminalSize = c.terminal, c.terminal, func() (int, int) { return 80, 24 }
			}, append(strings.Fields(c.args), "--interval", "1m")...)
			if n := strings.Count(r.stdout, c.table); r.code != exitDone || n < 7 || !strings.Contains(r.stdout+r.stderr, "unavailable") {
				t.Errorf("%s, on a terminal %t: %d tables, %+v", c.args, c.terminal, n, r)
			}
			tables, separated := strings.Count(r.stdout, c.table), strings.Count(r.stdout, "\n\n"+c.table)
			if c.table == "{" {
				separated += tables - 1 // by lines
			}
			if !c.terminal && separated != tables-1 || strings.Contains(r.stdout, "\n\n\n") {
				t.Errorf("%s: %d tables, of which %d follow a blank line", c.args, tables, separated)
			}
			_, last, restored := strings.Cut(r.stdout, firstScreen)
			if restored != c.terminal || c.terminal && (!strings.Contains(last, "nightly") || strings.Contains(last, restOfLine)) {
				t.Errorf("%s: in the end there is %q", c.args, last)
			}
		})
	}
}

// closedPipe is a writer whose reader has gone after one write.
type closedPipe struct{ bytes.Buffer }

func (p *closedPipe) Write(b []byte) (int, error) {
	if p.Len() > 0 {
		return 0, syscall.EPIPE
	}
	return p.Buffer.Write(b)
}

// TestWatchEnds checks what ends a watch: a reader that has seen enough, wrong usage, and a first look that fails.
func TestWatchEnds(t *testing.T) {
	for args, want := range map[string]int{
		"list --watch": exitDone, "list --watch --output json": exitDone, "stuck --watch --older 1s": exitDone,
		"nodes --watch --interval 10ms": exitUsage, "list --watch --limit 0": exitUsage,
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(pageTime))
			s := newStage(t)
			s.store(t, workflow.NewV7At(time.Now().Add(-time.Hour)), workflow.Running, "nightly")
			p := s.process(&closedPipe{}, io.Discard)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // longer than any of these takes
			defer cancel()
			if code := run(ctx, p, strings.Fields(args)); code != want {
				t.Errorf("%s: %d, want %d", args, code, want)
			}
		})
	}
}

func TestScreenOf(t *testing.T) {
	got := screenOf(fitLines([]string{"one", "日本語日本語", "three"}, "end", 6, 3))
	if want := topLeft + restOfLine + "one\n" + restOfLine + "日本…\n" + restOfLine + "1 mor…\n" + restOfScreen; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
