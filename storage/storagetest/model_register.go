package storagetest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/planvault/azblob/storage"
)

// check looks for an order of the calls on each object of each plan.
func (r *historyRun) check() string {
	for plan := range r.h.Plans {
		events := r.of(plan)
		for object := range 3 { // the plan and its two actions
			if linear(events, object) {
				continue
			}
			return fmt.Sprintf("no order explains what was seen of object %d of plan %d:\n%s", object, plan, r.list(modelReduceHistory(events, object)))
		}
	}
	return ""
}

// of returns the calls on a plan, each with what was under way beside it.
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
			e.late = e.late || other.kind == modelDelete && other.faulty && other.call < e.ret
			if j == i || other.call > e.ret || other.ret < e.call && !unknown(other.err) {
				continue
			}
			e.besideCreate = e.besideCreate || other.kind == modelCreate
			e.besideDelete = e.besideDelete || other.kind == modelDelete
		}
	}
	return events
}

// unknown says that a call may have had its effect or not, or be going to have it yet.
func unknown(err error) bool { return errors.Is(err, storage.ErrUnknown) }

// linear says whether an order explains what was seen of one object.
func linear(events []event, object int) bool {
	var ops []porcupine.Operation
	for _, e := range events {
		if e.kind == modelUpdate && e.object != object || e.kind == modelRecover {
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

// modelReduceHistory leaves out calls without effect that are not needed to show that there is no order.
func modelReduceHistory(events []event, object int) []event {
	events = slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.kind == modelUpdate && e.object != object })
	for i := 0; i < len(events); {
		e := events[i]
		fewer := slices.Delete(slices.Clone(events), i, i+1)
		if writes := e.kind == modelCreate || e.kind == modelUpdate || e.kind == modelDelete; writes && (e.err == nil || unknown(e.err)) || linear(fewer, object) {
			i++
			continue
		}
		events = fewer
	}
	return events
}

// step returns what an object may be after a call, when it was state before: "" for a plan that is not there, else the
// object's content. Nothing means that the call can't have returned what it did.
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
	case modelExists:
		return only(e.err != nil && wasCut(e.err) || e.err == nil && e.found == there)
	case modelRead:
		switch {
		case e.err == nil:
			return only(e.content[object] == state)
		case wasCut(e.err):
			return same
		}
		return only(modelIs(e.err, storage.ErrNotFound) && !there)
	case modelCreate:
		return e.stepCreate(there, same, e.content[object], only)
	case modelDelete:
		switch {
		case unknown(e.err) && there:
			return []string{state, ""}
		case e.err == nil && there:
			return []string{""}
		case e.err == nil:
			// Of two Deletes at once both may return nil: each has seen to it that the plan is gone. Late copies of requests can make
			// a Delete that is over look like one that was broken off, which this one then finished.
			return only(e.besideDelete || e.late)
		case unknown(e.err), wasCut(e.err):
			return same
		}
		return only(modelIs(e.err, storage.ErrNotFound) && !there)
	case modelUpdate:
		return e.stepUpdate(state, same, only)
	}
	return nil
}

func (e event) stepCreate(there bool, same []string, value string, only func(bool) []string) []string {
	switch {
	case unknown(e.err) && !there:
		return []string{"", value}
	case unknown(e.err), wasCut(e.err) && e.err != nil:
		return same
	case e.err == nil && !there:
		return []string{value}
	case e.err == nil:
		return nil
	case there:
		return only(modelIs(e.err, storage.ErrExists))
	}
	// The plan is not there, but another Create or a Delete is at work on it, or its process died at that.
	return only(modelIs(e.err, storage.ErrConflict) && (e.besideCreate || e.besideDelete))
}

func (e event) stepUpdate(state string, same []string, only func(bool) []string) []string {
	there := state != ""
	replaces := there && (e.base == "" || e.base == state)
	switch {
	case unknown(e.err) && replaces:
		return []string{state, e.value}
	case unknown(e.err), wasCut(e.err) && e.err != nil:
		return same
	case e.err == nil && replaces:
		return []string{e.value}
	case e.err == nil:
		// An update is one request for one object, and does not ask for the plan: while a Delete has removed the plan, and not yet
		// the object, it succeeds. No reader sees it.
		return only(!there && e.besideDelete)
	case modelIs(e.err, storage.ErrNotFound) && e.final && e.besideDelete && replaces:
		// The plan was final for all, and then deleted before its object was settled.
		return []string{e.value}
	case modelIs(e.err, storage.ErrNotFound):
		return only(!there)
	case modelIs(e.err, storage.ErrConflict) && !there:
		return only(e.besideCreate || e.besideDelete) // the same of what is there while a plan is not yet, or not any more
	}
	return only(modelIs(e.err, storage.ErrConflict) && e.base != "" && e.base != state)
}
