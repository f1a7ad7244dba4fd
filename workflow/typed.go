package workflow

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// Requests and responses of plain types are written and read here, with the bytes and the values of encoding/json, but in
// a third of its time. Plain are texts, numbers, truth values, times, bytes, maps of texts, and structs, pointers and
// slices of them. Everything else is left to encoding/json: other types, such as those that write or read themselves, and
// texts that it reads in a way of its own, such as names in another case, or refuses.

// typedCodes has the code of each type that was asked for, a *code. It is nil for a type that is not plain.
var typedCodes sync.Map

// plainValue is an addressable value of a type, and the type's code, which is nil if the type is not plain.
type plainValue struct {
	*code
	reflect.Value
}

func valueOf(t reflect.Type) plainValue {
	if t == nil {
		return plainValue{}
	}
	c, known := typedCodes.Load(t)
	if !known {
		c, _ = typedCodes.LoadOrStore(t, codes{}.of(t))
	}
	return plainValue{c.(*code), reflect.New(t).Elem()}
}

// readTyped reads a value of a plain type. It returns false, and passes over nothing, if that is to be left to
// encoding/json.
func (r *reader) readTyped(into plainValue) (v any, ok bool) {
	if into.code == nil || r.err != nil {
		return nil, false
	}
	at, objects, depth := r.at, r.objects, r.depth
	into.SetZero()
	into.read(r, into.Addr().UnsafePointer())
	r.objects, r.depth = objects, depth
	if r.err != nil {
		r.at, r.err = at, nil
		return nil, false
	}
	return into.Interface(), true
}

// writeTyped writes a value of a plain type. It returns false if that is to be left to encoding/json.
func (w *writer) writeTyped(v any) bool {
	t := reflect.TypeOf(v)
	if t == nil || w.err != nil {
		return false
	}
	from, known := w.typed[t]
	if !known {
		if w.typed == nil {
			w.typed = map[reflect.Type]plainValue{}
		}
		from = valueOf(t)
		w.typed[t] = from
	}
	if from.code == nil {
		return false
	}
	objects, depth := w.objects, w.depth
	from.Set(reflect.ValueOf(v))
	from.write(w, from.Addr().UnsafePointer())
	ok := w.err == nil
	w.err, w.member, w.objects, w.depth = nil, "", objects, depth
	return ok
}

// plainTypes are the types whose code is not that of their kind. That of json.Number is left to encoding/json.
var plainTypes = map[reflect.Type]*code{
	reflect.TypeFor[time.Time]():         &timeCode,
	reflect.TypeFor[uuid.UUID]():         new(valueCode((*writer).id, (*reader).id)),
	reflect.TypeFor[[]byte]():            orNull(bytesCode),
	reflect.TypeFor[map[string]string](): orNull(textsCode),
	reflect.TypeFor[json.Number]():       nil,
}

// plainKinds are the codes of numbers and other simple kinds.
var plainKinds = map[reflect.Kind]code{
	reflect.Bool:    valueCode((*writer).bool, (*reader).bool),
	reflect.Int:     integerCode[int](),
	reflect.Int8:    integerCode[int8](),
	reflect.Int16:   integerCode[int16](),
	reflect.Int32:   integerCode[int32](),
	reflect.Int64:   integerCode[int64](),
	reflect.Uint:    unsignedCode[uint](),
	reflect.Uint8:   unsignedCode[uint8](),
	reflect.Uint16:  unsignedCode[uint16](),
	reflect.Uint32:  unsignedCode[uint32](),
	reflect.Uint64:  unsignedCode[uint64](),
	reflect.Float64: floatCode,
	reflect.String:  valueCode((*writer).quote, (*reader).string),
}

// plainNames are what names of members consist of.
const plainNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// codes are the codes of a type and of those below it, nil for what is not plain. That of a type that is not finished is
// nil too: a type that is below itself may be nested to any depth.
type codes map[reflect.Type]*code

// of returns the code of a type, and makes each once, however many fields have it.
func (all codes) of(t reflect.Type) *code {
	c, known := plainTypes[t]
	if !known {
		c, known = all[t]
	}
	if !known {
		all[t] = nil
		c = all.make(t)
		all[t] = c
	}
	return c
}

func (all codes) make(t reflect.Type) *code {
	if plugins.WritesItself(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return all.ofStruct(t)
	case reflect.Pointer:
		return all.ofPointer(t)
	case reflect.Slice:
		return all.ofSlice(t)
	}
	if c, ok := plainKinds[t.Kind()]; ok {
		return &c
	}
	return nil
}

// orNull returns a code that writes nil as null. The first word of a nil pointer, map or slice is zero.
func orNull(c code) *code {
	write := c.write
	c.write = func(w *writer, v unsafe.Pointer) {
		if *(*unsafe.Pointer)(v) == nil {
			w.add("null")
		} else {
			write(w, v)
		}
	}
	return &c
}

func integerCode[T int | int8 | int16 | int32 | int64]() code {
	return valueCode(func(w *writer, n T) { w.integer(int64(n)) }, integer[T])
}

func unsignedCode[T uint | uint8 | uint16 | uint32 | uint64]() code {
	return valueCode(func(w *writer, n T) { w.add(strconv.FormatUint(uint64(n), 10)) }, func(r *reader, into *T) {
		if text := r.numeral("uint"); text != nil {
			n, err := strconv.ParseUint(string(text), 10, 64)
			if err != nil || uint64(T(n)) != n {
				r.fail("%s is not of type %T", text, *into)
			}
			*into = T(n)
		}
	})
}

// floatCode leaves numbers that are written with an exponent to encoding/json.
var floatCode = valueCode(func(w *writer, f float64) {
	if size := max(f, -f); size != 0 && !(size >= 1e-6 && size < 1e21) {
		w.fail(strconv.ErrRange)
	}
	w.add(strconv.FormatFloat(f, 'f', -1, 64))
}, func(r *reader, into *float64) {
	if text := r.numeral("float64"); text != nil {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			r.fail("%w", err)
		}
		*into = f
	}
})

// timeCode keeps the zone of a time.
var timeCode = codeOf(func(t *time.Time) bool { return t.IsZero() }, func(w *writer, t *time.Time) {
	text, err := t.MarshalText()
	w.plain(string(text), err)
}, func(r *reader, t *time.Time) {
	if text := r.value(); r.err == nil {
		if err := t.UnmarshalJSON(text); err != nil {
			r.fail("%w", err)
		}
	}
})

// bytesCode is the code of bytes, in base64.
var bytesCode = codeOf(func(data *[]byte) bool { return len(*data) == 0 }, func(w *writer, data *[]byte) {
	w.add(`"`)
	base64.StdEncoding.Encode(w.room(base64.StdEncoding.EncodedLen(len(*data))), *data)
	w.add(`"`)
}, func(r *reader, data *[]byte) {
	if text, ok := r.quoted("[]byte"); ok {
		into, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(text))), text)
		if err != nil {
			r.fail("%w", err)
		}
		*data = into
	}
})

// ofStruct returns the code of a struct whose fields are plain and have names of their own.
func (all codes) ofStruct(t reflect.Type) *code {
	f := &form{of: t, exact: true}
	names := map[string]bool{}
	for field := range t.Fields() {
		tag := field.Tag.Get("json")
		if field.Anonymous {
			return nil
		}
		if !field.IsExported() || tag == "-" {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if name == "" {
			name = field.Name
		}
		c := all.of(field.Type)
		if c == nil || names[name] || strings.Trim(name, plainNames) != "" || option != "" && option != "omitempty" {
			return nil
		}
		names[name] = true
		kind := field.Type.Kind()
		f.members = append(f.members, formMember{
			code: *c, name: name, begin: `"` + name + `":`, offset: field.Offset,
			keep: option == "" || kind == reflect.Struct || kind == reflect.Array, // omitempty is for other types
		})
	}
	if len(f.members) > 64 { // see reader.fields
		return nil
	}
	return &code{
		write: func(w *writer, v unsafe.Pointer) { w.fields(f, v) },
		read: func(r *reader, v unsafe.Pointer) {
			if !r.null() {
				r.fields(f, v)
			}
		},
	}
}

// ofPointer returns the code of a pointer to a plain type.
func (all codes) ofPointer(t reflect.Type) *code {
	to := all.of(t.Elem())
	if to == nil {
		return nil
	}
	return orNull(codeOf(func(p *unsafe.Pointer) bool { return *p == nil }, func(w *writer, p *unsafe.Pointer) { to.write(w, *p) }, func(r *reader, p *unsafe.Pointer) {
		if !r.null() {
			*p = reflect.New(t.Elem()).UnsafePointer()
			to.read(r, *p)
		}
	}))
}

// ofSlice returns the code of a slice of a plain type. Slices of bytes other than []byte are left to encoding/json.
func (all codes) ofSlice(t reflect.Type) *code {
	of := all.of(t.Elem())
	if of == nil || t.Elem().Kind() == reflect.Uint8 {
		return nil
	}
	slice := func(v unsafe.Pointer) reflect.Value { return reflect.NewAt(t, v).Elem() }
	element := func(s reflect.Value, i int) unsafe.Pointer {
		return unsafe.Add(s.UnsafePointer(), uintptr(i)*t.Elem().Size())
	}
	return orNull(code{
		empty: func(v unsafe.Pointer) bool { return slice(v).Len() == 0 },
		write: func(w *writer, v unsafe.Pointer) {
			s := slice(v)
			w.add("[")
			for i := range s.Len() {
				if i > 0 {
					w.add(",")
				}
				of.write(w, element(s, i))
			}
			w.add("]")
		},
		read: func(r *reader, v unsafe.Pointer) {
			s := slice(v)
			if r.list(t.String(), func() {
				n := s.Len()
				if n == s.Cap() {
					s.Grow(1)
				}
				s.SetLen(n + 1)
				of.read(r, element(s, n))
			}) && s.Len() == 0 {
				s.Set(reflect.MakeSlice(t, 0, 0))
			}
		},
	})
}
