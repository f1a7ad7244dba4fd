package web

import (
	"html/template"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/fleet"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"age":       age,
	"code":      func(r fleet.Reason) string { return string(r) },
	"iso":       func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") },
	"isSet":     func(id uuid.UUID) bool { return id != uuid.Nil },
	"name":      func(text string) string { return human.Line(text, 160) },
	"part":      func(now time.Time, data any) part { return part{now, data} },
	"last":      func(id uuid.UUID) string { return "…" + id.String()[28:] },
	"negate":    func(d time.Duration) time.Duration { return -d },
	"long":      func(text string) string { return human.Line(text, 2000) },
	"resumes":   human.Resumes,
	"row":       func(now time.Time, row planRow, detail bool) planView { return planView{now, row, detail} },
	"printable": func(text string) string { return human.Line(text, 0) },
	"span":      human.Duration,
	"label":     report.LabelOf,
	"lower":     valueOf,
	"whole":     whole,
	"stamp":     report.Time,
	"took":      func(from, to time.Time) string { return human.Duration(to.Sub(from)) },
}

// planView is a row of open plans. With detail, it says why the plan is as it is.
type planView struct {
	Now    time.Time
	Row    planRow
	Detail bool
}

// whole returns a duration in whole seconds.
func whole(d time.Duration) string {
	if d < time.Second {
		return "0s"
	}
	return human.Duration(d.Truncate(time.Second))
}

// age returns how long ago something was. The script of the pages does the same.
func age(now, t time.Time) string { return whole(now.Sub(t)) }
