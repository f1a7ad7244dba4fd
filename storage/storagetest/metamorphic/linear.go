package metamorphic

import (
	"errors"
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"

	"github.com/planvault/azblob/storage"
)

// check looks for an order of the calls for each object of each plan.
func (r *historyRun) check() string {
	for plan := range r.h.Plans {
		events := r.of(plan)
		for object := range 3 { // the plan and its two actions
			if linear(events, object) {
				continue
			}
			return fmt.Sprintf("no order explains the results for object %d of plan %d:\n%s", object, plan, r.list(events))
		}
	}
	return ""
}

// of returns the calls on a plan, each with what was in progress at the same time.
func (r *historyRun) of(plan int) []event {
	var events []event
	for _, e := range r.events {
		if e.plan == plan {
			events = append(events, e)
		}
	}
	for i := range events {
		e := &events[i]
		for j, other := range events {
			e.late = e.late || other.kind == opDelete && other.faulty && other.call < e.ret
			if j == i || other.call > e.ret || other.ret < e.call && !unknown(other.err) {
				continue
			}
			e.besideCreate = e.besideCreate || other.kind == opCreate
			e.besideDelete = e.besideDelete || other.kind == opDelete
			e.besideUpdate = e.besideUpdate || other.kind == opUpdate
		}
	}
	return events
}

// unknown reports whether a call may have taken effect, or may still take effect.
func unknown(err error) bool { return errors.Is(err, storage.ErrUnknown) }

// linear reports whether an order explains the results for one object.
func linear(events []event, object int) bool {
	var ops []porcupine.Operation
	for _, e := range events {
		if e.kind == opUpdate && e.object != object || e.kind == opRecover {
			continue
		}
		op := porcupine.Operation{ClientId: e.client, Input: e, Output: object, Call: e.call, Return: e.ret}
		if unknown(e.err) {
			op.Return = math.MaxInt64
		}
		ops = append(ops, op)
	}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			e := input.(event)
			var next []any
			for _, s := range e.step(state.(string), output.(int)) {
				next = append(next, s)
			}
			return next
		},
	}
	return porcupine.CheckOperations(model.ToModel(), ops)
}

// step returns the possible states of an object after a call in the given state. The state is the content of
// the object, or "" if the plan does not exist. There are none if the call can't have returned what it did.
func (e event) step(state string, object int) []string {
	there := state != ""
	same := []string{state}
	only := func(ok bool) []string {
		if ok {
			return same
		}
		return nil
	}
	switch e.kind {
	case opExists:
		return only(wasCut(e.err) || e.err == nil && e.found == there)
	case opRead:
		switch {
		case e.err == nil:
			return only(e.content[object] == state)
		case wasCut(e.err):
			return same
		}
		return only(isOnly(e.err, storage.ErrNotFound) && !there)
	case opCreate:
		return e.stepCreate(there, same, e.content[object], only)
	case opDelete:
		switch {
		case unknown(e.err) && there:
			return []string{state, ""}
		case e.err == nil && there:
			return []string{""}
		case e.err == nil:
			// Two concurrent Deletes may both return nil: each ensured that the plan is gone. Late copies of
			// requests can make a completed Delete look like an interrupted one, which this Delete then
			// finished.
			return only(e.besideDelete || e.late)
		case unknown(e.err), wasCut(e.err):
			return same
		case isOnly(e.err, storage.ErrConflict): // updates kept changing the plan
			return only(e.besideUpdate)
		}
		return only(isOnly(e.err, storage.ErrNotFound) && !there)
	case opUpdate:
		return e.stepUpdate(state, same, only)
	}
	return nil
}

func (e event) stepCreate(there bool, same []string, value string, only func(bool) []string) []string {
	switch {
	case unknown(e.err) && !there:
		return []string{"", value}
	case unknown(e.err), wasCut(e.err):
		return same
	case e.err == nil && !there:
		return []string{value}
	case e.err == nil:
		return nil
	case there:
		return only(isOnly(e.err, storage.ErrExists))
	}
	// The plan does not exist, but another Create or a Delete of it is in progress, or was interrupted.
	return only(isOnly(e.err, storage.ErrConflict) && (e.besideCreate || e.besideDelete))
}

func (e event) stepUpdate(state string, same []string, only func(bool) []string) []string {
	there := state != ""
	replaces := there && (e.base == "" || e.base == state)
	switch {
	case unknown(e.err) && replaces:
		return []string{state, e.value}
	case unknown(e.err), wasCut(e.err):
		return same
	case e.err == nil && replaces:
		return []string{e.value}
	case e.err == nil:
		// An update is one request for one object. It succeeds if a Delete has removed the plan but not yet
		// the object. No reader sees its effect.
		return only(!there && e.besideDelete)
	case isOnly(e.err, storage.ErrNotFound) && e.final && e.besideDelete && replaces:
		// Readers saw the plan as final, and then it was deleted before its plan object was written.
		return []string{e.value}
	case isOnly(e.err, storage.ErrNotFound):
		return only(!there)
	case isOnly(e.err, storage.ErrConflict) && !there:
		return only(e.besideCreate || e.besideDelete) // the object exists before its plan does, or after it is gone
	}
	return only(isOnly(e.err, storage.ErrConflict) && e.base != "" && e.base != state)
}
