package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/workflow"
)

// tree draws plans as trees.
type tree struct {
	color bool
	all   bool // nothing is folded or cut
	fold  bool // groups that are Completed are a line
	begun bool // the plan has begun, so that groups that have not are a line
	stamp func(time.Time) string
	wide  int // how many columns a time takes
}

// manyActions is how many actions a plan has of which show folds what is Completed.
const manyActions = 60

// newTree returns how a plan is drawn on stdout.
func (a *app) newTree(root *report.Node, all bool) tree {
	n := root.NotApplied
	for _, c := range root.Actions {
		n += c
	}
	return tree{color: a.colors(), all: all, fold: !all && n > manyActions, begun: root.Status != workflow.NotStarted, stamp: a.stamp, wide: a.stampWidth()}
}

// colors reports whether results may have colors.
func (a *app) colors() bool {
	return a.drawsOn(a.stdoutIsTerm) && a.getenv("NO_COLOR") == ""
}

// write draws a plan: what it is, and its tree.
func (t tree) write(w io.Writer, root *report.Node) {
	for _, line := range t.head(root) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	for _, line := range t.lines(root) {
		fmt.Fprintln(w, line.text)
	}
}

// head returns the lines about the plan as a whole.
func (t tree) head(root *report.Node) []string {
	state := t.paint(root.Label().Color, root.Label().Word)
	if reason := root.Reason(); reason != "" {
		state += ": " + reason
	}
	lines := []string{t.style("1", t.text(root.Title)) + "  " + state}
	for _, f := range report.FactsOf(root).In("tree") {
		lines = append(lines, fmt.Sprintf("  %-12s %s", f.Name, t.text(f.Text(t.time))))
	}
	return lines
}

// time returns a time, or "" for the zero time.
func (t tree) time(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return t.stamp(at)
}

// treeLine is a line of a tree.
type treeLine struct {
	text string
	live bool // somebody wants to see it: something runs or has failed
}

// lines returns the tree below a plan.
func (t tree) lines(root *report.Node) (lines []treeLine) {
	lines = append(lines, treeLine{text: fmt.Sprintf("%-*s  %7s  %s", t.wide, "STARTED", "TOOK", "PLAN")})
	for _, c := range root.Children {
		lines = t.node(lines, c, 0)
	}
	return lines
}

func (t tree) node(lines []treeLine, n *report.Node, depth int) []treeLine {
	label := n.Label()
	indent := strings.Repeat("  ", depth)
	notes := []string{}
	if n.Role != "" {
		notes = append(notes, t.dim(n.Role))
	}
	if n.Status != workflow.Completed {
		notes = append(notes, t.paint(label.Color, label.Word))
	}
	if note := n.Note(); note != "" {
		notes = append(notes, t.dim(note))
	}
	line := fmt.Sprintf("%-*s  %7s  %s%s %s", t.wide, t.time(n.Span.Start), n.Span.Took(), indent, t.paint(label.Color, label.Mark), t.text(n.Title))
	if len(notes) > 0 {
		line += "  " + strings.Join(notes, ", ")
	}
	action := n.Object.Kind() == workflow.KindAction
	live := action && (n.Span.Open && n.Status == workflow.Running || n.Troubled())
	lines = append(lines, treeLine{strings.TrimRight(line, " "), live})
	if action {
		return t.errors(lines, n, depth+1)
	}
	if t.folded(n) {
		return lines
	}
	for _, c := range n.Children {
		lines = t.node(lines, c, depth+1)
	}
	return lines
}

// folded reports whether a group is only a line: nothing in it needs a look.
func (t tree) folded(n *report.Node) bool {
	switch {
	case t.all || n.Troubled():
		return false
	case n.Status == workflow.NotStarted:
		return t.fold || t.begun && n.Actions[workflow.NotStarted] > 0 && len(n.Actions) == 1
	}
	return n.CarriedOver || t.fold && n.Status == workflow.Completed
}

// errors adds the attempts of an action that did not succeed, but not those of bypass checks.
func (t tree) errors(lines []treeLine, n *report.Node, depth int) []treeLine {
	if n.Harmless && !t.all {
		return lines
	}
	indent := strings.Repeat(" ", t.wide+11+2*depth)
	var shown []report.Attempt
	for _, a := range n.Attempts {
		if a.Outcome == report.Failed || a.Outcome == report.Interrupted {
			shown = append(shown, a)
		}
	}
	if more := len(shown) - maxShownAttempts; more > 0 && !t.all {
		lines = append(lines, treeLine{text: indent + t.dim(plural(more, "attempt")+" before that did not succeed")})
		shown = shown[more:]
	}
	for _, a := range shown {
		lines = append(lines, treeLine{text: indent + t.attempt(a)})
	}
	return lines
}

// attempt describes an attempt that did not succeed.
func (t tree) attempt(a report.Attempt) string {
	label := a.Outcome.Label()
	text := fmt.Sprintf("%s attempt %d %s", t.paint(label.Color, label.Mark), a.Number, label.Word)
	if took := a.Span.Took(); took != "" {
		text += " after " + took
	}
	if a.Err != nil {
		text += ": " + t.text(strings.Join(report.Causes(a.Err), ": "))
	}
	return text
}

// maxShownAttempts is how many attempts of an action the tree has, and maxShownText how much of a text.
const (
	maxShownAttempts = 5
	maxShownText     = 120
)

// text returns a text of the plan on one line.
func (t tree) text(s string) string {
	if t.all {
		return printable(strings.ReplaceAll(s, "\n", " "), 0)
	}
	return printable(strings.ReplaceAll(s, "\n", " "), maxShownText)
}

func (t tree) paint(color, s string) string {
	code := map[string]string{"ok": "32", "bad": "31", "run": "36", "stop": "33", "cut": "35", "idle": "2"}[color]
	return t.style(code, s)
}

func (t tree) dim(s string) string { return t.style("2", s) }

func (t tree) style(code, s string) string {
	if !t.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
