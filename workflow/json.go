package workflow

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON is the only text form of the model. The tags name the fields. MarshalJSON replaces what encoding/json
// writes badly for people: durations as numbers, bytes as base64, times in a local zone. It writes each type
// through a copy of the type without methods, inside a struct whose fields shadow those of the same name.

// MaxDepth is how deep the JSON of a request or a response may be nested. encoding/json reads 10,000 levels,
// and the plan around it takes a few.
const MaxDepth = 9_000

// duration is a time.Duration in the notation of time.ParseDuration, such as "1m30s".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("workflow: %w", err)
	}
	*d = duration(v)
	return nil
}

// Marshal writes an object as JSON, like encoding/json, but without the escapes for HTML, which make text
// hard to read.
func Marshal(o Object) ([]byte, error) { return encode(o) }

// encode is json.Marshal without the escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

type planTwin Plan

type planJSON struct {
	*planTwin
	// Meta is written as text if it is valid UTF-8, else as base64. The pointer distinguishes an empty Meta
	// from a nil one.
	MetaText   *string `json:"meta,omitempty"`
	MetaBase64 []byte  `json:"metaBase64,omitempty"`
}

// MarshalJSON writes the plan with everything below it.
func (p Plan) MarshalJSON() ([]byte, error) {
	twin := planTwin(p)
	twin.SubmitTime, twin.RuntimeUpdate = twin.SubmitTime.UTC(), twin.RuntimeUpdate.UTC()
	j := planJSON{planTwin: &twin}
	switch {
	case p.Meta == nil:
	case utf8.Valid(p.Meta):
		text := string(p.Meta)
		j.MetaText = &text
	default:
		j.MetaBase64 = p.Meta
	}
	return encode(j)
}

// UnmarshalJSON reads the JSON of MarshalJSON. Requests and responses become json.RawMessage.
func (p *Plan) UnmarshalJSON(data []byte) error {
	j := planJSON{planTwin: (*planTwin)(p)}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	if j.MetaText != nil {
		p.Meta = []byte(*j.MetaText)
	} else {
		p.Meta = j.MetaBase64
	}
	return nil
}

type checksTwin Checks

type checksJSON struct {
	*checksTwin
	Delay *duration `json:"delay,omitzero"`
}

// MarshalJSON writes the checks with their actions.
func (c Checks) MarshalJSON() ([]byte, error) {
	return encode(checksJSON{(*checksTwin)(&c), orNil(&c.Delay)})
}

// UnmarshalJSON reads the JSON of MarshalJSON.
func (c *Checks) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &checksJSON{(*checksTwin)(c), (*duration)(&c.Delay)})
}

type blockTwin Block

type blockJSON struct {
	*blockTwin
	EntranceDelay *duration `json:"entranceDelay,omitzero"`
	ExitDelay     *duration `json:"exitDelay,omitzero"`
}

// MarshalJSON writes the block with everything below it.
func (b Block) MarshalJSON() ([]byte, error) {
	return encode(blockJSON{(*blockTwin)(&b), orNil(&b.EntranceDelay), orNil(&b.ExitDelay)})
}

// UnmarshalJSON reads the JSON of MarshalJSON.
func (b *Block) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &blockJSON{(*blockTwin)(b), (*duration)(&b.EntranceDelay), (*duration)(&b.ExitDelay)})
}

type actionTwin Action

type actionJSON struct {
	*actionTwin
	Timeout *duration       `json:"timeout,omitzero"`
	Req     json.RawMessage `json:"req,omitempty"`
}

// MarshalJSON writes the action with its request and attempts.
func (a Action) MarshalJSON() ([]byte, error) {
	req, err := encodeAny(a.Req)
	if err != nil {
		return nil, fmt.Errorf("workflow: request of action %s: %w", a.ID, err)
	}
	return encode(actionJSON{(*actionTwin)(&a), orNil(&a.Timeout), req})
}

// UnmarshalJSON reads the JSON of MarshalJSON. Requests and responses become json.RawMessage.
func (a *Action) UnmarshalJSON(data []byte) error {
	j := actionJSON{actionTwin: (*actionTwin)(a), Timeout: (*duration)(&a.Timeout)}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	a.Req = rawOrNil(j.Req)
	return nil
}

type attemptTwin Attempt

type attemptJSON struct {
	*attemptTwin
	Resp json.RawMessage `json:"resp,omitempty"`
}

// MarshalJSON writes the attempt with its response.
func (a Attempt) MarshalJSON() ([]byte, error) {
	resp, err := encodeAny(a.Resp)
	if err != nil {
		return nil, fmt.Errorf("workflow: response: %w", err)
	}
	twin := attemptTwin(a)
	twin.Start, twin.End = a.Start.UTC(), a.End.UTC()
	return encode(attemptJSON{&twin, resp})
}

// UnmarshalJSON reads the JSON of MarshalJSON. The response becomes a json.RawMessage.
func (a *Attempt) UnmarshalJSON(data []byte) error {
	j := attemptJSON{attemptTwin: (*attemptTwin)(a)}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	a.Resp = rawOrNil(j.Resp)
	return nil
}

// MarshalJSON writes the state with its times in UTC.
func (s State) MarshalJSON() ([]byte, error) {
	type twin State
	s.Start, s.End = s.Start.UTC(), s.End.UTC()
	return encode(twin(s))
}

// orNil returns nil for a zero duration, which the JSON leaves out.
func orNil(d *time.Duration) *duration {
	if *d == 0 {
		return nil
	}
	return (*duration)(d)
}

// encodeAny writes a request or response such that it reads back unchanged. It returns nil for nil, which
// differs from a value that is written as null.
func encodeAny(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	text, err := encode(v)
	switch {
	case err != nil:
		return nil, err
	case tooDeep(text):
		return nil, fmt.Errorf("is nested more than %d levels deep", MaxDepth)
	case !utf8.Valid(text), bytes.Contains(text, []byte(`\ufffd`)) && !validText(reflect.ValueOf(v), 0), halfRune(text):
		return nil, errors.New("has text that is not valid UTF-8")
	}
	return text, nil
}

// tooDeep reports whether JSON is nested more than MaxDepth levels deep.
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

// Encodable is a [Rule]: requests and responses can be written as JSON and read back unchanged. encoding/json
// can encode them, their text is valid UTF-8, and they are nested at most MaxDepth levels deep. The rule
// encodes them, so it is only worth asking after the encoding of the object has failed.
func Encodable(o Object, bad func(field, problem string)) {
	a, ok := o.(*Action)
	if !ok {
		return
	}
	check := func(field string, v any) {
		if _, err := encodeAny(v); err != nil {
			bad(field, err.Error())
		}
	}
	check("Req", a.Req)
	for i := range a.Attempts {
		check(fmt.Sprintf("Attempts[%d].Resp", i), a.Attempts[i].Resp)
	}
}

func rawOrNil(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return raw
}
