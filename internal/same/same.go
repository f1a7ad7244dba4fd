// Package same compares plans, their objects and their listings.
package same

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/planvault/azblob/internal/values"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Plan reports whether two plans are the same but for their versions. They may have been read with
// different registries: a raw request or response is read as the type of the other one.
func Plan(a, b *workflow.Plan) (bool, error) {
	if !Tree(a, b) {
		return false, nil
	}
	for a, b := range Pairs(a, b) {
		if same, err := Own(a, b); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// Tree reports whether two plans have the same ID, and the same sub-objects in the same places.
func Tree(a, b *workflow.Plan) bool {
	return a.ID == b.ID && workflow.Fingerprint(a) == workflow.Fingerprint(b)
}

// Pairs yields the objects of two plans with the same tree, in the order of [workflow.Walk].
func Pairs(a, b *workflow.Plan) iter.Seq2[workflow.Object, workflow.Object] {
	return func(yield func(a, b workflow.Object) bool) {
		next, stop := iter.Pull2(workflow.Walk(b))
		defer stop()
		for o := range workflow.Walk(a) {
			if other, _, ok := next(); !ok || !yield(o, other) {
				return
			}
		}
	}
}

// Own reports whether the own fields of two objects are the same but for their versions. It compares
// requests and responses as [Plan] does.
func Own(a, b workflow.Object) (bool, error) {
	if a, ok := a.(*workflow.Action); ok {
		if b, ok := b.(*workflow.Action); ok {
			return sameActions(*a, *b)
		}
	}
	return sameText(a, b)
}

func sameText(a, b workflow.Object) (bool, error) {
	textA, err := workflow.MarshalOwn(a)
	if err != nil {
		return false, err
	}
	textB, err := workflow.MarshalOwn(b)
	return bytes.Equal(textA, textB), err
}

// sameActions compares copies of two actions whose values it gives the same types.
func sameActions(a, b workflow.Action) (bool, error) {
	if len(a.Attempts) != len(b.Attempts) {
		return false, nil
	}
	a.Attempts, b.Attempts = slices.Clone(a.Attempts), slices.Clone(b.Attempts)
	values := [][2]*any{{&a.Req, &b.Req}}
	for i := range a.Attempts {
		values = append(values, [2]*any{&a.Attempts[i].Resp, &b.Attempts[i].Resp})
	}
	for _, v := range values {
		var err error
		if *v[0], err = alike(*v[0], *v[1]); err == nil {
			*v[1], err = alike(*v[1], *v[0])
		}
		if err != nil {
			return false, fmt.Errorf("action %s: %w", a.ID, err)
		}
	}
	return sameText(&a, &b)
}

// alike returns a value as the type of another one if it is raw, and the other one is not.
func alike(v, other any) (any, error) {
	if _, raw := other.(json.RawMessage); raw || other == nil {
		return v, nil
	}
	if t := reflect.TypeOf(other); t.Kind() == reflect.Pointer {
		return values.Typed(v, reflect.Zero(t.Elem()).Interface())
	}
	return values.Typed(v, other)
}

// Listed reports whether two results are the same, whatever the zones of their times.
func Listed(a, b storage.ListResult) bool {
	for _, r := range []*storage.ListResult{&a, &b} {
		r.SubmitTime, r.State.Start, r.State.End = r.SubmitTime.UTC(), r.State.Start.UTC(), r.State.End.UTC()
	}
	return reflect.DeepEqual(a, b)
}
