package azblob

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/planvault/azblob/internal/blob"
)

// The days of a vault, and everything that is stored in one.

// day is a container of this vault.
type day struct {
	container string
	date      time.Time
	// marked says that the vault made the container, so each open plan in it has a marker.
	marked bool
}

// days lists the vault's containers, newest first. If the service denies that, it asks for each container by
// name.
func (v *Vault) days(ctx context.Context) ([]day, error) {
	var days []day
	for page, err := range v.client.ListContainers(ctx, v.prefix.containers()) {
		if err != nil {
			denied := blobError("list containers", blob.Ref{Container: v.prefix.containers() + "*"}, err)
			switch {
			case !blob.IsForbidden(err):
				return nil, denied
			case v.probing == 0:
				return nil, fmt.Errorf("%w: give the identity the right to list containers, or use WithDayProbing", denied)
			}
			return v.probe(ctx, denied)
		}
		for _, c := range page {
			if date, ok := v.prefix.parseDay(c.Name); ok {
				days = append(days, newDay(date, c))
				v.containers.learn(c.Name)
			}
		}
	}
	slices.Reverse(days)
	return days, nil
}

func newDay(date time.Time, c blob.ContainerItem) day {
	return day{c.Name, date, c.Metadata[metaLayout] != ""}
}

// probe asks for the days from tomorrow back by name. An identity may have rights to some containers only;
// the others count as absent. If it has no rights to any, probe returns denied, which says what is missing.
func (v *Vault) probe(ctx context.Context, denied error) ([]day, error) {
	const ahead = 1 // storage.MaxAhead, in days
	today := time.Now().UTC().Truncate(24 * time.Hour)
	found := make([]day, ahead+1+v.probing)
	var forbidden atomic.Bool
	err := v.parallel(len(found), func(i int) error {
		date := today.AddDate(0, 0, ahead-i)
		c, err := v.client.HeadContainer(ctx, v.prefix.day(date))
		switch {
		case blob.IsForbidden(err):
			forbidden.Store(true)
		case err == nil:
			found[i] = newDay(date, c)
		case !blob.Is(err, blob.Absent, blob.AbsentContainer):
			return blobError("look for container", blob.Ref{Container: v.prefix.day(date)}, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(d day) bool { return d.container == "" })
	if len(found) == 0 && forbidden.Load() {
		return nil, denied
	}
	return found, nil
}

// dayPlans yields all plans of a day with all their blobs. It merges the listings of all directories, each of
// which is sorted by plan. An error is the last element.
func (v *Vault) dayPlans(ctx context.Context, d day, stray func(name, detail string)) iter.Seq2[planBlobs, error] {
	return func(yield func(planBlobs, error) bool) {
		var listings []*listing
		for _, dir := range directories() {
			next, stop := iter.Pull2(v.named(ctx, d, dir, stray))
			defer stop()
			listings = append(listings, &listing{next: next})
		}
		for _, l := range listings {
			if err := l.advance(); err != nil {
				yield(planBlobs{}, err)
				return
			}
		}
		for {
			first := firstListing(listings)
			if first == nil {
				return
			}
			id := first.item.name.plan
			b := planBlobs{keys: v.prefix.plan(id), marked: d.marked, partsListed: true}
			for _, l := range listings {
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

// listing is the listing of a directory, read blob by blob.
type listing struct {
	next func() (namedItem, error, bool)
	item namedItem // if more is set
	more bool
}

func (l *listing) advance() (err error) {
	l.item, err, l.more = l.next()
	return err
}

// firstListing returns the listing whose next blob belongs to the first plan; nil at the end of all.
func firstListing(listings []*listing) (first *listing) {
	for _, l := range listings {
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

// named lists a directory of a day. Blobs that no vault writes there are strays.
func (v *Vault) named(ctx context.Context, d day, dir string, stray func(name, detail string)) iter.Seq2[namedItem, error] {
	return func(yield func(namedItem, error) bool) {
		for item, err := range v.listPrefix(ctx, "list", blob.Ref{Container: d.container, Name: dir}, true) {
			name, ok := parseName(item.Name)
			switch {
			case err != nil:
				yield(namedItem{}, err)
				return
			case !ok:
				stray(item.Name, "is not a name that a vault writes")
			case v.prefix.plan(name.plan).container != d.container:
				stray(item.Name, "belongs to a plan of another day")
			case !yield(namedItem{name, item}, nil):
				return
			}
		}
	}
}

// strays reports the blobs outside of all directories of the vault. It lists names up to their first slash,
// which skips what is in the directories.
func (v *Vault) strays(ctx context.Context, d day, report func(name, detail string)) error {
	const detail = "lies in none of the vault's directories"
	dirs := directories()
	for names, err := range v.client.ListGroups(ctx, d.container, blob.ListOptions{}, "/") {
		if blob.Is(err, blob.AbsentContainer) {
			return nil
		}
		if err != nil {
			return blobError("list strays", blob.Ref{Container: d.container}, err)
		}
		for _, name := range names {
			switch {
			case slices.Contains(dirs, name):
			case !strings.HasSuffix(name, "/"):
				report(name, detail)
			default: // somebody else's directory
				for item, err := range v.listPrefix(ctx, "list strays", blob.Ref{Container: d.container, Name: name}, false) {
					if err != nil {
						return err
					}
					report(item.Name, detail)
				}
			}
		}
	}
	return nil
}
