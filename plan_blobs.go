package azblob

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/copies"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
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

// addListed lists what a plan has in a directory, and adds it to b.
func (s *store) addListed(ctx context.Context, doing, dir string, b *planBlobs) error {
	for item, err := range s.listPrefix(ctx, doing, b.keys.at(dir+b.keys.plan.String()), true) {
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
func (s planStore) listMarkers(ctx context.Context) (planBlobs, error) {
	b := planBlobs{keys: s.keys, marked: true}
	err := s.addListed(ctx, "list markers", openDir, &b)
	return b, err
}

// relistPlan lists all blobs of a plan again.
func (s *store) relistPlan(ctx context.Context, was planBlobs) (planBlobs, error) {
	b := planBlobs{keys: was.keys, marked: was.marked, partsListed: true}
	for _, dir := range directories() {
		if err := s.addListed(ctx, "list", dir, &b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// listParts lists the sub-objects of a plan that are of the given kinds, all kinds at once.
func (s planStore) listParts(ctx context.Context, kinds []kind) ([]blob.Item, error) {
	return s.listPartsBy(ctx, kinds, blob.ListOptions{MaxResults: pageSizes()[0]})
}

// listPartsBy is listParts with other options.
func (s planStore) listPartsBy(ctx context.Context, kinds []kind, o blob.ListOptions) ([]blob.Item, error) {
	found := make([][]blob.Item, len(kinds))
	err := s.parallel(len(kinds), func(i int) error {
		ref := s.keys.at(s.keys.partsPrefix(kinds[i]))
		return s.unlessDropped(ctx, ref, func() error {
			found[i] = nil
			for item, err := range s.listPages(ctx, "list sub-objects", ref, o) {
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

// headPlan asks for a plan's entry and object by name.
func (s planStore) headPlan(ctx context.Context, doing string) (planBlobs, error) {
	found, err := s.headBlobs(ctx, doing, []blob.Ref{s.keys.entry(), s.keys.object()})
	return planBlobs{keys: s.keys, entry: found[0], object: found[1]}, err
}

// readEntry reads the entry of a plan. join sets the version later, State.ETag is the name of the blob's.
func (s planStore) readEntry(ctx context.Context) (*workflow.Plan, error) {
	ref := s.keys.entry()
	body, p, err := s.client.Get(ctx, ref)
	if err != nil {
		return nil, blobError("read entry", ref, err)
	}
	entry, err := s.format.decodeEntry(body, s.keys.plan)
	if isForeign(p.Metadata) {
		err = storage.ErrForeign
	}
	if err != nil {
		return nil, blobError("read entry", ref, err)
	}
	entry.State.ETag = blobName(p)
	return entry, nil
}

// readObject reads the object of a plan. Its State.ETag is the name of the blob's version, too.
func (s planStore) readObject(ctx context.Context) (*workflow.Plan, blob.Properties, error) {
	ref := s.keys.object()
	body, p, err := s.client.Get(ctx, ref)
	if err != nil {
		return nil, p, blobError("read object", ref, err)
	}
	object, err := s.format.decodeObject(body, s.keys.plan)
	if isForeign(p.Metadata) {
		err = storage.ErrForeign
	}
	if err != nil {
		return nil, p, blobError("read object", ref, err)
	}
	object.State.ETag = blobName(p)
	return object, p, nil
}

// confirmGone asks again for blobs of a plan that the service called absent. It returns nil only if a HEAD of
// each blob and a listing of the plan's names agree that they are absent, so that no single answer leads to a
// removal, or passes for one. The error is ErrConflict if a blob exists after all, and ErrUnavailable if the
// service keeps contradicting itself. If the identity may not list blobs, a second HEAD stands for the
// listing.
func (s planStore) confirmGone(ctx context.Context, refs ...blob.Ref) error {
	var doubt error
	for range confirmations {
		first, err := s.headBlobs(ctx, "confirm", refs)
		if err != nil {
			return err
		}
		second, err := s.listBlobs(ctx, refs)
		if blob.IsForbidden(err) {
			second, err = s.headBlobs(ctx, "confirm", refs)
		}
		if err != nil {
			return err
		}
		doubt = nil
		for i, ref := range refs {
			switch there, again := first[i] != nil, second[i] != nil; {
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

// headBlobs asks for blobs by name. The result has nil in the place of a blob that is absent.
func (s *store) headBlobs(ctx context.Context, doing string, refs []blob.Ref) ([]*blob.Item, error) {
	found := make([]*blob.Item, len(refs))
	err := s.parallel(len(refs), func(i int) error {
		p, err := s.client.Head(ctx, refs[i])
		if err == nil {
			found[i] = &blob.Item{Name: refs[i].Name, Properties: p}
		} else if !blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return blobError(doing, refs[i], err)
		}
		return nil
	})
	return found, err
}

// listBlobs is headBlobs by listings of the plan's names in the directories of these blobs.
func (s planStore) listBlobs(ctx context.Context, refs []blob.Ref) ([]*blob.Item, error) {
	found, asked := make([]*blob.Item, len(refs)), map[string]bool{}
	for _, ref := range refs {
		dir, _, _ := strings.Cut(ref.Name, "/")
		if asked[dir] {
			continue
		}
		asked[dir] = true
		for item, err := range s.listPrefix(ctx, "confirm", s.keys.at(dir+"/"+s.keys.plan.String()), false) {
			if err != nil {
				return nil, err
			}
			if i := slices.IndexFunc(refs, func(ref blob.Ref) bool { return ref.Name == item.Name }); i >= 0 {
				found[i] = &item
			}
		}
	}
	return found, nil
}

// remove removes one blob of a plan. If the service says that the blob is absent, a second look has to agree.
// If the second look fails the outcome is unknown, because an earlier try may have removed the blob and lost
// the answer.
func (s planStore) remove(ctx context.Context, doing string, ref blob.Ref, cond blob.Condition) error {
	err := s.client.Delete(ctx, ref, cond)
	if !blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blobError(doing, ref, err)
	}
	err = s.confirmGone(ctx, ref)
	if err == nil || errors.Is(err, storage.ErrConflict) {
		return err
	}
	return vaultError(doing, ref, "%w: the service says that the blob is gone, and a second look failed: call again: %w", storage.ErrUnknown, err)
}

// removeParts removes sub-objects in their versions. It is an error if one has another version.
func (s planStore) removeParts(ctx context.Context, parts []blob.Target) error {
	changed, err := s.removeVersions(ctx, parts)
	if err == nil && len(changed) > 0 {
		err = vaultError("remove sub-objects", s.keys.at(changed[0].Name), "%w: it has changed", storage.ErrConflict)
	}
	return err
}

// removeVersions removes sub-objects in batches, all at once, and returns those that exist in another version. If the
// service says that one of them is absent, it looks at all of them again, and what it finds is there.
func (s planStore) removeVersions(ctx context.Context, parts []blob.Target) (changed []blob.Target, err error) {
	batches := slices.Collect(slices.Chunk(parts, blob.MaxBatch))
	doubts, others := make([]bool, len(batches)), make([][]blob.Target, len(batches))
	err = s.parallel(len(batches), func(i int) error {
		err := s.client.DeleteBatch(ctx, s.keys.container, batches[i])
		if others[i], doubts[i] = blob.Changed(err); doubts[i] || len(others[i]) > 0 {
			return nil
		}
		return blobError("remove sub-objects", s.keys.at(batches[i][0].Name), err)
	})
	changed = slices.Concat(others...)
	if err != nil || !slices.Contains(doubts, true) {
		return changed, err
	}
	there := map[string]string{}
	for _, t := range changed {
		there[t.Name] = t.ETag
	}
	if err := s.lookAgain(ctx, parts, there); err != nil {
		return nil, err
	}
	return s.notRemoved(parts, there)
}

// lookAgain adds to there the versions of the sub-objects that exist, by their names. It lists them, with pages of another
// size than those before a removal. If the identity may not list blobs it asks for each twice.
func (s planStore) lookAgain(ctx context.Context, parts []blob.Target, there map[string]string) error {
	items, err := s.relistParts(ctx)
	for _, item := range items {
		there[item.Name] = item.ETag
	}
	if !blob.IsForbidden(err) {
		return err
	}
	refs := make([]blob.Ref, len(parts))
	for i, t := range parts {
		refs[i] = s.keys.at(t.Name)
	}
	for range 2 {
		found, err := s.headBlobs(ctx, "confirm", refs)
		if err != nil {
			return err
		}
		for _, item := range found {
			if item != nil {
				there[item.Name] = item.ETag
			}
		}
	}
	return nil
}

// notRemoved returns the sub-objects that are there in another version than was to be removed. It fails if one is there in
// that version.
func (s planStore) notRemoved(parts []blob.Target, there map[string]string) (changed []blob.Target, err error) {
	for _, t := range parts {
		switch etag := there[t.Name]; etag {
		case "":
		case t.ETag:
			return nil, s.notGone(t.Name)
		default:
			changed = append(changed, blob.Target{Name: t.Name, ETag: etag})
		}
	}
	return changed, nil
}

// notGone is the error of a removal that a later look contradicts.
func (s planStore) notGone(name string) error {
	return vaultError("remove sub-objects", s.keys.at(name), "%w: the service contradicts itself: the sub-object is still there after its removal; call again", storage.ErrUnavailable)
}

// relistParts lists a plan's sub-objects with pages of another size than [planStore.listParts], because that listing may
// have missed some.
func (s planStore) relistParts(ctx context.Context) ([]blob.Item, error) {
	return s.listPartsBy(ctx, kinds[:], blob.ListOptions{MaxResults: pageSizes()[1]})
}

// confirmParts lists a plan's sub-objects after their removal. It fails if removed says that a listed sub-object should be
// gone.
func (s planStore) confirmParts(ctx context.Context, removed func(blob.Item) (bool, error)) error {
	items, err := s.relistParts(ctx)
	if err != nil {
		return err
	}
	for _, item := range items {
		gone, err := removed(item)
		if err != nil {
			return err
		}
		if gone {
			return s.notGone(item.Name)
		}
	}
	return nil
}

// listPrice is the price of a page of a listing in reads, by the service's billing classes: $0.055 and
// $0.0044 for 10,000.
const listPrice = 12.5

// worthListing reports whether a listing of some pages is worth its price, if it may save this many reads. The reads
// must cost twice as much as the listing. It then saves at least its price if it saves all reads, and loses its price
// if it saves none.
func worthListing(reads, pages int) bool {
	return pages > 0 && float64(reads) >= 2*listPrice*float64(pages)
}

// kindsWorthListing returns the kinds that have several sub-objects, the number of these sub-objects, and the number
// of pages that their listings take. A single sub-object of a kind is better read by name.
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

// planVersion returns the version of a plan, which has two blobs. copied says that both have the mark of a copy.
func planVersion(entryETag, objectETag string, copied bool, plan *workflow.Plan) string {
	name := entryETag + "/" + objectETag
	if copied {
		name = copies.Mark(name)
	}
	return driver.Version(name, plan)
}

// blobName is the name of a blob's version, with the mark that the blob has.
func blobName(p blob.Properties) string {
	if p.Metadata[metaCopied] != "" {
		return copies.Mark(p.ETag)
	}
	return p.ETag
}

// splitPlanVersion returns the ETags of a plan's entry and object. A version from a listing lacks the
// object's.
func splitPlanVersion(version string) (entryETag, objectETag string) {
	name, _, _ := driver.SplitVersion(version)
	name, _ = copies.Cut(name)
	entryETag, objectETag, _ = strings.Cut(name, "/")
	return entryETag, objectETag
}
