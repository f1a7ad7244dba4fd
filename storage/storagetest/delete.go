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

func deleteCases() []Case {
	return slices.Concat([]Case{
		on("delete/a plan in any state is gone for every reader and node at once", func(s *stage) {
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
		}),
		on("delete/of what is not there is ErrNotFound", func(s *stage) {
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
		}),
		on("delete/other plans stay as they are", func(s *stage) {
			doomed := s.started(allKinds())
			var others []*workflow.Plan
			for i := range 3 {
				plan := allKinds()
				plan.ID = doomed.ID
				plan.ID[15-i] ^= 1 // as near as can be
				others = append(others, s.started(plan))
			}
			s.must(s.vault.Delete(s.ctx, doomed.ID))
			for _, plan := range others {
				s.shows(s.vault, plan)
				s.must(finishParts(s.ctx, s.vault, plan))
			}
		}),
		on("delete/a plan of many parts leaves none of them", func(s *stage) {
			plan := s.create(plantest.Sized(1, 3, 90))
			s.must(s.vault.Delete(s.ctx, plan.ID))
			s.lacks(s.vault, plan.ID)
		}),
		on("delete/by two nodes at once removes the plan, and fails only with ErrNotFound", func(s *stage) {
			nodes := []storage.Vault{s.vault, s.open()}
			for range 8 {
				plan := s.started(allKinds())
				errs := make([]error, 4)
				_ = atOnce(len(errs), func(i int) error { errs[i] = nodes[i%2].Delete(s.ctx, plan.ID); return nil })
				if !slices.Contains(errs, nil) {
					s.Errorf("none succeeded: %v", errs)
				}
				for _, err := range errs {
					if err != nil {
						s.want(storage.ErrNotFound, "Delete", plan.ID, err)
					}
				}
				s.lacks(s.vault, plan.ID)
			}
		}),
		on("delete/readers see the plan whole until it is gone", func(s *stage) {
			for _, plan := range []*workflow.Plan{s.create(plantest.Full()), s.started(plantest.Full()), s.completed(plantest.Full())} {
				gone := make(chan error, 1)
				other := s.open()
				go func() { gone <- other.Delete(s.ctx, plan.ID) }()
				seenGone := false
				for deleted := false; !deleted; {
					select {
					case err := <-gone:
						s.must(err)
						deleted = true
					default:
					}
					got, err := s.vault.Read(s.ctx, plan.ID)
					switch {
					case err != nil:
						s.want(storage.ErrNotFound, "Read", plan.ID, err)
						seenGone = true
					case deleted, seenGone:
						s.Fatalf("the plan came back")
					default:
						s.same(plan, got)
					}
				}
			}
		}),
		on("delete/beside updates removes the plan for good", func(s *stage) {
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
					s.Errorf("an update beside the Delete: %v", worked)
				}
				s.lacks(s.vault, plan.ID)
			}
		}),
		on("delete/a death at any request leaves the plan whole or gone, and the same call finishes", func(s *stage) {
			for d := range s.deaths() {
				plan := s.inState(d.n)
				err := d.run(func(ctx context.Context, v storage.Vault) error { return v.Delete(ctx, plan.ID) })
				s.wholeOrGone(plan, err)
				if err := s.vault.Delete(s.ctx, plan.ID); err != nil {
					s.want(storage.ErrNotFound, "Delete", plan.ID, err)
				}
				s.lacks(s.vault, plan.ID)
			}
		}),
		on("delete/a death at any request leaves what Recovery finishes, or leaves whole", func(s *stage) {
			var whole []*workflow.Plan
			var gone []uuid.UUID
			for d := range s.deaths() {
				plan := s.inState(d.n)
				err := d.run(func(ctx context.Context, v storage.Vault) error { return v.Delete(ctx, plan.ID) })
				if s.wholeOrGone(plan, err) {
					whole = append(whole, plan)
				} else {
					gone = append(gone, plan.ID)
				}
			}
			s.recoverAll()
			for _, plan := range whole {
				s.shows(s.vault, plan)
			}
			for _, id := range gone {
				s.lacks(s.vault, id)
			}
		}),
	}, contextCases("delete"))
}

// inState creates a plan of all kinds in one of the three states that plans are stored in.
func (s *stage) inState(n int) *workflow.Plan {
	s.Helper()
	return [...]func(*workflow.Plan) *workflow.Plan{s.create, s.started, s.completed}[n%3](allKinds())
}

// wholeOrGone says whether a plan is there, whole, after a Delete that ended with err.
func (s *stage) wholeOrGone(plan *workflow.Plan, err error) bool {
	s.Helper()
	got := s.find(s.vault, plan.ID)
	switch {
	case got == nil:
		if err != nil && !errors.Is(err, storage.ErrUnknown) {
			s.Errorf("the plan is gone, and Delete did not say ErrUnknown: %v", err)
		}
	case err == nil:
		s.Errorf("Delete returned nil, and the plan is there")
	default:
		s.same(plan, got)
	}
	return got != nil
}
