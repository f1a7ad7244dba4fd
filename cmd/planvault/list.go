package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob/storage"
)

// listCommand shows the newest plans.
func (a *app) listCommand() *cobra.Command {
	var s selection
	var p page
	c := &cobra.Command{
		Use:   "list",
		Short: "List plans, newest first",
		Long: `List shows the newest plans. Flags select some of them; --page goes on after the last plan of
a page. A page of 50 takes 3 to 5 requests, however many plans there are.`,
		Example: `  planvault list
  planvault list --status failed --created-after 24h
  planvault list --page 0198c0de-0000-7000-8000-000000000001`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f, err := s.filters(time.Now())
			if err != nil {
				return err
			}
			return a.list(c.Context(), f, p)
		},
	}
	s.addFlags(c.Flags())
	p.addFlags(c.Flags())
	return c
}

// list prints a page of the plans that filters select.
func (a *app) list(ctx context.Context, f storage.Filters, p page) error {
	if err := p.bound(&f); err != nil {
		return err
	}
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	found, err := search(ctx, v, f)
	if err != nil {
		return err
	}
	t := newTable(a, planColumns()...)
	var errs []error
	var last uuid.UUID
	n := 0
	for r := range found {
		if r.Err != nil {
			errs = append(errs, r.Err)
			continue
		}
		if err := t.add(planRowOf(r.Result)); err != nil {
			return err
		}
		n, last = n+1, r.Result.ID
	}
	if err := t.end(); err != nil {
		return err
	}
	if n == f.Limit && n > 0 && a.stderrIsTerm {
		fmt.Fprintf(a.stderr, "The next page: --page %s\n", last)
	}
	return errors.Join(errs...)
}
