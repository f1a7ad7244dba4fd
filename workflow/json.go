package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/planvault/azblob/plugins"
)

// JSON is the only text form of the model. The tags of the structs name the members, and the order of the fields is that
// of the members. Times are written in UTC, durations as "1m30s", and Meta as text, or in base64 if it is not UTF-8.
//
// Members that a type does not know come from newer code. The types keep them as they were read, and write them again
// after their own.

// MaxDepth is how deep the JSON of a request or a response may be nested. Reading refuses texts of more than 10,000
// levels, and the plan around a request takes a few.
const MaxDepth = 9_000

// maxObjects returns how many objects and attempts a text of size bytes may have, so that memory is bounded by the bytes
// that are read. An ID or a time takes more than 32 bytes, so the first number is for what has neither.
func maxObjects(size int) int { return 100_000 + size/32 }

// Marshal returns the JSON of an object with everything below it. Unlike json.Marshal, it writes no escapes for
// HTML, which make text hard to read.
func Marshal(o Object) ([]byte, error) { return AppendJSON(nil, o) }

// AppendJSON appends the result of [Marshal] to text.
func AppendJSON(text []byte, o Object) ([]byte, error) {
	before := len(text)
	text, err := appendJSON(text, o)
	if err != nil {
		return text, err
	}
	size := len(text) - before
	if n := countObjects(o); n > maxObjects(size) {
		return text, fmt.Errorf("%d objects and attempts in %d bytes, at most %d are allowed", n, size, maxObjects(size))
	}
	return text, nil
}

func appendJSON(text []byte, v any) ([]byte, error) {
	b := bytes.NewBuffer(text)
	err := jsonv2.MarshalWrite(b, v, writing)
	return b.Bytes(), err
}

// countObjects counts the objects at and below o, and their attempts.
func countObjects(o Object) (n int) {
	newWalker(func(o, _ Object) bool {
		n++
		if a, ok := o.(*Action); ok {
			n += len(a.Attempts)
		}
		return true
	}).walk(o)
	return n
}

// MarshalOwn returns the JSON of an object's own fields, without its children and its version.
func MarshalOwn(o Object) ([]byte, error) {
	own := reflect.New(reflect.TypeOf(o).Elem())
	own.Elem().Set(reflect.ValueOf(o).Elem())
	for i := range own.Elem().NumField() {
		if field := own.Elem().Field(i); isChild(field.Type()) {
			field.SetZero()
		}
	}
	alone := own.Interface().(Object)
	alone.Header().State.ETag = ""
	return appendJSON(nil, alone)
}

// isChild reports whether values of a type are objects, or lists of them.
func isChild(t reflect.Type) bool {
	object := reflect.TypeFor[Object]()
	return t.Implements(object) || t.Kind() == reflect.Slice && t.Elem().Implements(object)
}

// Unmarshal reads the JSON of [Marshal] into an object. Requests and responses become json.RawMessage. Names are
// case-sensitive. Unmarshal refuses a text that is not UTF-8, that has two members of one name, except in requests and
// responses, or that is nested more than 10,000 levels deep. It also refuses more than 100,000 objects and attempts, and
// one more for each 32 bytes: their memory would be far larger than the text. After an error, the object has a part of
// what was read.
func Unmarshal(text []byte, o Object) error { return unmarshal(text, o) }

func unmarshal(text []byte, v any) error {
	r := readers.Get().(*reader)
	defer readers.Put(r)
	r.objects, r.most = 0, maxObjects(len(text))
	err := jsonv2.Unmarshal(text, v, r.options)
	if err != nil && len(err.Error()) > 1000 { // it quotes a value
		return fmt.Errorf("%.300s and so on", err)
	}
	return err
}

// unknown has the members of an object's JSON that this code does not know, as newer code wrote them: a JSON object, or
// nothing. Each struct of the model has it, but none of package plugins.
type unknown string

// formed is a struct of the model.
type formed interface{ form() form }

// form is a struct of the model as it stands in JSON.
type form interface {
	// fill takes what the fields do not have in JSON from the struct, and keep gives it back.
	fill()
	keep()
}

// fields is the form of a struct. T is the struct without its methods.
type fields[T any] struct {
	Fields  *T             `json:",embed"`
	Unknown jsontext.Value `json:",embed"`

	unknown *unknown
}

func (f *fields[T]) fill() { f.Unknown = jsontext.Value(*f.unknown) }
func (f *fields[T]) keep() { *f.unknown = unknown(f.Unknown) }

func formOf[T any](v *T, u *unknown) fields[T] { return fields[T]{Fields: v, unknown: u} }

// planForm writes Meta as text, or in base64 if it is not UTF-8. If a text has both, the first counts.
type planForm struct {
	fields[barePlan]
	Meta       *string `json:"meta,omitzero"`
	MetaBase64 []byte  `json:"metaBase64,omitzero"`
}

func (f *planForm) fill() {
	f.fields.fill()
	switch meta := f.Fields.Meta; {
	case meta == nil:
	case utf8.Valid(meta):
		f.Meta = new(string(meta))
	default:
		f.MetaBase64 = meta
	}
}

func (f *planForm) keep() {
	f.fields.keep()
	if f.Fields.Meta = f.MetaBase64; f.Meta != nil {
		f.Fields.Meta = []byte(*f.Meta)
	}
}

type actionForm struct {
	fields[bareAction]
	Req payload `json:"req,omitzero"`
}

func (f *actionForm) fill() { f.fields.fill(); f.Req.any = f.Fields.Req }
func (f *actionForm) keep() { f.fields.keep(); f.Fields.Req = f.Req.any }

type attemptForm struct {
	fields[bareAttempt]
	Resp payload `json:"resp,omitzero"`
}

func (f *attemptForm) fill() { f.fields.fill(); f.Resp.any = f.Fields.Resp }
func (f *attemptForm) keep() { f.fields.keep(); f.Fields.Resp = f.Resp.any }

// The structs of the model without their methods.
type (
	barePlan            Plan
	bareChecks          Checks
	bareBlock           Block
	bareSequence        Sequence
	bareAction          Action
	bareAttempt         Attempt
	bareDeferredActions DeferredActions
	bareDeferBatch      DeferBatch
	bareState           State
	bareAttribution     Attribution
	bareActor           Actor
	bareLater           Later
	bareEnding          Ending
	bareExternal        External
	bareKey             Key
)

func (p *Plan) form() form { return &planForm{fields: formOf((*barePlan)(p), &p.unknown)} }

func (a *Action) form() form { return &actionForm{fields: formOf((*bareAction)(a), &a.unknown)} }

func (a *Attempt) form() form { return &attemptForm{fields: formOf((*bareAttempt)(a), &a.unknown)} }

func (c *Checks) form() form { return new(formOf((*bareChecks)(c), &c.unknown)) }

func (b *Block) form() form { return new(formOf((*bareBlock)(b), &b.unknown)) }

func (s *Sequence) form() form { return new(formOf((*bareSequence)(s), &s.unknown)) }

func (d *DeferredActions) form() form { return new(formOf((*bareDeferredActions)(d), &d.unknown)) }

func (b *DeferBatch) form() form { return new(formOf((*bareDeferBatch)(b), &b.unknown)) }

func (s *State) form() form { return new(formOf((*bareState)(s), &s.unknown)) }

func (l *Later) form() form { return new(formOf((*bareLater)(l), &l.unknown)) }

func (d *Attribution) form() form { return new(formOf((*bareAttribution)(d), &d.unknown)) }

func (a *Actor) form() form  { return new(formOf((*bareActor)(a), &a.unknown)) }
func (e *Ending) form() form { return new(formOf((*bareEnding)(e), &e.unknown)) }

func (e *External) form() form { return new(formOf((*bareExternal)(e), &e.unknown)) }

func (k *Key) form() form { return new(formOf((*bareKey)(k), &k.unknown)) }

// writing are the options of the model's JSON. Like encoding/json, it escapes U+2028 and U+2029, which JavaScript does not
// allow in strings. Raw JSON is written as it is, without its blanks.
var writing = jsonv2.JoinOptions(
	jsonv2.Deterministic(true), jsontext.EscapeForJS(true), jsontext.PreserveRawStrings(true), jsontext.AllowDuplicateNames(true),
	jsonv2.WithMarshalers(jsonv2.JoinMarshalers(
		writes[*Plan](), writes[*Checks](), writes[*Block](), writes[*Sequence](), writes[*Action](), writes[*Attempt](),
		writes[*DeferredActions](), writes[*DeferBatch](), writes[*State](), writes[*Attribution](), writes[*Actor](), writes[*Later](), writes[*Ending](), writes[*External](), writes[*Key](),
		jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, t time.Time) error {
			text, err := t.UTC().AppendText(append(enc.AvailableBuffer(), '"'))
			if err != nil {
				return err
			}
			return enc.WriteValue(append(text, '"'))
		}),
		jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, d time.Duration) error {
			return enc.WriteToken(jsontext.String(d.String()))
		}),
	)),
)

func writes[P formed]() *jsonv2.Marshalers {
	return jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, v P) error {
		f := v.form()
		f.fill()
		return jsonv2.MarshalEncode(enc, f)
	})
}

// reader has the options to read one text.
type reader struct {
	options jsonv2.Options
	// objects counts objects and attempts, and most is how many there may be.
	objects, most int
}

// readers keeps readers, because their options learn the types.
var readers = sync.Pool{New: func() any {
	r := new(reader)
	r.options = jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(
		reads[*Plan](r), reads[*Checks](r), reads[*Block](r), reads[*Sequence](r), reads[*Action](r), reads[*Attempt](r),
		reads[*DeferredActions](r), reads[*DeferBatch](r), reads[*State](r), reads[*Attribution](r), reads[*Actor](r), reads[*Later](r), reads[*Ending](r), reads[*External](r), reads[*Key](r),
		jsonv2.UnmarshalFromFunc(readDuration),
	))
	return r
}}

func reads[P formed](r *reader) *jsonv2.Unmarshalers {
	return jsonv2.UnmarshalFromFunc(func(dec *jsontext.Decoder, v P) error { return r.read(dec, v) })
}

func (r *reader) read(dec *jsontext.Decoder, v formed) error {
	switch v.(type) {
	case Object, *Attempt:
		if r.objects++; r.objects > r.most {
			return fmt.Errorf("more than %d objects and attempts", r.most)
		}
	}
	if dec.PeekKind() == 'n' {
		return dec.SkipValue()
	}
	f := v.form()
	if err := jsonv2.UnmarshalDecode(dec, f); err != nil {
		return err
	}
	f.keep()
	return nil
}

func readDuration(dec *jsontext.Decoder, d *time.Duration) error {
	return jsonv2.UnmarshalDecode(dec, (*duration)(d))
}

// duration is a time.Duration in the notation of time.ParseDuration, such as "1m30s".
type duration time.Duration

// UnmarshalText parses the notation.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// payload is a request or a response. Its JSON is that of encoding/json.
type payload struct{ any }

// MarshalJSONTo writes the payload.
func (p payload) MarshalJSONTo(enc *jsontext.Encoder) error {
	text, err := MarshalValue(p.any)
	if err != nil {
		return err
	}
	return enc.WriteValue(text)
}

// UnmarshalJSONFrom reads the payload raw.
func (p *payload) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var text jsontext.Value
	err := jsonv2.UnmarshalDecode(dec, &text, jsontext.AllowDuplicateNames(true))
	p.any = json.RawMessage(text)
	return err
}

// ofPayloads are the options of requests and responses, which are those of encoding/json. The library treats json.Number
// as any other string: it knows a Number of its own.
var ofPayloads = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(),
	jsonv2.WithMarshalers(jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, n json.Number) error {
		if kind, length := enc.StackIndex(enc.StackDepth()); kind == '{' && length%2 == 0 {
			return errors.ErrUnsupported // the key of a map is a string
		}
		text, err := json.Marshal(n)
		if err != nil {
			return err
		}
		return enc.WriteValue(text)
	})),
	jsonv2.WithUnmarshalers(jsonv2.UnmarshalFromFunc(func(dec *jsontext.Decoder, n *json.Number) error {
		if kind, length := dec.StackIndex(dec.StackDepth()); kind == '{' && length%2 == 0 {
			return errors.ErrUnsupported
		}
		text, err := dec.ReadValue()
		if err != nil {
			return err
		}
		return json.Unmarshal(text, n)
	})),
)

// writingPayloads are ofPayloads without escapes for HTML. Text that is not UTF-8 is refused.
var writingPayloads = jsonv2.JoinOptions(ofPayloads, jsontext.EscapeForHTML(false), jsontext.AllowInvalidUTF8(false))

// MarshalValue returns the JSON of a request or a response, as it is written in its action. The error says why it can't be
// written such that it reads back: encoding/json can't encode it, it has text that is not valid UTF-8, or it is nested more
// than MaxDepth levels deep.
func MarshalValue(v any) ([]byte, error) {
	var text []byte
	err := plugins.GuardJSON(reflect.TypeOf(v), func() (err error) {
		text, err = jsonv2.Marshal(v, writingPayloads)
		return err
	})
	switch {
	case err != nil:
		return nil, err // the methods of v may still work on text
	case tooDeep(text):
		return nil, fmt.Errorf("is nested more than %d levels deep", MaxDepth)
	}
	return text, nil
}

// UnmarshalValue reads the JSON of a request or a response into the value that v points to, as encoding/json does.
func UnmarshalValue(text []byte, v any) error {
	return jsonv2.Unmarshal(text, v, ofPayloads)
}

// tooDeep reports whether valid JSON is nested more than MaxDepth levels deep.
func tooDeep(text []byte) bool {
	if len(text) <= 2*MaxDepth {
		return false // each level takes two bytes
	}
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return false
		}
		if dec.StackDepth() > MaxDepth {
			return true
		}
	}
}

// Encodable is a [Rule]: requests and responses can be written as JSON and read back unchanged. encoding/json
// can encode them, their text is valid UTF-8, and they are nested at most MaxDepth levels deep. The rule
// encodes them, so it is only worth asking after the encoding of the object has failed.
func Encodable(o Object, bad Report) {
	a, ok := o.(*Action)
	if !ok {
		return
	}
	check := func(field string, v any) {
		if _, err := MarshalValue(v); v != nil && err != nil {
			bad(field, a.RedactText(err.Error()))
		}
	}
	check("Req", a.Req)
	for i := range a.Attempts {
		check(fmt.Sprintf("Attempts[%d].Resp", i), a.Attempts[i].Resp)
	}
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
func (a Attempt) MarshalJSON() ([]byte, error) { return appendJSON(nil, &a) }

// UnmarshalJSON reads the JSON of MarshalJSON. The response becomes a json.RawMessage.
func (a *Attempt) UnmarshalJSON(text []byte) error { return unmarshal(text, a) }

// MarshalJSON writes the state with its times in UTC.
func (s State) MarshalJSON() ([]byte, error) { return appendJSON(nil, &s) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (s *State) UnmarshalJSON(text []byte) error { return unmarshal(text, s) }
