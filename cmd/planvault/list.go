package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/storage"
)

// listCommand shows the newest plans, those with certain IDs, or what the flags select.
func (a *app) listCommand() *cobra.Command {
	var s selection
	var p page
	var o *order[report.Listed]
	var again repeat
	c := a.onVault("list [ID...]", "List plans, newest first: all, or by ID, status, group, label, name or time",
		func(ctx context.Context, v *azblob.Vault, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			ids, err := a.planIDs(ctx, v, args)
			if err != nil {
				return err
			}
			return a.repeat(ctx, again, func(ctx context.Context) error {
				f := s.filters(time.Now())
				f.ByIDs = ids
				if err := a.bound(ctx, v, &p, &f); err != nil {
					return err
				}
				if len(ids) > 0 && !p.flags.Changed("limit") {
					f.Limit = 0 // all that were asked for
				}
				return a.list(ctx, v, f, o)
			})
		})
	c.Args = cobra.ArbitraryArgs
	s.addFlags(c.Flags())
	p.addFlags(c.Flags())
	o = addSort(c.Flags(), a.planColumns(), "sort the plans of the page")
	again.addFlags(c.Flags())
	return c
}

// list prints the plans that filters select. It fails if it lacks one of the IDs. A plan that was asked for twice is missed
// once.
func (a *app) list(ctx context.Context, v storage.Reader, f storage.Filters, o *order[report.Listed]) error {
	missing, limit := slices.Clone(f.ByIDs), f.Limit
	if limit > 0 {
		f.Limit++ // one more tells that there are more
	}
	found := func(yield func(storage.Stream[storage.ListResult]) bool) {
		for r := range search(ctx, v, f) {
			missing = slices.DeleteFunc(missing, func(id uuid.UUID) bool { return id == r.Result.ID || id == planOfError(r.Err) })
			if !yield(r) {
				return
			}
		}
	}
	if err := a.printPlans(found, limit, o); err != nil || len(missing) == 0 {
		return err
	}
	slices.SortFunc(missing, func(x, y uuid.UUID) int { return slices.Compare(x[:], y[:]) })
	for _, id := range slices.Compact(missing) {
		a.complain(fmt.Errorf("plan %s: not found, or not selected by the flags", id))
	}
	return errFound
}

// printPlans prints plans as they come, or in another order when all have come; of more than limit, it prints so many and
// says that there are more. It names those that can't be read on stderr, and counts them in its error.
func (a *app) printPlans(found iter.Seq[storage.Stream[storage.ListResult]], limit int, o *order[report.Listed]) error {
	t := newColumns(a, a.planColumns()).streamed()
	p := a.progress("list", "plan", 0)
	defer p.end()
	var rows []report.Listed // what is to be sorted
	var last uuid.UUID
	var printed, unread, foreign int
	more := false
	for r := range found {
		if more = limit > 0 && printed == limit; more {
			break
		}
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
			rows = append(rows, report.ListedOf(r.Result))
		default:
			if err := t.add(report.ListedOf(r.Result)); err != nil {
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
	if more {
		fmt.Fprintf(a.stderr, "planvault: there are more plans than these %s: --page %s goes on, --all shows all\n", count(printed), last)
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
