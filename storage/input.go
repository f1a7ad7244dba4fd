package storage

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// What follows is for those who write a vault: the parts of the contract that are the same whatever it is built on.

// MaxAhead is how far in the future the time in an ID may lie: a day, for clocks that disagree.
const MaxAhead = 24 * time.Hour

// Invalid is bad input: ErrInvalid around a *workflow.FieldError.
func Invalid(field, problem string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, &workflow.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)})
}

// CheckID refuses an ID that no plan can have: one that is not a UUIDv7, or lies more than MaxAhead in the future.
func CheckID(id uuid.UUID) error {
	if !workflow.IsV7(id) {
		return Invalid("ID", "%s is not a UUIDv7", id)
	}
	if problem := ahead(id); problem != "" {
		return Invalid("ID", "%s", problem)
	}
	return nil
}

func ahead(id uuid.UUID) string {
	if t := workflow.Time(id); time.Until(t) > MaxAhead {
		return fmt.Sprintf("%s lies more than a day ahead, at %s", id, t.Format(time.RFC3339))
	}
	return ""
}

// CheckNew refuses a plan that can't be created, naming each field: what workflow.Validate finds, IDs ahead, anything that
// has begun, and with a registry plugins that it lacks and requests of other types than theirs.
func CheckNew(plan *workflow.Plan, reg *registry.Register) error {
	if plan == nil {
		return Invalid("Plan", "is nil")
	}
	return invalid(workflow.Validate(plan, notAhead, asAuthored, knownPlugin(reg)))
}

// Complete gives a new plan what its author left out: IDs, PlanIDs, SubmitTime.
func Complete(plan *workflow.Plan) {
	if plan.ID == uuid.Nil {
		plan.ID = workflow.NewV7()
	}
	if plan.SubmitTime.IsZero() {
		plan.SubmitTime = time.Now().UTC()
	}
	for o := range workflow.Walk(plan) {
		h := o.Header()
		if *h.ID == uuid.Nil {
			*h.ID = workflow.NewV7()
		}
		*h.PlanID = plan.ID
	}
}

// CheckUpdate refuses an object that can't be stored in place of what is there, naming each field: as CheckNew, and IDs that
// are nil, and moves back from the status in State.ETag (see Version). Of parts it looks only at their IDs, so that they may
// be worked on meanwhile, but for a plan that becomes final.
func CheckUpdate(o workflow.Object, reg *registry.Register) error {
	validate := workflow.ValidateOwn
	if o.Kind() == workflow.KindPlan && o.Header().State.Status.Final() {
		validate = workflow.Validate
	}
	return invalid(validate(o, HasIDs, notAhead, forward, knownPlugin(reg)))
}

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

// HasIDs is the rule that an object has its ID and its plan's.
func HasIDs(o workflow.Object, bad func(field, problem string)) {
	h := o.Header()
	if *h.ID == uuid.Nil {
		bad("ID", "is nil")
	}
	if *h.PlanID == uuid.Nil {
		bad("PlanID", "is nil")
	}
}

// notAhead is the rule that no ID lies more than MaxAhead in the future.
func notAhead(o workflow.Object, bad func(field, problem string)) {
	h := o.Header()
	if problem := ahead(*h.ID); problem != "" {
		bad("ID", problem)
	}
	if h.PlanID != h.ID && ahead(*h.PlanID) != "" {
		bad("PlanID", ahead(*h.PlanID))
	}
}

// asAuthored is the rule that a new plan has not begun.
func asAuthored(o workflow.Object, bad func(field, problem string)) {
	if s := o.Header().State.Status; s != workflow.NotStarted {
		bad("State.Status", "is "+s.String()+": a new plan is NotStarted in all its parts")
	}
	if a, ok := o.(*workflow.Action); ok && len(a.Attempts) > 0 {
		bad("Attempts", "a new plan has none")
	}
}

// forward is the rule that no object goes back from the status of the version that it was read at or last written as. Where
// no version is known, so is no status.
func forward(o workflow.Object, bad func(field, problem string)) {
	s := o.Header().State
	_, was, known := SplitVersion(s.ETag)
	if !known || s.Status == was || s.Status > was && !was.Final() {
		return
	}
	bad("State.Status", fmt.Sprintf("%s can't follow %s: states only move forward", s.Status, was))
}

// knownPlugin is the rule that an action's plugin is in the registry, and that its request and responses are of the types
// that come back: those that the plugin names, or pointers to them, or raw JSON that they can be read from.
func knownPlugin(reg *registry.Register) workflow.Rule {
	return func(o workflow.Object, bad func(field, problem string)) {
		a, ok := o.(*workflow.Action)
		if !ok || reg == nil || a.Plugin == "" {
			return
		}
		plugin, known := reg.Plugin(a.Plugin)
		if !known {
			bad("Plugin", fmt.Sprintf("the registry lacks plugin %q", a.Plugin))
			return
		}
		if problem := fits(a.Req, plugin.Request()); problem != "" {
			bad("Req", problem+" of plugin "+plugin.Name())
		}
		for i, attempt := range a.Attempts {
			if problem := fits(attempt.Resp, plugin.Response()); problem != "" {
				bad(fmt.Sprintf("Attempts[%d].Resp", i), problem+" of plugin "+plugin.Name())
			}
		}
	}
}

func fits(value, empty any) string {
	if value == nil || empty == nil {
		return ""
	}
	if _, raw := value.(json.RawMessage); raw {
		if _, err := typed(value, empty); err != nil {
			return fmt.Sprintf("can't be read as %T: %v", empty, err)
		}
		return ""
	}
	got, want := reflect.TypeOf(value), reflect.TypeOf(empty)
	if got == want || got == reflect.PointerTo(want) || reflect.PointerTo(got) == want {
		return ""
	}
	return fmt.Sprintf("is a %v, not the %v", got, want)
}

// Bind turns the raw requests and responses of all actions of a plan that was read into the types of their plugins; a nil
// registry leaves them. What it does not understand is ErrSchema.
func Bind(p *workflow.Plan, reg *registry.Register) error {
	if reg == nil {
		return nil
	}
	for o := range workflow.Walk(p) {
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		plugin, known := reg.Plugin(a.Plugin)
		if !known {
			return fmt.Errorf("%w: action %s needs plugin %q, which the registry lacks: register it, or read with a nil registry", ErrSchema, a.ID, a.Plugin)
		}
		var err error
		if a.Req, err = typed(a.Req, plugin.Request()); err != nil {
			return fmt.Errorf("%w: request of action %s for plugin %q: %w", ErrSchema, a.ID, a.Plugin, err)
		}
		for i := range a.Attempts {
			if a.Attempts[i].Resp, err = typed(a.Attempts[i].Resp, plugin.Response()); err != nil {
				return fmt.Errorf("%w: response %d of action %s of plugin %q: %w", ErrSchema, i, a.ID, a.Plugin, err)
			}
		}
	}
	return nil
}

// typed decodes raw JSON into a new value of the type of empty. What is not raw is returned as it is.
func typed(v, empty any) (any, error) {
	raw, ok := v.(json.RawMessage)
	if !ok || empty == nil {
		return v, nil
	}
	into := reflect.New(reflect.TypeOf(empty))
	if err := json.Unmarshal(raw, into.Interface()); err != nil {
		return nil, err
	}
	return into.Elem().Interface(), nil
}
