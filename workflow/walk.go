package workflow

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"iter"

	"github.com/google/uuid"
)

// Object is any part of a plan, the plan itself included: *Plan, *Checks, *Block, *Sequence, *Action,
// *DeferredActions or *DeferBatch.
type Object interface {
	// Kind says which of the types it is.
	Kind() Kind
	// Header gives access to the fields that every object has.
	Header() Header

	// children yields each child with the field it stands in and, in a list, its index (else -1). A nil entry of a list is
	// yielded as nil; optional parts that are absent are left out.
	children(yield func(field string, index int, child Object) bool) bool
}

// Header points to the fields that every object has. A plan's PlanID is its ID.
type Header struct {
	ID     *uuid.UUID
	PlanID *uuid.UUID
	State  *State
}

// Walk yields every object of the plan with its parent, parents before their children and in the order in which
// they run: the plan itself (its parent is nil), its bypass, pre, cont, post and deferred checks, its blocks (each with
// its own checks, then its sequences), its deferred actions. Nil children are passed over.
func Walk(p *Plan) iter.Seq2[Object, Object] {
	return func(yield func(Object, Object) bool) {
		if p == nil {
			return
		}
		visit(nil, p, nil, func(_ *place, o, parent Object) bool {
			return o == nil || yield(o, parent)
		})
	}
}

// Parts returns every object below the plan, in the order of Walk.
func Parts(p *Plan) []Object {
	var parts []Object
	for o, parent := range Walk(p) {
		if parent != nil {
			parts = append(parts, o)
		}
	}
	return parts
}

// place is where an object stands: a chain of fields from the plan down to it. It is put into words only when asked for.
type place struct {
	up    *place
	in    string
	index int
}

func (p *place) String() string {
	if p == nil {
		return ""
	}
	s := p.in
	if p.index >= 0 {
		s = fmt.Sprintf("%s[%d]", s, p.index)
	}
	if p.up != nil {
		s = p.up.String() + "." + s
	}
	return s
}

// field is the path to a field of the object at the place.
func (p *place) field(name string) string {
	if p == nil {
		return name
	}
	return p.String() + "." + name
}

// visit calls do for o and all below it, each with its place; nil entries of lists are visited too.
func visit(at *place, o, parent Object, do func(at *place, o, parent Object) bool) bool {
	if !do(at, o, parent) {
		return false
	}
	if o == nil {
		return true
	}
	return o.children(func(field string, index int, child Object) bool {
		return visit(&place{at, field, index}, child, o, do)
	})
}

// Fingerprint names what is below an object: which parts, by ID, in which places. It is empty when nothing is. It reads IDs
// and nothing else of the parts, so they may be worked on meanwhile.
func Fingerprint(o Object) string {
	h := fnv.New64a()
	empty := true
	var add func(depth byte, o Object)
	add = func(depth byte, o Object) {
		o.children(func(field string, _ int, child Object) bool {
			empty = false
			h.Write([]byte{depth})
			h.Write([]byte(field))
			if child != nil {
				h.Write(child.Header().ID[:])
				add(depth+1, child)
			}
			return true
		})
	}
	add(0, o)
	if empty {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// ChecksOf returns where an object keeps its five checks: bypass, pre, cont, post, deferred. Objects other than plans
// and blocks have none.
func ChecksOf(o Object) []**Checks {
	switch o := o.(type) {
	case *Plan:
		return []**Checks{&o.BypassChecks, &o.PreChecks, &o.ContChecks, &o.PostChecks, &o.DeferredChecks}
	case *Block:
		return []**Checks{&o.BypassChecks, &o.PreChecks, &o.ContChecks, &o.PostChecks, &o.DeferredChecks}
	}
	return nil
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

// Header points to the plan's ID (twice) and state.
func (p *Plan) Header() Header { return Header{&p.ID, &p.ID, &p.State} }

// Header points to the checks' ID, PlanID and state.
func (c *Checks) Header() Header { return Header{&c.ID, &c.PlanID, &c.State} }

// Header points to the block's ID, PlanID and state.
func (b *Block) Header() Header { return Header{&b.ID, &b.PlanID, &b.State} }

// Header points to the sequence's ID, PlanID and state.
func (s *Sequence) Header() Header { return Header{&s.ID, &s.PlanID, &s.State} }

// Header points to the action's ID, PlanID and state.
func (a *Action) Header() Header { return Header{&a.ID, &a.PlanID, &a.State} }

// Header points to the deferred actions' ID, PlanID and state.
func (d *DeferredActions) Header() Header { return Header{&d.ID, &d.PlanID, &d.State} }

// Header points to the batch's ID, PlanID and state.
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

func eachChecks(o Object, yield func(string, int, Object) bool) bool {
	for i, c := range ChecksOf(o) {
		field := [...]string{"BypassChecks", "PreChecks", "ContChecks", "PostChecks", "DeferredChecks"}[i]
		if *c != nil && !yield(field, -1, *c) {
			return false
		}
	}
	return true
}

// each yields a list's elements; a nil pointer becomes a nil Object, which callers can compare.
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
