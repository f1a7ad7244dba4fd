package report

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// Node is an object of a plan as people see it. Its texts are those of the plan: a display escapes them.
type Node struct {
	// Object is the object itself.
	Object workflow.Object
	// Name is the author's name, which may be empty. Title is the name, or says which object it is, such as "block 2"
	// or "pre checks". Path has the titles down to the object, each cut as [workflow.Paths] says; that of the plan is
	// empty.
	Name, Title, Path string
	descr             string
	key               uuid.UUID
	// Role says what an object is, such as "block" or "on failure", unless its title does.
	Role   string
	Status workflow.Status
	// Span is from the start of the object to its end.
	Span Span
	// CarriedOver says that the object was final before its plan was forked from another one.
	CarriedOver bool
	// Harmless says that a failure of the object is not a failure of the plan: bypass checks just did not apply.
	Harmless bool
	// Attempts are those of an action, oldest first.
	Attempts []Attempt
	// Children are in the order in which they run. Parent is nil for the plan.
	Children []*Node
	Parent   *Node
	// turn orders the children of a plan or block by when they run: post checks and deferred checks run after the
	// work, and deferred actions last.
	turn int
	// Actions counts the actions below the node, or the node itself, by status. NotApplied counts those of bypass
	// checks that did not apply, which Actions leaves out.
	Actions    map[workflow.Status]int
	NotApplied int
}

// Attempt is one run of an action.
type Attempt struct {
	Number  int // from 1
	Outcome Outcome
	Span    Span
	Err     *plugins.Error
	Resp    any
	Said    *Said // who skipped the action; nil if it ran
}

// Outcome is how an attempt ended.
type Outcome int

// The outcomes of attempts.
const (
	Succeeded Outcome = iota
	Failed
	InProgress
	Interrupted // the engine ended it, or the process that ran it died or lost the plan
	Skipped     // nothing ran: a person declared the action done
)

// NewOutline returns the tree of a plan, without its secrets and with what [workflow.InferRunning] infers. What is running has
// run up to now. A nil plan is an empty one.
func NewOutline(p *workflow.Plan, now time.Time) *Node { return outline(p.Redacted(), now) }

// outline is NewOutline with secrets.
func outline(p *workflow.Plan, now time.Time) *Node {
	if p = workflow.InferRunning(p); p == nil {
		p = new(workflow.Plan)
	}
	nodes := map[workflow.Object]*Node{}
	for o, path := range workflow.Paths(p) {
		n := newNode(o, p, now)
		n.Path, nodes[o] = path, n
	}
	for o, parent := range workflow.Walk(p) {
		if above := nodes[parent]; above != nil {
			above.adopt(nodes[o])
		}
	}
	root := nodes[p]
	if root.Title == "" {
		root.Title = "plan"
	}
	root.settle()
	return root
}

// adopt makes c a child of n.
func (n *Node) adopt(c *Node) {
	c.Parent, n.Children = n, append(n.Children, c)
	c.Title = c.Name
	if c.Name == "" {
		c.Title = strings.TrimPrefix(strings.TrimPrefix(c.Path, n.Path), "/")
	}
	checks := checksOf(c.Object, n.Object)
	c.Harmless = n.Harmless || checks == bypassChecks
	switch {
	case checks == postChecks, checks == deferredChecks:
		c.turn = 1
	case c.Object.Kind() == workflow.KindDeferredActions:
		c.turn = 2
	}
}

// The checks of a plan or block, in the order of [workflow.ChecksOf].
const (
	bypassChecks = iota
	preChecks
	contChecks
	postChecks
	deferredChecks
)

// checksOf returns which checks of the parent an object is, or -1.
func checksOf(o, parent workflow.Object) int {
	return slices.IndexFunc(workflow.ChecksOf(parent), func(c **workflow.Checks) bool { return *c != nil && workflow.Object(*c) == o })
}

func newNode(o workflow.Object, p *workflow.Plan, now time.Time) *Node {
	s := o.Header().State
	n := &Node{Object: o, Status: s.Status}
	n.Name, n.descr, n.key = about(o)
	n.Title, n.Role = n.Name, roleOf(o, n.Name)
	n.Span = Span{Start: s.Start, End: s.End}
	if s.Status == workflow.Running && !p.State.Status.Final() {
		n.Span = Span{Start: s.Start, End: now, Open: true}
	}
	n.CarriedOver = o != workflow.Object(p) && p.ForkedFrom != [16]byte{} && s.Status.Final() && !s.End.IsZero() &&
		s.End.Before(p.SubmitTime)
	if a, ok := o.(*workflow.Action); ok {
		for i := range a.Attempts {
			n.Attempts = append(n.Attempts, newAttempt(a.Attempts, i, n.Span.Open, now))
		}
	}
	return n
}

// newAttempt describes the attempt i. A crash leaves an attempt without an end, so only the last attempt of an
// action that is running is in progress.
func newAttempt(all []workflow.Attempt, i int, running bool, now time.Time) Attempt {
	t := all[i]
	a := Attempt{Number: i + 1, Span: Span{Start: t.Start, End: t.End}, Err: t.Err, Resp: t.Resp}
	switch {
	case t.Skipped != nil:
		a.Outcome, a.Said = Skipped, saidOf(*t.Skipped)
	case t.Interrupted:
		a.Outcome = Interrupted
	case t.Err != nil:
		a.Outcome = Failed
	case !t.End.IsZero():
		a.Outcome = Succeeded
	case running && i == len(all)-1:
		a.Outcome = InProgress
		a.Span = Span{Start: t.Start, End: now, Open: true}
	default:
		a.Outcome = Interrupted
	}
	return a
}

// All yields the node and everything below it, parents first.
func (n *Node) All() iter.Seq[*Node] {
	return func(yield func(*Node) bool) { n.each(yield) }
}

func (n *Node) each(yield func(*Node) bool) bool {
	return yield(n) && !slices.ContainsFunc(n.Children, func(c *Node) bool { return !c.each(yield) })
}

// Troubled reports whether an action at or below the node failed or was stopped, in a way that matters to the plan.
func (n *Node) Troubled() bool {
	if n.Harmless || n.CarriedOver {
		return false
	}
	if n.Object.Kind() == workflow.KindAction {
		return n.Status == workflow.Failed || n.Status == workflow.Stopped
	}
	return slices.ContainsFunc(n.Children, (*Node).Troubled)
}

// DidNotApply reports whether the node is a bypass check, or a group of them, that failed. The plan goes on then.
func (n *Node) DidNotApply() bool { return n.Harmless && n.Status == workflow.Failed }

// latest returns the time until which the attempt i may have run if its end is unknown: the start of the next one,
// or the end of the action.
func (n *Node) latest(i int) time.Time {
	if i+1 < len(n.Attempts) {
		return n.Attempts[i+1].Span.Start
	}
	return n.Span.End
}

// LastError returns the error of the last attempt that failed, with its causes, or "".
func (n *Node) LastError() string {
	for _, a := range slices.Backward(n.Attempts) {
		if a.Err != nil {
			return strings.Join(Causes(a.Err), ": ")
		}
	}
	return ""
}

// SkippedBy returns who skipped the action, or nil if it ran.
func (n *Node) SkippedBy() *Said {
	if len(n.Attempts) == 0 || n.Attempts[len(n.Attempts)-1].Outcome != Skipped {
		return nil
	}
	return cmp.Or(n.Attempts[len(n.Attempts)-1].Said, new(Said))
}

// Progress says how many actions are below the node, and how many of them are final unless that is plain.
func (n *Node) Progress() string {
	final, all := n.NotApplied, n.NotApplied
	for status, count := range n.Actions {
		all += count
		if status.Final() {
			final += count
		}
	}
	switch {
	case all == 0:
		return "no actions"
	case final < all && n.Status != workflow.NotStarted || final > 0 && final < all:
		return fmt.Sprintf("%d of %d actions", final, all)
	case all == 1:
		return "1 action"
	}
	return fmt.Sprintf("%d actions", all)
}

// settle puts the children of a node in the order in which they run, and counts the actions.
func (n *Node) settle() {
	n.Actions = map[workflow.Status]int{}
	switch {
	case n.Object.Kind() != workflow.KindAction:
	case n.DidNotApply():
		n.NotApplied++
	default:
		n.Actions[n.Status]++
	}
	slices.SortStableFunc(n.Children, func(a, b *Node) int { return a.turn - b.turn })
	for _, c := range n.Children {
		c.settle()
		for status, count := range c.Actions {
			n.Actions[status] += count
		}
		n.NotApplied += c.NotApplied
	}
}

// roleOf returns what an object with a name is. That of a batch says when it runs.
func roleOf(o workflow.Object, name string) string {
	switch o := o.(type) {
	case *workflow.DeferBatch:
		return words(o.When.String())
	case *workflow.Block, *workflow.Sequence:
		if name != "" {
			return o.Kind().String()
		}
	}
	return ""
}

// about returns what the author of a plan says about an object.
func about(o workflow.Object) (name, descr string, key uuid.UUID) {
	switch o := o.(type) {
	case *workflow.Plan:
		return o.Name, o.Descr, uuid.Nil
	case *workflow.Checks:
		return "", "", o.Key
	case *workflow.Block:
		return o.Name, o.Descr, o.Key
	case *workflow.Sequence:
		return o.Name, o.Descr, o.Key
	case *workflow.Action:
		return o.Name, o.Descr, o.Key
	case *workflow.DeferBatch:
		return o.Name, o.Descr, o.Key
	}
	return "", "", uuid.Nil
}
