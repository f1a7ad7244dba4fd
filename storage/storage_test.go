package storage_test

import (
	"errors"
	"iter"
	"reflect"
	"slices"
	"testing"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// foreign is an object of an unknown type.
type foreign struct{ workflow.Object }

func TestUpdateUnknownType(t *testing.T) {
	for _, o := range []workflow.Object{nil, foreign{}} {
		v := hooked.Wrap(nil, func(c *hooked.Call) error {
			t.Errorf("Update called %s for a %T", c.Op, o)
			return nil
		})
		err := storage.Update(t.Context(), v, o)
		_, typed := errors.AsType[*storage.Error](err)
		if !errors.Is(err, storage.ErrInvalid) || !typed {
			t.Errorf("Update of a %T returned %v, want a *storage.Error with ErrInvalid", o, err)
		}
	}
}

func TestCollect(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	a, b := storage.ListResult{Name: "a"}, storage.ListResult{Name: "b"}
	for _, test := range []struct {
		stream []storage.Stream[storage.ListResult]
		want   []storage.ListResult
		errs   []error
	}{
		{nil, nil, nil},
		{[]storage.Stream[storage.ListResult]{{Result: a}, {Result: b}}, []storage.ListResult{a, b}, nil},
		{[]storage.Stream[storage.ListResult]{{Result: a}, {Err: first}, {Result: b}, {Err: second}}, []storage.ListResult{a, b}, []error{first, second}},
		{[]storage.Stream[storage.ListResult]{{Err: first}}, nil, []error{first}},
	} {
		got, err := storage.Collect(slices.Values(test.stream), nil)
		if !reflect.DeepEqual(got, test.want) || (err != nil) != (test.errs != nil) {
			t.Errorf("Collect of %v returned %v and %v, want %v", test.stream, got, err, test.want)
		}
		for _, want := range test.errs {
			if !errors.Is(err, want) {
				t.Errorf("Collect of %v returned the error %v, which lacks %q", test.stream, err, want)
			}
		}
	}

	never := func(func(storage.Stream[storage.ListResult]) bool) {
		t.Error("Collect ranged over a listing that failed")
	}
	for _, seq := range []iter.Seq[storage.Stream[storage.ListResult]]{nil, never} {
		if got, err := storage.Collect(seq, first); got != nil || err != first {
			t.Errorf("Collect of a listing that failed returned %v and %v", got, err)
		}
	}
}
