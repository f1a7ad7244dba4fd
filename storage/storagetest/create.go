package storagetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func createPromises() []promise {
	return slices.Concat([]promise{
		{"Create fills in what the author left out", createFillsIn},
		{"Create keeps what the author set", createKeeps},
		{"Create takes who submits a plan from its context, unless the plan says it, and Restore does not", createSubmitted},
		{"empty optional objects differ from absent ones", createEmptyObjects},
		{"deep and wide plans come back with all sub-objects in order", createLargeTrees},
		{"a plan of 5,000 actions comes back whole in every state", create5000Actions},
		{"requests and responses of 1 MB come back unchanged", createLargeRequests},
		{"the ID of a deleted plan is free again, and versions of the old plan are not valid", createAfterDelete},
		{"plans of other days can be stored today", createOtherDays},
	}, creating.promises(), forkPromises())
}

func createFillsIn(s *stage) {
	plan := s.create(plantest.Full())
	if plan.SubmitTime.IsZero() {
		s.Errorf("there is no SubmitTime")
	}
	seen := map[uuid.UUID]bool{}
	for o := range workflow.Walk(plan) {
		h := o.Header()
		if !workflow.IsV7(*h.ID) || seen[*h.ID] || *h.PlanID != plan.ID || h.State.ETag == "" || h.State.Status != workflow.NotStarted {
			s.Errorf("%s %s of plan %s: %+v", o.Kind(), *h.ID, *h.PlanID, *h.State)
		}
		seen[*h.ID] = true
	}
	s.shows(s.vault, plan)
}

func createKeeps(s *stage) {
	plan := plantest.Full()
	plan.ID, plan.SubmitTime = workflow.NewV7At(time.Now().Add(-time.Hour)), moment
	want := map[string]uuid.UUID{}
	for i, o := range workflow.Parts(plan) {
		if i%2 == 0 {
			*o.Header().ID, *o.Header().PlanID = workflow.NewV7(), plan.ID
			want[fmt.Sprint(i)] = *o.Header().ID
		}
	}
	given := *plan
	s.create(plan)
	got := s.read(s.vault, plan.ID)
	if got.ID != given.ID || got.GroupID != given.GroupID || !got.SubmitTime.Equal(moment) || !bytes.Equal(got.Meta, given.Meta) {
		s.Errorf("got plan %s of group %s, submitted %v, want %s of %s, %v", got.ID, got.GroupID, got.SubmitTime, given.ID, given.GroupID, moment)
	}
	for i, o := range workflow.Parts(got) {
		if id, was := want[fmt.Sprint(i)]; was && *o.Header().ID != id {
			s.Errorf("the ID of %s %d is %s, want %s", o.Kind(), i, *o.Header().ID, id)
		}
	}
	s.same(plan, got)
}

func createSubmitted(s *stage) {
	caller, author := workflow.Actor{By: "план <ops@example.com>", From: "orders-2, =?request"}, workflow.Actor{From: "a batch"}
	for _, c := range []struct{ context, plan, want workflow.Actor }{
		{}, {context: caller, want: caller}, {context: caller, plan: author, want: author}, {plan: author, want: author},
	} {
		plan := bare("submitted")
		plan.Submitted = c.plan
		s.must(s.vault.Create(storage.WithActor(s.ctx, c.context), plan))
		if plan.Submitted != c.want {
			s.Errorf("%+v submits a plan of %+v: Create sets %+v", c.context, c.plan, plan.Submitted)
		}
		s.shows(s.vault, plan)
		s.must(complete(storage.WithActor(s.ctx, workflow.Actor{By: "the engine"}), s.vault, plan))
		s.shows(s.open(), plan)
		s.must(s.vault.Delete(s.ctx, plan.ID))
	}
	for _, bad := range []workflow.Actor{{By: "\xff"}, {By: "ops\n"}, {By: strings.Repeat("b", workflow.MaxBy+1)}} {
		plan := bare("not submitted")
		s.names("By", "Create", uuid.Nil, s.vault.Create(storage.WithActor(s.ctx, bad), plan))
		if plan.Submitted != (workflow.Actor{}) || plan.ID != uuid.Nil {
			s.Errorf("a refused Create changed the plan: %+v", plan)
		}
	}
	if restorer, ok := storage.As[storage.Restorer](s.vault); ok {
		plan := s.create(bare("restored"))
		s.must(s.vault.Delete(s.ctx, plan.ID))
		s.must(restorer.Restore(storage.WithActor(s.ctx, caller), plan))
		s.shows(s.vault, plan)
		if plan.Submitted != (workflow.Actor{}) {
			s.Errorf("Restore sets %+v", plan.Submitted)
		}
	}
}

func createEmptyObjects(s *stage) {
	for _, plan := range []*workflow.Plan{
		{},
		bare("nothing but a name"),
		{Name: "no meta", Meta: nil},
		{Name: "empty meta", Meta: []byte{}},
		{Name: "empty block", Blocks: []*workflow.Block{{}, {}}},
		{Name: "empty sequence", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{}}}}},
		{Name: "empty checks", BypassChecks: &workflow.Checks{}, DeferredChecks: &workflow.Checks{}},
		{Name: "empty checks of a block", Blocks: []*workflow.Block{{PreChecks: &workflow.Checks{}, ContChecks: &workflow.Checks{}}}},
		{Name: "empty deferred actions", DeferredActions: &workflow.DeferredActions{}},
		{Name: "empty batch", DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{}}}},
		{Name: "no request", PostChecks: &workflow.Checks{Actions: []*workflow.Action{{Plugin: plantest.PluginName}}}},
	} {
		s.create(plan)
		got := s.read(s.vault, plan.ID)
		s.same(plan, got)
		if (plan.Meta == nil) != (got.Meta == nil) {
			s.Errorf("%s: Meta is %#v, want %#v", plan.Name, got.Meta, plan.Meta)
		}
		again := s.started(withoutID(plan)) // the same while it is Running, and final
		s.same(again, s.read(s.vault, again.ID))
		s.must(complete(s.ctx, s.vault, again))
		s.same(again, s.read(s.vault, again.ID))
	}
}

func createLargeTrees(s *stage) {
	for _, plan := range []*workflow.Plan{
		plantest.Sized(100, 1, 0), plantest.Sized(1, 100, 0), plantest.Sized(1, 1, 300), plantest.Sized(4, 4, 4),
	} {
		s.create(plan)
		s.same(plan, s.read(s.vault, plan.ID))
	}
}

func create5000Actions(s *stage) {
	plan := plantest.Sized(5, 10, 100)
	s.started(plan)
	parts := workflow.Parts(plan)
	for i := 0; i < len(parts); i += 101 {
		parts[i].Header().State.Status = workflow.Running
		s.update(parts[i])
	}
	s.same(plan, s.read(s.vault, plan.ID))
	plantest.Finish(plan)
	s.must(complete(s.ctx, s.vault, plan))
	s.shows(s.vault, plan)
}

func createLargeRequests(s *stage) {
	random := rand.NewChaCha8([32]byte{1})
	plan := plantest.Sized(1, 1, 2)
	actions := plan.Blocks[0].Sequences[0].Actions
	for i, a := range actions {
		payload := make([]byte, 1<<20)
		_, _ = random.Read(payload) // never fails
		a.Req = plantest.Request{Text: strings.Repeat("ж", i<<18), Payload: payload}
	}
	for _, step := range []func(){
		func() { s.create(plan) },
		func() { s.runs(plan) },
		func() {
			for i, a := range actions {
				a.Attempts = []workflow.Attempt{{Resp: &plantest.Response{Text: strings.Repeat(fmt.Sprint(i), 1<<20)}}}
				s.moves(a, workflow.Completed)
			}
		},
		func() { s.must(complete(s.ctx, s.vault, plan)) },
	} {
		step()
		for i, a := range s.read(s.vault, plan.ID).Blocks[0].Sequences[0].Actions {
			if !reflect.DeepEqual(a.Req, actions[i].Req) || !reflect.DeepEqual(a.Attempts, actions[i].Attempts) {
				s.Errorf("the request or the response of action %d has changed", i)
			}
		}
	}
}

func createAfterDelete(s *stage) {
	old := s.started(allKinds())
	s.must(s.vault.Delete(s.ctx, old.ID))
	plan := s.create(authored(old))
	for _, o := range eachKind(old) {
		s.refuses(storage.ErrConflict, s.vault, o)
	}
	s.shows(s.vault, plan)
}

func createOtherDays(s *stage) {
	now := time.Now()
	for _, at := range []time.Time{
		time.UnixMilli(0), now.AddDate(-10, 0, 0), now.AddDate(0, 0, -1), now.Truncate(24 * time.Hour),
		now.Truncate(24 * time.Hour).Add(-time.Millisecond), now.Add(12 * time.Hour),
	} {
		plan := s.create(bareAt(at.String(), at))
		s.shows(s.vault, plan)
		s.must(live(s.ctx, s.vault, authored(bareAt("its neighbour", at))))
		s.must(s.vault.Delete(s.ctx, plan.ID))
		s.lacks(s.vault, plan.ID)
	}
}

// completed creates a plan and takes it through its life.
func (s *stage) completed(plan *workflow.Plan) *workflow.Plan {
	s.Helper()
	s.must(live(s.ctx, s.vault, plan))
	return plan
}

// withoutID returns a copy of a plan, to be created as another plan.
func withoutID(plan *workflow.Plan) *workflow.Plan {
	c := authored(plan)
	c.ID = uuid.Nil
	for o := range workflow.Walk(c) {
		*o.Header().ID, *o.Header().PlanID = uuid.Nil, uuid.Nil
	}
	return c
}

// authored returns a copy of a plan as it was before it ran.
func authored(plan *workflow.Plan) *workflow.Plan {
	c := plantest.Clone(plan)
	for o := range workflow.Walk(c) {
		*o.Header().State = workflow.State{}
		if a, ok := o.(*workflow.Action); ok {
			a.Attempts = nil
		}
	}
	return c
}

// attemptsOf returns n attempts of all kinds.
func attemptsOf(n int) (list []workflow.Attempt) {
	for i := range n {
		a := workflow.Attempt{Start: moment.Add(time.Duration(i) * time.Second)}
		switch i % 4 {
		case 0:
			a.Err = &plugins.Error{
				Code: i - 5, Message: "line\nbreak, <&>, 計画", Permanent: i%8 == 0,
				Wrapped: &plugins.Error{Code: 1, Wrapped: &plugins.Error{Message: "the cause"}},
			}
		case 1:
			a.Resp = &plantest.Response{Text: fmt.Sprint(i), OK: true}
		case 2:
			a.Resp, a.Err = &plantest.Response{}, &plugins.Error{}
		}
		if i%3 > 0 {
			a.End = a.Start.Add(time.Nanosecond)
		}
		list = append(list, a)
	}
	return list
}

// forkPromises are those of Create about forks.
func forkPromises() []promise {
	return []promise{
		{"a fork comes back with what was Completed, in every state", forkComesBack},
		{"a plan that failed can be forked, and a fork that failed again", forkOfFork},
		{"a fork with a status that it can't have is ErrInvalid with the field, and nothing is stored", forkInvalid},
	}
}

func forkComesBack(s *stage) {
	fork := plantest.Fork()
	s.create(fork)
	s.shows(s.vault, fork)
	next := s.open()
	s.shows(next, fork)
	s.runs(fork)
	s.shows(next, fork)
	for o, carried := range workflow.CarriedOver(fork) {
		if !carried && o.Header().State.Status == workflow.NotStarted {
			s.moves(o, workflow.Running)
		}
	}
	s.shows(next, fork)
	s.must(complete(s.ctx, s.vault, fork))
	s.shows(next, fork)
}

func forkOfFork(s *stage) {
	plan := s.started(plantest.Full())
	s.moves(plan.Blocks[0], workflow.Running)
	for round := range 3 {
		a := plan.Blocks[round/2].Sequences[round%2].Actions[0]
		s.moves(a, workflow.Running)
		a.Attempts, a.State.End = attemptsOf(round+1), moment
		s.moves(a, workflow.Completed)
		plan.State.End = moment
		s.moves(plan, workflow.Failed)

		fork, err := workflow.Fork(s.read(s.open(), plan.ID), workflow.ForkOptions{})
		s.must(err)
		s.create(fork)
		again, err := workflow.Fork(s.read(s.open(), plan.ID), workflow.ForkOptions{})
		s.must(err)
		s.want(storage.ErrExists, "Create", fork.ID, s.vault.Create(s.ctx, again))
		if found := s.search(s.vault, storage.Filters{ByForkedFrom: []uuid.UUID{plan.ID}}); len(found) != 1 || found[0].ID != fork.ID {
			s.Errorf("a search for the forks of plan %s finds %+v", plan.ID, found)
		}
		s.shows(s.vault, plan)
		s.shows(s.vault, fork)
		if got := s.read(s.vault, fork.ID); got.ForkedFrom != plan.ID {
			s.Errorf("the fork of %s was forked from %s", plan.ID, got.ForkedFrom)
		}
		plan = s.read(s.vault, fork.ID)
		s.runs(plan)
		for before := range round + 1 {
			a := plan.Blocks[before/2].Sequences[before%2].Actions[0]
			if a.State.Status != workflow.Completed || len(a.Attempts) != before+1 {
				s.Errorf("after round %d, action %d is %s with %d attempts", round, before, a.State.Status, len(a.Attempts))
			}
		}
	}
}

func forkInvalid(s *stage) {
	for _, bad := range plantest.BadForks() {
		fork := plantest.Fork()
		bad.Edit(fork)
		s.names(bad.Field, "Create", fork.ID, s.vault.Create(s.ctx, fork))
	}
	fork := plantest.Fork()
	fork.ForkedFrom = uuid.Nil
	s.want(storage.ErrInvalid, "Create", fork.ID, s.vault.Create(s.ctx, fork))
	if list := s.list(s.vault); len(list) > 0 {
		s.Errorf("%d plans were stored, such as %+v", len(list), list[0])
	}
}
