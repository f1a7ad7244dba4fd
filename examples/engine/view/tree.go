package view

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// tree is a copy of a plan as it was last seen. The engine's own plan changes all the time.
type tree struct {
	name   string
	reason workflow.FailureReason
	root   *node
	nodes  map[uuid.UUID]*node
	// resumed is set if the plan had begun when the engine picked it up. doneBefore actions were final then,
	// cutOff running.
	resumed            bool
	doneBefore, cutOff int
	left               error // why the engine left the plan
	epoch              int64 // 0 without a fleet
}

// node is an object of a plan.
type node struct {
	kind workflow.Kind
	// name is the author's name, or names the checks.
	name     string
	group    group
	parent   *node
	children []*node
	state    workflow.State
	attempts int
	// failure is the message of the last failed attempt.
	failure string
}

// group is the checks group that a node is or belongs to.
type group int

const (
	noChecks group = iota
	bypassChecks
	preChecks
	contChecks
	postChecks
	deferredChecks
)

func (g group) String() string {
	return [...]string{"", "bypass checks", "pre checks", "continuous checks", "post checks", "deferred checks"}[g]
}

func newTree(p *workflow.Plan) *tree {
	t := &tree{name: plain(p.Name), nodes: map[uuid.UUID]*node{}, epoch: p.Epoch}
	for o, parent := range workflow.Walk(p) {
		n := &node{kind: o.Kind(), name: nameOf(o)}
		if parent == nil {
			t.root = n
		} else {
			n.parent = t.nodes[*parent.Header().ID]
			n.parent.children = append(n.parent.children, n)
			n.group = n.parent.group
			for i, c := range workflow.ChecksOf(parent) {
				if *c != nil && workflow.Object(*c) == o {
					n.group = bypassChecks + group(i)
					n.name = n.group.String()
				}
			}
		}
		t.nodes[*o.Header().ID] = n
		t.note(o)
		// A plan that its node has just claimed is Running, and nothing of it has begun.
		t.resumed = t.resumed || n.state.Status != workflow.NotStarted && (parent != nil || p.Epoch == 0)
	}
	for _, n := range t.nodes {
		slices.SortStableFunc(n.children, func(a, b *node) int { return a.turn() - b.turn() })
	}
	t.doneBefore, _ = t.progress()
	for n := range t.actions() {
		if n.state.Status == workflow.Running {
			t.cutOff++
		}
	}
	return t
}

// turn orders the children of a plan or block by when they run: some checks run after the work.
func (n *node) turn() int {
	switch {
	case n.kind == workflow.KindDeferredActions:
		return 2
	case n.group >= postChecks:
		return 1
	}
	return 0
}

// note copies an object's own fields. It also returns the node as it was before.
func (t *tree) note(o workflow.Object) (n *node, before node) {
	n = t.nodes[*o.Header().ID]
	before = *n
	n.state = *o.Header().State
	switch o := o.(type) {
	case *workflow.Plan:
		t.reason = o.Reason
	case *workflow.Action:
		n.attempts, n.failure = len(o.Attempts), ""
		for _, a := range o.Attempts {
			if a.Err != nil {
				n.failure = plain(a.Err.Message)
			}
		}
		if n.state.Status == workflow.Completed {
			n.failure = ""
		}
	}
	return n, before
}

// actions yields the actions that run once, which leaves out those of continuous checks.
func (t *tree) actions() func(yield func(*node) bool) {
	return func(yield func(*node) bool) {
		for _, n := range t.nodes {
			if n.kind == workflow.KindAction && n.group != contChecks && !yield(n) {
				return
			}
		}
	}
}

// progress counts the final actions and all actions.
func (t *tree) progress() (done, all int) {
	for n := range t.actions() {
		all++
		if n.state.Status.Final() {
			done++
		}
	}
	return done, all
}

// runningNow returns the paths of the running actions, sorted.
func (t *tree) runningNow() []string {
	var names []string
	for _, n := range t.nodes {
		if n.kind == workflow.KindAction && n.state.Status == workflow.Running {
			names = append(names, n.path())
		}
	}
	slices.Sort(names)
	return names
}

// path returns the names from the plan down to the node, without the plan's.
func (n *node) path() string {
	if n.parent == nil {
		return ""
	}
	return strings.TrimPrefix(n.parent.path()+" / "+n.name, " / ")
}

// took returns how long a node has run or ran.
func (n *node) took(now time.Time) time.Duration {
	switch {
	case n.state.Start.IsZero():
		return 0
	case n.state.Status.Final():
		now = n.state.End
	}
	return max(0, now.Sub(n.state.Start))
}

func nameOf(o workflow.Object) string {
	name := ""
	switch o := o.(type) {
	case *workflow.Plan:
		name = o.Name
	case *workflow.Block:
		name = o.Name
	case *workflow.Sequence:
		name = o.Name
	case *workflow.Action:
		name = o.Name
	case *workflow.DeferBatch:
		name = o.Name
	case *workflow.DeferredActions:
		name = "deferred actions"
	}
	if name == "" {
		name = o.Kind().String()
	}
	return plain(name)
}

// plain returns a text on one line, without control characters.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// leftAsItStands says why the engine left the plan.
func (t *tree) leftAsItStands() string {
	next := "the next start goes on with it"
	if t.epoch > 0 {
		next = "another node goes on with it"
	}
	return fmt.Sprintf("%s is left as it stands (%v): %s", t.name, t.left, next)
}
