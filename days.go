package azblob

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/planvault/azblob/internal/blob"
)

// day is a container of this vault.
type day struct {
	container string
	date      time.Time
	// marked says that everything open in it has a marker: it was made by this layout.
	marked bool
}

// days lists the vault's containers, newest first, or where that is denied asks for each by name.
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

// probe asks for the days from tomorrow back by name. Rights may be given for containers one by one, and one that there are
// none for is like one that is not there, unless it is so for all: then denied says what is missing.
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

// belongings yields all plans of a day with all that is stored of each, by merging the listings of all directories: each is
// sorted by plan.
func (v *Vault) dayPlans(ctx context.Context, d day, stray func(name, detail string)) iter.Seq2[planBlobs, error] {
	type head struct {
		next func() (namedItem, error, bool)
		item namedItem
	}
	return func(yield func(planBlobs, error) bool) {
		var heads []*head
		advance := func(h *head) (more bool, err error) {
			item, err, ok := h.next()
			h.item = item
			return ok, err
		}
		for _, dir := range directories() {
			next, stop := iter.Pull2(v.named(ctx, d, dir, stray))
			defer stop()
			h := &head{next: next}
			more, err := advance(h)
			if err != nil {
				yield(planBlobs{}, err)
				return
			}
			if more {
				heads = append(heads, h)
			}
		}
		for len(heads) > 0 {
			first := slices.MinFunc(heads, func(a, b *head) int {
				return strings.Compare(a.item.name.plan.String(), b.item.name.plan.String())
			}).item.name.plan
			b := planBlobs{keys: v.prefix.plan(first), marked: d.marked, partsListed: true}
			left := heads[:0]
			for _, h := range heads {
				more := true
				for more && h.item.name.plan == first {
					b.add(h.item.name, h.item.Item)
					var err error
					if more, err = advance(h); err != nil {
						yield(planBlobs{}, err)
						return
					}
				}
				if more {
					left = append(left, h)
				}
			}
			heads = left
			if !yield(b, nil) {
				return
			}
		}
	}
}

// namedItem is a listed blob with what its name says.
type namedItem struct {
	name parsed
	blob.Item
}

// named lists a directory of a day; what no vault would write there is a stray.
func (v *Vault) named(ctx context.Context, d day, dir string, stray func(name, detail string)) iter.Seq2[namedItem, error] {
	return func(yield func(namedItem, error) bool) {
		for page, err := range v.client.List(ctx, d.container, blob.ListOptions{Prefix: dir, Metadata: true}) {
			if blob.Is(err, blob.AbsentContainer) {
				return // dropped as a whole
			}
			if err != nil {
				yield(namedItem{}, blobError("list", blob.Ref{Container: d.container, Name: dir}, err))
				return
			}
			for _, item := range page.Items {
				name, ok := parseName(item.Name)
				switch {
				case !ok:
					stray(item.Name, "is not a name that a vault writes")
				case v.prefix.plan(name.plan).container != d.container:
					stray(item.Name, "belongs to a plan of another day")
				default:
					if !yield(namedItem{name, item}, nil) {
						return
					}
				}
			}
		}
	}
}

// strays reports the blobs that lie outside all directories. A listing of names up to their first slash shows them, and skips
// what is in the directories.
func (v *Vault) strays(ctx context.Context, d day, report func(name, detail string)) error {
	const detail = "lies in none of the vault's directories"
	dirs := directories()
	for names, err := range v.client.ListGroups(ctx, d.container, "", "/") {
		if blob.Is(err, blob.AbsentContainer) {
			return nil // dropped as a whole
		}
		if err != nil {
			return blobError("list strays", blob.Ref{Container: d.container}, err)
		}
		for _, name := range names {
			switch {
			case slices.Contains(dirs, name):
			case !strings.HasSuffix(name, "/"):
				report(name, detail)
			default: // a directory of somebody else's
				for page, err := range v.client.List(ctx, d.container, blob.ListOptions{Prefix: name}) {
					if blob.Is(err, blob.AbsentContainer) {
						return nil
					}
					if err != nil {
						return blobError("list strays", blob.Ref{Container: d.container, Name: name}, err)
					}
					for _, item := range page.Items {
						report(item.Name, detail)
					}
				}
			}
		}
	}
	return nil
}
