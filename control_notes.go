package azblob

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// Notes are records of programs above the vault, which does not look at their texts.

// PutNote stores a note with one request, or with three if it is new and the vault's control container does not exist
// yet. It returns the version of the note.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrExists] if the note was to be new;
// [storage.ErrConflict] and [storage.ErrNotFound] if somebody else has changed or removed the version that was to be
// replaced; [storage.ErrUnknown]: the same call again settles it.
func (c control) PutNote(ctx context.Context, n storage.Note) (version storage.Version, err error) {
	err = c.call(ctx, "PutNote", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckNote(n); err != nil {
			return err
		}
		version, err = c.putRecord(ctx, "write note", c.prefix.note(n.Name), noteRecord(n), replacing(n.Version))
		return err
	})
	return version, err
}

// FindNote returns a note with one request.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrNotFound]; [storage.ErrCorrupt] and
// [storage.ErrSchema], with the version of the note.
func (c control) FindNote(ctx context.Context, name string) (n storage.Note, err error) {
	err = c.call(ctx, "FindNote", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckNoteName(name); err != nil {
			return err
		}
		ref := c.prefix.note(name)
		body, p, err := c.client.Get(ctx, ref)
		if err != nil {
			return blobError("read note", ref, err)
		}
		if n, err = c.format.decodeNote(body, name); err != nil {
			n = storage.Note{}
		}
		n.Name, n.Stored, n.Version = name, p.LastModified.UTC(), storage.Version(p.ETag)
		return blobError("read note", ref, err)
	})
	return n, err
}

// RemoveNote removes a note that has this version, with one request.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrConflict] if the note has another version;
// [storage.ErrNotFound] if there is none; [storage.ErrUnknown]: the same call again settles it.
func (c control) RemoveNote(ctx context.Context, name string, version storage.Version) error {
	return c.call(ctx, "RemoveNote", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckRemovedNote(name, version); err != nil {
			return err
		}
		return c.removeRecord(ctx, "remove note", c.prefix.note(name), version)
	})
}
