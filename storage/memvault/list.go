package memvault

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// List yields the plans, newest first: at most limit of them, or all if limit is 0.
func (v *Vault) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return v.stream(ctx, "List", storage.Filters{Limit: limit}, func() error { return driver.CheckLimit("limit", limit) })
}

// Search yields the plans that match, as List does.
func (v *Vault) Search(ctx context.Context, filters storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return v.stream(ctx, "Search", filters, func() error { return driver.CheckFilters(filters) })
}

// Count returns how many plans match.
func (v *Vault) Count(ctx context.Context, filters storage.Filters) (n int, err error) {
	err = v.call(ctx, "Count", new(uuid.UUID), func() error {
		if err := driver.CheckCount(filters); err != nil {
			return err
		}
		found, err := v.store.search(filters)
		n = len(found)
		return err
	})
	return n, err
}

// stream yields the plans that are stored at the moment when the sequence is ranged over.
func (v *Vault) stream(ctx context.Context, op string, f storage.Filters, check func() error) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	// If the context has ended, the sequence says so.
	if err := v.call(context.WithoutCancel(ctx), op, new(uuid.UUID), check); err != nil {
		return nil, err
	}
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		var found []storage.ListResult
		err := v.call(ctx, op, new(uuid.UUID), func() (err error) {
			found, err = v.store.search(f)
			return err
		})
		for _, r := range found {
			if !yield(storage.Stream[storage.ListResult]{Result: r}) {
				return
			}
			if err = v.call(ctx, op, new(uuid.UUID), func() error { return nil }); err != nil {
				break
			}
		}
		if err != nil {
			yield(storage.Stream[storage.ListResult]{Err: err})
		}
	}, nil
}

func (s *Store) search(f storage.Filters) ([]storage.ListResult, error) {
	var found []storage.ListResult
	for _, id := range slices.SortedFunc(maps.Keys(s.plans), driver.NewestFirst) {
		var p workflow.Plan
		if err := s.plans[id].now[id].decode(&p); err != nil {
			return nil, err
		}
		version, _, _ := driver.SplitVersion(p.State.ETag)
		p.State.ETag = driver.Version(version, &p) // p has no children here
		if r := driver.Listed(&p); driver.Choose(f, r) {
			found = append(found, r)
		}
		if f.Limit > 0 && len(found) == f.Limit {
			break
		}
	}
	return found, nil
}
