package azblob

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// The days of a vault, and everything that is stored in one.

// days lists the vault's containers, newest first. If the service denies that, it asks for each container by
// name.
func (s *store) days(ctx context.Context) ([]day, error) {
	var days []day
	for page, err := range s.client.ListContainers(ctx, s.prefix.containerPrefix()) {
		if err != nil {
			denied := blobError("list containers", blob.Ref{Container: s.prefix.containerPrefix() + "*"}, err)
			switch {
			case !blob.IsForbidden(err):
				return nil, denied
			case s.probing == 0:
				return nil, fmt.Errorf("%w: give the identity the right to list containers, or use WithDayProbing", denied)
			}
			return s.probe(ctx, denied)
		}
		for _, c := range page {
			if date, ok := s.prefix.parseDay(c.Name); ok {
				d := newDay(date, c)
				days = append(days, d)
				s.containers.remember(d)
			}
		}
	}
	slices.Reverse(days)
	return days, nil
}

// probe asks for the days from tomorrow back by name. An identity may have rights to some containers only;
// the others count as absent. If it has no rights to any, probe returns denied, which says what is missing.
func (s *store) probe(ctx context.Context, denied error) ([]day, error) {
	const ahead = 1 // storage.MaxAhead, in days
	dates := make([]time.Time, ahead+1+s.probing)
	for i := range dates {
		dates[i] = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, ahead-i)
	}
	found, forbidden, err := s.ask(ctx, dates, func(string) (day, bool) { return day{}, false })
	if len(found) == 0 && forbidden != nil {
		return nil, denied
	}
	return found, err
}

// ask asks for days by name, except for those that are known. A day to which the identity has no rights counts
// as absent; forbidden is the error of one.
func (s *store) ask(ctx context.Context, dates []time.Time, known func(container string) (day, bool)) (found []day, forbidden, err error) {
	found = make([]day, len(dates))
	denials := make([]error, len(dates))
	err = s.parallel(len(dates), func(i int) error {
		name := s.prefix.day(dates[i])
		if d, ok := known(name); ok {
			found[i] = d
			return nil
		}
		c, err := s.client.HeadContainer(ctx, name)
		if blob.Is(err, blob.Absent, blob.AbsentContainer) && !s.absent.has(name, time.Now()) {
			c, err = s.client.HeadContainer(ctx, name) // a day would be missing, so one answer is not enough
		}
		switch {
		case err == nil:
			found[i] = newDay(dates[i], c)
			s.containers.remember(found[i])
			s.absent.forget(name)
			return nil
		case blob.Is(err, blob.Absent, blob.AbsentContainer):
			s.absent.remember(name, time.Now())
			return nil
		}
		err = blobError("look for container", blob.Ref{Container: name}, err)
		if blob.IsForbidden(err) {
			denials[i] = err
			return nil
		}
		return err
	})
	found = slices.DeleteFunc(found, func(d day) bool { return d.container == "" })
	return found, cmp.Or(denials...), err
}

// maxNear is how many days a search asks for by name. For more, a listing of the containers is cheaper.
const maxNear = 3

// nearDates returns the dates of the days that the times in the filters leave, newest first, or nil if there are
// more than maxNear.
func nearDates(f storage.Filters) (dates []time.Time) {
	const aDay = 24 * time.Hour
	before := driver.CreatedBefore(f)
	first := f.After.Add(time.Millisecond).UTC().Truncate(aDay) // the times of IDs are whole milliseconds
	last := before.Add(-1).UTC().Truncate(aDay)
	if f.After.IsZero() || before.IsZero() || last.Sub(first) >= maxNear*aDay {
		return nil
	}
	for date := last; !date.Before(first); date = date.AddDate(0, 0, -1) {
		dates = append(dates, date)
	}
	return dates
}

// near returns those of the days that exist. It sends no request for a container that the vault knows.
func (s *store) near(ctx context.Context, dates []time.Time) ([]day, error) {
	found, forbidden, err := s.ask(ctx, dates, s.containers.day)
	if forbidden != nil && (s.probing == 0 || len(found) == 0) {
		return nil, forbidden
	}
	return found, err
}

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

// selectDays returns the vault's days that have any time between two bounds, newest first.
func (s *store) selectDays(ctx context.Context, after, before time.Time) ([]day, error) {
	days, err := s.days(ctx)
	return slices.DeleteFunc(days, func(d day) bool {
		_, ok := stretch(d, storage.Filters{After: after, Before: before})
		return !ok
	}), err
}

// checkDays checks bounds that select days.
func checkDays(name string, after, before time.Time) error {
	if !after.IsZero() && !before.IsZero() && !after.Before(before) {
		return driver.Invalid(name, "%v is not before Before, %v", after.Format(time.RFC3339Nano), before.Format(time.RFC3339Nano))
	}
	return nil
}

// used reports whether a budget that began at some time is used up. A budget of 0 is unlimited.
func used(budget time.Duration, began time.Time) bool {
	return budget > 0 && time.Since(began) >= budget
}
