package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/workflow"
)

// TestStatsGrowth: a line below the table says what the last month has added, if the selected days have the whole month.
func TestStatsGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		store := func(ago, plans int) {
			for n := range plans {
				s.store(t, workflow.NewV7At(time.Now().AddDate(0, 0, -ago).Add(time.Duration(n))), workflow.Completed, "daily")
			}
		}
		ends := func(want string, args ...string) {
			t.Helper()
			out := strings.Split(strings.TrimSpace(s.must(t, append([]string{"stats"}, args...)...).stdout), "\n")
			if got := out[len(out)-1]; !strings.HasPrefix(got, want) {
				t.Errorf("%q ends with %q, not %q", args, got, want)
			}
		}
		store(0, 1)
		store(1, 3)
		ends("total ")
		store(30, 2)
		ends("growth: 5 plans in the last 30 days")
		store(31, 2)
		store(60, 2)
		ends("growth: 5 plans in the last 30 days, +25% on the 30 days before")
		ends("growth: 5 plans, ", "--bytes")
		ends("total ", "--created-after", "7d")
		ends("total ", "--created-before", "5d")
		if out := s.must(t, "stats", "--output", "json").stdout; strings.Contains(out, "growth") {
			t.Error("JSON has a line that is no day:", out)
		}
	})
}

// TestGrowthPrice: running a plan writes each of its blobs three times, at $0.055 for 10,000; a GB costs $0.0208 a month.
func TestGrowthPrice(t *testing.T) {
	g := growth{last: azblob.DayStats{Plans: map[workflow.Status]int{workflow.Completed: 100}, Blobs: 10_000, Bytes: 100e9}}
	want := "growth: 100 plans, 100 GB in the last 30 days; running them took about $0.17, and storing them costs $2.08 a month"
	if got := g.line(true); got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// TestLargeVault counts the requests of a page of a large vault: a million plans over two weeks in the long variant.
func TestLargeVault(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	plans := efforttest.Pick(6_000, 6_000, 1_000_000)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(18*time.Hour + 3*time.Minute)
		s := newStage(t)
		must(t, (fill.Filling{Plans: plans, Days: 14, End: time.Now().UTC()}).FillServer(t.Context(), s.server, prefix))
		for _, c := range []struct {
			args         string
			rows, within int // within is a number of requests
			code         int
		}{
			{"list", 50, 4, exitDone},
			{"list --limit 10", 10, 4, exitDone},
			{"list --status completed", 50, 4, exitDone},
			{"list --created-before 3d", 50, 4, exitDone},
			{"list --status running", fill.RunningPlans, 1 + 14 + fill.RunningPlans, exitDone},
			{"count --status open", 1, 1 + 14 + fill.RunningPlans, exitDone},
			{"show fffffff0", 0, 1 + 14 + 15, exitFound},                                  // a short ID: the days of open plans, and the newest plans
			{"stuck", fill.RunningPlans, 1 + 1 + 14 + fill.RunningPlans*(1+5), exitFound}, // the roster, the days, and a read of each open plan
		} {
			r := s.run(t.Context(), append(strings.Fields(c.args), "--cost", "--output", "json")...)
			if rows := strings.Count(r.stdout, "\n"); r.code != c.code || rows != c.rows || saidRequests(t, r.stderr) > c.within {
				t.Errorf("%s: exit code %d, %d rows, want %d with %d requests\n%s", c.args, r.code, rows, c.rows, c.within, r.stderr)
			}
		}
	})
}
