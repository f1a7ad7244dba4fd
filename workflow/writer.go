package workflow

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// writer writes JSON in one pass, without the escapes for HTML. It leaves out members whose value is zero. It keeps the
// first error.
type writer struct {
	text []byte
	err  error
	// member is the member that err is about, and placed says that err has it and its object.
	member string
	placed bool
	depth  int
	// objects counts the JSON objects, except for those of requests and responses.
	objects int
	// own says to leave out children and versions.
	own bool
	// typed are addressable copies of requests and responses, by type.
	typed map[reflect.Type]plainValue
}

// fail keeps the first error.
func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// place adds to the error which member of v it is about, once for the member and once for the object around it.
func (w *writer) place(f *form, v unsafe.Pointer, member string) {
	w.member = cmp.Or(w.member, member)
	if f.object && !w.placed {
		o := reflect.NewAt(f.of, v).Interface().(Object)
		w.err, w.placed = fmt.Errorf("workflow: %s of %s %s: %w", w.member, o.Kind(), *o.Header().ID, w.err), true
	}
}

// Write appends what a json.Encoder writes.
func (w *writer) Write(p []byte) (int, error) {
	return copy(w.room(len(p)), p), nil
}

// room returns room for n more bytes of text. Unlike append it stores a pointer only if there is too little, which takes
// a tenth of the time to write a plan while the garbage collector runs.
func (w *writer) room(n int) []byte {
	at := len(w.text)
	if at+n > cap(w.text) {
		w.text = slices.Grow(w.text, n)
	}
	w.text = w.text[:at+n]
	return w.text[at:]
}

// add writes a text as it is.
func (w *writer) add(text string) { copy(w.room(len(text)), text) }

// object writes a struct that has a form. v is a pointer to it.
func (w *writer) object(v any) {
	w.fields(forms[reflect.TypeOf(v).Elem()], reflect.ValueOf(v).UnsafePointer())
	if w.err != nil && !w.placed {
		w.err = fmt.Errorf("workflow: %s: %w", w.member, w.err)
	}
}

// fields writes an object with the fields of a form. v points to the struct.
func (w *writer) fields(f *form, v unsafe.Pointer) {
	if w.depth++; w.depth > MaxDepth {
		w.fail(fmt.Errorf("more than %d errors are wrapped in each other", MaxDepth))
		return
	}
	w.objects++
	w.add("{")
	for i := range f.members {
		m := &f.members[i]
		field := m.of(v)
		if !m.keep && m.empty(field) || w.own && m.notOwn != nil && m.notOwn(field) {
			continue
		}
		w.comma()
		w.add(m.begin)
		if m.write(w, field); w.err != nil {
			w.place(f, v, m.name)
			return
		}
	}
	if others := f.others(v); others != nil && *others != "" {
		w.comma()
		w.add(string(*others))
	}
	w.add("}")
	w.depth--
}

// onlyVersion reports whether a state is zero but for its version.
func (s State) onlyVersion() bool {
	s.ETag = ""
	return s == State{}
}

func (w *writer) comma() {
	if n := len(w.text); n > 0 && w.text[n-1] != '{' {
		w.add(",")
	}
}

func (w *writer) id(id uuid.UUID) {
	text := w.room(quotedID)
	text[0], text[9], text[14], text[19], text[24], text[37] = '"', '-', '-', '-', '-', '"'
	hex.Encode(text[1:], id[:4])
	hex.Encode(text[10:], id[4:6])
	hex.Encode(text[15:], id[6:8])
	hex.Encode(text[20:], id[8:10])
	hex.Encode(text[25:], id[10:])
}

func (w *writer) time(t *time.Time) {
	var text [48]byte
	out, err := t.UTC().AppendText(text[:0])
	w.plain(string(out), err)
}

func (w *writer) integer(n int64) {
	var digits [20]byte
	_, _ = w.Write(strconv.AppendInt(digits[:0], n, 10))
}

func (w *writer) bool(b bool) { w.add(strconv.FormatBool(b)) }

// plain writes a text that needs no escapes.
func (w *writer) plain(text string, err error) {
	if err != nil {
		w.fail(err)
	}
	w.add(`"`)
	w.add(text)
	w.add(`"`)
}

// any writes a request or response such that it reads back unchanged.
func (w *writer) any(v any) error {
	start := len(w.text)
	if w.writeTyped(v) {
		if bytes.Contains(w.text[start:], []byte(`\ufffd`)) && !validText(reflect.ValueOf(v), 0) {
			return errNotUTF8
		}
		return nil
	}
	w.text = w.text[:start]
	var text bytes.Buffer // of its own, because Encode may go on
	others := json.NewEncoder(&text)
	others.SetEscapeHTML(false)
	if err := plugins.GuardJSON(reflect.TypeOf(v), func() error { return others.Encode(v) }); err != nil {
		return err
	}
	w.text = append(w.text, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
	switch text := w.text[start:]; {
	case tooDeep(text):
		return fmt.Errorf("is nested more than %d levels deep", MaxDepth)
	case !utf8.Valid(text), bytes.Contains(text, []byte(`\ufffd`)) && !validText(reflect.ValueOf(v), 0), halfRune(text):
		return errNotUTF8
	}
	return nil
}

var errNotUTF8 = errors.New("has text that is not valid UTF-8")

// quote writes a string as encoding/json does.
func (w *writer) quote(s string) {
	const digits = "0123456789abcdef"
	w.add(`"`)
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
		w.add(s[from:i])
		i += size
		from = i
		if short := bytes.IndexRune([]byte("\"\\\b\f\n\r\t"), r); short >= 0 && r != utf8.RuneError {
			_, _ = w.Write([]byte{'\\', `"\bfnrt`[short]})
		} else {
			_, _ = w.Write([]byte{'\\', 'u', digits[r>>12], digits[r>>8&15], digits[r>>4&15], digits[r&15]})
		}
	}
	w.add(s[from:])
	w.add(`"`)
}
