package azblob

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// Delete removes a plan with all its parts: 5 requests and one more for each 256 sub-objects. The plan is gone for every
// reader with the third; what is broken off later is finished by the same call again, or by Recovery.
//
// Errors: ErrNotFound; ErrSchema for a plan that newer code wrote, which is left untouched; ErrUnknown when the outcome
// can't be known.
func (v *Vault) Delete(ctx context.Context, id uuid.UUID) error {
	return v.change("Delete", &id, func() error {
		if err := storage.CheckID(id); err != nil {
			return err
		}
		return v.delete(ctx, v.prefix.plan(id))
	})
}

// delete is the order of writes of a Delete, which is Create run backwards: delete marker, object, sub-objects, entry,
// markers. The object is read first, because it names the sub-objects.
func (v *Vault) delete(ctx context.Context, keys keys) error {
	parts, etag, err := v.doomed(ctx, keys)
	if err != nil {
		return err
	}
	// So that whatever is left is found by Recovery. Alone it does no harm: Recovery takes it away after the grace period.
	ref := keys.deleteMarker()
	if _, err := v.client.Put(ctx, ref, nil, map[string]string{blob.WriteID: uuid.NewString()}, blob.Always); err != nil {
		return at("write delete marker", ref, err)
	}
	// The commit point. An object that was rewritten since it was read is read again.
	for etag != "" {
		err := v.client.Delete(ctx, keys.object(), blob.IfMatch(etag))
		if err == nil {
			break
		}
		if !blob.Is(err, blob.Mismatch) {
			return at("remove object", keys.object(), err)
		}
		p, err := v.client.Head(ctx, keys.object())
		if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return at("look at object", keys.object(), err)
		}
		etag = p.ETag // the sub-objects of a plan never change, only what is in them
	}
	// The plan is gone. What follows leaves no trace of it, and is what Recovery does with one that was broken off here.
	err = v.clear(ctx, keys, parts, "")
	if err == nil {
		err = at("remove markers", keys.marker(), v.client.DeleteBatch(ctx, keys.container, []blob.Target{
			{Name: keys.marker().Name}, {Name: keys.deleteMarker().Name},
		}))
	}
	if err != nil {
		return fmt.Errorf("%w: the plan is deleted, and Recovery or the same call again removes what is left of it: %w", storage.ErrUnknown, err)
	}
	return nil
}

// doomed finds the sub-objects to remove and the object's version; an empty one where an earlier delete removed the object.
func (v *Vault) doomed(ctx context.Context, keys keys) (parts []blob.Target, etag string, err error) {
	object, p, err := v.readObject(ctx, keys)
	switch {
	case err == nil:
		for _, o := range partsOf(object) {
			parts = append(parts, blob.Target{Name: keys.part(o).Name})
		}
		return parts, p.ETag, nil
	case errors.Is(err, storage.ErrCorrupt):
		// It can't tell, but a listing can: damage must not keep a plan from being removed.
		p, err = v.client.Head(ctx, keys.object())
		if err != nil {
			return nil, "", at("look at object", keys.object(), err)
		}
	case errors.Is(err, storage.ErrNotFound):
		if _, headErr := v.client.Head(ctx, keys.deleteMarker()); headErr != nil {
			if blob.Is(headErr, blob.Absent, blob.AbsentContainer) {
				return nil, "", err // the plan was never there, or nothing is left of it
			}
			return nil, "", at("look for delete marker", keys.deleteMarker(), headErr)
		}
	default:
		return nil, "", err
	}
	items, err := v.listParts(ctx, keys, kinds[:])
	for _, item := range items {
		parts = append(parts, blob.Target{Name: item.Name})
	}
	return parts, p.ETag, err
}

// clear removes sub-objects, then the entry: with an ETag, only that version of it.
func (v *Vault) clear(ctx context.Context, keys keys, parts []blob.Target, entryETag string) error {
	if err := v.deleteParts(ctx, keys.container, parts); err != nil {
		return err
	}
	cond := blob.Always
	if entryETag != "" {
		cond = blob.IfMatch(entryETag)
	}
	return at("remove entry", keys.entry(), v.client.Delete(ctx, keys.entry(), cond))
}

// deleteParts removes sub-objects in batches, all at once.
func (v *Vault) deleteParts(ctx context.Context, container string, parts []blob.Target) error {
	batches := slices.Collect(slices.Chunk(parts, blob.MaxBatch))
	return v.parallel(len(batches), func(i int) error {
		return at("remove sub-objects", blob.Ref{Container: container, Name: batches[i][0].Name}, v.client.DeleteBatch(ctx, container, batches[i]))
	})
}

// listParts lists what is stored of a plan's sub-objects of some kinds, all at once.
func (v *Vault) listParts(ctx context.Context, keys keys, kinds []kind) ([]blob.Item, error) {
	found := make([][]blob.Item, len(kinds))
	err := v.parallel(len(kinds), func(i int) error {
		dir := keys.parts(kinds[i])
		for page, err := range v.client.List(ctx, keys.container, blob.ListOptions{Prefix: dir}) {
			if blob.Is(err, blob.AbsentContainer) {
				return nil
			}
			if err != nil {
				return at("list sub-objects", keys.at(dir), err)
			}
			found[i] = append(found[i], page.Items...)
		}
		return nil
	})
	return slices.Concat(found...), err
}
