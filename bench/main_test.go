package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// someRows matches operations of each sort.
const someRows = `^(Create, S|Read, running, few changed, M|Delete, S|(List\(10\)|Recovery|List\(all\)), 100 plans in 14 days)$`

// output runs the bench and returns what it printed.
func output(t *testing.T, want int, rows []row, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	if code := run(t.Context(), args, rows, &out, &err); code != want {
		t.Fatalf("bench %q: exit code %d, not %d\n%s%s", args, code, want, out.String(), err.String())
	}
	return out.String(), err.String()
}

// generous gives the rows budgets that nothing exceeds: these tests do not judge the vault.
func generous(rows []row) []row {
	for i := range rows {
		rows[i].budget = fixed(1<<30, 1<<30)
	}
	return rows
}

func TestRunsAgree(t *testing.T) {
	var all []result
	for range 2 {
		e := &emulators{at: evening}
		for _, r := range table() {
			if regexp.MustCompile(someRows).MatchString(r.String()) {
				res, err := e.measure(t.Context(), r)
				must(t, err)
				all = append(all, res)
			}
		}
	}
	if len(all) != 2*6 {
		t.Fatalf("%d rows", len(all))
	}
	for i, a := range all[:6] {
		if b := all[6+i]; !maps.Equal(a.requests, b.requests) || *a.trips != *b.trips {
			t.Errorf("%+v\nis not %+v", a, b)
		}
	}
	if c := all[0]; c.String() != "Create, S" || c.requests["write"] != 6 || c.requests.Total() != 6 || *c.trips != 4 || c.sent < 1000 {
		t.Errorf("%+v", c)
	}
	// Recovery lists markers only: every container has the mark of the vault.
	if r, l := all[4], all[5]; r.requests["list"] != 1+14 || l.received < 100_000 {
		t.Errorf("%+v, %+v", r, l)
	}
}

// TestReport checks that a row over its budget and one that fails are named, and that the others are measured.
func TestReport(t *testing.T) {
	rows := generous(table())
	rows[0].budget = fixed(3, 1<<30) // Create, S
	rows[1].budget = fixed(1<<30, 3) // Create, M
	rows[2].prepare = func(context.Context, *scene) (step, error) { return nil, io.ErrClosedPipe }
	stdout, stderr := output(t, exitFail, rows, "-run", "^(Create|Exists), [SML]$")
	want := "bench: Create, S: over budget: 6 requests of 3\nCreate, M: over budget: 4 round trips of 3\nCreate, L: io: read/write on closed pipe\n"
	if stderr != want {
		t.Errorf("got %q, want %q", stderr, want)
	}
	for line := range strings.Lines(stdout) {
		if over := strings.HasPrefix(line, "Create, "); strings.Contains(line, "OVER") != over {
			t.Error(line)
		}
	}
	if n := strings.Count(stdout, "\n"); n != 1+2+3 {
		t.Errorf("%d lines:\n%s", n, stdout)
	}
}

func TestReceivedBytesAreJudged(t *testing.T) {
	left := maps.Clone(receivedBudgets)
	for _, r := range generous(table()) {
		most, judged := left[r.String()]
		delete(left, r.String())
		if err := (result{row: r, measured: measured{received: most + 1}}).judge(); (err != nil) != judged {
			t.Errorf("%s: %v", r, err)
		}
	}
	if len(left) > 0 {
		t.Errorf("budgets of no row: %v", left)
	}
}

func TestHeapIsJudged(t *testing.T) {
	for above, over := range map[int64]bool{heapBudget: false, heapBudget + 1: true} {
		if r := (result{row: generous(table())[0], heap: &above}); (r.judge() != nil) != over {
			t.Errorf("%d: %v", above, r.judge())
		}
	}
	h := newHeapPeak()
	held := make([]byte, 32<<20)
	h.look()
	held[0] = 1 // so that it is live
	if mib := h.above() >> 20; mib < 24 || mib > 33 {
		t.Errorf("%d MiB", mib)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-run", "("}, {"extra"}, {"-no-such-flag"}, {"-latency", "-history"}, {"-at", "24h"}} {
		output(t, exitMisuse, nil, args...)
	}
	output(t, exitPass, nil, "-h")
	all, _ := output(t, exitPass, table(), "-list")
	short, _ := output(t, exitPass, table(), "-list", "-short")
	if !strings.Contains(all, "1000000 plans") || strings.Contains(short, "1000000 plans") || !strings.Contains(short, "10000 plans") || strings.Contains(short, "a day of") {
		t.Errorf("%s\n%s", all, short)
	}
	const allRows = 12*3 + 6*7 + 6*2 + 2 + 2*3 + 6 + 7 // on plans, in vaults, among open plans, not started ones, of a fleet, of an engine
	names := slices.Sorted(strings.Lines(all))
	if len(names) != allRows || len(slices.Compact(names)) != allRows {
		t.Errorf("%d rows, or two with one name", len(names))
	}
}

// TestFilledVaultIsSound checks that a vault that was filled directly is one that the vault could have
// written.
func TestFilledVaultIsSound(t *testing.T) {
	server := emulator.New(emulator.WithoutLog())
	f := fillingAt(shape{plans: 500, days: 3}, time.Date(2026, 1, 15, 18, 0, 0, 0, time.UTC))
	must(t, f.FillServer(t.Context(), server, vaultName))
	v, err := fill.Open(t.Context(), server, vaultName)
	must(t, err)
	report, err := v.Check(t.Context(), azblob.CheckOptions{})
	if err != nil || len(report.Problems) > 0 || report.Plans != f.Plans || report.Days != f.Days {
		t.Fatalf("%+v: %v", report, err)
	}
	running := 0
	for i := range f.Plans {
		p, err := v.Read(t.Context(), f.ID(i))
		must(t, err)
		if p.State.Status == workflow.Running {
			running++
		}
		if p.GroupID != f.Group(i) || !p.SubmitTime.Equal(f.Created(i)) || !workflow.Time(p.ID).Equal(f.Created(i)) {
			t.Errorf("plan %d: %+v", i, p)
		}
	}
	if n, err := v.Count(t.Context(), storage.Filters{ByGroupIDs: []uuid.UUID{f.Group(7)}}); err != nil || n != fill.GroupPlans || running != fill.RunningPlans {
		t.Errorf("%d plans are running, %d are in the group: %v", running, n, err)
	}
}

func TestThroughput(t *testing.T) {
	port, err := emulator.New().Listen("127.0.0.1:0")
	must(t, err)
	defer port.Close()
	for _, l := range loads() {
		got, err := l.driveHere(t.Context(), port.ConnectionString(), 3, time.Nanosecond)
		if err != nil || got.Operations != 3 || got.Took <= 0 || got.Requests < 3 || got.Allocations == 0 {
			t.Errorf("%s: %+v, %v", l, got, err)
		}
	}
}

// TestLatency: a plan of one action begins after two round trips and ends after eight, and 16 places are the limit.
func TestLatency(t *testing.T) {
	out, _ := output(t, exitPass, nil, "-latency", "-short", "-run", "^S, 10 ms, 1 x  16")
	_, row, _ := strings.Cut(out, "1 x  16")
	var first, end, clients, slowest, stored int
	_, err := fmt.Sscan(row, &first, &end, &clients, &slowest, &stored)
	if err != nil || first != 20 || end != 80 || clients < 150 || clients > 200 || slowest > 1000 || stored < 100 || stored > 200 {
		t.Errorf("%s%v", out, err)
	}
}

// TestHistoryKeepsItsBudgets measures a year of small days.
func TestHistoryKeepsItsBudgets(t *testing.T) {
	out, _ := output(t, exitPass, nil, "-history", "-short")
	if !strings.Contains(out, " Count of all  56400 ") || !strings.Contains(out, "\nCatalogue of a day of 20000 plans") {
		t.Error(out)
	}
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
