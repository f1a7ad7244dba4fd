package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func TestTable(t *testing.T) {
	type row struct {
		Name string `json:"name"`
		N    int    `json:"n"`
	}
	rows := []row{{"a", 1}, {"日本語", 1000}, {"e\u0301", 30}}
	print := func(form string) string {
		var b bytes.Buffer
		a := newApp(process{stdout: &b})
		a.output = form
		table := newTable(a, func(r row) []string { return []string{r.Name, count(r.N), ""} }, "NAME", ">N", "")
		for _, r := range rows {
			must(t, table.add(r))
			if lines := strings.Count(b.String(), "\n"); form == outputJSON && lines == 0 {
				t.Error("an object is not written at once")
			}
		}
		must(t, table.end())
		return b.String()
	}
	if got, want := print(outputTable), "NAME        N\na           1\n日本語  1,000\ne\u0301          30\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := print(outputJSON), "{\"name\":\"a\",\"n\":1}\n{\"name\":\"日本語\",\"n\":1000}\n{\"name\":\"e\u0301\",\"n\":30}\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestLongTable checks that a table does not wait for its last row, and has its titles once.
func TestLongTable(t *testing.T) {
	var b bytes.Buffer
	table := newTable(newApp(process{stdout: &b}), func(n int) []string { return []string{count(n)} }, "N")
	for n := range maxRows + 1 {
		must(t, table.add(n))
	}
	if lines := strings.Count(b.String(), "\n"); lines != maxRows+1 {
		t.Errorf("%d lines before the end", lines)
	}
	if err := table.end(); err != nil || strings.Count(b.String(), "N\n") != 1 || !strings.HasSuffix(b.String(), "\n1,000\n") {
		t.Errorf("%v: it ends with %q", err, b.String()[b.Len()-20:])
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{count(0), "0"},
		{count(999), "999"},
		{count(-1000), "-1,000"},
		{count(int64(1234567)), "1,234,567"},
		{plural(1, "plan"), "1 plan"},
		{plural(2000, "plan"), "2,000 plans"},
		{plural(0, "plan"), "0 plans"},
		{byteSize(0), "0 B"},
		{byteSize(999), "999 B"},
		{byteSize(1000), "1.0 kB"},
		{byteSize(123456), "123 kB"},
		{byteSize(5e15), "5.0 PB"},
		{dollars(0), "$0"},
		{dollars(0.00000044), "$0.00000044"},
		{dollars(0.0055), "$0.0055"},
		{dollars(0.5), "$0.50"},
		{dollars(0.996), "$1.00"},
		{dollars(1234.5), "$1234.50"},
		{stamp(time.Time{}), "-"},
		{stamp(time.Date(2026, 11, 21, 4, 0, 0, 9, time.FixedZone("", 3600))), "2026-11-21 03:00:00Z"},
	} {
		if c.got != c.want {
			t.Errorf("%q, not %q", c.got, c.want)
		}
	}
}

// TestTimesInJSON checks that no stored time breaks JSON.
func TestTimesInJSON(t *testing.T) {
	for _, at := range []time.Time{
		{},
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -23*3600)),
		time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 23*3600)),
		time.UnixMilli(1<<48 - 1),
	} {
		if text, err := json.Marshal(utc(at)); err != nil || !strings.HasSuffix(string(text), `Z"`) {
			t.Errorf("%v: %s, %v", at, text, err)
		}
	}
}

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

// narrow is a pipe or a disk that takes a number of bytes and then fails.
type narrow struct {
	left int
	err  error
}

func (n *narrow) Write(b []byte) (int, error) {
	taken := min(n.left, len(b))
	if n.left -= taken; taken < len(b) {
		return taken, n.err
	}
	return taken, nil
}

// TestResultsAreNotLost: a command that could not write all of its results says so, wherever the disk was full. It ends
// quietly if it was the reader who has closed the pipe.
func TestResultsAreNotLost(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	s := newStage(t)
	for n, status := range []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed} {
		s.store(t, planID(n*24*60), status, "plan")
	}
	if _, err := s.vault.Control().AddMember(t.Context(), storage.Member{ID: planID(0), Started: time.Now(), TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"list", "count", "count --by status", "stuck", "stuck --all", "nodes", "stats", "check", "doctor --probes 0", "version",
		"purge --status completed --dry-run", "expire --older-than 2d --dry-run", "recover --catalogue --dry-run", "hold 2025-10-20 --dry-run",
	} {
		for _, form := range []string{"table", "json"} {
			args := append(strings.Fields(command), "--output", form)
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				done := s.run(t.Context(), args...)
				whole := len(done.stdout)
				last := whole - 1
				if args[0] == "doctor" {
					last -= whole / 8 // the time that a request takes has more or fewer digits
				}
				for _, left := range []int{0, whole / 2, last} {
					for _, failure := range []error{syscall.ENOSPC, syscall.EPIPE} {
						r := s.runAs(t.Context(), func(p *process) { p.stdout = &narrow{left, failure} }, args...)
						want, says := done.code, ""
						switch {
						case errors.Is(failure, syscall.ENOSPC):
							want, says = exitFailed, "no space left"
						case args[0] == "list", args[0] == "stats":
							want = exitDone
						}
						if r.code != want || (says == "") != (r.stderr == "") || !strings.Contains(r.stderr, says) {
							t.Errorf("%v after %d of %d bytes: %+v", failure, left, whole, r)
						}
					}
				}
			})
		}
	}
}

// TestClosedPipeDoesNotEndChanges: a bulk change whose reader has gone is made as a whole.
func TestClosedPipeDoesNotEndChanges(t *testing.T) {
	for _, form := range []string{"table", "json"} {
		s := newStage(t)
		for n := range 3 {
			s.store(t, planID(n*24*60), workflow.Completed, "plan")
		}
		closed := func(p *process) { p.stdout = &narrow{0, syscall.EPIPE} }
		r := s.runAs(t.Context(), closed, "hold", "2025-10-20..2025-10-25", "--yes", "--output", form)
		held, err := s.vault.Admin().Holds(t.Context())
		if err != nil || len(held) != 3 || r.code != exitDone {
			t.Errorf("%s: %d days are held, %+v: %v", form, len(held), r, err)
		}
	}
}

// TestWriteFile checks that a file is replaced whole or not at all, that nothing is left behind, and that the user alone
// may read it.
func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.html")
	broken := errors.New("broken")
	for _, test := range []struct {
		text string
		err  error
		want string
	}{{"first", nil, "first"}, {"half", broken, "first"}, {"second", nil, "second"}} {
		err := new(app).writeFile(path, func(w io.Writer) error {
			_, err := io.WriteString(w, test.text)
			return errors.Join(err, test.err)
		})
		if !errors.Is(err, test.err) {
			t.Errorf("%s: %v", test.text, err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != test.want {
			t.Errorf("%s: the file has %q, %v", test.text, text, err)
		}
	}
	for name, age := range map[string]time.Duration{"0a1b2c3d.tmp": 2 * time.Hour, "ffffffff.tmp": 0, "mine.tmp": 2 * time.Hour} {
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path+"."+name, nil, 0o600), os.Chtimes(path+"."+name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := new(app).writeFile(path, func(io.Writer) error { return nil }); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 3 { // what was killed long ago is gone
		t.Errorf("files %v, %v", files, err)
	}
}
