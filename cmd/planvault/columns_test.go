package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/workflow"
)

// TestShortTablesFit fills tables with the longest cells. They fit a terminal of 80 columns, whatever the names are, and
// --wide has the IDs whole.
func TestShortTablesFit(t *testing.T) {
	long, far := strings.Repeat("日本 e\u0301x", 40), time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	id, silence, many, size, month := workflow.NewV7(), 1e9, 123_456_789, int64(123_456_789), 12345.67
	tables := map[string]func(a *app) error{
		"list": func(a *app) error {
			return newColumns(a, a.planColumns()).print([]report.Listed{{ID: id, Status: "NotStarted", Submitted: far, Took: report.Span{Start: far, End: far.AddDate(200, 0, 0)}, Name: long, SubmittedBy: long, Labels: map[string]string{"k": long}}})
		},
		"nodes": func(a *app) error {
			return newColumns(a, a.nodeColumns()).print([]nodeRow{{ID: id, Name: long, State: "silent", HeartbeatSeconds: &silence, TTLSeconds: 86400, Started: far, Plans: 12345}})
		},
		"stuck --all": func(a *app) error {
			return a.printOpen([]openRow{{ID: id, Condition: "unreadable", Stuck: true, OwnerName: long, HeartbeatSeconds: &silence, IdleSeconds: 1e9, doing: long, Name: long, Why: strings.Repeat("why it is ", 30)}}, true)
		},
		"stuck": func(a *app) error {
			return a.printOpen([]openRow{{ID: id, Owner: &id, OwnerState: "gone", IdleSeconds: 1e9, doing: long, Name: long}}, false)
		},
		"stats": func(a *app) error {
			return newColumns(a, dayColumns(false)).print([]dayRow{{Day: "2026-11-21", Plans: 1_234_567, NotStarted: 1_234_567, Running: 1_234_567, Completed: 1_234_567, Held: true, Unreadable: 12}})
		},
		"stats --bytes": func(a *app) error {
			return newColumns(a, dayColumns(true)).print([]dayRow{{Day: "2026-11-21", Plans: many, Running: 1_234_567, Blobs: &many, Bytes: &size, Month: &month, Held: true, Unreadable: 12}})
		},
	}
	for name, print := range tables {
		for _, times := range []string{timeUTC, timeLocal, timeRelative} {
			for _, wide := range []bool{false, true} {
				var b bytes.Buffer
				a := newApp(process{stdout: &b, zone: time.FixedZone("", 5*3600)})
				a.times, a.wide = times, wide
				must(t, print(a))
				for line := range strings.Lines(b.String()) {
					if n := textWidth(strings.TrimSuffix(line, "\n")); n > usualWidth && !wide {
						t.Errorf("%s --time %s: %d columns: %s", name, times, n, line)
					}
				}
				lines := strings.Split(b.String(), "\n")
				if whole := strings.Contains(lines[1], id.String()); whole != wide && !strings.HasPrefix(name, "stats") {
					t.Errorf("%s, --wide=%t: %s", name, wide, b.String())
				}
			}
		}
	}
}

func TestFitColumns(t *testing.T) {
	for _, c := range []struct{ widths, least, want []int }{
		{[]int{5, 5}, []int{1, 1}, []int{5, 5}},
		{[]int{10, 5}, []int{1, 1}, []int{8, 5}},
		{[]int{10, 10}, []int{1, 1}, []int{6, 7}},
		{[]int{10, 10}, []int{0, 1}, []int{10, 3}},
		{[]int{20, 10}, []int{0, 4}, []int{20, 4}},
	} {
		got := append([]int{}, c.widths...)
		if fitColumns(got, c.least, 15); got[0] != c.want[0] || got[1] != c.want[1] {
			t.Errorf("%v of at least %v: %v, want %v", c.widths, c.least, got, c.want)
		}
	}
	for text, want := range map[string]string{"日本語": "日本語", "日本語x": "日本…", "abcdefg": "abcde…"} {
		if got := human.Cut(text, 6); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
	if got := wrap("a bb 日本 ccc "+strings.Repeat("x", 9), 7); got != "a bb\n日本\nccc\n"+strings.Repeat("x", 9) {
		t.Errorf("%q", got)
	}
}

// TestSort sorts rows by each column.
func TestSort(t *testing.T) {
	type row struct {
		name string
		n    int
	}
	columns := []column[row]{
		{title: "NAME", compare: by(func(r row) string { return r.name })},
		{title: ">HOW MANY", compare: by(func(r row) int { return r.n })},
		{title: ""},
	}
	for text, want := range map[string]string{"": "cab", "name": "abc", "name,asc": "abc", "NAME,desc": "cba", "how-many": "acb", "how-many,desc": "cba", "how": "?", "name,down": "?"} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o := addSort(flags, columns, "sort")
		got := ""
		if text != "" {
			if err := flags.Set("sort", text); err != nil {
				got = "?"
			}
		}
		rows := []row{{"c", 2}, {"a", 1}, {"b", 2}}
		if o.sort(rows); got == "" {
			for _, r := range rows {
				got += r.name
			}
		}
		if got != want {
			t.Errorf("--sort %q: %s, want %s", text, got, want)
		}
	}
}

func TestTimeForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(pageTime))
		a := newApp(process{zone: time.FixedZone("", 5*3600+1800)})
		for _, c := range []struct {
			form string
			at   time.Time
			want string
		}{
			{timeUTC, pageTime, "2026-11-21 03:00:00Z"},
			{timeLocal, pageTime, "2026-11-21 08:30:00+05:30"},
			{timeRelative, pageTime.Add(-725500 * time.Millisecond), "12m05s ago"},
			{timeRelative, pageTime.Add(61 * time.Second), "in 1m01s"},
			{timeRelative, pageTime.Add(-999 * time.Millisecond), "now"},
			{timeRelative, time.Time{}, "-"},
			{timeLocal, time.Time{}, "-"},
		} {
			if a.times = c.form; a.stamp(c.at) != c.want {
				t.Errorf("%s: %s, want %s", c.form, a.stamp(c.at), c.want)
			}
		}
		if err := a.timeFlag().Set("gmt"); err == nil {
			t.Error("--time gmt is accepted")
		}
	})
}
