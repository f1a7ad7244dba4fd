package azblob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Delete removes a plan with all its parts: 5 requests and one more for each 256 sub-objects. The plan is gone for every
// reader with the third; what is broken off later is finished by the same call again, or by Recovery.
//
// Where the service says that something is not there which should be, Delete asks again in another way before it goes on, so
// that no single wrong answer makes it take a plan for deleted. Without the right to list blobs it asks by name; what an
// earlier Delete left it can't find then, and says ErrUnknown until Recovery has removed it.
//
// A plan whose object was lost from outside, as Recovery reports it, is removed as well, once its entry is older than the grace
// period and a margin.
//
// Errors: ErrNotFound; ErrSchema for a plan that newer code wrote, which is left untouched; ErrConflict when others kept
// rewriting the plan's object, or it was lost so recently that this can't be judged yet; ErrUnavailable when the service contradicts itself, or was too slow; ErrUnknown when the
// outcome can't be known. The same call again is right after each of the last three.
func (v *Vault) Delete(ctx context.Context, id uuid.UUID) error {
	return v.change("Delete", &id, func() error {
		if err := driver.CheckID(id); err != nil {
			return err
		}
		return v.delete(ctx, v.prefix.plan(id))
	})
}

// delete is the order of writes of a Delete, which is Create run backwards: delete marker, object, sub-objects, entry,
// markers. The object is read first, because it names the sub-objects.
func (v *Vault) delete(ctx context.Context, keys keys) error {
	plan, err := v.deleteObject(ctx, keys)
	if err != nil {
		return err
	}
	// The plan is gone. The rest removes all traces of it, as Recovery does after a crash here.
	return unfinished(v.deleteRest(ctx, keys, plan))
}

// unfinished is the error of a Delete after its commit.
func unfinished(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the plan is deleted, and Recovery or the same call again removes what is left of it: %w", storage.ErrUnknown, err)
}

// deleteRounds is how often a Delete begins again whose object was rewritten, or which was too slow.
const deleteRounds = 4

// deleteObject comes to the commit point: delete marker, then the object in the version that was read. It begins again with
// both where the object has changed. Recovery removes old delete markers from whole plans, and rewrites the object before
// that, so a Delete that was held up between the two meets a conflict, and not a plan that no marker leads to any more.
func (v *Vault) deleteObject(ctx context.Context, keys keys) (plan deletionTargets, err error) {
	for range deleteRounds {
		if plan, err = v.deletionTargets(ctx, keys); errors.Is(err, storage.ErrConflict) {
			continue
		}
		if err != nil {
			return plan, err
		}
		started := time.Now()
		// So that whatever is left is found by Recovery. Alone it does no harm: Recovery takes it away after the grace period.
		if _, err = v.putDeleteMarker(ctx, keys); err != nil {
			return plan, err
		}
		if plan.etag == "" {
			return plan, nil // gone already
		}
		if time.Since(started) > v.grace {
			err = errSlowDelete
			continue
		}
		err = v.commitDelete(ctx, keys, plan.etag, started)
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

// commitDelete removes the object: the commit point.
func (v *Vault) commitDelete(ctx context.Context, keys keys, etag string, started time.Time) error {
	ctx, cancel := v.within(ctx, started, true, errSlowDelete)
	defer cancel()
	return v.remove(ctx, "remove object", keys, keys.object(), blob.IfMatch(etag))
}

// doomed is a plan that is to be deleted.
type deletionTargets struct {
	// parts are its sub-objects. Where listed is set a listing named them, and else the object, which can't have missed any.
	parts  []blob.Target
	listed bool
	// etag is the object's version; empty where the object is gone already.
	etag string
}

// doomed finds what is to be deleted.
func (v *Vault) deletionTargets(ctx context.Context, keys keys) (d deletionTargets, err error) {
	object, p, err := v.readObject(ctx, keys)
	switch {
	case err == nil:
		for _, o := range workflow.Parts(object) {
			d.parts = append(d.parts, blob.Target{Name: keys.part(o).Name})
		}
		d.etag = p.ETag
		return d, nil
	case errors.Is(err, storage.ErrCorrupt):
		// It can't tell, but a listing can: damage must not keep a plan from being removed.
		p, err = v.client.Head(ctx, keys.object())
		if err != nil {
			return d, blobError("look at object", keys.object(), err)
		}
		d.etag = p.ETag
	case errors.Is(err, storage.ErrNotFound):
		if err := v.confirmDeleted(ctx, keys, err); err != nil {
			return d, err
		}
	default:
		return d, err
	}
	d.listed = true
	items, err := v.listParts(ctx, keys, kinds[:])
	for _, item := range items {
		d.parts = append(d.parts, blob.Target{Name: item.Name})
	}
	if d.etag == "" {
		err = unfinished(err)
	}
	return d, err
}

// deletedBefore says whether an earlier Delete has removed the object, or it was lost: nil, or why not, which is notFound
// where there is no plan at all.
func (v *Vault) confirmDeleted(ctx context.Context, keys keys, notFound error) error {
	if err := v.confirmGone(ctx, keys, keys.object()); err != nil {
		return err
	}
	_, err := v.client.Head(ctx, keys.deleteMarker())
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return v.confirmObjectLost(ctx, keys, notFound)
	}
	return blobError("look for delete marker", keys.deleteMarker(), err)
}

// lostBefore says whether the object was lost from outside: nil, or why not, which is notFound where there is no plan at all.
// The look at the entry comes after that for the delete marker, which a Delete removes last: the entry of a plan that was being
// deleted is gone by now.
func (v *Vault) confirmObjectLost(ctx context.Context, keys keys, notFound error) error {
	p, err := v.client.Head(ctx, keys.entry())
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return notFound // the plan was never there, or nothing is left of it
	}
	if err != nil {
		return blobError("look for entry", keys.entry(), err)
	}
	if s := blobStatusOf(&blob.Item{Properties: p}); s != running && s != final {
		return notFound // it is being created, or that was broken off
	}
	s, err := v.listMarkers(ctx, keys)
	if err != nil {
		return err
	}
	c, err := v.examine(ctx, s, false)
	switch {
	case err != nil:
		return err
	case c.finding == lostObject:
		return nil
	case c.finding == tooRecent:
		return vaultError("look for object", keys.object(), "%w: it is missing, and its entry was written so recently that this can't be judged yet: call again in %v", storage.ErrConflict, max(c.wait(), time.Second))
	}
	return vaultError("look for object", keys.object(), "%w: the plan has changed meanwhile", storage.ErrConflict)
}

// deleteRest removes what is left when the object is gone: sub-objects, entry, markers.
func (v *Vault) deleteRest(ctx context.Context, keys keys, plan deletionTargets) error {
	if err := v.removeParts(ctx, keys, plan.parts); err != nil {
		return err
	}
	if plan.listed {
		if err := v.confirmParts(ctx, keys, func(blob.Item) (bool, error) { return true, nil }); err != nil {
			return err
		}
	}
	if err := v.remove(ctx, "remove entry", keys, keys.entry(), blob.Always); err != nil {
		return err
	}
	err := v.client.DeleteBatch(ctx, keys.container, []blob.Target{{Name: keys.marker().Name}, {Name: keys.deleteMarker().Name}})
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return nil // a final plan has no marker
	}
	return blobError("remove markers", keys.marker(), err)
}
