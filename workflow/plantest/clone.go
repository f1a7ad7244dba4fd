package plantest

import (
	"reflect"
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
