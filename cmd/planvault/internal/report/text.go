package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
)

// Time returns a time in UTC to the second, or "" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return human.Time(t)
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

// maxText is how much of a name, a description or an error a page shows.
const maxText = 64 << 10

// text returns a text as a page can show it. Lines stay lines.
func text(s string) string {
	if left := len(s) - maxText; left > 0 {
		return human.Lines(strings.ToValidUTF8(s[:maxText], "")) + fmt.Sprintf("… (%d more bytes)", left)
	}
	return human.Lines(s)
}

// line returns a text on one line, of a limited length.
func line(s string, limit int) string {
	return human.Line(strings.NewReplacer("\n", " ", "\t", " ", "\r", " ").Replace(s), limit)
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
