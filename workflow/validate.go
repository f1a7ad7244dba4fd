package workflow

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// MaxWrapped is how many errors the error of an attempt may wrap, each in the one before.
const MaxWrapped = 100

// FieldError says what is wrong with one field.
type FieldError struct {
	// Field is the path to the field, beginning at the object that was validated, such as
	// Blocks[0].Sequences[2].Actions[1].Timeout.
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error returns the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Rule is an additional check of an object. It reports problems with bad, which takes the name of a field
// within o.
type Rule func(o Object, bad func(field, problem string))

// Validate reports everything that is wrong with an object and with everything below it, as [*FieldError]
// values joined with errors.Join. IDs and PlanIDs may be nil, since the vault fills them in. If they are set,
// they must be UUIDv7s, each ID must be unique, and all PlanIDs must be the same. Validate applies the rules
// to each object too.
func Validate(o Object, rules ...Rule) error {
	v := newValidator(o, rules)
	visit(nil, o, nil, func(at *place, o, _ Object) bool {
		if v.header(at, o) {
			v.fields(at, o)
		}
		return true
	})
	return errors.Join(v.errs...)
}

// ValidateOwn is Validate for an object's own fields, which an update stores. Of its children it reads only
// ID and PlanID, which must be set, so other goroutines may work on them.
func ValidateOwn(o Object, rules ...Rule) error {
	v := newValidator(o, rules)
	if v.header(nil, o) {
		v.fields(nil, o)
	}
	o.children(func(field string, index int, child Object) bool {
		at := &place{nil, field, index}
		if v.header(at, child) {
			h := child.Header()
			v.set(at, "ID", *h.ID)
			v.set(at, "PlanID", *h.PlanID)
		}
		return true
	})
	return errors.Join(v.errs...)
}

func newValidator(o Object, rules []Rule) *validator {
	return &validator{rules: rules, planID: *o.Header().PlanID, seen: map[uuid.UUID]string{}, objects: map[Object]*place{}}
}

type validator struct {
	rules  []Rule
	planID uuid.UUID
	seen   map[uuid.UUID]string
	// objects has the place of each object, to find one that stands in two places. New plans have no IDs yet.
	objects map[Object]*place
	errs    []error
}

// bad adds a problem with a field of the object at a place.
func (v *validator) bad(at *place, field, problem string, args ...any) {
	v.errs = append(v.errs, &FieldError{at.field(field), fmt.Sprintf(problem, args...)})
}

func (v *validator) set(at *place, field string, id uuid.UUID) {
	if id == uuid.Nil {
		v.bad(at, field, "is nil")
	}
}

// header checks the identity of an object: that it is not nil or repeated, its ID and its PlanID. It returns
// false if there is nothing more to check.
func (v *validator) header(at *place, o Object) bool {
	if o == nil {
		v.errs = append(v.errs, &FieldError{at.String(), "is nil"})
		return false
	}
	if first, repeated := v.objects[o]; repeated {
		v.errs = append(v.errs, &FieldError{at.String(), "is the same object as " + first.String()})
		return false
	}
	v.objects[o] = at

	h := o.Header()
	if *h.ID != uuid.Nil {
		if !IsV7(*h.ID) {
			v.bad(at, "ID", "%s is not a UUIDv7", *h.ID)
		}
		if first, repeated := v.seen[*h.ID]; repeated {
			v.bad(at, "ID", "%s is the ID of %s already", *h.ID, first)
		} else {
			v.seen[*h.ID] = at.field("ID")
		}
	}
	switch planID := *h.PlanID; {
	case planID == uuid.Nil:
	case planID != v.planID:
		v.bad(at, "PlanID", "%s is another plan's: this one is %s", planID, v.planID)
	case at == nil && h.PlanID != h.ID && !IsV7(planID): // the PlanID of a plan is its ID
		v.bad(at, "PlanID", "%s is not a UUIDv7", planID)
	}
	return true
}

// fields checks all other fields of an object, and applies the rules.
func (v *validator) fields(at *place, o Object) {
	c := fieldChecks{v, at}
	state := o.Header().State
	c.known("State.Status", "status", state.Status, statusNames.valid(state.Status))
	c.time("State.Start", state.Start)
	c.time("State.End", state.End)
	switch o := o.(type) {
	case *Plan:
		c.texts(o.Name, o.Descr)
		c.time("SubmitTime", o.SubmitTime)
		c.time("RuntimeUpdate", o.RuntimeUpdate)
		c.known("Reason", "failure reason", o.Reason, reasonNames.valid(o.Reason))
		c.owner(o)
	case *Checks:
		c.duration("Delay", o.Delay)
	case *Block:
		c.texts(o.Name, o.Descr)
		c.duration("EntranceDelay", o.EntranceDelay)
		c.duration("ExitDelay", o.ExitDelay)
		c.number("Concurrency", o.Concurrency)
		if o.ToleratedFailures < -1 {
			v.bad(at, "ToleratedFailures", "%d is below -1, which means any number", o.ToleratedFailures)
		}
	case *Sequence:
		c.texts(o.Name, o.Descr)
	case *Action:
		c.action(o)
	case *DeferBatch:
		c.texts(o.Name, o.Descr)
		c.known("When", "outcome", o.When, whenNames.valid(o.When))
	}
	for _, rule := range v.rules {
		rule(o, func(field, problem string) { v.bad(at, field, "%s", problem) })
	}
}

// fieldChecks are the checks of the fields of one object.
type fieldChecks struct {
	*validator
	at *place
}

func (c fieldChecks) action(a *Action) {
	c.texts(a.Name, a.Descr)
	c.text("Plugin", a.Plugin)
	if a.Plugin == "" {
		c.bad(c.at, "Plugin", "is empty: an action needs a plugin")
	}
	c.duration("Timeout", a.Timeout)
	c.number("Retries", a.Retries)
	for i, attempt := range a.Attempts {
		field := fmt.Sprintf("Attempts[%d].", i)
		c.time(field+"Start", attempt.Start)
		c.time(field+"End", attempt.End)
		c.wrapped(field+"Err", attempt.Err)
	}
}

// owner checks that a plan has an owner exactly if it has an epoch. An owner's ID is a UUIDv7.
func (c fieldChecks) owner(p *Plan) {
	switch {
	case p.Epoch < 0:
		c.bad(c.at, "Epoch", "%d is negative", p.Epoch)
	case p.Owner == uuid.Nil && p.Epoch > 0:
		c.bad(c.at, "Owner", "is nil in epoch %d", p.Epoch)
	case p.Owner != uuid.Nil && p.Epoch == 0:
		c.bad(c.at, "Epoch", "is 0, but the plan has an owner")
	case p.Owner != uuid.Nil && !IsV7(p.Owner):
		c.bad(c.at, "Owner", "%s is not a UUIDv7", p.Owner)
	}
}

// wrapped checks an error and the errors that it wraps, which may be a circle.
func (c fieldChecks) wrapped(field string, err *plugins.Error) {
	path := field + "."
	for e, depth := err, 0; e != nil; e, depth = e.Wrapped, depth+1 {
		if depth > MaxWrapped {
			c.bad(c.at, field+".Wrapped", "more than %d errors are wrapped in each other", MaxWrapped)
			return
		}
		c.text(path+"Message", e.Message)
		path += "Wrapped."
	}
}

func (c fieldChecks) texts(name, descr string) {
	c.text("Name", name)
	c.text("Descr", descr)
}

func (c fieldChecks) text(field, s string) {
	if !utf8.ValidString(s) {
		c.bad(c.at, field, "is not valid UTF-8")
	}
}

func (c fieldChecks) time(field string, t time.Time) {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		c.bad(c.at, field, "the year %d can't be written as RFC 3339", y)
	}
}

func (c fieldChecks) duration(field string, d time.Duration) {
	if d < 0 {
		c.bad(c.at, field, "%v is negative", d)
	}
}

func (c fieldChecks) number(field string, n int) {
	if n < 0 {
		c.bad(c.at, field, "%d is negative", n)
	}
}

// known checks a value of an enumeration.
func (c fieldChecks) known(field, what string, value any, valid bool) {
	if !valid {
		c.bad(c.at, field, "there is no %s %d", what, value)
	}
}
