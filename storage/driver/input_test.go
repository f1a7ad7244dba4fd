package driver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// TestCheckNewBadPlans checks each plan that its author may not build, and each fork that may not be.
func TestCheckNewBadPlans(t *testing.T) {
	for _, bad := range plantest.BadNewPlans() {
		p := plantest.Full()
		bad.Edit(p)
		wantField(t, bad, driver.CheckNew(p, plantest.Register()))
	}
	for _, bad := range plantest.BadForks() {
		p := plantest.Fork()
		bad.Edit(p)
		wantField(t, bad, driver.CheckNew(p, plantest.Register()))
	}
}

// TestCheckNewForks checks that a fork may have Completed sub-objects, and that an authored plan may not.
func TestCheckNewForks(t *testing.T) {
	p := plantest.Fork()
	p.Blocks[0].ToleratedFailures = 0 // but the block is bypassed
	if err := driver.CheckNew(p, plantest.Register()); err != nil {
		t.Error(err)
	}
	p.ForkedFrom = uuid.Nil
	wantField(t, plantest.BadPlan{Field: "BypassChecks.State.Status", Problem: "all statuses of a new plan are NotStarted"}, driver.CheckNew(p, plantest.Register()))

	authored := plantest.Full()
	authored.ForkedFrom = workflow.NewV7() // what ran before may be deleted, and nothing may have completed
	if err := driver.CheckNew(authored, plantest.Register()); err != nil {
		t.Error(err)
	}
}

// TestCheckUpdateOfARunningPlan updates a plan while others work on an action, which is wrong at the moment.
func TestCheckUpdateOfARunningPlan(t *testing.T) {
	p := plantest.Full()
	driver.Complete(p)
	p.State.Status, p.State.ETag = workflow.Running, driver.Version("stored", p)
	p.Blocks[0].Sequences[0].Actions[0].State.Status = -1
	if err := driver.CheckUpdate(p, plantest.Register(), false); err != nil {
		t.Error(err)
	}
}

// wantField checks that err is ErrInvalid and that the bad field is the first that it names.
func wantField(t *testing.T, bad plantest.BadPlan, err error) {
	t.Helper()
	field, ok := errors.AsType[*workflow.FieldError](err)
	if !errors.Is(err, storage.ErrInvalid) || !ok || field.Field != bad.Field || !strings.Contains(field.Problem, bad.Problem) {
		t.Errorf("got %v, want %s: %s", err, bad.Field, bad.Problem)
	}
}

// of is a plugin whose requests and responses have the type of empty.
type of struct{ empty any }

func (of) Name() string    { return "of" }
func (p of) Request() any  { return p.empty }
func (p of) Response() any { return p.empty }

type (
	failure  struct{ Err error }
	sink     struct{ To io.Writer }
	anything struct{ V any }
	number   struct{ N json.Number }
	linked   struct {
		Next *linked `json:",omitempty"`
		S    string  `json:",omitempty"`
	}
	inside   struct{ A int }
	embeds   struct{ *inside }
	embedded struct{ inside }
	hidden   struct {
		err error
		Err error `json:"-"`
	}
	wellKnown struct {
		At  time.Time
		Raw json.RawMessage
		For time.Duration
	}
	selfWritten struct {
		ID   uuid.UUID
		Addr netip.Addr
		Big  *big.Int
		Keys map[uuid.UUID]int
	}
)

// oneWay writes JSON that it can't read.
type oneWay struct{ S string }

func (oneWay) MarshalJSON() ([]byte, error) { return []byte(`[1]`), nil }

// otherWay reads other JSON than it writes.
type otherWay struct{ S string }

func (*otherWay) UnmarshalJSON(text []byte) error {
	if text[0] != '[' {
		return errors.New("want a list")
	}
	return nil
}

// oneWayKey can be written as a key of a map, but not read as one.
type oneWayKey struct{ S string }

func (k oneWayKey) MarshalText() ([]byte, error) { return []byte(k.S), nil }

func TestRequestsThatCantBeRead(t *testing.T) {
	for what, test := range map[string]struct {
		value any
		bad   bool
	}{
		"an error":                         {failure{errors.New("x")}, true},
		"an error behind a pointer":        {&failure{errors.New("x")}, true},
		"no error":                         {failure{}, false},
		"a writer":                         {sink{io.Discard}, true},
		"an error deep inside":             {map[string][]*failure{"a": {{errors.New("x")}}}, true},
		"a type that is one-way":           {oneWay{"x"}, true},
		"one way in an array":              {[2]oneWay{}, true},
		"one way as a key":                 {map[oneWayKey]int{{"a"}: 1}, true},
		"a map without one-way keys":       {map[oneWayKey]int(nil), false},
		"a type that reads other JSON":     {otherWay{"x"}, true},
		"an embedded pointer":              {embeds{&inside{1}}, true},
		"no embedded pointer":              {embeds{}, false},
		"an embedded struct":               {embedded{inside{1}}, false},
		"anything":                         {anything{map[string]any{"a": []any{1, "b", nil, 1 << 60}}}, false},
		"a number too large for a float64": {anything{json.Number("1e400")}, true},
		"a large number as json.Number":    {number{json.Number("1e400")}, false},
		"a list":                           {linked{Next: &linked{S: "a"}}, false},
		"fields that are not in the JSON":  {hidden{errors.New("x"), errors.New("y")}, false},
		"well-known types":                 {wellKnown{time.Now(), json.RawMessage(`{}`), time.Second}, false},
		"types with a JSON of their own": {selfWritten{
			uuid.New(), netip.IPv6Loopback(), new(big.Int).Lsh(big.NewInt(1), 100), map[uuid.UUID]int{uuid.New(): 1},
		}, false},
	} {
		empty := reflect.Zero(reflect.TypeOf(test.value)).Interface()
		if p := reflect.TypeOf(test.value); p.Kind() == reflect.Pointer {
			empty = reflect.New(p.Elem()).Interface()
		}
		reg := registry.New()
		must(t, reg.Register(of{empty}))
		plan := plantest.Small()
		a := plan.Blocks[0].Sequences[0].Actions[0]
		a.Plugin, a.Req = "of", test.value
		err := driver.CheckNew(plan, reg)
		if bad := errors.Is(err, storage.ErrInvalid); bad != test.bad || bad == (err == nil) {
			t.Errorf("%s: CheckNew returned %v", what, err)
		}

		// Bind agrees.
		driver.Complete(plan)
		text, err := workflow.Marshal(plan)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		read := new(workflow.Plan)
		if err := json.Unmarshal(text, read); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := driver.Bind(read, reg); (err != nil) != test.bad {
			t.Errorf("%s: Bind returned %v", what, err)
		}

		plan.State.ETag = driver.Version("1", plan)
		a.State.ETag = driver.Version("1", a)
		a.Req, a.Attempts = nil, []workflow.Attempt{{}, {Resp: test.value}}
		err = driver.CheckUpdate(a, reg, false)
		var field *workflow.FieldError
		if (err != nil) != test.bad || test.bad && (!errors.As(err, &field) || field.Field != "Attempts[1].Resp") {
			t.Errorf("%s: CheckUpdate returned %v", what, err)
		}
	}
}

// TestPlainRequestsCostNothing checks that a request is encoded for the check only if its type is one-way.
func TestPlainRequestsCostNothing(t *testing.T) {
	var plain linked
	var loose anything
	skipped := map[string]hidden{}
	for i := range 500 {
		skipped[fmt.Sprint(i)] = hidden{}
		plain = linked{Next: &linked{Next: plain.Next, S: fmt.Sprint(i)}}
		loose = anything{map[string]any{fmt.Sprint(i): loose.V}}
	}
	for _, test := range []struct {
		value, empty any
		least, most  float64
	}{
		{plain, linked{}, 0, 100},
		{slices.Repeat([]wellKnown{{At: time.Now()}}, 500), []wellKnown(nil), 0, 100},
		{skipped, map[string]hidden(nil), 0, 100},
		{loose, anything{}, 500, 1e6}, // or the test proves nothing
	} {
		reg := registry.New()
		must(t, reg.Register(of{test.empty}))
		a := plantest.Small().Blocks[0].Sequences[0].Actions[0]
		a.ID, a.PlanID, a.Plugin, a.Req = workflow.NewV7(), workflow.NewV7(), "of", test.value
		a.State.ETag = driver.Version("1", a)
		n := testing.AllocsPerRun(10, func() {
			must(t, driver.CheckUpdate(a, reg, false))
		})
		if n < test.least || n > test.most {
			t.Errorf("the check of a %T made %v allocations, want %v to %v", test.value, n, test.least, test.most)
		}
	}
}

// TestBindNeedsJSON checks that Bind takes no request that is not one value, and names its action.
func TestBindNeedsJSON(t *testing.T) {
	reg := registry.New()
	must(t, reg.Register(of{number{}}))
	for _, bad := range []string{"", "{},{}", "{", "[]", "{}]", "],["} {
		plan := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{}}}}}
		actions := &plan.Blocks[0].Sequences[0].Actions
		for _, raw := range []string{`{"N":1}`, bad, `{"N":3}`} {
			*actions = append(*actions, &workflow.Action{ID: workflow.NewV7(), Plugin: "of", Req: json.RawMessage(raw)})
		}
		err := driver.Bind(plan, reg)
		if !errors.Is(err, storage.ErrSchema) || !strings.Contains(err.Error(), (*actions)[1].ID.String()) {
			t.Errorf("a request of %q: Bind returned %v", bad, err)
		}
	}
}
