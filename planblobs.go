package azblob

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// What is stored of one plan: how it is found, and how it is removed.

// planBlobs are the blobs of one plan, as far as they were looked for. A blob that is absent, or was not looked for, is nil.
type planBlobs struct {
	keys                                keys
	marker, deleteMarker, entry, object *blob.Item
	// parts are the plan's sub-objects; partsListed says that they were looked for.
	parts       []blob.Item
	partsListed bool
	// marked says that the day's open plans have markers.
	marked bool
	// seen is the service's time when the first of the listed blobs was found; zero if none was. Ages are taken at this time,
	// even if a blob is looked at again much later: whatever was written in between is new.
	seen time.Time
}

// committed says whether there is a plan: an entry without an object is a plan in progress, or what is left of one.
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
	case roleEntry:
		b.entry = &item
	case roleObject:
		b.object = &item
	case rolePart:
		b.parts = append(b.parts, item)
	}
}

// all lists the blobs that are there.
func (b planBlobs) all() []*blob.Item {
	items := []*blob.Item{b.marker, b.deleteMarker, b.entry, b.object}
	for i := range b.parts {
		items = append(items, &b.parts[i])
	}
	return slices.DeleteFunc(items, func(item *blob.Item) bool { return item == nil })
}

// gather lists what is stored of one plan.
func (v *Vault) relistPlan(ctx context.Context, was planBlobs) (planBlobs, error) {
	b := planBlobs{keys: was.keys, marked: was.marked, partsListed: true}
	id := b.keys.plan.String()
	for _, dir := range directories() {
		prefix := dir + id
		for page, err := range v.client.List(ctx, b.keys.container, blob.ListOptions{Prefix: prefix, Metadata: true}) {
			if blob.Is(err, blob.AbsentContainer) {
				break
			}
			if err != nil {
				return b, blobError("list", b.keys.at(prefix), err)
			}
			for _, item := range page.Items {
				if name, ok := parseName(item.Name); ok {
					b.add(name, item)
				}
			}
		}
	}
	return b, nil
}

// look asks for a plan's entry and object by name.
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

// confirmations is how often HEAD and listing are compared before they count as contradicting each other. What is written
// or removed between the two tells them apart as well.
const confirmations = 3

// confirmGone asks again for blobs of a plan that the service called absent. It returns nil only if both a HEAD of each and a
// listing of the plan's names say that none is there: nothing is removed, or taken for removed, on the word of one answer.
// The error is ErrConflict if one is there after all, and ErrUnavailable if the service goes on contradicting itself. An
// identity that may not list blobs has no second kind of evidence: another HEAD of each stands for the listing.
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
				return vaultError("confirm", ref, "%w: it is there after all", storage.ErrConflict)
			case there != again:
				doubt = vaultError("confirm", ref, "%w: the service contradicts itself: by name the blob is there: %t, at a second look: %t; nothing more is removed", storage.ErrUnavailable, there, again)
			}
		}
		if doubt == nil {
			return nil
		}
	}
	return doubt
}

// heads looks for each blob by its name, and returns those that are there.
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

// names lists what a plan has in the directories of these blobs.
func (v *Vault) listNames(ctx context.Context, keys keys, refs []blob.Ref) (map[string]bool, error) {
	listed, asked := map[string]bool{}, map[string]bool{}
	for _, ref := range refs {
		dir, _, _ := strings.Cut(ref.Name, "/")
		prefix := dir + "/" + keys.plan.String()
		if asked[prefix] {
			continue
		}
		asked[prefix] = true
		for page, err := range v.client.List(ctx, keys.container, blob.ListOptions{Prefix: prefix}) {
			if blob.Is(err, blob.AbsentContainer) {
				break
			}
			if err != nil {
				return nil, blobError("confirm", keys.at(prefix), err)
			}
			for _, item := range page.Items {
				listed[item.Name] = true
			}
		}
	}
	return listed, nil
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
				return blobError("list sub-objects", keys.at(dir), err)
			}
			found[i] = append(found[i], page.Items...)
		}
		return nil
	})
	return slices.Concat(found...), err
}

// remove removes one blob of a plan. Where the service says that it is not there, a second look has to agree. If that fails
// the outcome is unknown: an earlier try, whose answer was lost, may have removed the blob.
func (v *Vault) remove(ctx context.Context, doing string, keys keys, ref blob.Ref, cond blob.Condition) error {
	err := v.client.Delete(ctx, ref, cond)
	if !blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blobError(doing, ref, err)
	}
	err = v.confirmGone(ctx, keys, ref)
	if err == nil || errors.Is(err, storage.ErrConflict) {
		return err
	}
	return vaultError(doing, ref, "%w: the service says that it is gone, and a second look failed: call again: %w", storage.ErrUnknown, err)
}

// removeParts removes sub-objects in batches, all at once. Where the service says of any that it is not there, a listing has
// to agree.
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

// confirmParts lists a plan's sub-objects after their removal: none that removed says should be gone may show. A listing can
// miss a blob, so the one before the removal may have been short.
func (v *Vault) confirmParts(ctx context.Context, keys keys, removed func(blob.Item) (bool, error)) error {
	items, err := v.listParts(ctx, keys, kinds[:])
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

func (v *Vault) readEntry(ctx context.Context, keys keys) (*workflow.Plan, error) {
	ref := keys.entry()
	body, p, err := v.client.Get(ctx, ref)
	if err != nil {
		return nil, blobError("read entry", ref, err)
	}
	entry, err := decodeEntry(body, keys.plan)
	if err != nil {
		return nil, blobError("read entry", ref, err)
	}
	entry.State.ETag = p.ETag // see join
	return entry, nil
}

func (v *Vault) readObject(ctx context.Context, keys keys) (*workflow.Plan, blob.Properties, error) {
	ref := keys.object()
	body, p, err := v.client.Get(ctx, ref)
	if err != nil {
		return nil, p, blobError("read object", ref, err)
	}
	object, err := decodeObject(body, keys.plan)
	if err != nil {
		return nil, p, blobError("read object", ref, err)
	}
	object.State.ETag = p.ETag // see join
	return object, p, nil
}
