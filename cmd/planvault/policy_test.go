package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

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
