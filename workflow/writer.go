package workflow

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// writer writes JSON in one pass, without the escapes for HTML. It leaves out members whose value is zero. It keeps the
// first error.
type writer struct {
	text []byte
	err  error
	// now is the object that is being written, if it is one of a plan, and member the last member that was begun.
	now    Object
	member string
	depth  int
	// objects counts the JSON objects, except for those of requests and responses.
	objects int
	// own says to leave out children and versions.
	own bool
	// others writes requests and responses to the writer. It is nil until the first one.
	others *json.Encoder
}

// fail keeps the first error, and where it is.
func (w *writer) fail(err error) {
	switch {
	case w.err != nil:
	case w.now != nil:
		w.err = fmt.Errorf("workflow: %s of %s %s: %w", w.member, w.now.Kind(), *w.now.Header().ID, err)
	default:
		w.err = fmt.Errorf("workflow: %s: %w", w.member, err)
	}
}

// Write appends what a json.Encoder writes.
func (w *writer) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	return len(p), nil
}

// object writes a struct that has a form. v is a pointer to it.
func (w *writer) object(v any) { w.fields(forms[reflect.TypeOf(v).Elem()], v) }

// fields writes an object with the fields of a form. v is a pointer to the struct.
func (w *writer) fields(f *form, v any) {
	if w.depth++; w.depth > MaxDepth {
		w.fail(fmt.Errorf("more than %d errors are wrapped in each other", MaxDepth))
		return
	}
	around := w.now
	if f.object {
		w.now = v.(Object)
	}
	w.objects++
	w.text = append(w.text, '{')
	base := reflect.ValueOf(v).UnsafePointer()
	for i := range f.members {
		m := &f.members[i]
		field := m.of(base)
		if w.own && (m.child || m.name == "etag" || m.name == "state" && (*State)(field).onlyVersion()) || !m.keep && m.empty(field) {
			continue
		}
		w.comma()
		w.text = append(w.text, m.begin...)
		w.member = m.name
		m.write(w, field)
	}
	if others := f.others(base); others != nil && *others != "" {
		w.comma()
		w.text = append(w.text, *others...)
	}
	w.text = append(w.text, '}')
	w.now = around
	w.depth--
}

// onlyVersion reports whether a state is zero but for its version.
func (s State) onlyVersion() bool {
	s.ETag = ""
	return s == State{}
}

func (w *writer) comma() {
	if n := len(w.text); n > 0 && w.text[n-1] != '{' {
		w.text = append(w.text, ',')
	}
}

func (w *writer) id(id uuid.UUID) {
	w.text = append(w.text, '"')
	for i, group := range [...][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			w.text = append(w.text, '-')
		}
		w.text = hex.AppendEncode(w.text, group)
	}
	w.text = append(w.text, '"')
}

func (w *writer) time(t *time.Time) {
	w.text = append(w.text, '"')
	text, err := t.UTC().AppendText(w.text)
	if err != nil {
		w.fail(err)
		return
	}
	w.text = append(text, '"')
}

func (w *writer) integer(n int64) { w.text = strconv.AppendInt(w.text, n, 10) }

func (w *writer) bool(b bool) { w.text = strconv.AppendBool(w.text, b) }

// plain writes a text that needs no escapes.
func (w *writer) plain(text string, err error) {
	if err != nil {
		w.fail(err)
	}
	w.text = append(w.text, '"')
	w.text = append(w.text, text...)
	w.text = append(w.text, '"')
}

// any writes a request or response such that it reads back unchanged.
func (w *writer) any(v any) error {
	start := len(w.text)
	if w.others == nil {
		w.others = json.NewEncoder(w)
		w.others.SetEscapeHTML(false)
	}
	if err := plugins.Guard(func() error { return w.others.Encode(v) }); err != nil {
		return err
	}
	w.text = bytes.TrimSuffix(w.text, []byte("\n"))
	switch text := w.text[start:]; {
	case tooDeep(text):
		return fmt.Errorf("is nested more than %d levels deep", MaxDepth)
	case !utf8.Valid(text), bytes.Contains(text, []byte(`\ufffd`)) && !validText(reflect.ValueOf(v), 0), halfRune(text):
		return errors.New("has text that is not valid UTF-8")
	}
	return nil
}

// quote writes a string as encoding/json does.
func (w *writer) quote(s string) {
	const digits = "0123456789abcdef"
	b := append(slices.Grow(w.text, len(s)+2), '"')
	from := 0 // what comes before is written
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			if r, size = utf8.DecodeRuneInString(s[i:]); (r != utf8.RuneError || size > 1) && r != '\u2028' && r != '\u2029' {
				i += size
				continue
			}
		}
		b = append(b, s[from:i]...)
		i += size
		from = i
		if short := bytes.IndexRune([]byte("\"\\\b\f\n\r\t"), r); short >= 0 && r != utf8.RuneError {
			b = append(b, '\\', `"\bfnrt`[short])
		} else {
			b = append(b, '\\', 'u', digits[r>>12], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		}
	}
	b = append(b, s[from:]...)
	w.text = append(b, '"')
}
