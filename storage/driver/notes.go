package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/planvault/azblob/storage"
)

// CheckNote returns [storage.ErrInvalid] with every wrong field of a note that is to be stored.
func CheckNote(n storage.Note) error {
	errs := []error{CheckNoteName(n.Name)}
	text := bytes.TrimSpace(n.Text)
	switch {
	case len(text) > storage.MaxNote:
		errs = append(errs, Invalid("Note.Text", "has %d bytes, at most %d are allowed", len(text), storage.MaxNote))
	case !utf8.Valid(text):
		errs = append(errs, Invalid("Note.Text", "is not valid UTF-8"))
	case !bytes.HasPrefix(text, []byte("{")) || !json.Valid(text) || !json.Valid(nested(text)):
		errs = append(errs, Invalid("Note.Text", "is not a JSON object, or is nested too deeply"))
	}
	return errors.Join(errs...)
}

// nested returns a JSON text deep inside another, as a vault may store it: decoders refuse what is nested too deeply.
func nested(text []byte) []byte {
	const depth = 10
	return slices.Concat(bytes.Repeat([]byte("["), depth), text, bytes.Repeat([]byte("]"), depth))
}

// CheckNoteName returns [storage.ErrInvalid] for a name that no note can have.
func CheckNoteName(name string) error {
	if !isNoteName(name) {
		return Invalid("Note.Name", "%.100q is not made of 1 to %d lower-case letters, digits and hyphens", name, storage.MaxNoteName)
	}
	return nil
}

// isNoteName reports whether a note can have this name.
func isNoteName(name string) bool {
	return name != "" && len(name) <= storage.MaxNoteName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// CheckRemovedNote returns [storage.ErrInvalid] for a name that no note can have, and for an empty version.
func CheckRemovedNote(name string, version storage.Version) error {
	return errors.Join(CheckNoteName(name), CheckRecordVersion(version))
}
