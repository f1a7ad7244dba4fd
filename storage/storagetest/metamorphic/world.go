package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/oracle"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// world is one possibility of what is stored under an ID. Usually there is one. After a write with an unknown
// outcome there are several, and each later result removes those that disagree with it. If none remains, the
// vault has broken its contract.
type world struct {
	// plan is what Read must return, with the versions that are known, or nil if there is no plan. It is
	// replaced, never changed.
	plan *workflow.Plan
	// created and deleted mean that there may be remains of an interrupted Create or Delete. No reader sees
	// them, but they may block a Create of the ID.
	created, deleted bool
	// unsettled means that a Delete, or the update to a final status, was interrupted. Recovery may finish
	// it, which may change the version of the plan that Read returns. The versions that Read returned before,
	// which are in also, remain valid.
	unsettled bool
	also      string
	// old means that all remains are older than the grace period, so Recovery must remove them.
	old bool
}

// writeCall is a call of a write or of Recovery, with everything that its result depends on.
type writeCall struct {
	kind op
	id   uuid.UUID
	// object is what was created or updated, as it is after the call, or nil. version is the one that it had
	// before the call.
	object  workflow.Object
	version string
	// bad means that the vault must refuse the input.
	bad bool
	// cut means that the call may have been interrupted: the process may have died, or the context ended.
	cut bool
	// again means that the call repeats an interrupted call.
	again bool
	// faulty means that the call met temporary faults.
	faulty bool
}

// after returns the possible worlds after a call that returned err. There are none if it can't have returned
// that.
func (w world) after(c *writeCall, err error) []world {
	switch {
	case c.cut && err != nil && c.kind == opRecover:
		return []world{w, w.cleared()} // it may or may not have come to this plan
	case c.cut && errors.Is(err, storage.ErrUnknown):
		return w.afterUnknown(c)
	case c.cut && wasCut(err):
		// Without ErrUnknown there was no effect, except that remains may have been written again.
		w.unsettled = w.unsettled || w.plan != nil && c.kind == opDelete
		return []world{w.touched()}
	case c.bad:
		return w.refused(c, err, storage.ErrInvalid)
	case c.kind == opCreate:
		return w.afterCreate(c, err)
	case c.kind == opDelete:
		return w.afterDelete(c, err)
	case c.kind == opRecover && err == nil:
		return w.afterRecovery()
	case c.kind == opUpdate:
		return w.afterUpdate(c, err)
	}
	return nil
}

// wasCut reports whether a call failed because its context ended or its process died.
func wasCut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrUnavailable)
}

// contractErrors are the errors of the contract.
var contractErrors = []error{
	storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrInvalid, storage.ErrSchema, storage.ErrCorrupt,
	storage.ErrDenied, storage.ErrUnavailable, storage.ErrUnknown, storage.ErrClosed,
}

// isOnly reports whether err is a storage.Error of this class and of no other. A nil class means success.
func isOnly(err, class error) bool {
	if class == nil || err == nil {
		return err == nil && class == nil
	}
	for _, other := range contractErrors {
		if errors.Is(err, other) != (other == class) {
			return false
		}
	}
	var e *storage.Error
	return errors.As(err, &e)
}

// refused returns w unchanged if err is of the class.
func (w world) refused(c *writeCall, err, class error) []world {
	// If the answer of the first try was lost, the refusal of the next try does not show whether the first
	// one had its effect and another client has undone it. The vault may then return ErrUnknown too. Here no
	// other client was at work.
	lost := c.faulty && errors.Is(err, storage.ErrUnknown) && errors.Is(err, class)
	if lost || isOnly(err, class) {
		return []world{w}
	}
	return nil
}

// touched is w after a call that may have written to the remains.
func (w world) touched() world {
	w.old = false
	return w
}

// cleared is w without remains.
func (w world) cleared() world { return world{plan: w.plan, unsettled: w.unsettled, also: w.also} }

func (w world) remains() bool { return w.created || w.deleted }

func (w world) afterCreate(c *writeCall, err error) []world {
	switch {
	case w.plan != nil:
		return w.refused(c, err, storage.ErrExists)
	case err == nil:
		// The remains of a Delete may stay beside the new plan. Recovery removes them.
		return []world{{plan: plantest.Clone(c.object.(*workflow.Plan)), deleted: w.deleted, unsettled: w.deleted}}
	case w.remains():
		return w.touched().refused(c, err, storage.ErrConflict)
	}
	return nil
}

func (w world) afterDelete(c *writeCall, err error) []world {
	switch {
	case w.plan != nil && err == nil:
		return []world{{}}
	case w.plan != nil:
		return nil
	case err == nil && w.deleted: // it finished the interrupted Delete
		return []world{{created: w.created}, {}}
	case w.deleted && !w.created: // only markers were left
		return world{}.refused(c, err, storage.ErrNotFound)
	}
	return w.refused(c, err, storage.ErrNotFound)
}

func (w world) afterRecovery() []world {
	if w.old || !w.remains() {
		return []world{w.cleared()}
	}
	return []world{w, w.cleared()} // the remains may or may not be old enough
}

func (w world) afterUpdate(c *writeCall, err error) []world {
	if w.plan == nil {
		if w.remains() && (err == nil || w.refused(c, err, storage.ErrConflict) != nil) {
			// An update checks only the version of the object, so it may find the object among the remains.
			// No reader sees that.
			return []world{w.touched()}
		}
		return w.touched().refused(c, err, storage.ErrNotFound)
	}
	stored := find(w.plan, c.object)
	switch {
	case stored == nil:
		return w.refused(c, err, storage.ErrNotFound)
	case c.again && err == nil && sameOwnFields(stored, c.object):
		return []world{w.with(c.object, c.object.Header().State.ETag)} // the same call again finds its own effect
	case !w.knows(stored, c.version):
		return w.refused(c, err, storage.ErrConflict)
	case err == nil:
		return []world{w.with(c.object, c.object.Header().State.ETag)}
	}
	return nil
}

// afterUnknown returns the possible worlds after a call with an unknown outcome: all of its effect, a part
// that no reader sees, or none.
func (w world) afterUnknown(c *writeCall) []world {
	tried := w.touched()
	switch {
	case c.bad:
		return nil // nothing was sent
	case c.kind == opCreate && w.plan == nil:
		remains, done := tried, tried
		remains.created = true
		done.plan, done.created = plantest.Clone(c.object.(*workflow.Plan)), false
		for o := range workflow.Walk(done.plan) {
			o.Header().State.ETag = "" // unknown until the next Read
		}
		return []world{tried, remains, done}
	case c.kind == opDelete && w.plan != nil:
		w.unsettled = true
		return []world{w, {deleted: true}}
	case c.kind == opDelete && w.deleted:
		return []world{tried, {created: w.created}, {}}
	case c.kind == opUpdate && w.plan != nil:
		stored := find(w.plan, c.object)
		if stored == nil || !w.knows(stored, c.version) {
			return []world{w}
		}
		done := w.with(c.object, "") // unknown until the next Read
		done.unsettled = done.unsettled || c.object.Kind() == workflow.KindPlan
		return []world{w, done}
	}
	return []world{tried}
}

// with returns the world after an update of one object's own fields.
func (w world) with(o workflow.Object, etag string) world {
	w.plan = plantest.Clone(w.plan)
	stored := find(w.plan, o)
	copyOwnFields(stored, plantest.Clone(o))
	stored.Header().State.ETag = etag
	if o.Kind() == workflow.KindPlan {
		w.also = ""
	}
	return w
}

// knows reports whether an update of a stored object with this version, which may be empty, must succeed.
func (w world) knows(stored workflow.Object, version string) bool {
	return version == "" || version == stored.Header().State.ETag ||
		stored.Kind() == workflow.KindPlan && slices.Contains(strings.Split(w.also, "\n"), version)
}

// reads returns the world after a Read with this result, with the versions that it returned. If the result is
// wrong, it says why.
func (w world) reads(got *workflow.Plan, err error) (world, string) {
	if w.plan == nil {
		if isOnly(err, storage.ErrNotFound) {
			return w, ""
		}
		return w, "want ErrNotFound"
	}
	if err != nil {
		return w, "want the plan"
	}
	if d := plantest.Diff(w.plan, got); d != "" {
		return w, "the plan differs: " + d
	}
	w.plan = plantest.Clone(w.plan)
	for o := range workflow.Walk(w.plan) {
		known, shown := &o.Header().State.ETag, find(got, o).Header().State.ETag
		switch {
		case shown == "":
			return w, fmt.Sprintf("%s %s has no version", o.Kind(), *o.Header().ID)
		case *known != "" && *known != shown && w.unsettled && o.Kind() == workflow.KindPlan:
			w.also += "\n" + *known
		case *known != "" && *known != shown:
			return w, fmt.Sprintf("%s %s has version %s, but was written as %s", o.Kind(), *o.Header().ID, shown, *known)
		}
		*known = shown
	}
	return w, ""
}

// matches reports whether the filters select the plan.
func (w world) matches(f storage.Filters) bool { return w.plan != nil && oracle.Selects(f, w.plan) }

func (w world) String() string {
	status := "no plan"
	if w.plan != nil {
		status = w.plan.State.Status.String()
	}
	return fmt.Sprintf("%s (remains of a create: %t, of a delete: %t, past grace: %t)", status, w.created, w.deleted, w.old)
}

// find returns the object of a plan with the same ID and kind, or nil.
func find(plan *workflow.Plan, like workflow.Object) workflow.Object {
	for o := range workflow.Walk(plan) {
		if *o.Header().ID == *like.Header().ID && o.Kind() == like.Kind() {
			return o
		}
	}
	return nil
}

// sameOwnFields reports whether two objects have the same own fields. Every write of the model has its own
// State.Start.
func sameOwnFields(a, b workflow.Object) bool {
	x, y := a.Header().State, b.Header().State
	return x.Status == y.Status && x.Start.Equal(y.Start)
}

// copyOwnFields copies the own fields of src to dst. dst keeps its children.
func copyOwnFields(dst, src workflow.Object) {
	d, s := reflect.ValueOf(dst).Elem(), reflect.ValueOf(src).Elem()
	kept := reflect.New(d.Type()).Elem()
	kept.Set(d)
	d.Set(s) // with what only newer code knows
	for i := range d.NumField() {
		if isChild(d.Type().Field(i).Type) {
			d.Field(i).Set(kept.Field(i))
		}
	}
}

// isChild reports whether values of a type are objects, or lists of them.
func isChild(t reflect.Type) bool {
	object := reflect.TypeFor[workflow.Object]()
	return t.Implements(object) || t.Kind() == reflect.Slice && t.Elem().Implements(object)
}
