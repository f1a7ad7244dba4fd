package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// Label is how a status or an outcome is shown: by a symbol, a word, and the name of a color.
type Label struct{ Mark, Word, Color string }

// Label returns the label of the node's status.
func (n *Node) Label() Label {
	if n.DidNotApply() {
		return notApplied
	}
	return LabelOf(n.Status)
}

// notApplied is the label of bypass checks that failed: the plan goes on.
var notApplied = Label{"–", "did not apply", "idle"}

// LabelOf returns the label of a status. A status that does not exist keeps its number.
func LabelOf(s workflow.Status) Label {
	switch s {
	case workflow.NotStarted:
		return Label{"○", "not started", "idle"}
	case workflow.Running:
		return Label{"▶", "running", "run"}
	case workflow.Completed:
		return Label{"✓", "completed", "ok"}
	case workflow.Failed:
		return Label{"✗", "failed", "bad"}
	case workflow.Stopped:
		return Label{"■", "stopped", "stop"}
	}
	return Label{"?", s.String(), "idle"}
}

// Label returns the label of an outcome.
func (o Outcome) Label() Label {
	return [...]Label{{"✓", "succeeded", "ok"}, {"✗", "failed", "bad"}, {"▶", "running", "run"}, {"↯", "interrupted", "cut"}, {"✓", "skipped", "ok"}}[o]
}

// Counts returns how many actions below the node have each status, without those that none has.
func (n *Node) Counts() (list Counts) {
	order := []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped, workflow.Running, workflow.NotStarted}
	for _, s := range slices.Sorted(maps.Keys(n.Actions)) {
		if !s.Valid() {
			order = append(order, s)
		}
	}
	for _, s := range order {
		list = append(list, Count{LabelOf(s), s.String(), n.Actions[s]})
	}
	list = append(list, Count{notApplied, "NotApplied", n.NotApplied})
	return slices.DeleteFunc(list, func(c Count) bool { return c.N == 0 })
}

// Note says what else there is to know of the node in a line: how far it is, and how many attempts it took.
func (n *Node) Note() string {
	var notes []string
	if by := n.SkippedBy(); by != nil {
		notes = append(notes, "skipped by "+by.String())
	} else if n.CarriedOver {
		notes = append(notes, "carried over")
	}
	if k := len(n.Attempts); k > 1 {
		notes = append(notes, fmt.Sprintf("%d attempts", k))
	}
	if n.Object.Kind() != workflow.KindAction {
		notes = append(notes, n.Progress())
	}
	return strings.Join(notes, " · ")
}

// Causes returns the texts of an error and of those that it wraps, outermost first.
func Causes(e *plugins.Error) (all []string) {
	for ; e != nil; e = e.Wrapped {
		s := e.Message
		if s == "" {
			s = "no message"
		}
		if e.Code != 0 {
			s += fmt.Sprintf(" (code %d)", e.Code)
		}
		if e.Permanent {
			s += " (permanent)"
		}
		if e.After > 0 {
			s += fmt.Sprintf(" (again after %v)", e.After)
		}
		all = append(all, s)
	}
	return all
}

// Reason returns what made the plan fail, such as "pre check failed", or "".
func (n *Node) Reason() string {
	p, ok := n.Object.(*workflow.Plan)
	if !ok || p.Reason == workflow.NoFailure {
		return ""
	}
	return words(p.Reason.String())
}

// words returns a name of the model as words: PreCheckFailed is "pre check failed".
func words(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && 'A' <= r && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
