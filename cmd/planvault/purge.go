package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// purgeCommand removes single plans.
func (a *app) purgeCommand() *cobra.Command {
	var s selection
	var b bulk
	var includeOpen bool
	var keep string
	c := a.onVault("purge [ID...]", "Remove single plans",
		func(ctx context.Context, v *azblob.Vault, args []string) (err error) {
			f := s.filters(time.Now())
			if f.ByIDs, err = parsePlanIDs(args); err != nil {
				return err
			}
			if !includeOpen && slices.ContainsFunc(f.ByStatus, isOpen) {
				return usageError("--status has an open status, and open plans stay: give --include-open to remove them, too")
			}
			return a.purge(ctx, v, f, storage.PurgeOptions{By: a.attributionOf(ctx), IncludeOpen: includeOpen, Budget: b.timeLeft()}, keep, b.dryRun)
		})
	c.Args = cobra.ArbitraryArgs
	s.addFlags(c.Flags())
	b.addFlags(c.Flags())
	addKeep(c.Flags(), &keep)
	c.Flags().BoolVar(&includeOpen, "include-open", false, "also remove open plans: an engine that runs one loses it in the middle of its work")
	return a.signed(c)
}

// purgePlanned is what a purge would remove.
type purgePlanned struct {
	planned
	Plans    int      `json:"plans" help:"how many plans would be removed"`
	Open     int      `json:"open,omitzero" help:"how many of them are open"`
	Held     int      `json:"held" help:"how many would be kept because their day is held"`
	HeldDays []string `json:"heldDays,omitempty" help:"these days"`
}

// purgeDone is what a purge removed.
type purgeDone struct {
	Removed  int      `json:"removed" help:"how many plans were removed"`
	Gone     int      `json:"gone" help:"how many somebody else removed first"`
	Held     int      `json:"held" help:"how many were kept because their day is held"`
	HeldDays []string `json:"heldDays,omitempty" help:"these days"`
	Failed   int      `json:"failed" help:"how many could not be removed"`
	Foreign  int      `json:"foreign,omitzero" help:"how many plans of another program it left out"`
	More     bool     `json:"more" help:"whether the budget ended it early"`
}

func (a *app) purge(ctx context.Context, v *azblob.Vault, f storage.Filters, o storage.PurgeOptions, keep string, dryRun bool) error {
	run := func(ctx context.Context, p *progress, o storage.PurgeOptions) (storage.PurgeReport, error) {
		defer p.end()
		o.Progress = p.reach
		return storage.Purge(ctx, v, storage.SelectWhere(f), o)
	}
	look := o
	look.DryRun, look.Budget = true, 0
	found, failed := run(ctx, a.progress("look", "plan", 0).then(untouched), look)
	if found.More || found.Failed == 0 && failed != nil { // a plan that can't be read does not keep the others
		return failed
	}
	a.noteForeign(found.Foreign)
	plan := purgePlanned{Plans: found.Deleted, Held: found.Held, HeldDays: dates(found.HeldDays)}
	warning := ""
	if o.IncludeOpen {
		var err error
		if plan.Open, err = countOpen(ctx, v, f); err != nil {
			return err
		}
	}
	if plan.Open > 0 {
		warning = fmt.Sprintf("WARNING: %s of these plans are open. An engine that runs one of them loses it in the middle of its work,\nand nothing undoes what its actions did. planvault stop ends a plan in order.\n", count(plan.Open))
	}
	steps := []step{{purgePlan, plan.Plans}}
	if keep != keepNone {
		steps = append(steps, step{readPlan, plan.Plans})
	}
	requests := estimate(a.meter.traffic().requests, steps...)
	return carryOut(ctx, a, dryRun, due[storage.PurgeReport]{
		change:  change{doing: "purge", what: plural(plan.Plans, "plan"), requests: requests, warning: warning},
		journal: v, entry: about("purge", f.ByIDs...),
		n: plan.Plans, found: storage.PurgeReport{Held: found.Held, HeldDays: found.HeldDays}, err: failed,
		wouldDo: func(p planned) error {
			plan.planned = p
			return a.print(plan, plan.text)
		},
		do: func(ctx context.Context) (r storage.PurgeReport, err error) {
			k, err := a.keep(keep, "purge")
			if err != nil {
				return r, err
			}
			if k.keeper != nil {
				o.Keep = k.keeper.Keep
			}
			r, err = run(ctx, a.progress("purge", "plan", plan.Plans+plan.Held).then(goOn), o)
			return r, errors.Join(err, a.endKeeping(k))
		},
		done: func(r storage.PurgeReport, _ error) (more bool, err error) {
			done := purgeDone{r.Deleted, r.Gone, r.Held, dates(r.HeldDays), r.Failed, r.Foreign, r.More}
			return r.More, a.print(done, done.text)
		},
	})
}

func isOpen(s workflow.Status) bool { return !s.Final() }

// countOpen counts the open plans among those that filters select.
func countOpen(ctx context.Context, v storage.Reader, f storage.Filters) (int, error) {
	open := slices.DeleteFunc(slices.Clone(f.ByStatus), workflow.Status.Final)
	if f.ByStatus == nil {
		open = []workflow.Status{workflow.NotStarted, workflow.Running}
	}
	if len(open) == 0 {
		return 0, nil
	}
	f.ByStatus = open
	return countOwn(ctx, v, f)
}

func (p purgePlanned) text(w io.Writer) {
	fmt.Fprintf(w, "would remove %s: %s\n", plural(p.Plans, "plan"), p.planned)
	if p.Open > 0 {
		fmt.Fprintf(w, "WARNING: %s of them are open\n", count(p.Open))
	}
	writeHeld(w, p.Held, p.HeldDays)
}

func (d purgeDone) text(w io.Writer) {
	fmt.Fprintf(w, "%s removed", plural(d.Removed, "plan"))
	if d.Gone > 0 {
		fmt.Fprintf(w, ", %s removed by others first", count(d.Gone))
	}
	if d.Failed > 0 {
		fmt.Fprintf(w, ", %s failed", count(d.Failed))
	}
	fmt.Fprintln(w, ifMore(d.More))
	writeHeld(w, d.Held, d.HeldDays)
}

// writeHeld says what was kept because it is held.
func writeHeld(w io.Writer, plans int, days []string) {
	if plans > 0 {
		fmt.Fprintf(w, "%s kept because of held days: %s\n", plural(plans, "plan"), strings.Join(days, " "))
	}
}
