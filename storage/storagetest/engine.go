package storagetest

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// enginePromises replay what existing engines do, which authors of vaults might not expect.
func enginePromises() []promise {
	return []promise{
		{"continuous checks run again in each round, without their old attempts", engineContinuousChecks},
		{"a plan can become final with sub-objects that were reset in memory", engineResetInMemory},
		{"a new State has no version, so its update is refused until the plan is read again", engineNewState},
		{"updates of a sub-object after the plan became final are not shown", engineLateUpdates},
		{"a plan sleeps without an owner, is listed with its time, and wakes", engineSleep},
		{"a plan that must not begin yet is listed with its time until it begins", engineNotBefore},
	}
}

func engineContinuousChecks(s *stage) {
	plan := s.started(allKinds())
	checks := plan.PreChecks
	for round := range 4 {
		if round > 0 {
			checks.State.Reset()
		}
		s.moves(checks, workflow.Running)
		for _, a := range checks.Actions {
			a.Attempts = nil
			a.State.Reset()
			s.must(s.vault.UpdateAction(s.ctx, a))
			s.moves(a, workflow.Running)
			a.Attempts = attemptsOf(1)
			s.moves(a, workflow.Completed)
		}
		s.moves(checks, workflow.Completed)
		s.shows(s.open(), plan)
	}
	s.moves(checks, workflow.Running) // without a reset
	s.moves(checks, workflow.Failed)
	s.must(complete(s.ctx, s.vault, plan))
	s.shows(s.open(), plan)
}

func engineResetInMemory(s *stage) {
	for _, status := range []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped} {
		plan := s.started(allKinds())
		for i, o := range workflow.Parts(plan) {
			s.moves(o, workflow.Running)
			if i%2 == 0 {
				s.moves(o, workflow.Completed)
			}
		}
		next := s.open()
		plan = s.read(next, plan.ID)
		for o := range workflow.Walk(plan) {
			if o != workflow.Object(plan) {
				o.Header().State.Reset()
			}
			if a, ok := o.(*workflow.Action); ok {
				a.Attempts = nil
			}
		}
		plan.Reason, plan.RuntimeUpdate = workflow.ExceededRecovery, moment
		plan.State.Status, plan.State.End = status, moment.Add(time.Hour)
		s.must(next.UpdatePlan(s.ctx, plan))
		s.shows(s.vault, plan)
		s.must(next.UpdatePlan(s.ctx, plan)) // again
		s.shows(s.vault, plan)
	}
}

func engineNewState(s *stage) {
	plan := s.started(allKinds())
	s.must(finishParts(s.ctx, s.vault, plan))
	before := plantest.Clone(plan)
	for _, o := range eachKind(plan) {
		kept := *o.Header().State
		*o.Header().State = workflow.State{Status: workflow.Running}
		s.refuses(storage.ErrInvalid, s.vault, o)
		*o.Header().State = kept
	}
	s.shows(s.vault, before)
	plan = s.read(s.vault, plan.ID)
	for _, o := range workflow.Parts(plan) {
		o.Header().State.Reset()
		s.update(o)
	}
	s.shows(s.open(), plan)
}

func engineLateUpdates(s *stage) {
	plan := s.started(allKinds())
	s.must(finishParts(s.ctx, s.vault, plan))
	s.must(complete(s.ctx, s.vault, plan))
	late := plantest.Clone(plan)
	for _, o := range workflow.Parts(late) {
		o.Header().State.End = moment.Add(time.Hour)
		if err := storage.Update(s.ctx, s.vault, o); err != nil {
			s.want(storage.ErrConflict, methodOf(o), plan.ID, err)
		}
	}
	s.shows(s.open(), plan)
}

func engineSleep(s *stage) {
	plan := s.started(allKinds())
	owner := workflow.NewV7()
	plan.Owner, plan.Epoch = owner, 3
	s.update(plan)
	var a *workflow.Action
	for o := range workflow.Walk(plan) {
		if found, ok := o.(*workflow.Action); ok {
			a = found
		}
	}
	a.Attempts = []workflow.Attempt{{Start: moment, Owner: owner, Later: &workflow.Later{At: moment.Add(time.Hour), State: json.RawMessage(`{"order":"<7>"}`)}}}
	s.moves(a, workflow.Running)
	awake := plantest.Clone(plan)
	plan.Owner, plan.WakeAt, plan.LastSignal = uuid.Nil, moment.Add(time.Hour), 2
	plan.Paused = workflow.Attribution{By: "ops <1>", Why: "the cluster is full", At: moment}
	s.update(plan)
	s.shows(s.open(), plan)
	s.refuses(storage.ErrConflict, s.vault, awake)
	found, err := storage.Collect(s.vault.Search(s.ctx, storage.Filters{ByStatus: []workflow.Status{workflow.Running}}))
	s.must(err)
	if len(found) != 1 || !found[0].WakeAt.Equal(plan.WakeAt) || found[0].LastSignal != 2 || found[0].Owner != uuid.Nil || found[0].Epoch != 3 {
		s.Errorf("a plan that sleeps is listed as %+v", found)
	}
	plan.Owner, plan.Epoch, plan.WakeAt, plan.LastSignal, plan.Paused = workflow.NewV7(), 4, time.Time{}, 0, workflow.Attribution{}
	a.Attempts[0].Later, a.Attempts[0].Paused = nil, true
	s.update(plan)
	s.update(a)
	s.shows(s.open(), plan)
}

func engineNotBefore(s *stage) {
	plan := allKinds()
	plan.NotBefore, plan.Deadline, plan.Keys = moment.Add(time.Hour), moment.Add(2*time.Hour), []workflow.Key{{Name: "west"}}
	s.create(plan)
	s.shows(s.open(), plan)
	listed := func() storage.ListResult {
		found, err := storage.Collect(s.vault.Search(s.ctx, storage.Filters{ByIDs: []uuid.UUID{plan.ID}}))
		s.must(err)
		if len(found) != 1 {
			s.Fatalf("%d plans have the ID", len(found))
		}
		return found[0]
	}
	if r := listed(); !r.WakeAt.Equal(plan.NotBefore) || !r.Asleep() || !r.Deadline.Equal(plan.Deadline) {
		s.Errorf("a plan that must not begin yet is listed as %+v", r)
	}
	plan.State.Status = workflow.Running
	s.update(plan)
	if r := listed(); !r.WakeAt.IsZero() || r.Asleep() || !r.Deadline.Equal(plan.Deadline) {
		s.Errorf("a plan that has begun is listed as %+v", r)
	}
	plan.State.Status, plan.Reason = workflow.Stopped, workflow.DeadlineExceeded
	s.must(complete(s.ctx, s.vault, plan))
	s.shows(s.open(), plan)
}

// moves updates an object to a status.
func (s *stage) moves(o workflow.Object, to workflow.Status) {
	s.Helper()
	state := o.Header().State
	if state.Status = to; state.Start.IsZero() {
		state.Start = moment
	}
	if err := storage.Update(s.ctx, s.vault, o); err != nil {
		s.Fatalf("%s to %s: %v", o.Kind(), to, err)
	}
}
