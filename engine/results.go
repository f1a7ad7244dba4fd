package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// ErrNoResult means that a plan has no result under a key: no action has the key, several have it, or the action is not
// Completed.
var ErrNoResult = errors.New("engine: no result")

// Result returns the response of another action of the same plan, which must be Completed. key is the action's Key, which
// its author chose; a fork keeps it, and the results that it carries over. Result sends no request. Calls may be
// concurrent.
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

// results are the responses of a plan's Completed actions, and how many bytes all responses have.
type results struct {
	mu    sync.Mutex
	byKey map[uuid.UUID]keyed
	bytes int
}

// keyed is what has a key: the number of actions, and the result of the last one.
type keyed struct {
	actions   int
	completed bool
	resp      any
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
			n, _ := sizeOf(t.Resp) // it was stored
			r.bytes += n
		}
		if a.Key != uuid.Nil {
			k := keyed{actions: r.byKey[a.Key].actions + 1}
			k.note(a)
			r.byKey[a.Key] = k
		}
	}
}

func (k *keyed) note(a *workflow.Action) {
	if a.State.Status == workflow.Completed && len(a.Attempts) > 0 {
		k.completed, k.resp = true, a.Attempts[len(a.Attempts)-1].Resp
	}
}

// completed notes the result of an action that is stored as Completed.
func (r *results) completed(a *workflow.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.byKey[a.Key]; k.actions == 1 {
		k.note(a)
		r.byKey[a.Key] = k
	}
}

func (r *results) get(key uuid.UUID) (any, error) {
	if r == nil {
		return nil, fmt.Errorf("%w: the call is no engine's", ErrNoResult)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch k := r.byKey[key]; {
	case k.actions == 0:
		return nil, fmt.Errorf("%w: no action has the key %s", ErrNoResult, key)
	case k.actions > 1:
		return nil, fmt.Errorf("%w: %d actions have the key %s", ErrNoResult, k.actions, key)
	case !k.completed:
		return nil, fmt.Errorf("%w: the action with the key %s is not Completed", ErrNoResult, key)
	default:
		return k.resp, nil
	}
}

// admit counts a response before it is stored. The error says which limit it exceeds.
func (r *results) admit(resp any, most, all int) error {
	n, err := sizeOf(resp)
	if err != nil {
		return err
	}
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
		n, _ := sizeOf(t.Resp)
		r.mu.Lock()
		r.bytes -= n
		r.mu.Unlock()
	}
}

// sizeOf returns the length of a response as JSON.
func sizeOf(resp any) (int, error) {
	if raw, ok := resp.(json.RawMessage); ok || resp == nil {
		return len(raw), nil
	}
	var n counter
	err := plugins.Guard(func() error { return json.NewEncoder(&n).Encode(resp) })
	return int(n), err
}

// readBack returns the panic of a response that can't be read as its own type.
func readBack(resp any) error {
	raw, err := json.Marshal(resp) // admit has shown that this does not panic
	if err == nil && resp != nil {
		_, err = driver.Typed(json.RawMessage(raw), reflect.Zero(reflect.TypeOf(resp)).Interface())
	}
	if p, ok := errors.AsType[*plugins.Panic](err); ok {
		return p
	}
	return nil
}

// counter counts what is written.
type counter int

func (c *counter) Write(text []byte) (int, error) {
	*c += counter(len(text))
	return len(text), nil
}
