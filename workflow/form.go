package workflow

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// unknown has the members of an object's JSON that this code does not know, separated by commas, as newer code wrote
// them. Each type of the model but plugins.Error embeds it.
type unknown string

func (u *unknown) self() *unknown { return u }

// form is the JSON of a struct.
type form struct {
	of      reflect.Type
	members []formMember
	resets  []int // the members with a reset
	object  bool  // it is an Object
	// exact says to refuse members that are unknown or repeated.
	exact bool
	// unknown is the offset of the unknown members, which plugins.Error lacks.
	unknown uintptr
	keeps   bool
}

// formMember is a field of a struct.
type formMember struct {
	code
	name   string
	begin  string // the name as it is written
	offset uintptr
	keep   bool // zero values are written
	// notOwn reports whether the field, which is not zero, is left out of an object's own fields; nil if it never is.
	notOwn func(v unsafe.Pointer) bool
}

// of returns a pointer to the field of the struct at v. Reflection would take a quarter of the time to write or read a
// plan.
func (m *formMember) of(v unsafe.Pointer) unsafe.Pointer { return unsafe.Add(v, m.offset) }

// forms has the form of each struct.
var forms = map[reflect.Type]*form{}

func init() { _ = formOf(reflect.TypeFor[Plan]()) }

// formOf makes the forms of a struct and of those below it.
func formOf(t reflect.Type) *form {
	if f := forms[t]; f != nil {
		return f
	}
	f := &form{of: t, object: reflect.PointerTo(t).Implements(reflect.TypeFor[Object]())}
	forms[t] = f // an error may wrap another one
	zero := reflect.New(t)
	if u, ok := zero.Interface().(interface{ self() *unknown }); ok {
		f.unknown, f.keeps = uintptr(unsafe.Pointer(u.self()))-uintptr(zero.UnsafePointer()), true
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		m := formMember{
			code: codeFor(field.Type), name: name, begin: `"` + name + `":`, offset: field.Offset, keep: option == "",
		}
		switch {
		case isChild(field.Type), t == reflect.TypeFor[State]() && name == "etag":
			m.notOwn = func(unsafe.Pointer) bool { return true }
		case field.Type == reflect.TypeFor[State]():
			m.notOwn = func(v unsafe.Pointer) bool { return (*State)(v).onlyVersion() }
		}
		switch name {
		case "plugin":
			m.code = pluginCode
		case "req":
			m.code = anyCode(func(p *pluginTypes) plainValue { return p.request })
		case "resp":
			m.code = anyCode(func(p *pluginTypes) plainValue { return p.response })
		}
		f.members = append(f.members, m)
		if name == "meta" {
			m.name, m.begin, m.code = "metaBase64", `"metaBase64":`, binaryCode
			f.members = append(f.members, m)
		}
	}
	for i, m := range f.members {
		if m.reset != nil {
			f.resets = append(f.resets, i)
		}
	}
	return f
}

// isChild reports whether values of a type are objects, or lists of them.
func isChild(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[Object]()) || t.Kind() == reflect.Slice && t.Elem().Implements(reflect.TypeFor[Object]())
}

// others returns the unknown members of the struct at v, or nil if it has no room for them.
func (f *form) others(v unsafe.Pointer) *unknown {
	if !f.keeps {
		return nil
	}
	return (*unknown)(unsafe.Add(v, f.unknown))
}

// find returns the index of the member with a name, or -1. Most members come in order, so it begins with next.
func (f *form) find(name []byte, next int) int {
	for n := range f.members {
		if i := (next + n) % len(f.members); f.members[i].name == string(name) {
			return i
		}
	}
	return -1
}

// code is the JSON of a type. Its functions get pointers to values.
type code struct {
	empty func(v unsafe.Pointer) bool
	write func(w *writer, v unsafe.Pointer)
	read  func(r *reader, v unsafe.Pointer)
	reset func(r *reader, v unsafe.Pointer) // before the object is read; nil to leave the field alone
}

// codeFor returns the code of a field's type.
func codeFor(t reflect.Type) code {
	switch t {
	case reflect.TypeFor[string]():
		return valueCode((*writer).quote, (*reader).string)
	case reflect.TypeFor[uuid.UUID]():
		return valueCode((*writer).id, (*reader).id)
	case reflect.TypeFor[time.Time]():
		return codeOf(func(t *time.Time) bool { return t.IsZero() }, (*writer).time, (*reader).time)
	case reflect.TypeFor[time.Duration]():
		return valueCode(func(w *writer, d time.Duration) { w.plain(d.String(), nil) }, (*reader).duration)
	case reflect.TypeFor[int]():
		return integerCode[int]()
	case reflect.TypeFor[int64]():
		return integerCode[int64]()
	case reflect.TypeFor[bool]():
		return valueCode((*writer).bool, (*reader).bool)
	case reflect.TypeFor[Status]():
		return nameCode(statusNames)
	case reflect.TypeFor[FailureReason]():
		return nameCode(reasonNames)
	case reflect.TypeFor[When]():
		return nameCode(whenNames)
	case reflect.TypeFor[State]():
		return structCode[State]()
	case reflect.TypeFor[Attribution]():
		return structCode[Attribution]()
	case reflect.TypeFor[any]():
		return code{} // see formOf
	case reflect.TypeFor[[]byte]():
		return textCode
	case reflect.TypeFor[map[string]string]():
		return textsCode
	case reflect.TypeFor[*Checks]():
		return pointerCode[Checks]()
	case reflect.TypeFor[*DeferredActions]():
		return pointerCode[DeferredActions]()
	case reflect.TypeFor[*plugins.Error]():
		return pointerCode[plugins.Error]()
	case reflect.TypeFor[[]*Block]():
		return listCode[Block]()
	case reflect.TypeFor[[]*Sequence]():
		return listCode[Sequence]()
	case reflect.TypeFor[[]*Action]():
		return listCode[Action]()
	case reflect.TypeFor[[]*DeferBatch]():
		return listCode[DeferBatch]()
	case reflect.TypeFor[[]Attempt]():
		return attemptsCode()
	}
	panic("workflow: no JSON for " + t.String()) // while the program starts
}

// codeOf makes a code of functions that know the type.
func codeOf[T any](empty func(v *T) bool, write func(w *writer, v *T), read func(r *reader, v *T)) code {
	return code{
		empty: func(v unsafe.Pointer) bool { return empty((*T)(v)) },
		write: func(w *writer, v unsafe.Pointer) { write(w, (*T)(v)) },
		read:  func(r *reader, v unsafe.Pointer) { read(r, (*T)(v)) },
	}
}

// valueCode is the code of a type whose zero value is empty.
func valueCode[T comparable](write func(w *writer, v T), read func(r *reader, v *T)) code {
	return codeOf(func(v *T) bool { return *v == *new(T) }, func(w *writer, v *T) { write(w, *v) }, read)
}

// nameCode is the code of an enumeration.
func nameCode[T ~int](n names[T]) code {
	want := reflect.TypeFor[T]().String()
	return valueCode(func(w *writer, v T) { w.plain(n.marshal(v)) }, func(r *reader, v *T) {
		r.marshaled(want, func(text []byte) error { return n.unmarshal(v, text) })
	})
}

// pointerCode is the code of an optional object.
func pointerCode[T any]() code {
	f := formOf(reflect.TypeFor[T]())
	return codeOf(func(v **T) bool { return *v == nil }, func(w *writer, v **T) { w.fields(f, unsafe.Pointer(*v)) }, func(r *reader, v **T) {
		*v = optional[T](r, f)
	})
}

// listCode is the code of a list of objects, some of which may be nil.
func listCode[T any]() code {
	f := formOf(reflect.TypeFor[T]())
	want := reflect.TypeFor[[]*T]().String()
	return codeOf(func(v *[]*T) bool { return len(*v) == 0 }, func(w *writer, list *[]*T) {
		for i, v := range *list {
			w.add("[,"[min(i, 1):][:1])
			if v == nil {
				w.objects++
				w.add("null")
			} else {
				w.fields(f, unsafe.Pointer(v))
			}
		}
		w.add("]")
	}, func(r *reader, v *[]*T) {
		var room [8]*T // most lists are short
		elements := room[:0]
		if !r.list(want, func() { elements = append(elements, optional[T](r, f)) }) {
			elements = nil
		} else if len(elements) <= len(room) {
			elements = append(make([]*T, 0, len(elements)), elements...)
		}
		*v = elements
	})
}

func attemptsCode() code {
	f := formOf(reflect.TypeFor[Attempt]())
	return codeOf(func(v *[]Attempt) bool { return len(*v) == 0 }, func(w *writer, all *[]Attempt) {
		for i := range *all {
			w.add("[,"[min(i, 1):][:1])
			w.fields(f, unsafe.Pointer(&(*all)[i]))
		}
		w.add("]")
	}, func(r *reader, v *[]Attempt) {
		*v = nil
		attempts := []Attempt{}
		if r.list("[]workflow.Attempt", func() {
			if attempts = append(attempts, Attempt{}); !r.null() {
				r.fields(f, unsafe.Pointer(&attempts[len(attempts)-1]))
			}
		}) {
			*v = attempts
		}
	})
}

// structCode is the code of a state or an audit entry. It is left out if it is zero. A state is also left out if it is zero but
// for its version, and that is left out.
func structCode[T comparable]() code {
	f := formOf(reflect.TypeFor[T]())
	return codeOf(func(v *T) bool { return *v == *new(T) }, func(w *writer, v *T) { w.fields(f, unsafe.Pointer(v)) }, func(r *reader, v *T) {
		if !r.null() {
			r.fields(f, unsafe.Pointer(v))
		}
	})
}

// pluginCode is the code of the name of an action's plugin, which has the types of what follows.
var pluginCode = func() code {
	c := valueCode((*writer).quote, (*reader).readPlugin)
	c.reset = func(r *reader, _ unsafe.Pointer) { r.plugin = nil }
	return c
}()

// anyCode returns the code of requests or responses.
func anyCode(of func(*pluginTypes) plainValue) code {
	return code{
		empty: func(v unsafe.Pointer) bool { return *(*any)(v) == nil }, // which differs from a value that is written as null
		write: func(w *writer, v unsafe.Pointer) {
			if err := w.any(*(*any)(v)); err != nil {
				w.fail(err)
			}
		},
		read: func(r *reader, v unsafe.Pointer) {
			if r.plugin != nil {
				if value, ok := r.readTyped(of(r.plugin)); ok {
					*(*any)(v) = value
					return
				}
			}
			*(*any)(v) = json.RawMessage(r.keep(r.value()))
		},
		reset: func(_ *reader, v unsafe.Pointer) { *(*any)(v) = nil },
	}
}

// textsCode is the code of texts by name, which are written in the order of the names.
var textsCode = codeOf(func(v *map[string]string) bool { return len(*v) == 0 }, func(w *writer, v *map[string]string) {
	w.objects++
	var room [16]string
	names := room[:0]
	for name := range *v {
		names = append(names, name)
	}
	slices.Sort(names)
	w.add("{")
	for _, name := range names {
		w.comma()
		w.quote(name)
		w.add(":")
		w.quote((*v)[name])
	}
	w.add("}")
}, func(r *reader, v *map[string]string) {
	if *v = nil; !r.null() {
		*v = r.texts()
	}
})

// textCode and binaryCode are the codes of Meta: one is for text, the other one for what is not UTF-8. If there are both
// in a JSON, the text counts. An empty Meta differs from a nil one.
var (
	textCode = code{
		empty: func(v unsafe.Pointer) bool { meta := *(*[]byte)(v); return meta == nil || !utf8.Valid(meta) },
		write: func(w *writer, v unsafe.Pointer) { w.quote(string(*(*[]byte)(v))) },
		read: func(r *reader, v unsafe.Pointer) {
			if text, ok := r.quoted("string"); ok {
				*(*[]byte)(v) = append([]byte{}, text...)
			}
		},
		reset: func(_ *reader, v unsafe.Pointer) { *(*[]byte)(v) = nil },
	}
	binaryCode = code{
		empty: func(v unsafe.Pointer) bool { return utf8.Valid(*(*[]byte)(v)) },
		write: func(w *writer, v unsafe.Pointer) { w.plain(base64.StdEncoding.EncodeToString(*(*[]byte)(v)), nil) },
		read: func(r *reader, v unsafe.Pointer) {
			if data, meta := r.bytes(), (*[]byte)(v); *meta == nil {
				*meta = data
			}
		},
	}
)
