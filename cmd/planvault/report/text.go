package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Duration returns a duration as people write it, in its two largest units: 350ms, 1.2s, 2m 5s, 3h 12m, 2d 4h.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-max(d, -math.MaxInt64)) // the smallest duration has no opposite
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd %dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// Time returns a time in UTC to the second, or "" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// precise returns a time in UTC to the millisecond.
func precise(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// date returns what all times of a day begin with.
func date(t time.Time) string { return t.UTC().Format("2006-01-02 ") }

// text returns a text as a page can show it: characters that are invisible or change the direction of the text
// around them become escapes, as in Go. Lines stay lines.
func text(s string) string {
	if clean(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case visible(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

func clean(s string) bool {
	for i, r := range s {
		if !visible(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") {
			return false
		}
	}
	return true
}

// visible reports whether a character may stand in a text as it is. Joiners make emoji and some scripts.
func visible(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d':
		return true
	}
	return unicode.IsGraphic(r) && !unicode.In(r, unicode.Zl, unicode.Zp)
}

// line returns a text on one line, of at most limit characters.
func line(s string, limit int) string {
	cut := len(s)
	n := 0
	for i := range s {
		if n++; n > limit {
			cut = i
			break
		}
	}
	short := strings.NewReplacer("\n", " ", "\t", " ", "\r", " ").Replace(s[:cut])
	if cut < len(s) {
		return text(short) + "…"
	}
	return text(short)
}

// maxPayload is how much of a request or a response a page shows. maxNesting is how deep it may be nested to be
// indented: the indentation of thousands of levels would take megabytes.
const (
	maxPayload = 64 << 10
	maxNesting = 100
)

// payload returns the JSON of a request or a response, indented, and how many bytes were left out.
func payload(v any) (shown string, left int) {
	if v == nil {
		return "", 0
	}
	raw, ok := v.(json.RawMessage)
	if !ok {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return text(fmt.Sprintf("%T: %v", v, err)), 0
		}
		raw = bytes.TrimSpace(b.Bytes())
	}
	if len(raw) > maxPayload {
		left = len(raw) - maxPayload
		return text(string(raw[:maxPayload])), left
	}
	var b bytes.Buffer
	if nesting(raw) > maxNesting || json.Indent(&b, raw, "", "  ") != nil {
		return text(string(raw)), 0
	}
	return text(b.String()), 0
}

// nesting returns how deep a JSON value is nested.
func nesting(raw []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// id returns an ID, or "" for none.
func id(v uuid.UUID) string {
	if v == uuid.Nil {
		return ""
	}
	return v.String()
}
