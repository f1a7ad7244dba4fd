package driver

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/values"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// survives is a rule: a request is read back as it is, and the plugin's types lose nothing of each value.
func survives(reg *registry.Register) workflow.Rule {
	known, plugin := losses{}, types{reg: reg}
	return discreet(reg, func(o workflow.Object, bad workflow.Report) {
		a, ok := o.(*workflow.Action)
		if !ok || reg == nil || !plugin.is(a.Plugin) {
			return
		}
		if l := known.of(reflect.TypeOf(plugin.response)).certain; l != nil {
			bad("Plugin", fmt.Sprintf("the field %q of the response of plugin %s %s", strings.TrimPrefix(l.field, "."), a.Plugin, l.problem))
		}
		if a.Req == nil {
			return
		}
		request := known.of(reflect.TypeOf(plugin.request))
		l := request.certain
		if l == nil && request.possible {
			switch fresh, _, err := values.Fresh(a.Req, plugin.request); { // another rule reports the error
			case err == nil:
				l = changed(reflect.ValueOf(a.Req), reflect.ValueOf(fresh))
			case blocked(err):
				known[reflect.TypeOf(plugin.request)] = loss{} // the next ones would take as long
			}
		}
		if l != nil {
			bad("Req"+l.field, l.problem)
		}
	})
}

// lost is what JSON loses: the path of the field, which is empty or begins with a dot, and why.
type lost struct{ field, problem string }

// loss is what JSON loses of the values of a type.
type loss struct {
	certain  *lost // of each value
	possible bool  // it depends on the value what is lost, or whether it can be read at all
}

// losses has the loss of each type that was asked for. It is for one plan, whose actions share a few types.
type losses map[reflect.Type]loss

func (known losses) of(t reflect.Type) loss {
	l, found := known[t]
	if !found && t != nil {
		elem := t
		if t.Kind() == reflect.Pointer {
			elem = t.Elem()
		}
		l.find(elem, "", false, map[reflect.Type]bool{})
		known[t] = l
	}
	return l
}

// find looks for losses in a type and below it. behind means that values may have nil in its place.
func (l *loss) find(t reflect.Type, path string, behind bool, seen map[reflect.Type]bool) {
	if seen[t] || t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[json.RawMessage]() { // these read what they write
		return
	}
	seen[t] = true
	switch {
	case t.Kind() == reflect.Interface, plugins.WritesItself(t):
		l.possible = true
	case t.Kind() == reflect.Map:
		l.find(t.Key(), path, behind, seen)
		l.find(t.Elem(), path, behind, seen)
	case t.Kind() == reflect.Pointer:
		l.find(t.Elem(), path, true, seen)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		l.find(t.Elem(), path, behind, seen)
	case t.Kind() != reflect.Struct:
	case opaque(t) && !behind:
		l.note(path, nothingStored(t))
	case opaque(t):
		l.possible = true
	default:
		l.findInFields(t, path, behind, seen)
	}
}

func (l *loss) findInFields(t reflect.Type, path string, behind bool, seen map[reflect.Type]bool) {
	holders := map[string]string{}
	for f := range t.Fields() {
		if !inJSON(f) {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" { // its fields are those of t, unless t has others of their names
			l.possible = true
			l.find(f.Type, path, true, seen)
			continue
		}
		if name == "" {
			name = f.Name
		}
		at := path + "." + f.Name
		if holder, taken := holders[name]; taken {
			l.note(at, fmt.Sprintf("is lost, because the JSON of %s is named %q as well", holder, name))
		}
		holders[name] = f.Name
		l.find(f.Type, at, behind, seen)
	}
}

func (l *loss) note(path, problem string) {
	if l.certain == nil {
		l.certain = &lost{path, problem}
	}
}

// inJSON reports whether encoding/json writes a field, or the fields of a struct that is embedded.
func inJSON(f reflect.StructField) bool {
	t := f.Type
	if f.Anonymous && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return f.Tag.Get("json") != "-" && (f.IsExported() || f.Anonymous && t.Kind() == reflect.Struct)
}

// opaque reports whether a struct has fields, and none for JSON.
func opaque(t reflect.Type) bool {
	hidden := 0
	for f := range t.Fields() {
		if f.IsExported() || f.Anonymous {
			return false
		}
		if f.Name != "_" {
			hidden++
		}
	}
	return hidden > 0
}

func nothingStored(t reflect.Type) string {
	return fmt.Sprintf("can't be stored: a %v has no exported fields", t)
}

// changed returns the first part in which a value differs from what it was read back as, or nil. Of what has a JSON of its
// own it compares texts, numbers and truth values alone. What an interface holds may have another type afterwards.
func changed(was, is reflect.Value) *lost {
	was, is = held(was), held(is)
	if was.Kind() == reflect.Pointer && is.Kind() != reflect.Pointer {
		was = was.Elem()
	}
	if !was.IsValid() {
		return nil
	}
	own, kind := plugins.WritesItself(was.Type()), was.Kind()
	switch {
	case !is.IsValid():
		if !own && !was.IsZero() {
			return &lost{"", "is lost"}
		}
	case is.Kind() == reflect.Float64 && was.Type() != is.Type():
		return inexact(was, is.Float())
	case was.Type() == is.Type() && (kind == reflect.String || reflect.Bool <= kind && kind <= reflect.Complex128):
		if !was.Equal(is) {
			return &lost{"", "is read back as another value"}
		}
	case own, kind != is.Kind():
	case kind == reflect.Pointer:
		return changed(was.Elem(), is.Elem())
	case kind == reflect.Struct:
		return changedField(was, is)
	case kind == reflect.Slice, kind == reflect.Array, kind == reflect.Map && was.Type().Key() == is.Type().Key():
		return changedElement(was, is)
	}
	return nil
}

// held returns what an interface holds, and any other value unchanged.
func held(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Interface {
		return v.Elem()
	}
	return v
}

func changedField(was, is reflect.Value) *lost {
	if opaque(was.Type()) && !was.IsZero() {
		return &lost{"", nothingStored(was.Type())}
	}
	for i := range was.NumField() {
		if f := was.Type().Field(i); inJSON(f) {
			if l := changed(was.Field(i), is.Field(i)); l != nil {
				return &lost{"." + f.Name + l.field, l.problem}
			}
		}
	}
	return nil
}

// changedElement compares slices, arrays, or maps with the same type of keys.
func changedElement(was, is reflect.Value) *lost {
	if was.Len() != is.Len() {
		return &lost{"", fmt.Sprintf("is read back with %d of %d elements", is.Len(), was.Len())}
	}
	for key, value := range was.Seq2() {
		var now reflect.Value
		if was.Kind() != reflect.Map {
			now = is.Index(int(key.Int()))
		} else if now = is.MapIndex(key); !now.IsValid() {
			continue // a key that is the same in another form, such as a time
		}
		if l := changed(value, now); l != nil {
			return &lost{fmt.Sprintf("[%v]%s", key, l.field), l.problem}
		}
	}
	return nil
}

// inexact returns a loss if an integer is read back as another float64.
func inexact(was reflect.Value, f float64) *lost {
	exact := true
	switch n, err := strconv.ParseInt(was.String(), 10, 64); {
	case was.CanInt():
		exact = f != 1<<63 && int64(f) == was.Int()
	case was.CanUint():
		exact = f != 1<<64 && uint64(f) == was.Uint()
	case was.Kind() == reflect.String && err == nil:
		exact = f != 1<<63 && int64(f) == n
	}
	if exact {
		return nil
	}
	return &lost{"", "is read back as another number, because numbers in an interface are read as float64: give it a type"}
}
