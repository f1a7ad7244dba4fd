package azblob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/copies"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// The repairs of one plan. recovery.go decides which of them a plan needs, and reports them.

// dismissDelete makes the old delete marker of a whole plan harmless, and removes it. Its Delete may have
// been held up before its commit for any time, on a machine that slept, for example. A Delete demands the
// object's version, so the object is rewritten before the marker goes.
func (s planStore) dismissDelete(ctx context.Context, marker string) error {
	if _, _, err := s.rewriteObject(ctx); err != nil {
		return err
	}
	return s.removeMarker(ctx, s.keys.deleteMarker(), &blob.Item{Properties: blob.Properties{ETag: marker}})
}

// completeObject finishes the last update of a plan: it writes the object from the entry and the sub-objects,
// and removes the marker.
func (s planStore) completeObject(ctx context.Context, d diagnosis) error {
	entry, err := s.readEntry(ctx)
	if err != nil {
		return err
	}
	if !entry.State.Status.Final() {
		return vaultError("read entry", d.keys.entry(), "%w: its metadata says that the plan is final, and its content says %s: restore the blob from a backup", storage.ErrCorrupt, entry.State.Status)
	}
	if err := s.rebuildObject(ctx, entry, d); err != nil {
		return err
	}
	// The plan is complete even if the marker has changed, or is gone.
	if err := s.removeMarker(ctx, d.keys.marker(), d.marker); !overtaken(err) {
		return err
	}
	return nil
}

// rebuildObject writes the object from the entry and the sub-objects, over the version that was looked at.
func (s planStore) rebuildObject(ctx context.Context, entry *workflow.Plan, d diagnosis) error {
	object, _, err := s.readObject(ctx)
	if err != nil {
		return err
	}
	plan, err := s.assemble(ctx, entry, object)
	if err != nil {
		return err
	}
	body, err := s.format.encodeObject(plan)
	if err != nil {
		return err
	}
	_, err = s.putObject(ctx, plan, body, blob.IfMatch(d.object.ETag), planMarks{copied: copies.Marked(plan.State.ETag)})
	return blobError("finalize object", d.keys.object(), err)
}

// renewObject gives the object of a plan that is NotStarted the versions of sub-objects that were rewritten,
// because readers take them from the object. Once the plan is Running they read the sub-objects.
func (s planStore) renewObject(ctx context.Context, d diagnosis) error {
	entry, err := s.readEntry(ctx)
	if err != nil || entry.State.Status != workflow.NotStarted {
		return err
	}
	return s.rebuildObject(ctx, entry, d)
}

// restoreMarker writes the lost marker of an open plan. If the plan is completed or deleted meanwhile, a
// later Recovery removes the marker.
func (s planStore) restoreMarker(ctx context.Context) (etag string, err error) {
	ref := s.keys.marker()
	w, err := s.put(ctx, ref, nil, blob.IfNew, func(writeID string) (map[string]string, error) {
		return markerMetadata(writeID, s.grace), nil
	})
	return w.etag, blobError("write marker", ref, err)
}

// restoreEntry writes the entry of a plan that was lost or set back. It makes the plan visible, so it is a change of
// the plan's day.
func (s planStore) restoreEntry(ctx context.Context, d diagnosis) (did string, err error) {
	restore := s.restoreLost
	if d.finding == setBack {
		restore = s.restoreFinal
	}
	if !isOld(d.keys.date(), d.object.Seen) {
		ctx, cancel := s.within(ctx, time.Now(), true, errSlowChange)
		defer cancel()
		did, err := restore(ctx, d)
		return did, lateChange(err)
	}
	c, err := s.beginChange(ctx)
	if err != nil {
		return "", err
	}
	commit, cancel := c.deadline(ctx)
	defer cancel()
	did, err = restore(commit, d)
	if errors.Is(err, storage.ErrUnknown) {
		return did, err // the entry may still arrive, so the marker stays
	}
	if endErr := c.end(ctx); err == nil {
		err = endErr
	}
	return did, lateChange(err)
}

// restoreFinal writes the entry of a plan that was set back as the final object has it. A completion writes the object
// after the entry, so the plan was final. If the entry has changed since it was seen, somebody else is at work.
func (s planStore) restoreFinal(ctx context.Context, d diagnosis) (did string, err error) {
	object, _, err := s.readObject(ctx)
	if err != nil {
		return "", err
	}
	if !object.State.Status.Final() {
		return "", vaultError("read object", d.keys.object(), "%w: its metadata says that the plan is final, and its content says %s: restore the blob from a backup", storage.ErrCorrupt, object.State.Status)
	}
	body, err := s.format.encodeEntry(object)
	if err != nil {
		return "", err
	}
	_, err = s.putOwn(ctx, object, body, blob.IfMatch(d.entry.ETag), planMarks{})
	return fmt.Sprintf("restored the entry from the object, as %s", object.State.Status), err
}

// restoreLost writes the lost entry of a plan from its object. It rewrites the object first and looks at it
// afterwards: a Delete or a completion that is under way is then refused, or shows.
//
// An open plan becomes Running, whether it had started or not. If it became NotStarted, readers would take
// the sub-objects from the object and never see an update that is under way.
func (s planStore) restoreLost(ctx context.Context, d diagnosis) (did string, err error) {
	keys := d.keys
	plan, objectETag, err := s.rewriteObject(ctx)
	if err != nil {
		return "", err
	}
	if !plan.State.Status.Final() {
		plan.State.Status = workflow.Running
	}
	body, err := s.format.encodeEntry(plan)
	if err != nil {
		return "", err
	}
	ref := keys.entry()
	entry, err := s.put(ctx, ref, body, blob.IfNew, func(writeID string) (map[string]string, error) {
		return s.format.planMetadata(plan, typeEntry, writeID, planMarks{})
	})
	if err != nil {
		return "", blobError("rewrite entry", ref, err)
	}
	now, err := s.client.Head(ctx, keys.object())
	switch {
	case err == nil && now.ETag == objectETag:
		return fmt.Sprintf("restored the entry from the object, as %s", plan.State.Status), nil
	case err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer):
		return "", blobError("look at object", keys.object(), err)
	}
	if err := s.remove(ctx, "remove entry", ref, blob.IfMatch(entry.etag)); err != nil {
		return "", err
	}
	return "", vaultError("look at object", keys.object(), "%w: it has changed", storage.ErrConflict)
}

// partsFinding is what is wrong with the sub-objects of a plan.
type partsFinding struct {
	// lost are the sub-objects that the object names and the listing does not.
	lost []workflow.Object
	// extra are the sub-objects that the object does not name.
	extra []blob.Item
	// stale says that the object of a plan that is NotStarted has other versions than the sub-objects. An
	// earlier Recovery may have died between a sub-object and the object, or met another Recovery.
	stale bool
}

// none reports whether nothing is wrong.
func (f partsFinding) none() bool { return len(f.lost)+len(f.extra) == 0 && !f.stale }

// findParts compares the sub-objects that a plan's object names with those that were listed. It leaves recent blobs
// alone.
func findParts(d diagnosis, object *workflow.Plan) (f partsFinding) {
	etags := make(map[string]string, len(d.parts))
	for _, item := range d.parts {
		etags[item.Name] = item.ETag
	}
	named := map[string]bool{}
	for _, o := range workflow.Parts(object) {
		name := d.keys.part(o).Name
		named[name] = true
		version, _, _ := driver.SplitVersion(o.Header().State.ETag)
		if etag, ok := etags[name]; !ok {
			f.lost = append(f.lost, o)
		} else if etag != version {
			f.stale = true
		}
	}
	f.stale = f.stale && blobStatusOf(d.entry) == notStarted && !recent(d.object, d.seen, d.grace)
	f.extra = slices.DeleteFunc(slices.Clone(d.parts), func(item blob.Item) bool {
		return named[item.Name] || recent(&item, d.seen, d.grace) || !hasMarks(item.Metadata)
	})
	return f
}

// confirmLost returns those of a plan's sub-objects that are absent, both by name and by a listing. A listing
// alone can miss a blob.
func (s planStore) confirmLost(ctx context.Context, parts []workflow.Object) (lost []workflow.Object, err error) {
	absent := make([]bool, len(parts))
	err = s.parallel(len(parts), func(i int) error {
		ref := s.keys.part(parts[i])
		_, err := s.client.Head(ctx, ref)
		if absent[i] = blob.Is(err, blob.Absent); absent[i] {
			return nil
		}
		return blobError("look for "+parts[i].Kind().String(), ref, err)
	})
	if err != nil {
		return nil, err
	}
	var refs []blob.Ref
	for i, o := range parts {
		if absent[i] {
			lost, refs = append(lost, o), append(refs, s.keys.part(o))
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	return lost, s.confirmGone(ctx, refs...)
}

// restoreParts writes lost sub-objects again, as the object has them.
func (s planStore) restoreParts(ctx context.Context, d diagnosis, lost []workflow.Object) error {
	err := s.parallel(len(lost), func(i int) error {
		o := lost[i]
		ref := d.keys.part(o)
		body, err := s.format.encodePart(o)
		if err != nil {
			return err
		}
		_, err = s.put(ctx, ref, body, blob.IfNew, func(writeID string) (map[string]string, error) { return s.format.partMetadata(o, writeID) })
		return blobError("rewrite "+o.Kind().String(), ref, err)
	})
	if err == nil && blobStatusOf(d.entry) == notStarted {
		err = s.renewObject(ctx, d)
	}
	return err
}

// removeRemains removes sub-objects, entry and markers of a plan, each only in the version that was seen, so
// that it leaves alone what another process has begun with the same ID. It lists the sub-objects again before
// it removes the entry and the markers that lead to them.
func (s planStore) removeRemains(ctx context.Context, d diagnosis) error {
	items, err := s.listMarked(ctx)
	if err != nil {
		return err
	}
	for _, item := range items {
		if _, err := d.older(item); err != nil {
			return err
		}
	}
	if err := s.removeParts(ctx, targetsOf(items)); err != nil {
		return err
	}
	if err := s.confirmParts(ctx, d.older); err != nil {
		return err
	}
	if d.entry != nil {
		if err := s.remove(ctx, "remove entry", d.keys.entry(), blob.IfMatch(d.entry.ETag)); err != nil {
			return err
		}
	}
	// A marker that has changed belongs to a new Create. All remains that were seen are gone.
	if err := s.removeMarker(ctx, d.keys.marker(), d.marker); err != nil && !overtaken(err) {
		return err
	}
	if err := s.removeMarker(ctx, d.keys.deleteMarker(), d.deleteMarker); err != nil && !overtaken(err) {
		return err
	}
	return nil
}

// listMarked lists the sub-objects of a plan that are to be removed. The error is ErrForeign if no vault may have written
// one of them.
func (s planStore) listMarked(ctx context.Context) ([]blob.Item, error) {
	items, err := s.listPartsBy(ctx, kinds[:], blob.ListOptions{MaxResults: pageSizes()[0], Metadata: true})
	for _, item := range items {
		if !hasMarks(item.Metadata) {
			return nil, vaultError("remove sub-objects", s.keys.at(item.Name), "%w, or its metadata was lost", storage.ErrForeign)
		}
	}
	return items, err
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
func (s planStore) removeMarker(ctx context.Context, ref blob.Ref, listed *blob.Item) error {
	if listed == nil {
		return nil
	}
	err := s.client.Delete(ctx, ref, blob.IfMatch(listed.ETag))
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		if err := s.confirmGone(ctx, ref); err != nil {
			return err
		}
		return vaultError("remove marker", ref, "%w: another process removed it", storage.ErrNotFound)
	}
	return blobError("remove marker", ref, err)
}
