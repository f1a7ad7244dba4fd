package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Notes keeps small documents of programs that work on a store, such as a policy that all of them follow. A vault
// that implements Notes keeps them beside its plans, and its [Members.Roster] names them at no further request. All
// methods are safe for concurrent use.
//
// The errors are those of [Vault]. A name that is not made of 1 to [MaxNoteName] lower-case letters, digits and
// hyphens, a text that is not a JSON object of at most [MaxNote] bytes, and an empty version of a note to remove are
// [ErrInvalid]. After [ErrUnknown], the same call may be repeated on the same vault.
type Notes interface {
	// PutNote stores a note, all but Stored and Version, and returns its version. If n.Version is empty, the note
	// is new, and ErrExists means that the name is taken. Otherwise it replaces the version n.Version; ErrConflict
	// and ErrNotFound mean that somebody else has changed or removed the note.
	PutNote(ctx context.Context, n Note) (version string, err error)
	// FindNote returns a note, or ErrNotFound.
	FindNote(ctx context.Context, name string) (Note, error)
	// RemoveNote removes a note that has this version. It returns ErrConflict if the note has another version, and
	// ErrNotFound if there is none.
	RemoveNote(ctx context.Context, name, version string) error
}

// Note is a small document beside the plans of a store.
type Note struct {
	Name string
	// Text is a JSON object. It comes back byte by byte, without the white space around it. A roster lacks it.
	Text    []byte
	Stored  time.Time // when this version was stored, by the store's clock
	Version string
}

// The limits of a note, in bytes.
const (
	MaxNoteName = 63
	MaxNote     = 64 << 10
)

// NewNote returns a note whose text is the JSON of a value, to replace a version, or a new note if version is empty.
func NewNote(name string, value any, version string) (Note, error) {
	text, err := json.Marshal(value)
	return Note{Name: name, Text: text, Version: version}, err
}

// ReadNote returns the value of a note's text. If the text can't be read, the error is [ErrCorrupt], and the value is zero.
func ReadNote[T any](n Note) (value T, err error) {
	if err := json.Unmarshal(n.Text, &value); err != nil {
		var none T
		return none, fmt.Errorf("note %s: %w: %w", n.Name, ErrCorrupt, err)
	}
	return value, nil
}
