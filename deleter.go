package azblob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/copies"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Delete removes a plan with all its sub-objects. It takes seven requests and one more for each 256
// sub-objects, and two more for each of a started plan that is open or has changed since. The removal of the
// object removes the plan for every reader. If the call fails later, the same call again or Recovery does the
// rest. Every removal names a version, so a late copy of a request can't harm what takes the plan's place.
//
// If the service says that a blob is absent which should exist, Delete asks again in another way, so that no
// single wrong answer makes it take a plan for deleted. Without the right to list blobs it asks by name. It
// then can't find what an earlier Delete left, and returns ErrUnknown until Recovery has removed it.
//
// Delete also removes a plan whose object was lost from outside, as Recovery reports it, once the entry is
// older than the grace period and the margin.
//
// Errors: [storage.ErrNotFound]; [storage.ErrHeld] in a day that is held (see [Admin.Hold]), with a second error if the
// delete marker could not be taken back, which Recovery then removes; [storage.ErrSchema] for a plan that newer code
// wrote, and [storage.ErrForeign] for one of another program, which are left untouched; [storage.ErrConflict] if other
// processes kept rewriting the plan's object, or the object was lost so recently that this can't be judged yet;
// [storage.ErrUnavailable] if the service contradicts itself or was too slow; [storage.ErrUnknown] if the outcome is
// unknown. After each of the last three, make the same call again.
func (v *Vault) Delete(ctx context.Context, id uuid.UUID) error {
	return v.call(ctx, "Delete", id, func(ctx context.Context) error {
		if err := driver.CheckID(id); err != nil {
			return err
		}
		return deletion{planStore: v.plan(v.prefix.plan(id))}.run(ctx)
	})
}

// DeleteCopy removes a copy's plan for package mirror as Delete does, unless somebody else has changed it; see
// [storage.Copier].
func (o offered) DeleteCopy(ctx context.Context, plan *workflow.Plan) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return o.call(ctx, "DeleteCopy", id, func(ctx context.Context) error {
		if plan == nil {
			return driver.Invalid("Plan", "is nil")
		}
		if err := cmp.Or(driver.CheckID(id), copies.Check(plan.State.ETag)); err != nil {
			return err
		}
		_, object := splitPlanVersion(plan.State.ETag)
		return deletion{o.plan(o.prefix.plan(id)), object}.run(ctx)
	})
}

// deletion is a Delete that is running.
type deletion struct {
	planStore
	// only is the one version of the object that DeleteCopy removes. UpdateCopy leaves the object of an open plan, and an
	// UpdatePlan rewrites it.
	only string
}

// run is the order of writes of a Delete, the reverse of Create: delete marker, object, sub-objects,
// entry, markers. It reads the object first, because the object names the sub-objects.
func (d deletion) run(ctx context.Context) error {
	plan, err := d.deleteObject(ctx)
	if err != nil {
		return err
	}
	// The plan is gone. If the process crashes here, Recovery does the rest.
	return unfinished(d.deleteRest(ctx, plan))
}

// unfinished is the error of a Delete that fails after its commit.
func unfinished(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the plan is deleted, and Recovery or the same call again removes the rest: %w", storage.ErrUnknown, err)
}

// deleteRounds bounds how often a Delete begins again because the object was rewritten, or because it was too
// slow.
const deleteRounds = 4

// deleteObject writes the delete marker and removes the object in the version that was read, which is the
// commit point. If the object has changed it begins again with both. Before Recovery removes an old delete
// marker from a whole plan, it rewrites the object. A Delete that was held up between the two writes
// therefore meets a conflict, and can't leave remains without a marker.
func (d deletion) deleteObject(ctx context.Context) (plan deletionTargets, err error) {
	for range deleteRounds {
		if plan, err = d.deletionTargets(ctx); errors.Is(err, storage.ErrConflict) {
			continue
		}
		if err != nil {
			return plan, err
		}
		if d.only != "" && plan.object != d.only {
			return plan, vaultError("look at object", d.keys.object(), "%w: somebody has changed or deleted the plan since it was read", storage.ErrConflict)
		}
		// A hold is looked for twice: before the marker, so that a Delete in a held day writes nothing, and after
		// it, because a Hold waits for the Deletes that did not see it.
		look := func() error { return d.lookForHold(ctx, d.keys.container) }
		if plan.object == "" {
			look = nil
		} else if isOld(d.keys.date(), plan.seen) {
			if err = look(); err != nil {
				return plan, err
			}
		}
		started := time.Now()
		// The marker leads Recovery to whatever is left. Alone it does no harm: Recovery removes it after the
		// grace period.
		var seen time.Time
		if plan.deleteMarker, seen, err = d.putDeleteMarker(ctx); err != nil {
			return plan, err
		}
		if err = d.prepareDay(ctx, seen, look); err != nil {
			return plan, d.takeBackDelete(ctx, plan.deleteMarker, err)
		}
		if plan.object == "" {
			return plan, nil // the object is gone already
		}
		if time.Since(started) > d.grace {
			err = errSlowDelete
			continue
		}
		err = d.commitDelete(ctx, plan.object, started)
		slow := errors.Is(err, errSlowDelete) && !errors.Is(err, storage.ErrUnknown)
		if !slow && !errors.Is(err, storage.ErrConflict) {
			return plan, err
		}
	}
	if errors.Is(err, errSlowDelete) {
		err = fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	return plan, fmt.Errorf("%d attempts failed, call again: %w", deleteRounds, err)
}

// takeBackDelete undoes the delete marker of a Delete in a held day, and returns why. The marker may be another
// Delete's, too, which then must not commit any more: its removal of the object is refused because the object is
// rewritten. If that Delete has committed, the marker leads to what it left.
func (d deletion) takeBackDelete(ctx context.Context, marker string, cause error) error {
	if !errors.Is(cause, storage.ErrHeld) {
		return cause
	}
	if err := d.dismissDelete(ctx, marker); err != nil && !overtaken(err) {
		return errors.Join(cause, err)
	}
	return cause
}

// commitDelete removes the object. It is the commit point.
func (d deletion) commitDelete(ctx context.Context, etag string, started time.Time) error {
	ctx, cancel := d.within(ctx, started, true, errSlowDelete)
	defer cancel()
	return d.remove(ctx, "remove object", d.keys.object(), blob.IfMatch(etag))
}

// deletionTargets are the blobs of a plan that is to be deleted, in the versions to remove.
type deletionTargets struct {
	// parts are the sub-objects. If listed is set they come from a listing, which may have missed some;
	// otherwise the object names them all.
	parts  []blob.Target
	listed bool
	// object is empty if the object is gone already.
	// marker is empty if a final plan has none.
	object, entry, marker, deleteMarker string
	// seen is the service's clock when it told the object's version.
	seen time.Time
}

// noVersion is the ETag of no blob. A removal of this version finds out whether there is another.
const noVersion = "0x0"

// deletionTargets finds the blobs of a plan that is to be deleted.
func (d deletion) deletionTargets(ctx context.Context) (found deletionTargets, err error) {
	object, p, there, err, lookErr := d.lookForDeletion(ctx)
	switch {
	case err == nil && lookErr == nil:
		for _, o := range workflow.Parts(object) {
			etag, _, _ := driver.SplitVersion(o.Header().State.ETag)
			found.parts = append(found.parts, blob.Target{Name: d.keys.part(o).Name, ETag: cmp.Or(etag, noVersion)})
		}
		found.object, found.seen = p.ETag, p.Seen
		found.look(there)
		return found, nil
	case errors.Is(err, storage.ErrCorrupt):
		// A damaged object can't name the sub-objects, but a listing can. Damage must not prevent a Delete.
		p, err = d.client.Head(ctx, d.keys.object())
		if err != nil {
			return found, blobError("look at object", d.keys.object(), err)
		}
		found.object, found.seen = p.ETag, p.Seen
	case errors.Is(err, storage.ErrNotFound):
		if err := d.confirmDeleted(ctx, err); err != nil {
			return found, err
		}
	default:
		return found, cmp.Or(err, lookErr)
	}
	if lookErr != nil {
		return found, lookErr
	}
	if there.entry != nil && isForeign(there.entry.Metadata) { // the object does not tell: it is damaged or gone
		return found, vaultError("look at plan", d.keys.entry(), "%w", storage.ErrForeign)
	}
	found.look(there)
	found.listed = true
	items, err := d.listParts(ctx, kinds[:])
	found.parts = targetsOf(items)
	if found.object == "" {
		err = unfinished(err)
	}
	return found, err
}

// look sets the versions of entry and marker.
func (t *deletionTargets) look(there planBlobs) {
	t.entry, t.marker = noVersion, noVersion
	if there.entry != nil {
		t.entry = there.entry.ETag
	}
	if there.marker != nil {
		t.marker = there.marker.ETag
	} else if blobStatusOf(there.entry) == final {
		t.marker = ""
	}
}

// lookForDeletion reads the object, and looks at the entry and the marker at the same time. It looks again if one of
// them is missing that should be there.
func (d deletion) lookForDeletion(ctx context.Context) (object *workflow.Plan, p blob.Properties, there planBlobs, err, lookErr error) {
	refs := []blob.Ref{d.keys.entry(), d.keys.marker()}
	look := func() {
		var found []*blob.Item
		if found, lookErr = d.headBlobs(ctx, "look at plan", refs); lookErr == nil {
			there.entry, there.marker = cmp.Or(found[0], there.entry), cmp.Or(found[1], there.marker)
		}
	}
	_ = d.parallel(2, func(i int) error {
		if i == 0 {
			object, p, err = d.readObject(ctx)
		} else {
			look()
		}
		return nil
	})
	gone := errors.Is(err, storage.ErrNotFound)
	if lookErr == nil && !gone && (there.entry == nil || there.marker == nil && blobStatusOf(there.entry) != final) {
		look()
	}
	return object, p, there, err, lookErr
}

// confirmDeleted returns nil if an earlier Delete has removed the object, or if the object was lost. It
// returns notFound if there is no plan.
func (d deletion) confirmDeleted(ctx context.Context, notFound error) error {
	if err := d.confirmGone(ctx, d.keys.object()); err != nil {
		return err
	}
	_, err := d.client.Head(ctx, d.keys.deleteMarker())
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return d.confirmObjectLost(ctx, notFound)
	}
	return blobError("look for delete marker", d.keys.deleteMarker(), err)
}

// confirmObjectLost returns nil if the object was lost from outside, and notFound if there is no plan. The
// caller has found no delete marker. Delete removes that last, so the entry of a plan that was being deleted
// is gone by now.
func (d deletion) confirmObjectLost(ctx context.Context, notFound error) error {
	p, err := d.client.Head(ctx, d.keys.entry())
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return notFound // there was no plan, or nothing is left of it
	}
	if err != nil {
		return blobError("look for entry", d.keys.entry(), err)
	}
	if s := blobStatusOf(&blob.Item{Properties: p}); s != running && s != final {
		return notFound // a Create is under way, or did not finish
	}
	b, err := d.listMarkers(ctx)
	if err != nil {
		return err
	}
	if restored(&blob.Item{Properties: p}) && b.marker != nil {
		return notFound // a Restore is under way, or did not finish
	}
	found, err := d.examine(ctx, b, false)
	switch {
	case err != nil:
		return err
	case found.finding == lostObject && isOld(d.keys.date(), found.seen):
		return d.lookForHold(ctx, d.keys.container)
	case found.finding == lostObject:
		return nil
	case found.finding == tooRecent:
		return vaultError("look for object", d.keys.object(), "%w: it is missing, and the entry was written so recently that this can't be judged yet: call again in %v", storage.ErrConflict, found.wait())
	}
	return vaultError("look for object", d.keys.object(), "%w: the plan has changed meanwhile", storage.ErrConflict)
}

// deleteRest removes what is left after the object: sub-objects, entry, markers.
func (d deletion) deleteRest(ctx context.Context, plan deletionTargets) error {
	if err := d.deleteParts(ctx, plan.parts); err != nil {
		return err
	}
	if plan.listed {
		if err := d.confirmParts(ctx, func(blob.Item) (bool, error) { return true, nil }); err != nil {
			return err
		}
	}
	if err := d.deleteEntry(ctx, plan.entry); err != nil {
		return err
	}
	markers := []blob.Target{{Name: d.keys.deleteMarker().Name, ETag: plan.deleteMarker}}
	if plan.marker != "" {
		markers = append(markers, blob.Target{Name: d.keys.marker().Name, ETag: plan.marker})
	}
	err := d.client.DeleteBatch(ctx, d.keys.container, markers)
	if blob.Is(err, blob.Mismatch, blob.Absent, blob.AbsentContainer) {
		return nil // a marker that has changed belongs to another call
	}
	return blobError("remove markers", d.keys.marker(), err)
}

// deleteParts removes the sub-objects. The object names old versions of those that were updated, so they are looked at.
func (d deletion) deleteParts(ctx context.Context, parts []blob.Target) error {
	for range deleteRounds {
		changed, err := d.removeVersions(ctx, parts)
		if err != nil || len(changed) == 0 {
			return err
		}
		parts = changed
	}
	return vaultError("remove sub-objects", d.keys.at(parts[0].Name), "%w: it keeps changing: call again", storage.ErrConflict)
}

// deleteEntry removes the entry. An update may have changed it since it was looked at.
func (d deletion) deleteEntry(ctx context.Context, etag string) (err error) {
	ref := d.keys.entry()
	for range deleteRounds {
		if err = d.remove(ctx, "remove entry", ref, blob.IfMatch(etag)); !errors.Is(err, storage.ErrConflict) {
			break
		}
		p, lookErr := d.client.Head(ctx, ref)
		if lookErr != nil && !blob.Is(lookErr, blob.Absent, blob.AbsentContainer) {
			return blobError("look at entry", ref, lookErr)
		}
		etag = p.ETag
	}
	return err
}
