package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// TestClocksOfExpire expires days on a machine whose clock is off by most of what the service allows. The service's clock
// decides.
func TestClocksOfExpire(t *testing.T) {
	for off, want := range map[time.Duration]string{-14 * time.Minute: "0 days dropped", 14 * time.Minute: "1 day dropped"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.server = emulator.New(emulator.WithClock(func() time.Time { return time.Now().Add(off) }))
			s.env["PLANVAULT_CONNECTION_STRING"] = s.server.ConnectionString()
			s.vault = s.open(t, prefix)
			s.store(t, workflow.NewV7At(time.Now().UTC().AddDate(0, 0, -3)), workflow.Completed, "old")
			time.Sleep(24*time.Hour - 10*time.Minute) // ten minutes before the day is three days old, by this clock
			if r := s.must(t, "expire", "--older-than", "3d", "--yes"); !strings.Contains(r.stdout, want) {
				t.Errorf("the service is %v ahead: %+v", off, r)
			}
		})
	}
}

// TestNothingIsDue checks that a command without --yes only looks if it finds nothing to do: nobody has agreed to more.
func TestNothingIsDue(t *testing.T) {
	s := newStage(t)
	s.fill(t, 1, 1)
	for _, args := range [][]string{{"purge", "--name", "none"}, {"expire", "--older-than", "50d"}} {
		sent := func(more ...string) int {
			s.server.ResetRequests()
			s.must(t, append(args, more...)...)
			return len(s.server.Requests())
		}
		if looked, all := sent("--dry-run"), sent(); all != looked {
			t.Errorf("%s: %d requests, and %d for a look", args[0], all, looked)
		}
	}
}

// TestProgressOfBulkCommands looks at what a terminal shows, and that a pipe gets none of it.
func TestProgressOfBulkCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.fill(t, 2, 10)
		s.network = delayed{s.server.Transport(), 10 * time.Millisecond}
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
	if r := s.run(t.Context(), "mirror", "--to-prefix", prefix, "--yes"); r.code != exitFailed || !strings.Contains(r.stderr, "the copy is the vault itself under another name") {
		t.Errorf("%+v", r)
	}
}

func TestParseDays(t *testing.T) {
	days, err := parseDays([]string{"2026-03-02", "2026-03-01..2026-03-03", "2026-02-28", "2026-03-03..2026-03-03"})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, day := range days.sorted() {
		text := date(day)
		if !days[day] {
			text += " in range"
		}
		texts = append(texts, text)
	}
	if got := strings.Join(texts, ", "); got != "2026-02-28, 2026-03-01 in range, 2026-03-02, 2026-03-03 in range" {
		t.Error(got)
	}
}

func TestCataloguedRows(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }
	rows := cataloguedRows(azblob.CatalogueReport{
		Built:   []azblob.CataloguedDay{{Day: day(9), Plans: 4}, {Day: day(5)}},
		Skipped: []azblob.SkippedDay{{Day: day(8), Reason: "why"}, {Day: day(1)}},
	}, "built")
	var order []string
	for _, r := range rows {
		order = append(order, r.Day[8:]+r.Result)
	}
	if got := strings.Join(order, " "); got != "09built 08skipped 05built 01skipped" {
		t.Error(got)
	}
}
