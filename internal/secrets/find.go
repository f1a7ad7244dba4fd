// Package secrets finds the fields of requests and responses that are tagged vault:"secret", and hides their values.
package secrets

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/planvault/azblob/plugins"
)

// Tag is the key of the tag, and Word its only value.
const (
	Tag  = "vault"
	Word = "secret"
)

// A path is a JSON Pointer (RFC 6901). Two tokens stand for others: * for any member or element, and ** for any number of
// levels. A * in a name is written as ~2.
const (
	anyOne  = "*"
	anyDeep = "**"
)

// mostTokens bounds a path. What lies deeper is secret with what holds it.
const mostTokens = 32

// Find returns the paths of the secrets in the JSON of a value, each after root, sorted. v or empty, which is an empty value
// of the type as which v is read, may be nil. What an interface holds counts with the type that it has in v. A type that
// writes its own JSON is secret as a whole if a field in it is. The error names a field whose tag is not vault:"secret".
func Find(root string, v, empty any) ([]string, error) {
	if _, raw := v.(json.RawMessage); raw {
		v = nil
	}
	var known, held traits
	if empty != nil {
		known = traitsOf(reflect.TypeOf(empty))
	}
	if v != nil {
		held = traitsOf(reflect.TypeOf(v))
	}
	if !known.tagged && !held.tagged && !held.open {
		return nil, nil // as most
	}
	f := finder{at: []string{strings.TrimPrefix(root, "/")}, around: map[visit]bool{}}
	if known.tagged {
		f.find(reflect.TypeOf(empty), reflect.Value{})
	}
	if v != nil {
		f.find(reflect.TypeOf(v), reflect.ValueOf(v))
	}
	return joined(f.paths), f.err
}

// Merge returns the paths of two lists, without changing them. It is a if b adds nothing.
func Merge(a, b []string) []string {
	if !slices.ContainsFunc(b, func(path string) bool { return !slices.Contains(a, path) }) {
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func joined(paths [][]string) []string {
	var all []string
	for _, path := range paths {
		all = append(all, "/"+strings.Join(path, "/"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// finder walks over a type, and over a value of it as far as only the value tells the types.
type finder struct {
	at      []string // the present path
	structs []frame  // the types of the structs around the present value
	around  map[visit]bool
	depth   int
	paths   [][]string
	err     error
}

// frame is a struct around the present value. If its type is met again below it, the paths in it hold at any depth.
type frame struct {
	t     reflect.Type
	at    []string
	again bool
}

// visit is a value that the walk is in. A value that holds itself has no JSON.
type visit struct {
	t reflect.Type
	p uintptr
	n int
}

func (f *finder) add() {
	f.paths = append(f.paths, slices.Clone(f.at[:min(len(f.at), mostTokens)]))
}

// below calls do with a token more.
func (f *finder) below(token string, do func()) {
	at := f.at
	f.at = append(slices.Clip(at), token)
	do()
	f.at = at
}

// maxDepth is how deep a value may be nested. Deeper ones have no JSON that can be read.
const maxDepth = 10_000

// find walks over a type, and over v unless it is the zero Value.
func (f *finder) find(t reflect.Type, v reflect.Value) {
	known := traitsOf(t)
	if f.depth > maxDepth || !known.tagged && (!known.open || !v.IsValid()) {
		return
	}
	f.err = cmp.Or(f.err, known.err)
	f.depth++
	defer func() { f.depth-- }()
	switch t.Kind() {
	case reflect.Interface:
		if v.IsValid() && !v.IsNil() {
			f.find(v.Elem().Type(), v.Elem())
		}
		return
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if v.IsValid() {
			if v.IsNil() {
				v = reflect.Value{}
			} else {
				here := visit{t, v.Pointer(), 0}
				if t.Kind() == reflect.Slice {
					here.n = v.Len()
				}
				if f.around[here] {
					return
				}
				f.around[here] = true
				defer delete(f.around, here)
			}
		}
	}
	switch {
	case t.Kind() == reflect.Pointer:
		f.find(t.Elem(), elem(v))
	case plugins.WritesItself(t):
		f.whole(t, v)
	case t.Kind() == reflect.Struct:
		f.enter(t, v)
	default:
		f.below(anyOne, func() { f.elements(t, v) })
	}
}

func elem(v reflect.Value) reflect.Value {
	if v.IsValid() {
		return v.Elem()
	}
	return v
}

// elements walks over the elements of a map, a slice or an array, or over their type.
func (f *finder) elements(t reflect.Type, v reflect.Value) {
	if !v.IsValid() || v.Len() == 0 || !traitsOf(t.Elem()).open {
		f.find(t.Elem(), reflect.Value{})
		return
	}
	for _, e := range v.Seq2() {
		f.find(t.Elem(), e)
	}
}

// whole adds a value that writes itself if anything in it is secret.
func (f *finder) whole(t reflect.Type, v reflect.Value) {
	secret := traitsOf(t).tagged
	if !secret && v.IsValid() {
		inner := finder{at: f.at, around: f.around, depth: f.depth}
		switch t.Kind() {
		case reflect.Struct:
			for i := range t.NumField() {
				inner.find(t.Field(i).Type, v.Field(i))
			}
		case reflect.Map, reflect.Slice, reflect.Array:
			inner.elements(t, v)
		}
		secret, f.err = len(inner.paths) > 0, cmp.Or(f.err, inner.err)
	}
	if secret {
		f.add()
	}
}

// enter walks over a struct.
func (f *finder) enter(t reflect.Type, v reflect.Value) {
	if i := slices.IndexFunc(f.structs, func(s frame) bool { return s.t == t }); i >= 0 {
		f.structs[i].again = true
		if v.IsValid() && traitsOf(t).open {
			at := f.at
			f.at = append(slices.Clip(f.structs[i].at), anyDeep)
			f.fields(t, v, false)
			f.at = at
		}
		return
	}
	f.structs = append(f.structs, frame{t: t, at: f.at})
	first := len(f.paths)
	f.fields(t, v, false)
	last := len(f.structs) - 1
	if s := f.structs[last]; s.again {
		for i, path := range f.paths[first:] {
			if n := len(s.at); n < len(path) && path[n] != anyDeep {
				f.paths[first+i] = slices.Insert(slices.Clone(path), n, anyDeep)
			}
		}
	}
	f.structs = f.structs[:last]
}

// fields walks over the fields of a struct. all says that all of them are secret.
func (f *finder) fields(t reflect.Type, v reflect.Value, all bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		m := memberOf(field)
		if m.absent {
			continue
		}
		_, tagged := field.Tag.Lookup(Tag)
		tagged = tagged || all
		var value reflect.Value
		if v.IsValid() {
			value = v.Field(i)
		}
		switch {
		case m.embedded:
			f.embedded(field.Type, value, tagged)
		case tagged:
			f.below(m.token, f.add)
		default:
			f.below(m.token, func() { f.find(field.Type, value) })
		}
	}
}

// embedded walks over a field whose members are those of the struct around it.
func (f *finder) embedded(t reflect.Type, v reflect.Value, all bool) {
	if t.Kind() == reflect.Pointer {
		if t = t.Elem(); v.IsValid() {
			v = v.Elem()
		}
	}
	switch {
	case t.Kind() != reflect.Struct && all:
		f.below(anyOne, f.add)
	case t.Kind() != reflect.Struct:
		f.find(t, v)
	case !all:
		f.enter(t, v)
	case !slices.ContainsFunc(f.structs, func(s frame) bool { return s.t == t }):
		f.structs = append(f.structs, frame{t: t, at: f.at})
		f.fields(t, v, true)
		f.structs = f.structs[:len(f.structs)-1]
	}
}

// member is how a field stands in JSON.
type member struct {
	token    string // of its path
	embedded bool   // its members are those of the struct around it
	absent   bool
}

func memberOf(field reflect.StructField) member {
	tag := field.Tag.Get("json")
	name, options, _ := strings.Cut(tag, ",")
	t := field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for option := range strings.SplitSeq(options, ",") {
		if option == "embed" || option == "inline" || option == "unknown" {
			return member{embedded: true}
		}
	}
	switch {
	case tag == "-", !field.IsExported() && !(field.Anonymous && t.Kind() == reflect.Struct):
		return member{absent: true}
	case field.Anonymous && name == "" && t.Kind() == reflect.Struct:
		return member{embedded: true}
	case name == "":
		return member{token: escape(field.Name)}
	case strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r)
	}):
		return member{token: anyOne} // quoted, or not taken at all
	}
	return member{token: escape(name)}
}

var escaping = strings.NewReplacer("~", "~0", "/", "~1", "*", "~2")

func escape(name string) string { return escaping.Replace(name) }

// traits are what is known of a type and of all types below it.
type traits struct {
	tagged bool // a field has the tag
	open   bool // an interface may hold a value of any type
	err    error
}

var traitsByType sync.Map

func traitsOf(t reflect.Type) traits {
	known, ok := traitsByType.Load(t)
	if !ok {
		var found traits
		found.look(t, map[reflect.Type]bool{})
		known, _ = traitsByType.LoadOrStore(t, found)
	}
	return known.(traits)
}

func (k *traits) look(t reflect.Type, seen map[reflect.Type]bool) {
	if seen[t] || t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[json.RawMessage]() {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		k.open = true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		k.look(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			word, has := field.Tag.Lookup(Tag)
			k.tagged = k.tagged || has
			if has && word != Word && k.err == nil {
				k.err = fmt.Errorf("the field %s of %v has the tag %s:%q: the only one there is is %s:%q", field.Name, t, Tag, word, Tag, Word)
			}
			k.look(field.Type, seen)
		}
	}
}
