package azblob

import (
	"context"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// clear removes the remains of a plan: sub-objects, entry, markers. Each goes only in the version that was seen, so that what
// another process has begun with the same ID meanwhile stays. The sub-objects are listed again before anything that leads to
// them goes.
func (v *Vault) removeRemains(ctx context.Context, c diagnosis) error {
	keys := c.keys
	items, err := v.listParts(ctx, keys, kinds[:])
	if err != nil {
		return err
	}
	for _, item := range items {
		if _, err := c.unchanged(item); err != nil {
			return err
		}
	}
	if err := v.removeParts(ctx, keys, targetsOf(items)); err != nil {
		return err
	}
	if err := v.confirmParts(ctx, keys, c.unchanged); err != nil {
		return err
	}
	if c.entry != nil {
		if err := v.remove(ctx, "remove entry", keys, keys.entry(), blob.IfMatch(c.entry.ETag)); err != nil {
			return err
		}
	}
	// A marker that has changed is that of a Create which has begun since: all that was seen is gone.
	if err := v.removeMarker(ctx, keys, keys.marker(), c.marker); err != nil && !overtaken(err) {
		return err
	}
	if err := v.removeMarker(ctx, keys, keys.deleteMarker(), c.deleteMarker); err != nil && !overtaken(err) {
		return err
	}
	return nil
}

// targetsOf names blobs for removal, each in the version that was listed.
func targetsOf(items []blob.Item) []blob.Target {
	targets := make([]blob.Target, len(items))
	for i, item := range items {
		targets[i] = blob.Target{Name: item.Name, ETag: item.ETag}
	}
	return targets
}

// old says that a sub-object was there when the plan was found. One that was written since is the work of another Create of the
// ID, or of a late request: what was read is no longer so, and the rest must go on leading to it.
func (c diagnosis) unchanged(item blob.Item) (bool, error) {
	if item.LastModified.Before(c.seen) {
		return true, nil
	}
	return false, vaultError("remove sub-objects", c.keys.at(item.Name), "%w: it is new", storage.ErrConflict)
}

// removeMarker removes a marker in the version that was listed; nil stands for none. The error is ErrNotFound where somebody
// else has removed it.
func (v *Vault) removeMarker(ctx context.Context, keys keys, ref blob.Ref, listed *blob.Item) error {
	if listed == nil {
		return nil
	}
	err := v.client.Delete(ctx, ref, blob.IfMatch(listed.ETag))
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		if err := v.confirmGone(ctx, keys, ref); err != nil {
			return err
		}
		return vaultError("remove marker", ref, "%w: somebody else removed it", storage.ErrNotFound)
	}
	return blobError("remove marker", ref, err)
}
