package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// damage stores plans on three days and damages them in several ways, an hour ago: markers are lost, one is left of a
// final plan, a sub-object is missing, and there is a stray with a strange name.
func damage(t *testing.T, s *stage) {
	t.Helper()
	var plans []*workflow.Plan
	for i, status := range []workflow.Status{workflow.Completed, workflow.Running, workflow.Completed} {
		plans = append(plans, s.store(t, workflow.NewV7At(time.Now().AddDate(0, 0, -i)), status, "nightly"))
	}
	for container := range s.server.Containers() {
		for b := range s.server.Blobs(container) {
			if strings.HasPrefix(b.Name, "open/") { // a marker, which a thorough recovery restores
				s.server.Remove(container, b.Name)
			}
		}
	}
	day := func(p *workflow.Plan) string { return prefix + "-" + date(p.SubmitTime) }
	left := "open/" + plans[0].ID.String()
	s.server.Put(day(plans[0]), left, nil, map[string]string{"writeid": "x", "graceseconds": "600"})
	action := plans[2].Blocks[0].Sequences[0].Actions[0]
	s.server.Remove(day(plans[2]), "actions/"+plans[2].ID.String()+"/"+action.ID.String()+".json")
	s.server.Put(day(plans[2]), "rubbish\x1b[31m\u202e", []byte("x"), nil)
	time.Sleep(time.Hour)
}

// sceneDenied: the requests of an operation about the oldest of three damaged days are refused.
func sceneDenied(operation emulator.Op) func(t *testing.T, s *stage) {
	return func(t *testing.T, s *stage) {
		damage(t, s)
		oldest := prefix + "-" + date(time.Now().AddDate(0, 0, -2))
		s.server.Inject(emulator.On(operation).Where(func(r emulator.Request) bool { return r.Container == oldest }).
			Do(emulator.Foreign(403, "text/plain", "a firewall"))) // it has no number of the request, which varies
	}
}

// sceneLost: beside other damage, a plan has lost its object, which nothing repairs.
func sceneLost(t *testing.T, s *stage) {
	damage(t, s)
	p := s.store(t, workflow.NewV7(), workflow.Completed, "lost")
	s.server.Remove(prefix+"-"+date(p.SubmitTime), "plans/"+p.ID.String()+"-object.json")
	time.Sleep(time.Hour)
}

// contents describes all that is stored in the vault of a stage.
func contents(s *stage) string {
	var b strings.Builder
	for container := range s.server.Containers() {
		if !strings.HasPrefix(container, prefix+"-") {
			continue
		}
		for blob := range s.server.Blobs(container) {
			b.WriteString(container + "/" + blob.Name + " " + blob.ETag + "\n")
		}
	}
	return b.String()
}

// TestStatsEstimates shows on a terminal what --bytes takes before it lists every blob.
func TestStatsEstimates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		damage(t, s)
		r := s.runAs(t.Context(), func(p *process) { p.stderrIsTerm = true }, "stats", "--bytes")
		if r.code != exitDone || !strings.HasPrefix(r.stderr, "stats: 3 plans in 3 days, about 3 requests, $0.00") {
			t.Errorf("%+v", r)
		}
	})
}

// TestFindings judges what an account can answer but the emulator does not.
func TestFindings(t *testing.T) {
	for name, test := range map[string]struct {
		found  finding
		result string
		text   string
	}{
		"premium":         {kindFinding("BlockBlobStorage"), resultOK, "premium"},
		"old account":     {kindFinding("Storage"), resultWarning, "upgrade"},
		"month of copies": {softDeleteFinding(30), resultWarning, "a week is enough"},
		"day of copies":   {softDeleteFinding(1), resultOK, "for 1 day;"},
		"other SKU":       {judged(resultOK, redundancy("Premium_ZRS"), ""), resultOK, "three zones"},
		"unknown SKU":     {judged(resultOK, redundancy("Standard"), ""), resultOK, "Standard"},
	} {
		if test.found.Result != test.result || !strings.Contains(test.found.Finding+test.found.Advice, test.text) {
			t.Errorf("%s: %+v", name, test.found)
		}
	}
}
