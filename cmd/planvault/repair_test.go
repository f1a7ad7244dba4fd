package main

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// damaged runs a test on a vault of three days with damage of several kinds, an hour after it was done: a lost marker,
// a lost sub-object, an object that can't be read, a stray with a strange name, and a marker that was left.
func damaged(t *testing.T, test func(t *testing.T, s *stage)) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		s := stageOn(t)
		var plans []*workflow.Plan
		for i, status := range []workflow.Status{workflow.Completed, workflow.Running, workflow.Completed} {
			p, err := s.store(t.Context(), workflow.NewV7At(time.Now().AddDate(0, 0, -i)), status, "nightly")
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, p)
		}
		loseMarkers(s)
		day := func(p *workflow.Plan) string { return prefix + "-" + p.SubmitTime.UTC().Format(time.DateOnly) }
		left := "open/" + plans[0].ID.String()
		s.server.Put(day(plans[0]), left, nil, map[string]string{"writeid": "x", "graceseconds": "600"})
		action := plans[2].Blocks[0].Sequences[0].Actions[0]
		s.server.Remove(day(plans[2]), "actions/"+plans[2].ID.String()+"/"+action.ID.String()+".json")
		s.server.Put(day(plans[2]), "rubbish\x1b[31m\u202e", []byte("x"), nil)
		time.Sleep(time.Hour)
		test(t, s)
	})
}

// onOldestDay reports whether a request is about the oldest of the three days.
func onOldestDay(r emulator.Request) bool { return r.Container == prefix+"-1999-12-30" }

// TestCheckNamesWhatRepairs reads what check prints of a damaged vault, as text and as JSON.
func TestCheckNamesWhatRepairs(t *testing.T) {
	damaged(t, func(t *testing.T, s *stage) {
		r := s.run(t.Context(), "check")
		for _, want := range []string{
			"unmarked, plan ", "→ a thorough Recover restores the marker\n",
			"missing, plan ", "→ a thorough Recover restores it, unless it is an object",
			"stray\n", `/rubbish\x1b[31m\u202e` + "\n", "→ nothing needs it",
			" in 3 days, 3 plans, ",
		} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("nothing says %q", want)
			}
		}
		if r.code != exitFound || r.stderr != "" || strings.ContainsAny(r.stdout, "\x1b\u202e") {
			t.Errorf("exit code %d, stderr %q\n%s", r.code, r.stderr, r.stdout)
		}
		var report checkReport
		r = s.run(t.Context(), "check", "--output", "json")
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != exitFound || len(report.Problems) < 4 || !report.Complete || report.Days != 3 {
			t.Errorf("%+v, %v\n%+v", report, err, r)
		}
		for _, p := range report.Problems {
			if p.Repair == "" || p.Detail == "" || p.Blob == "" {
				t.Errorf("%+v", p)
			}
		}
		if r := s.run(t.Context(), "check", "--created-before", "2d"); r.code != exitFound || strings.Contains(r.stdout, "unmarked") || !strings.Contains(r.stdout, " in 1 day, 1 plan, ") {
			t.Errorf("the oldest day: %+v", r)
		}
		if r := s.run(t.Context(), "check", "--created-after", "1d", "--created-before", "2d"); r.code != exitUsage || r.stdout != "" {
			t.Errorf("no day: %+v", r)
		}
	})
}

// TestCheckThatFails says how far it came, and prints what it found until then.
func TestCheckThatFails(t *testing.T) {
	damaged(t, func(t *testing.T, s *stage) {
		s.server.Inject(emulator.On(emulator.GetBlob).Where(onOldestDay).Do(emulator.Answer(403, "AuthorizationFailure")))
		r := s.run(t.Context(), "check")
		if r.code != exitFailed || !strings.Contains(r.stdout, "; the check did not finish\n") || !strings.Contains(r.stdout, "unmarked") ||
			!strings.HasPrefix(r.stderr, "planvault: checked 2 of 3 days, newest first: Check: ") || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%+v", r)
		}
		s.server.Inject(emulator.On(emulator.ListContainers).Do(emulator.Answer(403, "AuthorizationFailure")))
		if r := s.run(t.Context(), "check"); r.code != exitFailed || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// TestRecoverAsks changes nothing without consent, and afterwards the vault is sound but for what nothing repairs.
func TestRecoverAsks(t *testing.T) {
	damaged(t, func(t *testing.T, s *stage) {
		before := contents(s)
		r := s.run(t.Context(), "recover", "--thorough", "--dry-run")
		if r.code != exitFound || r.stderr != "" || !strings.Contains(r.stdout, "3 days; 3 plans to repair, 0 that can't be repaired, 1 plan open\n") {
			t.Errorf("dry run: %+v", r)
		}
		found := r.stdout
		r = s.run(t.Context(), "recover", "--thorough")
		if r.code != exitUsage || r.stdout != found || !strings.HasPrefix(r.stderr, "recover: 3 plans, about ") || !strings.HasSuffix(r.stderr, "nothing was changed; give --yes to make the change\n") {
			t.Errorf("without --yes: %+v", r)
		}
		if contents(s) != before {
			t.Error("something was changed")
		}
		r = s.run(t.Context(), "recover", "--thorough", "--yes")
		if r.code != exitDone || !strings.Contains(r.stdout, "3 days; 3 plans repaired, 0 that can't be repaired, 1 plan open\n") || !strings.Contains(r.stdout, "    restored the marker\n") {
			t.Errorf("--yes: %+v", r)
		}
		if r := s.run(t.Context(), "recover", "--thorough"); r.code != exitDone || r.stderr != "" { // nothing to do, so nothing to ask
			t.Errorf("again: %+v", r)
		}
		if r := s.run(t.Context(), "check"); r.code != exitFound || strings.Contains(r.stdout, ", plan ") || !strings.HasPrefix(r.stdout, "stray\n") {
			t.Errorf("check: %+v", r)
		}
	})
}

// TestRecoverSaysWhatRemains recovers a plan that has lost its object, which nothing repairs, beside others. Each run ends
// with exit code 4.
func TestRecoverSaysWhatRemains(t *testing.T) {
	damaged(t, func(t *testing.T, s *stage) {
		p, err := s.store(t.Context(), workflow.NewV7(), workflow.Completed, "lost")
		if err != nil {
			t.Fatal(err)
		}
		s.server.Remove(prefix+"-"+p.SubmitTime.UTC().Format(time.DateOnly), "plans/"+p.ID.String()+"-object.json")
		time.Sleep(time.Hour)
		for i, want := range []string{"3 plans repaired, 1 that can't be repaired", "0 plans repaired, 1 that can't be repaired"} {
			r := s.run(t.Context(), "recover", "--thorough", "--yes")
			if r.code != exitFound || !strings.Contains(r.stdout, want) || !strings.Contains(r.stdout, p.ID.String()+": ") || !strings.Contains(r.stdout, "    can't be repaired: ") {
				t.Errorf("run %d: %+v", i, r)
			}
		}
		var report recoverReport
		r := s.run(t.Context(), "recover", "--thorough", "--yes", "--output", "json")
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || len(report.Plans) != 1 || report.Plans[0].ID != p.ID || report.Plans[0].Error == "" {
			t.Errorf("%+v, %v\n%+v", report, err, r)
		}
		s.server.Inject(emulator.On(emulator.ListBlobs).Nth(4).Do(emulator.Answer(403, "AuthorizationFailure")))
		if r := s.run(t.Context(), "recover", "--thorough"); r.code != exitFailed || !strings.HasPrefix(r.stderr, "planvault: the report is not complete; run it again: ") {
			t.Errorf("a day can't be listed: %+v", r)
		}
	})
}

// contents describes all that is stored.
func contents(s *stage) string {
	var b strings.Builder
	for container := range s.server.Containers() {
		for blob := range s.server.Blobs(container) {
			b.WriteString(container + "/" + blob.Name + " " + blob.ETag + "\n")
		}
	}
	return b.String()
}

// TestStatsThatFails prints the days before the failure, and their total.
func TestStatsThatFails(t *testing.T) {
	damaged(t, func(t *testing.T, s *stage) {
		whole := s.run(t.Context(), "stats", "--output", "json")
		if whole.code != exitDone || strings.Count(whole.stdout, "\n") != 3 {
			t.Fatalf("%+v", whole)
		}
		s.server.Inject(emulator.On(emulator.ListBlobs).Where(onOldestDay).Do(emulator.Answer(403, "AuthorizationFailure")))
		r := s.run(t.Context(), "stats")
		lines := strings.Split(r.stdout, "\n")
		if r.code != exitFailed || !strings.HasPrefix(r.stderr, "planvault: after 1 day: Stats: list (") || strings.Count(r.stderr, "\n") != 1 ||
			len(lines) != 4 || !strings.HasPrefix(lines[2], "total ") {
			t.Errorf("%+v", r)
		}
	})
}

// TestStatsEstimates shows on a terminal what --bytes takes before it lists every blob.
func TestStatsEstimates(t *testing.T) {
	damaged(t, func(t *testing.T, s *stage) {
		var stdout, stderr strings.Builder
		p := s.process(nil, nil)
		p.stdout, p.stderr, p.stderrIsTerm = &stdout, &stderr, true
		if code := run(t.Context(), p, []string{"stats", "--bytes"}); code != exitDone || !strings.HasPrefix(stderr.String(), "stats: 3 plans in 3 days, about 3 requests, $0.00") {
			t.Errorf("exit code %d, %q", code, stderr.String())
		}
	})
}

// TestFindings judges what an account can answer but the emulator does not.
func TestFindings(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	type found struct{ result, finding, advice string }
	of := func(result, finding, advice string) found { return found{result, finding, advice} }
	for name, test := range map[string]struct {
		found  found
		result string
		text   string
	}{
		"premium":          {of(kindFinding("BlockBlobStorage")), resultOK, "premium"},
		"old account":      {of(kindFinding("Storage")), resultWarning, "upgrade"},
		"month of copies":  {of(softDeleteFinding(30)), resultWarning, "a week is enough"},
		"day of copies":    {of(softDeleteFinding(1)), resultOK, "for 1 day;"},
		"bootstrap":        {of(syncFinding(azblob.Replication{Status: "bootstrap"}, now)), resultWarning, "the secondary is bootstrap, last sync -"},
		"silent secondary": {of(syncFinding(azblob.Replication{Status: "live"}, now)), resultWarning, "does not say"},
		"close behind":     {of(syncFinding(azblob.Replication{Status: "live", Synced: now.Add(-5 * time.Minute)}, now)), resultOK, "2026-11-22 02:55:00Z, 5m00s ago"},
		"other SKU":        {of(resultOK, redundancy("Premium_ZRS"), ""), resultOK, "three zones"},
		"unknown SKU":      {of(resultOK, redundancy("Standard"), ""), resultOK, "Standard"},
	} {
		if test.found.result != test.result || !strings.Contains(test.found.finding+test.found.advice, test.text) {
			t.Errorf("%s: %+v", name, test.found)
		}
	}
}
