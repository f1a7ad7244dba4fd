package azblob

import (
	"slices"

	"github.com/planvault/azblob/workflow"
)

// kind is a row of the one table of sub-object kinds.
type kind struct {
	of  workflow.Kind
	dir string
	// empty returns a new object to decode into.
	empty func() workflow.Object
	// alone copies an object with only the IDs of its children.
	withoutChildren func(workflow.Object) workflow.Object
	// adopt gives dst the own fields of src; dst keeps its children.
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

// planKind is the plan's own row: the same forms, without a directory of its own.
var planKind = row("", func(p *workflow.Plan) {
	stubChecks(p)
	p.Blocks = stubs(p.Blocks)
	p.DeferredActions = stub(p.DeferredActions)
}, func(dst, src *workflow.Plan) {
	keepChecks(dst, src)
	dst.Blocks = src.Blocks
	dst.DeferredActions = src.DeferredActions
})

// row makes a kind of what differs between kinds: how children become stubs, and how they are kept.
func row[T any, P interface {
	*T
	workflow.Object
}](dir string, stubChildren func(P), keepChildren func(dst, src P)) kind {
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

func stub[T any, P interface {
	*T
	workflow.Object
}](o P) P {
	if o == nil {
		return nil
	}
	s := P(new(T))
	*s.Header().ID = *o.Header().ID
	return s
}

func stubs[T any, P interface {
	*T
	workflow.Object
}](list []P) []P {
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

// kindOf returns an object's row.
func kindOf(o workflow.Object) kind {
	for _, k := range kinds {
		if k.of == o.Kind() {
			return k
		}
	}
	return planKind
}

// kindIn returns the row of a directory.
func kindIn(dir string) (kind, bool) {
	i := slices.IndexFunc(kinds[:], func(k kind) bool { return k.dir == dir })
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// sameChildren says whether two versions of an object have the same children, by ID, in the same places.
func sameChildren(a, b workflow.Object) bool {
	return workflow.Fingerprint(kindOf(a).withoutChildren(a)) == workflow.Fingerprint(kindOf(b).withoutChildren(b))
}
