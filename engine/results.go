package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// ErrNoResult means that a plan has nothing under a key: no action has the key, or several have it. For [Result] it also
// means that the action is not Completed.
var ErrNoResult = errors.New("engine: no result")

// Result returns the response of another action of the same plan, which must be Completed. key is the action's Key, which
// its author chose; a fork keeps it, and the results that it carries over. Each call decodes what is stored, so the caller may
// change what it gets. Result sends no request. Calls may be concurrent.
//
// The error is ErrNoResult, or says that the response has another type. Return it: an action that asks for a result
// too early is a mistake of the plan's author.
func Result[T any](call Call, key uuid.UUID) (T, error) {
	resp, err := call.results.get(key)
	if err == nil {
		resp, err = driver.Typed(resp, *new(T)) // raw if its type could not be read
	}
	switch typed := resp.(type) {
	case T:
		return typed, nil
	case *T:
		if typed != nil {
			return *typed, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("engine: the result of action %s is a %T, not a %T", key, resp, *new(T))
	}
	return *new(T), err
}

// ActionByKey returns another action of the same plan, whatever its status, as it was stored last: its ID, State and
// Attempts tell compensation what may have had an effect, and under which idempotency key. key is the action's Key. Requests,
// responses and the version are left out; see [Result]. The caller may change the copy. ActionByKey sends no request. Calls
// may be concurrent. The error is [ErrNoResult].
//
// A running Idempotent action is stored as it was before.
func (c Call) ActionByKey(key uuid.UUID) (workflow.Action, error) {
	k, err := c.results.find(key)
	if err != nil {
		return workflow.Action{}, err
	}
	return described(k.action), nil
}

// described returns a copy of an action without requests, responses and version.
func described(a workflow.Action) workflow.Action {
	a.Req, a.State.ETag, a.Attempts = nil, "", slices.Clone(a.Attempts)
	for i := range a.Attempts {
		t := &a.Attempts[i]
		if t.Resp = nil; t.Err != nil {
			t.Err = bounded(*t.Err)
		}
	}
	return a
}

// results are what other actions of a plan may ask for by their keys, as it is stored, and how many bytes all responses have.
type results struct {
	mu    sync.Mutex
	byKey map[uuid.UUID]keyed
	bytes int
}

// keyed is what has a key: the number of actions, and the last one.
type keyed struct {
	actions int
	action  workflow.Action
	resp    json.RawMessage // of an action that is Completed
	like    any             // a zero value of the response's type; nil if that is not known
}

// fill notes what a plan holds that is picked up.
func (r *results) fill(p *workflow.Plan) {
	r.byKey = map[uuid.UUID]keyed{}
	for o := range workflow.Walk(p) {
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		for _, t := range a.Attempts {
			r.bytes += sizeOf(t.Resp)
		}
		if a.Key != uuid.Nil {
			k := keyed{actions: r.byKey[a.Key].actions + 1}
			k.note(a)
			r.byKey[a.Key] = k
		}
	}
}

func (k *keyed) note(a *workflow.Action) {
	k.action = described(*a)
	if a.State.Status == workflow.Completed && len(a.Attempts) > 0 {
		resp := a.Attempts[len(a.Attempts)-1].Resp
		k.resp = textOf(resp)
		if _, raw := resp.(json.RawMessage); !raw && resp != nil {
			k.like = reflect.Zero(reflect.TypeOf(resp)).Interface()
		}
	}
}

// stored notes an action that has been stored.
func (r *results) stored(a *workflow.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.byKey[a.Key]; k.actions == 1 {
		k.note(a)
		r.byKey[a.Key] = k
	}
}

// get returns the response under a key, decoded afresh.
func (r *results) get(key uuid.UUID) (any, error) {
	k, err := r.find(key)
	switch {
	case err != nil:
		return nil, err
	case k.action.State.Status != workflow.Completed:
		return nil, fmt.Errorf("%w: the action with the key %s is not Completed", ErrNoResult, key)
	case k.resp == nil:
		return nil, nil
	}
	return driver.Typed(k.resp, k.like)
}

// find returns what has a key.
func (r *results) find(key uuid.UUID) (keyed, error) {
	if r == nil {
		return keyed{}, fmt.Errorf("%w: the call is no engine's", ErrNoResult)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.byKey[key]
	switch {
	case k.actions == 0:
		return keyed{}, fmt.Errorf("%w: no action has the key %s", ErrNoResult, key)
	case k.actions > 1:
		return keyed{}, fmt.Errorf("%w: %d actions have the key %s", ErrNoResult, k.actions, key)
	}
	return k, nil
}

// admit counts a response of n bytes before it is stored. The error says which limit it exceeds.
func (r *results) admit(n, most, all int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case n > most:
		return fmt.Errorf("it has %d bytes, more than the %d of Options.MaxResult", n, most)
	case r.bytes+n > all:
		return fmt.Errorf("it has %d bytes, and with the %d of the plan's other results more than the %d of Options.MaxResults", n, r.bytes, all)
	}
	r.bytes += n
	return nil
}

func (r *results) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// drop forgets the responses of attempts that are no longer kept.
func (r *results) drop(attempts []workflow.Attempt) {
	for _, t := range attempts {
		n := sizeOf(t.Resp)
		r.mu.Lock()
		r.bytes -= n
		r.mu.Unlock()
	}
}

// sizeOf returns the length of a stored response as JSON.
func sizeOf(resp any) int { return len(textOf(resp)) }

// textOf returns the JSON of a stored response, or nil if there is none.
func textOf(resp any) json.RawMessage {
	_, text, _ := driver.Fresh(resp, nil) // it could be encoded
	return text
}
