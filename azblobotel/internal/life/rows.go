package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// row is a line of the tree: a span, or an event of a span.
type row struct {
	branch     string // what connects the row with its parent
	depth      int
	name       string
	result     string
	start, end time.Duration // since the first span began; an event has no length
	event      bool
	failed     bool
}

// arrange returns the rows of a trace: each span before its children and events, which are in the order of
// their times.
func arrange(spans tracetest.SpanStubs) []row {
	children := map[trace.SpanID][]tracetest.SpanStub{}
	for _, s := range spans {
		children[s.Parent.SpanID()] = append(children[s.Parent.SpanID()], s)
	}
	var rows []row
	for _, root := range children[trace.SpanID{}] {
		rows = append(rows, below(root, children, root.StartTime, 0)...)
	}
	return connect(rows)
}

// below returns the rows of a span and of all below it. It leaves the branches empty.
func below(s tracetest.SpanStub, children map[trace.SpanID][]tracetest.SpanStub, zero time.Time, depth int) []row {
	var groups [][]row
	for _, child := range children[s.SpanContext.SpanID()] {
		groups = append(groups, below(child, children, zero, depth+1))
	}
	for _, e := range s.Events {
		groups = append(groups, []row{eventRow(e, zero, depth+1)})
	}
	slices.SortStableFunc(groups, func(a, b []row) int { return cmp.Compare(a[0].start, b[0].start) })
	return slices.Concat([]row{spanRow(s, zero, depth)}, slices.Concat(groups...))
}

func spanRow(s tracetest.SpanStub, zero time.Time, depth int) row {
	a := attribute.NewSet(s.Attributes...)
	r := row{depth: depth, name: s.Name, start: s.StartTime.Sub(zero), end: s.EndTime.Sub(zero), failed: s.Status.Code == codes.Error}
	switch {
	case a.HasValue("azblob.outcome"):
		r.result = fmt.Sprintf("%s, requests %s, round trips %s", value(a, "azblob.outcome"), value(a, "azblob.requests"), value(a, "azblob.round_trips"))
	case a.HasValue("azblob.blob"):
		method, what, _ := strings.Cut(s.Name, " ")
		r.name = method + " " + cmp.Or(shorten(value(a, "azblob.blob")), what)
		r.result = value(a, "http.response.status_code")
	}
	return r
}

func eventRow(e sdktrace.Event, zero time.Time, depth int) row {
	at := e.Time.Sub(zero)
	a := attribute.NewSet(e.Attributes...)
	r := row{depth: depth, name: e.Name, start: at, end: at, event: true}
	if a.HasValue("error.type") {
		r.result = value(a, "error.type")
	}
	return r
}

func value(a attribute.Set, key attribute.Key) string {
	v, _ := a.Value(key)
	return v.String()
}

const id = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

var partOf, planOf = regexp.MustCompile(id + `/` + id), regexp.MustCompile(id)

// shorten takes the IDs out of the name of a blob.
func shorten(blob string) string {
	return planOf.ReplaceAllString(partOf.ReplaceAllString(blob, "<plan>/<id>"), "<plan>")
}

// connect sets the branches. A row is the last child of its parent if no later row has its depth before one of
// a smaller depth.
func connect(rows []row) []row {
	var open []bool // for each depth, whether a later row continues it
	for i, r := range slices.Backward(rows) {
		for len(open) <= r.depth {
			open = append(open, false)
		}
		open = open[:r.depth+1] // deeper ones belong to other parents
		if r.depth > 0 {
			var b strings.Builder
			for _, on := range open[1:r.depth] {
				b.WriteString(map[bool]string{true: "│  ", false: "   "}[on])
			}
			b.WriteString(map[bool]string{true: "├─ ", false: "└─ "}[open[r.depth]])
			rows[i].branch = b.String()
		}
		open[r.depth] = true
	}
	return rows
}

// write prints the tree with the durations.
func write(w io.Writer, rows []row) error {
	for _, r := range rows {
		took := "·"
		if !r.event {
			took = milliseconds(r.end - r.start)
		}
		mark := " "
		if r.failed {
			mark = "!"
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-56s %8s %s %s", r.branch+r.name, took, mark, r.result), " ")); err != nil {
			return err
		}
	}
	return nil
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
}
