package workflow

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/planvault/azblob/plugins"
)

// JSON is the only text form of the model. Durations are written as "1m30s", bytes as text or base64, times as
// RFC 3339 in UTC. Each type has one function that writes it and one that reads it, for a writer and a reader
// that pass over the text once. Reading leaves fields alone whose members are absent, except for Meta, Req and
// Resp.
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
	o.write(w)
	if limit := maxObjects(len(w.text) - len(text)); w.objects > limit {
		w.fail(fmt.Errorf("workflow: %d JSON objects in %d bytes, at most %d are allowed", w.objects, len(w.text)-len(text), limit))
	}
	return w.text, w.err
}

// MarshalOwn returns the JSON of an object's own fields, without its children and its version.
func MarshalOwn(o Object) ([]byte, error) {
	w := &writer{own: true}
	o.write(w)
	return w.text, w.err
}

// Unmarshal reads the JSON of [Marshal] into an object, in one pass. It does the same as json.Unmarshal, which
// takes several. Requests and responses become json.RawMessage. Unmarshal refuses a text that has more than 100,000
// JSON objects, and more than one for each 32 bytes on top, besides those in requests and responses: its memory
// would be far larger than the text.
func Unmarshal(text []byte, o Object) error {
	return unmarshal(text, o.read)
}

func unmarshal(text []byte, read func(r *reader)) error {
	r := &reader{text: text}
	if !r.null() {
		read(r)
	}
	r.end()
	return r.err
}

// MarshalJSON writes the plan with everything below it.
func (p Plan) MarshalJSON() ([]byte, error) { return Marshal(&p) }

// UnmarshalJSON reads the JSON of MarshalJSON. Requests and responses become json.RawMessage.
func (p *Plan) UnmarshalJSON(text []byte) error { return Unmarshal(text, p) }

func (p *Plan) write(w *writer) {
	w.open()
	w.id("id", p.ID)
	w.id("groupID", p.GroupID)
	w.string("name", p.Name)
	w.string("descr", p.Descr)
	w.checks(p)
	elements(w, "blocks", p.Blocks, (*Block).write)
	optionalMember(w, "deferredActions", p.DeferredActions, (*DeferredActions).write)
	w.state(p.State)
	w.time("submitTime", p.SubmitTime)
	enum(w, "reason", reasonNames, p.Reason)
	w.time("runtimeUpdate", p.RuntimeUpdate)
	w.id("owner", p.Owner)
	w.integer("epoch", p.Epoch)
	w.id("forkedFrom", p.ForkedFrom)
	switch {
	case p.Meta == nil:
	case utf8.Valid(p.Meta):
		w.name("meta") // an empty Meta differs from a nil one
		w.quote(string(p.Meta))
	default:
		w.bytes("metaBase64", p.Meta)
	}
	w.close(p.unknown)
}

func (p *Plan) read(r *reader) {
	var base64 []byte
	p.Meta = nil
	p.unknown = r.object("workflow.Plan", func(name []byte) bool {
		switch string(name) {
		case "id":
			r.id(&p.ID)
		case "groupID":
			r.id(&p.GroupID)
		case "name":
			r.string(&p.Name)
		case "descr":
			r.string(&p.Descr)
		case "blocks":
			p.Blocks = objects(r, "[]*workflow.Block", (*Block).read)
		case "deferredActions":
			p.DeferredActions = optional(r, (*DeferredActions).read)
		case "state":
			r.state(&p.State)
		case "submitTime":
			r.time(&p.SubmitTime)
		case "reason":
			r.marshaled("workflow.FailureReason", &p.Reason)
		case "runtimeUpdate":
			r.time(&p.RuntimeUpdate)
		case "owner":
			r.id(&p.Owner)
		case "epoch":
			integer(r, &p.Epoch)
		case "forkedFrom":
			r.id(&p.ForkedFrom)
		case "meta":
			if text, ok := r.quoted("string"); ok {
				p.Meta = append([]byte{}, text...)
			}
		case "metaBase64":
			base64 = r.bytes()
		default:
			return r.checks(p, name)
		}
		return true
	})
	if p.Meta == nil {
		p.Meta = base64
	}
}

// checksNames are the names of the checks of a plan or a block, in the order of [ChecksOf].
var checksNames = [...]string{"bypassChecks", "preChecks", "contChecks", "postChecks", "deferredChecks"}

// checks writes the checks of a plan or a block.
func (w *writer) checks(o Object) {
	checks, _ := checksOf(o)
	for i, c := range checks {
		optionalMember(w, checksNames[i], *c, (*Checks).write)
	}
}

// checks reads the checks of a plan or a block, if name is that of checks.
func (r *reader) checks(o Object, name []byte) bool {
	checks, _ := checksOf(o)
	for i, c := range checks {
		if checksNames[i] == string(name) {
			*c = optional(r, (*Checks).read)
			return true
		}
	}
	return false
}

// MarshalJSON writes the checks with their actions.
func (c Checks) MarshalJSON() ([]byte, error) { return Marshal(&c) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (c *Checks) UnmarshalJSON(text []byte) error { return Unmarshal(text, c) }

func (c *Checks) write(w *writer) {
	w.open()
	w.id("id", c.ID)
	w.id("planID", c.PlanID)
	w.id("key", c.Key)
	elements(w, "actions", c.Actions, (*Action).write)
	w.state(c.State)
	w.duration("delay", c.Delay)
	w.close(c.unknown)
}

func (c *Checks) read(r *reader) {
	c.unknown = r.object("workflow.Checks", func(name []byte) bool {
		switch string(name) {
		case "id":
			r.id(&c.ID)
		case "planID":
			r.id(&c.PlanID)
		case "key":
			r.id(&c.Key)
		case "actions":
			c.Actions = objects(r, "[]*workflow.Action", (*Action).read)
		case "state":
			r.state(&c.State)
		case "delay":
			r.duration(&c.Delay)
		default:
			return false
		}
		return true
	})
}

// MarshalJSON writes the block with everything below it.
func (b Block) MarshalJSON() ([]byte, error) { return Marshal(&b) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (b *Block) UnmarshalJSON(text []byte) error { return Unmarshal(text, b) }

func (b *Block) write(w *writer) {
	w.open()
	w.id("id", b.ID)
	w.id("planID", b.PlanID)
	w.id("key", b.Key)
	w.string("name", b.Name)
	w.string("descr", b.Descr)
	w.checks(b)
	elements(w, "sequences", b.Sequences, (*Sequence).write)
	w.integer("concurrency", int64(b.Concurrency))
	w.integer("toleratedFailures", int64(b.ToleratedFailures))
	w.state(b.State)
	w.duration("entranceDelay", b.EntranceDelay)
	w.duration("exitDelay", b.ExitDelay)
	w.close(b.unknown)
}

func (b *Block) read(r *reader) {
	b.unknown = r.object("workflow.Block", func(name []byte) bool {
		switch string(name) {
		case "id":
			r.id(&b.ID)
		case "planID":
			r.id(&b.PlanID)
		case "key":
			r.id(&b.Key)
		case "name":
			r.string(&b.Name)
		case "descr":
			r.string(&b.Descr)
		case "sequences":
			b.Sequences = objects(r, "[]*workflow.Sequence", (*Sequence).read)
		case "concurrency":
			integer(r, &b.Concurrency)
		case "toleratedFailures":
			integer(r, &b.ToleratedFailures)
		case "state":
			r.state(&b.State)
		case "entranceDelay":
			r.duration(&b.EntranceDelay)
		case "exitDelay":
			r.duration(&b.ExitDelay)
		default:
			return r.checks(b, name)
		}
		return true
	})
}

// MarshalJSON writes the sequence with its actions.
func (s Sequence) MarshalJSON() ([]byte, error) { return Marshal(&s) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (s *Sequence) UnmarshalJSON(text []byte) error { return Unmarshal(text, s) }

func (s *Sequence) write(w *writer) {
	w.open()
	w.id("id", s.ID)
	w.id("planID", s.PlanID)
	w.id("key", s.Key)
	w.string("name", s.Name)
	w.string("descr", s.Descr)
	elements(w, "actions", s.Actions, (*Action).write)
	w.state(s.State)
	w.close(s.unknown)
}

func (s *Sequence) read(r *reader) {
	s.unknown = r.object("workflow.Sequence", func(name []byte) bool {
		switch string(name) {
		case "id":
			r.id(&s.ID)
		case "planID":
			r.id(&s.PlanID)
		case "key":
			r.id(&s.Key)
		case "name":
			r.string(&s.Name)
		case "descr":
			r.string(&s.Descr)
		case "actions":
			s.Actions = objects(r, "[]*workflow.Action", (*Action).read)
		case "state":
			r.state(&s.State)
		default:
			return false
		}
		return true
	})
}

// MarshalJSON writes the action with its request and attempts.
func (a Action) MarshalJSON() ([]byte, error) { return Marshal(&a) }

// UnmarshalJSON reads the JSON of MarshalJSON. Requests and responses become json.RawMessage.
func (a *Action) UnmarshalJSON(text []byte) error { return Unmarshal(text, a) }

func (a *Action) write(w *writer) {
	w.open()
	w.id("id", a.ID)
	w.id("planID", a.PlanID)
	w.id("key", a.Key)
	w.string("name", a.Name)
	w.string("descr", a.Descr)
	w.string("plugin", a.Plugin)
	w.integer("retries", int64(a.Retries))
	if len(a.Attempts) > 0 {
		w.name("attempts")
		for i := range a.Attempts {
			w.text = append(w.text, "[,"[min(i, 1)])
			a.Attempts[i].write(w)
		}
		w.text = append(w.text, ']')
	}
	w.state(a.State)
	w.duration("timeout", a.Timeout)
	if err := w.any("req", a.Req); err != nil {
		w.fail(fmt.Errorf("workflow: request of action %s: %w", a.ID, err))
	}
	w.close(a.unknown)
}

func (a *Action) read(r *reader) {
	a.Req = nil
	a.unknown = r.object("workflow.Action", func(name []byte) bool {
		switch string(name) {
		case "id":
			r.id(&a.ID)
		case "planID":
			r.id(&a.PlanID)
		case "key":
			r.id(&a.Key)
		case "name":
			r.string(&a.Name)
		case "descr":
			r.string(&a.Descr)
		case "plugin":
			r.string(&a.Plugin)
		case "retries":
			integer(r, &a.Retries)
		case "attempts":
			a.Attempts = list(r, "[]workflow.Attempt", readAttempt)
		case "state":
			r.state(&a.State)
		case "timeout":
			r.duration(&a.Timeout)
		case "req":
			a.Req = r.raw()
		default:
			return false
		}
		return true
	})
}

// MarshalJSON writes the attempt with its response.
func (a Attempt) MarshalJSON() ([]byte, error) {
	w := new(writer)
	a.write(w)
	return w.text, w.err
}

// UnmarshalJSON reads the JSON of MarshalJSON. The response becomes a json.RawMessage.
func (a *Attempt) UnmarshalJSON(text []byte) error { return unmarshal(text, a.read) }

func (a *Attempt) write(w *writer) {
	w.open()
	if a.Err != nil {
		w.name("err")
		w.error(a.Err, 0)
	}
	w.time("start", a.Start)
	w.time("end", a.End)
	if err := w.any("resp", a.Resp); err != nil {
		w.fail(fmt.Errorf("workflow: response: %w", err))
	}
	w.close(a.unknown)
}

func (a *Attempt) read(r *reader) {
	a.Resp = nil
	a.unknown = r.object("workflow.Attempt", func(name []byte) bool {
		switch string(name) {
		case "err":
			a.Err = r.error(0)
		case "start":
			r.time(&a.Start)
		case "end":
			r.time(&a.End)
		case "resp":
			a.Resp = r.raw()
		default:
			return false
		}
		return true
	})
}

func readAttempt(r *reader) (a Attempt) {
	if !r.null() {
		a.read(r)
	}
	return a
}

// error writes an error with those that it wraps, which may be a circle.
func (w *writer) error(e *plugins.Error, depth int) {
	if depth > MaxDepth {
		w.fail(fmt.Errorf("workflow: more than %d errors are wrapped in each other", MaxDepth))
		return
	}
	w.open()
	w.integer("code", int64(e.Code))
	w.string("message", e.Message)
	w.bool("permanent", e.Permanent)
	if e.Wrapped != nil {
		w.name("wrapped")
		w.error(e.Wrapped, depth+1)
	}
	w.close("")
}

// error reads an error. Members that it does not know are lost.
func (r *reader) error(depth int) *plugins.Error {
	if depth > MaxDepth {
		r.fail("more than %d errors are wrapped in each other", MaxDepth)
	}
	return optional(r, func(e *plugins.Error, r *reader) {
		r.object("plugins.Error", func(name []byte) bool {
			switch string(name) {
			case "code":
				integer(r, &e.Code)
			case "message":
				r.string(&e.Message)
			case "permanent":
				r.bool(&e.Permanent)
			case "wrapped":
				e.Wrapped = r.error(depth + 1)
			default:
				return false
			}
			return true
		})
	})
}

// MarshalJSON writes the deferred actions with their batches.
func (d DeferredActions) MarshalJSON() ([]byte, error) { return Marshal(&d) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (d *DeferredActions) UnmarshalJSON(text []byte) error { return Unmarshal(text, d) }

func (d *DeferredActions) write(w *writer) {
	w.open()
	w.id("id", d.ID)
	w.id("planID", d.PlanID)
	elements(w, "batches", d.Batches, (*DeferBatch).write)
	w.state(d.State)
	w.close(d.unknown)
}

func (d *DeferredActions) read(r *reader) {
	d.unknown = r.object("workflow.DeferredActions", func(name []byte) bool {
		switch string(name) {
		case "id":
			r.id(&d.ID)
		case "planID":
			r.id(&d.PlanID)
		case "batches":
			d.Batches = objects(r, "[]*workflow.DeferBatch", (*DeferBatch).read)
		case "state":
			r.state(&d.State)
		default:
			return false
		}
		return true
	})
}

// MarshalJSON writes the batch with its actions.
func (b DeferBatch) MarshalJSON() ([]byte, error) { return Marshal(&b) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (b *DeferBatch) UnmarshalJSON(text []byte) error { return Unmarshal(text, b) }

func (b *DeferBatch) write(w *writer) {
	w.open()
	w.id("id", b.ID)
	w.id("planID", b.PlanID)
	w.id("key", b.Key)
	w.string("name", b.Name)
	w.string("descr", b.Descr)
	enum(w, "when", whenNames, b.When)
	w.bool("failElement", b.FailElement)
	elements(w, "actions", b.Actions, (*Action).write)
	w.state(b.State)
	w.close(b.unknown)
}

func (b *DeferBatch) read(r *reader) {
	b.unknown = r.object("workflow.DeferBatch", func(name []byte) bool {
		switch string(name) {
		case "id":
			r.id(&b.ID)
		case "planID":
			r.id(&b.PlanID)
		case "key":
			r.id(&b.Key)
		case "name":
			r.string(&b.Name)
		case "descr":
			r.string(&b.Descr)
		case "when":
			r.marshaled("workflow.When", &b.When)
		case "failElement":
			r.bool(&b.FailElement)
		case "actions":
			b.Actions = objects(r, "[]*workflow.Action", (*Action).read)
		case "state":
			r.state(&b.State)
		default:
			return false
		}
		return true
	})
}

// MarshalJSON writes the state with its times in UTC.
func (s State) MarshalJSON() ([]byte, error) {
	w := new(writer)
	s.write(w)
	return w.text, w.err
}

// UnmarshalJSON reads the JSON of MarshalJSON.
func (s *State) UnmarshalJSON(text []byte) error { return unmarshal(text, s.read) }

func (s *State) write(w *writer) {
	w.open()
	w.name("status")
	w.value(statusNames.marshal(s.Status))
	w.time("start", s.Start)
	w.time("end", s.End)
	w.string("etag", s.ETag)
	w.close(s.unknown)
}

func (s *State) read(r *reader) {
	s.unknown = r.object("workflow.State", func(name []byte) bool {
		switch string(name) {
		case "status":
			r.marshaled("workflow.Status", &s.Status)
		case "start":
			r.time(&s.Start)
		case "end":
			r.time(&s.End)
		case "etag":
			r.string(&s.ETag)
		default:
			return false
		}
		return true
	})
}

// state writes the state of an object.
func (w *writer) state(s State) {
	if w.own {
		s.ETag = ""
	}
	if s != (State{}) {
		w.name("state")
		s.write(w)
	}
}

// state reads the state of an object.
func (r *reader) state(s *State) {
	if !r.null() {
		s.read(r)
	}
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
		if err := new(writer).any(field, v); err != nil {
			bad(field, err.Error())
		}
	}
	check("Req", a.Req)
	for i := range a.Attempts {
		check(fmt.Sprintf("Attempts[%d].Resp", i), a.Attempts[i].Resp)
	}
}
