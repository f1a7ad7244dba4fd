package workflow

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Attribution says who changed something, and why. It is what the one who did it says: nothing proves it.
type Attribution struct {
	// By names a person or a program, in at most [MaxBy] bytes.
	By string `json:"by,omitempty"`
	// Why is the reason, in at most [MaxWhy] bytes.
	Why string `json:"why,omitempty"`
	// At is when it was done, if nothing else says it.
	At time.Time `json:"at,omitzero"`

	unknown unknown
}

// The limits of an attribution's texts, in bytes, which let it fit into the metadata of a blob.
const (
	MaxBy  = 200
	MaxWhy = 1000
)

// check reports what is wrong with an attribution.
func (d Attribution) check(bad func(field, problem string, args ...any)) {
	for _, f := range []struct {
		name, text string
		most       int
	}{{"By", d.By, MaxBy}, {"Why", d.Why, MaxWhy}} {
		switch {
		case !utf8.ValidString(f.text):
			bad(f.name, "is not valid UTF-8")
		case len(f.text) > f.most:
			bad(f.name, "has %d bytes, at most %d are allowed", len(f.text), f.most)
		case strings.ContainsFunc(f.text, unicode.IsControl):
			bad(f.name, "has a control character")
		}
	}
	if !inRFC3339(d.At) {
		bad("At", "the year %d can't be written as RFC 3339", d.At.UTC().Year())
	}
}

// CheckAttribution returns a [*FieldError] with the first problem of an attribution: a text that is too long or not valid
// UTF-8, or a time that can't be written.
func CheckAttribution(d Attribution) (err error) {
	d.check(func(field, problem string, args ...any) {
		if err == nil {
			err = &FieldError{field, fmt.Sprintf(problem, args...)}
		}
	})
	return err
}
