// Package human shows texts, times and durations to people. Texts of plans may hold anything: what is invisible, controls
// a terminal, or changes the direction of what follows, is shown as an escape of Go.
package human

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Line returns a text for one line of a terminal. It is cut after a number of columns; 0 is no limit.
func Line(text string, most int) string {
	var b strings.Builder
	columns := 0
	for shown := range shown(text, unicode.IsPrint) {
		columns += max(1, Width(shown)) // a thousand accents on a letter are cut, too
		if most > 0 && columns > most {
			return b.String() + "…"
		}
		b.WriteString(shown)
	}
	return b.String()
}

// Lines returns a text for a page: its lines, tabs and spaces of all kinds stay, and the joiners of emoji and scripts.
func Lines(text string) string {
	var b strings.Builder
	for shown := range shown(text, onPage) {
		b.WriteString(shown)
	}
	return b.String()
}

func onPage(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d':
		return true
	}
	return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r)
}

// shown yields the characters of a text: as they are, or as escapes unless visible reports true.
func shown(text string, visible func(rune) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text != "" {
			r, size := utf8.DecodeRuneInString(text)
			shown := text[:size]
			switch {
			case r == utf8.RuneError && size == 1:
				shown = fmt.Sprintf(`\x%02x`, text[0])
			case !visible(r):
				shown = strings.Trim(strconv.QuoteRune(r), "'")
			}
			if !yield(shown) {
				return
			}
			text = text[size:]
		}
	}
}

// terminal is how terminals show characters. A character of ambiguous width takes one column, whatever the locale is.
var terminal = &runewidth.Condition{StrictEmojiNeutral: true}

// Width returns how many columns of a terminal a printable text takes.
func Width(text string) int { return terminal.StringWidth(text) }

// Cut cuts a printable text with an ellipsis, if it takes more columns of a terminal than there are.
func Cut(text string, most int) string { return terminal.Truncate(text, most, "…") }

// Left returns a printable text with spaces behind it, so that it takes a number of columns.
func Left(text string, columns int) string { return terminal.FillRight(text, columns) }

// Right returns a printable text with spaces before it, so that it takes a number of columns.
func Right(text string, columns int) string { return terminal.FillLeft(text, columns) }

// UTC returns a time in UTC, within the years 0 to 9999, because JSON has no others. Stored data may hold some.
func UTC(t time.Time) time.Time {
	t = t.UTC()
	switch first, last := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC); {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t
}

// Count returns a number with commas.
func Count[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign, digits := digits[:len(digits)-len(strings.TrimLeft(digits, "-"))], strings.TrimLeft(digits, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Time returns a time in UTC to the second.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// ParseTime parses a time as forms, people and [Time] write it, down to a day. Without a zone it is in UTC.
func ParseTime(text string) (at time.Time, ok bool) {
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04", time.DateOnly,
	} {
		if at, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// Ago returns how long ago something was, to the second: 12m05s ago. What is still to come is "in 12m05s".
func Ago(d time.Duration) string {
	if d <= -time.Second {
		return "in " + Duration(-max(d, -math.MaxInt64).Truncate(time.Second))
	}
	if d < time.Second {
		return "now"
	}
	return Duration(d.Truncate(time.Second)) + " ago"
}

// Duration returns a duration in its two largest units, such as 350ms, 1.2s, 2m05s, 3h12m and 2d04h.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-max(d, -math.MaxInt64)) // the smallest duration has no opposite
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second && d%time.Second >= 100*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Resumes says what lets engines work on a suspended vault again, or where its plans run.
func Resumes(isCopy bool, movedTo string) string {
	switch {
	case isCopy:
		return "it is a copy: planvault switch moves engines to it"
	case movedTo != "":
		return "its plans run in " + movedTo
	}
	return "planvault resume ends this"
}
