package storage_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

var errStored = errors.New("stored")

// updater records which method was called with which object.
type updater struct {
	method string
	object workflow.Object
}

func (u *updater) note(method string, o workflow.Object) error {
	u.method, u.object = method, o
	return errStored
}

func (u *updater) UpdatePlan(_ context.Context, o *workflow.Plan) error { return u.note("plan", o) }

func (u *updater) UpdateChecks(_ context.Context, o *workflow.Checks) error {
	return u.note("checks", o)
}

func (u *updater) UpdateBlock(_ context.Context, o *workflow.Block) error { return u.note("block", o) }

func (u *updater) UpdateSequence(_ context.Context, o *workflow.Sequence) error {
	return u.note("sequence", o)
}

func (u *updater) UpdateAction(_ context.Context, o *workflow.Action) error {
	return u.note("action", o)
}

func (u *updater) UpdateDeferredActions(_ context.Context, o *workflow.DeferredActions) error {
	return u.note("deferredActions", o)
}

func (u *updater) UpdateDeferBatch(_ context.Context, o *workflow.DeferBatch) error {
	return u.note("deferBatch", o)
}

func TestUpdate(t *testing.T) {
	var kinds []workflow.Kind
	for o := range workflow.Walk(plantest.Full()) {
		var u updater
		if err := storage.Update(t.Context(), &u, o); err != errStored {
			t.Errorf("Update of a %s returned %v, want the error of its method", o.Kind(), err)
		}
		if u.method != o.Kind().String() || u.object != o {
			t.Errorf("Update passed the %s %p to the method for a %s as %p", o.Kind(), o, u.method, u.object)
		}
		kinds = append(kinds, o.Kind())
	}
	slices.Sort(kinds)
	if got := slices.Compact(kinds); len(got) != int(workflow.KindDeferBatch)+1 {
		t.Errorf("the test covers only the kinds %v", got)
	}
}

// foreign is an object of an unknown type.
type foreign struct{ workflow.Object }

func TestUpdateUnknownType(t *testing.T) {
	for _, o := range []workflow.Object{nil, foreign{}} {
		var u updater
		err := storage.Update(t.Context(), &u, o)
		_, typed := errors.AsType[*storage.Error](err)
		if !errors.Is(err, storage.ErrInvalid) || !typed {
			t.Errorf("Update of a %T returned %v, want a *storage.Error with ErrInvalid", o, err)
		}
		if u.method != "" {
			t.Errorf("Update stored a %T as a %s", o, u.method)
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
		if !slices.Equal(got, test.want) || (err != nil) != (test.errs != nil) {
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
