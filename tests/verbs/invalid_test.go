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

func TestCreateNamesAllThatIsWrong(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	p := plantest.Full()
	p.Name = "\xff"
	p.Blocks[0] = nil
	p.PreChecks.Actions[0].Plugin = "nobody's"
	err := v.Create(t.Context(), p)
	for _, field := range []string{"Name: ", "Blocks[0]: ", "PreChecks.Actions[0].Plugin: "} {
		wantRefusal(t, "three faults", server, "Create", field, err)
	}
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

func TestPlansAtTheEdgeAreTaken(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	for what, edit := range map[string]func(p *workflow.Plan){
		"all left out": func(p *workflow.Plan) { *p = workflow.Plan{} },
		"empty lists":  func(p *workflow.Plan) { p.Blocks = []*workflow.Block{}; p.PreChecks.Actions = []*workflow.Action{} },
		"tomorrow":     func(p *workflow.Plan) { p.ID = workflow.NewV7At(time.Now().Add(23 * time.Hour)) },
		"long ago":     func(p *workflow.Plan) { p.ID = workflow.NewV7At(time.UnixMilli(0)) },
		"own IDs": func(p *workflow.Plan) {
			p.ID = workflow.NewV7()
			p.Blocks[0].ID = workflow.NewV7()
			p.Blocks[0].PlanID = p.ID
		},
		"no request":       func(p *workflow.Plan) { p.PreChecks.Actions[0].Req = nil },
		"a pointer":        func(p *workflow.Plan) { p.PreChecks.Actions[0].Req = &plantest.Request{Text: "a"} },
		"raw JSON":         func(p *workflow.Plan) { p.PreChecks.Actions[0].Req = json.RawMessage(`{"Text":"a"}`) },
		"any failures":     func(p *workflow.Plan) { p.Blocks[0].ToleratedFailures = -1 },
		"the last year":    func(p *workflow.Plan) { p.SubmitTime = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC) },
		"nameless":         func(p *workflow.Plan) { p.Name, p.Descr, p.Meta = "", "", []byte{} },
		"an old version":   func(p *workflow.Plan) { p.State.ETag, p.Blocks[0].State.ETag = "0x1@Completed", "0x2@Completed" },
		"any group":        func(p *workflow.Plan) { p.GroupID = uuid.Max },
		"keys that repeat": func(p *workflow.Plan) { p.Blocks[0].Key = p.Blocks[1].Key },
	} {
		p := plantest.Full()
		edit(p)
		if err := v.Create(t.Context(), p); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		got, err := v.Read(t.Context(), p.ID)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if what == "a pointer" {
			p.PreChecks.Actions[0].Req = plantest.Request{Text: "a"} // what is read is of the plugin's own type
		}
		if d := plantest.Diff(p, got); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	vaulttest.Sound(t, v)
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

func TestUpdatesRefuseNil(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	for _, o := range []workflow.Object{
		(*workflow.Plan)(nil), (*workflow.Checks)(nil), (*workflow.Block)(nil), (*workflow.Sequence)(nil), (*workflow.Action)(nil),
		(*workflow.DeferredActions)(nil), (*workflow.DeferBatch)(nil),
	} {
		op := updateOp(o.Kind())
		wantRefusal(t, op, server, op, "is nil", storage.Update(t.Context(), v, o))
	}
}

func TestUpdatesRefuseBadHeaders(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	for _, test := range []struct {
		what, field string
		edit        func(h workflow.Header)
	}{
		{"no ID", "ID", func(h workflow.Header) { *h.ID = uuid.Nil }},
		{"random ID", "ID", func(h workflow.Header) { *h.ID = uuid.New() }},
		{"ID of another variant", "ID", func(h workflow.Header) { *h.ID = ofMicrosoft() }},
		{"no plan", "PlanID", func(h workflow.Header) { *h.PlanID = uuid.Nil }},
		{"plan of a random ID", "PlanID", func(h workflow.Header) { *h.PlanID = uuid.New() }},
		{"no status", "State.Status", func(h workflow.Header) { h.State.Status = 99 }},
		{"no year", "State.Start", func(h workflow.Header) { h.State.Start = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
	} {
		p := planInVault(t, v, server)
		for kind, o := range firstOf(p) {
			if kind == workflow.KindPlan && test.field == "PlanID" {
				continue // its ID
			}
			childless(o)
			h := o.Header()
			id, plan, state := *h.ID, *h.PlanID, *h.State
			test.edit(h)
			was := *h.State
			err := storage.Update(t.Context(), v, o)
			wantFieldError(t, test.what+" of "+kind.String(), server, updateOp(kind), test.field, err)
			if *h.State != was {
				t.Errorf("%s of %s: the state became %+v", test.what, kind, *h.State)
			}
			*h.ID, *h.PlanID, *h.State = id, plan, state
		}
	}
}

// childless removes an object's children, so that only its own fields can be wrong.
func childless(o workflow.Object) {
	for _, c := range workflow.ChecksOf(o) {
		*c = nil
	}
	switch o := o.(type) {
	case *workflow.Plan:
		o.Blocks, o.DeferredActions = nil, nil
	case *workflow.Checks:
		o.Actions = nil
	case *workflow.Block:
		o.Sequences = nil
	case *workflow.Sequence:
		o.Actions = nil
	case *workflow.DeferredActions:
		o.Batches = nil
	case *workflow.DeferBatch:
		o.Actions = nil
	}
}

func TestUpdatePlanRefusesBadPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	for i, bad := range plantest.BadPlans() {
		p := planInVault(t, v, server)
		p.State.Status = workflow.Completed // a final update checks all sub-objects; others check their IDs only
		bad.Edit(p)
		before := asText(p)
		what := fmt.Sprintf("%d, %s %s", i, bad.Field, bad.Problem)
		wantFieldError(t, what, server, "UpdatePlan", bad.Field, v.UpdatePlan(t.Context(), p))
		if asText(p) != before {
			t.Errorf("%s: the refused plan has changed", what)
		}
	}
	for field, edit := range map[string]func(p *workflow.Plan){
		"Blocks[0].ID": func(p *workflow.Plan) { p.Blocks[0].ID = uuid.Nil },
		"DeferredActions.Batches[0].Actions[0].PlanID": func(p *workflow.Plan) { p.DeferredActions.Batches[0].Actions[0].PlanID = uuid.Nil },
	} {
		p := planInVault(t, v, server)
		p.State.Status = workflow.Completed
		edit(p)
		wantFieldError(t, field+" is nil", server, "UpdatePlan", field, v.UpdatePlan(t.Context(), p))
	}
}

func TestUpdatesOfPartsRefuseBadFields(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	p := planInVault(t, v, server)
	first := firstOf(p)
	checks, block, sequence := first[workflow.KindChecks].(*workflow.Checks), first[workflow.KindBlock].(*workflow.Block), first[workflow.KindSequence].(*workflow.Sequence)
	action := first[workflow.KindAction].(*workflow.Action)
	deferred, batch := first[workflow.KindDeferredActions].(*workflow.DeferredActions), first[workflow.KindDeferBatch].(*workflow.DeferBatch)
	other := workflow.NewV7()
	for _, test := range []struct {
		o     workflow.Object
		field string
		edit  func()
	}{
		{checks, "Actions[0]", func() { checks.Actions = []*workflow.Action{nil} }},
		{checks, "Actions[0].PlanID", func() {
			checks.Actions = []*workflow.Action{{ID: workflow.NewV7(), PlanID: other, Plugin: plantest.PluginName}}
		}},
		{checks, "Actions[0].ID", func() { checks.Actions = []*workflow.Action{{PlanID: p.ID, Plugin: plantest.PluginName}} }},
		{checks, "Delay", func() { checks.Delay = -1 }},
		{block, "Sequences[0]", func() { block.Sequences = []*workflow.Sequence{nil} }},
		{block, "Sequences[0].ID", func() { block.Sequences = []*workflow.Sequence{{ID: block.ID, PlanID: p.ID}} }},
		{block, "PreChecks.PlanID", func() { block.PreChecks = &workflow.Checks{ID: workflow.NewV7(), PlanID: other} }},
		{block, "Name", func() { block.Name = "\xff" }},
		{block, "Concurrency", func() { block.Concurrency = -1 }},
		{sequence, "Actions[0]", func() { sequence.Actions = []*workflow.Action{nil} }},
		{sequence, "Descr", func() { sequence.Descr = "\xff" }},
		{action, "Plugin", func() { action.Plugin = "nobody's" }},
		{action, "Plugin", func() { action.Plugin = "" }},
		{action, "Req", func() { action.Req = 7 }},
		{action, "Attempts[1].Resp", func() { action.Attempts = []workflow.Attempt{{}, {Resp: plantest.Request{}}} }},
		{action, "Attempts[0].Resp", func() { action.Attempts = []workflow.Attempt{{Resp: json.RawMessage(`{"OK":"yes"}`)}} }},
		{action, "Attempts[0].Err.Message", func() { action.Attempts = []workflow.Attempt{{Err: &plugins.Error{Message: "\xff"}}} }},
		{action, "Attempts[0].End", func() { action.Attempts = []workflow.Attempt{{End: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}} }},
		{deferred, "Batches[0]", func() { deferred.Batches = []*workflow.DeferBatch{nil} }},
		{batch, "Actions[0]", func() { batch.Actions = []*workflow.Action{nil} }},
		{batch, "When", func() { batch.When = 3 }},
	} {
		for _, o := range first {
			if o.Kind() != workflow.KindPlan {
				childless(o)
			}
		}
		kept := []any{*checks, *block, *sequence, *action, *deferred, *batch}
		test.edit()
		op := updateOp(test.o.Kind())
		wantFieldError(t, op+" "+test.field, server, op, test.field, storage.Update(t.Context(), v, test.o))
		*checks, *block, *sequence = kept[0].(workflow.Checks), kept[1].(workflow.Block), kept[2].(workflow.Sequence)
		*action, *deferred, *batch = kept[3].(workflow.Action), kept[4].(workflow.DeferredActions), kept[5].(workflow.DeferBatch)
	}
}

// TestStatesOnlyMoveForward tries every change of status of every kind of object. Plans only move forward;
// sub-objects may move anywhere.
func TestStatesOnlyMoveForward(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	forward := map[workflow.Status][]workflow.Status{
		workflow.NotStarted: {workflow.NotStarted, workflow.Running, workflow.Completed, workflow.Failed, workflow.Stopped},
		workflow.Running:    {workflow.Running, workflow.Completed, workflow.Failed, workflow.Stopped},
		workflow.Completed:  {workflow.Completed},
		workflow.Failed:     {workflow.Failed},
		workflow.Stopped:    {workflow.Stopped},
	}
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	for was, allowed := range forward {
		for to := workflow.NotStarted; to.Valid(); to++ {
			for kind, o := range firstOf(planInVault(t, v, server)) {
				what := fmt.Sprintf("%s, %s to %s", kind, was, to)
				s := o.Header().State
				s.Status = was
				if err := storage.Update(t.Context(), v, o); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				server.ResetRequests()
				etag := s.ETag
				s.Status = to
				err := storage.Update(t.Context(), v, o)
				if kind != workflow.KindPlan || slices.Contains(allowed, to) {
					if err != nil || s.ETag == etag && to != was {
						t.Errorf("%s: %v", what, err)
					}
					continue
				}
				wantRefusal(t, what, server, updateOp(kind), "State.Status: "+to.String()+" can't follow "+was.String(), err)
				if s.ETag != etag || s.Status != to {
					t.Errorf("%s: the state became %+v", what, *s)
				}
			}
		}
	}
}

// TestMovesAreSeenAfterAReadToo checks that the version from a Read contains the status, as the version from
// an update does.
func TestMovesAreSeenAfterAReadToo(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	p := planInVault(t, v, server)
	p.State.Status = workflow.Running
	if err := v.UpdatePlan(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p, err := v.Read(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	server.ResetRequests()
	p.State.Status = workflow.NotStarted
	wantRefusal(t, "a plan", server, "UpdatePlan", "State.Status", v.UpdatePlan(t.Context(), p))
}

// TestPartsOfAnyStatusEndWithTheirPlan checks that a final UpdatePlan stores the sub-objects as given,
// whatever was stored before.
func TestPartsOfAnyStatusEndWithTheirPlan(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "sub-objects that were reset", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, p := vaulttest.Running(t, v, plantest.Full())
		vaulttest.Moved(p, workflow.Completed)
		p.State.Status = workflow.Running
		for o := range workflow.Walk(p) {
			if err := storage.Update(t.Context(), v, o); err != nil {
				t.Fatal(err)
			}
		}
		for o, parent := range workflow.Walk(p) {
			if parent != nil {
				o.Header().State.Reset()
			}
		}
		p.Blocks[0].State = workflow.State{} // its version is lost
		p.State.Status = workflow.Failed
		if err := v.UpdatePlan(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		vaulttest.Same(t, v, p)
	})
}

func TestListingsRefuseBadArguments(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	now := time.Now()
	for _, test := range []struct {
		what, field string
		f           storage.Filters
	}{
		{"empty", "Filters", storage.Filters{}},
		{"empty lists", "Filters", storage.Filters{ByIDs: []uuid.UUID{}, ByGroupIDs: []uuid.UUID{}, ByStatus: []workflow.Status{}}},
		{"nil group", "Filters.ByGroupIDs[1]", storage.Filters{ByGroupIDs: []uuid.UUID{uuid.New(), uuid.Nil}}},
		{"no status", "Filters.ByStatus[1]", storage.Filters{ByStatus: []workflow.Status{workflow.Running, 99}}},
		{"negative status", "Filters.ByStatus[0]", storage.Filters{ByStatus: []workflow.Status{-1}}},
		{"random BeforeID", "Filters.BeforeID", storage.Filters{BeforeID: uuid.New()}},
		{"After behind Before", "Filters.After", storage.Filters{After: now, Before: now.Add(-time.Second)}},
		{"After at Before", "Filters.After", storage.Filters{After: now, Before: now}},
		{"negative limit", "Filters.Limit", storage.Filters{ByStatus: []workflow.Status{workflow.Running, workflow.Failed}, Limit: -1}},
		{"negative limit alone", "Filters.Limit", storage.Filters{Limit: -1}},
		{"limit below all", "Filters.Limit", storage.Filters{ByStatus: []workflow.Status{workflow.Running}, Limit: math.MinInt}},
	} {
		seq, err := v.Search(t.Context(), test.f)
		wantRefusal(t, test.what, server, "Search", test.field+": ", err)
		if seq != nil {
			t.Errorf("%s: Search gives a sequence beside its error", test.what)
		}
	}
}

// TestNegativeLimitIsNamedBesideOneFilter checks that a negative Limit beside one filter is not taken for
// empty filters.
func TestNegativeLimitIsNamedBesideOneFilter(t *testing.T) {
	server := emulator.New()
	v := vaulttest.OnEmulator(t, server)
	_, err := v.Search(t.Context(), storage.Filters{ByIDs: []uuid.UUID{workflow.NewV7()}, Limit: -1})
	wantRefusal(t, "one ID", server, "Search", "Filters.Limit: ", err)
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
