package azblob

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// List yields plans, newest first by the time in their IDs: at most limit of them, or all if limit is 0. With a
// limit it reads about as much as is wanted, so neither requests nor memory grow with the vault. Without a limit it reads up
// to five pages ahead, unless [Options].Concurrency allows fewer.
//
// List itself returns ErrInvalid, for a negative limit, or ErrClosed. Every other error is a Stream with an Err. If the
// service fails or ctx ends, it is the last element. If the metadata of a plan can't be read, it takes the plan's place, and
// the others follow; for a plan of another program it is [storage.ErrForeign], whatever the filters are. Each range over the
// sequence lists again. Breaking out of the loop cancels the requests under way.
func (v *Vault) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return v.stream(ctx, "List", storage.Filters{Limit: limit}, driver.CheckLimit("limit", limit))
}

// Search yields the plans that match the filters, newest first, as [Vault.List] does. It looks up plans by ID with two
// requests each, all at once. It finds open plans by their markers, with one or two requests each, or with a listing for
// many of them. It applies other filters to a listing of the time that After, Before and BeforeID leave.
//
// Searches for NotStarted plans may be repeated every few seconds. With After and Before at most three days apart, they
// cost one listing for each day, and don't look again at plans that this vault has seen started.
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

// yieldPlans yields the plans that the filters choose. It returns the error that ended the sequence, or the first error of
// a plan.
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

// find yields the plans that the filters choose, newest first. Its stages read downwards: days, their pieces, the candidates
// in these, and what decides about a candidate. An error is the last element.
func (q search) find(ctx context.Context) iter.Seq2[candidate, error] {
	if q.f.ByKey != "" {
		q.f.ByStatus = openOf(q.f.ByStatus)
	}
	var candidates iter.Seq2[candidate, error]
	switch {
	case driver.SelectsNothing(q.f):
		return func(func(candidate, error) bool) {}
	case len(q.f.ByIDs) > 0:
		candidates = q.named()
	case isOpen(q.f.ByStatus):
		candidates = q.listNeighbors(ctx, q.notStarted(q.inDays(ctx)), q.heads(), q.f.Limit, isEntry)
	default:
		candidates = q.inDays(ctx)
	}
	return q.complete(ctx, q.complete(ctx, candidates, theEntry), theTexts)
}

// Count returns how many plans the filters select. It sends the requests of [Vault.Search] without a limit, but reads a name
// that is too long for metadata only if a filter needs it. Memory does not grow with the vault.
//
// Changes made meanwhile may or may not count. A plan whose metadata can't be read does not count; the error names the
// first. If the others are plans of another program, the error is a [*storage.ForeignError]. With any other error the count
// is 0.
func (v *Vault) Count(ctx context.Context, filters storage.Filters) (n int, err error) {
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
func (v *Vault) count(ctx context.Context, f storage.Filters) (n int, unread error) {
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
