package mirror

import (
	"context"
	"errors"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/internal/plannote"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Of the records of keys, a copy has what operators have set: limits and pauses. It has no holders, and its records are not
// searched: a promoted copy finds by its own plans who has turns, and gives none twice. Of Uniques it has no records until it is
// promoted, because whoever submits a plan searches for none. What the vault knew of turns before it became a copy is removed.

// reserveUniques reserves the Unique of each open plan that has one, as Submit does. Of several with the same one, a plan that works
// gets it, or else the oldest. A record that is there already stays.
func reserveUniques(ctx context.Context, copied side) error {
	first := map[string]storage.ListResult{}
	found, err := copied.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
	if err != nil {
		return err
	}
	for f := range found {
		p, other := f.Result, first[f.Result.Unique]
		switch {
		case f.Err != nil && !single(f.Err) && !errors.Is(f.Err, storage.ErrForeign):
			return f.Err
		case f.Err != nil || p.Unique == "":
		case other.Unique == "", works(p) && !works(other), works(p) == works(other) && driver.NewestFirst(other.ID, p.ID) < 0:
			first[p.Unique] = p
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(defaultConcurrency)
	for unique, p := range first {
		g.Go(func() error {
			_, err := copied.PutKey(ctx, storage.KeyRecord{
				Name: plannote.UniqueRecord + unique, Searched: true, Holders: []storage.Holder{{Plan: p.ID, Limit: 1, Taken: true}},
			})
			if errors.Is(err, storage.ErrExists) {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// works reports whether a plan may have a turn for its Unique.
func works(p storage.ListResult) bool { return p.State.Status == workflow.Running && p.WaitsFor == "" }

// bringKeys copies what operators have set of keys, and removes what they have no longer set.
func (r *run) bringKeys(ctx context.Context) {
	source, ok := storage.As[storage.Control](r.from)
	if !ok || r.opts.DryRun {
		return
	}
	there, whole := r.keys(source.Keys(ctx))
	here, _ := r.keys(r.to.Keys(ctx))
	for name, k := range there {
		if copied := here[name]; isSet(k.Limit, k.PausedUntil) && (!sameSetting(k, copied) || copied.Searched || copied.Holders > 0) {
			r.writeKey(ctx, func(ctx context.Context) error {
				_, err := r.to.PutKey(ctx, storage.KeyRecord{Name: name, Limit: k.Limit, PausedUntil: k.PausedUntil, By: k.By, Version: copied.Version})
				return err
			})
		}
	}
	for name, k := range here {
		if set := there[name]; isSet(set.Limit, set.PausedUntil) || !whole {
			continue
		}
		// A listing may miss a record, so the source is asked again.
		switch found, err := source.FindKey(ctx, name); {
		case err == nil && isSet(found.Limit, found.PausedUntil):
		case err == nil, errors.Is(err, storage.ErrNotFound):
			r.writeKey(ctx, func(ctx context.Context) error { return r.to.RemoveKey(ctx, name, k.Version) })
		default:
			r.failed(err)
		}
	}
}

// keys returns keys by name, and whether all could be read.
func (r *run) keys(keys iter.Seq[storage.Stream[storage.ListedKey]], err error) (all map[string]storage.ListedKey, whole bool) {
	if err != nil {
		r.failed(err)
		return nil, false
	}
	all, whole = map[string]storage.ListedKey{}, true
	for k := range keys {
		if k.Err != nil {
			r.failed(k.Err)
			whole = false
			continue
		}
		all[k.Result.Name] = k.Result
	}
	return all, whole
}

// isSet reports whether an operator has set a limit or a pause.
func isSet(limit int, paused time.Time) bool { return limit > 0 || !paused.IsZero() }

func sameSetting(a, b storage.ListedKey) bool {
	return a.Limit == b.Limit && a.PausedUntil.Equal(b.PausedUntil) && a.By.By == b.By.By && a.By.Why == b.By.Why && a.By.At.Equal(b.By.At)
}

// writeKey writes the record of a key in the copy. Somebody else may have changed it: the next run looks again.
func (r *run) writeKey(ctx context.Context, do func(ctx context.Context) error) {
	err := r.write(ctx, do)
	if err != nil && !errors.Is(err, storage.ErrExists) && !errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrNotFound) {
		r.failed(err)
	}
}
