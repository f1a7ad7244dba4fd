package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage/retention"
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

func TestConfirm(t *testing.T) {
	c := change{doing: "purge", what: "5,000 plans", requests: price.Tally{azblob.ClassWrite: 5000, azblob.ClassOther: 30_000}}
	const said = "purge: 5,000 plans, about 35,000 requests, $0.041, in https://a.blob.core.windows.net, prefix p\n"
	const asked = said + "Go on? [y/N] "
	for _, test := range []struct {
		answer           string
		yes, interactive bool
		code             int
		stderr           string
	}{
		{"", true, false, exitDone, said},
		{"", false, false, exitUsage, said},
		{"y\n", false, false, exitUsage, said}, // nobody reads the question
		{"y\n", false, true, exitDone, asked},
		{"YES\r\n", false, true, exitDone, asked},
		{"\n", false, true, exitFailed, asked},
		{"n\n", false, true, exitFailed, asked},
		{"", false, true, exitFailed, asked},
	} {
		var stderr bytes.Buffer
		a := newApp(process{stdin: strings.NewReader(test.answer), stderr: &stderr, interactive: test.interactive})
		a.yes, a.places = test.yes, []string{"https://a.blob.core.windows.net, prefix p"}
		a.running.Store(true)
		err := a.confirm(t.Context(), c)
		if code := a.exitCode(t.Context(), err); code != test.code || stderr.String() != test.stderr {
			t.Errorf("%+v: exit code %d, %v\n%s", test, code, err, stderr.String())
		}
	}
}

// TestInterruptOfQuestion interrupts a question that nobody answers.
func TestInterruptOfQuestion(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	stdin, answers := io.Pipe()
	defer answers.Close()
	a := newApp(process{stdin: stdin, stderr: io.Discard, interactive: true})
	err := a.confirm(ctx, change{doing: "purge"})
	if code := a.exitCode(ctx, err); code != exitInterrupted || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// fill stores n final plans for each of some past days, the newest of which ended ten days ago.
func (s *stage) fill(t *testing.T, days, n int) (plans []uuid.UUID) {
	t.Helper()
	newest := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -10)
	for d := range days {
		for i := range n {
			id := workflow.NewV7At(newest.AddDate(0, 0, -d).Add(time.Duration(i) * time.Minute))
			s.store(t, id, workflow.Completed, "plan "+strconv.Itoa(i))
			plans = append(plans, id)
		}
	}
	return plans
}

// must runs the tool, which has to succeed, and returns what it printed.
func (s *stage) must(t *testing.T, args ...string) result {
	t.Helper()
	r := s.run(t.Context(), args...)
	if r.code != exitDone {
		t.Fatalf("planvault %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r
}

// says runs the tool, and checks its exit code and a text that it prints.
func (s *stage) says(t *testing.T, code int, text string, args ...string) {
	t.Helper()
	r := s.run(t.Context(), args...)
	if r.code != code || !strings.Contains(r.stdout+r.stderr, text) {
		t.Errorf("planvault %s: exit code %d, want %d and %q\n%s%s", strings.Join(args, " "), r.code, code, text, r.stdout, r.stderr)
	}
}

// TestEstimates compares what each bulk command says that it takes with the requests that it then sends beyond those of
// looking. For final plans of past days the estimate is within a tenth, and two requests. The last object of a dry run
// in JSON has the estimate of its text.
func TestEstimates(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	base := newStage(t)
	base.fill(t, 3, 5)
	file := t.TempDir() + "/all.bundle"
	base.must(t, "export", "-o", file)
	for _, test := range []struct {
		name    string
		looking int // how many times the command looks at all, before the change
		command []string
		prepare []string
	}{
		{"purge", 1, []string{"purge", "--name", "plan"}, nil},
		{"purge of some", 1, []string{"purge", "--name", "plan 1"}, nil},
		{"expire", 1, []string{"expire", "--older-than", "5d"}, nil},
		{"expire of catalogued days", 1, []string{"expire", "--older-than", "5d"}, []string{"recover", "--catalogue", "--yes"}},
		{"fork", 1, []string{"fork", "--from-start", "--status", "completed", "--name", "plan"}, nil},
		{"hold", 0, []string{"hold", "DAYS"}, nil},
		{"release", 1, []string{"release", "DAYS"}, []string{"hold", "DAYS", "--yes"}},
		{"catalogue", 1, []string{"recover", "--catalogue"}, nil},
		{"import", 0, []string{"import", "FILE", "--prefix", "copy"}, nil},
		{"mirror", 1, []string{"mirror", "--to-connection-string", "CONNECTION", "--to-prefix", "copy"}, nil},
		{"mirror that removes", 1, []string{"mirror", "--to-connection-string", "CONNECTION", "--to-prefix", "test-2", "--delete"}, []string{"mirror", "--to-connection-string", "CONNECTION", "--to-prefix", "test-2", "--yes"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := base.on(t)
			args := func(args []string) (all []string) {
				last := time.Now().UTC().AddDate(0, 0, -10)
				words := strings.NewReplacer("FILE", file, "CONNECTION", s.server.ConnectionString(), "DAYS", date(last.AddDate(0, 0, -2))+".."+date(last))
				for _, arg := range args {
					all = append(all, words.Replace(arg))
				}
				return all
			}
			if test.prepare != nil {
				s.must(t, args(test.prepare)...)
			}
			if strings.Contains(test.name, "removes") {
				s.must(t, "purge", "--name", "plan 3", "--yes")
			}
			sent := func(more ...string) (int, result) {
				s.server.ResetRequests()
				r := s.must(t, append(args(test.command), more...)...)
				n := 0
				for _, sent := range s.server.Requests() { // those of the log are not estimated
					if !strings.HasSuffix(sent.Container, "-log") {
						n++
					}
				}
				return n, r
			}
			looked, planText := sent("--dry-run")
			_, planJSON := sent("--dry-run", "--output", "json")
			total, r := sent("--yes")
			estimated := saidRequests(t, r.stderr)
			took := total - looked*test.looking
			t.Logf("estimated %d, took %d, and %d before", estimated, took, looked*test.looking)
			if off := estimated - took; max(off, -off) > took/10+2 {
				t.Errorf("%d requests were estimated, and %d sent", estimated, took)
			}
			lines := strings.Split(strings.TrimSpace(planJSON.stdout), "\n")
			var p planned
			err := json.Unmarshal([]byte(lines[len(lines)-1]), &p)
			if said := saidRequests(t, planText.stdout); err != nil || !p.DryRun || p.Requests != said || p.Dollars <= 0 {
				t.Errorf("%+v of %q, want %d requests: %v", p, lines, said, err)
			}
		})
	}
}

// saidRequests returns the number in "about 1,234 requests" or "cost: 1,234 requests".
func saidRequests(t *testing.T, text string) int {
	t.Helper()
	said := regexp.MustCompile(`(?:about|cost:) ([0-9,]+) requests?`).FindStringSubmatch(text)
	if said == nil {
		t.Fatalf("no number of requests in %q", text)
	}
	n, err := strconv.Atoi(strings.ReplaceAll(said[1], ",", ""))
	must(t, err)
	return n
}

// TestKeep removes plans and a day, which come back from the files that say so, one plan or all. No run writes over the file of
// another, and what can't be kept is not removed.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStage(t), t.TempDir()
		plans := s.fill(t, 3, 3)
		was := s.must(t, "list", "--output", "json").stdout
		one, two := filepath.Join(dir, "a.bundle"), filepath.Join(dir, "a-2.bundle")
		s.says(t, exitFailed, "nothing was changed", "purge", plans[0].String(), "--yes", "--keep", filepath.Join(dir, "no", "folder"))
		for i, file := range []string{one, two} {
			s.says(t, exitDone, "are in "+file+": planvault import", "purge", plans[i].String(), plans[2].String(), "--yes", "--keep", one)
		}
		s.must(t, "purge", plans[2].String(), "--yes", "--keep", one) // nothing
		s.must(t, "expire", "--older-than", "1d", "--yes", "--keep", one)
		files, _ := filepath.Glob(dir + "/*")
		if three := filepath.Join(dir, "a-3.bundle"); strings.Join(files, " ") != strings.Join([]string{two, three, one}, " ") {
			t.Fatalf("the files are %q", files)
		}
		text, err := os.ReadFile(one)
		must(t, err)
		must(t, os.WriteFile(one, text[:len(text)-1], 0o600)) // as a kill leaves it
		s.says(t, exitFound, "it has 0 of these 1 plan", "import", one, plans[1].String(), "--yes")
		s.says(t, exitDone, "1 plan restored, 0 there already", "import", one, plans[0].String(), plans[0].String(), "--yes")
		if r := s.must(t, "import", "--verify-only", one); !strings.Contains(r.stdout, "2 plans") || !strings.Contains(r.stdout, "without its end") {
			t.Errorf("%+v", r)
		}
		for _, file := range files {
			s.must(t, "import", file, "--yes")
		}
		if is := s.must(t, "list", "--output", "json").stdout; is != was {
			t.Errorf("the plans are\n%s, not\n%s", is, was)
		}
	})
}

// TestPolicy sets, shows and removes a policy. The pages show what is printed.
func TestPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.store(t, workflow.NewV7At(time.Now().AddDate(0, 0, -9)), workflow.Completed, "old")
		expect := func(code int, text string, args ...string) {
			t.Helper()
			s.says(t, code, text, append([]string{"policy"}, args...)...)
		}
		expect(exitFound, "there is no policy: all plans are kept", "show")
		expect(exitDone, "there is no policy", "remove")
		for wrong, why := range map[string]string{
			"": "--keep: is 0", "--keep=36h": "--keep: 36h00m is not a number of days", "--keep=-1d": `--keep: "-1d"`,
			"--keep-failed=3d": "--keep-failed: is 3 days, but other", "--keep=2d --keep-failed=1d": "--keep-failed: 1 days are not between 2",
		} {
			expect(exitUsage, "planvault: "+why, append([]string{"set", "--yes"}, strings.Fields(wrong)...)...)
		}
		set := []string{"set", "--keep", "5d", "--keep-failed", "1w", "--catalogue"}
		expect(exitDone, "keep plans 5 days, Failed plans 7 days, build catalogues; after a day, engines drop 1 day: about 9 requests", append(set, "--dry-run")...)
		expect(exitUsage, "nothing was changed; give --yes", set...)
		expect(exitFound, "there is no policy", "show")
		expect(exitDone, "engines begin after a day", append(set, "--yes")...)
		expect(exitDone, "this is the policy already", append(set, "--yes")...)
		expect(exitDone, "2000-01-02 00:00:00Z: drop 1 day", "show")
		time.Sleep(28 * time.Hour)
		expect(exitFound, "overdue since 2000-01-02 00:00:00Z: no engine enforces it", "show")
		if _, report, err := retention.NewEnforcer(vaulttest.Offered[retention.Vault](s.vault), "host").Look(t.Context()); err != nil || report == nil {
			t.Fatal(report, err)
		}
		expect(exitDone, "by host: 1 day dropped, 0 plans removed one by one", "show")
		expect(exitDone, `"keepDays":5,"keepFailedDays":7,"catalogue":true`, "show", "--output", "json")
		expect(exitDone, "engines begin within an hour", "set", "--keep", "5d", "--now", "--yes")
		expect(exitDone, "the policy is removed", "remove")
	})
}
