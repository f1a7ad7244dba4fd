package azblob

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/copies"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// UpdatePlan stores the plan's own fields. While the plan is NotStarted or Running it takes two requests at once: it
// writes the entry, and looks for the plan, which a Delete may have removed. If it is gone, the error is both
// [storage.ErrNotFound] and [storage.ErrUnknown], because a reader may have seen the update before. The first such update
// of a plan that a mirror has written takes two requests more, which rewrite the object; see [storage.Copier].
//
// An update to a final status takes three requests, one after the other: it writes the entry, then the object with the
// whole plan as given, and removes the marker. After the first one every reader sees the plan as final. If the call
// fails later, the same call again or Recovery does the rest.
//
// The children must be those that the plan was created with, and at a final status must have their last
// states. UpdatePlan encodes and checks everything before the first request.
//
// If two calls have final statuses, and the second one has the version that the first one returned, the plan of the
// second one stays.
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

// UpdateCopy stores a copy's plan for package mirror as UpdatePlan does, and leaves the mark of a copy; see
// [storage.Copier].
func (o offered) UpdateCopy(ctx context.Context, plan *workflow.Plan) error {
	return update(ctx, o.Vault, opUpdateCopy, plan)
}

const opUpdateCopy = "UpdateCopy"

// IsCopy reports whether the version of a plan has the mark of a copy.
func (o offered) IsCopy(plan *workflow.Plan) bool { return copies.Marked(plan.State.ETag) }

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
		marks := planMarks{copied: op == opUpdateCopy}
		if err := driver.CheckUpdate(o, v.reg, v.unversioned && !marks.copied); err != nil {
			return err
		}
		if o.Kind() == workflow.KindAction {
			driver.MarkSecrets(o, v.reg)
		}
		if plan, ok := any(o).(*workflow.Plan); ok {
			if marks.copied && !copies.Marked(plan.State.ETag) {
				return copies.Check(plan.State.ETag)
			}
			return planUpdate{v.plan(v.prefix.plan(plan.ID)), plan, marks}.run(ctx)
		}
		return v.updatePart(ctx, o)
	})
}

// updatePart writes the blob of a sub-object, and sets its new version.
func (s *store) updatePart(ctx context.Context, o workflow.Object) error {
	h := o.Header()
	body, err := s.format.encodeOwn(o)
	if err := checkBody(o, false, body, err); err != nil {
		return err
	}
	cond := blob.IfThere
	if h.State.ETag != "" {
		etag, _, _ := driver.SplitVersion(h.State.ETag)
		cond = blob.IfMatch(etag)
	}
	w, err := s.putOwn(ctx, o, body, cond, planMarks{})
	if err != nil {
		return err
	}
	h.State.ETag = driver.Version(w.etag, o)
	return nil
}

// updateRounds bounds how often an update without a version looks again, because the entry was rewritten.
const updateRounds = 4

// planUpdate is an UpdatePlan that is running.
type planUpdate struct {
	planStore
	plan  *workflow.Plan
	marks planMarks
}

// run writes the entry of a plan. If the plan becomes final it does the rest, too.
func (u planUpdate) run(ctx context.Context) error {
	entry, err := u.format.encodeEntry(u.plan)
	if err := checkBody(u.plan, false, entry, err); err != nil {
		return err
	}
	var object []byte
	if u.plan.State.Status.Final() {
		object, err = u.format.encodeObject(u.plan)
		if err := checkBody(u.plan, true, object, err); err != nil {
			return err
		}
	}
	unversioned := u.plan.State.ETag == ""
	for round := 1; ; round++ {
		r, err := u.replaced(ctx)
		if err != nil {
			return err
		}
		err = u.replacePlan(ctx, r, entry, object)
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
	copied     bool // whether it had the mark of a copy then
	changes    bool // a final plan changes
}

// replaced returns the version that the caller has read.
func (u planUpdate) replaced(ctx context.Context) (replaced, error) {
	if u.plan.State.ETag == "" {
		return u.replacedUnversioned(ctx)
	}
	entryETag, objectETag := splitPlanVersion(u.plan.State.ETag)
	_, was, _ := driver.SplitVersion(u.plan.State.ETag)
	r := replaced{cond: blob.IfMatch(entryETag), objectETag: objectETag, changes: was.Final()}
	if objectETag != "" {
		return r, nil
	}
	p, err := u.client.Head(ctx, u.keys.object())
	r.copied = p.Metadata[metaCopied] != ""
	if r.objectETag, r.looked = p.ETag, true; blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return r, u.goneIfAbsent(ctx, err)
	}
	return r, blobError("look for object", u.keys.object(), err)
}

// goneIfAbsent returns the error of a HEAD of the object if a second look agrees that it is absent.
func (s planStore) goneIfAbsent(ctx context.Context, err error) error {
	gone := s.confirmGone(ctx, s.keys.object())
	switch {
	case errors.Is(gone, storage.ErrConflict):
		return nil
	case gone != nil:
		return gone
	}
	return blobError("look for object", s.keys.object(), err)
}

// replacedUnversioned returns the stored version. Its status decides what the plan may become.
func (u planUpdate) replacedUnversioned(ctx context.Context) (r replaced, err error) {
	now, err := u.headPlan(ctx, "look for plan")
	if err == nil && !now.committed() {
		missing := now.missing()
		if err = u.confirmGone(ctx, missing...); errors.Is(err, storage.ErrConflict) { // one of the answers was false
			now, err = u.headPlan(ctx, "look for plan")
		}
		if err == nil && !now.committed() {
			err = vaultError("look for plan", missing[0], "%w", storage.ErrNotFound)
		}
	}
	if err != nil {
		return r, err
	}
	r = replaced{cond: blob.IfMatch(now.entry.ETag), objectETag: now.object.ETag, looked: true, copied: copied(now.object)}
	for _, item := range []*blob.Item{now.entry, now.object} { // a final object shows that an entry was set back
		stored, err := parseState(item.Metadata)
		if err != nil {
			return r, blobError("look for plan", u.keys.at(item.Name), err)
		}
		if !driver.Follows(u.plan.State.Status, stored.Status) {
			return r, vaultError("look for plan", u.keys.at(item.Name), "%w: the plan is %s and can't become %s: a plan only moves forward", storage.ErrConflict, stored.Status, u.plan.State.Status)
		}
		r.changes = r.changes || stored.Status.Final()
	}
	return r, nil
}

// replacePlan writes the entry of a plan, and for a final plan the rest.
func (u planUpdate) replacePlan(ctx context.Context, r replaced, entry, object []byte) error {
	if object == nil {
		return u.putOpenEntry(ctx, r, entry)
	}
	w, c, err := u.putEntry(ctx, entry, r.cond, r.changes)
	if err != nil {
		return err
	}
	r.objectETag, err = u.finalize(ctx, w, c, object, r.objectETag)
	u.plan.State.ETag = planVersion(w.etag, r.objectETag, u.marks.copied, u.plan)
	return err
}

// putOpenEntry writes the entry of a plan that stays open, and looks for the object at the same time. An entry without an
// object is what a Delete has left that died behind its commit, and readers don't see it.
func (u planUpdate) putOpenEntry(ctx context.Context, r replaced, body []byte) error {
	var w written
	var err, look error
	_ = u.parallel(2, func(i int) error {
		if i == 0 {
			w, _, err = u.putEntry(ctx, body, r.cond, false)
			return nil // the look tells what its error means
		}
		if r.looked {
			return nil
		}
		p, headErr := u.client.Head(ctx, u.keys.object())
		if look = headErr; blob.Is(look, blob.Absent, blob.AbsentContainer) {
			look = u.goneIfAbsent(ctx, look)
		}
		r.copied = p.Metadata[metaCopied] != ""
		return nil
	})
	if err == nil && look == nil && r.copied && !u.marks.copied {
		r.objectETag, look = u.disown(ctx)
	}
	switch {
	case errors.Is(look, storage.ErrNotFound) && errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrUnknown):
		return look // nothing was written, and there is no plan
	case err != nil:
		return err
	case look == nil:
		u.plan.State.ETag = planVersion(w.etag, r.objectETag, u.marks.copied, u.plan)
		return nil
	case errors.Is(look, storage.ErrNotFound): // a reader may have seen the entry before the plan was deleted
		return fmt.Errorf("%w: %w", storage.ErrUnknown, look)
	}
	u.unknown.keep(w.write, w.id) // a repeated update recognizes it
	return vaultError("look for object", u.keys.object(), "%w: the entry is written, and whether the plan still exists is not known: call again: %w", storage.ErrUnknown, look)
}

// disown takes the mark of a copy off the object, whose version is another one then. A mirror that has read the plan
// before, and is about to remove it, is refused.
func (u planUpdate) disown(ctx context.Context) (etag string, err error) {
	for range updateRounds {
		if _, etag, err = u.rewriteObject(ctx, metaCopied); !errors.Is(err, storage.ErrConflict) {
			break
		}
	}
	return etag, err
}

// putEntry writes the entry of a plan, which is the commit point of its update. If the update changes a final
// plan it writes the marker of a change before, which stays until the caller ends the change: a plan that was
// open has its own marker.
func (u planUpdate) putEntry(ctx context.Context, body []byte, cond blob.Condition, changes bool) (w written, c *change, err error) {
	commit, cancel := ctx, context.CancelFunc(func() {})
	if changes {
		if c, err = u.beginChange(ctx); err != nil {
			return w, nil, err
		}
		commit, cancel = c.deadline(ctx)
	}
	defer cancel()
	w, err = u.putOwn(commit, u.plan, body, cond, u.marks)
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
func (u planUpdate) finalize(ctx context.Context, entry written, c *change, body []byte, etag string) (string, error) {
	objectETag, followed, err := u.finalizeObject(ctx, entry, body, etag)
	switch {
	case followed:
		_ = c.end(ctx)
		return objectETag, nil // the later update removes the marker
	case errors.Is(err, storage.ErrNotFound):
		if u.confirmGone(ctx, u.keys.object()) == nil {
			_ = c.end(ctx)
			return objectETag, err // deleted meanwhile
		}
		err = clientError(err)
	case err == nil:
		err = u.deleteMarker(ctx, u.keys.marker(), "")
	}
	if err == nil {
		err = c.end(ctx)
	}
	if err == nil {
		return objectETag, nil
	}
	// Every reader sees the entry as final, so the update has had an effect. The same call again must
	// recognize the entry.
	u.unknown.keep(entry.write, entry.id)
	return objectETag, fmt.Errorf("%w: the plan is %s, and Recovery or the same call again does the rest: %w", storage.ErrUnknown, u.plan.State.Status, err)
}

// finalizeRounds bounds how often a final update tries to write an object that keeps being rewritten.
const finalizeRounds = 4

// finalizeObject writes the object of a plan that has become final, over the version that the caller has read. If
// Recovery has rewritten the object, it tries again. If a later final update has written it, that object stays, and
// followed is true: the later update does the rest.
func (u planUpdate) finalizeObject(ctx context.Context, entry written, body []byte, etag string) (newETag string, followed bool, err error) {
	for round := 1; ; round++ {
		newETag, err := u.putObject(ctx, u.plan, body, blob.IfMatch(etag), u.marks)
		if err == nil {
			return newETag, false, nil
		}
		if err = blobError("finalize object", u.keys.object(), err); !errors.Is(err, storage.ErrConflict) || round == finalizeRounds {
			return etag, false, err
		}
		// Look at the object before the entry. A later update writes them in the opposite order, so if the
		// entry does not show it, it has not written the object that was seen.
		object, err := u.client.Head(ctx, u.keys.object())
		if err != nil {
			return etag, false, blobError("look at object", u.keys.object(), err)
		}
		now, err := u.client.Head(ctx, u.keys.entry())
		if err != nil {
			return etag, false, blobError("look at entry", u.keys.entry(), err)
		}
		if etag = object.ETag; now.Metadata[blob.WriteID] == entry.id {
			continue
		}
		if blobStatusOf(&blob.Item{Properties: now}) == final {
			return etag, true, nil
		}
		return etag, false, vaultError("look at entry", u.keys.entry(), "%w: it was set back", storage.ErrConflict) // or restored
	}
}
