package memvault

import (
	"context"
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
		was := k.Version
		k.PausedUntil, k.By.At = k.PausedUntil.UTC(), k.By.At.UTC()
		k.Holders, k.Waiting = slices.Clone(k.Holders), slices.Clone(k.Waiting)
		for i := range k.Waiting {
			k.Waiting[i].Until = k.Waiting[i].Until.UTC()
		}
		k.Stored, k.Now, k.Version = time.Now().UTC(), time.Time{}, c.store.version()
		version = k.Version
		return c.store.keys.put(k.Name, was, k)
	})
	return version, err
}

// FindKey returns the record of a key.
func (c control) FindKey(ctx context.Context, name string) (k storage.KeyRecord, err error) {
	err = c.call(ctx, "FindKey", new(uuid.UUID), func() error {
		if err := driver.CheckKeyName(name); err != nil {
			return err
		}
		k, err = c.store.keys.find(name)
		k.Holders, k.Waiting, k.Now = slices.Clone(k.Holders), slices.Clone(k.Waiting), time.Now().UTC()
		return err
	})
	return k, err
}

// RemoveKey removes the record of a key that has this version.
func (c control) RemoveKey(ctx context.Context, name string, version storage.Version) error {
	return c.call(ctx, "RemoveKey", new(uuid.UUID), func() error {
		if err := driver.CheckRemovedKey(name, version); err != nil {
			return err
		}
		return c.store.keys.remove(name, version)
	})
}

// Keys yields what there is to know of all keys.
func (c control) Keys(ctx context.Context) (iter.Seq[storage.Stream[storage.ListedKey]], error) {
	return records(ctx, c, "Keys", func() error { return nil }, func() (found []storage.ListedKey) {
		for _, name := range slices.Sorted(maps.Keys(c.store.keys.rows)) {
			found = append(found, driver.ListedKey(c.store.keys.rows[name]))
		}
		return found
	})
}
