package main

import (
	"context"
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
	c := a.onVault("purge [ID...]", "Remove single plans",
		func(ctx context.Context, v *azblob.Vault, args []string) (err error) {
			f := s.filters(time.Now())
			if f.ByIDs, err = parsePlanIDs(args); err != nil {
				return err
			}
			if !includeOpen && slices.ContainsFunc(f.ByStatus, isOpen) {
				return usageError("--status has an open status, and open plans stay: give --include-open to remove them, too")
			}
			return a.purge(ctx, v, storage.PurgeOptions{Select: f, IncludeOpen: includeOpen, Budget: b.timeLeft()}, b.dryRun)
		})
	c.Args = cobra.ArbitraryArgs
	s.addFlags(c.Flags())
	b.addFlags(c.Flags())
	b.addBudget(c.Flags())
	c.Flags().BoolVar(&includeOpen, "include-open", false, "also remove open plans: an engine that runs one loses it in the middle of its work")
	return c
}

// purgePlanned is what a purge would remove.
type purgePlanned struct {
	planned
	Plans    int64    `json:"plans"`
	Open     int64    `json:"open,omitzero"`
	Held     int64    `json:"held"`
	HeldDays []string `json:"heldDays,omitempty"`

	err error // of plans that can't be read
}

// purgeDone is what a purge removed.
type purgeDone struct {
	Removed  int64    `json:"removed"`
	Gone     int64    `json:"gone"`
	Held     int64    `json:"held"`
	HeldDays []string `json:"heldDays,omitempty"`
	Failed   int64    `json:"failed"`
	More     bool     `json:"more"`
}

func (a *app) purge(ctx context.Context, v *azblob.Vault, o storage.PurgeOptions, dryRun bool) error {
	plan, err := a.planPurge(ctx, v, o)
	if err != nil {
		return err
	}
	d := due{
		change: change{doing: "purge", what: plural(plan.Plans, "plan"), requests: estimate(a.meter.traffic().requests, step{purgePlan, plan.Plans})},
		n:      plan.Plans, err: plan.err,
		wouldDo: func(p planned) error {
			plan.planned = p
			return a.print(plan, plan.text)
		},
		nothing: func() error {
			nothing := purgeDone{Held: plan.Held, HeldDays: plan.HeldDays}
			return a.print(nothing, nothing.text)
		},
	}
	if plan.Open > 0 {
		d.warning = fmt.Sprintf("WARNING: %s of these plans are open. An engine that runs one of them loses it in the middle of its work,\nand nothing undoes what its actions did. planvault stop ends a plan in order.\n", count(plan.Open))
	}
	return a.carryOut(ctx, dryRun, d, func() (bool, error) { return a.runPurge(ctx, v, plan.Plans+plan.Held, o) })
}

// runPurge removes plans, and prints how many.
func (a *app) runPurge(ctx context.Context, v *azblob.Vault, plans int64, o storage.PurgeOptions) (more bool, err error) {
	p := a.progress("purge", "plan", plans).then(goOn)
	o.Progress = p.reach
	report, err := storage.Purge(ctx, v, o)
	p.end()
	done := purgeDone{report.Deleted, report.Gone, report.Held, dates(report.HeldDays), report.Failed, report.More}
	if printErr := a.print(done, done.text); printErr != nil {
		return false, printErr
	}
	return report.More, err
}

// planPurge looks at what a purge would remove.
func (a *app) planPurge(ctx context.Context, v *azblob.Vault, o storage.PurgeOptions) (purgePlanned, error) {
	p := a.progress("look", "plan", 0).then(untouched)
	defer p.end()
	o.DryRun, o.Budget = true, 0
	o.Progress = p.reach
	found, err := storage.Purge(ctx, v, o)
	if found.More || found.Failed == 0 && err != nil { // a plan that can't be read does not keep the others
		return purgePlanned{}, err
	}
	plan := purgePlanned{Plans: found.Deleted, Held: found.Held, HeldDays: dates(found.HeldDays), err: err}
	if o.IncludeOpen {
		plan.Open, err = countOpen(ctx, v, o.Select)
		return plan, err
	}
	return plan, nil
}

func isOpen(s workflow.Status) bool { return !s.Final() }

// countOpen counts the open plans among those that filters select.
func countOpen(ctx context.Context, v storage.Reader, f storage.Filters) (int64, error) {
	open := slices.DeleteFunc(slices.Clone(f.ByStatus), workflow.Status.Final)
	if len(f.ByStatus) == 0 {
		open = []workflow.Status{workflow.NotStarted, workflow.Running}
	}
	if len(open) == 0 {
		return 0, nil
	}
	f.ByStatus = open
	return v.Count(ctx, f)
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
func writeHeld(w io.Writer, plans int64, days []string) {
	if plans > 0 {
		fmt.Fprintf(w, "%s kept because of held days: %s\n", plural(plans, "plan"), strings.Join(days, " "))
	}
}
