package workflow

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON is the only text form of the model. Durations are written as "1m30s", bytes as text or base64, times as
// RFC 3339 in UTC. The tags of the structs name the members, and the order of the fields is that of the members. A
// writer and a reader pass over the text once. Reading leaves fields alone whose members are absent, except for Meta,
// Req and Resp.
//
// Members that a type does not know come from newer code. Objects, states and attempts keep them as they were
// read, and write them again after their own.

// MaxDepth is how deep the JSON of a request, a response or an unknown member may be nested. encoding/json
// reads 10,000 levels, and the plan around it takes a few.
const MaxDepth = 9_000

// maxObjects returns how many JSON objects a text of size bytes may have, so that memory is bounded by the bytes
// that are read. An ID or a time takes more than 32 bytes, so the first number is for objects that have neither.
func maxObjects(size int) int { return 100_000 + size/32 }

// duration is a time.Duration in the notation of time.ParseDuration, such as "1m30s".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("workflow: %w", err)
	}
	*d = duration(v)
	return nil
}

// Marshal returns the JSON of an object with everything below it. Unlike json.Marshal, it writes no escapes for
// HTML, which make text hard to read.
func Marshal(o Object) ([]byte, error) { return AppendJSON(nil, o) }

// AppendJSON appends the result of [Marshal] to text.
func AppendJSON(text []byte, o Object) ([]byte, error) {
	w := &writer{text: text}
	w.object(o)
	if limit := maxObjects(len(w.text) - len(text)); w.objects > limit {
		w.err = cmp.Or(w.err, fmt.Errorf("workflow: %d JSON objects in %d bytes, at most %d are allowed", w.objects, len(w.text)-len(text), limit))
	}
	return w.text, w.err
}

// MarshalOwn returns the JSON of an object's own fields, without its children and its version.
func MarshalOwn(o Object) ([]byte, error) {
	w := &writer{own: true}
	w.object(o)
	return w.text, w.err
}

// Unmarshal reads the JSON of [Marshal] into an object, in one pass. It does the same as json.Unmarshal, which
// takes several. Requests and responses become json.RawMessage. Unmarshal refuses a text that has more than 100,000
// JSON objects, and more than one for each 32 bytes on top, besides those in requests and responses: its memory
// would be far larger than the text.
func Unmarshal(text []byte, o Object) error { return unmarshal(text, o) }

// Types returns the types of a plugin's requests and responses, or nil for those that are not known.
type Types func(plugin string) (request, response reflect.Type)

// UnmarshalTyped is [Unmarshal], but most requests and responses become values of the types that their plugins have,
// which takes much less time than reading them again. They are the values that encoding/json reads. Those stay raw whose
// types are not known, or more than structs, slices, pointers and maps of texts, numbers, times and bytes, and those that
// encoding/json refuses or reads in a way of its own, such as by names in another case. A nil types leaves all raw.
func UnmarshalTyped(text []byte, o Object, types Types) error {
	r := &reader{types: types}
	err := r.unmarshal(text, o)
	if r.renamed {
		return Unmarshal(text, o)
	}
	return err
}

func marshal(v any) ([]byte, error) {
	w := new(writer)
	w.object(v)
	return w.text, w.err
}

func unmarshal(text []byte, into any) error { return new(reader).unmarshal(text, into) }

func (r *reader) unmarshal(text []byte, into any) error {
	r.text = text
	if !r.null() {
		r.object(into)
	}
	r.end()
	return r.err
}

// MarshalJSON writes the plan with everything below it.
func (p Plan) MarshalJSON() ([]byte, error) { return Marshal(&p) }

// UnmarshalJSON reads the JSON of MarshalJSON. Requests and responses become json.RawMessage.
func (p *Plan) UnmarshalJSON(text []byte) error { return Unmarshal(text, p) }

// MarshalJSON writes the checks with their actions.
func (c Checks) MarshalJSON() ([]byte, error) { return Marshal(&c) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (c *Checks) UnmarshalJSON(text []byte) error { return Unmarshal(text, c) }

// MarshalJSON writes the block with everything below it.
func (b Block) MarshalJSON() ([]byte, error) { return Marshal(&b) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (b *Block) UnmarshalJSON(text []byte) error { return Unmarshal(text, b) }

// MarshalJSON writes the sequence with its actions.
func (s Sequence) MarshalJSON() ([]byte, error) { return Marshal(&s) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (s *Sequence) UnmarshalJSON(text []byte) error { return Unmarshal(text, s) }

// MarshalJSON writes the action with its request and attempts.
func (a Action) MarshalJSON() ([]byte, error) { return Marshal(&a) }

// UnmarshalJSON reads the JSON of MarshalJSON. Requests and responses become json.RawMessage.
func (a *Action) UnmarshalJSON(text []byte) error { return Unmarshal(text, a) }

// MarshalJSON writes the deferred actions with their batches.
func (d DeferredActions) MarshalJSON() ([]byte, error) { return Marshal(&d) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (d *DeferredActions) UnmarshalJSON(text []byte) error { return Unmarshal(text, d) }

// MarshalJSON writes the batch with its actions.
func (b DeferBatch) MarshalJSON() ([]byte, error) { return Marshal(&b) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (b *DeferBatch) UnmarshalJSON(text []byte) error { return Unmarshal(text, b) }

// MarshalJSON writes the attempt with its response.
func (a Attempt) MarshalJSON() ([]byte, error) { return marshal(&a) }

// UnmarshalJSON reads the JSON of MarshalJSON. The response becomes a json.RawMessage.
func (a *Attempt) UnmarshalJSON(text []byte) error { return unmarshal(text, a) }

// MarshalJSON writes the state with its times in UTC.
func (s State) MarshalJSON() ([]byte, error) { return marshal(&s) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (s *State) UnmarshalJSON(text []byte) error { return unmarshal(text, s) }

// tooDeep reports whether valid JSON is nested more than MaxDepth levels deep.
func tooDeep(text []byte) bool {
	if len(text) <= 2*MaxDepth {
		return false // each level takes two bytes
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// halfRune reports whether JSON has the escape of one half of a UTF-16 surrogate pair without the other half,
// which is read as U+FFFD. The encoder never writes it, but raw JSON and types with a MarshalJSON of their
// own may have it.
func halfRune(text []byte) bool {
	for i := 0; ; {
		next := bytes.IndexByte(text[i:], '\\')
		if next < 0 {
			return false
		}
		i += next
		first, ok := escaped(text[i:])
		if !ok {
			i += 2 // an escaped letter or backslash
			continue
		}
		if i += escape; !utf16.IsSurrogate(first) {
			continue
		}
		second, ok := escaped(text[i:])
		if !ok || utf16.DecodeRune(first, second) == utf8.RuneError {
			return true
		}
		i += escape
	}
}

// escape is the length of an escape such as \u00e9.
const escape = len(`\u00e9`)

// escaped reads a \u escape at the beginning of a text, if there is one.
func escaped(text []byte) (r rune, ok bool) {
	if len(text) < escape || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:escape]), 16, 16)
	return rune(n), err == nil
}

// validText reports whether all text in a value is valid UTF-8. The encoder writes \ufffd for invalid text,
// so only values whose JSON contains \ufffd are examined. A type with a MarshalJSON of its own is responsible
// for its text.
func validText(v reflect.Value, depth int) bool {
	if !v.IsValid() || depth > MaxDepth {
		return true
	}
	if v.CanInterface() {
		switch o := v.Interface().(type) {
		case json.Marshaler:
			return true
		case encoding.TextMarshaler:
			if v.Kind() == reflect.Pointer && v.IsNil() {
				return true
			}
			text, err := o.MarshalText()
			return err != nil || utf8.Valid(text)
		}
	}
	switch v.Kind() {
	case reflect.String:
		return utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return validText(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !validText(v.Index(i), depth+1) {
				return false
			}
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if !validText(key, depth+1) || !validText(value, depth+1) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && !validText(v.Field(i), depth+1) {
				return false
			}
		}
	}
	return true
}

// MarshalValue returns the JSON of a request or a response, as it is written in its action. The error says why it can't be
// written such that it reads back: encoding/json can't encode it, it has text that is not valid UTF-8, or it is nested more
// than MaxDepth levels deep.
func MarshalValue(v any) ([]byte, error) {
	w := &writer{}
	err := w.any(v)
	return w.text, err
}

// Encodable is a [Rule]: requests and responses can be written as JSON and read back unchanged. encoding/json
// can encode them, their text is valid UTF-8, and they are nested at most MaxDepth levels deep. The rule
// encodes them, so it is only worth asking after the encoding of the object has failed.
func Encodable(o Object, bad func(field, problem string)) {
	a, ok := o.(*Action)
	if !ok {
		return
	}
	check := func(field string, v any) {
		if _, err := MarshalValue(v); v != nil && err != nil {
			bad(field, err.Error())
		}
	}
	check("Req", a.Req)
	for i := range a.Attempts {
		check(fmt.Sprintf("Attempts[%d].Resp", i), a.Attempts[i].Resp)
	}
}
