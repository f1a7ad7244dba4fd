package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// watch is a look at a plan, or many of them until the plan is final.
type watch struct {
	app                     *app
	vault                   storage.Reader
	id                      uuid.UUID
	all, follow, exitStatus bool
	every                   age
	signals                 []signalRow
	waits                   func(*workflow.Plan) string // says for which turn a plan waits
	turn                    string

	second bool // the plan is on the second screen of a terminal, where it is drawn again and again
}

// run shows the plan and returns it as it was last seen.
func (w *watch) run(ctx context.Context) (*workflow.Plan, error) {
	p, err := w.vault.Read(ctx, w.id)
	if err != nil {
		return nil, err
	}
	if w.follow && !p.State.Status.Final() && w.app.drawsOn(w.app.stdoutIsTerm) && w.app.output == outputTable {
		w.second = true
		fmt.Fprint(w.app.stdout, secondScreen)
		defer w.leave()
	}
	root := report.NewOutline(p, time.Now())
	if !w.second {
		w.turn = w.waits(p)
	}
	if err := w.show(root); err != nil {
		return p, err
	}
	for w.follow && !p.State.Status.Final() {
		if !sleep.For(ctx, time.Duration(w.every)) {
			return p, fmt.Errorf("plan %s: %s, %s; planvault show %[1]s --watch follows it again (%[4]w)", w.id, root.Label().Word, root.Progress(), ctx.Err())
		}
		next, err := w.vault.Read(ctx, w.id)
		switch {
		case ctx.Err() != nil:
			continue // the wait says so
		case errors.Is(err, storage.ErrUnavailable):
			w.trouble(err)
			continue
		case err != nil:
			return p, err
		}
		before := root
		p, root = next, report.NewOutline(next, time.Now())
		if err := w.showNext(before, root); err != nil {
			return p, err
		}
	}
	return p, nil
}

// show shows all of the plan. As JSON, it is an object.
func (w *watch) show(root *report.Node) error {
	if w.second {
		return w.draw(root)
	}
	summary := summaryOf(root)
	summary.Signals, summary.Turn = w.signals, w.turn
	return w.app.printNext(summary, func(out io.Writer) {
		w.app.newTree(root, w.all).write(out, root)
		if w.turn != "" {
			fmt.Fprintf(out, "\n%s\n", wrap(printable(w.turn, 0), w.app.width()))
		}
		for i, row := range w.signals {
			if i == 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintln(out, row.line(w.app.stamp))
		}
	})
}

// showNext shows what has changed, each change on a line. As JSON, it is the object again.
func (w *watch) showNext(before, root *report.Node) error {
	list := changes(before, root)
	switch {
	case w.second && root.Status.Final():
		w.leave()
		return w.show(root)
	case w.second:
		return w.draw(root)
	case len(list) == 0:
		return nil
	}
	return w.app.printNext(summaryOf(root), func(out io.Writer) {
		t := tree{color: w.app.colors(), all: w.all, stamp: w.app.stamp, wide: w.app.stampWidth()}
		for _, c := range list {
			fmt.Fprintln(out, t.change(c))
		}
	})
}

// leave goes back to the first screen, on which the plan stays in the end.
func (w *watch) leave() {
	if w.second {
		fmt.Fprint(w.app.stdout, firstScreen)
	}
	w.second = false
}

// trouble says why there is no news.
func (w *watch) trouble(err error) {
	if w.second {
		fmt.Fprint(w.app.stdout, topLeft, restOfLine, printable(storage.Detail(err), 200))
		return
	}
	w.app.complain(err)
}

// The sequences of terminals that a screen uses.
const (
	secondScreen = "\x1b[?1049h\x1b[?25l" // without the cursor
	firstScreen  = "\x1b[?25h\x1b[?1049l"
	topLeft      = "\x1b[H"
	restOfLine   = "\x1b[K"
	restOfScreen = "\x1b[J"
)

// draw draws the plan on the second screen.
func (w *watch) draw(root *report.Node) error {
	t := w.app.newTree(root, w.all)
	width, height := w.app.terminalSize()
	head, lines := t.head(root), t.lines(root)
	if !t.all && len(head)+1+len(lines) >= height {
		t.fold = true
		lines = t.lines(root)
	}
	shown := fit(head, lines, height-1)
	for i, line := range shown {
		shown[i] = cutStyled(line, width-1)
	}
	_, err := io.WriteString(w.app.stdout, screenOf(shown))
	return err
}

// screenOf returns what draws lines from the top of a screen.
func screenOf(lines []string) string {
	var b strings.Builder
	b.WriteString(topLeft)
	for _, line := range lines {
		b.WriteString(restOfLine + line + "\n")
	}
	return b.String() + restOfScreen
}

// fit returns the lines of a plan that fit a height: the head, and of the tree the lines around the first live one.
func fit(head []string, body []treeLine, height int) []string {
	lines := append(head, "")
	room := max(1, height-len(lines)-1)
	from, cut := 0, len(body) > room
	if cut {
		for i, l := range body {
			if l.live {
				from = min(max(0, i-3), len(body)-room)
				break
			}
		}
		body = body[from : from+room]
	}
	for _, l := range body {
		lines = append(lines, l.text)
	}
	if cut {
		lines = append(lines, "More lines do not fit. Ctrl-C ends; --all shows all of the tree.")
	}
	return lines[:min(len(lines), max(1, height))]
}

// cutStyled cuts a text with colors after a number of columns.
func cutStyled(s string, most int) string {
	n, styled := 0, false
	for i, r := range s {
		switch {
		case r == '\x1b':
			styled = true
		case styled:
			styled = r != 'm'
		default:
			if n += textWidth(string(r)); n > most {
				return s[:i] + "\x1b[0m"
			}
		}
	}
	return s
}

// changed is what happened to an object between two looks at its plan.
type changed struct {
	at   time.Time
	node *report.Node
	// attempt is an attempt that failed or was interrupted, while the object stays Running.
	attempt *report.Attempt
}

// changes returns what happened between two outlines of a plan. An object that began comes before what is below it, and
// one that ended after it. An attempt is known by its start, because continuous checks keep only the last attempts.
func changes(before, after *report.Node) (list []changed) {
	is := before.Status != after.Status
	if is && !after.Status.Final() {
		list = append(list, changed{at: after.Span.Start, node: after})
	} else if n := len(after.Attempts); after.Status == workflow.Running && n > 0 {
		seen := map[time.Time]report.Outcome{}
		for _, a := range before.Attempts {
			seen[a.Span.Start] = a.Outcome
		}
		for i, a := range after.Attempts {
			was, known := seen[a.Span.Start]
			if (a.Outcome == report.Failed || a.Outcome == report.Interrupted) && (!known || was != a.Outcome) {
				list = append(list, changed{at: a.Span.End, node: after, attempt: &after.Attempts[i]})
			}
		}
	}
	for i, c := range after.Children {
		if i < len(before.Children) { // the shape of a plan never changes
			list = append(list, changes(before.Children[i], c)...)
		}
	}
	if is && after.Status.Final() {
		list = append(list, changed{at: after.Span.End, node: after})
	}
	return list
}

// change returns the line of a change.
func (t tree) change(c changed) string {
	label := c.node.Label()
	path := c.node.Path
	if path == "" {
		path = c.node.Title
	}
	text := fmt.Sprintf("%-*s  %s  %s", t.wide, t.time(c.at), t.paint(label.Color, fmt.Sprintf("%-11s", label.Word)), t.text(path))
	switch {
	case c.attempt != nil:
		text += "  " + t.attempt(*c.attempt)
	case c.node.Status.Final():
		if took := c.node.Span.Took(); took != "" {
			text += "  " + took
		}
		if e := c.node.LastError(); e != "" && c.node.Status == workflow.Failed {
			text += ": " + t.text(e)
		}
	}
	return text
}
