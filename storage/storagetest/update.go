package storagetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

var statuses = []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed, workflow.Failed, workflow.Stopped}

func updatePromises() []promise {
	var perKind []promise
	for _, o := range eachKind(allKinds()) {
		perKind = append(perKind, ownFields(o.Kind()))
	}
	return slices.Concat(perKind, []promise{
		{"each update gives the object a new version, and Read returns it", updateNewVersion},
		{"an old version is ErrConflict and changes nothing", updateStale},
		{"an empty string, or one that is not a version, is ErrInvalid and changes nothing", updateNotAVersion},
		{"if two nodes update one version, one wins", updateRace},
		{"an unversioned update overwrites whatever is stored, in a vault that allows it", updateUnversioned},
		{"other children than those of the version are ErrInvalid and change nothing", updateOtherChildren},
		{"a request that can't be read again is ErrInvalid and changes nothing", updateUnreadable},
		{"requests and responses at the limits come back", updateAtTheLimits},
		{"Create and updates note where the secrets of an action are", updateSecrets},
		{"an update of a deleted plan is ErrNotFound and restores nothing", updateDeleted},
		{"sub-objects move to any status, forward and back", updateAnyStatus},
		{"a plan keeps its owner and epoch, and a former owner's versions are refused after a fence", updateOwner},
		{"plans only move forward, and a final status stays", updateForwardOnly},
		{"a final status stores the whole plan as it is given", updateFinal},
		{"times come back to the nanosecond, whatever their zone", updateTimes},
		{"bad input is ErrInvalid with the field, and nothing is stored", updateInvalid},
		{"a death leaves a whole plan, with or without the update, and Recovery keeps it", recovered(updateOfAction, completion)},
		{"after a death another update to a final status finishes it", updateAgain},
	})
}

// updateSecrets has secrets in fields of type any: only the values that are given have their tags.
func updateSecrets(s *stage) {
	type login struct {
		Password string `vault:"secret"`
	}
	plan := plantest.Small()
	a := plan.Blocks[0].Sequences[0].Actions[0]
	setRequest(a, plantest.Loose{Any: login{"x"}})
	s.started(plan)
	a.State.Status, a.Attempts = workflow.Running, []workflow.Attempt{{Start: moment, Resp: &plantest.Loose{Any: []any{login{"y"}}}}}
	for _, want := range [][]string{{"/req/Any/Password"}, {"/req/Any/Password", "/resp/Any/*/Password"}} {
		if got := s.read(s.vault, plan.ID).Blocks[0].Sequences[0].Actions[0].Secrets; !slices.Equal(got, want) {
			s.Errorf("the secrets are at %q, want %q", got, want)
		}
		s.update(a)
	}
}

// updateOwner claims a plan, and takes it on another node while the first owner goes on.
func updateOwner(s *stage) {
	plan := s.create(allKinds())
	shows := func() {
		s.Helper()
		for _, v := range []storage.Vault{s.vault, s.open()} {
			s.shows(v, plan)
			found := s.search(v, storage.Filters{ByStatus: []workflow.Status{plan.State.Status}})
			if len(found) != 1 {
				s.Fatalf("%d plans are %s", len(found), plan.State.Status)
			}
			s.agrees("Search by status", plan, found[0])
		}
	}
	shows()
	plan.Owner, plan.Epoch = node, 1
	s.runs(plan)
	shows()
	s.updateEachKind(plan)
	shows()

	former, v := plan, s.open()
	plan = s.read(v, plan.ID)
	plan.Owner, plan.Epoch = workflow.NewV7(), 2
	s.must(v.UpdatePlan(s.ctx, plan))
	for _, o := range workflow.Parts(plan) {
		s.must(storage.Update(s.ctx, v, o))
	}
	for o := range workflow.Walk(former) {
		o.Header().State.Status = workflow.Completed
		s.refuses(storage.ErrConflict, s.vault, o)
	}
	shows()
	plan.Epoch = 1 << 62
	s.must(v.UpdatePlan(s.ctx, plan))
	shows()
	s.must(finishParts(s.ctx, v, plan))
	s.must(complete(s.ctx, v, plan))
	shows()
}

func updateNewVersion(s *stage) {
	plan, other := s.started(allKinds()), s.open()
	for _, o := range eachKind(plan) {
		seen := map[string]bool{o.Header().State.ETag: true}
		for range 3 { // with unchanged content
			s.update(o)
			v := o.Header().State.ETag
			if v == "" || seen[v] {
				s.Errorf("%s got version %q, which it had before", o.Kind(), v)
			}
			seen[v] = true
		}
		if v := objectOf(s.read(other, plan.ID), *o.Header().ID).Header().State.ETag; v != o.Header().State.ETag {
			s.Errorf("Read returns %s with the version %q, but its update set %q", o.Kind(), v, o.Header().State.ETag)
		}
	}
}

func updateStale(s *stage) {
	plan := s.started(allKinds())
	stale := s.read(s.vault, plan.ID)
	s.updateEachKind(plan)
	for _, o := range eachKind(stale) {
		state := o.Header().State
		state.Status = workflow.Failed
		for _, version := range []string{state.ETag, state.ETag, driver.Version("made up", o)} { // a conflict must not reveal the stored version
			state.ETag = version
			s.refuses(storage.ErrConflict, s.vault, o)
		}
	}
	s.shows(s.vault, plan)
}

func updateNotAVersion(s *stage) {
	plan := s.started(allKinds())
	before := plantest.Clone(plan)
	for _, o := range eachKind(plan) {
		state := o.Header().State
		whole := state.ETag
		for _, state.ETag = range []string{"", "made up", `""`, "@", "@" + state.Status.String()} {
			s.names("State.ETag", methodOf(o), plan.ID, storage.Update(s.ctx, s.vault, o))
		}
		for end := range whole { // a part of a version is not a version
			state.ETag = whole[:end]
			s.refuses(storage.ErrInvalid, s.vault, o)
		}
		state.ETag = whole
	}
	s.shows(s.vault, before)
	if s.Unversioned == nil {
		return
	}
	v := s.closing(s.Unversioned(s.T))
	plan.Blocks = append(plan.Blocks, plantest.Small().Blocks...)
	driver.Complete(plan)
	plan.State.ETag, _, _ = strings.Cut(plan.State.ETag, "@")
	s.names("State.ETag", "UpdatePlan", plan.ID, v.UpdatePlan(s.ctx, plan))
	s.shows(s.vault, before)
}

func updateRace(s *stage) {
	plan := s.started(allKinds())
	nodes := []storage.Vault{s.vault, s.open()}
	for range 5 {
		for _, o := range eachKind(plan) {
			tries := make([]*workflow.Plan, 4)
			plan = tries[s.oneWins(len(tries), func(i int) error {
				tries[i] = plantest.Clone(plan)
				mine := objectOf(tries[i], *o.Header().ID)
				mine.Header().State.Start = moment.Add(time.Duration(i) * time.Hour)
				return storage.Update(s.ctx, nodes[i%2], mine)
			}, func(err error) { s.want(storage.ErrConflict, methodOf(o), plan.ID, err) })]
			s.shows(s.vault, plan)
		}
	}
}

func updateUnversioned(s *stage) {
	s.needs(s.Unversioned != nil, "vault that accepts updates without a version")
	v := s.closing(s.Unversioned(s.T))
	plan := s.started(allKinds())
	blind := plantest.Clone(plan)
	s.updateEachKind(plan)
	for _, o := range eachKind(blind) {
		o.Header().State.ETag, o.Header().State.End = "", moment
		s.must(storage.Update(s.ctx, v, o))
		if o.Header().State.ETag == "" {
			s.Errorf("the update of %s set no version", o.Kind())
		}
	}
	s.shows(s.vault, blind)
	// A version that is set is still checked, and the versions of unversioned updates are valid.
	s.want(storage.ErrConflict, "UpdateAction", plan.ID, v.UpdateAction(s.ctx, plan.PreChecks.Actions[0]))
	s.updateEachKind(blind)
	blind.State.ETag = ""
	s.must(complete(s.ctx, v, blind))
	s.shows(s.vault, blind)
	s.must(s.vault.UpdatePlan(s.ctx, blind))
	// What is stored decides what the plan may become.
	for _, status := range statuses {
		again := plantest.Clone(blind)
		again.State.ETag, again.State.Status = "", status
		if status != blind.State.Status {
			s.want(storage.ErrConflict, "UpdatePlan", plan.ID, v.UpdatePlan(s.ctx, again))
			s.shows(s.open(), blind)
		}
	}
	blind.State.ETag = ""
	s.must(v.UpdatePlan(s.ctx, blind))
	s.shows(s.vault, blind)
	open := s.started(allKinds())
	back := plantest.Clone(open)
	back.State = workflow.State{}
	s.want(storage.ErrConflict, "UpdatePlan", open.ID, v.UpdatePlan(s.ctx, back))
	s.shows(s.vault, open)
	// An engine of another kind can't own a plan there.
	placed := plantest.Clone(open)
	placed.External.Name = "queue"
	s.want(storage.ErrInvalid, "UpdatePlan", open.ID, v.UpdatePlan(s.ctx, placed))
	s.shows(s.vault, open)
}

func updateOtherChildren(s *stage) {
	plan := s.started(plantest.Full())
	for _, c := range treeEdits() {
		for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
			edited := plantest.Clone(plan)
			c.edit(edited)
			driver.Complete(edited) // set the IDs of the new objects
			edited.State.Status = status
			s.names("Blocks", "UpdatePlan", plan.ID, s.vault.UpdatePlan(s.ctx, edited))
		}
		if c.of != nil {
			edited := plantest.Clone(plan)
			c.edit(edited)
			driver.Complete(edited)
			o := c.of(edited)
			s.names(c.field, methodOf(o), plan.ID, storage.Update(s.ctx, s.vault, o))
		}
	}
	s.shows(s.vault, plan)
	for _, o := range workflow.Parts(plan) {
		s.update(o)
	}
	s.must(complete(s.ctx, s.vault, plan))
	s.shows(s.vault, plan)
}

func updateUnreadable(s *stage) {
	plan := s.started(plantest.Full())
	before := plantest.Clone(plan)
	for what, req := range unreadable() {
		fresh := plantest.Full()
		setRequest(fresh.Blocks[1].Sequences[0].Actions[1], req)
		if err := s.vault.Create(s.ctx, fresh); !errors.Is(err, storage.ErrInvalid) {
			s.Errorf("Create of a plan with %s in a request: %v", what, err)
		} else {
			s.names("Blocks[1].Sequences[0].Actions[1].Req", "Create", fresh.ID, err)
		}
		edited := plantest.Clone(plan)
		a := edited.Blocks[1].Sequences[0].Actions[1]
		setRequest(a, req)
		s.names("Req", "UpdateAction", plan.ID, s.vault.UpdateAction(s.ctx, a))
		edited.State.Status = workflow.Completed
		s.names("Blocks[1].Sequences[0].Actions[1].Req", "UpdatePlan", plan.ID, s.vault.UpdatePlan(s.ctx, edited))

		a.Req, a.Attempts = nil, []workflow.Attempt{{}, {Resp: req}}
		if r, ok := req.(plantest.Request); ok {
			a.Attempts[1].Resp = &plantest.Response{Text: r.Text + "\xff"}
		}
		s.names("Attempts[1].Resp", "UpdateAction", plan.ID, s.vault.UpdateAction(s.ctx, a))
		s.names("Blocks[1].Sequences[0].Actions[1].Attempts[1].Resp", "UpdatePlan", plan.ID, s.vault.UpdatePlan(s.ctx, edited))
	}
	s.shows(s.open(), before)
	if n := len(s.list(s.vault)); n != 1 {
		s.Errorf("there are %d plans", n)
	}
}

func updateAtTheLimits(s *stage) {
	plan := plantest.Full()
	a := plan.Blocks[1].Sequences[0].Actions[1]
	a.Req = nested(workflow.MaxDepth)
	plan.PreChecks.Actions[0].Req = plantest.Request{Text: "\ufffd \\ufffd", Options: map[string]string{"\ufffd": ""}}
	plan.PostChecks.Actions[0].Req = json.RawMessage(`{"Text": "\ufffd \ud83d\uDE80 \\ud83d \\\ud83d\ude80"}`)
	loose := plan.ContChecks.Actions[0]
	setRequest(loose, plantest.Loose{Any: map[string]any{"a": []any{1, nil, "\\ud83d"}}, Nested: []plantest.Written{"FIRST"}})
	s.started(plan)
	a.Attempts = []workflow.Attempt{{Resp: nested(workflow.MaxDepth)}}
	s.must(s.vault.UpdateAction(s.ctx, a))
	loose.Attempts = []workflow.Attempt{{Resp: &plantest.Loose{Any: "a"}}}
	s.must(s.vault.UpdateAction(s.ctx, loose))
	s.must(complete(s.ctx, s.vault, plan))
	got := s.read(s.open(), plan.ID)
	if r := got.PreChecks.Actions[0].Req.(plantest.Request); r.Text != "\ufffd \\ufffd" || len(r.Options) != 1 {
		s.Errorf("a request came back as %+v", r)
	}
	if r := got.PostChecks.Actions[0].Req.(plantest.Request); r.Text != "\ufffd 🚀 \\ud83d \\🚀" {
		s.Errorf("a request came back as %+v", r)
	}
	// encoding/json reads a number without a type as a float64.
	want := plantest.Loose{Any: map[string]any{"a": []any{1.0, nil, "\\ud83d"}}, Nested: []plantest.Written{"FIRST"}}
	if r := got.ContChecks.Actions[0].Req.(plantest.Loose); !reflect.DeepEqual(r, want) {
		s.Errorf("a request came back as %+v", r)
	}
	if r := got.ContChecks.Actions[0].Attempts[0].Resp.(*plantest.Loose); r.Err != nil || r.Any != "a" {
		s.Errorf("a response came back as %+v", r)
	}
}

func updateDeleted(s *stage) {
	plan := s.started(allKinds())
	s.must(s.vault.Delete(s.ctx, plan.ID))
	for _, v := range []storage.Vault{s.vault, s.open()} {
		for _, o := range eachKind(plan) {
			s.refuses(storage.ErrNotFound, v, o)
		}
		final := plantest.Clone(plan)
		final.State.Status = workflow.Completed
		s.want(storage.ErrNotFound, "UpdatePlan", plan.ID, v.UpdatePlan(s.ctx, final))
		s.lacks(v, plan.ID)
	}
}

func updateAnyStatus(s *stage) {
	plan := s.started(allKinds())
	for _, o := range workflow.Parts(plan) {
		for _, was := range statuses {
			for _, next := range statuses {
				s.moves(o, was)
				s.moves(o, next)
			}
		}
	}
	s.shows(s.vault, plan)
}

func updateForwardOnly(s *stage) {
	for _, was := range statuses {
		plan := s.create(allKinds())
		if plan.State.Status = was; was != workflow.NotStarted {
			s.update(plan)
		}
		for _, next := range statuses {
			if next < was || next != was && was.Final() {
				back := plantest.Clone(plan)
				back.State.Status = next
				s.refuses(storage.ErrInvalid, s.vault, back)
			}
		}
		s.shows(s.open(), plan)
	}
}

func updateFinal(s *stage) {
	for _, final := range []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped} {
		plan := s.started(plantest.Full())
		plan.PreChecks.State.Status = workflow.Running
		s.must(s.vault.UpdateChecks(s.ctx, plan.PreChecks))
		etag := plan.State.ETag
		plantest.Finish(plan) // without an update of any sub-object
		plan.State = workflow.State{Status: final, Start: moment, End: moment.Add(1), ETag: etag}
		s.must(s.vault.UpdatePlan(s.ctx, plan))
		s.shows(s.vault, plan)
		s.shows(s.open(), plan)
	}
}

func updateTimes(s *stage) {
	plan := s.started(allKinds())
	for _, at := range []time.Time{
		moment, moment.In(time.FixedZone("west", -12*3600)), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Unix(0, 0),
	} {
		for _, o := range eachKind(plan) {
			o.Header().State.Start, o.Header().State.End = at, at.UTC()
			s.update(o)
		}
		got := s.find(s.vault, plan.ID)
		for _, o := range eachKind(plan) {
			if state := objectOf(got, *o.Header().ID).Header().State; !state.Start.Equal(at) || !state.End.Equal(at) {
				s.Errorf("%s has the times %v and %v, want %v", o.Kind(), state.Start, state.End, at)
			}
		}
	}
}

func updateInvalid(s *stage) {
	plan := s.started(plantest.Full())
	before := plantest.Clone(plan)
	for _, bad := range append(plantest.BadFields(), plantest.BadRequests()...) {
		edited := plantest.Clone(plan)
		bad.Edit(edited)
		o, field := holder(edited, bad.Field)
		s.names(field, methodOf(o), plan.ID, storage.Update(s.ctx, s.vault, o))
		if edited.State.Status == workflow.Running { // the same in a plan that becomes final
			edited.State.Status = workflow.Completed
			s.names(bad.Field, "UpdatePlan", plan.ID, s.vault.UpdatePlan(s.ctx, edited))
		}
	}
	for _, o := range eachKind(plan) {
		for _, spoil := range []func(h workflow.Header){
			func(h workflow.Header) { *h.ID = uuid.Nil },
			func(h workflow.Header) { *h.PlanID = uuid.Nil },
			func(h workflow.Header) { *h.ID = uuid.New() },
			func(h workflow.Header) { h.State.Status = -1 },
		} {
			c := objectOf(plantest.Clone(plan), *o.Header().ID)
			spoil(c.Header())
			s.want(storage.ErrInvalid, methodOf(c), uuid.Nil, storage.Update(s.ctx, s.vault, c))
		}
	}
	a := plantest.Clone(plan.PreChecks.Actions[0])
	a.Attempts = []workflow.Attempt{{Resp: "of another type"}}
	s.want(storage.ErrInvalid, "UpdateAction", plan.ID, s.vault.UpdateAction(s.ctx, a))
	for _, none := range []workflow.Object{
		(*workflow.Plan)(nil), (*workflow.Checks)(nil), (*workflow.Block)(nil), (*workflow.Sequence)(nil),
		(*workflow.Action)(nil), (*workflow.DeferredActions)(nil), (*workflow.DeferBatch)(nil),
	} {
		s.want(storage.ErrInvalid, methodOf(none), uuid.Nil, storage.Update(s.ctx, s.vault, none))
	}
	s.shows(s.vault, before)
}

func updateAgain(s *stage) {
	for l := range s.dies(completion) {
		again := s.read(s.vault, l.plan.ID)
		s.must(complete(s.ctx, s.vault, again))
		s.shows(s.vault, again)
	}
}

// treeEdit changes the tree of plantest.Full. If of is set, the update of that sub-object must refuse the
// change too, naming the field.
type treeEdit struct {
	edit  func(p *workflow.Plan)
	of    func(p *workflow.Plan) workflow.Object
	field string
}

func treeEdits() []treeEdit {
	block := func(p *workflow.Plan) workflow.Object { return p.Blocks[0] }
	sequence := func(p *workflow.Plan) workflow.Object { return p.Blocks[0].Sequences[0] }
	checks := func(p *workflow.Plan) workflow.Object { return p.PreChecks }
	deferred := func(p *workflow.Plan) workflow.Object { return p.DeferredActions }
	batch := func(p *workflow.Plan) workflow.Object { return p.DeferredActions.Batches[0] }
	more := func() *workflow.Action { return &workflow.Action{Name: "more", Plugin: plantest.PluginName} }
	return []treeEdit{
		{edit: func(p *workflow.Plan) { p.Blocks = append(p.Blocks, &workflow.Block{Name: "more"}) }},
		{edit: func(p *workflow.Plan) { p.Blocks = p.Blocks[:1] }},
		{edit: func(p *workflow.Plan) { p.Blocks = nil }},
		{edit: func(p *workflow.Plan) { slices.Reverse(p.Blocks) }},
		{edit: func(p *workflow.Plan) { p.Blocks[1].ID = workflow.NewV7() }},
		{edit: func(p *workflow.Plan) { p.PreChecks = nil }},
		{edit: func(p *workflow.Plan) { p.PreChecks, p.PostChecks = p.PostChecks, p.PreChecks }},
		{edit: func(p *workflow.Plan) { p.DeferredActions = nil }},
		{func(p *workflow.Plan) { p.Blocks[0].Sequences = p.Blocks[0].Sequences[1:] }, block, "Sequences"},
		{func(p *workflow.Plan) { p.Blocks[0].ContChecks = nil }, block, "Sequences"},
		{func(p *workflow.Plan) {
			b := p.Blocks[0]
			b.Sequences[0].Actions, b.Sequences[1].Actions = b.Sequences[1].Actions, b.Sequences[0].Actions
		}, block, "Sequences"},
		{func(p *workflow.Plan) {
			p.Blocks[0].Sequences[0].Actions = append(p.Blocks[0].Sequences[0].Actions, more())
		}, sequence, "Actions"},
		{func(p *workflow.Plan) { p.Blocks[0].Sequences[0].Actions = nil }, sequence, "Actions"},
		{func(p *workflow.Plan) { p.Blocks[0].Sequences[0].Actions = p.Blocks[0].Sequences[0].Actions[1:] }, block, "Sequences"},
		{func(p *workflow.Plan) { p.PreChecks.Actions = append(p.PreChecks.Actions, more()) }, checks, "Actions"},
		{func(p *workflow.Plan) { p.DeferredActions.Batches = p.DeferredActions.Batches[1:] }, deferred, "Batches"},
		{func(p *workflow.Plan) { p.DeferredActions.Batches[0].Actions = nil }, batch, "Actions"},
	}
}

// unreadable returns requests that could be stored but not read again, or not unchanged.
func unreadable() map[string]any {
	return map[string]any{
		"a text that is not UTF-8":       plantest.Request{Text: "a\xffb"},
		"a key that is not UTF-8":        plantest.Request{Options: map[string]string{"\xc3": ""}},
		"a value that is not UTF-8":      &plantest.Request{Options: map[string]string{"a": "\xe2\x82"}},
		"raw JSON that is not UTF-8":     json.RawMessage("{\"Text\":\"\xff\"}"),
		"raw JSON with half a character": json.RawMessage(`{"Text": "\\\ud83d"}`),
		"the other half of a character":  json.RawMessage(`{"Text": "\uD83D\uD83D\uDE80"}`),
		"a key with half a character":    json.RawMessage(`{"Other": {"\ude80\u0041": 1}}`),
		"half a character in a value":    plantest.Loose{Any: json.RawMessage(`"\ud83d\\ude80"`)},
		"an error":                       plantest.Loose{Err: errors.New("an error")},
		"a pointer to an error":          &plantest.Loose{Err: errors.New("an error")},
		"a number beyond a float64":      plantest.Loose{Any: []any{json.RawMessage("1e400")}},
		"what its type does not read":    plantest.Loose{Nested: []plantest.Written{"FIRST", "second"}},
		"raw JSON nested too deep":       nested(workflow.MaxDepth + 1),
		"raw JSON nested much too deep":  json.RawMessage(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)),
	}
}

// setRequest gives an action a request and the plugin of the request.
func setRequest(a *workflow.Action, req any) {
	switch req.(type) {
	case plantest.Loose, *plantest.Loose:
		a.Plugin = plantest.LooseName
	}
	a.Req = req
}

// nested returns raw JSON with this number of levels that the types of the plugin can be read from.
func nested(levels int) json.RawMessage {
	return json.RawMessage(`{"Other":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`)
}

// holder returns the object that has the field of a plantest.BadPlan, and the name of the field within it.
func holder(plan *workflow.Plan, field string) (workflow.Object, string) {
	for _, part := range []struct {
		at string
		o  workflow.Object
	}{
		{"PreChecks.Actions[0].", plan.PreChecks.Actions[0]},
		{"PreChecks.", plan.PreChecks},
		{"Blocks[0].Sequences[0].", plan.Blocks[0].Sequences[0]},
		{"Blocks[0].", plan.Blocks[0]},
		{"DeferredActions.Batches[0].", plan.DeferredActions.Batches[0]},
	} {
		if name, found := strings.CutPrefix(field, part.at); found {
			return part.o, name
		}
	}
	return plan, field
}

// ownFields is the promise of the updates of one kind of object.
func ownFields(kind workflow.Kind) promise {
	return promise{fmt.Sprintf("an update of a %s stores its own fields and leaves its children alone", kind), func(s *stage) {
		plan := s.started(allKinds())
		edited, want := plantest.Clone(plan), plantest.Clone(plan)
		i := slices.IndexFunc(eachKind(plan), func(o workflow.Object) bool { return o.Kind() == kind })
		o := eachKind(edited)[i]
		change(o)
		change(eachKind(want)[i])
		for child, parent := range workflow.Walk(edited) {
			if parent == o { // this must not be stored
				child.Header().State.Status = workflow.Stopped
			}
		}
		s.update(o)
		s.shows(s.vault, want)
		s.shows(s.open(), want)
		want.State.ETag = s.read(s.vault, want.ID).State.ETag
		s.must(complete(s.ctx, s.vault, want))
		s.shows(s.vault, want)
	}}
}

// change changes every field that an engine may change, and some that only an author should.
func change(o workflow.Object) {
	state := o.Header().State
	state.Status, state.Start, state.End = workflow.Running, moment.Add(time.Hour), moment.Add(2*time.Hour)
	switch o := o.(type) {
	case *workflow.Plan:
		o.Name, o.Descr, o.Meta, o.Reason, o.RuntimeUpdate = "renamed", "план", []byte{0xff}, workflow.BlockFailed, moment
		o.Labels = map[string]string{"env": "план"}
		o.GroupID, o.Owner, o.Epoch, o.Submitted = node, node, 1, workflow.Actor{By: "план", From: "there"}
	case *workflow.Checks:
		o.Delay = time.Nanosecond
	case *workflow.Block:
		o.Name, o.Descr, o.EntranceDelay, o.ExitDelay, o.Concurrency, o.ToleratedFailures = "", "план", 1, 100*time.Hour, 7, -1
	case *workflow.Sequence:
		o.Name, o.Descr = "renamed", "план"
	case *workflow.Action:
		o.Name, o.Descr, o.Timeout, o.Retries, o.AtMost, o.Idempotent, o.Req = "", "план", 0, 0, 0, !o.Idempotent, nil
		o.NoRetries, o.Backoff = true, plugins.Backoff{Factor: 1.25}
		o.Attempts, o.Secrets = attemptsOf(12), []string{"/resp/план"}
	case *workflow.DeferBatch:
		o.Key, o.Name, o.Descr, o.When, o.FailElement = uuid.Max, "renamed", "план", workflow.Always, true
	}
}
