package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// TestClocksOfExpire expires days on a machine whose clock is off by most of what the service allows. The service's clock
// decides.
func TestClocksOfExpire(t *testing.T) {
	for off, want := range map[time.Duration]string{-14 * time.Minute: "0 days dropped", 14 * time.Minute: "1 day dropped"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.server = emulator.New(emulator.Options{Clock: func() time.Time { return time.Now().Add(off) }})
			s.env["PLANVAULT_CONNECTION_STRING"] = s.server.ConnectionString()
			s.vault = s.open(t, prefix)
			s.store(t, workflow.NewV7At(time.Now().UTC().AddDate(0, 0, -3)), workflow.Completed, "old")
			time.Sleep(24*time.Hour - 10*time.Minute) // ten minutes before the day is three days old, by this clock
			s.says(t, exitDone, want, "expire", "--older-than", "3d", "--yes")
		})
	}
}

// TestProgressOfBulkCommands looks at what a terminal shows, and that a pipe gets none of it.
func TestProgressOfBulkCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.fill(t, 2, 10)
		s.slow(10 * time.Millisecond)
		r := s.runAs(t.Context(), func(p *process) { p.stderrIsTerm = true }, "purge", "--name", "plan", "--yes")
		if r.code != exitDone || !strings.Contains(r.stderr, " of 20 plans") || strings.Contains(r.stdout, "\x1b") {
			t.Errorf("%+v", r)
		}
	})
}

// TestOtherNamesOfAVault mirrors a vault to itself under another name.
func TestOtherNamesOfAVault(t *testing.T) {
	s := newStage(t)
	s.fill(t, 1, 1)
	s.env["PLANVAULT_TO_CONNECTION_STRING"] = strings.Replace(s.server.ConnectionString(), "blob.emulator.invalid", "alias.emulator.invalid", 1)
	s.says(t, exitFailed, "the copy is the vault itself under another name", "mirror", "--to-prefix", prefix, "--yes")
}
