package workflow

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/planvault/azblob/internal/secrets"
)

// ParseError describes a problem at one place in the text of a plan.
type ParseError struct {
	// Line and Column are the place, both counted from 1. Column counts characters.
	Line, Column int
	// Field is the path to the field, such as blocks[0].sequences[2].actions[1].timeout. It is empty for the
	// text as a whole.
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error returns the place, the field and the problem.
func (e *ParseError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
	}
	return fmt.Sprintf("line %d, column %d: %s: %s", e.Line, e.Column, e.Field, e.Problem)
}

// ParsePlan reads the JSON of a new plan that a person wrote. It refuses what encoding/json silently accepts:
// unknown fields, names given twice, and names that differ in case. It also refuses a plan without work in it
// (no blocks, or a sequence without actions), and fields that only the vault or the engine sets. It then
// validates the plan as [Validate] does.
//
// request returns an empty value of the type of a plugin's requests, as [plugins.Plugin.Request] does, and
// the action's req must fit it. An error from request means that there is no such plugin.
//
// ParsePlan reports all problems, as [*ParseError] values joined with errors.Join, in the order of the text.
func ParsePlan(text []byte, request func(plugin string) (any, error)) (*Plan, error) {
	p := &planParser{text: text, request: request, at: map[string]int{}}
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil { // wrong syntax, or nested too deeply
		at := len(text)
		if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = max(0, int(wrong.Offset)-1) // the last byte that was read
		}
		p.bad(at, "", "%v", err)
		return nil, p.err()
	}
	p.tokens = json.NewDecoder(bytes.NewReader(text))
	p.tokens.UseNumber() // the field's type decides how large a number may be
	whole := p.read()
	p.distinct(whole, "")
	p.check(whole, reflect.TypeFor[Plan](), "")

	plan := new(Plan)
	if len(p.errs) == 0 {
		if err := json.Unmarshal(text, plan); err != nil {
			return nil, err
		}
		p.validate(plan)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return plan, nil
}

// planParser compares a text with the types of the model.
type planParser struct {
	text    []byte
	request func(plugin string) (any, error)
	tokens  *json.Decoder
	at      map[string]int // the offset of each field, by its path
	errs    []*ParseError
}

// value is a JSON value and its place in the text.
type value struct {
	start, end int
	members    []member // of an object
	items      []value  // of an array
}

type member struct {
	name  string
	start int
	value value
}

// read reads the next value of a text whose syntax is correct.
func (p *planParser) read() value {
	v := value{start: p.next()}
	token, _ := p.tokens.Token()
	switch token {
	case json.Delim('{'):
		for p.tokens.More() {
			start := p.next()
			name, _ := p.tokens.Token()
			v.members = append(v.members, member{name.(string), start, p.read()})
		}
		_, _ = p.tokens.Token()
	case json.Delim('['):
		for p.tokens.More() {
			v.items = append(v.items, p.read())
		}
		_, _ = p.tokens.Token()
	}
	v.end = int(p.tokens.InputOffset())
	return v
}

// next returns the offset of the next token.
func (p *planParser) next() int {
	i := int(p.tokens.InputOffset())
	for i < len(p.text) && strings.IndexByte(" \t\r\n,:", p.text[i]) >= 0 {
		i++
	}
	return i
}

// needed is the field that each type of object must have.
var needed = map[reflect.Type]string{
	reflect.TypeFor[Plan]():            "blocks",
	reflect.TypeFor[Checks]():          "actions",
	reflect.TypeFor[Block]():           "sequences",
	reflect.TypeFor[Sequence]():        "actions",
	reflect.TypeFor[Action]():          "plugin",
	reflect.TypeFor[DeferredActions](): "batches",
	reflect.TypeFor[DeferBatch]():      "actions",
}

// notAuthored are the fields that the vault or the engine sets.
var notAuthored = []string{"planID", "state", "submitTime", "submitted", "reason", "runtimeUpdate", "owner", "epoch", "wakeAt", "paused", "ending", "forkedFrom", "forked", "stopped", "attempts"}

// check compares a value with the type that it is read as.
func (p *planParser) check(v value, t reflect.Type, path string) {
	p.at[path] = v.start
	if p.null(v) && t.Kind() == reflect.Pointer {
		return // null is the same as an absent field
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Duration]() {
		t = reflect.TypeFor[duration]()
	}
	first := p.text[v.start]
	name, ours := needed[t]
	switch {
	case first == '{' && ours || first == '{' && t.Kind() == reflect.Struct && !readsItself(t):
		known := fieldsOf(t)
		if ours {
			for _, set := range notAuthored {
				delete(known, set)
			}
			p.need(v, name, path)
		}
		switch t {
		case reflect.TypeFor[Plan]():
			known["meta"], known["metaBase64"] = reflect.TypeFor[string](), reflect.TypeFor[[]byte]()
		case reflect.TypeFor[Action]():
			known["req"] = p.requestOf(v, path)
		}
		p.members(v, path, known)
		if t == reflect.TypeFor[Action]() {
			p.redact(v, known["req"])
		}
	case first == '[' && t.Kind() == reflect.Slice && !readsItself(t) && t.Elem().Kind() != reflect.Uint8:
		for i, item := range v.items {
			at := fmt.Sprintf("%s[%d]", path, i)
			if p.null(item) && t.Elem().Kind() == reflect.Pointer {
				p.bad(item.start, at, "is null")
			}
			p.check(item, t.Elem(), at)
		}
	case ours:
		p.leaf(v, reflect.TypeFor[struct{}](), path)
	default:
		p.leaf(v, t, path)
	}
}

// members checks the members of an object against the fields of its type.
func (p *planParser) members(v value, path string, known map[string]reflect.Type) {
	for _, m := range v.members {
		if t, ok := known[m.name]; ok {
			p.check(m.value, t, below(path, m.name))
		} else {
			p.bad(m.start, below(path, m.name), "there is no such field; known are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
}

// distinct checks that no object in the text, of whatever type, has two members of the same name.
func (p *planParser) distinct(v value, path string) {
	seen := map[string]bool{}
	for _, m := range v.members {
		if seen[m.name] {
			p.bad(m.start, below(path, m.name), "is given twice")
		}
		seen[m.name] = true
		p.distinct(m.value, below(path, m.name))
	}
	for i, item := range v.items {
		p.distinct(item, fmt.Sprintf("%s[%d]", path, i))
	}
}

// below returns the path of a member.
func below(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// need checks that an object has a field that is not empty.
func (p *planParser) need(v value, name, path string) {
	field := v.member(name)
	switch {
	case field == nil:
		p.bad(v.start, path, "there is no %q", name)
	case p.null(*field):
		p.bad(field.start, below(path, name), "is null")
	case p.text[field.start] == '[' && len(field.items) == 0:
		p.bad(field.start, below(path, name), "is empty")
	}
}

// requestOf returns the type of an action's request, or any if there is no such plugin.
func (p *planParser) requestOf(v value, path string) reflect.Type {
	var name string
	plugin := v.member("plugin")
	if plugin == nil || json.Unmarshal(p.text[plugin.start:plugin.end], &name) != nil {
		return reflect.TypeFor[any]() // need and check report this
	}
	request, err := p.request(name)
	if err != nil {
		p.bad(plugin.start, path+".plugin", "%v", err)
	}
	if err != nil || request == nil {
		return reflect.TypeFor[any]()
	}
	return reflect.TypeOf(request)
}

// redact takes the secrets of an action's request out of the problems with it.
func (p *planParser) redact(action value, t reflect.Type) {
	v := action.member("req")
	if v == nil {
		return
	}
	paths, _ := secrets.Find("/req", nil, reflect.Zero(t).Interface())
	_, values, _ := secrets.Hide("/req", p.text[v.start:v.end], paths)
	if len(values) == 0 {
		return
	}
	for _, err := range p.errs {
		err.Problem = secrets.Scrub(err.Problem, values)
	}
}

// leaf reads a value with encoding/json.
func (p *planParser) leaf(v value, t reflect.Type, path string) {
	err := json.Unmarshal(p.text[v.start:v.end], reflect.New(t).Interface())
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		p.bad(v.start, path, "is of the wrong type: %s, want %s", wrong.Value, wanted(t))
	} else if p.null(v) && t.Kind() == reflect.Struct && !readsItself(t) {
		p.bad(v.start, path, "is null, want an object")
	} else if err != nil {
		p.bad(v.start, path, "%v", err)
	}
}

// wanted describes the JSON of a type.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[duration]():
		return `a duration such as "1m30s"`
	case readsItself(t) || t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		return "an object"
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return "an array"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case reflect.Int <= t.Kind() && t.Kind() <= reflect.Uint64:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	}
	return t.String()
}

// validate reports what Validate finds.
func (p *planParser) validate(plan *Plan) {
	joined, ok := validate(plan, math.MaxInt, nil).(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		if wrong, ok := errors.AsType[*FieldError](err); ok {
			path := inJSON(wrong.Field)
			p.bad(p.at[path], path, "%s", wrong.Problem)
		}
	}
}

// inJSON turns the path of a field in Go into its path in JSON.
func inJSON(field string) string {
	names := strings.Split(field, ".")
	for i, name := range names {
		if name == "ID" {
			names[i] = "id"
			continue
		}
		first, size := utf8.DecodeRuneInString(name)
		names[i] = string(unicode.ToLower(first)) + name[size:]
	}
	return strings.Join(names, ".")
}

// bad adds a problem at an offset of the text.
func (p *planParser) bad(at int, field, problem string, args ...any) {
	before := p.text[:min(at, len(p.text))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	p.errs = append(p.errs, &ParseError{line, column, field, fmt.Sprintf(problem, args...)})
}

// err joins the problems in the order of the text.
func (p *planParser) err() error {
	slices.SortStableFunc(p.errs, func(a, b *ParseError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for _, err := range p.errs {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// null reports whether a value is null.
func (p *planParser) null(v value) bool { return p.text[v.start] == 'n' }

// member returns the first member of an object with this name, or nil.
func (v value) member(name string) *value {
	for i := range v.members {
		if v.members[i].name == name {
			return &v.members[i].value
		}
	}
	return nil
}

// readsItself reports whether a type has an UnmarshalJSON or UnmarshalText of its own.
func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// fieldsOf returns a struct's fields by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" || !f.IsExported() || name == "-" && option == "":
		case name != "":
			fields[name] = f.Type
		default:
			fields[f.Name] = f.Type
		}
	}
	return fields
}
