package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// maxWrapped is how many errors the error of an attempt may wrap, each in the one before.
const maxWrapped = 100

// FieldError says what is wrong with one field.
type FieldError struct {
	// Field is the path to the field, beginning at the object that was validated, such as
	// Blocks[0].Sequences[2].Actions[1].Timeout.
	Field string
	// Problem says what is wrong with it.
	Problem string
	// Err is what a plugin's Check returned, if the problem comes from there, see [plugins.Checker]. It is nil otherwise.
	Err error
}

// Error returns the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// As makes errors.As and errors.AsType find what Err is, or wraps. errors.Is does not look there: the vault has refused the
// input, whatever kind of error a plugin returned.
func (e *FieldError) As(target any) bool { return e.Err != nil && errors.As(e.Err, target) }

// Rule is an additional check of an object. It reports problems with bad.
type Rule func(o Object, bad Report)

// Report takes the name of a field within an object, what is wrong with it and, if there is one, the error that says so, as
// the FieldError has them.
type Report func(field, problem string, why ...error)

// maxProblems is how many problems an error names.
const maxProblems = 10

// Validate reports what is wrong with an object and with everything below it: the first ten problems, as [*FieldError]
// values joined with errors.Join, and the number of the others. IDs and PlanIDs may be nil, since the vault fills them
// in. If they are set, they must be UUIDv7s, each ID must be unique, and all PlanIDs must be the same. Validate applies
// the rules to each object too.
func Validate(o Object, rules ...Rule) error { return validate(o, maxProblems, rules) }

// validate is Validate for the first limit problems.
func validate(o Object, limit int, rules []Rule) error {
	v := newValidator(o, count(o), limit, rules)
	v.do = func(o, parent Object) bool {
		if v.header(o) {
			v.fields(o)
			v.continuous(o, parent)
		}
		return true
	}
	v.walk(o)
	return v.err()
}

// ValidateOwn is Validate for an object's own fields, which an update stores. Of its children it reads only
// ID and PlanID, which must be set, so other goroutines may work on them.
func ValidateOwn(o Object, rules ...Rule) error {
	v := newValidator(o, 8, maxProblems, rules)
	v.do = func(o, parent Object) bool {
		switch ok := v.header(o); {
		case ok && parent == nil:
			v.fields(o)
		case ok:
			h := o.Header()
			v.set("ID", *h.ID)
			v.set("PlanID", *h.PlanID)
		}
		return true
	}
	v.walkOwn(o)
	return v.err()
}

// validator validates the objects that it walks over.
type validator struct {
	*walker
	root   Object
	rules  []Rule
	planID uuid.UUID
	// seen and objects find IDs and objects that stand in two places. Objects are in objects if they have no ID, or that
	// of another one, which is in seen.
	seen    map[uuid.UUID]Object
	objects map[Object]bool
	report  Report  // for the rules
	errs    []error // the first limit problems
	limit   int
	more    int // the number of the others
}

// newValidator returns a validator of about as many objects as there is room for.
func newValidator(o Object, room, limit int, rules []Rule) *validator {
	v := &validator{
		walker: newWalker(nil), root: o, rules: rules, planID: *o.Header().PlanID, limit: limit,
		seen: make(map[uuid.UUID]Object, room), objects: map[Object]bool{},
	}
	v.report = func(field, problem string, why ...error) { v.add(field, cmp.Or(why...), "%s", problem) }
	return v
}

// bad adds a problem with a field of the present object.
func (v *validator) bad(field, problem string, args ...any) { v.add(field, nil, problem, args...) }

func (v *validator) add(field string, why error, problem string, args ...any) {
	if len(v.errs) == v.limit {
		v.more++
		return
	}
	v.errs = append(v.errs, &FieldError{v.path(field), fmt.Sprintf(problem, args...), why})
}

// err joins the problems.
func (v *validator) err() error {
	if v.more > 0 {
		v.errs = append(v.errs, fmt.Errorf("and %d more", v.more))
	}
	return errors.Join(v.errs...)
}

// lazy is a text that is made only if a problem is reported.
type lazy func() string

func (l lazy) String() string { return l() }

// first returns the path to a field of the first object that is.
func (v *validator) first(field string, is func(o Object) bool) lazy {
	return func() (path string) {
		w := newWalker(nil)
		w.do = func(o, _ Object) bool {
			found := o != nil && is(o)
			if found {
				path = w.path(field)
			}
			return !found
		}
		w.walk(v.root)
		return path
	}
}

func (v *validator) set(field string, id uuid.UUID) {
	if id == uuid.Nil {
		v.bad(field, "is nil")
	}
}

// header checks the identity of an object: that it is not nil or repeated, its ID and its PlanID. It returns
// false if there is nothing more to check.
func (v *validator) header(o Object) bool {
	if o == nil {
		v.bad("", "is nil")
		return false
	}
	h := o.Header()
	id := *h.ID
	holder, seen := v.seen[id]
	if holder == o || v.objects[o] {
		v.bad("", "is the same object as %s", v.first("", func(other Object) bool { return other == o }))
		return false
	}
	if id != uuid.Nil && !IsV7(id) {
		v.bad("ID", "%s is not a UUIDv7", id)
	}
	if seen {
		v.bad("ID", "%s is the ID of %s already", id, v.first("ID", func(other Object) bool { return other == holder }))
	}
	if id == uuid.Nil || seen {
		v.objects[o] = true
	} else {
		v.seen[id] = o
	}
	switch planID := *h.PlanID; {
	case planID == uuid.Nil:
	case planID != v.planID:
		v.bad("PlanID", "%s is another plan's: this one is %s", planID, v.planID)
	case o == v.root && h.PlanID != h.ID && !IsV7(planID): // the PlanID of a plan is its ID
		v.bad("PlanID", "%s is not a UUIDv7", planID)
	}
	return true
}

// fields checks all other fields of an object, and applies the rules.
func (v *validator) fields(o Object) {
	c := fieldChecks{v}
	state := o.Header().State
	c.known("State.Status", "status", state.Status, statusNames.valid(state.Status))
	c.time("State.Start", state.Start)
	c.time("State.End", state.End)
	switch o := o.(type) {
	case *Plan:
		c.texts(o.Name, o.Descr)
		c.time("SubmitTime", o.SubmitTime)
		c.time("RuntimeUpdate", o.RuntimeUpdate)
		c.time("WakeAt", o.WakeAt)
		c.time("NotBefore", o.NotBefore)
		c.time("Deadline", o.Deadline)
		if !o.Deadline.IsZero() && o.Deadline.Before(o.NotBefore) && inRFC3339(o.Deadline) && inRFC3339(o.NotBefore) {
			c.bad("Deadline", "is before NotBefore")
		}
		c.number("LastSignal", o.LastSignal)
		c.known("Reason", "failure reason", o.Reason, reasonNames.valid(o.Reason))
		c.owner(o)
		c.forkedFrom(o)
		c.under("Submitted.", o.Submitted.check)
		c.under("Forked.", o.Forked.check)
		c.under("Stopped.", o.Stopped.check)
		c.known("Ending.Reason", "failure reason", o.Ending.Reason, reasonNames.valid(o.Ending.Reason))
		c.time("Ending.At", o.Ending.At)
		c.under("Ending.", func(bad func(field, problem string, args ...any)) {
			checkLine("Trouble", o.Ending.Trouble, MaxWhy, bad)
		})
		c.under("Paused.", o.Paused.check)
		c.under("External.", o.External.check)
		o.checkTurns(c.bad)
		if err := CheckLabels(o.Labels); err != nil {
			c.bad("Labels", "%v", err)
		}
	case *Checks:
		c.duration("Delay", o.Delay)
	case *Block:
		c.texts(o.Name, o.Descr)
		c.duration("EntranceDelay", o.EntranceDelay)
		c.duration("ExitDelay", o.ExitDelay)
		c.number("Concurrency", o.Concurrency)
		if o.ToleratedFailures < -1 {
			v.bad("ToleratedFailures", "%d is below -1, which means any number", o.ToleratedFailures)
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
		rule(o, v.report)
	}
}

// continuous checks the actions of continuous checks, which do not keep all attempts.
func (v *validator) continuous(o, parent Object) {
	c, _ := o.(*Checks)
	if around, ok := checksOf(parent); c == nil || !ok || c != *around[2] {
		return
	}
	for i, a := range c.Actions {
		if a != nil && a.AtMost > 0 {
			v.bad(fmt.Sprintf("Actions[%d].AtMost", i), "is %d: an action of continuous checks runs any number of times", a.AtMost)
		}
	}
}

// fieldChecks are the checks of the fields of one object.
type fieldChecks struct{ *validator }

func (c fieldChecks) action(a *Action) {
	c.texts(a.Name, a.Descr)
	c.text("Plugin", a.Plugin)
	if a.Plugin == "" {
		c.bad("Plugin", "is empty: an action needs a plugin")
	}
	c.duration("Timeout", a.Timeout)
	if c.number("Retries", a.Retries); a.NoRetries && a.Retries > 0 {
		c.bad("NoRetries", "is set, but Retries is %d", a.Retries)
	}
	if field, problem := a.Backoff.Wrong(); field != "" {
		c.bad("Backoff."+field, "%s", problem)
	}
	if c.number("AtMost", a.AtMost); a.AtMost > 0 && a.Idempotent {
		c.bad("AtMost", "is %d, but the action is Idempotent: its attempts are not stored before they end", a.AtMost)
	}
	for i, path := range a.Secrets {
		if !utf8.ValidString(path) {
			c.bad(fmt.Sprintf("Secrets[%d]", i), "is not valid UTF-8")
		} else if root, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); path == root || root != "req" && root != "resp" {
			c.bad(fmt.Sprintf("Secrets[%d]", i), "%.100q is no path that begins with /req or /resp", path)
		}
	}
	for i, attempt := range a.Attempts {
		if inRFC3339(attempt.Start) && inRFC3339(attempt.End) && !badError(attempt.Err) && attempt.Skipped == nil && attempt.Later == nil {
			continue
		}
		field := fmt.Sprintf("Attempts[%d].", i)
		if attempt.Skipped != nil {
			c.under(field+"Skipped.", attempt.Skipped.check)
		}
		c.time(field+"Start", attempt.Start)
		c.time(field+"End", attempt.End)
		if l := attempt.Later; l != nil {
			c.time(field+"Later.At", l.At)
			c.number(field+"Later.LastSignal", l.LastSignal)
			c.under(field+"Later.", func(bad func(field, problem string, args ...any)) { checkLine("For", l.For, MaxWhy, bad) })
		}
		c.wrapped(field+"Err", attempt.Err)
	}
}

// owner checks that a plan has an owner exactly if it has an epoch, unless it sleeps. An owner's ID is a UUIDv7.
func (c fieldChecks) owner(p *Plan) {
	switch {
	case p.Epoch < 0:
		c.bad("Epoch", "%d is negative", p.Epoch)
	case p.Owner == uuid.Nil && p.Epoch > 0 && p.WakeAt.IsZero():
		c.bad("Owner", "is nil in epoch %d", p.Epoch)
	case p.Owner != uuid.Nil && p.Epoch == 0:
		c.bad("Epoch", "is 0, but the plan has an owner")
	case p.Owner != uuid.Nil && !IsV7(p.Owner):
		c.bad("Owner", "%s is not a UUIDv7", p.Owner)
	}
}

// forkedFrom checks the ID of the plan that a fork came from.
func (c fieldChecks) forkedFrom(p *Plan) {
	switch id := p.ForkedFrom; {
	case id == uuid.Nil && p.Forked != (Attribution{}):
		c.bad("Forked", "is set, but ForkedFrom is nil")
	case id == uuid.Nil:
	case !IsV7(id):
		c.bad("ForkedFrom", "%s is not a UUIDv7", id)
	case id == p.ID:
		c.bad("ForkedFrom", "is the ID of the plan itself")
	}
}

// under reports what a check finds wrong with a field of a plan.
func (c fieldChecks) under(field string, check func(bad func(field, problem string, args ...any))) {
	check(func(name, problem string, args ...any) { c.bad(field+name, problem, args...) })
}

// badError reports whether wrapped would report something.
func badError(err *plugins.Error) bool {
	depth := 0
	for ; err != nil && depth <= maxWrapped && err.After >= 0 && utf8.ValidString(err.Message); depth++ {
		err = err.Wrapped
	}
	return err != nil
}

// wrapped checks an error and the errors that it wraps, which may be a circle.
func (c fieldChecks) wrapped(field string, err *plugins.Error) {
	path := field + "."
	for e, depth := err, 0; e != nil; e, depth = e.Wrapped, depth+1 {
		if depth > maxWrapped {
			c.bad(field+".Wrapped", "more than %d errors are wrapped in each other", maxWrapped)
			return
		}
		c.text(path+"Message", e.Message)
		c.duration(path+"After", e.After)
		path += "Wrapped."
	}
}

func (c fieldChecks) texts(name, descr string) {
	c.text("Name", name)
	c.text("Descr", descr)
}

func (c fieldChecks) text(field, s string) {
	if !utf8.ValidString(s) {
		c.bad(field, "is not valid UTF-8")
	}
}

func (c fieldChecks) time(field string, t time.Time) {
	if !inRFC3339(t) {
		c.bad(field, "the year %d can't be written as RFC 3339", t.UTC().Year())
	}
}

func inRFC3339(t time.Time) bool {
	y := t.UTC().Year()
	return y >= 1 && y <= 9999
}

func (c fieldChecks) duration(field string, d time.Duration) {
	if d < 0 {
		c.bad(field, "%v is negative", d)
	}
}

func (c fieldChecks) number(field string, n int) {
	if n < 0 {
		c.bad(field, "%d is negative", n)
	}
}

// known checks a value of an enumeration.
func (c fieldChecks) known(field, what string, value any, valid bool) {
	if !valid {
		c.bad(field, "there is no %s %d", what, value)
	}
}
