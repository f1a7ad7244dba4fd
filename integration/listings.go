package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

const (
	listedDays = 3
	perDay     = 4
)

// createDays creates the plans of the listings: perDay plans on each of several days, each in another status,
// in two groups. It returns them oldest first.
func (s *stage) createDays(ctx context.Context) (plans []*workflow.Plan, err error) {
	groups := []uuid.UUID{uuid.New(), uuid.New()}
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	for i := range listedDays * perDay {
		p := plantest.Small()
		p.ID = idAt(midnight.AddDate(0, 0, i/perDay-listedDays).Add(time.Duration(i%perDay) * 6 * time.Hour))
		p.GroupID, p.Name = groups[i%2], fmt.Sprintf("plan %d", i)
		switch i % perDay {
		case 0:
			err = s.create(ctx, s.vault, p)
		case 1:
			err = s.run(ctx, s.vault, p)
		case 2:
			err = errors.Join(s.run(ctx, s.vault, p), s.end(ctx, s.vault, p, workflow.Completed, workflow.NoFailure))
		case 3:
			err = errors.Join(s.run(ctx, s.vault, p), s.end(ctx, s.vault, p, workflow.Failed, workflow.BlockFailed))
		}
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// list shows listings and searches. Their plans stay for the steps that follow.
func list(ctx context.Context, s *stage) error {
	var plans []*workflow.Plan
	search := func(f func() storage.Filters) func() error {
		return func() error { return s.finds(ctx, f()) }
	}
	return s.acts(
		call{fmt.Sprintf("Create %d plans on each of %d days", perDay, listedDays), func() (err error) {
			plans, err = s.createDays(ctx)
			return err
		}},
		call{"List", func() error { return s.listed(ctx, s.vault) }},
		call{"List the newest 5", func() error {
			got, err := s.vault.List(ctx, 5)
			if err != nil {
				return err
			}
			return sameList(got, s.newestFirst()[:5])
		}},
		call{"Search by IDs; one of them is of no plan", search(func() storage.Filters {
			return storage.Filters{ByIDs: []uuid.UUID{plans[3].ID, plans[9].ID, workflow.NewV7(), plans[0].ID}}
		})},
		call{"Search by group", search(func() storage.Filters {
			return storage.Filters{ByGroupIDs: []uuid.UUID{plans[0].GroupID}}
		})},
		call{"Search by status", search(func() storage.Filters {
			return storage.Filters{ByStatus: []workflow.Status{workflow.Completed, workflow.Failed}}
		})},
		call{"Search by group, status and time, the newest 2", search(func() storage.Filters {
			first, last := workflow.Time(plans[0].ID), workflow.Time(plans[2*perDay].ID)
			return storage.Filters{
				ByGroupIDs: []uuid.UUID{plans[1].GroupID}, ByStatus: []workflow.Status{workflow.Running, workflow.Failed},
				After: first, Before: last, Limit: 2,
			}
		})},
		call{"Search by name and end, and Count", func() error { return s.searchedAndCounted(ctx) }},
		call{"Search in pages of 5; each begins before the last ID of the page before it", func() error { return s.pages(ctx, plans) }},
	)
}

// finds compares the result of a search with the expected plans that the filters choose.
func (s *stage) finds(ctx context.Context, f storage.Filters) error {
	got, err := s.vault.Search(ctx, f)
	if err != nil {
		return err
	}
	return sameList(got, chosen(s.newestFirst(), f))
}

// searchedAndCounted compares a search by name and end, and counts, with the expected plans.
func (s *stage) searchedAndCounted(ctx context.Context) error {
	plans := s.newestFirst()
	filters := []storage.Filters{
		{After: workflow.Time(plans[len(plans)-1].ID).Add(-time.Millisecond)},
		{NameContains: plans[0].Name},
	}
	for _, p := range plans {
		if p.State.Status.Final() && !p.State.End.IsZero() {
			filters = append(filters, storage.Filters{EndedAfter: p.State.End.Add(-1), EndedBefore: p.State.End.Add(1), NamePrefix: p.Name})
			break
		}
	}
	for _, f := range filters {
		if err := s.finds(ctx, f); err != nil {
			return err
		}
		want := int64(len(chosen(plans, f)))
		if n, err := s.vault.Count(ctx, f); n != want || err != nil {
			return fmt.Errorf("a Count of %+v: %d, %w, want %d", f, n, err, want)
		}
	}
	return nil
}

// chosen returns the plans that match the filters.
func chosen(newestFirst []*workflow.Plan, f storage.Filters) []*workflow.Plan {
	var list []*workflow.Plan
	for _, p := range newestFirst {
		created := workflow.Time(p.ID)
		switch {
		case len(f.ByIDs) > 0 && !slices.Contains(f.ByIDs, p.ID),
			len(f.ByGroupIDs) > 0 && !slices.Contains(f.ByGroupIDs, p.GroupID),
			len(f.ByStatus) > 0 && !slices.Contains(f.ByStatus, p.State.Status),
			!f.After.IsZero() && !created.After(f.After),
			!f.Before.IsZero() && !created.Before(f.Before),
			!strings.HasPrefix(p.Name, f.NamePrefix), !strings.Contains(p.Name, f.NameContains),
			!f.EndedAfter.IsZero() && !(p.State.Status.Final() && p.State.End.After(f.EndedAfter)),
			!f.EndedBefore.IsZero() && !(p.State.Status.Final() && p.State.End.Before(f.EndedBefore)),
			!f.EndedBefore.IsZero() && created.Sub(f.EndedBefore) >= storage.MaxAhead:
			continue
		}
		list = append(list, p)
	}
	if f.Limit > 0 && len(list) > f.Limit {
		list = list[:f.Limit]
	}
	return list
}

// pages reads all plans in pages, newest first.
func (s *stage) pages(ctx context.Context, plans []*workflow.Plan) error {
	f := storage.Filters{ByGroupIDs: []uuid.UUID{plans[0].GroupID, plans[1].GroupID}, Limit: 5}
	var ids []uuid.UUID
	for range len(plans) { // no more pages than plans
		page, err := storage.Collect(s.vault.Search(ctx, f))
		if err != nil {
			return err
		}
		for _, r := range page {
			ids = append(ids, r.ID)
		}
		if len(page) < f.Limit {
			break
		}
		f.BeforeID = ids[len(ids)-1]
	}
	slices.Reverse(ids)
	if !slices.EqualFunc(ids, plans, func(id uuid.UUID, p *workflow.Plan) bool { return id == p.ID }) {
		return fmt.Errorf("the pages have %v, want all plans", ids)
	}
	return nil
}
