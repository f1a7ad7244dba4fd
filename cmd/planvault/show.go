package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob/cmd/planvault/report"
	"github.com/planvault/azblob/workflow"
)

// showCommand prints a plan as a tree.
func (a *app) showCommand() *cobra.Command {
	var w watch
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show a plan as a tree, and follow it",
		Long: `Show prints a plan as a tree: states, start times, durations, attempts, errors, owner and
epoch. Groups that have not begun are folded into a line, and so are Completed ones in a plan
of more than 60 actions. --all unfolds them, and shows errors in full.

--watch follows the plan until it is final. On a terminal it redraws the tree; in a pipe it
prints each change on a line. With --output json it prints an object for each change. While
the store can't be reached it goes on trying.

Show takes one Read: 2 requests, or one more for each sub-object of a running plan. --watch
takes as much at each interval, because only the sub-objects tell how far a plan is: an hour
beside a running plan of 60 actions costs 6 cents.

The exit code is 4 if there is no such plan. With --exit-status it is also 4 if the plan is
Failed or Stopped.`,
		Example: `  planvault show 0198c0de-0000-7000-8000-000000000001
  planvault show 0198c0de-0000-7000-8000-000000000001 --watch --exit-status && echo released`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if w.id, err = parseID("plan", args[0]); err != nil {
				return err
			}
			if shortest := 100 * time.Millisecond; time.Duration(w.every) < shortest {
				return usageError("--interval must be %v or more", shortest)
			}
			return a.show(c.Context(), w)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&w.all, "all", false, "show all of a large plan, and errors in full")
	flags.BoolVar(&w.follow, "watch", false, "follow the plan until it is final")
	w.every = age(2 * time.Second)
	flags.Var(&w.every, "interval", "with --watch, the `TIME` between two looks at the plan, such as 2s or 1m")
	flags.BoolVar(&w.exitStatus, "exit-status", false, "end with exit code 4 if the plan is Failed or Stopped")
	return c
}

// show prints a plan, and follows it if it should.
func (a *app) show(ctx context.Context, w watch) error {
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	w.app, w.vault = a, v
	p, err := w.run(ctx)
	switch {
	case err != nil:
		return err
	case w.exitStatus && (p.State.Status == workflow.Failed || p.State.Status == workflow.Stopped):
		return errFound
	}
	return nil
}

// planSummary is a plan in the JSON of show.
type planSummary struct {
	ID          uuid.UUID      `json:"id"`
	Group       *uuid.UUID     `json:"group,omitempty"`
	Name        string         `json:"name"`
	Descr       string         `json:"descr,omitempty"`
	Status      string         `json:"status"`
	Reason      string         `json:"reason,omitempty"`
	Owner       *uuid.UUID     `json:"owner,omitempty"`
	Epoch       int64          `json:"epoch,omitempty"`
	ForkedFrom  *uuid.UUID     `json:"forkedFrom,omitempty"`
	Submitted   time.Time      `json:"submitted,omitzero"`
	Started     time.Time      `json:"started,omitzero"`
	Ended       time.Time      `json:"ended,omitzero"`
	TookSeconds float64        `json:"tookSeconds,omitempty"`
	Actions     map[string]int `json:"actions"`
	Failed      []actionRow    `json:"failed,omitempty"`
	Running     []actionRow    `json:"running,omitempty"`
}

// actionRow is an action in the JSON of show.
type actionRow struct {
	ID       uuid.UUID `json:"id"`
	Path     string    `json:"path"`
	Plugin   string    `json:"plugin,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Attempts int       `json:"attempts"`
	Error    string    `json:"error,omitempty"`
}

// summaryOf returns the summary of a plan. In Actions, NotApplied are those of bypass checks that failed, which is no
// failure of the plan.
func summaryOf(p *workflow.Plan, root *report.Node) planSummary {
	s := planSummary{
		ID: p.ID, Group: known(p.GroupID), Name: p.Name, Descr: p.Descr, Status: p.State.Status.String(),
		Owner: known(p.Owner), Epoch: p.Epoch, ForkedFrom: known(p.ForkedFrom),
		Submitted: utc(p.SubmitTime), Started: utc(p.State.Start), Ended: utc(p.State.End), Actions: map[string]int{},
	}
	if p.Reason != workflow.NoFailure {
		s.Reason = p.Reason.String()
	}
	if took, ok := root.Span.Took(); ok {
		s.TookSeconds = took.Seconds()
	}
	for status, n := range root.Actions {
		s.Actions[status.String()] = n
	}
	if root.NotApplied > 0 {
		s.Actions["NotApplied"] = root.NotApplied
	}
	for n := range root.All() {
		switch action, ok := n.Object.(*workflow.Action); {
		case !ok:
		case n.Status == workflow.Failed && n.Troubled():
			s.Failed = append(s.Failed, actionRowOf(action, n))
		case n.Status == workflow.Running && n.Span.Open:
			s.Running = append(s.Running, actionRowOf(action, n))
		}
	}
	return s
}

func actionRowOf(action *workflow.Action, n *report.Node) actionRow {
	return actionRow{
		ID: action.ID, Path: n.Path, Plugin: action.Plugin,
		Started: utc(action.State.Start), Attempts: len(action.Attempts), Error: n.LastError(),
	}
}

// tree draws plans as trees.
type tree struct {
	color bool
	all   bool // nothing is folded or cut
	fold  bool // groups that are Completed are a line
	begun bool // the plan has begun, so that groups that have not are a line
}

// manyActions is how many actions a plan has of which show folds what is Completed.
const manyActions = 60

// newTree returns how a plan is drawn on stdout.
func (a *app) newTree(root *report.Node, all bool) tree {
	n := root.NotApplied
	for _, c := range root.Actions {
		n += c
	}
	return tree{color: a.colors(), all: all, fold: !all && n > manyActions, begun: root.Status != workflow.NotStarted}
}

// colors reports whether results may have colors.
func (a *app) colors() bool {
	return a.stdoutIsTerm && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// write draws a plan: what it is, and its tree.
func (t tree) write(w io.Writer, p *workflow.Plan, root *report.Node) {
	for _, line := range t.head(p, root) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	for _, line := range t.lines(root) {
		fmt.Fprintln(w, line.text)
	}
}

// head returns the lines about the plan as a whole.
func (t tree) head(p *workflow.Plan, root *report.Node) []string {
	state := t.paint(root.Label().Color, root.Label().Word)
	if reason := report.Reason(p); reason != "" {
		state += ": " + reason
	}
	lines := []string{t.bold(t.text(root.Title)) + "  " + state}
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf("  %-12s %s", name, value))
		}
	}
	add("ID", idOf(p.ID))
	add("Description", t.text(p.Descr))
	add("Group", idOf(p.GroupID))
	owner := idOf(p.Owner)
	if p.Epoch != 0 {
		owner = strings.TrimPrefix(fmt.Sprintf("%s (epoch %d)", owner, p.Epoch), " ")
	}
	add("Owner", owner)
	add("Forked from", idOf(p.ForkedFrom))
	add("Submitted", report.Time(p.SubmitTime))
	add("Started", report.Time(p.State.Start))
	add("Ended", report.Time(p.State.End))
	if took, ok := root.Span.Took(); ok {
		add("Took", span(took))
	}
	var counts []string
	for _, c := range root.Counts() {
		counts = append(counts, fmt.Sprintf("%s %s", count(c.N), c.Word))
	}
	add("Actions", strings.Join(counts, ", "))
	return lines
}

func idOf(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// treeLine is a line of a tree.
type treeLine struct {
	text string
	live bool // somebody wants to see it: something runs or has failed
}

// lines returns the tree below a plan.
func (t tree) lines(root *report.Node) (lines []treeLine) {
	lines = append(lines, treeLine{text: fmt.Sprintf("%-20s  %7s  %s", "STARTED", "TOOK", "PLAN")})
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
	took := ""
	if d, ok := n.Span.Took(); ok {
		took = span(d)
	}
	line := fmt.Sprintf("%-20s  %7s  %s%s %s", report.Time(n.Span.Start), took, indent, t.paint(label.Color, label.Mark), t.text(n.Title))
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
	indent := strings.Repeat(" ", 31+2*depth)
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
	if took, ok := a.Span.Took(); ok {
		text += " after " + span(took)
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

func (t tree) bold(s string) string { return t.style("1", s) }

func (t tree) dim(s string) string { return t.style("2", s) }

func (t tree) style(code, s string) string {
	if !t.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
