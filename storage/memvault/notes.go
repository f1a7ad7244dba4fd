package memvault

import (
	"bytes"
	"context"
	"fmt"
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
		if _, taken := c.store.notes[n.Name]; taken && n.Version == "" {
			return fmt.Errorf("%w: note %s", storage.ErrExists, n.Name)
		}
		if n.Version != "" {
			if err := c.store.hasNote(n.Name, n.Version); err != nil {
				return err
			}
		}
		n.Text = slices.Clone(bytes.TrimSpace(n.Text))
		n.Stored, n.Version = time.Now().UTC(), c.store.version()
		c.store.notes[n.Name] = n
		version = n.Version
		return nil
	})
	return version, err
}

// FindNote returns a note.
func (c control) FindNote(ctx context.Context, name string) (n storage.Note, err error) {
	err = c.call(ctx, "FindNote", new(uuid.UUID), func() error {
		if err := driver.CheckNoteName(name); err != nil {
			return err
		}
		found, ok := c.store.notes[name]
		if !ok {
			return fmt.Errorf("%w: note %s", storage.ErrNotFound, name)
		}
		n = found
		n.Text = slices.Clone(n.Text)
		return nil
	})
	return n, err
}

// RemoveNote removes a note that has this version.
func (c control) RemoveNote(ctx context.Context, name string, version storage.Version) error {
	return c.call(ctx, "RemoveNote", new(uuid.UUID), func() error {
		if err := driver.CheckRemovedNote(name, version); err != nil {
			return err
		}
		err := c.store.hasNote(name, version)
		if err == nil {
			delete(c.store.notes, name)
		}
		return err
	})
}

// hasNote returns an error unless a note has this version.
func (s *Store) hasNote(name string, version storage.Version) error {
	switch n, found := s.notes[name]; {
	case !found:
		return fmt.Errorf("%w: note %s", storage.ErrNotFound, name)
	case n.Version != version:
		return fmt.Errorf("%w: version %s is stored, not %s", storage.ErrConflict, n.Version, version)
	}
	return nil
}

// noteNames returns all notes without their texts.
func (s *Store) noteNames() (list []storage.Note) {
	for _, name := range slices.Sorted(maps.Keys(s.notes)) {
		n := s.notes[name]
		n.Text = nil
		list = append(list, n)
	}
	return list
}
