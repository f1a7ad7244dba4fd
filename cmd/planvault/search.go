package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
)

// searchCommand finds plans by ID, or by what the flags select.
func (a *app) searchCommand() *cobra.Command {
	var s selection
	var p page
	var o *order[planRow]
	c := a.onVault("search [ID...]", "Find plans by ID, status, group, name or time",
		func(ctx context.Context, v *azblob.Vault, args []string) (err error) {
			f := s.filters(time.Now())
			if f.ByIDs, err = a.planIDs(ctx, v, args); err != nil {
				return err
			}
			if selectsAll(f) {
				return usageError("search needs an ID or a flag that selects plans; planvault list shows all")
			}
			if err := a.bound(ctx, v, &p, &f); err != nil {
				return err
			}
			if len(args) > 0 && !p.flags.Changed("limit") {
				f.Limit = 0 // all that were asked for
			}
			return a.search(ctx, v, f, o)
		})
	c.Args = cobra.ArbitraryArgs
	s.addFlags(c.Flags())
	p.addFlags(c.Flags())
	o = addSort(c.Flags(), a.planColumns(), "sort the plans of the page")
	return c
}

// search prints the plans that filters select. It fails if it finds none, or lacks one of the IDs. A plan that was asked
// for twice is missed once.
func (a *app) search(ctx context.Context, v storage.Reader, f storage.Filters, o *order[planRow]) error {
	missing, some := slices.Clone(f.ByIDs), false
	found := func(yield func(storage.Stream[storage.ListResult]) bool) {
		for r := range search(ctx, v, f) {
			some = true
			missing = slices.DeleteFunc(missing, func(id uuid.UUID) bool { return id == r.Result.ID || id == planOfError(r.Err) })
			if !yield(r) {
				return
			}
		}
	}
	if err := a.printPlans(found, f.Limit, o); err != nil {
		return err
	}
	slices.SortFunc(missing, func(x, y uuid.UUID) int { return slices.Compare(x[:], y[:]) })
	for _, id := range slices.Compact(missing) {
		a.complain(fmt.Errorf("plan %s: not found, or not selected by the flags", id))
	}
	switch {
	case len(missing) > 0:
		return errFound
	case !some:
		return &exitError{exitFound, fmt.Errorf("search: no plan matches")}
	}
	return nil
}
