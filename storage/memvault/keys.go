package memvault

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// PutKey stores the record of a key.
func (c control) PutKey(ctx context.Context, k storage.KeyRecord) (version storage.Version, err error) {
	err = c.call(ctx, "PutKey", new(uuid.UUID), func() error {
		if err := driver.CheckKeyRecord(k); err != nil {
			return err
		}
		if _, taken := c.store.keys[k.Name]; taken && k.Version == "" {
			return fmt.Errorf("%w: key %q", storage.ErrExists, k.Name)
		}
		if k.Version != "" {
			if err := c.store.hasKey(k.Name, k.Version); err != nil {
				return err
			}
		}
		k.PausedUntil, k.By.At = k.PausedUntil.UTC(), k.By.At.UTC()
		k.Holders = slices.Clone(k.Holders)
		k.Stored, k.Now, k.Version = time.Now().UTC(), time.Time{}, c.store.version()
		c.store.keys[k.Name] = k
		version = k.Version
		return nil
	})
	return version, err
}

// FindKey returns the record of a key.
func (c control) FindKey(ctx context.Context, name string) (k storage.KeyRecord, err error) {
	err = c.call(ctx, "FindKey", new(uuid.UUID), func() error {
		if err := driver.CheckKeyName(name); err != nil {
			return err
		}
		found, ok := c.store.keys[name]
		if !ok {
			return fmt.Errorf("%w: key %q", storage.ErrNotFound, name)
		}
		k = found
		k.Holders, k.Now = slices.Clone(k.Holders), time.Now().UTC()
		return nil
	})
	return k, err
}

// RemoveKey removes the record of a key that has this version.
func (c control) RemoveKey(ctx context.Context, name string, version storage.Version) error {
	return c.call(ctx, "RemoveKey", new(uuid.UUID), func() error {
		if err := driver.CheckRemovedKey(name, version); err != nil {
			return err
		}
		err := c.store.hasKey(name, version)
		if err == nil {
			delete(c.store.keys, name)
		}
		return err
	})
}

// hasKey returns an error unless the record of a key has this version.
func (s *Store) hasKey(name string, version storage.Version) error {
	switch k, found := s.keys[name]; {
	case !found:
		return fmt.Errorf("%w: key %q", storage.ErrNotFound, name)
	case k.Version != version:
		return fmt.Errorf("%w: version %s is stored, not %s", storage.ErrConflict, k.Version, version)
	}
	return nil
}

// Keys yields what there is to know of all keys.
func (c control) Keys(ctx context.Context) (iter.Seq[storage.Stream[storage.ListedKey]], error) {
	if err := c.call(context.WithoutCancel(ctx), "Keys", new(uuid.UUID), func() error { return nil }); err != nil {
		return nil, err
	}
	return func(yield func(storage.Stream[storage.ListedKey]) bool) {
		var found []storage.ListedKey
		err := c.call(ctx, "Keys", new(uuid.UUID), func() error {
			for _, name := range slices.Sorted(maps.Keys(c.store.keys)) {
				found = append(found, driver.ListedKey(c.store.keys[name]))
			}
			return nil
		})
		for _, k := range found {
			if !yield(storage.Stream[storage.ListedKey]{Result: k}) {
				return
			}
		}
		if err != nil {
			yield(storage.Stream[storage.ListedKey]{Err: err})
		}
	}, nil
}
