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
	c := a.onVault("list", "List plans, newest first",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			f := s.filters(time.Now())
			if err := p.bound(&f); err != nil {
				return err
			}
			return a.printPlans(search(ctx, v, f), f.Limit)
		})
	s.addFlags(c.Flags())
	p.addFlags(c.Flags())
	return c
}

// printPlans prints plans as they come. It names those that can't be read on stderr, and counts them in its error.
func (a *app) printPlans(found iter.Seq[storage.Stream[storage.ListResult]], limit int) error {
	t := newStream(a, planRow.cells, "PLAN", "STATUS", "SUBMITTED", ">TOOK", "NAME")
	p := a.progress("list", "plan", 0)
	defer p.end()
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
			return errors.Join(t.end(), r.Err)
		}
		if err := t.add(planRowOf(r.Result)); err != nil {
			return err
		}
		printed, last = printed+1, r.Result.ID
		p.at(printed)
	}
	if err := t.end(); err != nil {
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
