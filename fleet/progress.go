package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/planvault/azblob/workflow"
)

// note adds what a plan shows that was read.
func (p *OpenPlan) note(plan *workflow.Plan) {
	p.Read, p.Owner, p.Epoch, p.State.Status = true, plan.Owner, plan.Epoch, plan.State.Status
	p.Progress = latest(firstProgress(p.ListResult), plan.State.Start, plan.RuntimeUpdate)
	places := places{}
	for o, parent := range workflow.Walk(plan) {
		here := places.add(o, parent)
		if parent == nil || here.cont {
			continue
		}
		s := o.Header().State
		p.Progress = latest(p.Progress, s.Start, s.End)
		if s.Status == workflow.Running {
			p.delay = max(p.delay, delayOf(o))
		}
		if a, ok := o.(*workflow.Action); ok {
			p.noteAction(a, here)
		}
	}
	slices.SortStableFunc(p.Running, func(a, b RunningAction) int { return a.Since.Compare(b.Since) })
}

func (p *OpenPlan) noteAction(a *workflow.Action, here *place) {
	p.Actions++
	for _, t := range a.Attempts {
		p.Progress = latest(p.Progress, t.Start, t.End)
	}
	switch {
	case a.State.Status.Final():
		p.Done++
	case a.State.Status == workflow.Running:
		p.Running = append(p.Running, RunningAction{Path: here.path(), Since: a.State.Start, Attempts: len(a.Attempts), Timeout: a.Timeout})
	}
}

// delayOf returns the longest delay that an author gave to an object.
func delayOf(o workflow.Object) time.Duration {
	switch o := o.(type) {
	case *workflow.Block:
		return max(o.EntranceDelay, o.ExitDelay)
	case *workflow.Checks:
		return o.Delay
	}
	return 0
}

// places has the places of the objects of a plan.
type places map[workflow.Object]*place

// place is where an object is in its plan.
type place struct {
	object workflow.Object
	above  *place                // nil for the plan
	below  map[workflow.Kind]int // the children so far
	nth    int                   // its number among the siblings of its kind
	cont   bool                  // whether it belongs to continuous checks
}

// add notes an object after its parent.
func (p places) add(o, parent workflow.Object) *place {
	here := &place{object: o, above: p[parent]}
	if here.above != nil {
		here.nth, here.cont = here.above.count(o.Kind()), here.above.cont
	}
	if checks := workflow.ChecksOf(parent); checks != nil && workflow.Object(*checks[2]) == o {
		here.cont = true
	}
	p[o] = here
	return here
}

func (p *place) count(k workflow.Kind) (nth int) {
	if p.below == nil {
		p.below = map[workflow.Kind]int{}
	}
	p.below[k]++
	return p.below[k]
}

// path returns the path of a sub-object, as RunningAction has it.
func (p *place) path() string {
	name := cut(nameOf(p.object, p.above.object, p.nth))
	if p.above.above == nil {
		return name
	}
	return p.above.path() + "/" + name
}

// checksNames are the names of checks, in the order of [workflow.ChecksOf].
var checksNames = [...]string{"bypass checks", "pre checks", "continuous checks", "post checks", "deferred checks"}

// nameOf returns the name of an object, or its kind and its number among its siblings.
func nameOf(o, parent workflow.Object, nth int) (name string) {
	kind := "object"
	switch o := o.(type) {
	case *workflow.Checks:
		for n, c := range workflow.ChecksOf(parent) {
			if *c == o {
				return checksNames[n]
			}
		}
	case *workflow.DeferredActions:
		return "deferred actions"
	case *workflow.Block:
		kind, name = "block", o.Name
	case *workflow.Sequence:
		kind, name = "sequence", o.Name
	case *workflow.Action:
		kind, name = "action", o.Name
	case *workflow.DeferBatch:
		kind, name = "batch", o.Name
	}
	if name == "" {
		return fmt.Sprintf("%s %d", kind, nth)
	}
	return name
}
