package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
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
