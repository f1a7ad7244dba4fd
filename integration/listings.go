package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

func strange(ctx context.Context, s *stage) error {
	group := uuid.New()
	texts := append(slices.Collect(plantest.Strange()), longText(s.cfg.seed))
	plans := make([]*workflow.Plan, len(texts))
	acts := []struct {
		name string
		do   func() error
	}{
		{"Create plans with strange names and descriptions", func() error {
			var g errgroup.Group
			g.SetLimit(atOnce)
			for i, text := range texts {
				p := plantest.Small()
				p.GroupID, p.Name, p.Descr = group, text, text
				p.Blocks[0].Name, p.Blocks[0].Sequences[0].Actions[0].Descr = text, text
				if i == len(texts)-1 {
					p.Name = "description of 100 KB"
				}
				plans[i] = p
				g.Go(func() error { return s.create(ctx, s.vault, p) })
			}
			return g.Wait()
		}},
		{"Read", func() error {
			var g errgroup.Group
			g.SetLimit(atOnce)
			for _, p := range plans {
				g.Go(func() error { return reads(ctx, s.vault, p) })
			}
			return g.Wait()
		}},
		{"Search by group", func() error { return s.finds(ctx, storage.Filters{ByGroupIDs: []uuid.UUID{group}}) }},
		{"Search by ID", func() error {
			var f storage.Filters
			for _, p := range plans {
				f.ByIDs = append(f.ByIDs, p.ID)
			}
			return s.finds(ctx, f)
		}},
		{"List", func() error { return s.listed(ctx, s.vault) }},
		{"Check", func() error { return s.sound(ctx, s.vault) }},
	}
	for _, a := range acts {
		if err := s.act(a.name, a.do); err != nil {
			return err
		}
	}
	return nil
}

const (
	listedDays = 3
	perDay     = 4
)

// days makes the plans that listings are tried on, unless they are there: some on each of several days, one in each status,
// in two groups.
func (s *stage) days(ctx context.Context) error {
	if s.week != nil {
		return nil
	}
	groups := []uuid.UUID{uuid.New(), uuid.New()}
	return s.act(fmt.Sprintf("Create %d plans on each of %d days", perDay, listedDays), func() error {
		midnight := time.Now().UTC().Truncate(24 * time.Hour)
		for i := range listedDays * perDay {
			p := plantest.Small()
			p.ID = idAt(midnight.AddDate(0, 0, i/perDay-listedDays).Add(time.Duration(i%perDay) * 6 * time.Hour))
			p.GroupID, p.Name = groups[i%2], fmt.Sprintf("plan %d", i)
			var err error
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
				return err
			}
			s.week = append(s.week, p.ID)
		}
		return nil
	})
}

func list(ctx context.Context, s *stage) error {
	if err := s.days(ctx); err != nil {
		return err
	}
	v := s.vault
	acts := []struct {
		name string
		do   func() error
	}{
		{"List all", func() error { return s.listed(ctx, v) }},
		{"List 5", func() error {
			got, err := v.List(ctx, 5)
			if err != nil {
				return err
			}
			all := s.newestFirst()
			return sameList(got, all[:min(5, len(all))])
		}},
		{"List all, break after 2, then range over the same sequence again", func() error {
			got, err := v.List(ctx, 0)
			if err != nil {
				return err
			}
			n := 0
			for r := range got {
				if r.Err != nil {
					return r.Err
				}
				if n++; n == 2 {
					break
				}
			}
			return sameList(got, s.newestFirst())
		}},
		{"List with a context that ends meanwhile: the last element says so", func() error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			got, err := v.List(ctx, 0)
			if err != nil {
				return err
			}
			var last error
			for r := range got {
				cancel()
				last = r.Err
			}
			return is(last, context.Canceled)
		}},
	}
	for _, a := range acts {
		if err := s.act(a.name, a.do); err != nil {
			return err
		}
	}
	return nil
}

// finds holds a search against what the filters choose of the plans that must be there.
func (s *stage) finds(ctx context.Context, f storage.Filters) error {
	got, err := s.vault.Search(ctx, f)
	if err != nil {
		return err
	}
	return sameList(got, chosen(s.newestFirst(), f))
}

// chosen is what filters mean.
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
			f.BeforeID != uuid.Nil && p.ID.String() >= f.BeforeID.String():
			continue
		}
		list = append(list, p)
	}
	if f.Limit > 0 && len(list) > f.Limit {
		list = list[:f.Limit]
	}
	return list
}

func search(ctx context.Context, s *stage) error {
	if err := s.days(ctx); err != nil {
		return err
	}
	id := func(i int) uuid.UUID { return s.week[i] }
	group := func(i int) uuid.UUID { return s.plans[id(i)].GroupID }
	first, second := workflow.Time(id(0)), workflow.Time(id(perDay)) // midnights
	for _, c := range []struct {
		name string
		f    storage.Filters
	}{
		{"by IDs, one of them of no plan and one twice", storage.Filters{ByIDs: []uuid.UUID{id(3), id(9), workflow.NewV7(), id(0), id(3)}}},
		{"by group", storage.Filters{ByGroupIDs: []uuid.UUID{group(0)}}},
		{"by two groups", storage.Filters{ByGroupIDs: []uuid.UUID{group(0), group(1)}}},
		{"by a group of no plan", storage.Filters{ByGroupIDs: []uuid.UUID{uuid.New()}}},
		{"by status NotStarted", storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}}},
		{"by status Running", storage.Filters{ByStatus: []workflow.Status{workflow.Running}}},
		{"by status Completed or Failed", storage.Filters{ByStatus: []workflow.Status{workflow.Completed, workflow.Failed}}},
		{"by status Stopped", storage.Filters{ByStatus: []workflow.Status{workflow.Stopped}}},
		{"after the second day's first plan", storage.Filters{After: second}},
		{"before the second day's first plan", storage.Filters{Before: second}},
		{"from the first day's first plan on", storage.Filters{After: first.Add(-time.Millisecond)}},
		{"after and before", storage.Filters{After: first.Add(6 * time.Hour), Before: second.Add(18 * time.Hour)}},
		{"before an ID", storage.Filters{BeforeID: id(7)}},
		{"before an ID of no plan", storage.Filters{BeforeID: idAt(second.Add(time.Hour))}},
		{"the newest 7", storage.Filters{Limit: 7}},
		{"by group, status and time, the newest 2", storage.Filters{
			ByGroupIDs: []uuid.UUID{group(1)}, ByStatus: []workflow.Status{workflow.Running, workflow.Failed}, After: first, Before: second.Add(24 * time.Hour), Limit: 2,
		}},
		{"by IDs and status", storage.Filters{ByIDs: s.week, ByStatus: []workflow.Status{workflow.Completed}}},
		{"by IDs and group, before an ID, the newest 3", storage.Filters{ByIDs: s.week, ByGroupIDs: []uuid.UUID{group(0)}, BeforeID: id(10), Limit: 3}},
	} {
		if err := s.act("Search "+c.name, func() error { return s.finds(ctx, c.f) }); err != nil {
			return err
		}
	}
	return s.act("Search page by page of 5, each before the last ID of the one before", func() error {
		f := storage.Filters{ByGroupIDs: []uuid.UUID{group(0), group(1)}, Limit: 5}
		var all []uuid.UUID
		for range len(s.week) { // no more pages than plans
			page := 0
			got, err := s.vault.Search(ctx, f)
			if err != nil {
				return err
			}
			for r := range got {
				if r.Err != nil {
					return r.Err
				}
				all = append(all, r.Result.ID)
				page++
			}
			if page < f.Limit {
				break
			}
			f.BeforeID = all[len(all)-1]
		}
		slices.Reverse(all)
		if !slices.Equal(all, s.week) {
			return fmt.Errorf("the pages have the plans %v, want %v", all, s.week)
		}
		return nil
	})
}
