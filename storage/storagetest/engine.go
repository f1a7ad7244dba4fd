package storagetest

import (
	"time"

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
