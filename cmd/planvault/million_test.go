package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/fill"
)

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
