package workflow

import (
	"fmt"
	"iter"
)

// Paths yields every object of a plan, in the order of [Walk], with a path for people. It has the names of the object
// and of what is around it, separated by slashes, such as "europe/canary/restart". What has no name is called by its
// kind, with its number among its siblings, such as "block 2" or "continuous checks". Each name is cut to 120
// characters. The path of the plan is empty. Paths need not be unique.
func Paths(p *Plan) iter.Seq2[Object, string] {
	return func(yield func(Object, string) bool) {
		paths, numbers := map[Object]string{}, map[sibling]int{}
		for o, parent := range Walk(p) {
			path := ""
			if parent != nil {
				numbers[sibling{parent, o.Kind()}]++
				path = nameOf(o, parent, numbers[sibling{parent, o.Kind()}])
				if above := paths[parent]; above != "" {
					path = above + "/" + path
				}
			}
			if paths[o] = path; !yield(o, path) {
				return
			}
		}
	}
}

// sibling is what the children of an object that are of one kind have in common.
type sibling struct {
	parent Object
	kind   Kind
}

// checksTitles are the names of checks for people, in the order of [ChecksOf].
var checksTitles = [...]string{"bypass checks", "pre checks", "continuous checks", "post checks", "deferred checks"}

// nameOf returns the name of a sub-object, or its kind and its number among its siblings.
func nameOf(o, parent Object, nth int) string {
	kind, name := "", ""
	switch o := o.(type) {
	case *Checks:
		for i, c := range ChecksOf(parent) {
			if *c == o {
				return checksTitles[i]
			}
		}
	case *DeferredActions:
		return "deferred actions"
	case *Block:
		kind, name = "block", o.Name
	case *Sequence:
		kind, name = "sequence", o.Name
	case *Action:
		kind, name = "action", o.Name
	case *DeferBatch:
		kind, name = "batch", o.Name
	}
	if name == "" {
		return fmt.Sprintf("%s %d", kind, nth)
	}
	return cutName(name)
}

// mostName is the number of characters to which names are cut in paths.
const mostName = 120

func cutName(name string) string {
	n := 0
	for end := range name {
		if n++; n > mostName {
			return name[:end] + "…"
		}
	}
	return name
}
