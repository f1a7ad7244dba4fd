package web

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"age":       func(now, t time.Time) string { return span(now.Sub(t)) },
	"iso":       func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") },
	"isSet":     func(id uuid.UUID) bool { return id != uuid.Nil },
	"menu":      func(at, url, text string) menu { return menu{url, text, at == url} },
	"name":      func(text string) string { return cut(text, 160) },
	"part":      func(now time.Time, data any) part { return part{now, data} },
	"negate":    func(d time.Duration) time.Duration { return -d },
	"plans":     func(id string, now time.Time, rows []planRow) planTable { return planTable{id, now, rows} },
	"printable": printable,
	"span":      span,
	"stamp":     stamp,
	"took":      func(from, to time.Time) string { return span(to.Sub(from)) },
}

// menu is a link of the menu.
type menu struct {
	URL, Text string
	Here      bool
}

// planTable is a table of open plans.
type planTable struct {
	ID   string
	Now  time.Time
	Rows []planRow
}

// cut returns the first characters of a text, and an ellipsis if there are more.
func cut(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return printable(text[:i]) + "…"
		}
		n++
	}
	return printable(text)
}

// printable returns a text with control characters, and those that change the direction of what follows, escaped.
func printable(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// stamp returns a time for people.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// span returns a duration for people, with two units at most. The script of the pages does the same.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}
