package plantest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/planvault/azblob/workflow"
)

// Clone returns a deep copy of a plan, or of a sub-object with everything below it. Times share their
// locations.
func Clone[O workflow.Object](o O) O { return deepCopy(reflect.ValueOf(o)).Interface().(O) }

func deepCopy(v reflect.Value) reflect.Value {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]() || v.Kind() != reflect.Struct && isShallow(v):
		return v
	}
	c := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Pointer:
		c.Set(reflect.New(v.Type().Elem()))
		c.Elem().Set(deepCopy(v.Elem()))
	case reflect.Interface:
		c.Set(deepCopy(v.Elem()))
	case reflect.Slice:
		c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			c.Index(i).Set(deepCopy(v.Index(i)))
		}
	case reflect.Map:
		c.Set(reflect.MakeMap(v.Type()))
		for key, value := range v.Seq2() {
			c.SetMapIndex(key, deepCopy(value))
		}
	case reflect.Struct:
		c.Set(v) // with its unexported fields, which have nothing to share
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			c.Field(i).Set(deepCopy(v.Field(i)))
		}
	}
	return c
}

// isShallow reports whether a value has nothing that two copies would share.
func isShallow(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		return v.IsNil()
	}
	return true
}

// EachField calls do for every exported field of the model below an object, and for every element of its lists, with
// the path that [workflow.FieldError] gives it. do may change the field.
func EachField(o workflow.Object, do func(path string, v reflect.Value)) {
	eachField(reflect.ValueOf(o), "", do)
}

func eachField(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			eachField(v.Elem(), path, do)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			at := fmt.Sprintf("%s[%d]", path, i)
			do(at, v.Index(i))
			eachField(v.Index(i), at, do)
		}
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			at := strings.TrimPrefix(path+"."+v.Type().Field(i).Name, ".")
			do(at, v.Field(i))
			eachField(v.Field(i), at, do)
		}
	}
}
