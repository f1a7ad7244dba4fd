package storagetest

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

func recoveryPromises() []promise {
	return slices.Concat([]promise{
		{"Recovery of a sound store changes nothing, however often it runs", recoverySound},
		{"Recovery leaves recent remains alone", recoveryRecent},
		{"two nodes at once leave nothing unfinished", recoveryTwoNodes},
		{"a Recovery that dies at any request is finished by another", recoveryDeath},
		{"Recovery does not disturb creates, updates and deletes in progress", recoveryDuringWrites},
	}, contextPromises("recovery"))
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
	for d := range s.deaths() {
		plan := allKinds()
		_ = d.run(func(ctx context.Context, v storage.Vault) error { return v.Create(ctx, plan) })
		s.must(s.vault.Recovery(s.ctx))
		switch err := s.vault.Create(s.ctx, authored(plan)); {
		case errors.Is(err, storage.ErrConflict):
			blocked = append(blocked, plan)
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

func recoveryTwoNodes(s *stage) {
	left := s.leftovers()
	s.passGrace()
	nodes := []storage.Vault{s.vault, s.open(), s.open()}
	s.must(atOnce(len(nodes), func(i int) error { return nodes[i].Recovery(s.ctx) }))
	s.must(s.vault.Recovery(s.ctx))
	left.judge()
}

func recoveryDeath(s *stage) {
	left := s.leftovers()
	s.passGrace()
	for d := range s.deaths() {
		_ = d.run(func(ctx context.Context, v storage.Vault) error { return v.Recovery(ctx) })
	}
	s.must(s.vault.Recovery(s.ctx))
	left.judge()
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

// leftovers are the remains of creates, updates to a final status, and deletes in processes that died.
type leftovers struct {
	s *stage
	// shown has each plan as readers saw it before Recovery, or nil if they saw none.
	shown map[uuid.UUID]*workflow.Plan
}

func (s *stage) leftovers() *leftovers {
	s.Helper()
	left := &leftovers{s, map[uuid.UUID]*workflow.Plan{}}
	try := func(prepare func() *workflow.Plan, do func(ctx context.Context, v storage.Vault, plan *workflow.Plan) error) {
		s.Helper()
		for d := range s.deaths() {
			plan := prepare()
			_ = d.run(func(ctx context.Context, v storage.Vault) error { return do(ctx, v, plan) })
			left.shown[plan.ID] = s.find(s.vault, plan.ID)
		}
	}
	try(allKinds, func(ctx context.Context, v storage.Vault, p *workflow.Plan) error { return v.Create(ctx, p) })
	try(func() *workflow.Plan { p, _ := s.finished(); return p },
		func(ctx context.Context, v storage.Vault, p *workflow.Plan) error { return complete(ctx, v, p) })
	try(func() *workflow.Plan { return s.started(allKinds()) },
		func(ctx context.Context, v storage.Vault, p *workflow.Plan) error { return v.Delete(ctx, p.ID) })
	return left
}

// judge checks that readers see the same plans after Recovery as before.
func (left *leftovers) judge() {
	left.s.Helper()
	for id, plan := range left.shown {
		if plan == nil {
			left.s.lacks(left.s.vault, id)
		} else {
			left.s.shows(left.s.vault, plan)
		}
	}
}
