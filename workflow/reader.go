package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

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
	// shared is the memory of the last strings and raw values, which share it: an allocation for each would take as much
	// time as reading it.
	shared []byte
	// plan is the first ID, and timeout the last duration: many members repeat them.
	plan    memo[uuid.UUID]
	timeout memo[time.Duration]
	// types are nil to leave requests and responses raw. plugin is that of the present action, nil until it is read, and
	// renamed says that an action has two.
	types   Types
	plugins []*pluginTypes
	plugin  *pluginTypes
	renamed bool
}

// pluginTypes is what requests and responses of a plugin are read into.
type pluginTypes struct {
	name              string
	request, response plainValue
}

// readPlugin reads the name of an action's plugin.
func (r *reader) readPlugin(name *string) {
	r.string(name)
	if r.types == nil || r.err != nil {
		return
	}
	if r.plugin != nil && r.plugin.name != *name {
		r.renamed = true
		r.fail("another plugin")
	}
	i := slices.IndexFunc(r.plugins, func(p *pluginTypes) bool { return p.name == *name })
	if i < 0 {
		request, response := r.types(*name)
		i, r.plugins = len(r.plugins), append(r.plugins, &pluginTypes{*name, valueOf(request), valueOf(response)})
	}
	r.plugin = r.plugins[i]
}

// memo is a value and its text.
type memo[T any] struct {
	text  []byte
	value T
}

// The memory that strings and raw values share is at least and at most this large, in bytes.
const leastShared, mostShared = 128, 2048

// keep copies a text. Short ones share memory.
func (r *reader) keep(text []byte) []byte {
	if len(text) > leastShared {
		return bytes.Clone(text)
	}
	at := len(r.shared)
	end := at + len(text)
	if end > cap(r.shared) {
		r.shared = make([]byte, 0, min(max(2*end, leastShared), mostShared))
		at, end = 0, len(text)
	}
	r.shared = r.shared[:end]
	copy(r.shared[at:], text)
	return r.shared[at:end:end]
}

// kept returns a string of its own.
func (r *reader) kept(text []byte) string {
	text = r.keep(text)
	return unsafe.String(unsafe.SliceData(text), len(text)) // nothing writes to it
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
	if r.at < len(r.text) && r.text[r.at] > ' ' {
		return r.text[r.at]
	}
	return r.afterBlanks()
}

// afterBlanks is peek where there may be blanks.
func (r *reader) afterBlanks() byte {
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
func (r *reader) object(v any) {
	r.fields(forms[reflect.TypeOf(v).Elem()], reflect.ValueOf(v).UnsafePointer())
}

// fields reads an object into the fields of a form. v points to the struct.
func (r *reader) fields(f *form, v unsafe.Pointer) {
	for _, i := range f.resets {
		f.members[i].reset(r, f.members[i].of(v))
	}
	if r.depth++; r.depth > MaxDepth {
		r.fail("more than %d errors are wrapped in each other", MaxDepth)
	}
	if !r.skip('{') {
		r.unexpected(f.of.String())
		return
	}
	r.count()
	var others []byte
	seen, last := uint64(0), -1
	for r.err == nil && r.peek() != '}' {
		start := r.at
		i := r.member(f, last+1)
		switch {
		case r.err != nil:
		case i < 0 && !f.exact:
			r.value()
			others = appendMember(others, r.text[start:r.at])
		case f.exact && (i < 0 || seen>>i&1 != 0):
			r.fail("a member that encoding/json reads in a way of its own")
		default:
			f.members[i].read(r, f.members[i].of(v))
			seen, last = seen|1<<i, i
		}
		if !r.skip(',') {
			break
		}
		if r.peek() == '}' {
			r.unexpected("")
		}
	}
	r.expect('}')
	if kept := f.others(v); kept != nil {
		*kept = unknown(others)
	}
	r.depth--
}

// member passes over the name of a member and the colon. It returns the member's index, or -1. Most members come in
// order and are written without blanks, so it begins with the one at next.
func (r *reader) member(f *form, next int) int {
	rest := r.text[r.at:]
	for i := next; i < len(f.members); i++ {
		if begin := f.members[i].begin; len(rest) > len(begin) && rest[1] == begin[1] && string(rest[:len(begin)]) == begin {
			r.at += len(begin)
			return i
		}
	}
	name, _ := r.quoted("")
	if r.expect(':'); r.err != nil {
		return -1
	}
	return f.find(name, next)
}

// texts reads an object whose members are texts.
func (r *reader) texts() map[string]string {
	texts := map[string]string{}
	if !r.skip('{') {
		r.unexpected("map[string]string")
	}
	r.count()
	for more := !r.skip('}') && r.err == nil; more; {
		name, _ := r.quoted("")
		r.expect(':')
		var text string
		r.string(&text)
		texts[r.kept(name)] = text
		if more = r.skip(','); !more {
			r.expect('}')
		}
	}
	return texts
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

// list reads an array that may be null, and reports whether it is one. read reads an element.
func (r *reader) list(want string, read func()) bool {
	if r.null() {
		return false
	}
	if !r.skip('[') {
		r.unexpected(want)
		return false
	}
	if r.skip(']') {
		return true
	}
	for r.err == nil {
		if r.peek() == 'n' { // null takes as much memory as an object
			r.count()
		}
		read()
		if !r.skip(',') {
			break
		}
	}
	r.expect(']')
	return true
}

// optional reads an object that may be null.
func optional[T any](r *reader, f *form) *T {
	if r.null() {
		return nil
	}
	v := new(T)
	r.fields(f, unsafe.Pointer(v))
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
		for n < len(rest) && rest[n]-' ' < utf8.RuneSelf-' ' && rest[n] != '"' && rest[n] != '\\' {
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
	case c == '{', c == '[':
		r.passAll(c == '{', depth)
	case c == '"':
		r.passString()
	case c == '-' || '0' <= c && c <= '9':
		r.number()
	case !r.word("null") && !r.word("true") && !r.word("false"):
		r.unexpected("")
	}
}

// passAll passes over the members of an object or the elements of an array.
func (r *reader) passAll(object bool, depth int) {
	closing := r.text[r.at] + 2
	r.at++
	if r.skip(closing) {
		return
	}
	for r.err == nil {
		switch {
		case !object:
		case r.peek() != '"':
			r.unexpected("")
		case r.passString() || r.err == nil:
			r.expect(':')
		}
		r.pass(depth + 1)
		if !r.skip(',') {
			break
		}
	}
	r.expect(closing)
}

// number passes over a number and returns its text.
func (r *reader) number() []byte {
	start := r.at
	r.next("-")
	if !r.next("0") {
		r.digits()
	}
	if r.next(".") {
		r.digits()
	}
	if r.next("eE") {
		r.next("+-")
		r.digits()
	}
	return r.text[start:r.at]
}

func (r *reader) digits() {
	from := r.at
	for r.at < len(r.text) && r.text[r.at]-'0' <= 9 {
		r.at++
	}
	if r.at == from {
		r.unexpected("")
	}
}

// next passes over a byte if it is any of these.
func (r *reader) next(any string) bool {
	if r.err != nil || r.at >= len(r.text) || strings.IndexByte(any, r.text[r.at]) < 0 {
		return false
	}
	r.at++
	return true
}

// string reads a string.
func (r *reader) string(into *string) {
	if text, ok := r.quoted("string"); ok {
		*into = r.kept(text)
	}
}

// bytes reads bytes in base64.
func (r *reader) bytes() (data []byte) {
	if err := json.Unmarshal(r.value(), &data); err != nil && r.err == nil {
		r.fail("%w", err)
	}
	return data
}

// marshaled reads a string with a method of a type that reads itself.
func (r *reader) marshaled(want string, read func(text []byte) error) {
	if text, ok := r.quoted(want); ok {
		if err := read(text); err != nil {
			r.fail("%w", err)
		}
	}
}

// quotedID is how many bytes an ID in quotes has.
const quotedID = len(`"00000000-0000-0000-0000-000000000000"`)

func (r *reader) id(into *uuid.UUID) {
	r.peek()
	if rest := r.text[r.at:]; len(rest) >= quotedID && rest[0] == '"' && rest[quotedID-1] == '"' { // as IDs are written
		text := rest[1 : quotedID-1]
		id, known := r.plan.value, string(text) == string(r.plan.text)
		if !known {
			var err error
			id, err = uuid.ParseBytes(text)
			known = err == nil
		}
		if known {
			if r.plan.text == nil {
				r.plan = memo[uuid.UUID]{text, id}
			}
			*into = id
			r.at += quotedID
			return
		}
	}
	if text, ok := r.quoted("uuid.UUID"); ok {
		id, err := uuid.ParseBytes(text)
		if err != nil {
			r.fail("%w", err)
		}
		*into = id
	}
}

func (r *reader) time(into *time.Time) { r.marshaled("time.Time", into.UnmarshalText) }

func (r *reader) duration(into *time.Duration) {
	text, ok := r.quoted("duration")
	if ok && (r.timeout.text == nil || string(text) != string(r.timeout.text)) {
		r.timeout.text = text
		if err := (*duration)(&r.timeout.value).UnmarshalText(text); err != nil {
			r.fail("%w", err)
		}
	}
	if ok {
		*into = r.timeout.value
	}
}

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

// numeral returns the text of a number, or nil for null.
func (r *reader) numeral(want string) []byte {
	if r.null() {
		return nil
	}
	if c := r.peek(); c != '-' && c-'0' > 9 {
		r.unexpected(want)
	}
	if r.err != nil {
		return nil
	}
	return r.number()
}

// integer reads a number into an integer.
func integer[T int | int8 | int16 | int32 | int64](r *reader, into *T) {
	if text := r.numeral("int"); text != nil {
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || int64(T(n)) != n {
			r.fail("cannot unmarshal number %.100s into Go value of type %T", text, *into)
			return
		}
		*into = T(n)
	}
}
