package azblob

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/copies"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Exists reports whether there is a plan of this ID, with one request. It sends none for an ID that is not a
// UUIDv7, because no plan has such an ID. A plan of another program is [storage.ErrForeign].
func (v *Vault) Exists(ctx context.Context, id uuid.UUID) (found bool, err error) {
	err = v.call(ctx, "Exists", id, func(ctx context.Context) error {
		if driver.CheckID(id) != nil {
			return nil
		}
		ref := v.prefix.plan(id).object() // its presence commits the plan
		p, err := v.client.Head(ctx, ref)
		found = err == nil
		if isForeign(p.Metadata) {
			found = false
			return vaultError("look for object", ref, "%w", storage.ErrForeign)
		}
		if blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return nil
		}
		return blobError("look for object", ref, err)
	})
	return found, err
}

// Read returns the whole plan in its present state. A plan that is NotStarted or final takes two requests,
// both at once. A Running plan takes one more for each sub-object, all at once; if it has many, Read lists
// each kind and reads only the sub-objects that have changed since the plan was created. Each State.ETag is
// the version that was read, for updates.
//
// If other processes update the plan meanwhile, Read returns each blob as it was at some time during the
// call.
//
// Errors: [storage.ErrNotFound]; [storage.ErrSchema] for a plan that was written by newer code or for a plugin that the
// registry lacks; [storage.ErrForeign] for one that another program wrote; [storage.ErrCorrupt], with the blob, if a
// blob is damaged or missing.
func (v *Vault) Read(ctx context.Context, id uuid.UUID) (plan *workflow.Plan, err error) {
	err = v.call(ctx, "Read", id, func(ctx context.Context) (err error) {
		if err := driver.CheckID(id); err != nil {
			return err
		}
		if plan, err = v.plan(v.prefix.plan(id)).read(ctx); err == nil {
			err = driver.Bind(plan, v.reg)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// read reads a plan, and leaves requests and responses raw.
func (s planStore) read(ctx context.Context) (*workflow.Plan, error) {
	entry, object, err := s.readBoth(ctx)
	if err == nil && !(entry.SubmitTime.Equal(object.SubmitTime) && sameChildren(entry, object)) {
		// The plan may have been deleted and created again between the two answers.
		entry, object, err = s.readBoth(ctx)
		if err == nil && !sameChildren(entry, object) {
			err = vaultError("read entry", s.keys.entry(), "%w: its children are not those of the object", storage.ErrCorrupt)
		}
	}
	if err != nil {
		return nil, err
	}
	if object.State.Status.Final() && !entry.State.Status.Final() {
		// The entry is written first. It was read before the plan became final, or it was set back from
		// outside.
		if entry, err = s.readEntry(ctx); err != nil {
			return nil, err
		}
		if !entry.State.Status.Final() {
			return nil, vaultError("read entry", s.keys.entry(), "%w: it says %s, and the object says %s", storage.ErrCorrupt, entry.State.Status, object.State.Status)
		}
	}
	if entry.State.Status == workflow.NotStarted || object.State.Status.Final() {
		join(object, entry) // the sub-objects were validated with the object
		return object, validated(workflow.ValidateOwn(object, driver.HasIDs))
	}
	return s.assemble(ctx, entry, object)
}

// readBoth reads the entry and the object at once.
func (s planStore) readBoth(ctx context.Context) (entry, object *workflow.Plan, err error) {
	err = s.parallel(2, func(i int) (err error) {
		if i == 0 {
			entry, err = s.readEntry(ctx)
		} else {
			object, _, err = s.readObject(ctx)
		}
		return err
	})
	return entry, object, err
}

// assemble returns the present plan from its entry, its sub-objects, and the tree in its object.
func (s planStore) assemble(ctx context.Context, entry, object *workflow.Plan) (*workflow.Plan, error) {
	parts, err := s.staleParts(ctx, workflow.Parts(object))
	if err != nil {
		return nil, err
	}
	err = s.parallel(len(parts), func(i int) error { return s.readPart(ctx, parts[i]) })
	if errors.Is(err, storage.ErrNotFound) {
		return nil, s.partLost(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	join(object, entry)
	return object, validated(workflow.Validate(object, driver.HasIDs))
}

// partLost is the error of a plan that lacks a sub-object. A Delete removes the object first, so a plan that
// still has its object is damaged.
func (s planStore) partLost(ctx context.Context, err error) error {
	if _, headErr := s.client.Head(ctx, s.keys.object()); headErr != nil {
		return blobError("look for object", s.keys.object(), headErr)
	}
	return withCause(err, "%w: it is missing, although the plan exists: a thorough Repair restores it: %w", storage.ErrCorrupt, clientError(err))
}

// join adds the plan's own fields, which the entry has, to an object whose sub-objects are up to date, and
// sets all versions. Before that, each State.ETag is the name of a blob's version that was read, or the version that
// the object has of a sub-object.
func join(object, entry *workflow.Plan) {
	objectETag := object.State.ETag
	planKind.copyOwnFields(object, entry)
	for o, parent := range workflow.Walk(object) {
		state := o.Header().State
		switch etag, _, _ := driver.SplitVersion(state.ETag); {
		case parent == nil:
			entry, copied := copies.Cut(etag)
			whole, both := copies.Cut(objectETag)
			state.ETag = planVersion(entry, whole, copied && both, object)
		case etag != "":
			state.ETag = driver.Version(etag, o)
		}
	}
}

// staleParts returns those sub-objects of an object whose blobs must be read. A listing shows which blobs
// still have the version that the object has. Blobs that it does not show are read, because a listing can
// miss a blob.
func (s planStore) staleParts(ctx context.Context, parts []workflow.Object) ([]workflow.Object, error) {
	kinds, listed, pages := kindsWorthListing(parts)
	if !worthListing(listed, pages) {
		return parts, nil
	}
	items, err := s.listParts(ctx, kinds)
	if err != nil {
		return nil, err
	}
	now := make(map[string]string, len(items))
	for _, item := range items {
		now[item.Name] = item.ETag
	}
	return slices.DeleteFunc(parts, func(o workflow.Object) bool {
		was, _, _ := driver.SplitVersion(o.Header().State.ETag)
		return was != "" && was == now[s.keys.part(o).Name]
	}), nil
}

// readPart reads a sub-object's own fields from its blob, unless the blob still has the version that the object has.
func (s planStore) readPart(ctx context.Context, o workflow.Object) error {
	ref := s.keys.part(o)
	doing := "read " + o.Kind().String()
	was, _, _ := driver.SplitVersion(o.Header().State.ETag)
	body, p, changed, err := s.client.GetChanged(ctx, ref, was)
	if err != nil || !changed {
		return blobError(doing, ref, err)
	}
	kind := kindOf(o)
	now, err := s.format.decodePart(body, kind, s.keys.plan, *o.Header().ID)
	if err != nil {
		return blobError(doing, ref, err)
	}
	now.Header().State.ETag = p.ETag
	kind.copyOwnFields(o, now)
	return nil
}
