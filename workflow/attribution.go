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

// Actor says who does something, and from where. Like an [Attribution], it is what the one who does it says.
type Actor struct {
	// By names a person or a program, in at most [MaxBy] bytes.
	By string `json:"by,omitempty"`
	// From is where the request came from, such as a host, a service or the ID of a request, in at most MaxBy bytes.
	From string `json:"from,omitempty"`

	unknown unknown
}

// The limits of the texts of an attribution and an actor, in bytes, which let them fit into the metadata of a blob.
const (
	MaxBy  = 200
	MaxWhy = 1000
)

// check reports what is wrong with an attribution.
func (d Attribution) check(bad func(field, problem string, args ...any)) {
	checkLine("By", d.By, MaxBy, bad)
	checkLine("Why", d.Why, MaxWhy, bad)
	if !inRFC3339(d.At) {
		bad("At", "the year %d can't be written as RFC 3339", d.At.UTC().Year())
	}
}

// check reports what is wrong with an actor.
func (a Actor) check(bad func(field, problem string, args ...any)) {
	checkLine("By", a.By, MaxBy, bad)
	checkLine("From", a.From, MaxBy, bad)
}

// check reports what is wrong with an external owner.
func (e External) check(bad func(field, problem string, args ...any)) {
	checkLine("Name", e.Name, MaxBy, bad)
	checkLine("Ask", e.Ask, MaxWhy, bad)
	if e.Name == "" && e.Ask != "" {
		bad("Name", "is empty, but Ask is set")
	}
}

// checkLine reports what is wrong with a line of text.
func checkLine(field, text string, most int, bad func(field, problem string, args ...any)) {
	switch {
	case !utf8.ValidString(text):
		bad(field, "is not valid UTF-8")
	case len(text) > most:
		bad(field, "has %d bytes, at most %d are allowed", len(text), most)
	case strings.ContainsFunc(text, unicode.IsControl):
		bad(field, "has a control character")
	}
}

// CheckAttribution returns a [*FieldError] with the first problem of an attribution: a text that is too long or not valid
// UTF-8, or a time that can't be written.
func CheckAttribution(d Attribution) error { return firstOf(d.check) }

// CheckActor returns a [*FieldError] with the first problem of an actor: a text that is too long, not valid UTF-8, or no
// single line.
func CheckActor(a Actor) error { return firstOf(a.check) }

// CheckExternal returns a [*FieldError] with the first problem of an external owner: a text that is too long, not valid UTF-8,
// or no single line, or Ask without Name.
func CheckExternal(e External) error { return firstOf(e.check) }

// firstOf returns the first problem that a check reports.
func firstOf(check func(bad func(field, problem string, args ...any))) (err error) {
	check(func(field, problem string, args ...any) {
		if err == nil {
			err = &FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)}
		}
	})
	return err
}
