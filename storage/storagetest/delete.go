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

func deletePromises() []promise {
	return slices.Concat([]promise{
		{"a plan in any state is gone for every reader and node at once", deleteGone},
		{"an ID without a plan is ErrNotFound", deleteNotFound},
		{"other plans stay as they are", deleteOthersStay},
		{"no sub-object of a large plan is left", deleteLarge},
		{"two nodes at once remove the plan, and fail only with ErrNotFound", deleteRace},
		{"readers see the plan whole until it is gone", deleteReaders},
		{"a Delete during updates removes the plan for good", deleteDuringUpdates},
		{"a death at any request leaves the plan whole or gone, and another Delete finishes", func(s *stage) { deleteDeath(s, true) }},
		{"a death at any request leaves the plan whole or gone, and Recovery finishes", func(s *stage) { deleteDeath(s, false) }},
	}, contextPromises("delete"))
}

func deleteGone(s *stage) {
	other := s.open()
	for _, plan := range []*workflow.Plan{s.create(plantest.Full()), s.started(plantest.Full()), s.completed(plantest.Full()), s.create(&workflow.Plan{})} {
		s.shows(other, plan)
		s.must(s.vault.Delete(s.ctx, plan.ID))
		s.lacks(s.vault, plan.ID)
		s.lacks(other, plan.ID)
		if plan.GroupID == uuid.Nil {
			continue
		}
		if found := s.search(other, storage.Filters{ByGroupIDs: []uuid.UUID{plan.GroupID}}); len(found) > 0 {
			s.Errorf("Search by group finds %+v", found)
		}
	}
}

func deleteNotFound(s *stage) {
	id := workflow.NewV7()
	s.want(storage.ErrNotFound, "Delete", id, s.vault.Delete(s.ctx, id)) // in an empty store
	plan := s.create(allKinds())
	s.want(storage.ErrNotFound, "Delete", id, s.vault.Delete(s.ctx, id))
	part := plan.Blocks[0].ID
	s.want(storage.ErrNotFound, "Delete", part, s.vault.Delete(s.ctx, part))
	s.must(s.vault.Delete(s.ctx, plan.ID))
	for _, v := range []storage.Vault{s.vault, s.open()} {
		s.want(storage.ErrNotFound, "Delete", plan.ID, v.Delete(s.ctx, plan.ID))
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

func deleteDeath(s *stage, again bool) {
	var whole []*workflow.Plan
	var gone []uuid.UUID
	for d := range s.deaths() {
		plan := s.inState(d.n)
		err := d.run(func(ctx context.Context, v storage.Vault) error { return v.Delete(ctx, plan.ID) })
		switch there := s.wholeOrGone(plan, err); {
		case again:
			if err := s.vault.Delete(s.ctx, plan.ID); err != nil {
				s.want(storage.ErrNotFound, "Delete", plan.ID, err)
			}
			s.lacks(s.vault, plan.ID)
		case there:
			whole = append(whole, plan)
		default:
			gone = append(gone, plan.ID)
		}
	}
	if again {
		return // sound says that nothing is left
	}
	s.recoverAll()
	for _, plan := range whole {
		s.shows(s.vault, plan)
	}
	for _, id := range gone {
		s.lacks(s.vault, id)
	}
}

// inState creates a plan with all kinds of objects, in one of the three states in which plans are stored.
func (s *stage) inState(n int) *workflow.Plan {
	s.Helper()
	return [...]func(*workflow.Plan) *workflow.Plan{s.create, s.started, s.completed}[n%3](allKinds())
}

// wholeOrGone reports whether the plan exists after a Delete that returned err. If it exists it must be
// whole.
func (s *stage) wholeOrGone(plan *workflow.Plan, err error) bool {
	s.Helper()
	got := s.find(s.vault, plan.ID)
	switch {
	case got == nil:
		if err != nil && !errors.Is(err, storage.ErrUnknown) {
			s.Errorf("Delete removed the plan, but did not return nil or ErrUnknown: %v", err)
		}
	case err == nil:
		s.Errorf("Delete returned nil, but the plan is still there")
	default:
		s.same(plan, got)
	}
	return got != nil
}
