package azblob

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// List yields the plans, newest first (by the time in their IDs); at most limit of them, or all when limit is 0. It reads one
// day after the other, so what it holds at a time grows with a day's plans and not with the vault's.
//
// The errors of the arguments and ErrClosed come at once; all others come as a Stream with an Err: the last one, when the
// service fails or ctx ends, or one in place of a plan whose metadata can't be read, after which the rest comes. No request
// is sent before the sequence is ranged over; breaking out of the loop leaves nothing behind.
func (v *Vault) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	if limit < 0 {
		return nil, edge("List", uuid.Nil, storage.Invalid("limit", "%d is negative", limit))
	}
	return v.stream(ctx, "List", storage.Filters{Limit: limit})
}

// Search yields the plans that match the filters, newest first, as List does. Plans are found by ID with two requests each,
// all at once; other filters are applied to a listing of the days that After, Before and BeforeID leave.
func (v *Vault) Search(ctx context.Context, filters storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	if err := filters.Check(); err != nil {
		return nil, edge("Search", uuid.Nil, err)
	}
	return v.stream(ctx, "Search", filters)
}

// holds says whether a day can have plans that the filters leave.
func holds(f storage.Filters, day time.Time) bool {
	next := day.AddDate(0, 0, 1)
	return (f.After.IsZero() || f.After.Before(next)) &&
		(f.Before.IsZero() || f.Before.After(day)) &&
		(f.BeforeID == uuid.Nil || !workflow.Time(f.BeforeID).Before(day))
}

// stream yields what the filters choose.
func (v *Vault) stream(ctx context.Context, op string, f storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	end, err := v.begin()
	if err != nil {
		return nil, edge(op, uuid.Nil, err)
	}
	end() // only a look: each range over the sequence is a call of its own

	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		end, err := v.begin()
		if err != nil {
			yield(storage.Stream[storage.ListResult]{Err: edge(op, uuid.Nil, err)})
			return
		}
		defer end()

		found := v.scan(ctx, f)
		if len(f.ByIDs) > 0 {
			found = v.lookUp(ctx, f)
		}
		n := 0
		for p, err := range found {
			var r storage.ListResult
			chosen := true
			if err == nil {
				r, chosen, err = v.result(ctx, p, f)
			}
			if err != nil {
				if !yield(storage.Stream[storage.ListResult]{Err: edge(op, p.id, err)}) {
					return
				}
				continue
			}
			if !chosen {
				continue
			}
			if ctx.Err() != nil { // what was listed before that is not the end of it
				yield(storage.Stream[storage.ListResult]{Err: edge(op, uuid.Nil, ctx.Err())})
				return
			}
			if !yield(storage.Stream[storage.ListResult]{Result: r}) {
				return
			}
			if n++; n == f.Limit {
				return
			}
		}
	}, nil
}

// stored is what a listing says of one plan: its entry and object, either of which may be missing.
type stored struct {
	keys          keys
	id            uuid.UUID
	entry, object *blob.Item
}

// committed says whether it is a plan: an entry without an object is one in progress, or what is left of one.
func (s stored) committed() bool { return s.entry != nil && s.object != nil }

// half says what is wrong with one that is not committed.
func (s stored) half() string {
	switch {
	case s.entry != nil:
		return "an entry without object: a create or delete was broken off"
	case s.object != nil:
		return "an object without entry: a removal was broken off"
	}
	return "markers without a plan: a create or delete was broken off"
}

// any returns the entry or the object, whichever is there.
func (s stored) any() *blob.Item {
	if s.entry != nil {
		return s.entry
	}
	return s.object
}

// result reads a plan's metadata, and says whether the filters choose it; and its entry where that is too long for metadata.
func (v *Vault) result(ctx context.Context, s stored, f storage.Filters) (r storage.ListResult, chosen bool, err error) {
	r, cut, err := listed(s.entry.Metadata, s.id, typeEntry)
	if err != nil {
		return r, false, at("read metadata of entry", s.keys.entry(), err)
	}
	r.State.ETag = storage.Version(s.entry.ETag, r.State.Status)
	if chosen = f.Choose(r); !chosen || len(cut) == 0 {
		return r, chosen, nil
	}
	entry, err := v.readEntry(ctx, s.keys)
	if err != nil {
		return r, false, err
	}
	r.Name, r.Descr = entry.Name, entry.Descr
	return r, true, nil
}

// scan yields the plans of all days that the filters leave, newest first. An error ends it.
func (v *Vault) scan(ctx context.Context, f storage.Filters) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		days, err := v.days(ctx)
		if err != nil {
			yield(stored{}, err)
			return
		}
		for _, day := range days {
			if !holds(f, day.date) {
				continue
			}
			var plans []stored
			for p, err := range v.listPlans(ctx, day.container) {
				if err != nil {
					yield(stored{}, err)
					return
				}
				if p.committed() && f.ChooseID(p.id) {
					plans = append(plans, p)
				}
			}
			for _, p := range slices.Backward(plans) {
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// lookUp yields the plans that the filters name, newest first.
func (v *Vault) lookUp(ctx context.Context, f storage.Filters) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		ids := slices.Clone(f.ByIDs)
		slices.SortFunc(ids, storage.NewestFirst)
		ids = slices.Compact(ids)
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return !f.ChooseID(id) })
		for chunk := range slices.Chunk(ids, v.concurrency) {
			plans := make([]stored, len(chunk))
			errs := make([]error, len(chunk))
			_ = v.parallel(len(chunk), func(i int) error {
				plans[i], errs[i] = v.look(ctx, v.prefix.plan(chunk[i]))
				return nil // one that can't be read does not keep the rest
			})
			for i, p := range plans {
				if errs[i] == nil && !p.committed() {
					continue
				}
				if !yield(p, errs[i]) {
					return
				}
				if ctx.Err() != nil && errs[i] != nil {
					return
				}
			}
		}
	}
}

// look asks for a plan's entry and object by name.
func (v *Vault) look(ctx context.Context, keys keys) (stored, error) {
	s := stored{keys: keys, id: keys.plan}
	err := v.parallel(2, func(i int) error {
		ref, into := keys.entry(), &s.entry
		if i == 1 {
			ref, into = keys.object(), &s.object
		}
		p, err := v.client.Head(ctx, ref)
		if err == nil {
			*into = &blob.Item{Name: ref.Name, Properties: p}
		} else if !blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return at("look for plan", ref, err)
		}
		return nil
	})
	return s, err
}

// day is a container of this vault.
type day struct {
	container string
	date      time.Time
	// marked says that everything open in it has a marker: it was made by this layout.
	marked bool
}

// days lists the vault's containers, newest first.
func (v *Vault) days(ctx context.Context) ([]day, error) {
	var days []day
	for page, err := range v.client.ListContainers(ctx, v.prefix.containers()) {
		if err != nil {
			return nil, at("list containers", blob.Ref{Container: v.prefix.containers() + "*"}, err)
		}
		for _, c := range page {
			if date, ok := v.prefix.parseDay(c.Name); ok {
				days = append(days, day{c.Name, date, c.Metadata[metaLayout] != ""})
			}
		}
	}
	slices.Reverse(days)
	return days, nil
}

// listPlans yields what plans/ of a container holds, oldest plan first, with the metadata. An error ends it.
func (v *Vault) listPlans(ctx context.Context, container string) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		var now stored // an entry and its object are neighbours, but may be on two pages
		for page, err := range v.client.List(ctx, container, blob.ListOptions{Prefix: plansDir, Metadata: true}) {
			if blob.Is(err, blob.AbsentContainer) {
				break // dropped as a whole
			}
			if err != nil {
				yield(stored{}, at("list plans", blob.Ref{Container: container, Name: plansDir}, err))
				return
			}
			for _, item := range page.Items {
				name, ok := parseName(item.Name)
				if !ok || v.prefix.plan(name.plan).container != container {
					continue // not a vault's; Check reports it
				}
				if name.plan != now.id {
					if now.id != uuid.Nil && !yield(now, nil) {
						return
					}
					now = stored{keys: v.prefix.plan(name.plan), id: name.plan}
				}
				if name.role == roleEntry {
					now.entry = &item
				} else {
					now.object = &item
				}
			}
		}
		if now.id != uuid.Nil {
			yield(now, nil)
		}
	}
}
