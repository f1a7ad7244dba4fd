package workflow_test

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

func TestValidateGood(t *testing.T) {
	for name, p := range map[string]*workflow.Plan{
		"empty": {}, "full": plantest.Full(), "stored": stored(),
		"strange": {Name: "\x00 \ufffd", Meta: []byte{0xff}},
		"empty parts": {
			PreChecks: &workflow.Checks{}, Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{}}, ToleratedFailures: -1}},
			DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{}}},
		},
		"edges": {
			SubmitTime: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
			State:      workflow.State{Start: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)},
		},
	} {
		for o := range workflow.Walk(p) {
			if err := workflow.Validate(o); err != nil {
				t.Errorf("%s: a %v: %v", name, o.Kind(), err)
			}
		}
	}
}

// TestValidateFields damages every field of the model in turn. Validate must report exactly that field.
func TestValidateFields(t *testing.T) {
	type damage struct {
		value   any
		problem string
	}
	late := time.Date(9999, 12, 31, 23, 30, 0, 0, time.FixedZone("", -3600)) // in UTC it is the year 10000
	v4 := key(1)
	seventeen := map[string]string{}
	for i := range 17 {
		seventeen[strconv.Itoa(i)] = ""
	}
	damages := map[reflect.Type][]damage{
		reflect.TypeFor[string]():        {{"a\xff", "is not valid UTF-8"}},
		reflect.TypeFor[time.Duration](): {{-time.Second, "-1s is negative"}},
		reflect.TypeFor[time.Time](): {
			{late, "the year 10000 can't be written as RFC 3339"},
			{time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC), "the year 0 can't be written as RFC 3339"},
		},
		reflect.TypeFor[map[string]string](): {
			{map[string]string{"a=b": ""}, `"a=b" is not a key: it must have 1 to 63 visible ASCII characters without = and ,`},
			{map[string]string{"": ""}, `"" is not a key: it must have 1 to 63 visible ASCII characters without = and ,`},
			{map[string]string{strings.Repeat("k", 63): "", "a b": ""}, `"a b" is not a key: it must have 1 to 63 visible ASCII characters without = and ,`},
			{map[string]string{"a": strings.Repeat("v", 128), "b": strings.Repeat("v", 129)}, "the value of b has 129 bytes, at most 128 are allowed"},
			{map[string]string{"a": "b c", "d": "e,f"}, `the value of d, "e,f", must be UTF-8 without commas, control characters and blanks at its ends`},
			{map[string]string{"a": "b "}, `the value of a, "b ", must be UTF-8 without commas, control characters and blanks at its ends`},
			{map[string]string{"a": "\n"}, `the value of a, "\n", must be UTF-8 without commas, control characters and blanks at its ends`},
			{map[string]string{"a": "\xff"}, `the value of a, "\xff", must be UTF-8 without commas, control characters and blanks at its ends`},
			{seventeen, "there are 17 labels, at most 16 are allowed"},
		},
		reflect.TypeFor[workflow.Status]():        {{workflow.Status(5), "there is no status 5"}, {workflow.Status(-1), "there is no status -1"}},
		reflect.TypeFor[workflow.FailureReason](): {{workflow.FailureReason(99), "there is no failure reason 99"}},
		reflect.TypeFor[workflow.When]():          {{workflow.When(3), "there is no outcome 3"}},
	}
	// Only the elements of lists must not be nil.
	for _, p := range []any{
		(*workflow.Block)(nil), (*workflow.Sequence)(nil), (*workflow.Action)(nil), (*workflow.DeferBatch)(nil),
	} {
		damages[reflect.TypeOf(p)] = []damage{{p, "is nil"}}
	}

	p := stored()
	done := map[reflect.Type]int{}
	plantest.EachField(p, func(path string, v reflect.Value) {
		list := damages[v.Type()]
		switch {
		case strings.HasSuffix(path, ".ETag"): // the vault's own
			return
		case strings.HasSuffix(path, ".ID"):
			list = []damage{{v4, v4.String() + " is not a UUIDv7"}, {id(1), id(1).String() + " is the ID of ID already"}}
		case strings.HasSuffix(path, ".PlanID"):
			list = []damage{{id(9999), id(9999).String() + " is another plan's: this one is " + id(1).String()}}
		}
		good := reflect.New(v.Type()).Elem()
		good.Set(v)
		for _, d := range list {
			v.Set(reflect.ValueOf(d.value))
			err := workflow.Validate(p)
			if got, want := problems(t, err), []string{path + ": " + d.problem}; !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			done[v.Type()]++
		}
		v.Set(good)
	})
	for typ := range damages {
		if done[typ] == 0 {
			t.Errorf("the plan has no %v", typ)
		}
	}
	if done[reflect.TypeFor[uuid.UUID]()] == 0 {
		t.Error("the plan has no IDs")
	}
	if err := workflow.Validate(p); err != nil {
		t.Errorf("after all damage was undone: %v", err)
	}
}

// TestValidateBadPlans validates each bad plan twice: as its author builds it, and as a vault returns it.
func TestValidateBadPlans(t *testing.T) {
	for _, bad := range slices.Concat(plantest.BadFields(), plantest.BadTrees()) {
		for _, p := range []*workflow.Plan{plantest.Full(), stored()} {
			bad.Edit(p)
			got := problems(t, workflow.Validate(p))
			if len(got) == 0 || !strings.HasPrefix(got[0], bad.Field+": ") || !strings.Contains(got[0], bad.Problem) {
				t.Errorf("got %q, want %s: %s", got, bad.Field, bad.Problem)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	action := func(p *workflow.Plan) *workflow.Action { return p.Blocks[1].Sequences[0].Actions[1] }
	for _, test := range []struct {
		name   string
		damage func(p *workflow.Plan)
		want   []string
	}{
		{
			"an ID that is neither a UUIDv7 nor the only one",
			func(p *workflow.Plan) { p.PreChecks.ID, action(p).ID = key(1), key(1) },
			[]string{
				"PreChecks.ID: " + key(1).String() + " is not a UUIDv7",
				"Blocks[1].Sequences[0].Actions[1].ID: " + key(1).String() + " is not a UUIDv7",
				"Blocks[1].Sequences[0].Actions[1].ID: " + key(1).String() + " is the ID of PreChecks.ID already",
			},
		},
		{
			"children of a plan that has no ID yet",
			func(p *workflow.Plan) {
				for o := range workflow.Walk(p) {
					*o.Header().PlanID = uuid.Nil
				}
				p.ContChecks.PlanID = id(1)
			},
			[]string{"ContChecks.PlanID: " + id(1).String() + " is another plan's: this one is " + uuid.Nil.String()},
		},
		{
			"an attempt",
			func(p *workflow.Plan) {
				a := &action(p).Attempts[0]
				a.Start, a.End, a.Err.Message = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), "\xc3"
			},
			[]string{
				"Blocks[1].Sequences[0].Actions[1].Attempts[0].Start: the year 10000 can't be written as RFC 3339",
				"Blocks[1].Sequences[0].Actions[1].Attempts[0].End: the year -1 can't be written as RFC 3339",
				"Blocks[1].Sequences[0].Actions[1].Attempts[0].Err.Message: is not valid UTF-8",
			},
		},
		{
			"the errors behind an attempt's error",
			func(p *workflow.Plan) {
				deep := &plugins.Error{}
				for range 100 {
					deep = &plugins.Error{Wrapped: deep}
				}
				action(p).Attempts[0].Err.Wrapped.Message = "\xc3"
				action(p).Attempts[1].Err = deep
				p.Blocks[0].Sequences[0].Actions[0].Attempts[0].Err = &plugins.Error{Wrapped: deep}
				round := &plugins.Error{}
				round.Wrapped = round
				p.Blocks[0].Sequences[0].Actions[1].Attempts[0].Err = round
			},
			[]string{
				"Blocks[0].Sequences[0].Actions[0].Attempts[0].Err.Wrapped: more than 100 errors are wrapped in each other",
				"Blocks[0].Sequences[0].Actions[1].Attempts[0].Err.Wrapped: more than 100 errors are wrapped in each other",
				"Blocks[1].Sequences[0].Actions[1].Attempts[0].Err.Wrapped.Message: is not valid UTF-8",
			},
		},
		{
			"many problems, in the order of the plan",
			func(p *workflow.Plan) {
				p.Name, p.State.Status = "\x80", 77
				p.Blocks[0].PreChecks.Delay = -time.Minute
				p.Blocks[1].ExitDelay = -time.Hour
				p.DeferredActions.Batches[0].When = -1
				p.Reason = -1
			},
			[]string{
				"State.Status: there is no status 77",
				"Name: is not valid UTF-8",
				"Reason: there is no failure reason -1",
				"Blocks[0].PreChecks.Delay: -1m0s is negative",
				"Blocks[1].ExitDelay: -1h0m0s is negative",
				"DeferredActions.Batches[0].When: there is no outcome -1",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := stored()
			test.damage(p)
			err := workflow.Validate(p)
			if got := problems(t, err); !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestValidatePart validates sub-objects by themselves: paths begin there, and everything below must have the
// same PlanID.
func TestValidatePart(t *testing.T) {
	p := stored()
	b := p.Blocks[1]
	b.Sequences[1].Actions[0].Timeout = -1
	b.Sequences[1].PlanID = id(9999)
	b.Sequences[0].ID = b.ID
	b.Descr = "\xff"
	got := problems(t, workflow.Validate(b))
	want := []string{
		"Descr: is not valid UTF-8",
		"Sequences[0].ID: " + b.ID.String() + " is the ID of ID already",
		"Sequences[1].PlanID: " + id(9999).String() + " is another plan's: this one is " + id(1).String(),
		"Sequences[1].Actions[0].Timeout: -1ns is negative",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	for o := range workflow.Walk(stored()) {
		if o.Kind() == workflow.KindPlan {
			continue
		}
		*o.Header().PlanID = key(1)
		want := "PlanID: " + key(1).String() + " is not a UUIDv7"
		if got := problems(t, workflow.Validate(o)); !slices.Contains(got, want) {
			t.Errorf("a %v with an invalid PlanID: got %q, want %q", o.Kind(), got, want)
		}
	}
}

func TestValidateRules(t *testing.T) {
	p := stored()
	p.Blocks[0].Sequences[0].Actions[0] = nil // rules are not applied to nil objects
	var asked []workflow.Object
	noted := func(o workflow.Object, _ workflow.Report) { asked = append(asked, o) }
	strict := func(o workflow.Object, bad workflow.Report) {
		switch o := o.(type) {
		case *workflow.Plan:
			bad("Name", "100% wrong: %d")
		case *workflow.Sequence:
			if o == p.Blocks[1].Sequences[0] {
				bad("Actions[0].Req", "first")
				bad("Key", "second")
			}
		}
	}
	never := func(workflow.Object, workflow.Report) {}

	got := problems(t, workflow.Validate(p, noted, strict, never))
	want := []string{
		"Name: 100% wrong: %d",
		"Blocks[0].Sequences[0].Actions[0]: is nil",
		"Blocks[1].Sequences[0].Actions[0].Req: first",
		"Blocks[1].Sequences[0].Key: second",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var all []workflow.Object
	for o := range workflow.Walk(p) {
		all = append(all, o)
	}
	if !slices.Equal(asked, all) {
		t.Errorf("a rule was applied to %d objects, want the %d of the walk", len(asked), len(all))
	}
	if err := workflow.Validate(stored(), never); err != nil {
		t.Errorf("with a rule that finds nothing: %v", err)
	}
}
