package human_test

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"nightly report", 0, "nightly report"},
		{"a\x1b[31mred\n\ttab", 0, `a\x1b[31mred\n\ttab`},
		{"abc\u202edef", 0, `abc\u202edef`},
		{"bad \xff byte", 0, `bad \xff byte`},
		{"zero\u200bwidth\ufeff", 0, `zero\u200bwidth\ufeff`},
		{"日本語", 4, "日本…"},
		{"日本語", 5, "日本…"},
		{"日本語", 6, "日本語"},
		{"abcdef", 3, "abc…"},
		{"a" + strings.Repeat("\u0301", 1000), 3, "a\u0301\u0301…"},
		{"quote ' and \\", 0, "quote ' and \\"},
	} {
		if got := human.Line(c.text, c.most); got != c.want {
			t.Errorf("%q, %d: %q, not %q", c.text, c.most, got, c.want)
		}
	}
}

func TestLines(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"a\tb\nc\u00a0d":            "a\tb\nc\u00a0d",
		"👩\u200d🚀":                  "👩\u200d🚀",
		"a\x00\x1b\x7f\u0085b\r\n":  `a\x00\x1b\x7f\u0085b\r` + "\n",
		"\u202eabc\u2066\u200b":     `\u202eabc\u2066\u200b`,
		"\xff\ufffd\U0010ffff":      `\xff` + "\ufffd" + `\U0010ffff`,
		"\u2028\u2029\ufeff":        `\u2028\u2029\ufeff`,
		"'quoted' \"text\" \\ план": "'quoted' \"text\" \\ план",
	} {
		if got := human.Lines(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestParseTime(t *testing.T) {
	want := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	for _, text := range []string{"2026-11-22T03:00", "2026-11-22T03:00Z", "2026-11-22 03:00", "2026-11-22T03:00:00", "2026-11-22 03:00:00Z", "2026-11-22T03:00:00Z", "2026-11-22T04:00:00+01:00"} {
		if got, ok := human.ParseTime(text); !ok || !got.Equal(want) {
			t.Errorf("%q is %v, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "yesterday", "3", "2026-13-01", "03:00"} {
		if got, ok := human.ParseTime(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\nb\xff\u202e", 3)
	f.Fuzz(func(t *testing.T, text string, most int) {
		for _, got := range []string{human.Lines(text), human.Line(text, most)} {
			if !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x07\x08\x1b\x7f\u009b\u202e\u2066\r") {
				t.Errorf("%q is %q", text, got)
			}
		}
		if human.Lines(human.Lines(text)) != human.Lines(text) || human.Line(human.Line(text, 0), 0) != human.Line(text, 0) {
			t.Errorf("%q is escaped twice", text)
		}
		line := human.Line(text, most)
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) || most > 0 && human.Width(line) > most+1 {
			t.Errorf("%q has %d columns, or what is invisible: %q", line, human.Width(line), text)
		}
	})
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", time.Microsecond: "0ms", 999 * time.Millisecond: "999ms", time.Second: "1s", 1060 * time.Millisecond: "1s",
		1160 * time.Millisecond: "1.1s", 9999 * time.Millisecond: "9.9s", 10900 * time.Millisecond: "10s", time.Minute: "1m00s",
		3*time.Hour + 59*time.Second: "3h00m", 49 * time.Hour: "2d01h", -1500 * time.Millisecond: "-1.5s",
		math.MaxInt64: "106751d23h", math.MinInt64: "-106751d23h",
	} {
		if got := human.Duration(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}
