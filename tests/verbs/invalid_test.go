package verbs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// ofMicrosoft returns a UUID of version 7 and Microsoft's variant.
func ofMicrosoft() uuid.UUID {
	id := workflow.NewV7()
	id[8] = 0xc0
	return id
}

// wantRefusal checks the error of a call with bad input: it is ErrInvalid of that method and names the field,
// and no request was sent.
func wantRefusal(t *testing.T, what string, server *emulator.Server, op, field string, err error) {
	t.Helper()
	if n := len(server.Requests()); n > 0 {
		t.Errorf("%s: %d requests were sent, such as %s", what, n, server.Requests()[0])
		server.ResetRequests()
	}
	var e *storage.Error
	switch {
	case !errors.Is(err, storage.ErrInvalid):
		t.Errorf("%s: the error is %v", what, err)
	case !errors.As(err, &e) || e.Op != op:
		t.Errorf("%s: the error is not of %s: %v", what, op, err)
	case !strings.Contains(err.Error(), field):
		t.Errorf("%s: the error does not name %s: %v", what, field, err)
	}
}

// wantFieldError is wantRefusal for a field of a plan.
func wantFieldError(t *testing.T, what string, server *emulator.Server, op, field string, err error) {
	t.Helper()
	wantRefusal(t, what, server, op, field+": ", err)
	var e *workflow.FieldError
	if !errors.As(err, &e) || e.Field != field {
		t.Errorf("%s: the first field that the error names is %+v, not %s", what, e, field)
	}
}

func TestCreateRefusesBadPlans(t *testing.T) {
	efforttest.NotShort(t, "it sends nothing")
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	wantRefusal(t, "nil", server, "Create", "Plan", v.Create(t.Context(), nil))
	for i, bad := range slices.Concat(plantest.BadPlans(), plantest.BadNewPlans()) {
		p := plantest.Full()
		bad.Edit(p)
		before := asText(p)
		what := fmt.Sprintf("%d, %s %s", i, bad.Field, bad.Problem)
		wantFieldError(t, what, server, "Create", bad.Field, v.Create(t.Context(), p))
		if asText(p) != before {
			t.Errorf("%s: the refused plan has changed", what)
		}
	}
}

// asText returns everything that a plan holds as JSON, or the error that prevents that.
func asText(p *workflow.Plan) string {
	text, err := json.Marshal(p)
	return fmt.Sprint(string(text), err)
}

// unfit is a plugin whose types can't always be encoded as JSON.
type unfit struct{}

type unfitRequest struct {
	Call  func() `json:",omitempty"`
	Float float64
	Text  string
}

func cycle() any {
	type node struct{ Next *node }
	n := new(node)
	n.Next = n
	return n
}

func cycleOfMaps() any {
	m := map[string]any{}
	m["itself"] = m
	return m
}

// levels returns a list nested n levels deep.
func levels(n int) any {
	var v any = 1
	for range n {
		v = []any{v}
	}
	return v
}

func (unfit) Name() string  { return "unfit" }
func (unfit) Request() any  { return unfitRequest{} }
func (unfit) Response() any { return unfitRequest{} }

var _ plugins.Plugin = unfit{}

func TestWhatCantBeEncodedIsRefused(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	server := emulator.New()
	reg := registry.New()
	if err := reg.Register(unfit{}); err != nil {
		t.Fatal(err)
	}
	open := func(reg *registry.Register) *azblob.Vault {
		v, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), reg, azblob.WithTransport(server.Transport()))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for what, test := range map[string]struct {
		reg *registry.Register
		req any
	}{
		"a channel":                      {nil, make(chan int)},
		"a function":                     {nil, func() {}},
		"a function in it":               {nil, unfitRequest{Call: func() {}}},
		"no number":                      {nil, math.NaN()},
		"no key":                         {nil, map[bool]int{true: 1}},
		"broken raw JSON":                {nil, json.RawMessage(`{`)},
		"a plugin's own function in it":  {reg, unfitRequest{Call: func() {}}},
		"a plugin's own infinite number": {reg, unfitRequest{Float: math.Inf(1)}},
		"a cycle":                        {nil, cycle()},
		"a cycle of maps":                {nil, cycleOfMaps()},
		"text that is not UTF-8":         {nil, map[string]any{"a": []string{"b", "\xff"}}},
		"a key that is not UTF-8":        {nil, map[string]int{"\xff": 1}},
		"raw JSON that is not UTF-8":     {nil, json.RawMessage("\"\xff\"")},
		"a plugin's own text, not UTF-8": {reg, &unfitRequest{Text: "\xff"}},
		"a list of 9,001 levels":         {nil, levels(9_001)},
		"raw JSON of 9,990 levels":       {nil, json.RawMessage(strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990))},
	} {
		v := open(test.reg)
		p := plantest.Full()
		for o := range workflow.Walk(p) {
			if a, ok := o.(*workflow.Action); ok {
				a.Plugin, a.Req = "unfit", nil
			}
		}
		last := p.DeferredActions.Batches[2].Actions[0]
		last.Req = test.req
		err := v.Create(t.Context(), p)
		wantFieldError(t, what, server, "Create", "DeferredActions.Batches[2].Actions[0].Req", err)
		if want := plantest.Full(); p.Name != want.Name || string(p.Meta) != string(want.Meta) || len(p.Blocks) != len(want.Blocks) || last.Req == nil || last.Name != "deferred" {
			t.Errorf("%s: of the plan that was refused is left %s", what, asText(p))
		}

		// The same values in an update.
		last.Req = nil
		if err := v.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		server.ResetRequests()
		last.Attempts = []workflow.Attempt{{Resp: test.req}}
		wantFieldError(t, what, server, "UpdateAction", "Attempts[0].Resp", v.UpdateAction(t.Context(), last))
		if last.State.ETag == "" || len(last.Attempts) != 1 {
			t.Errorf("%s: of the action that was refused is left %+v", what, last.State)
		}
		etag := p.State.ETag
		p.State.Status = workflow.Completed
		wantFieldError(t, what, server, "UpdatePlan", "DeferredActions.Batches[2].Actions[0].Attempts[0].Resp", v.UpdatePlan(t.Context(), p))
		if p.State.ETag != etag {
			t.Errorf("%s: the plan that was refused has another version", what)
		}
	}
}

// TestIDsThatNoPlanCanHave passes IDs that are no UUIDv7. No plan has them, so no request is needed.
func TestIDsThatNoPlanCanHave(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	for what, id := range map[string]uuid.UUID{"nil": uuid.Nil, "random": uuid.New(), "max": uuid.Max, "another variant": ofMicrosoft()} {
		found, err := v.Exists(t.Context(), id)
		if err != nil || found {
			t.Errorf("%s: Exists says %v, %v", what, found, err)
		}
		plan, err := v.Read(t.Context(), id)
		if !errors.Is(err, storage.ErrNotFound) || plan != nil {
			t.Errorf("%s: Read gives %v, %v", what, plan, err)
		}
		if err := v.Delete(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: Delete says %v", what, err)
		}
		results, err := v.Search(t.Context(), storage.Filters{ByIDs: []uuid.UUID{id}})
		if err != nil {
			t.Fatal(err)
		}
		for r := range results {
			t.Errorf("%s: Search yields %+v", what, r)
		}
		if r := server.Requests(); len(r) > 0 {
			t.Fatalf("%s: %v was sent", what, r)
		}
	}
}

// TestPlansOfAClockAhead creates a plan with a clock that is three days ahead. The plan is listed, and can be
// read, updated and deleted.
func TestPlansOfAClockAhead(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	type stored struct {
		container string
		emulator.Blob
	}
	var blobs []stored
	plan := plantest.Full()
	vaulttest.InBubble(t, "created", func(t *testing.T, server *emulator.Server) {
		time.Sleep(72 * time.Hour)
		if err := vaulttest.OnEmulator(t, server).Create(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		for c := range server.Containers() {
			for b := range server.Blobs(c) {
				blobs = append(blobs, stored{c, b})
			}
		}
	})
	vaulttest.InBubble(t, "three days before", func(t *testing.T, server *emulator.Server) {
		for _, b := range blobs {
			server.Put(b.container, b.Name, b.Body, b.Metadata)
		}
		v := vaulttest.OnEmulator(t, server)
		if found, err := v.Exists(t.Context(), plan.ID); err != nil || !found {
			t.Errorf("Exists says %v, %v", found, err)
		}
		read := vaulttest.Reread(t, v, plan)
		read.State.Status = workflow.Running
		if err := v.UpdatePlan(t.Context(), read); err != nil {
			t.Fatal(err)
		}
		read = vaulttest.Reread(t, v, plan) // the emulator gave the blobs new versions
		vaulttest.Moved(read, workflow.Running)
		for o := range workflow.Walk(read) {
			if err := storage.Update(t.Context(), v, o); err != nil {
				t.Error(err)
			}
		}
		vaulttest.Same(t, v, read)
		read.State.Status = workflow.Completed
		if err := v.UpdatePlan(t.Context(), read); err != nil {
			t.Error(err)
		}
		vaulttest.Same(t, v, read)
		if err := v.Delete(t.Context(), plan.ID); err != nil {
			t.Error(err)
		}
	})
}

// planInVault creates a plan, reads it, and clears the log of requests.
func planInVault(t *testing.T, v *azblob.Vault, server *emulator.Server) *workflow.Plan {
	t.Helper()
	p := plantest.Full()
	if err := v.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p, err := v.Read(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	server.ResetRequests()
	return p
}

// firstOf returns the first object of each kind of a plan.
func firstOf(p *workflow.Plan) map[workflow.Kind]workflow.Object {
	first := map[workflow.Kind]workflow.Object{}
	for o := range workflow.Walk(p) {
		if first[o.Kind()] == nil {
			first[o.Kind()] = o
		}
	}
	return first
}

// updateOp returns the name of the method that updates a kind.
func updateOp(k workflow.Kind) string {
	name := k.String()
	return "Update" + strings.ToUpper(name[:1]) + name[1:]
}

func TestCheckRefusesDaysThatCantBe(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	now := time.Now()
	for _, before := range []time.Time{now, now.Add(-time.Hour)} {
		_, err := v.Check(t.Context(), azblob.CheckOptions{After: now, Before: before})
		wantRefusal(t, "Check", server, "Check", "CheckOptions.After", err)
	}
}

func TestClosedVaultsSendNothing(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	p := planInVault(t, v, server)
	before, err := v.List(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	searched, err := v.Search(t.Context(), storage.Filters{ByIDs: []uuid.UUID{p.ID}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := v.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	calls := map[string]func() error{
		"Create":   func() error { return v.Create(t.Context(), plantest.Small()) },
		"Exists":   func() error { _, err := v.Exists(t.Context(), p.ID); return err },
		"Read":     func() error { _, err := v.Read(t.Context(), p.ID); return err },
		"Delete":   func() error { return v.Delete(t.Context(), p.ID) },
		"List":     func() error { _, err := v.List(t.Context(), 0); return err },
		"Search":   func() error { _, err := v.Search(t.Context(), storage.Filters{Limit: 1}); return err },
		"Recovery": func() error { return v.Recovery(t.Context()) },
		"Check":    func() error { _, err := v.Check(t.Context(), azblob.CheckOptions{}); return err },
	}
	for kind, o := range firstOf(p) {
		calls[updateOp(kind)] = func() error { return storage.Update(t.Context(), v, o) }
	}
	for op, call := range calls {
		wantClosed(t, op, op, call())
	}
	_, err = v.Recover(t.Context(), azblob.RecoverOptions{})
	wantClosed(t, "Recover", "Recovery", err)
	for op, seq := range map[string]func(func(storage.Stream[storage.ListResult]) bool){"List": before, "Search": searched} {
		n := 0
		for s := range seq {
			n++
			wantClosed(t, op+" from before", op, s.Err)
		}
		if n != 1 {
			t.Errorf("%s from before yields %d elements", op, n)
		}
	}
	if n := len(server.Requests()); n > 0 {
		t.Errorf("%d requests were sent, such as %s", n, server.Requests()[0])
	}
}

func wantClosed(t *testing.T, what, op string, err error) {
	t.Helper()
	var e *storage.Error
	if !errors.Is(err, storage.ErrClosed) || !errors.As(err, &e) || e.Op != op {
		t.Errorf("%s: %v", what, err)
	}
}
