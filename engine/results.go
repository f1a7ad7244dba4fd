package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/secrets"
	"github.com/planvault/azblob/internal/values"
	"github.com/planvault/azblob/workflow"
)

// ErrNoResult means that a plan has nothing under a key or a name: no action has it, or several do. For [Result] it also
// means that the action is not Completed, or that a person skipped it in a fork and stated no result.
var ErrNoResult = errors.New("no result")

// Result returns the response of another action of the same plan, which must be Completed. key is the action's Key, which
// its author chose; a fork keeps it, and the results that it carries over. Each call decodes what is stored, so the caller may
// change what it gets. Result sends no request. Calls may be concurrent.
//
// The error is ErrNoResult, or says that the response has another type, such as one that a person stated in a fork. Return
// it: an action that asks for a result too early is a mistake of the plan's author.
func Result[T any](call Call, key uuid.UUID) (T, error) { return result[T](call, handle{key: key}) }

func result[T any](call Call, of handle) (T, error) {
	resp, err := call.results.get(of)
	if err == nil {
		if resp, err = values.Typed(resp, *new(T)); err != nil { // raw if its type could not be read
			err = fmt.Errorf("the result of the action with %v can't be read as a %T: %w", of, *new(T), err)
		}
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
		err = fmt.Errorf("the result of the action with %v is a %T, not a %T", of, resp, *new(T))
	}
	return *new(T), err
}

// ActionByKey returns another action of the same plan, whatever its status, as it was stored last: its ID, State and
// Attempts tell compensation what may have had an effect, and under which idempotency key. key is the action's Key. Requests,
// responses and the version are left out; see [Result]. The caller may change the copy. ActionByKey sends no request. Calls
// may be concurrent. The error is [ErrNoResult].
//
// A running Idempotent action is stored as it was before.
func (c Call) ActionByKey(key uuid.UUID) (workflow.Action, error) { return c.action(handle{key: key}) }

// ActionByName is [Call.ActionByKey] by the name of the action, which no other action of the plan may have.
func (c Call) ActionByName(name string) (workflow.Action, error) { return c.action(handle{name: name}) }

func (c Call) action(of handle) (workflow.Action, error) {
	k, err := c.results.find(of)
	if err != nil {
		return workflow.Action{}, err
	}
	return described(*k.action), nil
}

// described returns a copy of an action without requests, responses and version.
func described(a workflow.Action) workflow.Action {
	a.Req, a.State.ETag, a.Attempts = nil, "", slices.Clone(a.Attempts)
	for i := range a.Attempts {
		t := &a.Attempts[i]
		if t.Resp = nil; t.Err != nil {
			t.Err = bounded(*t.Err, func(text string) string { return text })
		}
	}
	return a
}

// handle is what other actions call an action: its Key, or its name.
type handle struct {
	key  uuid.UUID
	name string
}

func (h handle) String() string {
	if h.name != "" {
		return fmt.Sprintf("the name %q", h.name)
	}
	return "the key " + h.key.String()
}

// handlesOf returns what an action may be called.
func handlesOf(a *workflow.Action) (all []handle) {
	if a.Key != uuid.Nil {
		all = append(all, handle{key: a.Key})
	}
	if a.Name != "" {
		all = append(all, handle{name: a.Name})
	}
	return all
}

// results are what other actions of a plan may ask for, as it is stored, and how many bytes all responses have.
type results struct {
	mu    sync.Mutex
	known map[handle]known
	bytes int
	// secrets are the values in the responses, by action. Whoever asked for a response may quote them.
	secrets map[uuid.UUID][]string
}

// known is what has a handle: the number of actions, and the last one.
type known struct {
	actions int
	action  *workflow.Action // as described returns it; nobody changes it, nor resp
	resp    any              // of an action that is Completed
	skipped *workflow.Attribution
}

// fill notes what a plan holds that is picked up.
func (r *results) fill(p *workflow.Plan) {
	r.known, r.secrets = map[handle]known{}, map[uuid.UUID][]string{}
	for o := range workflow.Walk(p) {
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		for _, t := range a.Attempts {
			r.bytes += sizeOf(t.Resp)
		}
		k := knownOf(a)
		for _, h := range handlesOf(a) {
			k.actions = r.known[h].actions + 1
			r.known[h] = k
		}
		r.noteSecrets(a)
	}
}

// knownOf returns what is known of an action under each of its handles, if no other action has that.
func knownOf(a *workflow.Action) known {
	k := known{actions: 1, action: new(described(*a))}
	if a.State.Status == workflow.Completed && len(a.Attempts) > 0 {
		last := a.Attempts[len(a.Attempts)-1]
		k.resp, k.skipped = last.Resp, last.Skipped
	}
	return k
}

// stored notes an action that has been stored.
func (r *results) stored(a *workflow.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := knownOf(a)
	for _, h := range handlesOf(a) {
		if r.known[h].actions == 1 {
			r.known[h] = k
		}
	}
	r.noteSecrets(a)
}

// noteSecrets notes the secrets in the response of an action that others may ask for.
func (r *results) noteSecrets(a *workflow.Action) {
	if len(a.Secrets) == 0 || a.State.Status != workflow.Completed || len(a.Attempts) == 0 {
		return
	}
	if _, values, _ := secrets.Hide("/resp", textOf(a.Attempts[len(a.Attempts)-1].Resp), a.Secrets); len(values) > 0 {
		r.secrets[a.ID] = values
	}
}

// redact returns a text without the secrets of responses that an action may have asked for.
func (r *results) redact(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.secrets) == 0 || text == "" {
		return text
	}
	return secrets.Scrub(text, slices.Concat(slices.Collect(maps.Values(r.secrets))...))
}

// get returns a response, decoded afresh.
func (r *results) get(of handle) (any, error) {
	k, err := r.find(of)
	switch {
	case err != nil:
		return nil, err
	case k.action.State.Status != workflow.Completed:
		return nil, fmt.Errorf("%w: the action with %v is not Completed", ErrNoResult, of)
	case k.resp == nil && k.skipped != nil:
		return nil, fmt.Errorf("%w: the action with %v was skipped by %s, who stated no result", ErrNoResult, of, cmp.Or(k.skipped.By, "somebody"))
	case k.resp == nil:
		return nil, nil
	}
	var like any // a zero value of the response's type, unless that is not known
	if _, raw := k.resp.(json.RawMessage); !raw {
		like = reflect.Zero(reflect.TypeOf(k.resp)).Interface()
	}
	return values.Typed(textOf(k.resp), like)
}

// find returns what has a handle.
func (r *results) find(of handle) (known, error) {
	if r == nil {
		return known{}, fmt.Errorf("%w: the call is no engine's", ErrNoResult)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[of]
	switch {
	case k.actions == 0:
		return known{}, fmt.Errorf("%w: no action has %v", ErrNoResult, of)
	case k.actions > 1:
		return known{}, fmt.Errorf("%w: %d actions have %v", ErrNoResult, k.actions, of)
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
	_, text, _ := values.Fresh(resp, nil) // it could be encoded
	return text
}
