package storage

import (
	"encoding/json"
	"fmt"
	"time"
)

// Note is a small document beside the plans of a store.
type Note struct {
	Name string
	// Text is a JSON object. It comes back byte by byte, without the white space around it. A roster lacks it.
	Text    []byte
	Stored  time.Time // when this version was stored, by the store's clock
	Version Version
}

// The limits of a note, in bytes.
const (
	MaxNoteName = 63
	MaxNote     = 64 << 10
)

// NewNote returns a note whose text is the JSON of a value, to replace a version, or a new note if version is empty.
func NewNote(name string, value any, version Version) (Note, error) {
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
