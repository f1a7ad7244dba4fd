package storagetest

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func recoveryPromises() []promise {
	return []promise{
		{"Recovery of a sound store changes nothing, however often it runs", recoverySound},
		{"Recovery leaves recent remains alone", recoveryRecent},
		{"two nodes at once leave nothing unfinished", recoveryTwoNodes},
		{"a Recovery that dies at any request is finished by another", recoveryDeath},
		{"Recovery does not disturb creates, updates and deletes in progress", recoveryDuringWrites},
	}
}

func recoverySound(s *stage) {
	s.must(s.vault.Recovery(s.ctx)) // in an empty store
	plans := []*workflow.Plan{s.create(plantest.Full()), s.started(allKinds()), s.completed(allKinds()), s.create(&workflow.Plan{})}
	half := s.started(allKinds())
	change(half.Blocks[0])
	s.must(s.vault.UpdateBlock(s.ctx, half.Blocks[0]))
	plans = append(plans, half)
	gone := s.create(plantest.Small())
	s.must(s.vault.Delete(s.ctx, gone.ID))
	s.passGrace()
	for range 2 {
		for _, v := range []storage.Vault{s.vault, s.open()} {
			s.must(v.Recovery(s.ctx))
		}
	}
	for _, plan := range plans {
		s.shows(s.vault, plan)
		s.updateEachKind(plan) // the versions are still valid
	}
	s.lacks(s.vault, gone.ID)
}

func recoveryRecent(s *stage) {
	s.needs(s.PassGrace != nil, "grace period")
	var blocked []*workflow.Plan
	for l := range s.dies(creating.write()) {
		s.must(s.vault.Recovery(s.ctx))
		switch err := s.vault.Create(s.ctx, authored(l.plan)); {
		case errors.Is(err, storage.ErrConflict):
			blocked = append(blocked, l.plan)
		case errors.Is(err, storage.ErrExists):
		default: // no remains were in the way
			s.must(err)
		}
	}
	if len(blocked) == 0 {
		s.Errorf("Recovery removed remains that may have been in progress")
	}
	s.must(s.vault.Recovery(s.ctx))
	for _, plan := range blocked { // the remains are still there
		s.want(storage.ErrConflict, "Create", plan.ID, s.vault.Create(s.ctx, plan))
	}
	s.recoverAll()
	for _, plan := range blocked {
		s.must(s.vault.Create(s.ctx, plan))
		s.shows(s.vault, plan)
	}
}

// leavings are those of every write.
func (s *stage) leavings() map[uuid.UUID]*workflow.Plan {
	s.Helper()
	shown := s.leftovers(creating.write(), completion, deletion)
	s.passGrace()
	return shown
}

func recoveryTwoNodes(s *stage) {
	shown := s.leavings()
	nodes := []storage.Vault{s.vault, s.open(), s.open()}
	s.must(atOnce(len(nodes), func(i int) error { return nodes[i].Recovery(s.ctx) }))
	s.must(s.vault.Recovery(s.ctx))
	s.stays(shown)
}

func recoveryDeath(s *stage) {
	shown := s.leavings()
	for d := range s.deaths() {
		_ = d.run(func(ctx context.Context, v storage.Vault) error { return v.Recovery(ctx) })
	}
	s.must(s.vault.Recovery(s.ctx))
	s.stays(shown)
}

func recoveryDuringWrites(s *stage) {
	worker, recoverer := s.open(), s.open()
	s.during(func() error {
		return atOnce(12, func(i int) error {
			plan := allKinds()
			if err := live(s.ctx, worker, plan); err != nil || i%2 == 0 {
				return err
			}
			return worker.Delete(s.ctx, plan.ID)
		})
	}, func(bool) { s.must(recoverer.Recovery(s.ctx)) })
	if n := len(s.list(s.vault)); n != 6 {
		s.Errorf("there are %d plans, want 6", n)
	}
}
