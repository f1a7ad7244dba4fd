package workflow

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"time"

	"github.com/google/uuid"
)

// ForkOptions are the settings of a fork. The zero value forks a plan from its failure.
type ForkOptions struct {
	// FromStart makes a final plan run again as a whole: nothing is carried over. Default: the fork does what is left of
	// a plan that is Failed or Stopped.
	FromStart bool
	// AfterCompensation allows the fork of a plan whose deferred actions for a failure have begun. Make the work run again
	// that they have undone: a refund undoes a payment. Default: such a plan is refused, unless FromStart is set.
	AfterCompensation bool
	// Number tells several forks of a plan from the same place apart. Look for the forks with smaller numbers first, and
	// see what became of them. Default: 1.
	Number int
	// By says who forks the plan, and why. Create refuses texts that are too long. Default: nobody.
	By Attribution
	// Skip has the actions of the plan that count as done, by ID, each with its response, or nil for none. The fork has them
	// as Completed, with one attempt that names By as Skipped. Refused are actions that do not run again, that belong to each
	// run, such as continuous and deferred ones, and bypass checks. Default: none.
	Skip map[uuid.UUID]any
	// Requests has other requests for actions of the plan that run again, by ID. Default: none, and requests stay.
	Requests map[uuid.UUID]any
}

// Fork returns a new plan that does what is left of a plan that ended as Failed or Stopped. What was Completed
// is carried over with its times, attempts and results, and is not rerun. Everything else is NotStarted.
// [CarriedOver] shows which is which. Give the fork to Create; an engine then runs it like any new plan.
//
// Carried over is each Completed sub-object with everything below it: blocks, sequences, actions, bypass checks
// and pre checks, also if they are below a sub-object that is not Completed. The rest of a failed sequence runs
// again, beginning with the action that failed. What belongs to each run of a plan or block runs again unless
// the block is Completed: continuous checks, deferred checks and deferred actions, and post checks if some of
// the work that they judge is left.
//
// The fork keeps what the author wrote, including GroupID, Labels, Meta, Keys, KeepTurn, Unique and the Key of each object, and
// the sub-objects are in the same order. It begins at once, so NotBefore is cleared, and so is a Deadline that had passed when p ended. ForkedFrom is the ID
// of p. Submitted is empty, for Create to fill in. The IDs of the sub-objects are new. An action that runs again therefore
// has another idempotency key, and begins to count its attempts anew: if it was interrupted, and may have had an effect, its
// plugin must find that out. Before Create, the caller may change what is NotStarted, and may make more run again: use
// State.Reset, and set Attempts to nil.
//
// The fork's ID follows from p, from the place where the fork begins, the failure or the start, and from Number, and not
// from Skip and Requests. Create therefore stores one such fork, whoever makes it how often, and returns an error of kind
// ErrExists for another, also if that repairs p in another way. The time in the ID is when p ended, or when it was created
// if p has no end, or one that can't be right.
//
// Fork does not know the types of plugins. A Create with a registry refuses the requests and responses of Skip and Requests
// that have another type. A vault without a registry stores them: an engine then gets no plan whose request its plugin can't
// decode, and whoever asks for the response of a skipped action gets the error.
//
// Fork does not change p, which must be whole, as Read returns it. The fork shares requests, responses and errors with p.
// The error is a [*FieldError] if p is refused, or if a field of opts is wrong.
func Fork(p *Plan, opts ForkOptions) (*Plan, error) {
	if err := opts.check(p); err != nil {
		return nil, err
	}
	f := p.fork(opts)
	if opts.FromStart {
		for o := range Walk(f) {
			startOver(o)
		}
	}
	r := repairs{opts, endOf(p), maps.Clone(opts.Skip), maps.Clone(opts.Requests), bypassing(p)}
	all := fates{}
	for o, parent := range Walk(f) {
		id, is := *o.Header().ID, all.of(o, parent)
		f.adopt(o)
		switch s := o.Header().State; {
		case is != carried:
			startOver(o)
		case s.Status == Running:
			s.Status = Stopped // it was left when what it belongs to completed
		}
		if a, ok := o.(*Action); ok {
			if err := r.apply(a, id, is); err != nil {
				return nil, err
			}
		}
	}
	if err := r.unused(); err != nil {
		return nil, err
	}
	return f, nil
}

// repairs are what a fork does differently from the plan.
type repairs struct {
	ForkOptions
	end            time.Time         // when the plan ended
	skip, requests map[uuid.UUID]any // those that are left
	bypass         map[uuid.UUID]bool
}

// bypassing returns the actions of the bypass checks of a plan.
func bypassing(p *Plan) map[uuid.UUID]bool {
	all := map[uuid.UUID]bool{}
	for o := range Walk(p) {
		if checks, ok := checksOf(o); ok && *checks[0] != nil {
			for a := range Children(*checks[0]) {
				all[*a.Header().ID] = true
			}
		}
	}
	return all
}

// apply makes the repairs of an action that had this ID.
func (r repairs) apply(a *Action, id uuid.UUID, is fate) error {
	resp, skipped := r.skip[id]
	req, changed := r.requests[id]
	delete(r.skip, id)
	delete(r.requests, id)
	refuse := func(field, problem string) error {
		return &FieldError{Field: "ForkOptions." + field, Problem: fmt.Sprintf("has action %s, which %s", id, problem)}
	}
	switch {
	case skipped && changed:
		return refuse("Skip", "gets another request as well")
	case skipped && is == carried:
		return refuse("Skip", "does not run again: it is done")
	case skipped && is == again:
		return refuse("Skip", "belongs to each run: it guards, judges or follows the work")
	case skipped && r.bypass[id]:
		return refuse("Skip", "is a bypass check: if it counts as done, the work is left out")
	case changed && is == carried:
		return refuse("Requests", "does not run again: it is done")
	case changed:
		a.Req = req
	case skipped:
		by := r.By
		by.At = time.Now()
		a.State.Status, a.State.Start, a.State.End = Completed, r.end, r.end // before the fork, like all that is carried over
		a.Attempts = []Attempt{{Start: r.end, End: r.end, Resp: resp, Skipped: &by}}
	}
	return nil
}

// unused reports an action that the plan does not have.
func (r repairs) unused() error {
	for field, left := range map[string]map[uuid.UUID]any{"ForkOptions.Skip": r.skip, "ForkOptions.Requests": r.requests} {
		for id := range left {
			return &FieldError{Field: field, Problem: fmt.Sprintf("has %s, which is no action of plan", id)}
		}
	}
	return nil
}

// check reports why a plan can't be forked.
func (o ForkOptions) check(p *Plan) error {
	switch {
	case p == nil:
		return &FieldError{Field: "Plan", Problem: "is nil"}
	case o.Number < 0:
		return &FieldError{Field: "ForkOptions.Number", Problem: fmt.Sprintf("%d is negative", o.Number)}
	case o.FromStart && !p.State.Status.Final():
		return &FieldError{Field: "State.Status", Problem: "is " + p.State.Status.String() + ": only a final plan can be forked from its start"}
	case o.FromStart:
		return nil
	case p.State.Status != Failed && p.State.Status != Stopped:
		return &FieldError{Field: "State.Status", Problem: "is " + p.State.Status.String() + ": only a plan that is Failed or Stopped can be forked from its failure"}
	case o.AfterCompensation || p.DeferredActions == nil:
		return nil
	}
	for i, b := range p.DeferredActions.Batches {
		if b.When == OnFailure && b.State.Status != NotStarted {
			return &FieldError{Field: fmt.Sprintf("DeferredActions.Batches[%d]", i), Problem: "has run after the failure, and may have undone what is Completed: " +
				"fork from the start, or after compensation if that work need not run again"}
		}
	}
	return nil
}

// mostAhead is how far ahead the end of a plan may lie by a clock that is not wrong. Vaults accept IDs up to a day ahead.
const mostAhead = 23 * time.Hour

// fork returns a copy of a plan that is to become a fork.
func (p *Plan) fork(opts ForkOptions) *Plan {
	f := Copy(p)
	f.ForkedFrom = p.ID
	f.ID = forkID(p, opts)
	f.SubmitTime, f.RuntimeUpdate = time.Time{}, time.Time{}
	f.Reason, f.Owner, f.Epoch, f.WakeAt, f.LastSignal, f.NotBefore = NoFailure, uuid.Nil, 0, time.Time{}, 0, time.Time{}
	if !p.State.End.Before(p.Deadline) {
		f.Deadline = time.Time{}
	}
	f.Submitted, f.Forked, f.Stopped, f.Paused, f.Ending = Actor{}, opts.By, Attribution{}, Attribution{}, Ending{}
	f.External, f.Alone, f.WaitsFor = External{}, false, ""
	return f
}

// forkID returns the ID of a fork. Programs of different versions must agree on it.
func forkID(p *Plan, opts ForkOptions) uuid.UUID {
	from := "failure"
	if opts.FromStart {
		from = "start"
	}
	// Not the present time: another process may fork p tomorrow.
	id := NewV7From(endOf(p).Add(time.Millisecond), fmt.Sprintf("fork of %s from its %s", p.ID, from))
	if opts.Number <= 1 {
		return id
	}
	return NewV7From(Time(id).Add(time.Duration(opts.Number-1)*time.Millisecond), fmt.Sprintf("%s, number %d", id, opts.Number))
}

// endOf returns when a plan ended, or when it was created if its end can't be right.
func endOf(p *Plan) time.Time {
	if created := Time(p.ID); p.State.End.Before(created) || time.Until(p.State.End) > mostAhead {
		return created
	}
	return p.State.End
}

// adopt makes an object a new one of the plan p.
func (p *Plan) adopt(o Object) {
	h := o.Header()
	if h.State.ETag = ""; o != Object(p) {
		*h.ID, *h.PlanID = NewV7(), p.ID
	}
}

// startOver makes an object NotStarted.
func startOver(o Object) {
	o.Header().State.Reset()
	if a, ok := o.(*Action); ok {
		a.Attempts = nil
	}
}

// CarriedOver yields every object of a plan, in the order of [Walk], and whether [Fork] carries it over. In a
// fork these are the sub-objects that came from the other plan.
func CarriedOver(p *Plan) iter.Seq2[Object, bool] {
	return func(yield func(Object, bool) bool) {
		all := fates{}
		for o, parent := range Walk(p) {
			if !yield(o, all.of(o, parent) == carried) {
				return
			}
		}
	}
}

// fates are what becomes of the objects of a plan in a fork.
type fates map[Object]fate

// of returns the fate of an object, and keeps it for those below. Objects come in the order of [Walk].
func (f fates) of(o, parent Object) fate {
	f[o] = fateOf(o, parent, f[parent])
	return f[o]
}

// fate is what becomes of an object in a fork.
type fate int

const (
	open    fate = iota // it runs again, but some of what is below it may be carried over
	carried             // it is carried over with everything below it
	again               // it runs again with everything below it
)

// fateOf returns the fate of an object from that of its parent. It reads the statuses of the object and of those
// that follow it in the walk, and of no others: Fork changes an object when the walk has reached it.
func fateOf(o, parent Object, above fate) fate {
	switch {
	case parent == nil || above != open:
		return above
	case belongsToRun(o, parent):
		return again
	case o.Header().State.Status == Completed:
		return carried
	}
	return open
}

// belongsToRun reports whether a child belongs to each run of a plan or block: it guards, judges or follows the
// work.
func belongsToRun(o, parent Object) bool {
	checks, ok := checksOf(parent)
	if !ok {
		return false
	}
	switch o {
	case *checks[2], *checks[4]: // continuous and deferred
		return true
	case *checks[3]: // post
		return !parent.children(func(_ string, _ int, child Object) bool {
			work := child != nil && (child.Kind() == KindBlock || child.Kind() == KindSequence)
			return !work || child.Header().State.Status == Completed
		})
	}
	return o.Kind() == KindDeferredActions
}

// Copy returns a copy of a plan with everything below it and all versions, so that an engine can change it while others
// read the plan. It shares requests, responses and errors with p.
func Copy(p *Plan) *Plan {
	if p == nil {
		return nil
	}
	c := copied(reflect.ValueOf(p)).Interface().(*Plan)
	c.Labels = maps.Clone(p.Labels)
	return c
}

// copied returns a copy of an object with everything below it, but for requests, responses and errors.
func copied(v reflect.Value) reflect.Value {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil() && v.Type().Implements(reflect.TypeFor[Object]()):
		c := reflect.New(v.Type().Elem())
		c.Elem().Set(v.Elem())
		for i := range c.Elem().NumField() {
			if f := c.Elem().Field(i); f.CanSet() {
				f.Set(copied(f))
			}
		}
		return c
	case v.Kind() == reflect.Slice && !v.IsNil():
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		if isChild(v.Type()) {
			for i := range v.Len() {
				c.Index(i).Set(copied(v.Index(i)))
			}
		}
		return c
	}
	return v
}
