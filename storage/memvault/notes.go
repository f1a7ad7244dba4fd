package memvault

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// PutNote stores a note.
func (c control) PutNote(ctx context.Context, n storage.Note) (version storage.Version, err error) {
	err = c.call(ctx, "PutNote", new(uuid.UUID), func() error {
		if err := driver.CheckNote(n); err != nil {
			return err
		}
		was := n.Version
		n.Text = slices.Clone(bytes.TrimSpace(n.Text))
		n.Stored, n.Version = time.Now().UTC(), c.store.version()
		version = n.Version
		return c.store.notes.put(n.Name, was, n)
	})
	return version, err
}

// FindNote returns a note.
func (c control) FindNote(ctx context.Context, name string) (n storage.Note, err error) {
	err = c.call(ctx, "FindNote", new(uuid.UUID), func() error {
		if err := driver.CheckNoteName(name); err != nil {
			return err
		}
		n, err = c.store.notes.find(name)
		n.Text = slices.Clone(n.Text)
		return err
	})
	return n, err
}

// RemoveNote removes a note that has this version.
func (c control) RemoveNote(ctx context.Context, name string, version storage.Version) error {
	return c.call(ctx, "RemoveNote", new(uuid.UUID), func() error {
		if err := driver.CheckRemovedNote(name, version); err != nil {
			return err
		}
		return c.store.notes.remove(name, version)
	})
}

// noteNames returns all notes without their texts.
func (s *Store) noteNames() (list []storage.Note) {
	for _, name := range slices.Sorted(maps.Keys(s.notes.rows)) {
		n := s.notes.rows[name]
		n.Text = nil
		list = append(list, n)
	}
	return list
}
