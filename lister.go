package azblob

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// List yields plans, newest first by the time in their IDs: at most limit of them, or all if limit is 0 or
// less. It reads each day from its end. With a limit it reads about as much as is wanted, so that neither
// requests nor memory grow with the vault. Without a limit it reads up to five pages ahead, unless
// [WithConcurrency] allows fewer.
//
// List itself returns ErrInvalid or ErrClosed. Every other error is a Stream with an Err. If the service
// fails or ctx ends, this is the last element. If the metadata of a plan can't be read, it takes the place of
// that plan, and the others follow. No request is sent before the sequence is ranged over, and each range
// over it lists anew. Breaking out of the loop cancels the requests under way.
func (v *Vault) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return v.stream(ctx, "List", storage.Filters{Limit: max(limit, 0)})
}

// Search yields the plans that match the filters, newest first, as [Vault.List] does. It finds plans by ID
// with two requests each, all at once. If only NotStarted or Running plans are wanted, it finds them by their
// markers, with one or two requests each, or with a listing for many of them. It applies other filters to a
// listing of the time that After, Before and BeforeID leave.
//
// Searches for NotStarted plans may be repeated every few seconds. With After and Before at most three days
// apart, they cost one listing for each day, and do not look again at plans that this vault has seen after
// their start.
func (v *Vault) Search(ctx context.Context, filters storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	if err := driver.CheckFilters(filters); err != nil {
		return nil, v.observe(ctx, "Search", uuid.Nil, func(context.Context) error { return err })
	}
	return v.stream(ctx, "Search", filters)
}

// stream returns the sequence of the plans that the filters choose. Each range over it is an operation.
func (v *Vault) stream(ctx context.Context, name string, f storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	end, err := v.begin()
	if err != nil {
		return nil, v.observe(ctx, name, uuid.Nil, func(context.Context) error { return err })
	}
	end()
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		v.observe(ctx, name, uuid.Nil, func(ctx context.Context) error { return v.yieldPlans(ctx, name, f, yield) })
	}, nil
}

// yieldPlans yields the plans that the filters choose. It returns the error that ended the sequence, or else
// the first one of a plan in it.
func (v *Vault) yieldPlans(ctx context.Context, name string, f storage.Filters, yield func(storage.Stream[storage.ListResult]) bool) (first error) {
	failed := func(plan uuid.UUID, err error) bool {
		err = opError(name, plan, err)
		first = cmp.Or(first, err)
		return yield(storage.Stream[storage.ListResult]{Err: err})
	}
	end, err := v.begin()
	if err != nil {
		failed(uuid.Nil, err)
		return err
	}
	defer end()

	n := 0
	for p, err := range v.findAnywhere(ctx, f, true) {
		if err == nil {
			err = ctx.Err() // an incomplete listing must end with an error
		}
		if err != nil {
			failed(uuid.Nil, err)
			return err
		}
		if p.err != nil {
			if !failed(p.keys.plan, p.err) {
				return first
			}
			continue
		}
		if !yield(storage.Stream[storage.ListResult]{Result: p.result}) {
			return first
		}
		if n++; n == f.Limit {
			return first
		}
	}
	return first
}

// findAnywhere is find. A search that fails over to the secondary continues after the last plan that it has
// yielded.
func (v *Vault) findAnywhere(ctx context.Context, f storage.Filters, results bool) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		ended := false
		err := v.anywhere(ctx, func(ctx context.Context, from *Vault) error {
			for p, err := range from.find(ctx, f, results) {
				if err != nil {
					return err
				}
				switch {
				case p.err == nil:
				case from.lagging:
					p.err = v.second.excuse(p.err)
				case v.mayFailOver(ctx) && unavailable(p.err):
					return p.err
				}
				if ended = !yield(p, nil); ended {
					return nil
				}
				f.BeforeID = p.keys.plan
			}
			return nil
		})
		if err != nil && !ended {
			yield(candidate{}, err)
		}
	}
}

// find yields the plans that the filters choose, newest first, in the cheapest way. Without results, it need
// not set those of the candidates. An error is the last element.
func (v *Vault) find(ctx context.Context, f storage.Filters, results bool) iter.Seq2[candidate, error] {
	var candidates iter.Seq2[candidate, error]
	switch {
	case len(f.ByIDs) > 0:
		candidates = v.searchByID(ctx, f)
	case isOpen(f.ByStatus):
		candidates = v.searchOpen(ctx, f)
	case !results && inNames(f):
		return v.inDays(ctx, f, v.names().of, results)
	default:
		candidates = v.inDays(ctx, f, v.plans(f).of, results)
	}
	isLong := func(p candidate) bool { return p.err == nil && (p.undecided || results && p.truncated) }
	return v.lookAtAll(candidates, f.Limit, isLong, func(p candidate) (_ candidate, chosen bool) {
		chosen = v.readLongFields(ctx, f, &p)
		return p, chosen
	})
}

// readLongFields reads the name and description of a plan from its entry, and reports whether the filters choose
// the plan. They are too long for metadata.
func (v *Vault) readLongFields(ctx context.Context, f storage.Filters, p *candidate) (chosen bool) {
	entry, err := v.readEntry(ctx, p.keys)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) { // it was listed a moment ago
		entry, err = v.readEntry(ctx, p.keys)
	}
	if err != nil {
		p.err = err
		return v.lagging || !blob.Is(err, blob.Absent, blob.AbsentContainer) // deleted since it was listed
	}
	p.result.Name, p.result.Descr = entry.Name, entry.Descr
	return driver.Choose(f, p.result)
}

// inNames reports whether the names of a plan's blobs tell all that the filters ask for.
func inNames(f storage.Filters) bool {
	return len(f.ByGroupIDs)+len(f.ByStatus)+len(f.NamePrefix)+len(f.NameContains) == 0 && f.EndedAfter.IsZero() && f.EndedBefore.IsZero()
}

// isOpen reports whether the statuses are those of open plans alone. Open plans have markers.
func isOpen(statuses []workflow.Status) bool {
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, workflow.Status.Final)
}

const (
	// markersPage is how many markers a page holds at least. In a vault of many days, small pages of all days
	// are read at once.
	markersPage = 500
	// maxAhead is about how many blobs are read ahead. A page of 5,000 takes a few MiB. Five of them keep the
	// round trips of a large vault within their budget, and the memory, too.
	maxAhead = 5 * blob.MaxPage
	// burst is how many more blobs than are wanted fit on a page, because plans are often created many at a
	// time.
	burst = 50
)

// searchOpen lists the markers of each day and looks at their plans. A closed day with a catalogue has none. A
// day without planvaultlayout may have open plans without markers, so its plans are listed.
func (v *Vault) searchOpen(ctx context.Context, f storage.Filters) iter.Seq2[candidate, error] {
	markers, plans := directory{v: v, dir: openDir, take: (*candidate).isMarked}, v.plans(f)
	now := time.Now()
	candidates := v.started.search(f, v.inDays(ctx, f, func(d day) listing.Source[candidate] {
		if d.marked {
			return unlessCatalogued{dayDirectory{markers, d}, now}
		}
		return plans.of(d)
	}, true))
	heads := 1
	if onlyNotStarted(f) {
		heads = 2
	}
	candidates = v.listNeighbors(ctx, candidates, heads, f.Limit, isEntry)
	return v.lookAtAll(candidates, f.Limit, func(p candidate) bool { return p.marked }, func(p candidate) (candidate, bool) {
		p, chosen := v.headOpen(ctx, f, p)
		v.started.note(p)
		return p, chosen
	})
}

// headOpen looks at the entry of a plan that has a marker. If the plan is Running and has no delete marker,
// it existed when the markers were listed, unless a Restore may be writing it. Otherwise, headOpen looks at the
// object, too. A plan that a listing has shown whole since then needs no further look.
func (v *Vault) headOpen(ctx context.Context, f storage.Filters, p candidate) (_ candidate, chosen bool) {
	failed := func(ref blob.Ref, err error) (candidate, bool) {
		p.err = blobError("look for plan", ref, err)
		return p, !blob.Is(err, blob.Absent, blob.AbsentContainer)
	}
	if p.committed() {
		chosen = p.choose(v.format, f, p.entry.Properties)
		return p, chosen
	}
	entry, err := v.headAgain(ctx, p.keys.entry())
	if err != nil {
		return failed(p.keys.entry(), err)
	}
	p.entry = &blob.Item{Properties: entry}
	if chosen = p.choose(v.format, f, entry); !chosen || p.result.State.Status == workflow.Running && p.deleteMarker == nil && !restored(p.entry) {
		return p, chosen
	}
	if _, err := v.headAgain(ctx, p.keys.object()); err != nil {
		return failed(p.keys.object(), err)
	}
	return p, true
}

// pages returns the options that list everything, by pages of a size: as many at once as the vault may have requests in
// flight, and as fit in memory.
func (v *Vault) pages(size int) listing.Options {
	return listing.Options{Page: size, Ahead: min(v.concurrency, max(1, maxAhead/size)), Now: time.Now()}
}

// newest lists parts of days, newest first: those that may have a catalogue by that, unless h is nil.
func (v *Vault) newest(ctx context.Context, windows []window, from func(day) listing.Source[candidate], h *history, o listing.Options) iter.Seq2[candidate, error] {
	days := make([]listing.Day[candidate], len(windows))
	for i, w := range windows {
		days[i] = listing.Day[candidate]{Span: w.Span, Source: from(w.day)}
		if h != nil && v.mayBeCatalogued(w.day, o.Now) {
			days[i].Open = func(ctx context.Context) (listing.Catalogue[candidate], error) { return h.open(ctx, w) }
		}
	}
	return listing.Newest(ctx, days, o)
}

// inDays reads the days that the filters leave, newest first: closed days by their catalogues, unless it searches
// for open plans, and the others by listings.
func (v *Vault) inDays(ctx context.Context, f storage.Filters, from func(day) listing.Source[candidate], results bool) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		page, aimed := blob.MaxPage, f.Limit > 0 && inNames(f)
		if aimed {
			page = min(4*min(f.Limit, blob.MaxPage)+burst, blob.MaxPage)
		}
		o := v.pages(page)
		o.Aimed = aimed
		days, from, err := v.daysOf(ctx, f, from, o)
		if err != nil {
			yield(candidate{}, err)
			return
		}
		windows, h := stretches(days, f), &history{v, f, results}
		if isOpen(f.ByStatus) {
			h, o = nil, v.pages(pageOfMarkers(len(windows)))
		}
		o.Limit = f.Limit
		for p, err := range v.newest(ctx, windows, from, h, o) {
			if !yield(p, err) {
				return
			}
		}
	}
}

// pageOfMarkers returns how many markers a page holds, so that the pages of all days are read at once.
func pageOfMarkers(days int) int {
	return min(max(markersPage, maxAhead/max(1, days)), blob.MaxPage)
}

// daysOf lists the days. An aimed listing also needs the minutes of today, unless the filters exclude it, so daysOf asks
// for these at the same time, and returns a source that has them.
func (v *Vault) daysOf(ctx context.Context, f storage.Filters, from func(day) listing.Source[candidate], o listing.Options) (days []day, _ func(day) listing.Source[candidate], err error) {
	if dates := nearDates(f); dates != nil {
		days, err = v.near(ctx, dates)
		return days, from, err
	}
	today := o.Now.UTC().Truncate(24 * time.Hour)
	w, ok := stretch(day{container: v.prefix.day(today), date: today}, f)
	if !ok || !o.Aimed {
		days, err = v.days(ctx)
		return days, from, err
	}
	known := measured{span: w.Span}
	err = v.parallel(2, func(i int) (err error) {
		if i == 0 {
			days, err = v.days(ctx)
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

// measured is a source of which the groups of one span are known.
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

// searchByID looks at the plans that the filters name.
func (v *Vault) searchByID(ctx context.Context, f storage.Filters) iter.Seq2[candidate, error] {
	ids := slices.Clone(f.ByIDs)
	slices.SortFunc(ids, driver.NewestFirst)
	ids = slices.Compact(ids)
	named := func(yield func(candidate, error) bool) {
		for _, id := range ids {
			p := candidate{planBlobs: planBlobs{keys: v.prefix.plan(id)}}
			if driver.ChooseID(f, id) && !yield(p, nil) {
				return
			}
		}
	}
	return v.lookAtAll(named, f.Limit, func(candidate) bool { return true }, func(p candidate) (candidate, bool) {
		p.planBlobs, p.err = v.headPlan(ctx, "look for plan", p.keys)
		if p.err == nil && len(p.missing()) == 1 { // is being written or removed, or one of the answers was false
			p.planBlobs, p.err = v.headPlan(ctx, "look for plan", p.keys)
		}
		if p.err != nil || !p.committed() {
			return p, p.err != nil
		}
		chosen := p.choose(v.format, f, p.entry.Properties)
		return p, chosen
	})
}

// lookAtAll looks at the candidates that need it, and yields those that are chosen and the others. It looks at
// as many at a time as the vault may have requests in flight. With a limit it begins with as many as are wanted,
// and doubles the number each time.
func (v *Vault) lookAtAll(candidates iter.Seq2[candidate, error], limit int, needed func(candidate) bool, look func(candidate) (p candidate, chosen bool)) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		atOnce := v.concurrency
		if limit > 0 {
			atOnce = min(atOnce, limit)
		}
		var some []candidate
		flush := func() bool {
			chosen := make([]bool, len(some))
			_ = v.parallel(len(some), func(i int) error {
				if chosen[i] = true; needed(some[i]) {
					some[i], chosen[i] = look(some[i])
				}
				return nil // the others follow a plan that can't be read
			})
			for i, p := range some {
				if chosen[i] && !yield(p, nil) {
					return false
				}
			}
			some, atOnce = some[:0], min(2*atOnce, v.concurrency)
			return true
		}
		for p, err := range candidates {
			if err != nil {
				if flush() {
					yield(p, err)
				}
				return
			}
			if len(some) == 0 && !needed(p) {
				if !yield(p, nil) {
					return
				}
				continue
			}
			if some = append(some, p); len(some) == atOnce && !flush() {
				return
			}
		}
		flush()
	}
}
