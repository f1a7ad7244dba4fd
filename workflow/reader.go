package workflow

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"
)

// reader reads JSON in one pass, into the fields that the methods name. It accepts the texts that encoding/json
// accepts, except for the limits of depth. After the first error it reads nothing more.
//
// encoding/json can't read nested types with an UnmarshalJSON of their own in one pass: each level scans the
// levels below it again. It also can't keep members that a type does not know.
type reader struct {
	text []byte
	at   int // the offset of the next byte
	err  error
	// objects counts the objects that were read into fields, and null in lists of them.
	objects, depth int
}

// count counts an object.
func (r *reader) count() {
	if r.objects++; r.objects > maxObjects(len(r.text)) {
		r.fail("more than %d JSON objects in %d bytes", maxObjects(len(r.text)), len(r.text))
	}
}

// fail keeps the first error. A long one, which quotes a value, is cut.
func (r *reader) fail(format string, args ...any) {
	if r.err != nil {
		return
	}
	r.err = fmt.Errorf("workflow: at byte %d: "+format, append([]any{r.at}, args...)...)
	if text := r.err.Error(); len(text) > 1000 {
		r.err = fmt.Errorf("%.300s and so on", text)
	}
}

// unexpected reports the next byte as an error. want is the Go type of the value, or "" if the syntax is wrong.
func (r *reader) unexpected(want string) {
	c := r.peek()
	what := "number"
	switch {
	case r.at >= len(r.text):
		r.fail("unexpected end of JSON input")
		return
	case want == "":
		r.fail("unexpected character %q", c)
		return
	case c == '{':
		what = "object"
	case c == '[':
		what = "array"
	case c == '"':
		what = "string"
	case c == 't', c == 'f':
		what = "bool"
	}
	r.fail("cannot unmarshal %s into Go value of type %s", what, want)
}

// peek returns the first byte of the next token, or 0 at the end of the text.
func (r *reader) peek() byte {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
	return 0
}

// skip passes over the next token if it is c.
func (r *reader) skip(c byte) bool {
	if r.err != nil || r.peek() != c {
		return false
	}
	r.at++
	return true
}

// expect passes over the next token, which must be c.
func (r *reader) expect(c byte) {
	if !r.skip(c) {
		r.unexpected("")
	}
}

// end demands that nothing follows.
func (r *reader) end() {
	if r.peek(); r.err == nil && r.at < len(r.text) {
		r.fail("unexpected character %q after the value", r.text[r.at])
	}
}

// word passes over a word such as null.
func (r *reader) word(word string) bool {
	r.peek()
	if r.err != nil || !bytes.HasPrefix(r.text[r.at:], []byte(word)) {
		return false
	}
	r.at += len(word)
	return true
}

// null passes over null, which leaves a field as it is.
func (r *reader) null() bool { return r.err == nil && r.peek() == 'n' && r.word("null") }

// object reads an object into a struct that has a form. v is a pointer to it.
func (r *reader) object(v any) { r.fields(forms[reflect.TypeOf(v).Elem()], v) }

// fields reads an object into the fields of a form. v is a pointer to the struct.
func (r *reader) fields(f *form, v any) {
	base := reflect.ValueOf(v).UnsafePointer()
	for i := range f.members {
		if m := &f.members[i]; m.reset != nil {
			m.reset(m.of(base))
		}
	}
	if r.depth++; r.depth > MaxDepth {
		r.fail("more than %d errors are wrapped in each other", MaxDepth)
	}
	var others []byte
	last := -1
	r.members(f.name, func(name []byte, start int) {
		if i := f.find(name, last); i >= 0 {
			m := &f.members[i]
			m.read(r, m.of(base))
			last = i
			return
		}
		r.value()
		others = appendMember(others, r.text[start:r.at])
	})
	if kept := f.others(base); kept != nil {
		*kept = unknown(others)
	}
	r.depth--
}

// members reads an object. read gets the name of each member and where that begins, and reads the value.
func (r *reader) members(want string, read func(name []byte, start int)) {
	if !r.skip('{') {
		r.unexpected(want)
		return
	}
	r.count()
	if r.skip('}') {
		return
	}
	for r.err == nil {
		r.peek()
		start := r.at
		name, _ := r.quoted("")
		if r.expect(':'); r.err == nil {
			read(name, start)
		}
		if !r.skip(',') {
			break
		}
	}
	r.expect('}')
}

// appendMember appends a member without its blanks to others.
func appendMember(others, member []byte) []byte {
	if len(others) > 0 {
		others = append(others, ',')
	}
	buf := bytes.NewBuffer(others)
	object := slices.Concat([]byte{'{'}, member, []byte{'}'})
	if json.Compact(buf, object) != nil {
		return others // the reader has reported the error
	}
	text := buf.Bytes()
	return append(others, text[len(others)+1:len(text)-1]...)
}

// list reads an array. read reads an element.
func list[T any](r *reader, want string, read func(into *T)) []T {
	if r.null() {
		return nil
	}
	if !r.skip('[') {
		r.unexpected(want)
		return nil
	}
	elements := []T{}
	if r.skip(']') {
		return elements
	}
	for r.err == nil {
		if r.peek() == 'n' { // null takes as much memory as an object
			r.count()
		}
		elements = append(elements, *new(T))
		read(&elements[len(elements)-1])
		if !r.skip(',') {
			break
		}
	}
	r.expect(']')
	return elements
}

// optional reads an object that may be null.
func optional[T any](r *reader, f *form) *T {
	if r.null() {
		return nil
	}
	v := new(T)
	r.fields(f, v)
	return v
}

// quoted reads a string. ok is false for null and after an error.
func (r *reader) quoted(want string) (text []byte, ok bool) {
	if want != "" && r.null() {
		return nil, false
	}
	if r.err == nil && r.peek() != '"' {
		r.unexpected(want)
	}
	if r.err != nil {
		return nil, false
	}
	start := r.at
	plain := r.passString()
	if r.err != nil {
		return nil, false
	}
	text = r.text[start+1 : r.at-1]
	if plain || utf8.Valid(text) && bytes.IndexByte(text, '\\') < 0 {
		return text, true
	}
	return unquote(text), true
}

// unquote returns what the escapes of a string stand for. What is not valid UTF-8 becomes U+FFFD.
func unquote(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		var r rune
		size := 2
		switch c := text[0]; {
		case c != '\\':
			r, size = utf8.DecodeRune(text)
		case text[1] != 'u':
			r = rune(text[1])
			if i := strings.IndexByte("bfnrt", text[1]); i >= 0 {
				r = rune("\b\f\n\r\t"[i])
			}
		default:
			r, _ = escaped(text)
			size = escape
			if second, ok := escaped(text[escape:]); ok && utf16.IsSurrogate(r) {
				if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
					size += escape
				}
			}
		}
		out = utf8.AppendRune(out, r)
		text = text[size:]
	}
	return out
}

// passString passes over a string. It reports whether the string is ASCII without escapes.
func (r *reader) passString() (plain bool) {
	plain = true
	r.at++
	for {
		rest := r.text[min(r.at, len(r.text)):] // a backslash may be last
		n := 0
		for n < len(rest) && rest[n] >= ' ' && rest[n] < utf8.RuneSelf && rest[n] != '"' && rest[n] != '\\' {
			n++
		}
		if r.at += n; n == len(rest) {
			r.fail("unexpected end of JSON input")
			return false
		}
		switch c := rest[n]; {
		case c == '"':
			r.at++
			return plain
		case c < ' ':
			r.fail("invalid character %q in string literal", c)
			return false
		case c == '\\':
			r.at++
			if !r.escape() {
				return false
			}
		}
		plain = false
		r.at++
	}
}

// escape passes over what follows a backslash, except for the last byte.
func (r *reader) escape() bool {
	rest := r.text[r.at:]
	switch {
	case len(rest) == 0:
		r.unexpected("")
		return false
	case strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0:
		return true
	case rest[0] == 'u' && len(rest) >= 5:
		if _, ok := escaped(r.text[r.at-1:]); ok {
			r.at += 4
			return true
		}
	}
	r.fail("invalid escape in string literal")
	return false
}

// value passes over a value of any type and returns its text.
func (r *reader) value() []byte {
	r.peek()
	start := r.at
	r.pass(0)
	return r.text[start:r.at]
}

// pass passes over a value at a depth.
func (r *reader) pass(depth int) {
	if depth > MaxDepth {
		r.fail("the value is nested more than %d levels deep", MaxDepth)
	}
	if r.err != nil {
		return
	}
	switch c := r.peek(); {
	case c == '{':
		r.passAll('}', func() {
			if _, ok := r.token('"'); ok {
				r.expect(':')
				r.pass(depth + 1)
			}
		})
	case c == '[':
		r.passAll(']', func() { r.pass(depth + 1) })
	case c == '"':
		r.passString()
	case c == '-' || '0' <= c && c <= '9':
		r.number()
	case !r.word("null") && !r.word("true") && !r.word("false"):
		r.unexpected("")
	}
}

// token passes over a string, which must be the next token.
func (r *reader) token(first byte) (plain, ok bool) {
	if r.err == nil && r.peek() != first {
		r.unexpected("")
	}
	if r.err != nil {
		return false, false
	}
	return r.passString(), r.err == nil
}

// passAll passes over the members of an object or the elements of an array.
func (r *reader) passAll(closing byte, pass func()) {
	r.at++
	if r.skip(closing) {
		return
	}
	for r.err == nil {
		pass()
		if !r.skip(',') {
			break
		}
	}
	r.expect(closing)
}

// number passes over a number and returns its text.
func (r *reader) number() []byte {
	start := r.at
	digits := func() {
		from := r.at
		for r.at < len(r.text) && '0' <= r.text[r.at] && r.text[r.at] <= '9' {
			r.at++
		}
		if r.at == from {
			r.unexpected("")
		}
	}
	next := func(any string) bool {
		if r.err != nil || r.at >= len(r.text) || strings.IndexByte(any, r.text[r.at]) < 0 {
			return false
		}
		r.at++
		return true
	}
	next("-")
	if !next("0") {
		digits()
	}
	if next(".") {
		digits()
	}
	if next("eE") {
		next("+-")
		digits()
	}
	return r.text[start:r.at]
}

// string reads a string.
func (r *reader) string(into *string) {
	if text, ok := r.quoted("string"); ok {
		*into = string(text)
	}
}

// bytes reads bytes in base64.
func (r *reader) bytes() (data []byte) {
	if err := json.Unmarshal(r.value(), &data); err != nil && r.err == nil {
		r.fail("%w", err)
	}
	return data
}

// marshaled reads a string into a type that reads itself.
func (r *reader) marshaled(want string, into encoding.TextUnmarshaler) {
	if text, ok := r.quoted(want); ok {
		if err := into.UnmarshalText(text); err != nil {
			r.fail("%w", err)
		}
	}
}

func (r *reader) id(into *uuid.UUID) {
	if text, ok := r.quoted("uuid.UUID"); ok {
		id, err := uuid.ParseBytes(text)
		if err != nil {
			r.fail("%w", err)
		}
		*into = id
	}
}

func (r *reader) time(into *time.Time) { r.marshaled("time.Time", into) }

func (r *reader) duration(into *time.Duration) { r.marshaled("duration", (*duration)(into)) }

func (r *reader) bool(into *bool) {
	switch {
	case r.null():
	case r.word("true"):
		*into = true
	case r.word("false"):
		*into = false
	default:
		r.unexpected("bool")
	}
}

// integer reads a number into an integer.
func integer[T int | int64](r *reader, into *T) {
	if r.null() {
		return
	}
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		r.unexpected("int")
	}
	if r.err != nil {
		return
	}
	text := r.number()
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || int64(T(n)) != n {
		r.fail("cannot unmarshal number %.100s into Go value of type %T", text, *into)
		return
	}
	*into = T(n)
}
