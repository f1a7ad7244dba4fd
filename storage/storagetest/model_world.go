package storagetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// world is one possibility of what is stored under an ID. Mostly there is one; after a write of unknown outcome there are
// several, and every result that follows leaves those that agree with it. When none is left, the vault has broken its
// promise.
type world struct {
	// plan is what Read must show, with the versions that are known; nil when there is no plan. It is never changed, only
	// replaced.
	plan *workflow.Plan
	// created and deleted say that there may be remains of a Create or a Delete that was broken off. No reader sees them, but a
	// Create of the ID may be refused because of them.
	created, deleted bool
	// unsettled says that a Delete of the plan, or its end, was broken off. Recovery may settle that, which can change the version
	// that Read shows of the plan; those that it showed before, in also, stay as good.
	unsettled bool
	also      string
	// old says that all that may be left is older than the grace period, so Recovery must clear it.
	old bool
}

// modelCall is a call of a write or Recovery, with all that its outcome depends on.
type modelCall struct {
	kind modelKind
	id   uuid.UUID
	// object is what was created or updated, as it is after the call; nil for others. version is the one that it was given with.
	object  workflow.Object
	version string
	// bad says that the input is one that must be refused.
	bad bool
	// cut says that the process may have died in it, or its context ended.
	cut bool
	// again says that it repeats one that was cut.
	again bool
	// faulty says that it met passing faults.
	faulty bool
}

// after returns what may be the case after a call that ended with err; nothing when it can't have ended so.
func (w world) after(c *modelCall, err error) []world {
	switch {
	case c.cut && err != nil && c.kind == modelRecover:
		return []world{w, w.cleared()} // it came as far as it came
	case c.cut && errors.Is(err, storage.ErrUnknown):
		return w.afterUnknown(c)
	case c.cut && wasCut(err):
		// Not ErrUnknown: no effect. (Remains that are in nobody's way may have become young.)
		w.unsettled = w.unsettled || w.plan != nil && c.kind == modelDelete
		return []world{w.touched()}
	case c.bad:
		return w.refused(c, err, storage.ErrInvalid)
	case c.kind == modelCreate:
		return w.afterCreate(c, err)
	case c.kind == modelDelete:
		return w.afterDelete(c, err)
	case c.kind == modelRecover && err == nil:
		return w.afterRecovery()
	case c.kind == modelUpdate:
		return w.afterUpdate(c, err)
	}
	return nil
}

// wasCut says whether a call failed because its context ended or its process died.
func wasCut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrUnavailable)
}

// modelClasses are the errors of the contract.
var modelClasses = []error{
	storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrInvalid, storage.ErrSchema, storage.ErrCorrupt,
	storage.ErrDenied, storage.ErrUnavailable, storage.ErrUnknown, storage.ErrClosed,
}

// modelIs says whether err is of this class and no other. A nil class is success.
func modelIs(err, class error) bool {
	if class == nil || err == nil {
		return err == nil && class == nil
	}
	for _, other := range modelClasses {
		if errors.Is(err, other) != (other == class) {
			return false
		}
	}
	var e *storage.Error
	return errors.As(err, &e)
}

// refused is w as it is, if err is of that class.
func (w world) refused(c *modelCall, err, class error) []world {
	// After a try whose answer was lost, the refusal of the next one does not tell whether the first had its effect and somebody
	// has undone it since. A vault may say so; here nobody did.
	lost := c.faulty && errors.Is(err, storage.ErrUnknown) && errors.Is(err, class)
	if lost || modelIs(err, class) {
		return []world{w}
	}
	return nil
}

// touched is w after something that may have written to what is left.
func (w world) touched() world {
	w.old = false
	return w
}

// cleared is w without remains.
func (w world) cleared() world { return world{plan: w.plan, unsettled: w.unsettled, also: w.also} }

func (w world) remains() bool { return w.created || w.deleted }

func (w world) afterCreate(c *modelCall, err error) []world {
	switch {
	case w.plan != nil:
		return w.refused(c, err, storage.ErrExists)
	case err == nil:
		// What a Delete left may stay beside the new plan, where it is in nobody's way. Recovery then settles it.
		return []world{{plan: modelClone(c.object.(*workflow.Plan)), deleted: w.deleted, unsettled: w.deleted}}
	case w.remains():
		return w.touched().refused(c, err, storage.ErrConflict)
	}
	return nil
}

func (w world) afterDelete(c *modelCall, err error) []world {
	switch {
	case w.plan != nil && err == nil:
		return []world{{}}
	case w.plan != nil:
		return nil
	case err == nil && w.deleted: // it finished the one that was broken off
		return []world{{created: w.created}, {}}
	case w.deleted && !w.created: // nothing was left of that but markers
		return world{}.refused(c, err, storage.ErrNotFound)
	}
	return w.refused(c, err, storage.ErrNotFound)
}

func (w world) afterRecovery() []world {
	if w.old || !w.remains() {
		return []world{w.cleared()}
	}
	return []world{w, w.cleared()} // as old as it really is
}

func (w world) afterUpdate(c *modelCall, err error) []world {
	if w.plan == nil {
		if w.remains() && (err == nil || w.refused(c, err, storage.ErrConflict) != nil) {
			// An update asks for the version of what it replaces and for nothing else, so it may find what a broken Create or Delete
			// left of the object. No reader sees that.
			return []world{w.touched()}
		}
		return w.touched().refused(c, err, storage.ErrNotFound)
	}
	stored := modelFind(w.plan, c.object)
	switch {
	case stored == nil:
		return w.refused(c, err, storage.ErrNotFound)
	case c.again && err == nil && modelSame(stored, c.object):
		return []world{w.with(c.object, c.object.Header().State.ETag)} // the same call again knows what it did
	case !w.knows(stored, c.version):
		return w.refused(c, err, storage.ErrConflict)
	case err == nil:
		return []world{w.with(c.object, c.object.Header().State.ETag)}
	}
	return nil
}

// afterUnknown returns what may be the case after a call whose outcome nobody knows: all of its effect, some that no reader
// sees, or none.
func (w world) afterUnknown(c *modelCall) []world {
	young := w.touched()
	switch {
	case c.bad:
		return nil // nothing was sent
	case c.kind == modelCreate && w.plan == nil:
		remains, done := young, young
		remains.created = true
		done.plan, done.created = modelClone(c.object.(*workflow.Plan)), false
		for o := range workflow.Walk(done.plan) {
			o.Header().State.ETag = "" // not known before a Read
		}
		return []world{young, remains, done}
	case c.kind == modelDelete && w.plan != nil:
		w.unsettled = true
		return []world{w, {deleted: true}}
	case c.kind == modelDelete && w.deleted:
		return []world{young, {created: w.created}, {}}
	case c.kind == modelUpdate && w.plan != nil:
		stored := modelFind(w.plan, c.object)
		if stored == nil || !w.knows(stored, c.version) {
			return []world{w}
		}
		done := w.with(c.object, "") // not known before a Read
		done.unsettled = done.unsettled || c.object.Kind() == workflow.KindPlan
		return []world{w, done}
	}
	return []world{young}
}

// with is the world after an update of one object's own fields.
func (w world) with(o workflow.Object, etag string) world {
	w.plan = modelClone(w.plan)
	stored := modelFind(w.plan, o)
	modelAdopt(stored, modelClone(o))
	stored.Header().State.ETag = etag
	if o.Kind() == workflow.KindPlan {
		w.also = ""
	}
	return w
}

// knows says whether an update of a stored object with this version, or without one, is to succeed.
func (w world) knows(stored workflow.Object, version string) bool {
	return version == "" || version == stored.Header().State.ETag ||
		stored.Kind() == workflow.KindPlan && slices.Contains(strings.Split(w.also, "\n"), version)
}

// reads says whether Read may return this, and the world with the versions that it showed.
func (w world) reads(got *workflow.Plan, err error) (world, string) {
	if w.plan == nil {
		if modelIs(err, storage.ErrNotFound) {
			return w, ""
		}
		return w, "want ErrNotFound"
	}
	if err != nil {
		return w, "want the plan"
	}
	if d := plantest.Diff(w.plan, got); d != "" {
		return w, "it is another: " + d
	}
	w.plan = modelClone(w.plan)
	for o := range workflow.Walk(w.plan) {
		known, shown := &o.Header().State.ETag, modelFind(got, o).Header().State.ETag
		switch {
		case shown == "":
			return w, fmt.Sprintf("%s %s has no version", o.Kind(), *o.Header().ID)
		case *known != "" && *known != shown && w.unsettled && o.Kind() == workflow.KindPlan:
			w.also += "\n" + *known
		case *known != "" && *known != shown:
			return w, fmt.Sprintf("%s %s has version %s, it was written as %s", o.Kind(), *o.Header().ID, shown, *known)
		}
		*known = shown
	}
	return w, ""
}

// lists says whether a listing may tell this of the plan.
func (w world) lists(r storage.ListResult) bool {
	p := w.plan
	return p != nil && r.ID == p.ID && r.GroupID == p.GroupID && r.Name == p.Name && r.Descr == p.Descr &&
		r.SubmitTime.Equal(p.SubmitTime) && r.State.Status == p.State.Status &&
		r.State.Start.Equal(p.State.Start) && r.State.End.Equal(p.State.End)
}

// matches says whether the filters choose the plan.
func (w world) matches(f storage.Filters) bool {
	p := w.plan
	if p == nil {
		return false
	}
	at := workflow.Time(p.ID)
	return (len(f.ByIDs) == 0 || slices.Contains(f.ByIDs, p.ID)) &&
		(len(f.ByGroupIDs) == 0 || slices.Contains(f.ByGroupIDs, p.GroupID)) &&
		(len(f.ByStatus) == 0 || slices.Contains(f.ByStatus, p.State.Status)) &&
		(f.After.IsZero() || at.After(f.After)) && (f.Before.IsZero() || at.Before(f.Before)) &&
		(f.BeforeID == uuid.Nil || p.ID.String() < f.BeforeID.String())
}

func (w world) String() string {
	var s []string
	if w.plan == nil {
		s = append(s, "no plan")
	} else {
		s = append(s, w.plan.State.Status.String())
	}
	for text, is := range map[string]bool{"remains of a create": w.created, "remains of a delete": w.deleted, "past grace": w.old && w.remains()} {
		if is {
			s = append(s, text)
		}
	}
	slices.Sort(s[1:])
	return strings.Join(s, ", ")
}

// modelFind finds the object of the same ID and kind in a plan; nil when there is none.
func modelFind(plan *workflow.Plan, like workflow.Object) workflow.Object {
	for o := range workflow.Walk(plan) {
		if *o.Header().ID == *like.Header().ID && o.Kind() == like.Kind() {
			return o
		}
	}
	return nil
}

// modelSame says whether two objects have the same own fields. Every write of the model has a state's start of its own.
func modelSame(a, b workflow.Object) bool {
	x, y := a.Header().State, b.Header().State
	return x.Status == y.Status && x.Start.Equal(y.Start)
}

// modelAdopt gives dst the own fields of src; dst keeps its children.
func modelAdopt(dst, src workflow.Object) {
	for i, c := range workflow.ChecksOf(dst) {
		*workflow.ChecksOf(src)[i] = *c
	}
	switch d := dst.(type) {
	case *workflow.Plan:
		s := src.(*workflow.Plan)
		s.Blocks, s.DeferredActions = d.Blocks, d.DeferredActions
		*d = *s
	case *workflow.Checks:
		s := src.(*workflow.Checks)
		s.Actions = d.Actions
		*d = *s
	case *workflow.Block:
		s := src.(*workflow.Block)
		s.Sequences = d.Sequences
		*d = *s
	case *workflow.Sequence:
		s := src.(*workflow.Sequence)
		s.Actions = d.Actions
		*d = *s
	case *workflow.Action:
		*d = *src.(*workflow.Action)
	case *workflow.DeferredActions:
		s := src.(*workflow.DeferredActions)
		s.Batches = d.Batches
		*d = *s
	case *workflow.DeferBatch:
		s := src.(*workflow.DeferBatch)
		s.Actions = d.Actions
		*d = *s
	}
}

// modelClone copies a plan or a part of one with all below it.
func modelClone[O any](o O) O { return modelCopy(reflect.ValueOf(o)).Interface().(O) }

var modelTime = reflect.TypeFor[time.Time]()

func modelCopy(v reflect.Value) reflect.Value {
	switch {
	case v.Type() == modelTime || v.Kind() != reflect.Struct && isNilOrPlain(v):
		return v
	}
	c := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Pointer:
		c.Set(reflect.New(v.Type().Elem()))
		c.Elem().Set(modelCopy(v.Elem()))
	case reflect.Interface:
		c.Set(modelCopy(v.Elem()))
	case reflect.Slice:
		c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			c.Index(i).Set(modelCopy(v.Index(i)))
		}
	case reflect.Map:
		c.Set(reflect.MakeMap(v.Type()))
		for key, value := range v.Seq2() {
			c.SetMapIndex(key, modelCopy(value))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			c.Field(i).Set(modelCopy(v.Field(i)))
		}
	}
	return c
}

// isNilOrPlain says whether a value holds nothing that two copies could share.
func isNilOrPlain(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		return v.IsNil()
	}
	return true
}
