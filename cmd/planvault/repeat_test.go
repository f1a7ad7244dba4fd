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
		args          string
		terminal      bool
		rows, screens int
	}{
		{"list --watch", false, 4, 0},
		{"list --watch --output json", false, 4, 0},
		{"stuck --watch --older 1s", false, 4, 0},
		{"nodes --watch", false, 0, 0},
		{"stuck --watch --older 1s", true, 5, 5}, // the last look stays
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(pageTime))
			s := newStage(t)
			id := s.store(t, workflow.NewV7At(time.Now().Add(-time.Hour)), workflow.Running, "nightly").ID
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(20 * time.Second)
				s.server.Inject(emulator.On().Do(emulator.Answer(503, "ServerBusy")))
				time.Sleep(time.Hour)
				s.server.ClearFaults()
				time.Sleep(40 * time.Second)
				cancel()
			}()
			r := s.runAs(ctx, func(p *process) {
				p.stdoutIsTerm, p.stderrIsTerm, p.terminalSize = c.terminal, c.terminal, func() (int, int) { return 80, 24 }
			}, strings.Fields(c.args)...)
			rows := strings.Count(r.stdout, "nightly")
			tables := strings.Count(r.stdout, "\n\nPLAN")
			if r.code != exitDone || rows < c.rows || !strings.Contains(r.stdout+r.stderr, "unavailable") {
				t.Errorf("%s, on a terminal %t: %d rows of %s\n%+v", c.args, c.terminal, rows, id, r)
			}
			if separated := strings.HasPrefix(c.args, "list --watch") && !strings.Contains(c.args, "json"); separated && tables < c.rows-1 {
				t.Errorf("%s: %d tables have a blank line before them\n%s", c.args, tables, r.stdout)
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
