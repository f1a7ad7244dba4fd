package metamorphic

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// update updates a plan or, while it runs, a sub-object: from what the client knows, which may be stale, from
// what it has just read, or without a version. Some updates are wrong, and the vault must refuse them.
func (r *modelRun) update() {
	plan, held := r.now.plan, r.known[r.now.client]
	mode := r.rand.IntN(10) // 0, 1: without a version; 2 to 5: just read; else what the client knows
	if mode < 6 || held[plan] == nil || !r.certain(plan) {
		r.look()
	}
	basis, stored := held[plan], r.worlds[plan][0].plan
	if basis == nil {
		basis = r.draw() // the plan does not exist
		neverStored(basis)
	}
	overwrite := mode < 2 && r.unversioned != nil && !r.now.faulty && !r.now.cut()
	o := r.target(basis, stored)
	if stored != nil && find(stored, o) != nil && overwrite {
		o = plantest.Clone(find(stored, o))
	} else {
		o = plantest.Clone(o)
	}
	c := &writeCall{kind: opUpdate, object: o}
	s := o.Header().State
	from := s.Status
	current := stored != nil && find(stored, o) != nil && find(stored, o).Header().State.ETag == s.ETag
	s.Status = r.next(from, o.Kind() == workflow.KindPlan)
	how := "as read"
	switch {
	case overwrite:
		s.ETag, how = "", "none"
	case r.rand.IntN(12) == 0 && held[plan] != nil:
		how, c.bad = r.spoil(o, from), true
	case !current:
		how = "stale"
	}
	r.change(o)
	if p, ok := o.(*workflow.Plan); ok && s.Status.Final() && stored != nil && !c.bad && workflow.Fingerprint(p) == workflow.Fingerprint(stored) {
		// A plan that becomes final is stored whole, so it needs the last states of its sub-objects.
		whole := plantest.Clone(stored)
		copyOwnFields(whole, p)
		c.object = whole
	}
	what := fmt.Sprintf("Update %s %s of plan %d from %s to %s, version %s", o.Kind(), *o.Header().ID, plan, from, s.Status, how)
	r.blind = overwrite
	err := r.write(c, what)
	r.blind = false
	switch {
	case err == nil && c.object.Header().State.ETag == c.version:
		if r.worlds[plan][0].plan != nil {
			r.t.Fatalf("%s: the update returned nil and left the version %s", what, c.version)
		}
	case err == nil && c.object.Header().State.ETag == "":
		r.t.Fatalf("%s: the update returned nil and set no version", what)
	case err == nil:
		if mine := find(basis, c.object); mine != nil {
			copyOwnFields(mine, plantest.Clone(c.object))
		}
	case errors.Is(err, storage.ErrConflict), errors.Is(err, storage.ErrNotFound):
		delete(held, plan) // the client reads again
	}
}

// certain reports whether the model knows what Read must return for a plan.
func (r *modelRun) certain(plan int) bool {
	for _, w := range r.worlds[plan] {
		if w.plan != r.worlds[plan][0].plan {
			return false
		}
	}
	return true
}

// look reads the plan on the client's node, which decides between the possible worlds.
func (r *modelRun) look() {
	now := r.now
	r.now.faulty, r.now.dies, r.now.limit = false, 0, 0
	r.read()
	r.now = now
}

// target returns the object to update. Sub-objects are updated only while the plan is Running, or if it does
// not exist.
func (r *modelRun) target(basis, stored *workflow.Plan) workflow.Object {
	parts := workflow.Parts(basis)
	running := stored == nil || stored.State.Status == workflow.Running
	if len(parts) == 0 || !running || r.rand.IntN(4) == 0 {
		return basis
	}
	return parts[r.rand.IntN(len(parts))]
}

// next returns a status that may follow. Plans seldom become final, so that there is something to do.
// Sub-objects may have any status.
func (r *modelRun) next(from workflow.Status, isPlan bool) workflow.Status {
	switch n := r.rand.IntN(12); {
	case !isPlan && n == 0:
		return workflow.Status(r.rand.IntN(int(workflow.Stopped) + 1))
	case from.Final() || n < 2:
		return from
	case from == workflow.NotStarted && (n < 11 || !isPlan):
		return workflow.Running
	case isPlan && n < 7:
		return workflow.Running
	}
	return workflow.Completed + workflow.Status(r.rand.IntN(3))
}

// spoil makes an update wrong, and says how.
func (r *modelRun) spoil(o workflow.Object, from workflow.Status) string {
	h := o.Header()
	switch n := r.rand.IntN(3); {
	case n == 0 && o.Kind() == workflow.KindPlan && from != workflow.NotStarted:
		h.State.Status = (from + 1 + workflow.Status(r.rand.IntN(4))) % 5 // any but from
		if !from.Final() {
			h.State.Status = workflow.NotStarted
		}
		return "as read, backwards"
	case n == 1 && addChild(o):
		return "as read, with one child more"
	}
	h.State.ETag = ""
	return "lost"
}

// addChild adds a child to an object. It returns false for an action, which can have none.
func addChild(o workflow.Object) bool {
	v := reflect.ValueOf(o).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && isChild(f.Type()) {
			child := reflect.New(f.Type().Elem().Elem())
			h := child.Interface().(workflow.Object).Header()
			*h.ID, *h.PlanID = workflow.NewV7(), *o.Header().PlanID
			if a, ok := child.Interface().(*workflow.Action); ok {
				a.Plugin = plantest.PluginName
			}
			f.Set(reflect.Append(f, child))
			return true
		}
	}
	return false
}

// change gives an object's own fields values that no other write gives them.
func (r *modelRun) change(o workflow.Object) {
	r.clock++
	at := r.base.Add(time.Duration(r.clock) * time.Microsecond)
	s := o.Header().State
	s.Start = at
	if s.Status.Final() {
		s.End = at.Add(time.Second)
	}
	switch o := o.(type) {
	case *workflow.Plan:
		if s.Status == workflow.Failed {
			o.Reason = workflow.BlockFailed
		}
		o.Meta = fmt.Appendf(nil, "meta %d", r.clock)
	case *workflow.Action:
		attempt := workflow.Attempt{Start: at, End: at.Add(time.Second)}
		if r.rand.IntN(3) == 0 {
			attempt.Err = &plugins.Error{Code: 7, Message: fmt.Sprintf("not yet <%d>", r.clock)}
		} else {
			attempt.Resp = &plantest.Response{Text: fmt.Sprint(r.clock), OK: true}
		}
		o.Attempts = append(o.Attempts, attempt)
		if len(o.Attempts) > 3 {
			o.Attempts = o.Attempts[len(o.Attempts)-3:]
		}
	}
}

// neverStored completes a plan that was not created, with versions that the vault never gave.
func neverStored(p *workflow.Plan) {
	driver.Complete(p)
	for o := range workflow.Walk(p) {
		o.Header().State.ETag = driver.Version("never stored", o)
	}
}
