package azblob

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/planvault/azblob/internal/blob"
)

// Everything that is stored in a day: its plans with all their blobs, and strays.

// dayPlans yields all plans of a day with their blobs in some directories. It merges the listings of the
// directories, which are sorted by plan. An error is the last element; a container that is absent is an error, too.
func (s *store) dayPlans(ctx context.Context, d day, dirs []string, stray func(name, detail string)) iter.Seq2[planBlobs, error] {
	return func(yield func(planBlobs, error) bool) {
		var cursors []*cursor
		for _, dir := range dirs {
			next, stop := iter.Pull2(s.named(ctx, d, dir, stray))
			defer stop()
			cursors = append(cursors, &cursor{next: next})
		}
		for _, l := range cursors {
			if err := l.advance(); err != nil {
				yield(planBlobs{}, err)
				return
			}
		}
		for {
			first := firstCursor(cursors)
			if first == nil {
				return
			}
			id := first.item.name.plan
			b := planBlobs{keys: s.prefix.plan(id), marked: d.marked, partsListed: len(dirs) > 1}
			for _, l := range cursors {
				for l.more && l.item.name.plan == id {
					b.add(l.item.name, l.item.Item)
					if err := l.advance(); err != nil {
						yield(planBlobs{}, err)
						return
					}
				}
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// cursor is the listing of a directory, read blob by blob.
type cursor struct {
	next func() (namedItem, error, bool)
	item namedItem // if more is set
	more bool
}

func (l *cursor) advance() (err error) {
	l.item, err, l.more = l.next()
	return err
}

// firstCursor returns the listing whose next blob belongs to the first plan; nil at the end of all.
func firstCursor(cursors []*cursor) (first *cursor) {
	for _, l := range cursors {
		if l.more && (first == nil || bytes.Compare(l.item.name.plan[:], first.item.name.plan[:]) < 0) {
			first = l
		}
	}
	return first
}

// namedItem is a listed blob with what its name says.
type namedItem struct {
	name parsed
	blob.Item
}

// isDropping is the detail of the mark of an expiry, which belongs to no plan and is no stray.
const isDropping = "the day is being dropped"

// isOthers is the detail of an entry or object that another program wrote, whose ID is not one of the day.
const isOthers = "was written by another program"

// named lists a directory of a day. Blobs that no vault writes there are strays.
func (s *store) named(ctx context.Context, d day, dir string, stray func(name, detail string)) iter.Seq2[namedItem, error] {
	return func(yield func(namedItem, error) bool) {
		for item, err := range s.listPresent(ctx, "list", blob.Ref{Container: d.container, Name: dir}, true) {
			name, ok := parseName(item.Name)
			switch {
			case err != nil:
				yield(namedItem{}, err)
				return
			case item.Name == droppingName:
				stray(item.Name, isDropping)
			case !ok:
				stray(item.Name, "is not a name that a vault writes")
			case s.prefix.plan(name.plan).container != d.container && isForeign(item.Metadata):
				stray(item.Name, isOthers)
			case s.prefix.plan(name.plan).container != d.container:
				stray(item.Name, "belongs to a plan of another day")
			case !yield(namedItem{name, item}, nil):
				return
			}
		}
	}
}

// strays reports the blobs outside of all directories of the vault. One of them may be the day's catalogue, which
// is no stray. It lists names up to their first slash, which skips what is in the directories.
func (s *store) strays(ctx context.Context, d day, report func(name, detail string)) (catalogued bool, err error) {
	const detail = "lies in none of the vault's directories"
	dirs := directories()
	for names, err := range s.client.ListGroups(ctx, d.container, blob.ListOptions{}, "/") {
		if blob.Is(err, blob.AbsentContainer) {
			return false, s.confirmDropped(ctx, d.container)
		}
		if err != nil {
			return false, blobError("list strays", blob.Ref{Container: d.container}, err)
		}
		for _, name := range names {
			switch {
			case slices.Contains(dirs, name):
			case name == catalogueName:
				catalogued = true
			case !strings.HasSuffix(name, "/"):
				report(name, detail)
			default: // somebody else's directory
				for item, err := range s.listPrefix(ctx, "list strays", blob.Ref{Container: d.container, Name: name}, false) {
					if err != nil {
						return false, err
					}
					report(item.Name, detail)
				}
			}
		}
	}
	return catalogued, nil
}
