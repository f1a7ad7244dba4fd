package workflow

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"iter"
	"strings"

	"github.com/google/uuid"
)

// Object is a plan or any sub-object of it: *Plan, *Checks, *Block, *Sequence, *Action, *DeferredActions or
// *DeferBatch.
type Object interface {
	// Kind returns which of these types it is.
	Kind() Kind
	// Header returns pointers to the fields that every object has.
	Header() Header

	// children yields each child with its field and its index in the field, or -1 if the field is not a list.
	// It yields nil elements of lists as nil, and skips optional children that are nil.
	children(yield func(field string, index int, child Object) bool) bool
}

// Header has pointers to the fields that every object has. A plan's PlanID is its ID.
type Header struct {
	ID     *uuid.UUID
	PlanID *uuid.UUID
	State  *State
}

// Walk yields every object of the plan with its parent, which is nil for the plan itself. Parents come before
// their children, and children in the order in which they run: the bypass, pre, cont, post and deferred
// checks, then blocks or sequences, then the deferred actions. Walk skips nil children.
func Walk(p *Plan) iter.Seq2[Object, Object] {
	return func(yield func(Object, Object) bool) {
		if p == nil {
			return
		}
		w := newWalker(func(o, parent Object) bool { return o == nil || yield(o, parent) })
		w.walk(p)
	}
}

// Children yields the objects directly below an object. None is nil.
func Children(o Object) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		o.children(func(_ string, _ int, child Object) bool { return child == nil || yield(child) })
	}
}

// Parts returns every sub-object of the plan, in the order of [Walk].
func Parts(p *Plan) []Object {
	var parts []Object
	for o, parent := range Walk(p) {
		if parent != nil {
			parts = append(parts, o)
		}
	}
	return parts
}

// count returns how many objects there are at and below o, nil ones too.
func count(o Object) (n int) {
	newWalker(func(Object, Object) bool { n++; return true }).walk(o)
	return n
}

// walker visits objects, and knows where it is.
type walker struct {
	// do is called for each object with its parent, and for nil elements of lists.
	do func(o, parent Object) bool
	// at is the way from the object that the walk began with, which is first, to the present one.
	at     []step
	room   [5]step // the memory of at: no object lies deeper
	parent Object  // of the present object
	// next is the method visit, which is made a function once.
	next func(field string, index int, child Object) bool
}

// step is where an object's parent has it. The index is -1 if the field is not a list.
type step struct {
	field string
	index int
}

func newWalker(do func(o, parent Object) bool) *walker {
	w := &walker{do: do}
	w.at, w.next = w.room[:0], w.visit
	return w
}

// walk visits o and everything below it, until do returns false.
func (w *walker) walk(o Object) bool { return w.visit("", -1, o) }

// walkOwn visits o and its children. It ignores what do returns.
func (w *walker) walkOwn(o Object) {
	w.at = append(w.at, step{"", -1})
	w.do(o, nil)
	o.children(func(field string, index int, child Object) bool {
		w.at = append(w.at, step{field, index})
		w.do(child, o)
		w.at = w.at[:len(w.at)-1]
		return true
	})
}

func (w *walker) visit(field string, index int, o Object) bool {
	w.at = append(w.at, step{field, index})
	more := w.do(o, w.parent)
	if more && o != nil && o.Kind() != KindAction { // most objects are actions
		around := w.parent
		w.parent = o
		more = o.children(w.next)
		w.parent = around
	}
	w.at = w.at[:len(w.at)-1]
	return more
}

// path returns the path to a field of the present object, or to the object itself if field is empty.
func (w *walker) path(field string) string {
	var b strings.Builder
	for _, s := range w.at[1:] {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.field)
		if s.index >= 0 {
			fmt.Fprintf(&b, "[%d]", s.index)
		}
	}
	if b.Len() > 0 && field != "" {
		b.WriteByte('.')
	}
	return b.String() + field
}

// Fingerprint returns a hash of the tree below an object: the IDs of all sub-objects, with their places. It
// is empty if there are none. Fingerprint reads only IDs, so other goroutines may work on the sub-objects.
func Fingerprint(o Object) string {
	if o.Kind() == KindAction {
		return "" // most objects are actions
	}
	h := fingerprint{sum: fnvOffset}
	h.next = h.visit
	if o.children(h.next); h.sum == fnvOffset {
		return ""
	}
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], h.sum)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// fingerprint is the 64-bit FNV-1a of package hash/fnv, which would allocate memory for each write.
type fingerprint struct {
	sum   uint64
	depth byte
	next  func(field string, index int, child Object) bool // the method visit, as in walker
}

const fnvOffset, fnvPrime = 14695981039346656037, 1099511628211

func (h *fingerprint) visit(field string, _ int, child Object) bool {
	sum := (h.sum ^ uint64(h.depth)) * fnvPrime
	for i := range len(field) {
		sum = (sum ^ uint64(field[i])) * fnvPrime
	}
	if child == nil {
		h.sum = sum
		return true
	}
	for _, b := range child.Header().ID {
		sum = (sum ^ uint64(b)) * fnvPrime
	}
	h.sum = sum
	if child.Kind() != KindAction { // most objects are actions
		h.depth++
		child.children(h.next)
		h.depth--
	}
	return true
}

// ChecksOf returns pointers to the fields that hold the five checks of a plan or a block: bypass, pre, cont,
// post, deferred. It returns nil for other objects.
func ChecksOf(o Object) []**Checks {
	checks, ok := checksOf(o)
	if !ok {
		return nil
	}
	return checks[:]
}

// checksOf is ChecksOf without an allocation. ok is false for other objects.
func checksOf(o Object) (checks [5]**Checks, ok bool) {
	switch o := o.(type) {
	case *Plan:
		return [5]**Checks{&o.BypassChecks, &o.PreChecks, &o.ContChecks, &o.PostChecks, &o.DeferredChecks}, true
	case *Block:
		return [5]**Checks{&o.BypassChecks, &o.PreChecks, &o.ContChecks, &o.PostChecks, &o.DeferredChecks}, true
	}
	return checks, false
}

// Kind returns KindPlan.
func (p *Plan) Kind() Kind { return KindPlan }

// Kind returns KindChecks.
func (c *Checks) Kind() Kind { return KindChecks }

// Kind returns KindBlock.
func (b *Block) Kind() Kind { return KindBlock }

// Kind returns KindSequence.
func (s *Sequence) Kind() Kind { return KindSequence }

// Kind returns KindAction.
func (a *Action) Kind() Kind { return KindAction }

// Kind returns KindDeferredActions.
func (d *DeferredActions) Kind() Kind { return KindDeferredActions }

// Kind returns KindDeferBatch.
func (b *DeferBatch) Kind() Kind { return KindDeferBatch }

// Header returns pointers to the plan's ID (twice) and state.
func (p *Plan) Header() Header { return Header{&p.ID, &p.ID, &p.State} }

// Header returns pointers to the checks' ID, PlanID and state.
func (c *Checks) Header() Header { return Header{&c.ID, &c.PlanID, &c.State} }

// Header returns pointers to the block's ID, PlanID and state.
func (b *Block) Header() Header { return Header{&b.ID, &b.PlanID, &b.State} }

// Header returns pointers to the sequence's ID, PlanID and state.
func (s *Sequence) Header() Header { return Header{&s.ID, &s.PlanID, &s.State} }

// Header returns pointers to the action's ID, PlanID and state.
func (a *Action) Header() Header { return Header{&a.ID, &a.PlanID, &a.State} }

// Header returns pointers to the deferred actions' ID, PlanID and state.
func (d *DeferredActions) Header() Header { return Header{&d.ID, &d.PlanID, &d.State} }

// Header returns pointers to the batch's ID, PlanID and state.
func (b *DeferBatch) Header() Header { return Header{&b.ID, &b.PlanID, &b.State} }

func (p *Plan) children(yield func(string, int, Object) bool) bool {
	return eachChecks(p, yield) &&
		each("Blocks", p.Blocks, yield) &&
		(p.DeferredActions == nil || yield("DeferredActions", -1, p.DeferredActions))
}

func (c *Checks) children(yield func(string, int, Object) bool) bool {
	return each("Actions", c.Actions, yield)
}

func (b *Block) children(yield func(string, int, Object) bool) bool {
	return eachChecks(b, yield) && each("Sequences", b.Sequences, yield)
}

func (s *Sequence) children(yield func(string, int, Object) bool) bool {
	return each("Actions", s.Actions, yield)
}

func (a *Action) children(func(string, int, Object) bool) bool { return true }

func (d *DeferredActions) children(yield func(string, int, Object) bool) bool {
	return each("Batches", d.Batches, yield)
}

func (b *DeferBatch) children(yield func(string, int, Object) bool) bool {
	return each("Actions", b.Actions, yield)
}

// checksFields are the fields of the checks of a plan or a block, in the order of [ChecksOf].
var checksFields = [...]string{"BypassChecks", "PreChecks", "ContChecks", "PostChecks", "DeferredChecks"}

// eachChecks yields the checks of a plan or a block.
func eachChecks(o Object, yield func(string, int, Object) bool) bool {
	checks, _ := checksOf(o)
	for i, c := range checks {
		if *c != nil && !yield(checksFields[i], -1, *c) {
			return false
		}
	}
	return true
}

// each yields the elements of a list. It turns a nil pointer into a nil Object, which callers can compare
// with nil.
func each[T any, P interface {
	*T
	Object
}](field string, list []P, yield func(string, int, Object) bool) bool {
	for i, c := range list {
		var child Object
		if c != nil {
			child = c
		}
		if !yield(field, i, child) {
			return false
		}
	}
	return true
}
