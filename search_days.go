package azblob

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Which days there are, and which part of each is wanted.

// day is a container of this vault.
type day struct {
	container string
	date      time.Time
	// marked says that the vault made the container, so each open plan in it has a marker.
	marked bool
	// hinted says that the day has had a catalogue, so it may have one.
	hinted   bool
	metadata map[string]string // of the container
	// lease and seen are the container's lease, and the service's clock, when the container was listed.
	lease blob.Lease
	seen  time.Time
}

func newDay(date time.Time, c blob.ContainerItem) day {
	return day{c.Name, date, c.Metadata[metaLayout] != "", c.Metadata[metaCatalogue] != "", c.Metadata, c.Lease, c.Seen}
}

// isOld reports whether a day is over at a time of the service. An unknown time counts as late.
func isOld(date, seen time.Time) bool {
	return seen.IsZero() || !seen.Before(date.AddDate(0, 0, 1))
}

// pastAfter is how long after its beginning a day is past: the next day is over, too. The service's answers come from
// many machines, so one change may be dated before midnight and a later one after it. But a change that finds its day
// young commits within the grace period, long before the day is past.
const pastAfter = 48 * time.Hour

// isPast reports whether a day is past at a time of the service. At an unknown time it is not.
func isPast(date, seen time.Time) bool { return !seen.IsZero() && !seen.Before(date.Add(pastAfter)) }

// date returns the start of the plan's day.
func (k keys) date() time.Time { return workflow.Time(k.plan).UTC().Truncate(24 * time.Hour) }

// days lists the vault's containers, newest first. If the service denies that, it asks for each by name.
func (s *store) days(ctx context.Context) ([]day, error) {
	var days []day
	for page, err := range s.client.ListContainers(ctx, s.prefix.containerPrefix()) {
		if err != nil {
			denied := blobError("list containers", blob.Ref{Container: s.prefix.containerPrefix() + "*"}, err)
			switch {
			case !blob.IsForbidden(err):
				return nil, denied
			case s.probing == 0:
				return nil, fmt.Errorf("%w: give the identity the right to list containers, or use Options.DayProbing", denied)
			}
			return s.probe(ctx, denied)
		}
		for _, c := range page {
			if date, ok := s.prefix.parseDay(c.Name); ok {
				days = append(days, newDay(date, c))
				s.containers.remember(c)
			}
		}
	}
	slices.Reverse(days)
	return days, nil
}

// probe asks for the days from tomorrow back by name. Containers to which the identity has no rights count as absent. If
// it has rights to none, probe returns denied.
func (s *store) probe(ctx context.Context, denied error) ([]day, error) {
	const ahead = 1 // storage.MaxAhead, in days
	dates := make([]time.Time, ahead+1+s.probing)
	for i := range dates {
		dates[i] = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, ahead-i)
	}
	found, forbidden, err := s.ask(ctx, dates, false)
	if len(found) == 0 && forbidden != nil {
		return nil, denied
	}
	return found, err
}

// ask asks for days by name; if cached is set, only for those that the vault does not know. A day to which the identity has
// no rights counts as absent; forbidden is the error of one.
func (s *store) ask(ctx context.Context, dates []time.Time, cached bool) (found []day, forbidden, err error) {
	found = make([]day, len(dates))
	denials := make([]error, len(dates))
	err = s.parallel(len(dates), func(i int) error {
		name := s.prefix.day(dates[i])
		if c, ok := s.containers.listed(name); ok && cached {
			found[i] = newDay(dates[i], c)
			return nil
		}
		c, err := s.client.HeadContainer(ctx, name)
		if blob.Is(err, blob.Absent, blob.AbsentContainer) && !s.absent.has(name, time.Now()) {
			c, err = s.client.HeadContainer(ctx, name) // a day would be missing, so one answer is not enough
		}
		switch {
		case err == nil:
			found[i] = newDay(dates[i], c)
			s.containers.remember(c)
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

// maxNear is how many days a search asks for by name. Listing the containers is cheaper for more.
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

// near returns the days that exist. It sends no request for a container that the vault knows.
func (s *store) near(ctx context.Context, dates []time.Time) ([]day, error) {
	found, forbidden, err := s.ask(ctx, dates, true)
	if forbidden != nil && (s.probing == 0 || len(found) == 0) {
		return nil, forbidden
	}
	return found, err
}

// selectDays returns the vault's days from one to another, newest first. The zero Day is no bound.
func (s *store) selectDays(ctx context.Context, from, to storage.Day) ([]day, error) {
	days, err := s.days(ctx)
	return slices.DeleteFunc(days, func(d day) bool {
		return d.date.Before(from.Start()) || !to.IsZero() && d.date.After(to.Start())
	}), err
}

// stretches returns the parts of days that the filters leave.
func stretches(days []day, f storage.Filters) []window {
	var list []window
	for _, d := range days {
		if w, ok := stretch(d, f); ok {
			list = append(list, w)
		}
	}
	return list
}

// stretch returns the part of a day that the filters leave by time and BeforeID, or false if they leave nothing.
func stretch(d day, f storage.Filters) (w window, ok bool) {
	w = window{day: d, Span: listing.Span{From: listing.FirstID(d.date), To: listing.FirstID(d.date.AddDate(0, 0, 1))}}
	// IDs have whole milliseconds. The first one after a time is the next, whether the time is whole or not.
	if after := listing.FirstID(f.After.Add(time.Millisecond)); !f.After.IsZero() && listing.Less(w.From, after) {
		w.From = after
	}
	if bound := driver.CreatedBefore(f); !bound.IsZero() {
		if before := listing.FirstID(bound.Add(time.Millisecond - 1)); listing.Less(before, w.To) {
			w.To = before
		}
	}
	if before := f.BeforeID; before != uuid.Nil && listing.Less(before, w.To) {
		w.To = before
	}
	return w, listing.Less(w.From, w.To)
}

// window is a part of a day.
type window struct {
	day
	listing.Span
	minutes *minutes // those of the window, if they are known
}

// minutes are the groups of a window, or the error of asking for them.
type minutes struct {
	groups []uint64
	err    error
}
