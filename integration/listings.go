package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

const (
	listedDays = 3
	perDay     = 4
)

// createDays creates the plans of the listings: perDay plans on each of several days, each in another status.
func (s *stage) createDays(ctx context.Context) (err error) {
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	for i := range listedDays * perDay {
		p := plantest.Small()
		p.ID = idAt(midnight.AddDate(0, 0, i/perDay-listedDays).Add(time.Duration(i%perDay) * 6 * time.Hour))
		p.Name = fmt.Sprintf("plan %d", i)
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
	}
	return nil
}

// list shows listings and searches. Their plans stay for the steps that follow.
func list(ctx context.Context, s *stage) error {
	search := func(f storage.Filters, matches func(*workflow.Plan) bool) func() error {
		return func() error {
			want := slices.DeleteFunc(s.newestFirst(), func(p *workflow.Plan) bool { return !matches(p) })
			got, err := s.vault.Search(ctx, f)
			if err == nil {
				err = sameList(got, want)
			}
			n, countErr := s.vault.Count(ctx, f)
			if countErr == nil && n != int64(len(want)) {
				countErr = fmt.Errorf("the count is %d, want %d", n, len(want))
			}
			return errors.Join(err, countErr)
		}
	}
	name := fmt.Sprintf("plan %d", perDay)
	return s.acts(
		call{fmt.Sprintf("Create %d plans on each of %d days", perDay, listedDays), func() error { return s.createDays(ctx) }},
		call{"List", func() error { return s.listed(ctx, s.vault) }},
		call{"List the newest 5", func() error {
			got, err := s.vault.List(ctx, 5)
			if err != nil {
				return err
			}
			return sameList(got, s.newestFirst()[:5])
		}},
		call{"Search and Count by status", search(storage.Filters{ByStatus: []workflow.Status{workflow.Completed, workflow.Failed}}, func(p *workflow.Plan) bool {
			return p.State.Status.Final()
		})},
		call{"Search and Count by name", search(storage.Filters{NamePrefix: name}, func(p *workflow.Plan) bool {
			return strings.HasPrefix(p.Name, name)
		})},
	)
}
