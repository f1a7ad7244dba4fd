package azblob

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Exists says whether there is a plan of this ID, with one request. An ID that is not a UUIDv7 is no plan's, and is not asked
// for.
func (v *Vault) Exists(ctx context.Context, id uuid.UUID) (found bool, err error) {
	err = v.call("Exists", id, func() error {
		if driver.CheckID(id) != nil {
			return nil
		}
		ref := v.prefix.plan(id).object() // its presence commits the plan
		_, err := v.client.Head(ctx, ref)
		found = err == nil
		if blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return nil
		}
		return blobError("look for object", ref, err)
	})
	return found, err
}

// Read returns the whole plan with its present states: two requests at once for a plan that is NotStarted or final. While it
// is Running there is one more for each sub-object, all at once, or where there are many, one listing for each kind and one
// request for each sub-object that changed since the plan was created. Each State.ETag is the version that was read, for
// updates.
//
// A plan that other processes work on is read as each of its blobs stood at some time during the call.
//
// Errors: ErrNotFound; ErrSchema for what was written by newer code or for a plugin that the registry lacks; ErrCorrupt, with
// the blob, for what is damaged or missing.
func (v *Vault) Read(ctx context.Context, id uuid.UUID) (plan *workflow.Plan, err error) {
	err = v.call("Read", id, func() error {
		if err := driver.CheckID(id); err != nil {
			return err
		}
		var err error
		if plan, err = v.read(ctx, id); err == nil {
			err = driver.Bind(plan, v.reg)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// read reads a plan with raw requests and responses.
func (v *Vault) read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	keys := v.prefix.plan(id)
	entry, object, err := v.readBoth(ctx, keys)
	if err == nil && !(entry.SubmitTime.Equal(object.SubmitTime) && sameChildren(entry, object)) {
		// The plan may have been deleted, and another one of its ID created, between the two answers.
		entry, object, err = v.readBoth(ctx, keys)
		if err == nil && !sameChildren(entry, object) {
			err = vaultError("read entry", keys.entry(), "%w: its children are not those of the object", storage.ErrCorrupt)
		}
	}
	if err != nil {
		return nil, err
	}
	if object.State.Status.Final() && !entry.State.Status.Final() {
		// The entry is written first, so it was read before the plan was completed, or it was set back from outside.
		if entry, err = v.readEntry(ctx, keys); err != nil {
			return nil, err
		}
		if !entry.State.Status.Final() {
			return nil, vaultError("read entry", keys.entry(), "%w: it says %s, and the object says %s", storage.ErrCorrupt, entry.State.Status, object.State.Status)
		}
	}
	if entry.State.Status == workflow.NotStarted || object.State.Status.Final() {
		return object, join(object, entry)
	}
	return v.assemble(ctx, entry, object)
}

// readBoth reads entry and object at once.
func (v *Vault) readBoth(ctx context.Context, keys keys) (entry, object *workflow.Plan, err error) {
	err = v.parallel(2, func(i int) (err error) {
		if i == 0 {
			entry, err = v.readEntry(ctx, keys)
		} else {
			object, _, err = v.readObject(ctx, keys)
		}
		return err
	})
	return entry, object, err
}

// assemble makes the present plan of its entry, its sub-objects, and the hierarchy in its object.
func (v *Vault) assemble(ctx context.Context, entry, object *workflow.Plan) (*workflow.Plan, error) {
	keys := v.prefix.plan(object.ID)
	parts, err := v.staleParts(ctx, keys, workflow.Parts(object))
	if err != nil {
		return nil, err
	}
	err = v.parallel(len(parts), func(i int) error { return v.readPart(ctx, keys, parts[i]) })
	if errors.Is(err, storage.ErrNotFound) {
		return nil, v.partLost(ctx, keys, err)
	}
	if err != nil {
		return nil, err
	}
	return object, join(object, entry)
}

// lost says what it means that a part of a plan is not there. A Delete takes the object first, so a plan whose object is still
// there is damaged.
func (v *Vault) partLost(ctx context.Context, keys keys, err error) error {
	if _, headErr := v.client.Head(ctx, keys.object()); headErr != nil {
		return blobError("look for object", keys.object(), headErr)
	}
	return withCause(err, "%w: it is missing, although the plan exists: Recover with Thorough restores it: %w", storage.ErrCorrupt, clientError(err))
}

// join gives an object whose parts are up to date the plan's own fields, which the entry has, and all of it the versions that
// updates want. Until then each part has the ETag that it was read at, alone or in the version that the object has of it.
func join(object, entry *workflow.Plan) error {
	objectETag := object.State.ETag
	planKind.copyOwnFields(object, entry)
	for o, parent := range workflow.Walk(object) {
		state := o.Header().State
		switch etag, _, _ := driver.SplitVersion(state.ETag); {
		case parent == nil:
			state.ETag = planVersion(etag, objectETag, object)
		case etag != "":
			state.ETag = driver.Version(etag, o)
		}
	}
	return validateWhole(object)
}

// listPrice is what a page of a listing costs in reads, by the service's billing classes: $0.055 and $0.0044 for 10,000.
const listPrice = 12.5

// outdated leaves of a plan's sub-objects, as its object has them, those whose blobs have to be read. A listing tells which
// are still of the version that the object has; one that it does not tell of is read, because a listing can miss a blob.
//
// It is asked for where there are twice as many sub-objects as reads that it costs. From there on it saves at least as much
// when nothing has changed as it loses when everything has, and with each further sub-object it saves more.
func (v *Vault) staleParts(ctx context.Context, keys keys, parts []workflow.Object) ([]workflow.Object, error) {
	kinds, listed, pages := kindsWorthListing(parts)
	if pages == 0 || float64(listed) < 2*listPrice*float64(pages) {
		return parts, nil
	}
	items, err := v.listParts(ctx, keys, kinds)
	if err != nil {
		return nil, err
	}
	now := make(map[string]string, len(items))
	for _, item := range items {
		now[item.Name] = item.ETag
	}
	return slices.DeleteFunc(parts, func(o workflow.Object) bool {
		was, _, _ := driver.SplitVersion(o.Header().State.ETag)
		return was != "" && was == now[keys.part(o).Name]
	}), nil
}

// several says of which kinds there is more than one sub-object, how many these are in all, and on how many pages listings
// tell of them. The only one of a kind is better asked for by name.
func kindsWorthListing(parts []workflow.Object) (of []kind, n, pages int) {
	count := map[workflow.Kind]int{}
	for _, o := range parts {
		count[o.Kind()]++
	}
	for _, k := range kinds {
		if c := count[k.of]; c > 1 {
			of = append(of, k)
			n += c
			pages += (c + blob.MaxPage - 1) / blob.MaxPage
		}
	}
	return of, n, pages
}

// refresh gives a sub-object the fields that its own blob has.
func (v *Vault) readPart(ctx context.Context, keys keys, o workflow.Object) error {
	ref := keys.part(o)
	doing := "read " + o.Kind().String()
	body, p, err := v.client.Get(ctx, ref)
	if err != nil {
		return blobError(doing, ref, err)
	}
	kind := kindOf(o)
	now, err := decodePart(body, kind, keys.plan, *o.Header().ID)
	if err != nil {
		return blobError(doing, ref, err)
	}
	now.Header().State.ETag = p.ETag // see join
	kind.copyOwnFields(o, now)
	return nil
}
