package storagetest

import (
	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

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

		fork, err := workflow.Fork(s.read(s.open(), plan.ID))
		s.must(err)
		s.create(fork)
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
