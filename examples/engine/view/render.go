package view

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/planvault/azblob/workflow"
)

// line is a line of the picture: a text and a note that follows it.
type line struct {
	indent     int
	status     workflow.Status
	text, note string
	plainMark  string // instead of the status' mark
	bold       bool
}

// Marks are coloured; text is only dim or bold.
const (
	reset  = "\x1b[0m"
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

// mark returns the symbol of a status and its colour.
func mark(s workflow.Status) (symbol, colour string) {
	switch s {
	case workflow.Running:
		return "▶", yellow
	case workflow.Completed:
		return "✓", green
	case workflow.Failed:
		return "✗", red
	case workflow.Stopped:
		return "■", red
	}
	return "·", dim
}

// detail is how much of a tree is shown.
type detail int

const (
	everything detail = iota
	openOnly          // final objects in one line
	runningOnly
	groupsOnly // the actions of a group in the group's line
	linesOnly  // one line for each child of the plan
)

// render draws trees, and the lines of others below them, for a terminal of the given columns and lines, with
// as much detail as fits.
func render(trees []*tree, others []line, width, height int, now time.Time) []string {
	var lines []line
	for d := everything; d <= linesOnly; d++ {
		lines = lines[:0]
		for i, t := range trees {
			with := d
			if i < len(trees)-1 && t.root.state.Status.Final() {
				with = linesOnly + 1 // only the title
			}
			lines = append(lines, t.lines(with, width, now)...)
		}
		lines = append(lines, others...)
		if len(lines) < height {
			break
		}
	}
	if room := max(height-1, 1); len(lines) > room { // the cursor is below the picture
		text := fmt.Sprintf("%d more lines do not fit", len(lines)-room+1)
		lines = append(lines[:room-1], line{plainMark: " ", text: text})
	}
	drawn := make([]string, len(lines))
	for i, l := range lines {
		drawn[i] = l.draw(width)
	}
	return drawn
}

func (t *tree) lines(d detail, width int, now time.Time) []line {
	done, all := t.progress()
	title := line{status: t.root.state.Status, text: t.name, bold: true, note: strings.Join([]string{
		t.root.state.Status.String(), seconds(t.root.took(now)),
		bar(done, all, t.root.state.Status == workflow.Completed, min(24, width/4)), fmt.Sprintf("%d of %d actions", done, all),
	}, "  ")}
	if t.epoch > 0 {
		title.note += fmt.Sprintf("  epoch %d", t.epoch)
	}
	if t.reason != workflow.NoFailure {
		title.note += "  " + t.reason.String()
	}
	lines := []line{title}
	if d > linesOnly {
		return lines
	}
	for _, n := range t.root.children {
		lines = append(lines, n.lines(1, d, now)...)
	}
	return lines
}

func (n *node) lines(indent int, d detail, now time.Time) []line {
	l := line{indent: indent, status: n.state.Status, text: n.name}
	var notes []string
	if took := n.took(now); took >= 50*time.Millisecond {
		notes = append(notes, seconds(took))
	}
	if n.attempts > 1 && n.group != contChecks {
		notes = append(notes, fmt.Sprintf("%d attempts", n.attempts))
	}
	if n.group == bypassChecks && n.state.Status == workflow.Failed {
		l.plainMark = "–"
		if n.kind == workflow.KindChecks {
			notes = append(notes, "no, so it goes on")
		}
	} else if n.failure != "" {
		notes = append(notes, n.failure)
	}
	hide := len(n.children) > 0 && (d == linesOnly ||
		d >= groupsOnly && n.children[0].kind == workflow.KindAction ||
		d >= openOnly && n.state.Status.Final() || d >= runningOnly && n.state.Status == workflow.NotStarted)
	if hide {
		notes = append(notes, n.summary())
	}
	l.note = strings.Join(notes, "  ")
	lines := []line{l}
	if !hide {
		for _, c := range n.children {
			lines = append(lines, c.lines(indent+1, d, now)...)
		}
	}
	return lines
}

// summary describes the actions of a node that are not shown.
func (n *node) summary() string {
	done, all, running := 0, 0, ""
	var visit func(*node)
	visit = func(n *node) {
		if n.kind == workflow.KindAction {
			all++
			switch {
			case n.state.Status.Final():
				done++
			case n.state.Status == workflow.Running:
				running += n.name + "  "
			}
		}
		for _, c := range n.children {
			visit(c)
		}
	}
	visit(n)
	if n.group == contChecks { // they have no end to count to
		return strings.TrimSpace(running)
	}
	return fmt.Sprintf("%s(%d of %d)", running, done, all)
}

// draw fits the line into the width.
func (l line) draw(width int) string {
	symbol, colour := mark(l.status)
	if l.plainMark != "" {
		symbol, colour = l.plainMark, dim
	}
	left := strings.Repeat("  ", l.indent)
	room := max(0, width-1-len(left)-2)
	text := cut(l.text, room)
	note := cut(l.note, max(0, room-utf8.RuneCountInString(text)-2))
	style := ""
	switch {
	case l.bold:
		style = bold
	case l.status == workflow.NotStarted:
		style = dim
	}
	s := left + colour + symbol + reset + " " + style + text + reset
	if note != "" {
		s += "  " + dim + note + reset
	}
	return s
}

// cut shortens a text to at most room characters.
func cut(text string, room int) string {
	if utf8.RuneCountInString(text) <= room {
		return text
	}
	if room < 2 {
		return ""
	}
	return string([]rune(text)[:room-1]) + "…"
}

// bar draws a progress bar. A full bar is full even if the plan skipped actions.
func bar(done, all int, full bool, width int) string {
	n := 0
	switch {
	case full || all == 0:
		n = width
	default:
		n = width * done / all
	}
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
