package azblob

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// What is stored of one plan: look at it, list it, read it, remove it.

// planBlobs are the blobs of one plan, as far as they were looked for. A blob that is absent, or was not
// looked for, is nil.
type planBlobs struct {
	keys                                keys
	marker, deleteMarker, entry, object *blob.Item
	// parts are the plan's sub-objects; partsListed says that they were looked for.
	parts       []blob.Item
	partsListed bool
	// changes are the change markers.
	changes []blob.Item
	// marked says that the day's open plans have markers.
	marked bool
	// seen is the service's time when the first of the listed blobs was found; zero if none was. Ages are
	// taken at this time, even if a blob is looked at again much later: whatever was written in between is
	// new.
	seen time.Time
}

// committed says whether there is a plan: an entry without an object is a plan in progress, or what is left
// of one.
func (b planBlobs) committed() bool { return b.entry != nil && b.object != nil }

// missing names the entry and the object if they are absent.
func (b planBlobs) missing() (refs []blob.Ref) {
	if b.entry == nil {
		refs = append(refs, b.keys.entry())
	}
	if b.object == nil {
		refs = append(refs, b.keys.object())
	}
	return refs
}

// entryOrObject returns the entry, or the object if there is no entry.
func (b planBlobs) entryOrObject() *blob.Item {
	if b.entry != nil {
		return b.entry
	}
	return b.object
}

// add adds a blob that was listed.
func (b *planBlobs) add(name parsed, item blob.Item) {
	if b.seen.IsZero() || item.Seen.Before(b.seen) {
		b.seen = item.Seen
	}
	switch name.role {
	case roleMarker:
		b.marker = &item
	case roleDeleteMarker:
		b.deleteMarker = &item
	case roleChangeMarker:
		b.changes = append(b.changes, item)
	case roleEntry:
		b.entry = &item
	case roleObject:
		b.object = &item
	case rolePart:
		b.parts = append(b.parts, item)
	}
}

// all returns the blobs that were found.
func (b planBlobs) all() []*blob.Item {
	items := []*blob.Item{b.marker, b.deleteMarker, b.entry, b.object}
	for i := range b.parts {
		items = append(items, &b.parts[i])
	}
	for i := range b.changes {
		items = append(items, &b.changes[i])
	}
	return slices.DeleteFunc(items, func(item *blob.Item) bool { return item == nil })
}

// listPrefix is listPresent for a container that may have been dropped, which has no blobs.
func (v *Vault) listPrefix(ctx context.Context, doing string, ref blob.Ref, metadata bool) iter.Seq2[blob.Item, error] {
	return func(yield func(blob.Item, error) bool) {
		for item, err := range v.listPresent(ctx, doing, ref, metadata) {
			if blob.Is(err, blob.AbsentContainer) {
				if err = v.confirmDropped(ctx, ref.Container); err == nil {
					return
				}
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// unlessDropped calls list again as long as it fails because the container is absent, and others say that it is there. A
// container that was dropped is no error.
func (v *Vault) unlessDropped(ctx context.Context, ref blob.Ref, list func() error) (err error) {
	for range confirmations {
		if err = list(); !blob.Is(err, blob.AbsentContainer) {
			return err
		}
		if err = v.confirmDropped(ctx, ref.Container); !errors.Is(err, storage.ErrUnavailable) {
			return err
		}
	}
	return err
}

// listPresent yields the blobs of a container whose names begin with ref's. If the service says that the container
// is absent, that is ErrUnavailable: a single response must not make a day look empty to whoever drops, holds or
// catalogues it. An error is the last element.
func (v *Vault) listPresent(ctx context.Context, doing string, ref blob.Ref, metadata bool) iter.Seq2[blob.Item, error] {
	return v.listPages(ctx, doing, ref, blob.ListOptions{Metadata: metadata})
}

// pageSizes returns the page sizes of two listings that have to agree before something is removed, or stored for ever,
// because a blob is not listed. The second size makes another request, which whoever answered the first one wrongly
// answers anew.
func pageSizes() [2]int { return [...]int{blob.MaxPage, blob.MaxPage - 1} }

// listPages is listPresent with other options.
func (v *Vault) listPages(ctx context.Context, doing string, ref blob.Ref, o blob.ListOptions) iter.Seq2[blob.Item, error] {
	o.Prefix = ref.Name
	return func(yield func(blob.Item, error) bool) {
		for page, err := range v.client.List(ctx, ref.Container, o) {
			if blob.Is(err, blob.AbsentContainer) {
				yield(blob.Item{}, vaultError(doing, ref, "%w: the day was dropped, or the service contradicts itself: call again: %w", storage.ErrUnavailable, err))
				return
			}
			if err != nil {
				yield(blob.Item{}, blobError(doing, ref, err))
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// addListed lists what a plan has in a directory, and adds it to b.
func (v *Vault) addListed(ctx context.Context, doing, dir string, b *planBlobs) error {
	for item, err := range v.listPrefix(ctx, doing, b.keys.at(dir+b.keys.plan.String()), true) {
		if err != nil {
			return err
		}
		if name, ok := parseName(item.Name); ok {
			b.add(name, item)
		}
	}
	return nil
}

// listMarkers lists the markers of a plan.
func (v *Vault) listMarkers(ctx context.Context, keys keys) (planBlobs, error) {
	b := planBlobs{keys: keys, marked: true}
	err := v.addListed(ctx, "list markers", openDir, &b)
	return b, err
}

// relistPlan lists all blobs of a plan again.
func (v *Vault) relistPlan(ctx context.Context, was planBlobs) (planBlobs, error) {
	b := planBlobs{keys: was.keys, marked: was.marked, partsListed: true}
	for _, dir := range directories() {
		if err := v.addListed(ctx, "list", dir, &b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// listParts lists the sub-objects of a plan that are of the given kinds, all kinds at once.
func (v *Vault) listParts(ctx context.Context, keys keys, kinds []kind) ([]blob.Item, error) {
	return v.listPartsBy(ctx, keys, kinds, pageSizes()[0])
}

// listPartsBy is listParts with pages of a size.
func (v *Vault) listPartsBy(ctx context.Context, keys keys, kinds []kind, size int) ([]blob.Item, error) {
	found := make([][]blob.Item, len(kinds))
	err := v.parallel(len(kinds), func(i int) error {
		ref := keys.at(keys.parts(kinds[i]))
		return v.unlessDropped(ctx, ref, func() error {
			found[i] = nil
			for item, err := range v.listPages(ctx, "list sub-objects", ref, blob.ListOptions{MaxResults: size}) {
				if err != nil {
					return err
				}
				found[i] = append(found[i], item)
			}
			return nil
		})
	})
	return slices.Concat(found...), err
}

// headAgain asks for a blob by name to which another one leads. If the service says that it is absent, headAgain asks once
// more, so that a single answer makes no listing shorter.
func (v *Vault) headAgain(ctx context.Context, ref blob.Ref) (blob.Properties, error) {
	p, err := v.client.Head(ctx, ref)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return v.client.Head(ctx, ref)
	}
	return p, err
}

// headPlan asks for a plan's entry and object by name.
func (v *Vault) headPlan(ctx context.Context, doing string, keys keys) (planBlobs, error) {
	b := planBlobs{keys: keys}
	err := v.parallel(2, func(i int) error {
		ref, into := keys.entry(), &b.entry
		if i == 1 {
			ref, into = keys.object(), &b.object
		}
		p, err := v.client.Head(ctx, ref)
		if err == nil {
			*into = &blob.Item{Name: ref.Name, Properties: p}
		} else if !blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return blobError(doing, ref, err)
		}
		return nil
	})
	return b, err
}

// readEntry reads the entry of a plan. join sets the version later, State.ETag is the blob's ETag.
func (v *Vault) readEntry(ctx context.Context, keys keys) (*workflow.Plan, error) {
	ref := keys.entry()
	body, p, err := v.client.Get(ctx, ref)
	if err != nil {
		return nil, blobError("read entry", ref, err)
	}
	entry, err := v.format.decodeEntry(body, keys.plan)
	if err != nil {
		return nil, blobError("read entry", ref, err)
	}
	entry.State.ETag = p.ETag
	return entry, nil
}

// readObject reads the object of a plan. Its State.ETag is as that of readEntry.
func (v *Vault) readObject(ctx context.Context, keys keys) (*workflow.Plan, blob.Properties, error) {
	ref := keys.object()
	body, p, err := v.client.Get(ctx, ref)
	if err != nil {
		return nil, p, blobError("read object", ref, err)
	}
	object, err := v.format.decodeObject(body, keys.plan)
	if err != nil {
		return nil, p, blobError("read object", ref, err)
	}
	object.State.ETag = p.ETag
	return object, p, nil
}

// confirmations bounds how often HEADs and a listing are compared before the service counts as contradicting
// itself. They also differ if a blob is written or removed between the two.
const confirmations = 3

// confirmGone asks again for blobs of a plan that the service called absent. It returns nil only if a HEAD of
// each blob and a listing of the plan's names agree that they are absent, so that no single answer leads to a
// removal, or passes for one. The error is ErrConflict if a blob exists after all, and ErrUnavailable if the
// service keeps contradicting itself. If the identity may not list blobs, a second HEAD stands for the
// listing.
func (v *Vault) confirmGone(ctx context.Context, keys keys, refs ...blob.Ref) error {
	var doubt error
	for range confirmations {
		heads, err := v.headBlobs(ctx, refs)
		if err != nil {
			return err
		}
		listed, err := v.listNames(ctx, keys, refs)
		if blob.IsForbidden(err) {
			listed, err = v.headBlobs(ctx, refs)
		}
		if err != nil {
			return err
		}
		doubt = nil
		for _, ref := range refs {
			switch there, again := heads[ref.Name], listed[ref.Name]; {
			case there && again:
				return vaultError("confirm", ref, "%w: the blob exists after all", storage.ErrConflict)
			case there != again:
				doubt = vaultError("confirm", ref, "%w: the service contradicts itself: the blob exists by name: %t, at a second look: %t; nothing more is removed", storage.ErrUnavailable, there, again)
			}
		}
		if doubt == nil {
			return nil
		}
	}
	return doubt
}

// headBlobs asks for blobs by name, and returns the names of those that exist.
func (v *Vault) headBlobs(ctx context.Context, refs []blob.Ref) (map[string]bool, error) {
	found := make([]bool, len(refs))
	err := v.parallel(len(refs), func(i int) error {
		_, err := v.client.Head(ctx, refs[i])
		if found[i] = err == nil; found[i] || blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return nil
		}
		return blobError("confirm", refs[i], err)
	})
	there := make(map[string]bool, len(refs))
	for i, ref := range refs {
		there[ref.Name] = found[i]
	}
	return there, err
}

// listNames lists the names of a plan in the directories of these blobs.
func (v *Vault) listNames(ctx context.Context, keys keys, refs []blob.Ref) (map[string]bool, error) {
	listed, asked := map[string]bool{}, map[string]bool{}
	for _, ref := range refs {
		dir, _, _ := strings.Cut(ref.Name, "/")
		if asked[dir] {
			continue
		}
		asked[dir] = true
		for item, err := range v.listPrefix(ctx, "confirm", keys.at(dir+"/"+keys.plan.String()), false) {
			if err != nil {
				return nil, err
			}
			listed[item.Name] = true
		}
	}
	return listed, nil
}

// remove removes one blob of a plan. If the service says that the blob is absent, a second look has to agree.
// If the second look fails the outcome is unknown, because an earlier try may have removed the blob and lost
// the answer.
func (v *Vault) remove(ctx context.Context, doing string, keys keys, ref blob.Ref, cond blob.Condition) error {
	err := v.client.Delete(ctx, ref, cond)
	if !blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blobError(doing, ref, err)
	}
	err = v.confirmGone(ctx, keys, ref)
	if err == nil || errors.Is(err, storage.ErrConflict) {
		return err
	}
	return vaultError(doing, ref, "%w: the service says that the blob is gone, and a second look failed: call again: %w", storage.ErrUnknown, err)
}

// removeParts removes sub-objects in batches, all at once. If the service says that one of them is absent, a
// listing has to agree.
func (v *Vault) removeParts(ctx context.Context, keys keys, parts []blob.Target) error {
	batches := slices.Collect(slices.Chunk(parts, blob.MaxBatch))
	doubts := make([]bool, len(batches))
	err := v.parallel(len(batches), func(i int) error {
		err := v.client.DeleteBatch(ctx, keys.container, batches[i])
		if doubts[i] = blob.Is(err, blob.Absent, blob.AbsentContainer); doubts[i] {
			return nil
		}
		return blobError("remove sub-objects", keys.at(batches[i][0].Name), err)
	})
	if err != nil || !slices.Contains(doubts, true) {
		return err
	}
	err = v.confirmParts(ctx, keys, func(item blob.Item) (bool, error) {
		return slices.ContainsFunc(parts, func(t blob.Target) bool { return t.Name == item.Name && (t.ETag == "" || t.ETag == item.ETag) }), nil
	})
	if blob.IsForbidden(err) { // ask by name
		refs := make([]blob.Ref, len(parts))
		for i, t := range parts {
			refs[i] = keys.at(t.Name)
		}
		return v.confirmGone(ctx, keys, refs...)
	}
	return err
}

// confirmParts lists a plan's sub-objects after their removal, with pages of another size, because the listing before it may
// have missed some. It fails if a listed sub-object should be gone, as removed says.
func (v *Vault) confirmParts(ctx context.Context, keys keys, removed func(blob.Item) (bool, error)) error {
	items, err := v.listPartsBy(ctx, keys, kinds[:], pageSizes()[1])
	if err != nil {
		return err
	}
	for _, item := range items {
		gone, err := removed(item)
		if err != nil {
			return err
		}
		if gone {
			return vaultError("remove sub-objects", keys.at(item.Name), "%w: the service contradicts itself: the sub-object is still listed after its removal; call again", storage.ErrUnavailable)
		}
	}
	return nil
}
