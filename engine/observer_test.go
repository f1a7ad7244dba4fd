package engine_test

import (
	"reflect"
	"testing"

	"github.com/planvault/azblob/engine"
)

// TestTee calls each field of Observer, and expects a call of the same field of each observer that has it. A field that none
// of them has stays nil.
func TestTee(t *testing.T) {
	calls := map[string]int{}
	counting := func() (o engine.Observer) {
		for field, v := range reflect.ValueOf(&o).Elem().Fields() {
			v.Set(reflect.MakeFunc(field.Type, func([]reflect.Value) []reflect.Value {
				calls[field.Name]++
				return nil
			}))
		}
		return o
	}
	for field, v := range reflect.ValueOf(engine.Tee(counting(), engine.Observer{}, counting())).Fields() {
		var args []reflect.Value
		for in := range field.Type.Ins() {
			args = append(args, reflect.Zero(in))
		}
		v.Call(args)
		if calls[field.Name] != 2 {
			t.Errorf("%s is called %d times, want 2", field.Name, calls[field.Name])
		}
		if !reflect.ValueOf(engine.Tee(engine.Observer{}, engine.Observer{})).FieldByIndex(field.Index).IsNil() {
			t.Errorf("%s is not nil", field.Name)
		}
	}
}
