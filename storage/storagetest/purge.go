package storagetest

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// purgePromises are those of Delete about many plans.
func purgePromises() []promise {
	return []promise{
		{"a purge that dies at any request is finished by another, and leaves open plans", purgeDeath},
		{"two purges on two nodes remove each plan once, beside an engine", purgeRace},
	}
}

func purgeDeath(s *stage) {
	var opens []*workflow.Plan
	for d := range s.deaths() {
		group := workflow.NewV7()
		opts := storage.PurgeOptions{Select: storage.Filters{ByGroupIDs: []uuid.UUID{group}}, Concurrency: 1}
		open := s.started(inGroup(group))
		opens = append(opens, open)
		for range 2 {
			s.completed(inGroup(group))
		}
		var died storage.PurgeReport
		err := d.run(func(ctx context.Context, v storage.Vault) (err error) {
			died, err = storage.Purge(ctx, v, opts)
			return err
		})
		if err == nil && died.Deleted != 2 {
			s.Errorf("the purge reports %+v", died)
		}
		if again, err := storage.Purge(s.ctx, s.vault, opts); err != nil || died.Deleted+again.Deleted+again.Gone > 2 || again.More {
			s.Errorf("the purge reports %+v, and the one after it %+v, %v", died, again, err)
		}
		if left := s.search(s.vault, opts.Select); len(left) != 1 || left[0].ID != open.ID {
			s.Errorf("%d plans are left, such as %+v", len(left), left)
		}
	}
	s.recoverAll()
	for _, open := range opens {
		s.shows(s.vault, open)
	}
}

func purgeRace(s *stage) {
	group := workflow.NewV7()
	running := s.started(inGroup(group))
	for range 20 {
		s.completed(inGroup(group))
	}
	var reports [2]storage.PurgeReport
	s.must(atOnce(3, func(i int) (err error) {
		if i == 2 {
			if err := finishParts(s.ctx, s.vault, running); err != nil {
				return err
			}
			return s.vault.UpdatePlan(s.ctx, running)
		}
		reports[i], err = storage.Purge(s.ctx, s.open(), storage.PurgeOptions{Select: storage.Filters{ByGroupIDs: []uuid.UUID{group}}})
		return err
	}))
	if n := reports[0].Deleted + reports[1].Deleted; n < 20 || reports[0].More || reports[1].More {
		s.Errorf("the purges report %+v", reports)
	}
	s.shows(s.vault, running)
	if left := s.search(s.vault, storage.Filters{ByGroupIDs: []uuid.UUID{group}}); len(left) != 1 {
		s.Errorf("%d plans are left", len(left))
	}
}

// inGroup returns a plan with all kinds of objects.
func inGroup(group uuid.UUID) *workflow.Plan {
	plan := allKinds()
	plan.GroupID = group
	return plan
}
