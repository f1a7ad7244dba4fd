package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// planID returns the ID of a plan that was created n minutes after some day has begun.
func planID(n int) uuid.UUID {
	at := time.Date(2025, 10, 20, 0, n, 0, 0, time.UTC)
	id := uuid.UUID{6: 0x70, 8: 0x80, 14: byte(n)}
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (40 - 8*i))
	}
	return id
}

// TestFilters parses flags, and fails if a field of the filters has none.
func TestFilters(t *testing.T) {
	seen := []string{"ByIDs", "BeforeID", "Limit"} // arguments, --page and --limit
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	group := uuid.MustParse("0198c0de-0000-7000-8000-000000000001")
	for args, want := range map[string]storage.Filters{
		"":                                    {},
		"--status failed":                     {ByStatus: []workflow.Status{workflow.Failed}},
		"--status OPEN,Stopped":               {ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Stopped}},
		"--status final --status completed":   {ByStatus: []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped, workflow.Completed}},
		"--group " + group.String():           {ByGroupIDs: []uuid.UUID{group}},
		"--key west":                          {ByKey: "west"},
		"--forked-from " + group.String():     {ByForkedFrom: []uuid.UUID{group}},
		"--submitted-by a,b --submitted-by c": {BySubmitter: []string{"a,b", "c"}},
		"--id A-b":                            {IDContains: "A-b"},
		"--name a --contains b":               {NamePrefix: "a", NameContains: "b"},
		"--label a=1,b= --label c=2":          {Labels: map[string]string{"a": "1", "b": "", "c": "2"}},
		"--created-after 2026-11-20 --created-before 2026-11-20T01:00Z": {After: day, Before: day.Add(time.Hour)},
		"--created-after 27h --ended-after 2w":                          {After: day, EndedAfter: now.AddDate(0, 0, -14)},
		"--ended-before 2026-11-20T01:00:00+01:00":                      {EndedBefore: day},
	} {
		var s selection
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.addFlags(flags)
		if err := flags.Parse(strings.Fields(args)); err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		got := s.filters(now)
		for _, at := range []*time.Time{&got.After, &got.Before, &got.EndedAfter, &got.EndedBefore} {
			*at = at.UTC()
		}
		for _, at := range []*time.Time{&want.After, &want.Before, &want.EndedAfter, &want.EndedBefore} {
			*at = at.UTC()
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, not %+v", args, got, want)
		}
		seen = append(seen, got.Fields()...)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[storage.Filters]()) {
		if !slices.Contains(seen, f.Name) {
			t.Errorf("no flag sets %s", f.Name)
		}
	}
}

func TestParseAge(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "15m": 15 * time.Minute, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "2w": 14 * 24 * time.Hour, "36500d": 36500 * 24 * time.Hour,
		"": 0, "d": 0, "w": 0, "-1d": 0, "0d": 0, "1.5d": 0, "36501d": 0, "9999999999999999999d": 0, "300y": 0, "1": 0, "2540400h1ns": 2540400*time.Hour + 1,
	} {
		if got, err := parseAge(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestListedIsWhole fails if a list lacks a field of a listing.
func TestListedIsWhole(t *testing.T) {
	p := plantest.Full()
	p.ID, p.SubmitTime, p.Owner, p.Epoch, p.WakeAt, p.LastSignal, p.ForkedFrom = planID(1), time.Now(), planID(2), 1, time.Now(), 1, planID(3)
	p.State = workflow.State{Status: workflow.Failed, Start: time.Now(), End: time.Now()}
	p.Submitted.By = "ops"
	whole := driver.Listed(p)
	whole.External, whole.Keys, whole.WaitsFor = "queue", []string{"k"}, "k" // of an open plan
	whole.KeepTurn, whole.Unique = workflow.KeepWhileAwake, "u"
	for _, f := range reflect.VisibleFields(reflect.TypeOf(whole)) {
		if f.Name == "_" || f.Name == "LastSignal" || f.Name == "Deadline" { // for nodes
			continue
		}
		part := whole
		if reflect.ValueOf(&part).Elem().FieldByIndex(f.Index).SetZero(); reflect.DeepEqual(report.ListedOf(part), report.ListedOf(whole)) {
			t.Errorf("a list does not show %s", f.Name)
		}
	}
}

// ending returns an ID of a time with some last digits.
func ending(ago time.Duration, end string) uuid.UUID {
	id := workflow.NewV7At(time.Now().Add(-ago)).String()
	return uuid.MustParse(id[:len(id)-len(end)] + end)
}

// TestShortIDs names plans by their last digits.
func TestShortIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(pageTime))
		s := newStage(t)
		const aDay = 24 * time.Hour
		young := s.store(t, ending(6*aDay, "aaaa0001"), workflow.Completed, "young").ID.String()
		s.store(t, ending(8*aDay, "aaaa0002"), workflow.Completed, "old")
		open := s.store(t, ending(90*aDay, "bbbb0003"), workflow.Running, "open\x1b").ID.String()
		s.store(t, ending(time.Hour, "1cccc0004"), workflow.Completed, "one")
		s.store(t, ending(200*aDay, "2cccc0004"), workflow.NotStarted, "two")
		s.store(t, ending(time.Hour, "aaaa00010005"), workflow.Completed, "digits in the middle")
		node := s.join(t, "host").ID().String()
		for _, c := range []struct {
			args string
			code int
			out  string // in what is printed
		}{
			{"show aaaa0001", exitDone, young},
			{"show AAAA-0001", exitDone, young},
			{"get " + young[20:], exitDone, young},
			{"report aaaa0001 -o -", exitDone, young},
			{"show bbbb0003", exitDone, open},
			{"list --page aaaa0001", exitDone, "aaaa0002"},
			{"list bbbb0003 aaaa0001 --wide", exitDone, open},
			{"show aaaa0002", exitFound, "no plan ends in aaaa0002 among the open plans and those of the last 7 days; the whole ID, which --wide shows, always works"},
			{"show cccc0004", exitUsage, "2 plans end in cccc0004: give more digits, or the whole ID"},
			{"show cccc0004", exitUsage, "cccc0004  two\n"},
			{"show 2cccc0004", exitDone, "two"},
			{"stop bbbb0003", exitFound, "plan " + open + `  open\x1b` + "\n"},
			{"fork aaaa0001 --from-start --dry-run", exitDone, "plan " + young + "  young\n"},
			{"takeover bbbb0003 --evict " + node[28:], exitFailed, "plan " + open},
			{"takeover bbbb0003 --evict 00000000", exitFound, "no node ends in 00000000 among the members of the fleet"},
			{"show aaa0001", exitUsage, "or its last 8 digits or more"},
			{"show nightly1", exitUsage, "is not the ID of a plan"},
			{"purge aaaa0001 --yes", exitUsage, "is not the ID of a plan"},
		} {
			s.says(t, c.code, c.out, strings.Fields(c.args)...)
		}
		s.server.ResetRequests()
		s.run(t.Context(), "show", young)
		for _, r := range s.server.Requests() {
			if r.Op == emulator.ListBlobs || r.Op == emulator.ListContainers {
				t.Errorf("a whole ID is looked for: %v", r)
			}
		}
	})
}
