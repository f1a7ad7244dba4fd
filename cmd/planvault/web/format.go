package web

import (
	"html/template"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/cmd/planvault/human"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"age":       func(now, t time.Time) string { return span(now.Sub(t)) },
	"iso":       func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") },
	"isSet":     func(id uuid.UUID) bool { return id != uuid.Nil },
	"menu":      func(at, url, text string) menu { return menu{url, text, at == url} },
	"name":      func(text string) string { return human.Line(text, 160) },
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

// printable returns a text on one line, as [human.Line] shows it.
func printable(text string) string { return human.Line(text, 0) }

// stamp returns a time for people.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return human.Time(t)
}

// span returns a duration in whole seconds, if it has any. The script of the pages does the same.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d >= time.Second:
		d = d.Truncate(time.Second)
	}
	return human.Duration(d)
}
