package storagetest

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func deletePromises() []promise {
	return []promise{
		{"a plan in any state is gone for every reader and node at once", deleteGone},
		{"other plans stay as they are", deleteOthersStay},
		{"no sub-object of a large plan is left", deleteLarge},
		{"two nodes at once remove the plan, and fail only with ErrNotFound", deleteRace},
		{"readers see the plan whole until it is gone", deleteReaders},
		{"a Delete during updates removes the plan for good", deleteDuringUpdates},
		{"a death at any request leaves the plan whole or gone, and another Delete finishes", deleteAgain},
		{"a death at any request leaves the plan whole or gone, and Recovery finishes", recovered(deletion)},
	}
}

func deleteGone(s *stage) {
	other := s.open()
	for _, plan := range []*workflow.Plan{
		s.create(plantest.Full()), s.started(plantest.Full()), s.completed(plantest.Full()), s.create(&workflow.Plan{}),
	} {
		s.shows(other, plan)
		s.must(s.vault.Delete(s.ctx, plan.ID))
		for _, v := range []storage.Vault{s.vault, other} {
			s.lacks(v, plan.ID)
			s.want(storage.ErrNotFound, "Delete", plan.ID, v.Delete(s.ctx, plan.ID))
		}
		if plan.GroupID == uuid.Nil {
			continue
		}
		if found := s.search(other, storage.Filters{ByGroupIDs: []uuid.UUID{plan.GroupID}}); len(found) > 0 {
			s.Errorf("Search by group finds %+v", found)
		}
	}
}

func deleteOthersStay(s *stage) {
	target := s.started(allKinds())
	var others []*workflow.Plan
	for i := range 3 {
		plan := allKinds()
		plan.ID = target.ID
		plan.ID[15-i] ^= 1 // an ID that differs in one bit
		others = append(others, s.started(plan))
	}
	s.must(s.vault.Delete(s.ctx, target.ID))
	for _, plan := range others {
		s.shows(s.vault, plan)
		s.must(finishParts(s.ctx, s.vault, plan))
	}
}

func deleteLarge(s *stage) {
	plan := s.create(plantest.Sized(1, 3, 90))
	s.must(s.vault.Delete(s.ctx, plan.ID))
	s.lacks(s.vault, plan.ID)
}

func deleteRace(s *stage) {
	nodes := []storage.Vault{s.vault, s.open()}
	for range 8 {
		plan := s.started(allKinds())
		errs := make([]error, 4)
		_ = atOnce(len(errs), func(i int) error { errs[i] = nodes[i%2].Delete(s.ctx, plan.ID); return nil })
		if !slices.Contains(errs, nil) {
			s.Errorf("no Delete succeeded: %v", errs)
		}
		for _, err := range errs {
			if err != nil {
				s.want(storage.ErrNotFound, "Delete", plan.ID, err)
			}
		}
		s.lacks(s.vault, plan.ID)
	}
}

func deleteReaders(s *stage) {
	for _, plan := range []*workflow.Plan{s.create(plantest.Full()), s.started(plantest.Full()), s.completed(plantest.Full())} {
		other, seenGone := s.open(), false
		s.during(func() error { return other.Delete(s.ctx, plan.ID) }, func(deleted bool) {
			got, err := s.vault.Read(s.ctx, plan.ID)
			switch {
			case err != nil:
				s.want(storage.ErrNotFound, "Read", plan.ID, err)
				seenGone = true
			case deleted, seenGone:
				s.Fatalf("Read finds the plan again after it was gone")
			default:
				s.same(plan, got)
			}
		})
	}
}

func deleteDuringUpdates(s *stage) {
	other := s.open()
	for range 8 {
		plan := s.started(allKinds())
		var deleted, worked error
		_ = atOnce(2, func(i int) error {
			if i == 0 {
				deleted = s.vault.Delete(s.ctx, plan.ID)
				return nil
			}
			working := plantest.Clone(plan)
			if worked = finishParts(s.ctx, other, working); worked == nil {
				worked = complete(s.ctx, other, working)
			}
			return nil
		})
		s.must(deleted)
		if worked != nil && !errors.Is(worked, storage.ErrNotFound) && !errors.Is(worked, storage.ErrUnknown) {
			s.Errorf("an update during the Delete: %v", worked)
		}
		s.lacks(s.vault, plan.ID)
	}
}

func deleteAgain(s *stage) {
	for l := range s.dies(deletion) {
		if err := s.vault.Delete(s.ctx, l.plan.ID); err != nil {
			s.want(storage.ErrNotFound, "Delete", l.plan.ID, err)
		}
		s.lacks(s.vault, l.plan.ID)
	}
}
