// Package driver holds what the authors of a vault need beside the contract in package storage: the checks of input, the form
// of versions, and the meaning of filters. They are the same whatever a vault is built on. Users of a vault need none of it.
package driver

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Invalid is bad input: ErrInvalid around a *workflow.FieldError.
func Invalid(field, problem string, args ...any) error {
	return fmt.Errorf("%w: %w", storage.ErrInvalid, &workflow.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)})
}

// CheckID is ErrNotFound for an ID that no plan has, because it is not a UUIDv7.
func CheckID(id uuid.UUID) error {
	if !workflow.IsV7(id) {
		return fmt.Errorf("%w: %s is not a UUIDv7, so no plan has it", storage.ErrNotFound, id)
	}
	return nil
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

// CheckUpdate refuses an object that can't be stored in place of what is there, naming each field: what workflow.Validate
// finds, IDs that are nil, and with a registry plugins that it lacks and requests of other types than theirs; then what does
// not follow the version in State.ETag (see Version): other children, or a plan that goes back from its status. What is not of
// Version's form is refused too, because it tells nothing of children and status. An empty version is refused unless the vault
// takes unversioned updates.
//
// Of what is below the object it looks only at IDs, so that other goroutines may work on it meanwhile. The exception is a plan
// that becomes final, all of which is stored; the version and the status of its parts do not count.
func CheckUpdate(o workflow.Object, reg *registry.Register, unversioned bool) error {
	validate := workflow.ValidateOwn
	if o.Kind() == workflow.KindPlan && o.Header().State.Status.Final() {
		validate = workflow.Validate
	}
	if err := invalid(validate(o, HasIDs, knownPlugin(reg))); err != nil {
		return err
	}
	return follows(o, unversioned)
}

// follows refuses an object that can't follow the version that it was read at or last written as.
func follows(o workflow.Object, unversioned bool) error {
	state := o.Header().State
	if state.ETag == "" {
		if unversioned {
			return nil
		}
		return Invalid("State.ETag", "is empty: read the plan first, and start an object again with State.Reset, which keeps its version")
	}
	_, was, children, known := splitVersion(state.ETag)
	if !known {
		return Invalid("State.ETag", "%.100q is not a version of this vault: keep versions whole, as the vault set them, or read the plan again", state.ETag)
	}
	if field := childField[o.Kind()]; field != "" && children != workflow.Fingerprint(o) {
		return Invalid(field, "the parts of the %s are not those of the version in State.ETag: they can't be added, removed, replaced or moved", o.Kind())
	}
	if o.Kind() == workflow.KindPlan && state.Status != was && (state.Status < was || was.Final()) {
		return Invalid("State.Status", "%s can't follow %s: a plan only moves forward", state.Status, was)
	}
	return nil
}

// childField names the field that holds the children of a kind, or most of them.
var childField = map[workflow.Kind]string{
	workflow.KindPlan:            "Blocks",
	workflow.KindBlock:           "Sequences",
	workflow.KindChecks:          "Actions",
	workflow.KindSequence:        "Actions",
	workflow.KindDeferBatch:      "Actions",
	workflow.KindDeferredActions: "Batches",
}

// Unencodable is the error of an object that could not be encoded, where err is what the encoder said: ErrInvalid that names
// each request and response that is to blame. Where whole is set all below the object was encoded too.
func Unencodable(o workflow.Object, whole bool, err error) error {
	validate := workflow.ValidateOwn
	if whole {
		validate = workflow.Validate
	}
	if named := invalid(validate(o, workflow.Encodable)); named != nil {
		return named
	}
	return fmt.Errorf("%w: %s %s can't be encoded: %w", storage.ErrInvalid, o.Kind(), *o.Header().ID, err)
}

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", storage.ErrInvalid, err)
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

// notAhead is the rule that no ID of a new plan lies more than MaxAhead in the future.
func notAhead(o workflow.Object, bad func(field, problem string)) {
	if id := *o.Header().ID; time.Until(workflow.Time(id)) > storage.MaxAhead {
		bad("ID", fmt.Sprintf("%s lies more than a day ahead, at %s", id, workflow.Time(id).Format(time.RFC3339)))
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

// knownPlugin is the rule that an action's plugin is in the registry, and that its request and responses are of the types
// that come back: those that the plugin names, or pointers to them, or raw JSON. Bind must be able to read them.
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
	raw, isRaw := value.(json.RawMessage)
	if !isRaw {
		got, want := reflect.TypeOf(value), reflect.TypeOf(empty)
		if got != want && got != reflect.PointerTo(want) && reflect.PointerTo(got) != want {
			return fmt.Sprintf("is a %v, not the %v", got, want)
		}
		if !oneWay(want) {
			return ""
		}
		var err error
		if raw, err = json.Marshal(value); err != nil {
			return "" // whoever encodes the object says so
		}
	}
	if _, err := typed(raw, empty); err != nil {
		return fmt.Sprintf("can't be read as %T: %v", empty, err)
	}
	return ""
}

// oneWays remembers the answers of oneWay, which depend on the type alone.
var oneWays sync.Map

// oneWay says whether encoding/json may write values of a type that it can't read again into that type. Where it is false,
// there is no need to try.
func oneWay(t reflect.Type) bool {
	if known, ok := oneWays.Load(t); ok {
		return known.(bool)
	}
	is := holdsOneWay(t, map[reflect.Type]bool{})
	oneWays.Store(t, is)
	return is
}

// oneWayBy are the interfaces by which a type writes or reads itself.
var oneWayBy = []reflect.Type{
	reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
}

// holdsOneWay looks for what makes a type one-way in all that its values can hold: interfaces, types that write or read
// themselves, and embedded pointers to structs that are not exported, which encoding/json can't set.
func holdsOneWay(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[json.RawMessage]() { // those two read what they write
		return false
	}
	seen[t] = true
	if slices.ContainsFunc(oneWayBy, reflect.PointerTo(t).Implements) {
		return true
	}
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Map:
		return holdsOneWay(t.Key(), seen) || holdsOneWay(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holdsOneWay(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
				continue
			}
			if !f.IsExported() && f.Type.Kind() == reflect.Pointer || holdsOneWay(f.Type, seen) {
				return true
			}
		}
	}
	return false
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
			return fmt.Errorf("%w: action %s needs plugin %q, which the registry lacks: register it, or read with a nil registry", storage.ErrSchema, a.ID, a.Plugin)
		}
		var err error
		if a.Req, err = typed(a.Req, plugin.Request()); err != nil {
			return fmt.Errorf("%w: request of action %s for plugin %q: %w", storage.ErrSchema, a.ID, a.Plugin, err)
		}
		for i := range a.Attempts {
			if a.Attempts[i].Resp, err = typed(a.Attempts[i].Resp, plugin.Response()); err != nil {
				return fmt.Errorf("%w: response %d of action %s of plugin %q: %w", storage.ErrSchema, i, a.ID, a.Plugin, err)
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
