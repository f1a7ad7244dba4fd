package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/values"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Invalid returns [storage.ErrInvalid] with a [*workflow.FieldError].
func Invalid(field, problem string, args ...any) error {
	return fmt.Errorf("%w: %w", storage.ErrInvalid, &workflow.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)})
}

// CheckID returns [storage.ErrNotFound] if id is not a UUIDv7: no plan has such an ID.
func CheckID(id uuid.UUID) error {
	if !workflow.IsV7(id) {
		return fmt.Errorf("%w: %s is not a UUIDv7, so no plan has it", storage.ErrNotFound, id)
	}
	return nil
}

// CheckNew returns [storage.ErrInvalid] if the plan can't be created, with every wrong field: those that
// [workflow.Validate] finds, IDs too far ahead, statuses, attempts and owner of a plan that has begun, and, if reg
// is not nil, plugins that it lacks, requests that do not fit their plugins, that a [plugins.Checker] refuses or that would be
// read back as something else, plugins whose types can't be stored whole, and plugins in Checks that are none. It also finds
// tags other than vault:"secret". Its texts quote no secret.
//
// In a fork, which has ForkedFrom, what [workflow.CarriedOver] yields as carried over may be Completed. It then has
// times and, if it is an action, attempts, and what it needs below it is Completed as well.
func CheckNew(plan *workflow.Plan, reg *registry.Register) error {
	if plan == nil {
		return Invalid("Plan", "is nil")
	}
	rules := []workflow.Rule{notAhead, asAuthored, tagged(reg), knownPlugin(reg, true), survives(reg), isCheck(reg), passes(plan, reg, nil)}
	if plan.ForkedFrom != uuid.Nil {
		carried := maps.Collect(workflow.CarriedOver(plan))
		rules = []workflow.Rule{notAhead, asForked(carried), tagged(reg), knownPlugin(reg, true), survives(reg), passes(plan, reg, carried)}
	}
	return invalid(workflow.Validate(plan, rules...))
}

// CheckRestored returns [storage.ErrInvalid] if the plan can't be restored, with every wrong field: those that
// [workflow.Validate] finds, nil IDs, an ID whose time has no date, and, if reg is not nil, plugins that it lacks
// and requests and responses that do not fit their plugins. It accepts every plan that Read returns with the
// same registry.
func CheckRestored(plan *workflow.Plan, reg *registry.Register) error {
	if plan == nil {
		return Invalid("Plan", "is nil")
	}
	return invalid(workflow.Validate(plan, HasIDs, hasDate, knownPlugin(reg, false)))
}

// Accept is how a vault begins to create a plan. It returns the error of [CheckNew], or fills in what the author left out, as
// [Complete] does, Submitted from the context (see [storage.WithActor]), and Secrets as [MarkSecrets] does. A plan that is
// refused is unchanged.
func Accept(ctx context.Context, plan *workflow.Plan, reg *registry.Register) error {
	if err := CheckNew(plan, reg); err != nil {
		return err
	}
	if plan.Submitted == (workflow.Actor{}) {
		actor := storage.ActorOf(ctx)
		if err := workflow.CheckActor(actor); err != nil {
			return fmt.Errorf("%w: the actor of the context: %w", storage.ErrInvalid, err)
		}
		plan.Submitted = actor
	}
	Complete(plan)
	MarkSecrets(plan, reg)
	return nil
}

// Complete fills in what the author of a new plan left out: IDs, PlanIDs, SubmitTime.
func Complete(plan *workflow.Plan) {
	if plan.SubmitTime.IsZero() {
		plan.SubmitTime = time.Now().UTC()
	}
	for o := range workflow.Walk(plan) { // which begins with the plan
		h := o.Header()
		if *h.ID == uuid.Nil {
			*h.ID = workflow.NewV7()
		}
		*h.PlanID = plan.ID
	}
}

// CheckUpdate returns [storage.ErrInvalid] if the object can't replace the stored version, with every wrong
// field: those that [workflow.ValidateOwn] finds, nil IDs, and, if reg is not nil, plugins that it lacks and
// requests that do not fit their plugins.
//
// It then compares the object with the version in State.ETag (see [Version]), and refuses other children, and
// a plan that goes back from its status. It refuses a string that is not such a version, which says nothing
// about children and status. It refuses an empty version unless unversioned is set, and then a plan with External,
// as [CheckNewMember] refuses members.
//
// CheckUpdate reads only IDs below the object, so other goroutines may work on the sub-objects. A plan with a
// final status is the exception: the vault stores all of it, and CheckUpdate checks all of it, except for the
// versions and the order of statuses of its sub-objects.
func CheckUpdate(o workflow.Object, reg *registry.Register, unversioned bool) error {
	validate := workflow.ValidateOwn
	if o.Kind() == workflow.KindPlan && o.Header().State.Status.Final() {
		validate = workflow.Validate
	}
	if err := invalid(validate(o, HasIDs, knownPlugin(reg, false))); err != nil {
		return err
	}
	if plan, ok := o.(*workflow.Plan); ok && plan.External.Name != "" {
		if err := CheckFenced(unversioned); err != nil {
			return err
		}
	}
	return follows(o, unversioned)
}

// CheckFenced returns [storage.ErrInvalid] if a vault accepts updates without versions: its plans can't have owners. A vault has
// a method CheckFenced() error that returns this, for who claims plans and has no member's record that the vault could refuse.
func CheckFenced(unversioned bool) error {
	if !unversioned {
		return nil
	}
	return fmt.Errorf("%w: the vault accepts updates without versions, which nothing can fence: open it without UnversionedUpdates", storage.ErrInvalid)
}

// follows returns an error if the object can't follow the version in its State.ETag.
func follows(o workflow.Object, unversioned bool) error {
	state := o.Header().State
	if state.ETag == "" {
		if unversioned {
			return nil
		}
		return Invalid("State.ETag", "is empty: read the plan first, and use State.Reset to start an object again")
	}
	_, was, children, known := splitVersion(state.ETag)
	if !known {
		return Invalid("State.ETag", "%.100q is not a version of this vault: keep versions as the vault set them, or read the plan again", state.ETag)
	}
	if field := childField[o.Kind()]; field != "" && children != workflow.Fingerprint(o) {
		return Invalid(field, "the children of the %s differ from the version in State.ETag: they can't be added, removed, replaced or moved", o.Kind())
	}
	if o.Kind() == workflow.KindPlan && !Follows(state.Status, was) {
		return Invalid("State.Status", "%s can't follow %s: a plan only moves forward", state.Status, was)
	}
	return nil
}

// Follows reports whether a plan may move to a status from another one: only forward, and not from a final one.
func Follows(status, was workflow.Status) bool {
	return status == was || status > was && !was.Final()
}

// childField is the field of each kind that holds its children, or most of them.
var childField = map[workflow.Kind]string{
	workflow.KindPlan:            "Blocks",
	workflow.KindBlock:           "Sequences",
	workflow.KindChecks:          "Actions",
	workflow.KindSequence:        "Actions",
	workflow.KindDeferBatch:      "Actions",
	workflow.KindDeferredActions: "Batches",
}

// Unencodable returns the error for an object that the encoder refused with err: ErrInvalid that names each
// request and response that can't be encoded. whole means that everything below the object was encoded too.
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

// HasIDs is a [workflow.Rule]: an object has an ID and a PlanID.
func HasIDs(o workflow.Object, bad workflow.Report) {
	h := o.Header()
	if *h.ID == uuid.Nil {
		bad("ID", "is nil")
	}
	if *h.PlanID == uuid.Nil {
		bad("PlanID", "is nil")
	}
}

// notAhead is a rule: no ID of a new plan lies more than MaxAhead in the future.
func notAhead(o workflow.Object, bad workflow.Report) {
	if id := *o.Header().ID; time.Until(workflow.Time(id)) > storage.MaxAhead {
		bad("ID", fmt.Sprintf("%s lies more than a day ahead, at %s", id, workflow.Time(id).Format(time.RFC3339)))
	}
}

// hasDate is a rule: the time in a plan's ID has a date with a year of four digits. Vaults keep plans by day,
// and a UUIDv7 may lie beyond the year 9999.
func hasDate(o workflow.Object, bad workflow.Report) {
	if id := *o.Header().ID; o.Kind() == workflow.KindPlan && workflow.Time(id).Year() > 9999 {
		bad("ID", fmt.Sprintf("%s lies beyond the year 9999", id))
	}
}

// asAuthored is a rule: a new plan has not begun.
func asAuthored(o workflow.Object, bad workflow.Report) {
	notBegun(o, "all statuses of a new plan are NotStarted", bad)
}

// asForked returns a rule: a fork has not begun, but for what is carried over.
func asForked(carried map[workflow.Object]bool) workflow.Rule {
	return func(o workflow.Object, bad workflow.Report) {
		if carried[o] {
			asCarried(o, bad)
		} else {
			notBegun(o, "it is to run again in a fork, so it must be NotStarted", bad)
		}
	}
}

// notBegun reports an object that has begun.
func notBegun(o workflow.Object, rule string, bad workflow.Report) {
	if s := o.Header().State.Status; s != workflow.NotStarted {
		bad("State.Status", "is "+s.String()+": "+rule)
	}
	switch o := o.(type) {
	case *workflow.Action:
		if len(o.Attempts) > 0 {
			bad("Attempts", "is not empty: an action that is to run has no attempts in a new plan")
		}
	case *workflow.Plan:
		if o.Owner != uuid.Nil {
			bad("Owner", "is set: a new plan has no owner")
		}
		if !o.WakeAt.IsZero() {
			bad("WakeAt", "is set: a new plan does not sleep")
		}
		if o.Paused != (workflow.Attribution{}) {
			bad("Paused", "is set: a new plan does not sleep")
		}
		if o.Alone {
			bad("Alone", "is set: no engine has begun a new plan")
		}
		if o.WaitsFor != "" {
			bad("WaitsFor", "is set: a new plan does not sleep")
		}
		if o.LastSignal != 0 {
			bad("LastSignal", "is set: a new plan does not sleep")
		}
		if o.Stopped != (workflow.Attribution{}) {
			bad("Stopped", "is set: nobody has asked a new plan to stop")
		}
		if o.Ending != (workflow.Ending{}) {
			bad("Ending", "is set: a new plan has not ended")
		}
	}
}

// asCarried reports an object that is carried over, but is not as it was when it completed.
func asCarried(o workflow.Object, bad workflow.Report) {
	s := o.Header().State
	switch {
	case s.Status == workflow.Running:
		bad("State.Status", "is Running below a Completed sub-object of a fork")
	case s.Status != workflow.Completed:
		return // such as a failure that its block tolerated
	case s.Start.IsZero(), s.End.IsZero():
		bad("State", "is Completed without a Start and an End")
	}
	switch o := o.(type) {
	case *workflow.Action:
		if len(o.Attempts) == 0 {
			bad("Attempts", "is empty: an action that is carried over has its attempts")
		}
	case *workflow.Sequence:
		if n := unfinished(o.Actions); n > 0 {
			bad("State.Status", fmt.Sprintf("is Completed, but %d of the actions are not", n))
		}
	case *workflow.Block:
		bypassed := o.BypassChecks != nil && o.BypassChecks.State.Status == workflow.Completed
		if n := unfinished(o.Sequences); n > o.ToleratedFailures && o.ToleratedFailures >= 0 && !bypassed {
			bad("State.Status", fmt.Sprintf("is Completed, but %d of the sequences are not, and it tolerates %d", n, o.ToleratedFailures))
		}
	}
}

// unfinished returns how many objects are not Completed.
func unfinished[T any, P interface {
	*T
	workflow.Object
}](list []P) (n int) {
	for _, o := range list {
		if o != nil && o.Header().State.Status != workflow.Completed {
			n++
		}
	}
	return n
}

// knownPlugin is a rule: the registry has an action's plugin, and the request and the responses are what
// [Bind] can turn into the plugin's types: values of those types, pointers to them, or raw JSON. What was stated for a skipped
// action may be other JSON unless the plan is new, as Bind leaves it.
func knownPlugin(reg *registry.Register, isNew bool) workflow.Rule {
	known, plugin := losses{}, types{reg: reg}
	return discreet(reg, func(o workflow.Object, bad workflow.Report) {
		a, ok := o.(*workflow.Action)
		if !ok || reg == nil || a.Plugin == "" {
			return
		}
		if !plugin.is(a.Plugin) {
			bad("Plugin", fmt.Sprintf("the registry lacks plugin %q", a.Plugin))
			return
		}
		if problem := known.mismatch(a.Req, plugin.request); problem != "" {
			bad("Req", problem+" of plugin "+a.Plugin)
		}
		for i := range a.Attempts {
			if _, raw := a.Attempts[i].Resp.(json.RawMessage); raw && a.Attempts[i].Skipped != nil && !isNew {
				continue
			}
			if problem := known.mismatch(a.Attempts[i].Resp, plugin.response); problem != "" {
				bad(fmt.Sprintf("Attempts[%d].Resp", i), problem+" of plugin "+a.Plugin)
			}
		}
	})
}

// types are the types of a plugin. Most actions have the plugin of the action before.
type types struct {
	reg               *registry.Register
	name              string
	request, response any // empty values
}

// is sets the plugin, unless the registry lacks it.
func (t *types) is(name string) bool {
	if name == t.name && name != "" {
		return true
	}
	plugin, known := t.reg.Plugin(name)
	if known {
		t.name, t.request, t.response = name, plugin.Request(), plugin.Response()
	}
	return known
}

// mismatch says why value can't be read back as the type of empty; "" if it can.
func (known losses) mismatch(value, empty any) string {
	if value == nil || empty == nil {
		return ""
	}
	raw, isRaw := value.(json.RawMessage)
	if isRaw && plugins.Blocks(reflect.TypeOf(empty)) {
		return ""
	}
	if !isRaw {
		if problem := values.WrongType(value, empty); problem != "" {
			return problem
		}
		if !known.of(reflect.TypeOf(empty)).possible {
			return ""
		}
		var err error
		switch raw, err = workflow.MarshalValue(value); {
		case blocked(err):
			known[reflect.TypeOf(empty)] = loss{} // the next ones would take as long
			return "can't be encoded: " + err.Error()
		case err != nil:
			return "" // the encoder of the object reports it
		}
	}
	if _, err := values.Typed(raw, empty); err != nil && !(isRaw && panicked(err)) {
		if blocked(err) {
			known[reflect.TypeOf(empty)] = loss{}
		}
		return fmt.Sprintf("can't be read as %T: %v", empty, err)
	}
	return ""
}

// panicked reports whether a value could not be read because its own UnmarshalJSON panicked. Such a value stays raw:
// what is the matter with it is found by the action that needs it, and the others of the plan run.
func panicked(err error) bool {
	_, is := errors.AsType[*plugins.Panic](err)
	return is
}

// blocked reports whether a value could not be read or written because a method of its type did not return.
func blocked(err error) bool {
	p, is := errors.AsType[*plugins.Panic](err)
	return is && p.Blocked()
}

// Bind turns the raw requests and responses of a plan that was read into the types of their plugins. A nil
// registry leaves them raw. It returns [storage.ErrSchema] for a plugin that the registry lacks and for JSON
// that does not fit the plugin's type. A value whose UnmarshalJSON panics or does not return within ten
// seconds stays raw, and so do the others of its type then. So does a response that was stated for a skipped action and does
// not fit: whoever asks for it gets the error.
func Bind(p *workflow.Plan, reg *registry.Register) error {
	if reg == nil {
		return nil
	}
	plugin := types{reg: reg}
	for o := range workflow.Walk(p) {
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		if !plugin.is(a.Plugin) {
			return fmt.Errorf("%w: action %s needs plugin %q, which the registry lacks: register it, or read with a nil registry", storage.ErrSchema, a.ID, a.Plugin)
		}
		if err := bind(&a.Req, plugin.request); err != nil {
			return fmt.Errorf("%w: request of action %s for plugin %q: %w", storage.ErrSchema, a.ID, a.Plugin, plugin.redact(a, err))
		}
		for i := range a.Attempts {
			if err := bind(&a.Attempts[i].Resp, plugin.response); err != nil && a.Attempts[i].Skipped == nil {
				return fmt.Errorf("%w: response %d of action %s of plugin %q: %w", storage.ErrSchema, i, a.ID, a.Plugin, plugin.redact(a, err))
			}
		}
	}
	return nil
}

// bind turns a raw value into the type of empty. A value whose UnmarshalJSON panics stays raw.
func bind(v *any, empty any) error {
	if plugins.Blocks(reflect.TypeOf(empty)) {
		return nil
	}
	value, err := values.Typed(*v, empty)
	switch {
	case err == nil:
		*v = value
	case panicked(err):
		return nil
	}
	return err
}
