package workflow

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/google/uuid"
)

// Requests and responses of plain types are written and read here, with the bytes and the values of encoding/json, but in
// a third of its time. Plain are texts, numbers, truth values, times, bytes, maps of texts, and structs, pointers and
// slices of them. Everything else is left to encoding/json: other types, such as those that write or read themselves, and
// texts that it reads in a way of its own, such as names in another case, or refuses.

// typedCodes has the code of each type that was asked for, a *code. It is nil for a type that is not plain.
var typedCodes sync.Map

// typedCode returns the code of a plain type, or nil.
func typedCode(t reflect.Type) *code {
	if known, ok := typedCodes.Load(t); ok {
		return known.(*code)
	}
	var is *code
	if c, ok := plainCode(t, nil); ok {
		is = &c
	}
	typedCodes.Store(t, is)
	return is
}

// plainValue is an addressable value of a type, and the type's code, which is nil if the type is not plain.
type plainValue struct {
	*code
	reflect.Value
}

func valueOf(t reflect.Type) plainValue {
	if t == nil {
		return plainValue{}
	}
	return plainValue{typedCode(t), reflect.New(t).Elem()}
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

// writesItself are the interfaces of types whose JSON, or zero value, is up to them.
var writesItself = []reflect.Type{
	reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextMarshaler](),
	reflect.TypeFor[encoding.TextUnmarshaler](), reflect.TypeFor[interface{ IsZero() bool }](),
}

// plainTypes are the types whose code is not that of their kind. That of json.Number is left to encoding/json.
var plainTypes = map[reflect.Type]code{
	reflect.TypeFor[time.Time]():         timeCode,
	reflect.TypeFor[uuid.UUID]():         valueCode((*writer).id, (*reader).id),
	reflect.TypeFor[[]byte]():            bytesCode,
	reflect.TypeFor[map[string]string](): textsOrNull,
	reflect.TypeFor[json.Number]():       {},
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

// plainCode returns the code of a plain type that stands in the given ones.
func plainCode(t reflect.Type, around []reflect.Type) (c code, ok bool) {
	if c, known := plainTypes[t]; known {
		return c, c.read != nil
	}
	p := reflect.PointerTo(t)
	if p.NumMethod() > 0 && slices.ContainsFunc(writesItself, p.Implements) || slices.Contains(around, t) { // or it is nested to any depth
		return c, false
	}
	around = append(around, t)
	switch t.Kind() {
	case reflect.Struct:
		return plainStruct(t, around)
	case reflect.Pointer:
		return plainPointer(t.Elem(), around)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return c, false
		}
		return plainSlice(t, around)
	}
	c, ok = plainKinds[t.Kind()]
	return c, ok
}

// orNull returns a code that writes nil as null.
func orNull(c code, isNil func(v unsafe.Pointer) bool) code {
	write := c.write
	c.write = func(w *writer, v unsafe.Pointer) {
		if isNil(v) {
			w.add("null")
		} else {
			write(w, v)
		}
	}
	return c
}

func integerCode[T int | int8 | int16 | int32 | int64]() code {
	return valueCode(func(w *writer, n T) { w.integer(int64(n)) }, integer[T])
}

func unsignedCode[T uint | uint8 | uint16 | uint32 | uint64]() code {
	return valueCode(func(w *writer, n T) { w.add(strconv.FormatUint(uint64(n), 10)) }, func(r *reader, into *T) {
		if text := r.numeral(); text != nil {
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
	if text := r.numeral(); text != nil {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			r.fail("%w", err)
		}
		*into = f
	}
})

// numeral returns the text of a number, or nil for null.
func (r *reader) numeral() []byte {
	if r.null() {
		return nil
	}
	if c := r.peek(); c != '-' && c-'0' > 9 {
		r.unexpected("number")
	}
	if r.err != nil {
		return nil
	}
	return r.number()
}

// textsOrNull is the code of a map of texts.
var textsOrNull = orNull(textsCode, func(v unsafe.Pointer) bool { return *(*map[string]string)(v) == nil })

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
var bytesCode = orNull(codeOf(func(data *[]byte) bool { return len(*data) == 0 }, func(w *writer, data *[]byte) {
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
}), func(v unsafe.Pointer) bool { return *(*[]byte)(v) == nil })

// plainStruct returns the code of a struct whose fields are plain and have names of their own.
func plainStruct(t reflect.Type, around []reflect.Type) (c code, ok bool) {
	f := &form{of: t, name: t.String(), exact: true}
	names := map[string]bool{}
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		if field.Anonymous {
			return c, false
		}
		if !field.IsExported() || tag == "-" {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if name == "" {
			name = field.Name
		}
		member := formMember{name: name, begin: `"` + name + `":`, offset: field.Offset, keep: option == ""}
		if member.code, ok = plainCode(field.Type, around); !ok || names[name] || !isPlainName(name) || option != "" && option != "omitempty" {
			return c, false
		}
		if kind := field.Type.Kind(); kind == reflect.Struct || kind == reflect.Array {
			member.keep = true // omitempty is for other types
		}
		names[name] = true
		f.members = append(f.members, member)
	}
	if len(f.members) > 64 { // see reader.fields
		return c, false
	}
	c.write = func(w *writer, v unsafe.Pointer) { w.fields(f, v) }
	c.read = func(r *reader, v unsafe.Pointer) {
		if !r.null() {
			r.fields(f, v)
		}
	}
	return c, true
}

// isPlainName reports whether the name of a member is of ASCII letters, digits and underscores.
func isPlainName(name string) bool {
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// plainPointer returns the code of a pointer to a plain type.
func plainPointer(t reflect.Type, around []reflect.Type) (c code, ok bool) {
	to, ok := plainCode(t, around)
	c = codeOf(func(p *unsafe.Pointer) bool { return *p == nil }, func(w *writer, p *unsafe.Pointer) { to.write(w, *p) }, func(r *reader, p *unsafe.Pointer) {
		if r.null() {
			*p = nil
			return
		}
		*p = reflect.New(t).UnsafePointer()
		to.read(r, *p)
	})
	return orNull(c, c.empty), ok
}

// plainSlice returns the code of a slice of a plain type.
func plainSlice(t reflect.Type, around []reflect.Type) (c code, ok bool) {
	of, ok := plainCode(t.Elem(), around)
	slice := func(v unsafe.Pointer) reflect.Value { return reflect.NewAt(t, v).Elem() }
	c.empty = func(v unsafe.Pointer) bool { return slice(v).Len() == 0 }
	c.write = func(w *writer, v unsafe.Pointer) {
		s := slice(v)
		w.add("[")
		for i := range s.Len() {
			if i > 0 {
				w.add(",")
			}
			of.write(w, s.Index(i).Addr().UnsafePointer())
		}
		w.add("]")
	}
	c.read = func(r *reader, v unsafe.Pointer) {
		s := slice(v)
		elements := reflect.MakeSlice(t, 0, 0)
		if !r.list(t.String(), func() {
			elements = reflect.Append(elements, reflect.Zero(t.Elem()))
			of.read(r, elements.Index(elements.Len()-1).Addr().UnsafePointer())
		}) {
			elements = reflect.Zero(t)
		}
		s.Set(elements)
	}
	return orNull(c, func(v unsafe.Pointer) bool { return slice(v).IsNil() }), ok
}
