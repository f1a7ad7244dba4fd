// Package merge puts options together, for tests and programs that open things in layers.
package merge

import "reflect"

// Fields returns a struct with the fields that any of them sets. The last one wins. Embedded structs are merged.
func Fields[T any](all ...T) (merged T) {
	for _, o := range all {
		fields(reflect.ValueOf(&merged).Elem(), reflect.ValueOf(o))
	}
	return merged
}

func fields(into, from reflect.Value) {
	for i := range from.NumField() {
		switch f := from.Field(i); {
		case f.IsZero():
		case from.Type().Field(i).Anonymous:
			fields(into.Field(i), f)
		default:
			into.Field(i).Set(f)
		}
	}
}
