package storagetest

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func readPromises() []promise {
	return []promise{
		{"requests that were raw JSON or pointers come back as the plugin's types", readRawRequests},
		{"an ID without a plan is ErrNotFound, and does not exist", readNotFound},
		{"the versions that Read returns are valid for updates, in every state of the plan", readVersions},
		{"the store shares no memory with what it was given, nor with what it returns", readSharesNothing},
		{"no reader sees a plan go back while another node works on it", readMonotonic},
	}
}

func readRawRequests(s *stage) {
	want := plantest.Request{Text: "a", Number: 1<<60 + 1}
	plan := plantest.Sized(1, 1, 3)
	for i, req := range []any{json.RawMessage(` {"Number": 1152921504606846977, "Text": "a"} `), &want, want} {
		plan.Blocks[0].Sequences[0].Actions[i].Req = req
	}
	s.create(plan)
	for i, a := range s.read(s.vault, plan.ID).Blocks[0].Sequences[0].Actions {
		if !reflect.DeepEqual(a.Req, any(want)) {
			s.Errorf("request %d is %T %v, want %T %v", i, a.Req, a.Req, want, want)
		}
	}
}

func readNotFound(s *stage) {
	s.lacks(s.vault, workflow.NewV7()) // in an empty store
	plan := s.create(plantest.Small())
	near, variant := plan.ID, plan.ID
	near[15] ^= 1
	variant[8] = 0xc0
	for _, id := range []uuid.UUID{
		workflow.NewV7(), workflow.NewV7At(time.Now().AddDate(0, -1, 0)), near, variant, uuid.Nil, uuid.Max, uuid.New(),
		plan.Blocks[0].ID, // a sub-object is not a plan
	} {
		s.lacks(s.vault, id)
		s.want(storage.ErrNotFound, "Delete", id, s.vault.Delete(s.ctx, id))
	}
	s.shows(s.vault, plan)
}

func readVersions(s *stage) {
	plan := s.create(allKinds())
	other := s.open()
	for _, step := range []func(p *workflow.Plan) error{
		func(p *workflow.Plan) error { p.State.Status = workflow.Running; return other.UpdatePlan(s.ctx, p) },
		func(p *workflow.Plan) error { return finishParts(s.ctx, other, p) },
		func(p *workflow.Plan) error { return finishParts(s.ctx, other, p) },
		func(p *workflow.Plan) error { return complete(s.ctx, other, p) },
		func(p *workflow.Plan) error { p.Descr = "done"; return other.UpdatePlan(s.ctx, p) },
	} {
		read := s.read(s.vault, plan.ID)
		s.must(step(read))
		s.shows(s.vault, read)
	}
}

func readSharesNothing(s *stage) {
	plan := plantest.Full()
	request := plan.PreChecks.Actions[0].Req.(plantest.Request)
	s.create(plan)
	before := plantest.Clone(plan)
	spoil := func(plan *workflow.Plan, request plantest.Request) {
		plan.Name, plan.Blocks[0].Name, plan.Blocks[0].Sequences = "changed", "changed", nil
		plan.Meta[0] ^= 1
		request.Payload[0] ^= 1
		request.Options["a"] = "changed"
	}
	spoil(plan, request)
	s.shows(s.vault, before)
	got := s.read(s.vault, plan.ID)
	spoil(got, got.PreChecks.Actions[0].Req.(plantest.Request))
	s.shows(s.vault, before)
}

func readMonotonic(s *stage) {
	plan := s.create(allKinds())
	worker, working, last := s.open(), plantest.Clone(plan), plan
	s.during(func() error {
		working.State.Status = workflow.Running
		err := worker.UpdatePlan(s.ctx, working)
		if err == nil {
			err = finishParts(s.ctx, worker, working)
		}
		if err == nil {
			err = complete(s.ctx, worker, working)
		}
		return err
	}, func(bool) {
		now := s.read(s.vault, plan.ID)
		for o := range workflow.Walk(now) {
			was := objectOf(last, *o.Header().ID).Header().State.Status
			is := o.Header().State.Status
			if is < was {
				s.Errorf("Read returned %s as %s, then as %s", o.Kind(), was, is)
			}
			if now.State.Status.Final() && !is.Final() {
				s.Errorf("%s is %s in a plan that is %s", o.Kind(), is, now.State.Status)
			}
		}
		last = now
	})
	if last.State.Status != workflow.Completed {
		s.Errorf("after its last update the plan is %s", last.State.Status)
	}
}
