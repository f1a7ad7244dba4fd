package workflow

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// FieldError says what is wrong with one field.
type FieldError struct {
	// Field is the path to the field from the object that was validated, such as Blocks[0].Sequences[2].Actions[1].Timeout.
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error returns the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Rule is an additional demand on objects: it reports a problem with a field of o, by the field's name within o.
type Rule func(o Object, bad func(field, problem string))

// Validate says everything that is wrong with an object and all below it, as *FieldErrors joined with errors.Join; nil
// when nothing is. IDs and PlanIDs that are not set are not errors, since storage fills them in; those that are must be
// UUIDv7s, different from each other, and of one plan. The rules are asked about each object too.
func Validate(o Object, rules ...Rule) error {
	v := validator{rules: rules, planID: *o.Header().PlanID, seen: map[uuid.UUID]string{}, objects: map[Object]*place{}}
	visit(nil, o, nil, func(at *place, o, _ Object) bool {
		v.object(at, o)
		return true
	})
	return errors.Join(v.errs...)
}

type validator struct {
	rules  []Rule
	planID uuid.UUID
	seen   map[uuid.UUID]string
	// objects tells parts without IDs apart.
	objects map[Object]*place
	errs    []error
}

func (v *validator) object(at *place, o Object) {
	path := func(field string) string {
		if at == nil {
			return field
		}
		return at.String() + "." + field
	}
	bad := func(field, problem string, args ...any) {
		v.errs = append(v.errs, &FieldError{path(field), fmt.Sprintf(problem, args...)})
	}
	if o == nil {
		v.errs = append(v.errs, &FieldError{at.String(), "is nil"})
		return
	}
	if first, repeated := v.objects[o]; repeated {
		v.errs = append(v.errs, &FieldError{at.String(), "is the same object as " + first.String()})
		return
	}
	v.objects[o] = at

	h := o.Header()
	if *h.ID != uuid.Nil {
		if !IsV7(*h.ID) {
			bad("ID", "%s is not a UUIDv7", *h.ID)
		}
		if first, repeated := v.seen[*h.ID]; repeated {
			bad("ID", "%s is the ID of %s already", *h.ID, first)
		} else {
			v.seen[*h.ID] = path("ID")
		}
	}
	switch planID := *h.PlanID; {
	case planID == uuid.Nil:
	case planID != v.planID:
		bad("PlanID", "%s is another plan's: this one is %s", planID, v.planID)
	case at == nil && h.PlanID != h.ID && !IsV7(planID): // a plan's was looked at as its ID
		bad("PlanID", "%s is not a UUIDv7", planID)
	}
	if !h.State.Status.Valid() {
		bad("State.Status", "there is no status %d", int(h.State.Status))
	}

	text := func(field, s string) {
		if !utf8.ValidString(s) {
			bad(field, "is not valid UTF-8")
		}
	}
	timeOf := func(field string, t time.Time) {
		if y := t.UTC().Year(); y < 1 || y > 9999 {
			bad(field, "the year %d can't be written as RFC 3339", y)
		}
	}
	length := func(field string, d time.Duration) {
		if d < 0 {
			bad(field, "%v is negative", d)
		}
	}
	timeOf("State.Start", h.State.Start)
	timeOf("State.End", h.State.End)

	switch o := o.(type) {
	case *Plan:
		text("Name", o.Name)
		text("Descr", o.Descr)
		timeOf("SubmitTime", o.SubmitTime)
		if !reasonNames.valid(o.Reason) {
			bad("Reason", "there is no failure reason %d", int(o.Reason))
		}
	case *Checks:
		length("Delay", o.Delay)
	case *Block:
		text("Name", o.Name)
		text("Descr", o.Descr)
		length("EntranceDelay", o.EntranceDelay)
		length("ExitDelay", o.ExitDelay)
		if o.Concurrency < 0 {
			bad("Concurrency", "%d is negative", o.Concurrency)
		}
		if o.ToleratedFailures < -1 {
			bad("ToleratedFailures", "%d is below -1, which is any number", o.ToleratedFailures)
		}
	case *Sequence:
		text("Name", o.Name)
		text("Descr", o.Descr)
	case *Action:
		text("Name", o.Name)
		text("Descr", o.Descr)
		text("Plugin", o.Plugin)
		if o.Plugin == "" {
			bad("Plugin", "is empty: an action names the plugin that it runs")
		}
		length("Timeout", o.Timeout)
		if o.Retries < 0 {
			bad("Retries", "%d is negative", o.Retries)
		}
		for i, a := range o.Attempts {
			field := fmt.Sprintf("Attempts[%d].", i)
			timeOf(field+"Start", a.Start)
			timeOf(field+"End", a.End)
			if a.Err != nil {
				text(field+"Err.Message", a.Err.Message)
			}
		}
	case *DeferBatch:
		text("Name", o.Name)
		text("Descr", o.Descr)
		if !whenNames.valid(o.When) {
			bad("When", "there is no outcome %d", int(o.When))
		}
	}
	for _, rule := range v.rules {
		rule(o, func(field, problem string) { bad(field, "%s", problem) })
	}
}
