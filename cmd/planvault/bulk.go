package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
)

// bulk is the flags that commands share which change much at once.
type bulk struct {
	dryRun bool
	budget age
}

func (b *bulk) addFlags(flags *pflag.FlagSet) {
	addDryRun(flags, &b.dryRun)
	flags.Var(&b.budget, "budget", "begin nothing new after this `DURATION`, such as 10m; exit code 3 says that more is left")
}

func addDryRun(flags *pflag.FlagSet, dryRun *bool) {
	flags.BoolVar(dryRun, "dry-run", false, "change nothing, and say what would be done")
}

// timeLeft returns the budget for the library. A dry run has none.
func (b *bulk) timeLeft() time.Duration {
	if b.dryRun {
		return 0
	}
	return time.Duration(b.budget)
}

// planned is the part of a report that only a dry run has.
type planned struct {
	DryRun   bool    `json:"dryRun,omitempty" help:"nothing was changed"`
	Requests int     `json:"requests,omitempty" help:"what the change would take"`
	Dollars  float64 `json:"dollars,omitempty" help:"what these requests cost at list prices"`
}

func plannedOf(requests price.Tally) planned {
	return planned{true, requests.Total(), requests.Dollars()}
}

// after returns what prints the requests and their price behind a text.
func (p planned) after(text string) func(io.Writer) {
	return func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", text, p) }
}

// String returns "about 35,000 requests, $0.14".
func (p planned) String() string {
	return fmt.Sprintf("about %s, %s", plural(p.Requests, "request"), dollars(p.Dollars))
}

// due is a bulk change that may have to be confirmed. R is the library's report.
type due[R any] struct {
	change
	n       int                 // how much there is to do
	found   R                   // by a look
	err     error               // what the look could not read, which does not keep the rest
	wouldDo func(planned) error // prints what was found, for a dry run
	journal storage.Vault
	entry   storage.AuditEntry // for the journal, without Detail; none if its What is empty

	do func(ctx context.Context) (R, error)
	// done prints what was done, or that there is nothing to do. It reports whether the budget has left more.
	done func(R, error) (more bool, err error)
}

// carryOut makes a bulk change if it may: a dry run only says what is due, and otherwise somebody has to agree.
func carryOut[R any](ctx context.Context, a *app, dryRun bool, d due[R]) error {
	switch {
	case dryRun:
		return errors.Join(d.wouldDo(plannedOf(d.requests)), d.err)
	case d.n == 0 && !a.yes: // what has become due since the look was not confirmed
		_, err := d.done(d.found, nil)
		return errors.Join(err, d.err)
	case d.n > 0:
		if err := a.confirm(ctx, d.change); err != nil {
			return err
		}
	}
	var report R
	do := func(ctx context.Context) (err error) {
		report, err = d.do(ctx)
		return err
	}
	var err error
	if d.entry.What == "" || d.n == 0 {
		err = do(ctx)
	} else {
		d.entry.Detail = d.what
		err = a.auditEntry(ctx, d.journal, d.entry, do)
	}
	more, printErr := d.done(report, err)
	if printErr != nil {
		return printErr
	}
	return leftOver(err, more)
}

// leftOver returns the error of a command that did all that its budget allowed.
func leftOver(err error, more bool) error {
	if err == nil && more {
		return errMore
	}
	return err
}

// ifMore returns how a report ends if more is left.
func ifMore(more bool) string {
	if more {
		return "; more is left: run the same command again"
	}
	return ""
}

// date returns a day as flags and reports have it.
func date(t time.Time) string { return storage.DayOf(t).String() }

// dates returns days as reports have them.
func dates(days []storage.Day) []string {
	texts := make([]string, len(days))
	for i, day := range days {
		texts[i] = day.String()
	}
	return texts
}
