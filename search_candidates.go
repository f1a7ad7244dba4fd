package azblob

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage/driver"
)

// Which candidates the pieces of the days have, or the filters name.

// inDays yields the candidates of the days that the filters leave, newest first.
func (q search) inDays(ctx context.Context) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		now := time.Now()
		windows, err := q.windows(ctx, now)
		if err != nil {
			yield(candidate{}, err)
			return
		}
		for p, err := range listing.Newest(ctx, q.pieces(windows, now), q.options(len(windows), now)) {
			if !yield(p, err) {
				return
			}
		}
	}
}

// list yields the candidates of some days, newest first.
func (q search) list(ctx context.Context, days []day, o listing.Options) iter.Seq2[candidate, error] {
	return listing.Newest(ctx, q.pieces(stretches(days, q.f), o.Now), o)
}

// aimed reports whether every plan that is read is wanted, up to a limit.
func (q search) aimed() bool { return q.f.Limit > 0 && wantsAll(q.f) }

// options returns the options of a listing of some days.
func (q search) options(days int, now time.Time) listing.Options {
	size := blob.MaxPage
	switch {
	case q.aimed():
		size = min(4*min(q.f.Limit, blob.MaxPage)+burst, blob.MaxPage)
	case isOpen(q.f.ByStatus):
		size = pageOfMarkers(days)
	}
	o := q.pages(size)
	o.Limit, o.Aimed, o.Now = q.f.Limit, q.aimed(), now
	return o
}

// windows returns the parts of days that the filters leave, newest first. An aimed listing also needs the minutes of today,
// so windows asks for them and the days at once.
func (q search) windows(ctx context.Context, now time.Time) ([]window, error) {
	if dates := nearDates(q.f); dates != nil {
		days, err := q.near(ctx, dates)
		return stretches(days, q.f), err
	}
	date := now.UTC().Truncate(24 * time.Hour)
	today, ok := stretch(day{container: q.prefix.day(date), date: date}, q.f)
	if !ok || !q.aimed() {
		days, err := q.days(ctx)
		return stretches(days, q.f), err
	}
	var days []day
	var known minutes
	err := q.parallel(2, func(i int) (err error) {
		if i == 0 {
			days, err = q.days(ctx)
			return err
		}
		known.groups, known.err = q.plansOf(today.day, q.f).Groups(ctx, today.Span)
		return nil // the listing has the error if the day exists
	})
	windows := stretches(days, q.f)
	for i := range windows {
		if windows[i].container == today.container {
			windows[i].minutes = &known
		}
	}
	return windows, err
}

// pieces returns how to read the windows: past days by their catalogues, markers for open plans, and the others by
// listings of their plans.
func (q search) pieces(windows []window, now time.Time) []listing.Day[candidate] {
	days := make([]listing.Day[candidate], len(windows))
	for i, w := range windows {
		days[i] = listing.Day[candidate]{Span: w.Span, Source: q.plansOf(w.day, q.f)}
		switch {
		case isOpen(q.f.ByStatus) && w.marked:
			days[i].Source = listedMarkers{directory{store: q.store, day: w.day, dir: openDir}, q.f, now}
		case isOpen(q.f.ByStatus):
		case q.mayBeCatalogued(w.day, now):
			days[i].Catalogue = &catalogued{search: q, window: w}
		case w.minutes != nil:
			days[i].Source = measured{days[i].Source, w}
		}
	}
	return days
}

// measured is a source that knows the minutes of its window.
type measured struct {
	listing.Source[candidate]
	window
}

func (m measured) Groups(ctx context.Context, s listing.Span) ([]uint64, error) {
	if s == m.Span {
		return m.minutes.groups, m.minutes.err
	}
	return m.Source.Groups(ctx, s)
}

// named yields the plans that the filters name, newest first.
func (q search) named() iter.Seq2[candidate, error] {
	ids := slices.Clone(q.f.ByIDs)
	slices.SortFunc(ids, driver.NewestFirst)
	ids = slices.Compact(ids)
	return func(yield func(candidate, error) bool) {
		for _, id := range ids {
			p := candidate{planBlobs: planBlobs{keys: q.prefix.plan(id)}}
			if driver.ChooseID(q.f, id) && !yield(p, nil) {
				return
			}
		}
	}
}
