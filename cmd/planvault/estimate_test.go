package main

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

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
