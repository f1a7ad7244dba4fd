package azblob

import (
	"context"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// How Recovery and Create remove the remains of a plan.

// removeRemains removes sub-objects, entry and markers of a plan, each only in the version that was seen, so
// that it leaves alone what another process has begun with the same ID. It lists the sub-objects again before
// it removes the entry and the markers that lead to them.
func (v *Vault) removeRemains(ctx context.Context, d diagnosis) error {
	items, err := v.listParts(ctx, d.keys, kinds[:])
	if err != nil {
		return err
	}
	for _, item := range items {
		if _, err := d.older(item); err != nil {
			return err
		}
	}
	if err := v.removeParts(ctx, d.keys, targetsOf(items)); err != nil {
		return err
	}
	if err := v.confirmParts(ctx, d.keys, d.older); err != nil {
		return err
	}
	if d.entry != nil {
		if err := v.remove(ctx, "remove entry", d.keys, d.keys.entry(), blob.IfMatch(d.entry.ETag)); err != nil {
			return err
		}
	}
	// A marker that has changed belongs to a new Create. All remains that were seen are gone.
	if err := v.removeMarker(ctx, d.keys, d.keys.marker(), d.marker); err != nil && !overtaken(err) {
		return err
	}
	if err := v.removeMarker(ctx, d.keys, d.keys.deleteMarker(), d.deleteMarker); err != nil && !overtaken(err) {
		return err
	}
	return nil
}

// older reports whether a sub-object existed when the plan was found. A newer one is ErrConflict: another
// Create of the ID or a late request has written it, so the diagnosis no longer holds, and the rest of the
// plan must continue to lead to it.
func (d diagnosis) older(item blob.Item) (bool, error) {
	if item.LastModified.Before(d.seen) {
		return true, nil
	}
	return false, vaultError("remove sub-objects", d.keys.at(item.Name), "%w: it is new", storage.ErrConflict)
}

// targetsOf returns blobs as targets of a removal, each in the version that was listed.
func targetsOf(items []blob.Item) []blob.Target {
	targets := make([]blob.Target, len(items))
	for i, item := range items {
		targets[i] = blob.Target{Name: item.Name, ETag: item.ETag}
	}
	return targets
}

// removeMarker removes a marker in the version that was listed, if it was. The error is ErrNotFound if
// another process has removed it.
func (v *Vault) removeMarker(ctx context.Context, keys keys, ref blob.Ref, listed *blob.Item) error {
	if listed == nil {
		return nil
	}
	err := v.client.Delete(ctx, ref, blob.IfMatch(listed.ETag))
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		if err := v.confirmGone(ctx, keys, ref); err != nil {
			return err
		}
		return vaultError("remove marker", ref, "%w: another process removed it", storage.ErrNotFound)
	}
	return blobError("remove marker", ref, err)
}
