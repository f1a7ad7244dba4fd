package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
)

// holdCommand holds days.
func (a *app) holdCommand() *cobra.Command {
	var b bulk
	c := &cobra.Command{
		Use:   "hold DAY|FROM..TO...",
		Short: "Keep the plans of days from being removed",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			days, err := parseDays(args)
			if err != nil {
				return err
			}
			return a.hold(c.Context(), days, b.dryRun)
		},
	}
	b.addFlags(c.Flags())
	return c
}

// releaseCommand ends holds.
func (a *app) releaseCommand() *cobra.Command {
	var b bulk
	c := &cobra.Command{
		Use:   "release DAY|FROM..TO...",
		Short: "End the hold of days",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			days, err := parseDays(args)
			if err != nil {
				return err
			}
			return a.release(c.Context(), days, b.dryRun)
		},
	}
	b.addFlags(c.Flags())
	return c
}

// holdsCommand shows what is held.
func (a *app) holdsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "holds",
		Short: "List the days that are held, oldest first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := a.vault(c.Context())
			if err != nil {
				return err
			}
			held, err := v.Holds(c.Context())
			if err != nil {
				return err
			}
			t := newTable(a, dayColumn())
			for _, day := range held {
				if err := t.add(heldRow{Day: date(day)}); err != nil {
					return err
				}
			}
			return t.end()
		},
	}
}

// heldRow is a day, and what became of it.
type heldRow struct {
	Day    string `json:"day"`
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

func dayColumn() column[heldRow] {
	return column[heldRow]{title: "DAY", text: func(r heldRow) string { return r.Day }}
}

func resultColumn() column[heldRow] {
	return column[heldRow]{title: "RESULT", text: func(r heldRow) string { return r.Result }}
}

// namedDay is a day that arguments name.
type namedDay struct {
	day     time.Time
	inRange bool // it is part of a range, so it need not exist
}

// mostDays is how many days the arguments of a command may name.
const mostDays = 36525

// parseDays parses days and ranges of days. It returns each day once, oldest first.
func parseDays(args []string) (days []namedDay, err error) {
	for _, arg := range args {
		from, to, isRange := strings.Cut(arg, "..")
		if !isRange {
			to = from
		}
		first, firstErr := time.Parse(time.DateOnly, from)
		last, lastErr := time.Parse(time.DateOnly, to)
		switch {
		case firstErr != nil || lastErr != nil:
			return nil, usageError("%q is not a day: give 2026-08-01, or 2026-08-01..2026-08-31", printable(arg, 50))
		case last.Before(first):
			return nil, usageError("%s ends before it begins", arg)
		case last.Sub(first) > mostDays*24*time.Hour:
			return nil, usageError("%s has more than %s days", arg, count(mostDays))
		}
		for day := first; !day.After(last); day = day.AddDate(0, 0, 1) {
			days = append(days, namedDay{day, isRange})
		}
	}
	slices.SortStableFunc(days, func(a, b namedDay) int {
		if order := a.day.Compare(b.day); order != 0 || a.inRange == b.inRange {
			return order
		} else if a.inRange {
			return 1 // the day that is named by itself stays
		}
		return -1
	})
	return slices.CompactFunc(days, func(a, b namedDay) bool { return a.day.Equal(b.day) }), nil
}

// hold holds days.
func (a *app) hold(ctx context.Context, days []namedDay, dryRun bool) error {
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	return a.eachDay(ctx, days, dayChange{
		doing: "hold", done: "held", takes: step{holdDay, int64(len(days))}, dryRun: dryRun, do: v.Hold,
	})
}

// release ends the holds of days. Of ranges it takes the days that are held.
func (a *app) release(ctx context.Context, days []namedDay, dryRun bool) error {
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	a.progress("look", "day", 0).then(untouched)
	if days, err = heldOf(ctx, v, days); err != nil {
		return err
	}
	return a.eachDay(ctx, days, dayChange{
		doing: "release", done: "released", takes: step{releaseDay, int64(len(days))}, dryRun: dryRun, do: v.Release,
	})
}

// heldOf removes the days of ranges that are not held.
func heldOf(ctx context.Context, v *azblob.Vault, days []namedDay) ([]namedDay, error) {
	if !slices.ContainsFunc(days, func(d namedDay) bool { return d.inRange }) {
		return days, nil
	}
	held, err := v.Holds(ctx)
	return slices.DeleteFunc(days, func(d namedDay) bool {
		return d.inRange && !slices.ContainsFunc(held, d.day.Equal)
	}), err
}

// dayChange is what a command does with days.
type dayChange struct {
	doing, done string
	takes       step
	dryRun      bool
	do          func(ctx context.Context, day time.Time) error
}

// eachDay does something with days, one after the other. A day that fails does not stop the others.
func (a *app) eachDay(ctx context.Context, days []namedDay, c dayChange) error {
	d := due{
		change: change{doing: c.doing, what: plural(len(days), "day"), requests: estimate(nil, c.takes)}, n: int64(len(days)),
		wouldDo: func(p planned) error { return a.wouldDo(days, c, p) },
		nothing: func() error { return nil },
	}
	return a.carryOut(ctx, c.dryRun, d, func() (bool, error) { return false, a.runEachDay(ctx, days, c) })
}

// runEachDay is eachDay when somebody has agreed.
func (a *app) runEachDay(ctx context.Context, days []namedDay, c dayChange) error {
	t := newTable(a, dayColumn(), resultColumn())
	p := a.progress(c.doing, "day", int64(len(days))).then(goOn)
	defer p.end()
	var errs []error
	for _, d := range days {
		if ctx.Err() != nil {
			break
		}
		row, err := heldRow{Day: date(d.day), Result: c.done}, c.do(ctx, d.day)
		switch {
		case err == nil:
		case d.inRange && errors.Is(err, storage.ErrNotFound):
			row.Result = "no plans"
		default:
			row.Result, row.Error = "failed", err.Error()
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

// wouldDo says what eachDay would do.
func (a *app) wouldDo(days []namedDay, c dayChange, takes planned) error {
	t := newTable(a, dayColumn(), resultColumn())
	for _, d := range days {
		if err := t.add(heldRow{Day: date(d.day), Result: "would be " + c.done}); err != nil {
			return err
		}
	}
	return cmp.Or(t.end(), a.print(takes, takes.after("would "+c.doing+" "+plural(len(days), "day"))))
}
