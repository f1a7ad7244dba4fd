package workflow

import (
	"bytes"
	"encoding/base64"
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
)

// writer writes JSON in one pass, without the escapes for HTML. Its methods leave out members whose value is
// zero. It keeps the first error.
type writer struct {
	text []byte
	err  error
	// objects counts the JSON objects, except for those of requests and responses.
	objects int
	// own says to leave out children and versions.
	own bool
	// others writes requests and responses to the writer. It is nil until the first one.
	others *json.Encoder
}

// fail keeps the first error.
func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Write appends what a json.Encoder writes.
func (w *writer) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	return len(p), nil
}

func (w *writer) open() {
	w.objects++
	w.text = append(w.text, '{')
}

// close ends an object with the members that were read and not known.
func (w *writer) close(unknown string) {
	if unknown != "" {
		w.comma()
		w.text = append(w.text, unknown...)
	}
	w.text = append(w.text, '}')
}

func (w *writer) comma() {
	if n := len(w.text); n > 0 && w.text[n-1] != '{' {
		w.text = append(w.text, ',')
	}
}

// name begins a member. Names need no escapes.
func (w *writer) name(name string) {
	w.comma()
	w.text = append(w.text, '"')
	w.text = append(w.text, name...)
	w.text = append(w.text, `":`...)
}

func (w *writer) string(name, s string) {
	if s != "" {
		w.name(name)
		w.quote(s)
	}
}

func (w *writer) id(name string, id uuid.UUID) {
	if id == uuid.Nil {
		return
	}
	w.name(name)
	w.text = append(w.text, '"')
	for i, group := range [...][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			w.text = append(w.text, '-')
		}
		w.text = hex.AppendEncode(w.text, group)
	}
	w.text = append(w.text, '"')
}

func (w *writer) time(name string, t time.Time) {
	if t.IsZero() {
		return
	}
	w.name(name)
	w.text = append(w.text, '"')
	text, err := t.UTC().AppendText(w.text)
	if err != nil {
		w.fail(fmt.Errorf("workflow: %s: %w", name, err))
		return
	}
	w.text = append(text, '"')
}

func (w *writer) duration(name string, d time.Duration) {
	if d != 0 {
		w.string(name, d.String())
	}
}

func (w *writer) integer(name string, n int64) {
	if n != 0 {
		w.name(name)
		w.text = strconv.AppendInt(w.text, n, 10)
	}
}

func (w *writer) bool(name string, b bool) {
	if b {
		w.name(name)
		w.text = append(w.text, "true"...)
	}
}

// enum writes the name of a value of an enumeration.
func enum[T ~int](w *writer, name string, n names[T], v T) {
	if v != 0 {
		w.name(name)
		w.value(n.marshal(v))
	}
}

// value writes a text that needs no escapes.
func (w *writer) value(text string, err error) {
	if err != nil {
		w.fail(err)
	}
	w.text = append(w.text, '"')
	w.text = append(w.text, text...)
	w.text = append(w.text, '"')
}

func (w *writer) bytes(name string, data []byte) {
	w.name(name)
	w.text = append(w.text, '"')
	w.text = base64.StdEncoding.AppendEncode(w.text, data)
	w.text = append(w.text, '"')
}

// optionalMember writes an object that may be nil.
func optionalMember[T any](w *writer, name string, v *T, write func(*T, *writer)) {
	if v != nil && !w.own {
		w.name(name)
		write(v, w)
	}
}

// elements writes a list of objects.
func elements[T any](w *writer, name string, list []*T, write func(*T, *writer)) {
	if len(list) == 0 || w.own {
		return
	}
	w.name(name)
	for i, v := range list {
		w.text = append(w.text, "[,"[min(i, 1)])
		if v == nil {
			w.objects++
			w.text = append(w.text, "null"...)
		} else {
			write(v, w)
		}
	}
	w.text = append(w.text, ']')
}

// any writes a request or response such that it reads back unchanged. It leaves out nil, which differs from a
// value that is written as null.
func (w *writer) any(name string, v any) error {
	if v == nil || w.err != nil {
		return nil
	}
	w.name(name)
	start := len(w.text)
	if w.others == nil {
		w.others = json.NewEncoder(w)
		w.others.SetEscapeHTML(false)
	}
	if err := w.others.Encode(v); err != nil {
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
