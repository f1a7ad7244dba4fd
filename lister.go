package azblob

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// List yields the plans, newest first (by the time in their IDs); at most limit of them, or all when limit is 0 or less. A day is read
// from its end, in pieces, and with a limit no more of it than that takes: so neither the requests nor the memory grow with the
// vault. Without a limit some pieces are read ahead.
//
// The errors of the arguments and ErrClosed come at once; all others come as a Stream with an Err: the last one, when the
// service fails or ctx ends, or one in place of a plan whose metadata can't be read, after which the rest comes. No request
// is sent before the sequence is ranged over; breaking out of the loop leaves nothing behind.
func (v *Vault) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return v.stream(ctx, "List", storage.Filters{Limit: max(limit, 0)})
}

// Search yields the plans that match the filters, newest first, as List does. Plans are found by ID with two requests each,
// all at once. Those that are NotStarted or Running are found by their markers, with one or two requests each. Other filters
// are applied to a listing of what After, Before and BeforeID leave.
//
// Searches for NotStarted plans may be repeated every few seconds. With After and Before at most three days apart, they cost
// one listing for each day, and do not look again at plans that this vault has seen after their start.
func (v *Vault) Search(ctx context.Context, filters storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	if err := driver.CheckFilters(filters); err != nil {
		return nil, opError("Search", uuid.Nil, err)
	}
	return v.stream(ctx, "Search", filters)
}

// stream yields what the filters choose.
func (v *Vault) stream(ctx context.Context, op string, f storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	end, err := v.begin()
	if err != nil {
		return nil, opError(op, uuid.Nil, err)
	}
	end() // only a look: each range over the sequence is a call of its own

	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		failed := func(plan uuid.UUID, err error) bool {
			return yield(storage.Stream[storage.ListResult]{Err: opError(op, plan, err)})
		}
		end, err := v.begin()
		if err != nil {
			failed(uuid.Nil, err)
			return
		}
		defer end()

		n := 0
		for p, err := range v.find(ctx, f) {
			if err == nil {
				err = ctx.Err() // what was listed before that is not the end of it
			}
			if err != nil {
				failed(uuid.Nil, err)
				return
			}
			if p.truncated && p.err == nil {
				p.err = v.readLongFields(ctx, &p)
			}
			if p.err != nil {
				if !failed(p.keys.plan, p.err) {
					return
				}
				continue
			}
			if !yield(storage.Stream[storage.ListResult]{Result: p.result}) {
				return
			}
			if n++; n == f.Limit {
				return
			}
		}
	}, nil
}

// readLongFields reads the entry of a plan for what is too long for metadata.
func (v *Vault) readLongFields(ctx context.Context, p *candidate) error {
	entry, err := v.readEntry(ctx, p.keys)
	if err == nil {
		p.result.Name, p.result.Descr = entry.Name, entry.Descr
	}
	return err
}

// find yields the plans that the filters choose, newest first, in the cheapest way. An error ends it.
func (v *Vault) find(ctx context.Context, f storage.Filters) iter.Seq2[candidate, error] {
	switch {
	case len(f.ByIDs) > 0:
		return v.searchByID(ctx, f)
	case isOpen(f.ByStatus):
		return v.searchOpen(ctx, f)
	}
	return v.inDays(ctx, f, v.plans(f))
}

// isOpen says whether only plans that are not final are asked for: these have markers.
func isOpen(statuses []workflow.Status) bool {
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, workflow.Status.Final)
}

// choose reads the metadata of a plan's entry into the candidate, and reports whether the filters choose the plan. A plan whose
// metadata can't be read is chosen, so that its error is shown.
func (p *candidate) choose(f storage.Filters, entry blob.Properties) bool {
	r, truncated, err := parseMetadata(entry.Metadata, p.keys.plan, typeEntry)
	if err != nil {
		p.err = blobError("read metadata of entry", p.keys.entry(), err)
		return true
	}
	r.State.ETag = driver.Version(entry.ETag, &workflow.Plan{State: r.State})
	p.result, p.truncated = r, len(truncated) > 0
	return driver.Choose(f, r)
}

const (
	// markersPage is how many markers a window should hold. A HEAD follows for each, so pages are small, and many days are read
	// at once.
	markersPage = 500
	// maxAhead is about how many blobs are read ahead. Each page takes a few MiB: five keep the round trips of a large vault
	// within their budget, and the memory too.
	maxAhead = 5 * blob.MaxPage
	// few is the largest limit at which no more is read than is wanted. With a higher one, the first page of a day is worth
	// its bytes, because it may have all that is wanted.
	few = 50
)

// plans reads plans/ for the plans that the filters choose.
func (v *Vault) plans(f storage.Filters) directory {
	return directory{v: v, dir: plansDir, metadataOf: isEntry, take: func(p *candidate) bool {
		entry := p.entry
		chosen := p.committed() && p.choose(f, entry.Properties)
		p.entry, p.object = nil, nil // thousands are in memory
		return chosen
	}}
}

// searchOpen lists the markers of the days that the filters leave, and looks at the plans that have one. Days without
// planvaultlayout may have open plans without markers, so their plans are listed.
func (v *Vault) searchOpen(ctx context.Context, f storage.Filters) iter.Seq2[candidate, error] {
	markers := directory{v: v, dir: openDir, take: func(*candidate) bool { return true }}
	candidates := v.started.search(f, v.inDays(ctx, f, byLayout{marked: markers, unmarked: v.plans(f)}))
	return v.headAll(candidates, f.Limit, func(p candidate) (candidate, bool) {
		if !p.marked {
			return p, true
		}
		p, chosen := v.headOpen(ctx, f, p)
		v.started.note(p)
		return p, chosen
	})
}

// byLayout reads one directory of days that promise markers, and another one of other days.
type byLayout struct{ marked, unmarked directory }

func (r byLayout) of(d day) directory {
	if d.marked {
		return r.marked
	}
	return r.unmarked
}

func (r byLayout) read(ctx context.Context, w window) (reading, error) {
	return r.of(w.day).read(ctx, w)
}

func (r byLayout) groups(ctx context.Context, w window) ([]group, error) {
	return r.of(w.day).groups(ctx, w)
}

// headOpen looks at the entry of a plan that has a marker. A Running plan without a delete marker was a plan when the markers
// were listed. Of any other the object is looked at, too.
func (v *Vault) headOpen(ctx context.Context, f storage.Filters, p candidate) (_ candidate, chosen bool) {
	failed := func(ref blob.Ref, err error) (candidate, bool) {
		p.err = blobError("look for plan", ref, err)
		return p, !blob.Is(err, blob.Absent, blob.AbsentContainer)
	}
	entry, err := v.client.Head(ctx, p.keys.entry())
	if err != nil {
		return failed(p.keys.entry(), err)
	}
	p.entry = &blob.Item{Properties: entry}
	if chosen = p.choose(f, entry); !chosen || p.result.State.Status == workflow.Running && p.deleteMarker == nil {
		return p, chosen
	}
	if _, err := v.client.Head(ctx, p.keys.object()); err != nil {
		return failed(p.keys.object(), err)
	}
	return p, true
}

// inDays reads the days that the filters leave, newest first.
func (v *Vault) inDays(ctx context.Context, f storage.Filters, from reader) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		page := blob.MaxPage
		exact := f.Limit > 0 && len(f.ByGroupIDs)+len(f.ByStatus) == 0
		switch {
		case isOpen(f.ByStatus) && !(onlyNotStarted(f) && nearDates(f) != nil): // a poll looks at new plans only
			page = markersPage
		case exact:
			page = min(4*(f.Limit+1), page)
		}
		s := v.newScan(from, page)
		s.limit, s.aimed = f.Limit, exact && f.Limit <= few
		days, err := v.daysOf(ctx, f, s)
		if err != nil {
			yield(candidate{}, err)
			return
		}
		for p, err := range s.run(ctx, stretches(days, f)) {
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// newScan returns a scan by pages of a size, as many at once as the vault has requests in flight and memory for.
func (v *Vault) newScan(from reader, page int) *scan {
	return &scan{reader: from, page: page, ahead: min(v.concurrency, maxAhead/page), now: time.Now()}
}

// daysOf lists the days. A scan for a few plans will ask for the minutes of today, unless the filters leave nothing of it, so
// these are asked for at the same time.
func (v *Vault) daysOf(ctx context.Context, f storage.Filters, s *scan) (days []day, err error) {
	if dates := nearDates(f); dates != nil {
		return v.near(ctx, dates)
	}
	today := s.now.UTC().Truncate(24 * time.Hour)
	w, ok := stretch(day{container: v.prefix.day(today), date: today}, f)
	if !ok || !s.aimed {
		return v.days(ctx)
	}
	early := asked{reader: s.reader, window: w}
	err = v.parallel(2, func(i int) (err error) {
		if i == 0 {
			days, err = v.days(ctx)
			return err
		}
		early.answer, early.err = s.groups(ctx, early.window)
		return nil // it is told when the day's turn comes, if that exists
	})
	s.reader = early
	return days, err
}

// asked is a reader that has asked for one window's groups.
type asked struct {
	reader
	window window
	answer []group
	err    error
}

func (r asked) groups(ctx context.Context, w window) ([]group, error) {
	if w.container == r.window.container && w.from == r.window.from && w.to == r.window.to {
		return r.answer, r.err
	}
	return r.reader.groups(ctx, w)
}

// stretches are the parts of days that the filters leave.
func stretches(days []day, f storage.Filters) []window {
	var list []window
	for _, d := range days {
		if w, ok := stretch(d, f); ok {
			list = append(list, w)
		}
	}
	return list
}

// stretch is the part of a day that After, Before and BeforeID leave; false where that is nothing.
func stretch(d day, f storage.Filters) (w window, ok bool) {
	w = window{day: d, from: firstID(d.date), to: firstID(d.date.AddDate(0, 0, 1))}
	// IDs tell whole milliseconds: the first one after a time is the next, whether the time is whole or not.
	if after := firstID(f.After.Add(time.Millisecond)); !f.After.IsZero() && bytes.Compare(after[:], w.from[:]) > 0 {
		w.from = after
	}
	if before := firstID(f.Before.Add(time.Millisecond - 1)); !f.Before.IsZero() && bytes.Compare(before[:], w.to[:]) < 0 {
		w.to = before
	}
	if before := f.BeforeID; before != uuid.Nil && bytes.Compare(before[:], w.to[:]) < 0 {
		w.to = before
	}
	return w, bytes.Compare(w.from[:], w.to[:]) < 0
}

// directory reads the blobs of one directory, whose names begin with a plan's ID.
type directory struct {
	v   *Vault
	dir string
	// metadataOf says by its name of which blobs metadata is needed; nil is none.
	metadataOf func(name string) bool
	// take completes what was listed of a plan, and reports whether it is wanted.
	take func(*candidate) bool
}

// inOne reports whether all IDs of the window are of one minute, or of one millisecond, so that their names begin alike.
func (w window) inOne(size uint64) bool {
	last := keyOf(w.to)
	if w.to == idOf(last) {
		last--
	}
	return keyOf(w.from)/size == last/size
}

// options are of a listing of a window, or of its minutes.
func (d directory) options(w window) blob.ListOptions {
	from := w.from.String()
	o := blob.ListOptions{Prefix: d.dir, StartFrom: d.dir + from}
	if w.wholeDay() {
		o.StartFrom = ""
	}
	if w.inOne(aMinute) {
		o.Prefix += from[:len("01234567-")]
	}
	return o
}

func (d directory) groups(ctx context.Context, w window) (groups []group, err error) {
	opts := d.options(w)
	if opts.StartFrom != "" {
		digits := len("01234567")
		if w.inOne(aMinute) {
			digits = len("01234567-89ab")
		}
		opts.StartFrom = opts.StartFrom[:len(d.dir)+digits]
	}
	for names, err := range d.v.client.ListGroups(ctx, w.container, opts, groupEnd) {
		if blob.Is(err, blob.AbsentContainer) {
			d.v.containers.forget(w.container)
			return nil, nil // dropped as a whole
		}
		if err != nil {
			return nil, blobError("list", blob.Ref{Container: w.container, Name: d.dir}, err)
		}
		for _, name := range names {
			if from, size, ok := parseGroup(d.dir, name); ok {
				groups = append(groups, group{from: from, size: size})
			}
		}
	}
	return groups, nil
}

// read lists a window. A listing that holds more than expected is left to another window, unless its pages are short.
func (d directory) read(ctx context.Context, w window) (reading, error) {
	got := reading{to: w.to}
	opts := d.options(w)
	opts.Metadata, opts.MetadataOf, opts.MaxResults = d.metadataOf != nil, d.metadataOf, min(w.limit, blob.MaxPage)
	from, to := d.dir+w.from.String(), d.dir+w.to.String()
	if w.inOne(aMillisecond) {
		opts.Prefix = from[:len(d.dir)+len("01234567-89ab-")]
	}
	var plan candidate // its blobs are neighbours, but may be on two pages
	plans := 0
	finish := func() {
		if plans > 0 && d.take(&plan) {
			got.plans = append(got.plans, plan)
		}
	}
	for page, err := range d.v.client.List(ctx, w.container, opts) {
		if blob.Is(err, blob.AbsentContainer) {
			d.v.containers.forget(w.container)
			return reading{to: w.to}, nil // dropped as a whole
		}
		if err != nil {
			return got, blobError("list", blob.Ref{Container: w.container, Name: d.dir}, err)
		}
		for _, item := range page.Items {
			if item.Name < from { // a service from before version 2026-02-06, or a stray
				if w.wholeDay() || w.inOne(aMinute) {
					continue
				}
				return reading{ignored: true}, nil
			}
			if item.Name >= to {
				finish()
				return got, nil
			}
			n, ok := parseName(item.Name)
			if !ok || d.v.prefix.plan(n.plan).container != w.container {
				continue // a stray; Check reports it
			}
			if n.plan != plan.keys.plan {
				finish()
				plans++
				plan = candidate{planBlobs: planBlobs{keys: d.v.prefix.plan(n.plan), marked: w.marked}}
			}
			plan.add(n, item)
			got.blobs++
		}
		if page.More && plans > 1 && got.blobs >= opts.MaxResults/2 && !w.unbounded {
			got.blobs -= len(plan.all())
			got.to = plan.keys.plan // there may be more of it
			return got, nil
		}
	}
	finish()
	return got, nil
}

// searchByID looks for the plans that the filters name.
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
	return v.headAll(named, f.Limit, func(p candidate) (candidate, bool) {
		p.planBlobs, p.err = v.headPlan(ctx, "look for plan", p.keys)
		if p.err != nil || !p.committed() {
			return p, p.err != nil
		}
		chosen := p.choose(f, p.entry.Properties)
		return p, chosen
	})
}

// headAll looks at candidates, as many at a time as the vault has requests in flight and as are wanted, and yields those that
// are chosen.
func (v *Vault) headAll(candidates iter.Seq2[candidate, error], limit int, head func(candidate) (p candidate, chosen bool)) iter.Seq2[candidate, error] {
	atOnce := v.concurrency
	if limit > 0 {
		atOnce = min(atOnce, limit)
	}
	return func(yield func(candidate, error) bool) {
		var some []candidate
		flush := func() bool {
			chosen := make([]bool, len(some))
			_ = v.parallel(len(some), func(i int) error {
				some[i], chosen[i] = head(some[i])
				return nil // a plan that can't be read does not keep the others
			})
			for i, p := range some {
				if chosen[i] && !yield(p, nil) {
					return false
				}
			}
			some = some[:0]
			return true
		}
		for p, err := range candidates {
			if err != nil {
				if flush() {
					yield(p, err)
				}
				return
			}
			if some = append(some, p); len(some) == atOnce && !flush() {
				return
			}
		}
		flush()
	}
}
