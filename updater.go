package azblob

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// UpdatePlan stores the plan's own fields. While the plan is NotStarted or Running it takes two requests at once: it
// writes the entry, and looks for the plan, which a Delete may have removed. If it is gone, the error is both
// [storage.ErrNotFound] and [storage.ErrUnknown], because a reader may have seen the update before.
//
// An update to a final status takes three requests, one after the other: it writes the entry, then the object with the
// whole plan as given, and removes the marker. After the first one every reader sees the plan as final. If the call
// fails later, the same call again or Recovery does the rest.
//
// The children must be those that the plan was created with, and at a final status must have their last
// states. UpdatePlan encodes and checks everything before the first request.
//
// If two calls have final statuses, and the second one knows the version of the first, the second one's plan
// stays.
//
// Errors: [storage.ErrInvalid] before anything is sent, also for a State.ETag that is empty or not a version
// of the vault, for children that are not those of the version, and for a plan that goes back from its
// status; [storage.ErrNotFound]; [storage.ErrConflict] if State.ETag is not the stored version,
// or is empty, where that is allowed, and the plan would go back from its stored status; [storage.ErrUnavailable] also
// if the service contradicts itself;
// [storage.ErrUnknown] if the outcome is unknown: the same call again settles it at whichever request the
// first one failed, and leaves the object as given or as it is now. UpdatePlan sets State.ETag to the new
// version.
func (v *Vault) UpdatePlan(ctx context.Context, plan *workflow.Plan) error {
	return update(ctx, v, "UpdatePlan", plan)
}

// UpdateChecks stores the checks' own fields with one request. Errors are those of [Vault.UpdatePlan], for
// this and all other updates of sub-objects; a sub-object may move to any status.
//
// The request is about the sub-object and not the plan. During a Delete, or after one that did not finish, it
// may return nil although readers no longer see the plan. After Delete has returned nil the error is
// [storage.ErrNotFound].
func (v *Vault) UpdateChecks(ctx context.Context, checks *workflow.Checks) error {
	return update(ctx, v, "UpdateChecks", checks)
}

// UpdateBlock stores the block's own fields with one request.
func (v *Vault) UpdateBlock(ctx context.Context, block *workflow.Block) error {
	return update(ctx, v, "UpdateBlock", block)
}

// UpdateSequence stores the sequence's own fields with one request.
func (v *Vault) UpdateSequence(ctx context.Context, sequence *workflow.Sequence) error {
	return update(ctx, v, "UpdateSequence", sequence)
}

// UpdateAction stores the action with its attempts with one request.
func (v *Vault) UpdateAction(ctx context.Context, action *workflow.Action) error {
	return update(ctx, v, "UpdateAction", action)
}

// UpdateDeferredActions stores the deferred actions' own fields with one request.
func (v *Vault) UpdateDeferredActions(ctx context.Context, deferred *workflow.DeferredActions) error {
	return update(ctx, v, "UpdateDeferredActions", deferred)
}

// UpdateDeferBatch stores the batch's own fields with one request.
func (v *Vault) UpdateDeferBatch(ctx context.Context, batch *workflow.DeferBatch) error {
	return update(ctx, v, "UpdateDeferBatch", batch)
}

// update is the common part of all updates.
func update[T any, P objectPointer[T]](ctx context.Context, v *Vault, op string, o P) error {
	var id uuid.UUID
	if o != nil {
		id = *o.Header().PlanID
	}
	return v.call(ctx, op, id, func(ctx context.Context) error {
		if o == nil {
			return driver.Invalid(op, "is nil")
		}
		if err := driver.CheckUpdate(o, v.reg, v.unversioned); err != nil {
			return err
		}
		if plan, ok := any(o).(*workflow.Plan); ok {
			return v.updatePlan(ctx, plan)
		}
		return v.updatePart(ctx, o)
	})
}

// updatePart writes the blob of a sub-object, and sets its new version.
func (v *Vault) updatePart(ctx context.Context, o workflow.Object) error {
	h := o.Header()
	body, err := v.format.encodeOwn(o)
	if err := checkBody(o, false, body, err); err != nil {
		return err
	}
	cond := blob.IfThere
	if h.State.ETag != "" {
		etag, _, _ := driver.SplitVersion(h.State.ETag)
		cond = blob.IfMatch(etag)
	}
	w, err := v.putOwn(ctx, o, body, cond)
	if err != nil {
		return err
	}
	h.State.ETag = driver.Version(w.etag, o)
	return nil
}

// updateRounds bounds how often an update without a version looks again, because the entry was rewritten.
const updateRounds = 4

// updatePlan writes the entry of a plan. If the plan becomes final it does the rest, too.
func (v *Vault) updatePlan(ctx context.Context, plan *workflow.Plan) error {
	entry, err := v.format.encodeEntry(plan)
	if err := checkBody(plan, false, entry, err); err != nil {
		return err
	}
	var object []byte
	if plan.State.Status.Final() {
		object, err = v.format.encodeObject(plan)
		if err := checkBody(plan, true, object, err); err != nil {
			return err
		}
	}
	unversioned := plan.State.ETag == ""
	for round := 1; ; round++ {
		r, err := v.replaced(ctx, plan)
		if err != nil {
			return err
		}
		err = v.replacePlan(ctx, plan, r, entry, object)
		if !unversioned || round == updateRounds || !errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrUnknown) {
			return err
		}
	}
}

// replaced is what an update of a plan replaces.
type replaced struct {
	cond       blob.Condition // of the entry
	objectETag string
	looked     bool // whether the object was looked for
	changes    bool // a final plan changes
}

// replaced returns the version that the caller knows.
func (v *Vault) replaced(ctx context.Context, plan *workflow.Plan) (replaced, error) {
	keys := v.prefix.plan(plan.ID)
	if plan.State.ETag == "" {
		return v.replacedUnversioned(ctx, plan, keys)
	}
	entryETag, objectETag := splitPlanVersion(plan.State.ETag)
	_, was, _ := driver.SplitVersion(plan.State.ETag)
	r := replaced{cond: blob.IfMatch(entryETag), objectETag: objectETag, changes: was.Final()}
	if objectETag != "" {
		return r, nil
	}
	p, err := v.client.Head(ctx, keys.object())
	if r.objectETag, r.looked = p.ETag, true; blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return r, v.goneIfAbsent(ctx, keys, err)
	}
	return r, blobError("look for object", keys.object(), err)
}

// goneIfAbsent returns the error of a HEAD of the object if a second look agrees that it is absent.
func (v *Vault) goneIfAbsent(ctx context.Context, keys keys, err error) error {
	gone := v.confirmGone(ctx, keys, keys.object())
	switch {
	case errors.Is(gone, storage.ErrConflict):
		return nil
	case gone != nil:
		return gone
	}
	return blobError("look for object", keys.object(), err)
}

// replacedUnversioned returns the stored version. Its status decides what the plan may become.
func (v *Vault) replacedUnversioned(ctx context.Context, plan *workflow.Plan, keys keys) (r replaced, err error) {
	now, err := v.headPlan(ctx, "look for plan", keys)
	if err == nil && !now.committed() {
		missing := now.missing()
		if err = v.confirmGone(ctx, keys, missing...); errors.Is(err, storage.ErrConflict) { // one of the answers was false
			now, err = v.headPlan(ctx, "look for plan", keys)
		}
		if err == nil && !now.committed() {
			err = vaultError("look for plan", missing[0], "%w", storage.ErrNotFound)
		}
	}
	if err != nil {
		return r, err
	}
	r = replaced{cond: blob.IfMatch(now.entry.ETag), objectETag: now.object.ETag, looked: true}
	for _, item := range []*blob.Item{now.entry, now.object} { // a final object shows that an entry was set back
		stored, err := parseState(item.Metadata)
		if err != nil {
			return r, blobError("look for plan", keys.at(item.Name), err)
		}
		if !driver.Follows(plan.State.Status, stored.Status) {
			return r, vaultError("look for plan", keys.at(item.Name), "%w: the plan is %s and can't become %s: a plan only moves forward", storage.ErrConflict, stored.Status, plan.State.Status)
		}
		r.changes = r.changes || stored.Status.Final()
	}
	return r, nil
}

// replacePlan writes the entry of a plan, and for a final plan the rest.
func (v *Vault) replacePlan(ctx context.Context, plan *workflow.Plan, r replaced, entry, object []byte) error {
	if object == nil {
		return v.putOpenEntry(ctx, plan, r, entry)
	}
	w, c, err := v.putEntry(ctx, plan, entry, r.cond, r.changes)
	if err != nil {
		return err
	}
	r.objectETag, err = v.finalize(ctx, plan, w, c, object, r.objectETag)
	plan.State.ETag = planVersion(w.etag, r.objectETag, plan)
	return err
}

// putOpenEntry writes the entry of a plan that stays open, and looks for the object at the same time. An entry without an
// object is what a Delete has left that died behind its commit, and readers don't see it.
func (v *Vault) putOpenEntry(ctx context.Context, plan *workflow.Plan, r replaced, body []byte) error {
	keys := v.prefix.plan(plan.ID)
	var w written
	var err, look error
	_ = v.parallel(2, func(i int) error {
		if i == 0 {
			w, _, err = v.putEntry(ctx, plan, body, r.cond, false)
			return nil // the look tells what its error means
		}
		if r.looked {
			return nil
		}
		if _, look = v.client.Head(ctx, keys.object()); blob.Is(look, blob.Absent, blob.AbsentContainer) {
			look = v.goneIfAbsent(ctx, keys, look)
		}
		return nil
	})
	switch {
	case errors.Is(look, storage.ErrNotFound) && errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrUnknown):
		return look // nothing was written, and there is no plan
	case err != nil:
		return err
	case look == nil:
		plan.State.ETag = planVersion(w.etag, r.objectETag, plan)
		return nil
	case errors.Is(look, storage.ErrNotFound): // a reader may have seen the entry before the plan was deleted
		return fmt.Errorf("%w: %w", storage.ErrUnknown, look)
	}
	v.unknown.keep(w.write, w.id) // a repeated update recognises it
	return vaultError("look for object", keys.object(), "%w: the entry is written, and whether the plan still exists is not known: call again: %w", storage.ErrUnknown, look)
}

// putEntry writes the entry of a plan, which is the commit point of its update. If the update changes a final
// plan it writes the marker of a change before, which stays until the caller ends the change: a plan that was
// open has its own marker.
func (v *Vault) putEntry(ctx context.Context, plan *workflow.Plan, body []byte, cond blob.Condition, changes bool) (w written, c *change, err error) {
	commit, cancel := ctx, context.CancelFunc(func() {})
	if changes {
		if c, err = v.beginChange(ctx, v.prefix.plan(plan.ID)); err != nil {
			return w, nil, err
		}
		commit, cancel = c.within(ctx)
	}
	defer cancel()
	w, err = v.putOwn(commit, plan, body, cond)
	if err != nil && !errors.Is(err, storage.ErrUnknown) {
		_ = c.end(ctx) // what is left is Recovery's
	}
	return w, c, lateChange(err)
}

// checkBody refuses a body that could not be encoded, or that is too large for the service.
func checkBody(o workflow.Object, whole bool, body []byte, err error) error {
	switch {
	case err != nil:
		return driver.Unencodable(o, whole, err)
	case len(body) > blob.MaxBody:
		return driver.Invalid(o.Kind().String(), "needs %d bytes, at most %d are allowed", len(body), blob.MaxBody)
	}
	return nil
}

// finalize does the rest of an update to a final status, after the entry: it writes the object and removes
// the marker. Until the object is final, too, readers take the plan from the entry and the sub-objects. It
// returns the object's ETag.
func (v *Vault) finalize(ctx context.Context, plan *workflow.Plan, entry written, c *change, body []byte, etag string) (string, error) {
	keys := v.prefix.plan(plan.ID)
	objectETag, followed, err := v.finalizeObject(ctx, plan, entry, body, etag)
	switch {
	case followed:
		_ = c.end(ctx)
		return objectETag, nil // the later update removes the marker
	case errors.Is(err, storage.ErrNotFound):
		if v.confirmGone(ctx, keys, keys.object()) == nil {
			_ = c.end(ctx)
			return objectETag, err // deleted meanwhile
		}
		err = clientError(err)
	case err == nil:
		err = v.deleteMarker(ctx, keys.marker(), "")
	}
	if err == nil {
		err = c.end(ctx)
	}
	if err == nil {
		return objectETag, nil
	}
	// Every reader sees the entry as final, so the update has had an effect. The same call again must
	// recognise the entry.
	v.unknown.keep(entry.write, entry.id)
	return objectETag, fmt.Errorf("%w: the plan is %s, and Recovery or the same call again does the rest: %w", storage.ErrUnknown, plan.State.Status, err)
}

// finalizeRounds bounds how often a final update tries to write an object that keeps being rewritten.
const finalizeRounds = 4

// finalizeObject writes the object of a plan that has become final, over the version that its caller knows.
// Recovery may have rewritten the object; then it tries again. A later final update may have written it, too,
// and its object must stay: followed says that there is one, which does the rest.
func (v *Vault) finalizeObject(ctx context.Context, plan *workflow.Plan, entry written, body []byte, etag string) (newETag string, followed bool, err error) {
	keys := v.prefix.plan(plan.ID)
	for round := 1; ; round++ {
		newETag, err := v.putObject(ctx, plan, body, blob.IfMatch(etag))
		if err == nil {
			return newETag, false, nil
		}
		if err = blobError("finalize object", keys.object(), err); !errors.Is(err, storage.ErrConflict) || round == finalizeRounds {
			return etag, false, err
		}
		// Look at the object before the entry. A later update writes them in the opposite order, so if the
		// entry does not show it, it has not written the object that was seen.
		object, err := v.client.Head(ctx, keys.object())
		if err != nil {
			return etag, false, blobError("look at object", keys.object(), err)
		}
		now, err := v.client.Head(ctx, keys.entry())
		if err != nil {
			return etag, false, blobError("look at entry", keys.entry(), err)
		}
		if etag = object.ETag; now.Metadata[blob.WriteID] == entry.id {
			continue
		}
		if blobStatusOf(&blob.Item{Properties: now}) == final {
			return etag, true, nil
		}
		return etag, false, vaultError("look at entry", keys.entry(), "%w: it was set back", storage.ErrConflict) // or restored
	}
}
