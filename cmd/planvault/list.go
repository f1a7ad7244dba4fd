package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
)

// listCommand shows the newest plans.
func (a *app) listCommand() *cobra.Command {
	var s selection
	var p page
	var o *order[planRow]
	var again repeat
	c := a.onVault("list", "List plans, newest first",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			return a.repeat(ctx, again, func(ctx context.Context) error {
				f := s.filters(time.Now())
				if err := a.bound(ctx, v, &p, &f); err != nil {
					return err
				}
				return a.printPlans(search(ctx, v, f), f.Limit, o)
			})
		})
	s.addFlags(c.Flags())
	p.addFlags(c.Flags())
	o = addSort(c.Flags(), a.planColumns(), "sort the plans of the page")
	again.addFlags(c.Flags())
	return c
}

// printPlans prints plans as they come, or in another order when all have come. It names those that can't be read on
// stderr, and counts them in its error.
func (a *app) printPlans(found iter.Seq[storage.Stream[storage.ListResult]], limit int, o *order[planRow]) error {
	t := newColumns(a, a.planColumns()).streamed()
	p := a.progress("list", "plan", 0)
	defer p.end()
	var rows []planRow // what is to be sorted
	var last uuid.UUID
	var printed, unread, foreign int64
	for r := range found {
		switch {
		case errors.Is(r.Err, storage.ErrForeign):
			foreign++
			continue
		case planOfError(r.Err) != uuid.Nil:
			a.complain(r.Err)
			unread++
			continue
		case r.Err != nil:
			o.sort(rows)
			return errors.Join(t.print(rows), r.Err)
		case o.compare != nil:
			rows = append(rows, planRowOf(r.Result))
		default:
			if err := t.add(planRowOf(r.Result)); err != nil {
				return err
			}
		}
		printed, last = printed+1, r.Result.ID
		p.at(printed)
	}
	o.sort(rows)
	if err := t.print(rows); err != nil {
		return err
	}
	a.noteForeign(foreign)
	if printed == int64(limit) && printed > 0 {
		a.remark("The next page: --page %s", last)
	}
	if unread > 0 {
		return fmt.Errorf("%s can't be read; planvault check names the damage", plural(unread, "plan"))
	}
	return nil
}

// planOfError returns the plan that an error of a listing is about. Others follow it, if there is one.
func planOfError(err error) uuid.UUID {
	if e, ok := errors.AsType[*storage.Error](err); ok {
		return e.Plan
	}
	return uuid.Nil
}
