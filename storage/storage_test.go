package storage_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

var errStored = errors.New("stored")

// updater notes which method was given what.
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
			t.Errorf("%s: got the error %v, not its method's", o.Kind(), err)
		}
		if u.method != o.Kind().String() || u.object != o {
			t.Errorf("the %s %p was given to the method for a %s as %p", o.Kind(), o, u.method, u.object)
		}
		kinds = append(kinds, o.Kind())
	}
	slices.Sort(kinds)
	if got := slices.Compact(kinds); len(got) != int(workflow.KindDeferBatch)+1 {
		t.Errorf("only the kinds %v were tried", got)
	}
}

// foreign is an object of no kind that is known.
type foreign struct{ workflow.Object }

func TestUpdateOfNoKind(t *testing.T) {
	for _, o := range []workflow.Object{nil, foreign{}} {
		var u updater
		err := storage.Update(t.Context(), &u, o)
		_, typed := errors.AsType[*storage.Error](err)
		if !errors.Is(err, storage.ErrInvalid) || !typed {
			t.Errorf("%T: got the error %v, want a *storage.Error of %q", o, err, storage.ErrInvalid)
		}
		if u.method != "" {
			t.Errorf("%T was stored as a %s", o, u.method)
		}
	}
}
