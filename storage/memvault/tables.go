package memvault

import (
	"context"
	"fmt"
	"iter"

	"github.com/google/uuid"
	"github.com/planvault/azblob/storage"
)

// table has the records of one kind by their names.
type table[T any] struct {
	kind    string
	rows    map[string]T
	version func(T) storage.Version
}

// put stores a record in place of the version was, or as a new one if that is empty.
func (t table[T]) put(name string, was storage.Version, row T) error {
	if _, taken := t.rows[name]; taken && was == "" {
		return fmt.Errorf("%w: %s %q", storage.ErrExists, t.kind, name)
	}
	if was != "" {
		if err := t.has(name, was); err != nil {
			return err
		}
	}
	t.rows[name] = row
	return nil
}

func (t table[T]) find(name string) (row T, err error) {
	row, ok := t.rows[name]
	if !ok {
		err = fmt.Errorf("%w: %s %q", storage.ErrNotFound, t.kind, name)
	}
	return row, err
}

func (t table[T]) remove(name string, version storage.Version) error {
	err := t.has(name, version)
	if err == nil {
		delete(t.rows, name)
	}
	return err
}

// has returns an error unless the record has this version.
func (t table[T]) has(name string, version storage.Version) error {
	row, err := t.find(name)
	if err != nil {
		return err
	}
	if stored := t.version(row); stored != version {
		return fmt.Errorf("%w: version %s is stored, not %s", storage.ErrConflict, stored, version)
	}
	return nil
}

// records yields the records that find returns at the moment when the sequence is ranged over.
func records[T any](ctx context.Context, c control, op string, check func() error, find func() []T) (iter.Seq[storage.Stream[T]], error) {
	if err := c.call(context.WithoutCancel(ctx), op, new(uuid.UUID), check); err != nil {
		return nil, err
	}
	return func(yield func(storage.Stream[T]) bool) {
		var found []T
		err := c.call(ctx, op, new(uuid.UUID), func() error {
			found = find()
			return nil
		})
		for _, r := range found {
			if !yield(storage.Stream[T]{Result: r}) {
				return
			}
		}
		if err != nil {
			yield(storage.Stream[T]{Err: err})
		}
	}, nil
}
