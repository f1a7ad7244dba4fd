package azblob

import (
	"bytes"
	"context"
	"iter"
	"math"
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
func (v *Vault) Search(ctx context.Context, filters storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	if err := driver.CheckFilters(filters); err != nil {
		return nil, opError("Search", uuid.Nil, err)
	}
	return v.stream(ctx, "Search", filters)
}

// found is a plan that was found, or that may be one.
type found struct {
	keys   keys
	result storage.ListResult
	cut    bool  // name and description are too long for metadata: the entry has them whole
	err    error // why this one can't be read
	// deleting says of one that was found by its marker that it has a delete marker, too.
	deleting bool
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
			if p.cut && p.err == nil {
				p.err = v.complete(ctx, &p)
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

// complete reads the entry of a plan for what is too long for metadata.
func (v *Vault) complete(ctx context.Context, p *found) error {
	entry, err := v.readEntry(ctx, p.keys)
	if err == nil {
		p.result.Name, p.result.Descr = entry.Name, entry.Descr
	}
	return err
}

// find yields the plans that the filters choose, newest first, in the cheapest way. An error ends it.
func (v *Vault) find(ctx context.Context, f storage.Filters) iter.Seq2[found, error] {
	switch {
	case len(f.ByIDs) > 0:
		return v.lookUp(ctx, f)
	case isOpen(f.ByStatus):
		return v.scanOpen(ctx, f)
	}
	return v.scan(ctx, f)
}

// isOpen says whether only plans that are not final are asked for: these have markers.
func isOpen(statuses []workflow.Status) bool {
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, workflow.Status.Final)
}

// choose reads the metadata of a plan's entry, and says whether the filters choose the plan. One that can't be read is chosen,
// so that it is told of.
func choose(f storage.Filters, keys keys, entry blob.Properties) (p found, chosen bool) {
	p.keys = keys
	r, cut, err := parseMetadata(entry.Metadata, keys.plan, typeEntry)
	if err != nil {
		p.err = blobError("read metadata of entry", keys.entry(), err)
		return p, true
	}
	r.State.ETag = driver.Version(entry.ETag, &workflow.Plan{State: r.State})
	p.result, p.cut = r, len(cut) > 0
	return p, driver.Choose(f, r)
}

// A listing reads pages of the service's size; with a limit it aims at pages between that and what is wanted, in the middle
// of their orders of magnitude, so that a day which is denser or thinner than thought does not take another request. Markers
// are few and looked at one by one, so their pages are small and many days are read at once.
const markersPage = 500

// maxAhead is how many blobs may be read ahead, about. Each page takes a few MiB: five keep the round trips of a large vault
// within their budget, and the memory too.
const maxAhead = 5 * blob.MaxPage

// scan lists plans/ of the days that the filters leave.
func (v *Vault) scan(ctx context.Context, f storage.Filters) iter.Seq2[found, error] {
	page := blob.MaxPage
	if f.Limit > 0 && len(f.ByGroupIDs)+len(f.ByStatus) == 0 {
		page = int(math.Sqrt(float64(blob.MaxPage) * min(float64(2*f.Limit), blob.MaxPage)))
	}
	return v.inDays(ctx, f, page, v.plans(f))
}

// plans lists plans/ for the plans that the filters choose.
func (v *Vault) plans(f storage.Filters) source[found] {
	return directory(v, plansDir, isEntry, func(b planBlobs) (found, bool) {
		if !b.committed() {
			return found{}, false
		}
		return choose(f, b.keys, b.entry.Properties)
	})
}

// scanOpen lists the markers of the days that the filters leave, and looks at the plans that have one. Days that this layout
// did not make may have plans without markers, so these are listed.
func (v *Vault) scanOpen(ctx context.Context, f storage.Filters) iter.Seq2[found, error] {
	markers := directory(v, openDir, nil, func(b planBlobs) (found, bool) {
		return found{keys: b.keys, deleting: b.deleteMarker != nil}, true
	})
	plans := v.plans(f)
	of := func(w window) source[found] {
		if w.marked {
			return markers
		}
		return plans
	}
	candidates := v.inDays(ctx, f, markersPage, source[found]{
		read: func(ctx context.Context, w window) (reading[found], error) { return of(w).read(ctx, w) },
		last: func(ctx context.Context, w window) (from, to uuid.UUID, err error) { return of(w).last(ctx, w) },
	})
	return v.looked(candidates, f.Limit, func(p found) (found, bool) {
		if p.err != nil || p.result.ID != uuid.Nil { // listed, not marked
			return p, true
		}
		return v.lookOpen(ctx, f, p)
	})
}

// lookOpen looks at the entry of a plan that has a marker. One that is Running is a plan, unless it is being deleted; in all
// other cases the object tells.
func (v *Vault) lookOpen(ctx context.Context, f storage.Filters, marked found) (p found, chosen bool) {
	failed := func(ref blob.Ref, err error) (found, bool) {
		return found{keys: marked.keys, err: blobError("look for plan", ref, err)}, !blob.Is(err, blob.Absent, blob.AbsentContainer)
	}
	entry, err := v.client.Head(ctx, marked.keys.entry())
	if err != nil {
		return failed(marked.keys.entry(), err)
	}
	p, chosen = choose(f, marked.keys, entry)
	if !chosen || p.result.State.Status == workflow.Running && !marked.deleting {
		return p, chosen
	}
	if _, err := v.client.Head(ctx, marked.keys.object()); err != nil {
		return failed(marked.keys.object(), err)
	}
	return p, true
}

// inDays reads the days that the filters leave, newest first.
func (v *Vault) inDays(ctx context.Context, f storage.Filters, page int, from source[found]) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		days, err := v.days(ctx)
		if err != nil {
			yield(found{}, err)
			return
		}
		// Whoever wants a few may have them soon, so no more is read ahead than was used already.
		ahead := func(used int) int { return min(used, v.ahead(page)) }
		if f.Limit == 0 {
			ahead = func(int) int { return v.ahead(page) }
		}
		for p, err := range backwards(ctx, stretches(days, f), page, ahead, from) {
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// ahead is how many pages are read ahead.
func (v *Vault) ahead(page int) int { return min(v.concurrency, maxAhead/page) }

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

// directory is one of those whose names begin with a plan's ID. Of each plan take takes what is wanted, for which it needs the
// metadata of the blobs that metadataOf says; nil is none.
func directory[E any](v *Vault, dir string, metadataOf func(name string) bool, take func(planBlobs) (e E, wanted bool)) source[E] {
	return source[E]{
		read: func(ctx context.Context, w window) (reading[E], error) { return list(ctx, v, dir, metadataOf, w, take) },
		last: func(ctx context.Context, w window) (from, to uuid.UUID, err error) { return v.last(ctx, dir, w) },
	}
}

// last lists the minutes in which a day has plans, and returns the last one before the window's end.
func (v *Vault) last(ctx context.Context, dir string, w window) (from, to uuid.UUID, err error) {
	for groups, err := range v.client.ListGroups(ctx, w.container, dir, groupEnd) {
		if blob.Is(err, blob.AbsentContainer) {
			break // dropped as a whole
		}
		if err != nil {
			return from, to, blobError("list", blob.Ref{Container: w.container, Name: dir}, err)
		}
		for _, group := range groups {
			if first, behind, ok := parseGroup(dir, group); ok && bytes.Compare(first[:], w.to[:]) < 0 {
				from, to = first, behind
			}
		}
	}
	return from, to, nil
}

// list reads a window of a directory. A listing that is longer than thought goes on where the pages are short, and else is
// left to another window.
func list[E any](ctx context.Context, v *Vault, dir string, metadataOf func(name string) bool, w window, take func(planBlobs) (e E, wanted bool)) (reading[E], error) {
	got := reading[E]{from: w.from, to: w.to}
	name := func(id uuid.UUID) string { return dir + id.String() }
	from, to, floor := name(w.from), name(w.to), name(w.floor)
	limit := w.limit
	if limit == 0 || limit > blob.MaxPage {
		limit = blob.MaxPage
	}
	opts := blob.ListOptions{Prefix: dir, StartFrom: from, Metadata: metadataOf != nil, MetadataOf: metadataOf, MaxResults: limit}
	if w.from == firstID(w.date) {
		opts.StartFrom = "" // all of it
	}
	var plan planBlobs // its blobs are neighbours, but may be on two pages
	plans := 0
	finish := func() {
		if plans == 0 {
			return
		}
		if e, wanted := take(plan); wanted {
			got.items = append(got.items, e)
		}
	}
	for page, err := range v.client.List(ctx, w.container, opts) {
		if blob.Is(err, blob.AbsentContainer) {
			return reading[E]{from: w.from, to: w.to}, nil // dropped as a whole
		}
		if err != nil {
			return got, blobError("list", blob.Ref{Container: w.container, Name: dir}, err)
		}
		for _, item := range page.Items {
			if item.Name < from {
				// Services before version 2026-02-06 do not know startFrom, and begin at the first name.
				got.from, from = w.floor, floor
				if item.Name < from {
					continue
				}
			}
			if item.Name >= to {
				finish()
				return got, nil
			}
			n, ok := parseName(item.Name)
			if !ok || v.prefix.plan(n.plan).container != w.container {
				continue // not a vault's; Check reports it
			}
			if n.plan != plan.keys.plan {
				finish()
				if plans++; plans == 1 {
					got.first = n.plan
				}
				plan = planBlobs{keys: v.prefix.plan(n.plan), marked: w.marked}
			}
			plan.add(n, item)
			got.blobs++
		}
		if page.More && plans > 1 && got.blobs >= limit/2 && got.from == w.from {
			got.blobs -= len(plan.all())
			got.to = plan.keys.plan // there may be more of it
			return got, nil
		}
	}
	finish()
	return got, nil
}

// lookUp looks for the plans that the filters name.
func (v *Vault) lookUp(ctx context.Context, f storage.Filters) iter.Seq2[found, error] {
	ids := slices.Clone(f.ByIDs)
	slices.SortFunc(ids, driver.NewestFirst)
	ids = slices.Compact(ids)
	named := func(yield func(found, error) bool) {
		for _, id := range ids {
			if driver.ChooseID(f, id) && !yield(found{keys: v.prefix.plan(id)}, nil) {
				return
			}
		}
	}
	return v.looked(named, f.Limit, func(p found) (found, bool) {
		s, err := v.headPlan(ctx, "look for plan", p.keys)
		switch {
		case err != nil:
			p.err = err
			return p, true
		case !s.committed():
			return p, false
		}
		return choose(f, p.keys, s.entry.Properties)
	})
}

// looked looks at what may be plans, as many at a time as the vault has requests in flight and as are wanted, and yields those
// that are chosen.
func (v *Vault) looked(candidates iter.Seq2[found, error], limit int, look func(found) (p found, chosen bool)) iter.Seq2[found, error] {
	atOnce := v.concurrency
	if limit > 0 {
		atOnce = min(atOnce, limit)
	}
	return func(yield func(found, error) bool) {
		var some []found
		flush := func() bool {
			chosen := make([]bool, len(some))
			_ = v.parallel(len(some), func(i int) error {
				some[i], chosen[i] = look(some[i])
				return nil // one that can't be read does not keep the rest
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
