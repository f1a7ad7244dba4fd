package azblob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Undelete restores a plan that was deleted, if the account keeps deleted blobs (soft delete) and still has all of the
// plan's. The plan is then as it was when it was deleted. It is shown again when it is whole, and not before. An engine
// runs a plan that comes back open.
//
// Undelete is a Delete backwards: delete marker, entry, sub-objects, and the object, which is the commit point. What a
// crash leaves is what an interrupted Delete leaves. The same call goes on from there, or Recovery removes it, and the
// account keeps it anew. What soft delete also restores, the versions that were overwritten, is removed again. It takes
// 20 requests or more, and two for each sub-object.
//
// Undelete must not run beside a Delete of the same plan, which it sees only if that begins first.
//
// Errors: [storage.ErrExists] if the plan is there; [storage.ErrNotFound] if the account does not keep it, and why;
// [storage.ErrCorrupt] if it does not keep all of it, or a Create or Restore has
// written over it, which Recovery removes; [storage.ErrConflict] if a Delete may be
// under way, or the day is being dropped; [storage.ErrUnavailable] if it was too slow; [storage.ErrUnknown] if the
// outcome is unknown: call again after each of the last three.
func (v *Vault) Undelete(ctx context.Context, id uuid.UUID) error {
	return v.call(ctx, "Undelete", id, func(ctx context.Context) error {
		if err := driver.CheckID(id); err != nil {
			return err
		}
		return undeletion{v.plan(v.prefix.plan(id))}.run(ctx)
	})
}

// undeletion is an Undelete that is running.
type undeletion struct{ planStore }

// errSlowUndelete means that an Undelete took so long that Recovery may have begun to remove what it restored.
var errSlowUndelete = errors.New("the undelete took longer than the grace period")

// run is the order of writes of an Undelete. Until the object is there, Recovery takes the rest for what a Delete left.
func (u undeletion) run(caller context.Context) error {
	k, err := u.listKept(caller)
	if err != nil {
		return err
	}
	if err := u.restorable(caller, k); err != nil {
		if errors.Is(err, storage.ErrExists) { // an earlier call may have been interrupted after its commit
			err = errors.Join(err, u.removeSnapshots(caller, k))
		}
		return err
	}
	started := time.Now()
	ctx, cancel := u.within(caller, started, false, errSlowUndelete)
	defer cancel()
	commit, cancelCommit := u.within(caller, started, true, errSlowUndelete)
	defer cancelCommit()

	// From here on, the delete marker leads Recovery to whatever a failure leaves.
	marker, seen, err := u.mark(ctx)
	if err != nil {
		return lateUndelete(err)
	}
	if err := u.prepareDay(ctx, seen, func() error { return u.lookForExpiry(ctx, u.keys.container) }); err != nil {
		return lateUndelete(err)
	}
	err = u.restoreRest(ctx, k)
	if err == nil {
		err = u.unchanged(ctx, marker)
	}
	if err != nil {
		_, _, _ = u.mark(caller) // a Delete may have removed it
		return lateUndelete(err)
	}
	if err := u.undelete(commit, u.keys.object()); err != nil {
		return err
	}
	// The plan is there, unless a Delete has begun to remove the rest. If the process crashes here, Recovery removes the
	// delete marker.
	if err := u.unchanged(caller, marker); err != nil {
		return u.takeBack(caller, err)
	}
	return u.finish(caller, marker)
}

// mark writes the delete marker. Its metadata says that no Delete is under way.
func (u undeletion) mark(ctx context.Context) (etag string, seen time.Time, err error) {
	ref := u.keys.deleteMarker()
	metadata := markerMetadata(uuid.NewString(), u.grace)
	metadata[metaUndelete] = "1"
	etag, seen, err = u.client.PutDated(ctx, ref, nil, metadata, blob.Always)
	return etag, seen, blobError("write delete marker", ref, forgetUnknown(err))
}

// takeBack removes the object again if a Delete has begun before it was there, and returns why.
func (u undeletion) takeBack(ctx context.Context, cause error) error {
	if !errors.Is(cause, storage.ErrConflict) {
		return fmt.Errorf("%w: %w", storage.ErrUnknown, cause)
	}
	_, _, err := u.mark(ctx)
	k, listErr := u.listKept(ctx)
	if err = errors.Join(err, listErr); err == nil {
		err = u.removeSnapshots(ctx, k)
	}
	if object, live := k.live[u.keys.object().Name]; live && err == nil {
		err = u.remove(ctx, "remove object", u.keys.object(), blob.IfMatch(object.ETag))
	}
	return errors.Join(cause, err)
}

func lateUndelete(err error) error {
	if errors.Is(err, errSlowUndelete) && !errors.Is(err, storage.ErrUnknown) {
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	return err
}

// restorable returns an error unless the plan was deleted, and no Delete of it may be under way.
func (u undeletion) restorable(ctx context.Context, k kept) error {
	const doing = "look for the deleted plan"
	entry, object, marker := u.keys.entry(), u.keys.object(), u.keys.deleteMarker()
	_, entryLive := k.live[entry.Name]
	_, objectLive := k.live[object.Name]
	_, entryKept := k.deleted[entry.Name]
	_, objectKept := k.deleted[object.Name]
	left, marked := k.live[marker.Name]
	switch {
	case entryLive && objectLive:
		return vaultError(doing, object, "%w", storage.ErrExists)
	case objectLive:
		return vaultError(doing, entry, "%w: the object is there, and the entry was lost: a thorough Recovery restores it", storage.ErrConflict)
	case !objectKept:
		return vaultError(doing, object, "%w: %s", storage.ErrNotFound, u.whyNotKept(ctx))
	case !entryLive && !entryKept:
		return vaultError(doing, entry, "%w: the account keeps the object, and not the entry", storage.ErrNotFound)
	}
	if marked && left.Metadata[metaUndelete] == "" {
		grace, err := u.graceOf(&left)
		if err != nil {
			return blobError("look at delete marker", marker, err)
		}
		if recent(&left, k.seen, grace) {
			return vaultError("look at delete marker", marker, "%w: a Delete of the plan is under way, or did not finish: call again in %v",
				storage.ErrConflict, left.LastModified.Add(grace+margin(grace)).Sub(k.seen).Round(time.Second)+time.Second)
		}
	}
	return nil
}

// whyNotKept says why the account may not keep a plan.
func (u undeletion) whyNotKept(ctx context.Context) string {
	days, told, err := u.client.SoftDelete(ctx)
	switch {
	case err != nil || !told:
		return "the account does not keep the plan: there was none, it was deleted too long ago, or soft delete of blobs is off"
	case days == 0:
		return "the account keeps no deleted blobs: soft delete of blobs is off (az storage account blob-service-properties update --enable-delete-retention true --delete-retention-days 14)"
	}
	return fmt.Sprintf("the account keeps deleted blobs for %d days, and has none of the plan: there was none, it was deleted earlier, or the account has versioning", days)
}

// restoreRest restores everything but the object, and makes sure that it is a whole plan.
func (u undeletion) restoreRest(ctx context.Context, k kept) error {
	var refs []blob.Ref
	for name := range k.deleted {
		if p, ok := parseName(name); ok && (p.role == roleEntry || p.role == rolePart) {
			refs = append(refs, u.keys.at(name))
		}
	}
	if err := u.parallel(len(refs), func(i int) error { return u.undelete(ctx, refs[i]) }); err != nil {
		return err
	}
	body, err := u.readRestored(ctx, u.keys.entry(), k)
	if err != nil {
		return err
	}
	entry, err := u.format.decodeEntry(body, u.keys.plan)
	if err != nil {
		return blobError("read what was restored", u.keys.entry(), err)
	}
	if s, err := parseState(k.deleted[u.keys.object().Name].Metadata); err != nil || s.Status.Final() && !entry.State.Status.Final() {
		return errors.Join(err, u.writtenOver(u.keys.entry()))
	}
	if err := u.readTree(ctx, entry, k); err != nil {
		return err
	}
	if entry.State.Status.Final() {
		return nil
	}
	ref := u.keys.marker()
	// A Create or Restore of the ID, which may have written one, must not remove it as its own.
	_, _, err = u.client.PutDated(ctx, ref, nil, markerMetadata(uuid.NewString(), u.grace), blob.Always)
	return blobError("write marker", ref, forgetUnknown(err))
}

// readTree reads everything below the entry, level by level. Each document names its children.
func (u undeletion) readTree(ctx context.Context, entry *workflow.Plan, k kept) error {
	for level := slices.Collect(workflow.Children(entry)); len(level) > 0; {
		below := make([][]workflow.Object, len(level))
		err := u.parallel(len(level), func(i int) error {
			ref, id := u.keys.part(level[i]), *level[i].Header().ID
			body, err := u.readRestored(ctx, ref, k)
			if err != nil {
				return err
			}
			o, err := u.format.decodePart(body, kindOf(level[i]), nil, u.keys.plan, id)
			if err != nil {
				return blobError("read what was restored", ref, err)
			}
			below[i] = slices.Collect(workflow.Children(o))
			return nil
		})
		if err != nil {
			return err
		}
		level = level[:0]
		for _, objects := range below {
			level = append(level, objects...)
		}
	}
	return nil
}

// readRestored reads a blob that was restored. One that was written after the plan was deleted is not the plan's: a Create
// or Restore of its ID did not finish, and its blobs were deleted last.
func (u undeletion) readRestored(ctx context.Context, ref blob.Ref, k kept) ([]byte, error) {
	body, p, err := u.client.Get(ctx, ref)
	switch {
	case blob.Is(err, blob.Absent):
		return nil, vaultError("read what was restored", ref, "%w: the account does not keep this part of the plan, so the plan can't be restored", storage.ErrCorrupt)
	case err != nil:
		return nil, blobError("read what was restored", ref, err)
	case p.LastModified.After(k.gone):
		return nil, u.writtenOver(ref)
	}
	return body, nil
}

func (u undeletion) writtenOver(ref blob.Ref) error {
	return vaultError("read what was restored", ref, "%w: it was written after the plan was deleted, by a Create or Restore of its ID, so the plan can't be restored", storage.ErrCorrupt)
}

// unchanged returns ErrConflict unless the delete marker has this version: a Delete or Recovery has come in between.
func (u undeletion) unchanged(ctx context.Context, marker string) error {
	ref := u.keys.deleteMarker()
	p, err := u.client.Head(ctx, ref)
	if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blobError("look at delete marker", ref, err)
	}
	if err != nil || p.ETag != marker {
		return vaultError("look at delete marker", ref, "%w: a Delete or a Recovery of the plan has begun meanwhile: call again", storage.ErrConflict)
	}
	return nil
}

func (u undeletion) undelete(ctx context.Context, ref blob.Ref) error {
	return blobError("undelete", ref, u.client.Undelete(ctx, ref))
}

// finish removes the snapshots that came back with the blobs, and then the delete marker.
func (u undeletion) finish(ctx context.Context, marker string) error {
	k, err := u.listKept(ctx)
	if err == nil {
		err = u.removeSnapshots(ctx, k)
	}
	if err == nil {
		err = u.deleteMarker(ctx, u.keys.deleteMarker(), marker)
	}
	if err != nil {
		return fmt.Errorf("%w: the plan is restored, and the same call again does the rest: %w", storage.ErrUnknown, err)
	}
	return nil
}

// Deleted returns the plans of a day (UTC) that were deleted and whose objects the account keeps, newest first, as they
// were listed. Undelete finds out whether all of a plan is kept. It takes a request for each 5,000 blobs of the day.
//
// Errors: [storage.ErrNotFound] if the day is not there: it may have been dropped as a whole (see [Vault.UndeleteDay]).
func (v *Vault) Deleted(ctx context.Context, day time.Time) (found []storage.ListResult, err error) {
	err = v.call(ctx, "Deleted", uuid.Nil, func(ctx context.Context) error {
		ref := blob.Ref{Container: v.prefix.day(day), Name: plansDir}
		kept := map[uuid.UUID]storage.ListResult{}
		for page, err := range v.client.ListKept(ctx, ref) {
			if err != nil {
				return blobError("list deleted plans", ref, err)
			}
			for _, item := range page {
				name, ok := parseName(item.Name)
				if !ok || name.role != roleObject || !item.Deleted || item.Snapshot {
					continue
				}
				r, _, err := v.format.parseMetadata(item.Metadata, name.plan, typeObject)
				if err != nil {
					r = storage.ListResult{ID: name.plan} // Undelete says what is wrong
				}
				kept[name.plan] = r
			}
		}
		for _, r := range kept {
			found = append(found, r)
		}
		slices.SortFunc(found, func(a, b storage.ListResult) int { return driver.NewestFirst(a.ID, b.ID) })
		return nil
	})
	return found, err
}

// UndeleteDay restores a day (UTC) that was dropped, if the account keeps deleted containers. Its plans are shown again at
// once, and are as they were. It takes five requests.
//
// Errors: [storage.ErrExists] if the day is there; [storage.ErrNotFound] if the account does not keep it;
// [storage.ErrConflict] if it is being dropped; [storage.ErrUnknown] if the outcome is unknown: call again.
func (v *Vault) UndeleteDay(ctx context.Context, day time.Time) error {
	return v.call(ctx, "UndeleteDay", uuid.Nil, func(ctx context.Context) error {
		name := v.prefix.day(day)
		ref := blob.Ref{Container: name}
		_, err := v.client.HeadContainer(ctx, name)
		switch {
		case err == nil: // an earlier call may have been interrupted after the restoration
			return errors.Join(vaultError("look for the day", ref, "%w", storage.ErrExists), v.lookForExpiry(ctx, name))
		case !blob.Is(err, blob.Absent, blob.AbsentContainer):
			return blobError("look for the day", ref, err)
		}
		version, err := v.deletedVersion(ctx, name)
		if err != nil {
			return err
		}
		if err := v.client.RestoreContainer(ctx, name, version); err != nil {
			if _, headErr := v.client.HeadContainer(ctx, name); headErr != nil {
				return blobError("restore the day", ref, err)
			}
		}
		return v.lookForExpiry(ctx, name) // whoever dropped the day has left its mark in it
	})
}

// deletedVersion returns the version of a container that was deleted last.
func (s *store) deletedVersion(ctx context.Context, name string) (version string, err error) {
	ref := blob.Ref{Container: name}
	var last time.Time
	for page, err := range s.client.ListDeletedContainers(ctx, name) {
		if err != nil {
			return "", blobError("list deleted containers", ref, err)
		}
		for _, c := range page {
			if c.Name == name && !c.At.Before(last) {
				version, last = c.Version, c.At
			}
		}
	}
	if version == "" {
		return "", vaultError("list deleted containers", ref, "%w: the account does not keep the day: there was none, it was dropped too long ago, or soft delete of containers is off "+
			"(az storage account blob-service-properties update --enable-container-delete-retention true --container-delete-retention-days 14)", storage.ErrNotFound)
	}
	return version, nil
}
