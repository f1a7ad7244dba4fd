package azblob

import (
	"cmp"
	"context"
	"errors"
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
// List itself returns ErrInvalid or ErrClosed. Every other error is a Stream with an Err. If the service fails or ctx
// ends, this is the last element. If the metadata of a plan can't be read, it takes the place of that plan, and the
// others follow; for a plan of another program it is [storage.ErrForeign], whatever the filters are. No request is sent
// before the sequence is ranged over, and each range over it lists anew. Breaking out of the loop cancels the requests
// under way.
func (v *Vault) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return v.stream(ctx, "List", storage.Filters{Limit: max(limit, 0)}, nil)
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
	return v.stream(ctx, "Search", filters, driver.CheckFilters(filters))
}

// stream returns the sequence of the plans that the filters choose, unless the call is refused. Each range over it is
// an operation.
func (v *Vault) stream(ctx context.Context, name string, f storage.Filters, refusal error) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	if err := v.refuse(ctx, name, refusal); err != nil {
		return nil, err
	}
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		v.observer.observe(ctx, name, uuid.Nil, func(ctx context.Context) error { return v.yieldPlans(ctx, name, f, yield) })
	}, nil
}

// yieldPlans yields the plans that the filters choose. It returns the error that ended the sequence, or else
// the first one of a plan in it.
func (v *Vault) yieldPlans(ctx context.Context, name string, f storage.Filters, yield func(storage.Stream[storage.ListResult]) bool) (first error) {
	failed := func(plan uuid.UUID, err error) bool {
		err = opError(name, plan, err)
		if !errors.Is(err, storage.ErrForeign) { // nothing failed
			first = cmp.Or(first, err)
		}
		return yield(storage.Stream[storage.ListResult]{Err: err})
	}
	end, err := v.begin()
	if err != nil {
		failed(uuid.Nil, err)
		return err
	}
	defer end()

	n := 0
	for p, err := range (search{v.store, f, true}).find(ctx) {
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

// search is a search for plans.
type search struct {
	*store
	f       storage.Filters
	results bool // whether the results are wanted, or only the number of plans
}

// find yields the plans that the filters choose, newest first, in the cheapest way. Without results, it need
// not set those of the candidates. An error is the last element.
func (q search) find(ctx context.Context) iter.Seq2[candidate, error] {
	var candidates iter.Seq2[candidate, error]
	switch {
	case driver.SelectsNothing(q.f):
		return func(func(candidate, error) bool) {}
	case len(q.f.ByIDs) > 0:
		candidates = q.searchByID(ctx)
	case isOpen(q.f.ByStatus):
		candidates = q.searchOpen(ctx)
	default:
		candidates = q.inDays(ctx, q.plans(q.f).of)
	}
	isLong := func(p candidate) bool { return p.err == nil && (p.undecided || q.results && p.truncated) }
	return q.lookAtAll(candidates, isLong, func(p candidate) (_ candidate, chosen bool) {
		chosen = !isLong(p) || q.readLongFields(ctx, &p)
		return p, chosen
	})
}

// readLongFields reads the name and description of a plan from its entry, and reports whether the filters choose
// the plan. They are too long for metadata.
func (q search) readLongFields(ctx context.Context, p *candidate) (chosen bool) {
	entry, err := q.plan(p.keys).readEntry(ctx)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) { // it was listed a moment ago
		entry, err = q.plan(p.keys).readEntry(ctx)
	}
	if err != nil {
		p.err = err
		return !blob.Is(err, blob.Absent, blob.AbsentContainer) // deleted since it was listed
	}
	p.result.Name, p.result.Descr = entry.Name, entry.Descr
	return driver.Choose(q.f, p.result)
}

// isOpen reports whether the statuses are those of open plans alone. Open plans have markers.
func isOpen(statuses []workflow.Status) bool {
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, workflow.Status.Final)
}

// searchOpen lists the markers of each day and looks at their plans. A closed day with a catalogue has none. A
// day without planvaultlayout may have open plans without markers, so its plans are listed.
func (q search) searchOpen(ctx context.Context) iter.Seq2[candidate, error] {
	markers, plans := directory{store: q.store, dir: openDir, take: func(p *candidate) bool {
		return p.isMarked() && driver.ChooseID(q.f, p.keys.plan)
	}}, q.plans(q.f)
	now := time.Now()
	candidates := q.notStarted(q.inDays(ctx, func(d day) listing.Source[candidate] {
		if d.marked {
			return unlessCatalogued{dayDirectory{markers, d}, now}
		}
		return plans.of(d)
	}))
	heads := 1
	if onlyNotStarted(q.f) {
		heads = 2
	}
	candidates = q.listNeighbors(ctx, candidates, heads, q.f.Limit, isEntry)
	return q.lookAtAll(candidates, func(p candidate) bool { return p.marked && !p.committed() }, func(p candidate) (candidate, bool) {
		if !p.marked { // its day was listed in full
			return p, true
		}
		p, chosen := q.headOpen(ctx, p)
		q.noteStarted(p)
		return p, chosen
	})
}

// headOpen looks at the entry of a plan that has a marker. If the plan is Running and has no delete marker,
// it existed when the markers were listed, unless a Restore may be writing it. Otherwise, headOpen looks at the
// object, too. A plan that a listing has shown whole since then needs no further look.
func (q search) headOpen(ctx context.Context, p candidate) (_ candidate, chosen bool) {
	failed := func(ref blob.Ref, err error) (candidate, bool) {
		p.err = blobError("look for plan", ref, err)
		return p, !blob.Is(err, blob.Absent, blob.AbsentContainer)
	}
	if p.committed() {
		chosen = p.choose(q.format, q.f, p.entry.Properties)
		return p, chosen
	}
	entry, err := q.headAgain(ctx, p.keys.entry())
	if err != nil {
		return failed(p.keys.entry(), err)
	}
	p.entry = &blob.Item{Properties: entry}
	if chosen = p.choose(q.format, q.f, entry); !chosen || p.result.State.Status == workflow.Running && p.deleteMarker == nil && !restored(p.entry) {
		return p, chosen
	}
	if _, err := q.headAgain(ctx, p.keys.object()); err != nil {
		return failed(p.keys.object(), err)
	}
	return p, true
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

// searchByID looks at the plans that the filters name.
func (q search) searchByID(ctx context.Context) iter.Seq2[candidate, error] {
	ids := slices.Clone(q.f.ByIDs)
	slices.SortFunc(ids, driver.NewestFirst)
	ids = slices.Compact(ids)
	named := func(yield func(candidate, error) bool) {
		for _, id := range ids {
			p := candidate{planBlobs: planBlobs{keys: q.prefix.plan(id)}}
			if driver.ChooseID(q.f, id) && !yield(p, nil) {
				return
			}
		}
	}
	return q.lookAtAll(named, func(candidate) bool { return true }, func(p candidate) (candidate, bool) {
		p.planBlobs, p.err = q.plan(p.keys).headPlan(ctx, "look for plan")
		if p.err == nil && len(p.missing()) == 1 { // is being written or removed, or one of the answers was false
			p.planBlobs, p.err = q.plan(p.keys).headPlan(ctx, "look for plan")
		}
		if p.err != nil || !p.committed() {
			return p, p.err != nil
		}
		chosen := p.choose(q.format, q.f, p.entry.Properties)
		return p, chosen
	})
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

// Count returns how many plans the filters select. It sends the requests of [Vault.Search] without a limit, and
// none for names that are too long for metadata unless it has to look for a name. Memory does not grow with the vault.
//
// Changes made while it runs may or may not count. A plan whose metadata can't be read does not count; the error
// then names the first one. If there are only plans of another program besides those that count, the error is a
// [*storage.ForeignError]. With any other error the count is 0.
func (v *Vault) Count(ctx context.Context, filters storage.Filters) (n int64, err error) {
	err = v.call(ctx, "Count", uuid.Nil, func(ctx context.Context) error {
		err := driver.CheckCount(filters)
		if err == nil {
			n, err = v.count(ctx, filters)
		}
		return err
	})
	return n, err
}

// count counts the plans that the filters choose. The error is that of the first plan that can't be read, or the
// error that ended the listing.
func (v *Vault) count(ctx context.Context, f storage.Filters) (n int64, unread error) {
	var others storage.ForeignError
	var firstOther uuid.UUID
	for p, err := range (search{v.store, f, false}).find(ctx) {
		if err == nil {
			err = ctx.Err() // an incomplete listing must not pass for a count
		}
		if err != nil {
			return 0, err
		}
		switch {
		case p.err == nil:
			n += max(1, p.weight)
		case errors.Is(p.err, storage.ErrForeign):
			if others.Plans++; others.Plans == 1 {
				firstOther = p.keys.plan
			}
		default:
			unread = cmp.Or(unread, opError("Count", p.keys.plan, p.err))
		}
	}
	if unread == nil && others.Plans > 0 {
		unread = opError("Count", firstOther, &others)
	}
	return n, unread
}

// notStarted yields the candidates of a search for NotStarted plans without those that are known to have started.
func (q search) notStarted(candidates iter.Seq2[candidate, error]) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		began := time.Now()
		for p, err := range candidates {
			if err == nil && p.marker != nil && q.started.relisted(p.keys.plan, p.marker.ETag, began) && onlyNotStarted(q.f) {
				continue
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
		q.started.forget(q.f, began)
	}
}

// noteStarted remembers a candidate that was looked at, if the plan has started. An entry that is older than the
// marker belongs to an earlier plan of this ID, whose remains are being removed.
func (q search) noteStarted(p candidate) {
	if p.marker == nil || p.entry == nil || p.err != nil ||
		p.result.State.Status == workflow.NotStarted || p.entry.LastModified.Before(p.marker.LastModified) {
		return
	}
	q.started.note(p.keys.plan, p.marker.ETag)
}

// onlyNotStarted reports whether the filters ask for no other status.
func onlyNotStarted(f storage.Filters) bool {
	return !slices.ContainsFunc(f.ByStatus, func(s workflow.Status) bool { return s != workflow.NotStarted })
}
