package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
)

// holdCommand holds days.
func (a *app) holdCommand() *cobra.Command {
	list := false
	c := a.dayCommand("hold DAY|FROM..TO...", "Keep the plans of days from being removed, or list the days that are held",
		func(_ context.Context, v *azblob.Vault, d days) (dayChange, error) {
			hold := func(ctx context.Context, day storage.Day) error {
				slow := time.AfterFunc(tellWait, func() {
					fmt.Fprintf(a.stderr, "Waiting to hold %s until no purge or expiry is under way there. One that was interrupted ends when Recovery has run, %s after it began at the latest.\n", day.String(), span(longestDelete))
				})
				defer slow.Stop()
				return v.Admin().Hold(ctx, day, a.attributionOf(ctx))
			}
			return dayChange{days: d, doing: "hold", done: "held", takes: step{holdDay, len(d)}, do: hold}, nil
		})
	change := c.RunE
	c.Args = nil
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case list && (len(args) > 0 || c.Flags().Changed("dry-run")):
			return usageError("--list takes no days, and changes nothing")
		case list:
			return a.holds(c.Context())
		case len(args) == 0:
			return usageError("hold needs a day, or --list")
		}
		return change(c, args)
	}
	c.Flags().BoolVar(&list, "list", false, "list the days that are held, oldest first")
	return c
}

// Hold tells why it waits when it has waited for tellWait. A Delete that was interrupted ends when Recovery finds its marker
// older than the grace period and the margin, which are longestDelete.
const (
	tellWait      = 10 * time.Second
	longestDelete = 12*time.Minute + 31*time.Second
)

// releaseCommand ends holds. Of ranges it takes the days that are held.
func (a *app) releaseCommand() *cobra.Command {
	return a.dayCommand("release DAY|FROM..TO...", "End the hold of days",
		func(ctx context.Context, v *azblob.Vault, d days) (dayChange, error) {
			a.progress("look", "day", 0).then(untouched)
			var held []storage.Day
			var err error
			if slices.Contains(slices.Collect(maps.Values(d)), false) {
				held, err = v.Admin().Holds(ctx)
				maps.DeleteFunc(d, func(day storage.Day, named bool) bool { return !named && !slices.Contains(held, day) })
			}
			release := func(ctx context.Context, day storage.Day) error {
				return v.Admin().Release(ctx, day, a.attributionOf(ctx))
			}
			return dayChange{days: d, doing: "release", done: "released", takes: step{releaseDay, len(d)}, do: release}, err
		})
}

// dayCommand returns a command that changes the days in its arguments. plan says how.
func (a *app) dayCommand(use, short string, plan func(context.Context, *azblob.Vault, days) (dayChange, error)) *cobra.Command {
	dryRun := false
	c := a.onVault(use, short, func(ctx context.Context, v *azblob.Vault, args []string) error {
		d, err := parseDays(args)
		if err != nil {
			return err
		}
		c, err := plan(ctx, v, d)
		if err != nil {
			return err
		}
		return a.changeDays(ctx, v, c, dryRun)
	})
	c.Args = cobra.MinimumNArgs(1)
	addDryRun(c.Flags(), &dryRun)
	return a.signed(c)
}

// holds lists the days that are held.
func (a *app) holds(ctx context.Context) error {
	v, err := a.open(ctx, a.connection)
	if err != nil {
		return err
	}
	held, err := v.Admin().Holds(ctx)
	if err != nil {
		return err
	}
	return printTable(a, heldRows(held, ""), func(r heldRow) []string { return []string{r.Day} }, "DAY")
}

// heldRow is a day, and what became of it.
type heldRow struct {
	Day    string `json:"day" help:"the day"`
	Result string `json:"result,omitempty" help:"what became of it"`
	Error  string `json:"error,omitempty" help:"why it failed"`
}

// heldRows returns a row for each day, with the same result.
func heldRows(days []storage.Day, result string) (rows []heldRow) {
	for _, day := range days {
		rows = append(rows, heldRow{Day: day.String(), Result: result})
	}
	return rows
}

func (r heldRow) cells() []string { return []string{r.Day, r.Result} }

// days are the days that arguments name. A day that only a range has is false, and need not exist.
type days map[storage.Day]bool

// sorted returns the days, oldest first.
func (d days) sorted() []storage.Day { return slices.SortedFunc(maps.Keys(d), storage.Day.Compare) }

// auditEntry returns the audit entry of a change of the days.
func (d days) auditEntry(what string) storage.AuditEntry {
	entry := storage.AuditEntry{What: what}
	if all := d.sorted(); len(all) > 0 {
		entry.From, entry.To = all[0], all[len(all)-1]
	}
	return entry
}

// mostDays is how many days the arguments of a command may name.
const mostDays = 36525

// parseDays parses days and ranges of days.
func parseDays(args []string) (days, error) {
	d := days{}
	for _, arg := range args {
		from, to, isRange := strings.Cut(arg, "..")
		if !isRange {
			to = from
		}
		first, firstErr := storage.ParseDay(from)
		last, lastErr := storage.ParseDay(to)
		switch {
		case firstErr != nil || lastErr != nil:
			return nil, usageError("%q is not a day: give 2026-08-01, or 2026-08-01..2026-08-31", printable(arg, 50))
		case last.Before(first):
			return nil, usageError("%s ends before it begins", arg)
		case last.After(first.Add(mostDays)):
			return nil, usageError("%s has more than %s days", arg, count(mostDays))
		}
		for day := first; !day.After(last); day = day.Add(1) {
			d[day] = d[day] || !isRange
		}
	}
	return d, nil
}

// dayChange is what a command does with days.
type dayChange struct {
	days        days
	doing, done string
	takes       step
	do          func(ctx context.Context, day storage.Day) error
}

// changeDays makes a change, or says what it would change.
func (a *app) changeDays(ctx context.Context, v storage.Vault, c dayChange, dryRun bool) error {
	all := plural(len(c.days), "day")
	return carryOut(ctx, a, dryRun, due[struct{}]{
		change: change{doing: c.doing, what: all, requests: estimate(nil, c.takes)}, n: len(c.days), journal: v, entry: c.days.auditEntry(c.doing),
		wouldDo: func(p planned) error {
			err := printTable(a, heldRows(c.days.sorted(), "would be "+c.done), heldRow.cells, "DAY", "RESULT")
			return cmp.Or(err, a.print(p, p.after("would "+c.doing+" "+all)))
		},
		do:   func(ctx context.Context) (none struct{}, err error) { return none, a.eachDay(ctx, c) },
		done: func(struct{}, error) (bool, error) { return false, nil }, // eachDay prints each day
	})
}

// eachDay changes days, one after the other. A day that fails does not stop the others.
func (a *app) eachDay(ctx context.Context, c dayChange) error {
	t := newTable(a, heldRow.cells, "DAY", "RESULT")
	p := a.progress(c.doing, "day", len(c.days)).then(goOn)
	defer p.end()
	var errs []error
	for _, day := range c.days.sorted() {
		if ctx.Err() != nil {
			break
		}
		row, err := heldRow{Day: day.String(), Result: c.done}, c.do(ctx, day)
		switch {
		case err == nil:
		case !c.days[day] && errors.Is(err, storage.ErrNotFound):
			row.Result = "no plans"
		default:
			row.Result, row.Error = "failed", storage.Detail(err)
			errs = append(errs, err)
		}
		if err := t.add(row); err != nil {
			return err
		}
		if ctx.Err() == nil {
			p.step()
		}
	}
	if err := t.end(); err != nil {
		return err
	}
	return cmp.Or(errors.Join(errs...), ctx.Err())
}
