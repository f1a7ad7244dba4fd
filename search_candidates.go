package azblob

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// search is a search for plans.
type search struct {
	*store
	f       storage.Filters
	results bool // whether the results are wanted, or only the number of plans
}

// inDays reads the days that the filters leave, newest first: closed days by their catalogues, unless it searches
// for open plans, and the others by listings.
func (q search) inDays(ctx context.Context, from func(day) listing.Source[candidate]) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		page, aimed := blob.MaxPage, q.f.Limit > 0 && wantsAll(q.f)
		if aimed {
			page = min(4*min(q.f.Limit, blob.MaxPage)+burst, blob.MaxPage)
		}
		o := q.pages(page)
		o.Aimed = aimed
		days, from, err := q.daysOf(ctx, from, o)
		if err != nil {
			yield(candidate{}, err)
			return
		}
		windows, open := stretches(days, q.f), history{q.store, q.f, q.results}.opener
		if isOpen(q.f.ByStatus) {
			open, o = nil, q.pages(pageOfMarkers(len(windows)))
		}
		o.Limit = q.f.Limit
		for p, err := range newest(ctx, windows, from, open, o) {
			if !yield(p, err) {
				return
			}
		}
	}
}

// daysOf lists the days. An aimed listing also needs the minutes of today, unless the filters exclude it, so daysOf asks
// for these at the same time, and returns a source that has them.
func (q search) daysOf(ctx context.Context, from func(day) listing.Source[candidate], o listing.Options) (days []day, _ func(day) listing.Source[candidate], err error) {
	if dates := nearDates(q.f); dates != nil {
		days, err = q.near(ctx, dates)
		return days, from, err
	}
	today := o.Now.UTC().Truncate(24 * time.Hour)
	w, ok := stretch(day{container: q.prefix.day(today), date: today}, q.f)
	if !ok || !o.Aimed {
		days, err = q.days(ctx)
		return days, from, err
	}
	known := measured{span: w.Span}
	err = q.parallel(2, func(i int) (err error) {
		if i == 0 {
			days, err = q.days(ctx)
			return err
		}
		known.groups, known.err = from(w.day).Groups(ctx, w.Span)
		return nil // the listing has the error if the day exists
	})
	return days, func(d day) listing.Source[candidate] {
		if d.container != w.container {
			return from(d)
		}
		known.Source = from(d)
		return known
	}, err
}

// measured is a source that knows the groups of one span.
type measured struct {
	listing.Source[candidate]
	span   listing.Span
	groups []uint64
	err    error
}

func (m measured) Groups(ctx context.Context, s listing.Span) ([]uint64, error) {
	if s == m.span {
		return m.groups, m.err
	}
	return m.Source.Groups(ctx, s)
}

// lookAtAll looks at the candidates, and yields those that are chosen. A look sends requests if asks says so. As many of
// these looks are taken at once as the vault may have requests in flight, wherever they lie among lookAhead candidates.
// With a limit it begins with as many as are wanted, and doubles the number each time.
func (q search) lookAtAll(candidates iter.Seq2[candidate, error], asks func(candidate) bool, look func(candidate) (p candidate, chosen bool)) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		atOnce, most := q.concurrency, lookAhead
		if q.f.Limit > 0 {
			atOnce, most = min(atOnce, q.f.Limit), q.f.Limit
		}
		var some []candidate
		asking := 0 // how many of them ask
		flush := func() bool {
			chosen := make([]bool, len(some))
			_ = q.parallel(len(some), func(i int) error {
				some[i], chosen[i] = look(some[i])
				return nil // the others follow a plan that can't be read
			})
			for i, p := range some {
				if chosen[i] && !yield(p, nil) {
					return false
				}
			}
			some, asking, atOnce = some[:0], 0, min(2*atOnce, q.concurrency)
			return true
		}
		for p, err := range candidates {
			if err != nil {
				if flush() {
					yield(p, err)
				}
				return
			}
			switch {
			case asks(p):
				asking++
			case len(some) == 0:
				if p, chosen := look(p); chosen && !yield(p, nil) {
					return
				}
				continue
			}
			some = append(some, p)
			if (asking == atOnce || len(some) >= max(most, atOnce)) && !flush() {
				return
			}
		}
		flush()
	}
}

// The candidates of a search for open plans are their markers.

// isOpen reports whether the statuses are those of open plans alone. Open plans have markers.
func isOpen(statuses []workflow.Status) bool {
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, workflow.Status.Final)
}
