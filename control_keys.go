package azblob

import (
	"cmp"
	"context"
	"iter"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// The records of keys say which plans have turns. Package fleet decides who gets one: a turn is a record that was written in
// the version that was read.

// PutKey stores the record of a key with one request, or with three if it is new and the vault's control container does not
// exist yet. It returns the version of the record.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrExists] if the record was to be new; [storage.ErrConflict]
// and [storage.ErrNotFound] if somebody else has changed or removed the version that was to be replaced; [storage.ErrUnknown]:
// the same call again settles it.
func (c control) PutKey(ctx context.Context, k storage.KeyRecord) (version storage.Version, err error) {
	err = c.call(ctx, "PutKey", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckKeyRecord(k); err != nil {
			return err
		}
		version, err = c.putRecord(ctx, "write key", c.prefix.key(k.Name), keyRecord(k), replacing(k.Version))
		return err
	})
	return version, err
}

// FindKey returns the record of a key with one request.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrNotFound]; [storage.ErrCorrupt] and [storage.ErrSchema],
// with the name, the version and the times of the record.
func (c control) FindKey(ctx context.Context, name string) (k storage.KeyRecord, err error) {
	err = c.call(ctx, "FindKey", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckKeyName(name); err != nil {
			return err
		}
		ref := c.prefix.key(name)
		body, p, err := c.client.Get(ctx, ref)
		if err == nil {
			k, err = c.format.decodeKey(body, name)
		}
		if err != nil {
			k = storage.KeyRecord{Name: name}
		}
		k.Stored, k.Now, k.Version = p.LastModified.UTC(), p.Seen.UTC(), storage.Version(p.ETag)
		return blobError("read key", ref, err)
	})
	return k, err
}

// RemoveKey removes the record of a key that has this version, with one request.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrConflict] if the record has another version;
// [storage.ErrNotFound] if there is none; [storage.ErrUnknown]: the same call again settles it.
func (c control) RemoveKey(ctx context.Context, name string, version storage.Version) error {
	return c.call(ctx, "RemoveKey", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckRemovedKey(name, version); err != nil {
			return err
		}
		return c.removeRecord(ctx, "remove key", c.prefix.key(name), version)
	})
}

// Keys yields what metadata shows of all keys, with one request for each 5,000.
//
// Errors: [storage.ErrCorrupt] and [storage.ErrSchema] in the place of keys whose metadata can't be read.
func (c control) Keys(ctx context.Context) (iter.Seq[storage.Stream[storage.ListedKey]], error) {
	if err := c.refuse(ctx, "Keys", nil); err != nil {
		return nil, err
	}
	return func(yield func(storage.Stream[storage.ListedKey]) bool) {
		c.observer.observe(ctx, "Keys", uuid.Nil, func(ctx context.Context) error { return c.yieldKeys(ctx, yield) })
	}, nil
}

// yieldKeys yields all keys. It returns the error that ended the sequence, or the first error of a key.
func (c control) yieldKeys(ctx context.Context, yield func(storage.Stream[storage.ListedKey]) bool) (first error) {
	failed := func(err error) bool {
		err = opError("Keys", uuid.Nil, err)
		first = cmp.Or(first, err)
		return yield(storage.Stream[storage.ListedKey]{Err: err})
	}
	end, err := c.begin()
	if err != nil {
		failed(err)
		return first
	}
	defer end()
	dir := blob.Ref{Container: c.prefix.control(), Name: keysDir}
	for page, err := range c.client.List(ctx, dir.Container, blob.ListOptions{Prefix: keysDir, Metadata: true}) {
		if err != nil {
			if !blob.Is(err, blob.AbsentContainer) {
				failed(blobError("list keys", dir, err))
			}
			return first
		}
		for _, item := range page.Items {
			name, ok := parseRecordName(item.Name)
			if !ok {
				continue // no vault has written it
			}
			k, err := c.format.listedKeyOf(name.name, item.Properties)
			more := true
			if err != nil {
				more = failed(blobError("read metadata of key", blob.Ref{Container: dir.Container, Name: item.Name}, err))
			} else {
				more = yield(storage.Stream[storage.ListedKey]{Result: k})
			}
			if !more {
				return first
			}
		}
	}
	return first
}
