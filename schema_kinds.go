package azblob

import (
	"slices"

	"github.com/planvault/azblob/workflow"
)

// The kinds of sub-objects, in a table.

// objectPointer is a pointer to T that is an object.
type objectPointer[T any] interface {
	*T
	workflow.Object
}

// kind is a kind of sub-object: a row of the table kinds.
type kind struct {
	of  workflow.Kind
	dir string
	// empty returns a new object to decode into.
	empty func() workflow.Object
	// withoutChildren copies an object and reduces its children to their IDs.
	withoutChildren func(workflow.Object) workflow.Object
	// copyOwnFields gives dst the fields of src, except that dst keeps its children.
	copyOwnFields func(dst, src workflow.Object)
}

var kinds = [...]kind{
	row("blocks/", func(b *workflow.Block) {
		stubChecks(b)
		b.Sequences = stubs(b.Sequences)
	}, func(dst, src *workflow.Block) {
		keepChecks(dst, src)
		dst.Sequences = src.Sequences
	}),
	row("sequences/", func(s *workflow.Sequence) { s.Actions = stubs(s.Actions) },
		func(dst, src *workflow.Sequence) { dst.Actions = src.Actions }),
	row("checks/", func(c *workflow.Checks) { c.Actions = stubs(c.Actions) },
		func(dst, src *workflow.Checks) { dst.Actions = src.Actions }),
	row("actions/", func(*workflow.Action) {}, func(_, _ *workflow.Action) {}),
	row("deferredactions/", func(d *workflow.DeferredActions) { d.Batches = stubs(d.Batches) },
		func(dst, src *workflow.DeferredActions) { dst.Batches = src.Batches }),
	row("deferbatches/", func(b *workflow.DeferBatch) { b.Actions = stubs(b.Actions) },
		func(dst, src *workflow.DeferBatch) { dst.Actions = src.Actions }),
}

// planKind is the same for a plan, which has no directory of its own.
var planKind = row("", func(p *workflow.Plan) {
	stubChecks(p)
	p.Blocks = stubs(p.Blocks)
	p.DeferredActions = stub(p.DeferredActions)
}, func(dst, src *workflow.Plan) {
	keepChecks(dst, src)
	dst.Blocks = src.Blocks
	dst.DeferredActions = src.DeferredActions
})

// row returns a kind, given how to reduce its children to stubs and how to keep them.
func row[T any, P objectPointer[T]](dir string, stubChildren func(P), keepChildren func(dst, src P)) kind {
	return kind{
		of:    P(new(T)).Kind(),
		dir:   dir,
		empty: func() workflow.Object { return P(new(T)) },
		withoutChildren: func(o workflow.Object) workflow.Object {
			c := *o.(P)
			stubChildren(&c)
			return P(&c)
		},
		copyOwnFields: func(dst, src workflow.Object) {
			c := *src.(P)
			keepChildren(&c, dst.(P))
			*dst.(P) = c
		},
	}
}

// stub returns an object with the ID of o and nothing else.
func stub[T any, P objectPointer[T]](o P) P {
	if o == nil {
		return nil
	}
	s := P(new(T))
	*s.Header().ID = *o.Header().ID
	return s
}

func stubs[T any, P objectPointer[T]](list []P) []P {
	out := make([]P, len(list))
	for i, o := range list {
		out[i] = stub(o)
	}
	return out
}

func stubChecks(o workflow.Object) {
	for _, c := range workflow.ChecksOf(o) {
		*c = stub(*c)
	}
}

func keepChecks(dst, src workflow.Object) {
	from := workflow.ChecksOf(src)
	for i, c := range workflow.ChecksOf(dst) {
		*c = *from[i]
	}
}

// kindOf returns the kind of an object.
func kindOf(o workflow.Object) kind {
	for _, k := range kinds {
		if k.of == o.Kind() {
			return k
		}
	}
	return planKind
}

// kindIn returns the kind whose sub-objects are in a directory.
func kindIn(dir string) (kind, bool) {
	i := slices.IndexFunc(kinds[:], func(k kind) bool { return k.dir == dir })
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// sameChildren reports whether two versions of an object have the same children, by ID, in the same places.
func sameChildren(a, b workflow.Object) bool {
	return workflow.Fingerprint(kindOf(a).withoutChildren(a)) == workflow.Fingerprint(kindOf(b).withoutChildren(b))
}
