package main

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

func TestUndelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, emulator.WithSoftDelete())
		plans := s.fill(t, 1, 3)
		day := date(workflow.Time(plans[0]))
		shown := s.must(t, "list", "--output", "json").stdout
		says := func(want string, code int, args ...string) {
			t.Helper()
			r := s.run(t.Context(), args...)
			if got := r.stdout + r.stderr; r.code != code || !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("%q: exit code %d\n%s", args, r.code, got)
			}
		}
		same := func() {
			t.Helper()
			if again := s.must(t, "list", "--output", "json").stdout; again != shown {
				t.Errorf("the plans are\n%s, not\n%s", again, shown)
			}
		}
		says("account keeps no deleted plans of this day", exitDone, "undelete", day)
		says("neither a day nor the whole ID", exitUsage, "undelete", "yesterday")
		s.must(t, "purge", "--name", "plan", "--yes")
		says("(?s)Completed +kept +plan 2.*Completed +kept +plan 0.*would restore 3 plans: about", exitDone, "undelete", day, "--dry-run")
		says("Completed +kept +plan 1\n", exitDone, "undelete", plans[1].String(), "--dry-run")
		says("keeps no deleted plan with this ID", exitFound, "undelete", workflow.NewV7At(workflow.Time(plans[1])).String(), "--dry-run")
		says("nothing was changed; give --yes", exitUsage, "undelete", day)
		says("Completed +restored +plan 1", exitDone, "undelete", plans[1].String(), "--yes")
		says("is there: undelete would change nothing", exitFound, "undelete", plans[1].String(), "--dry-run")
		says("Completed +there +plan 1", exitDone, "undelete", plans[1].String(), "--yes")
		says(`"status":"Completed","name":"plan 0","result":"restored"}`, exitDone, "undelete", day, "--yes", "--output", "json", "--reason", "wrong")
		same()
		says("undelete +operator@desk +done +"+day+" 2 plans +wrong\n", exitDone, "log") // the order is that of the milliseconds

		s.must(t, "expire", "--older-than", "1d", "--yes")
		time.Sleep(time.Minute)
		says("the day is not there: undelete the day", exitFound, "undelete", plans[1].String(), "--yes")
		says("would restore the day, if the account keeps it", exitDone, "undelete", day, "--dry-run")
		says(day+": restored", exitDone, "undelete", day, "--yes")
		same()

		s.must(t, "purge", plans[0].String(), "--yes")
		time.Sleep(8 * 24 * time.Hour)
		says("keeps deleted blobs for 7 days, and has none of the plan", exitFound, "undelete", plans[0].String(), "--yes")
		if strings.Contains(s.must(t, "list").stdout, plans[0].String()) {
			t.Error("the plan is listed")
		}
		s.must(t, "policy", "set", "--keep", "1d", "--yes")
		says("(?s)the policy .keep plans 1 day. reaches "+day+".*nothing was changed", exitUsage, "undelete", plans[1].String())
	})
}
