package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/planvault/azblob"
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

// change is a bulk change that a command is about to make.
type change struct {
	doing    string // such as "purge"
	what     string // such as "5,000 plans"
	requests price.Tally
	warning  string // of what nothing undoes; may be empty
}

// String returns "purge: 5,000 plans, about 35,000 requests, $0.14".
func (c change) String() string {
	return fmt.Sprintf("%s: %s, about %s, %s", c.doing, c.what, plural(c.requests.Total(), "request"), dollars(c.requests.Dollars()))
}

// confirm says what a bulk change is about to do, and in which vault, and returns nil if it may: with --yes, or when
// somebody at the terminal agrees.
func (a *app) confirm(ctx context.Context, c change) error {
	fmt.Fprintf(a.stderr, "%s%s, in %s\n", c.warning, c, strings.Join(a.places, " and "))
	if a.yes {
		return nil
	}
	if !a.interactive {
		return usageError("%s: nothing was changed; give --yes to make the change", c.doing)
	}
	fmt.Fprint(a.stderr, "Go on? [y/N] ")
	answer := make(chan string, 1)
	go func() { // a read of a terminal can't be interrupted: it ends with the process
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr) // the terminal echoes ^C behind the question
		return fmt.Errorf("%s: nothing was changed: %w", c.doing, ctx.Err())
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
		return &exitError{exitFailed, fmt.Errorf("%s: not confirmed; nothing was changed", c.doing)}
	}
}

// What follows estimates what bulk changes take. TestEstimates compares each estimate with the requests that are sent.
// An estimate begins with what looking took, because the change looks again. Plans are taken for final ones of closed
// days, of at most 256 sub-objects; those of the last two days take half as many requests.

// The requests of one step of a change.
var (
	purgePlan = price.Tally{azblob.ClassRead: 1, azblob.ClassWrite: 1, azblob.ClassOther: 7, azblob.ClassDelete: 3}

	readPlan = price.Tally{azblob.ClassRead: 2}
	copyDay  = price.Tally{azblob.ClassList: 3}

	dropDay   = price.Tally{azblob.ClassOther: 2, azblob.ClassWrite: 1, azblob.ClassDelete: 1}
	retireDay = price.Tally{azblob.ClassOther: 3, azblob.ClassWrite: 1, azblob.ClassDelete: 1, azblob.ClassList: 2, azblob.ClassRead: 2}
	keepDay   = price.Tally{azblob.ClassOther: 3, azblob.ClassWrite: 1, azblob.ClassDelete: 1}

	holdDay    = price.Tally{azblob.ClassOther: 2, azblob.ClassList: 2}
	releaseDay = price.Tally{azblob.ClassOther: 2}

	forkPlan = price.Tally{azblob.ClassRead: 2, azblob.ClassWrite: 3, azblob.ClassOther: 4, azblob.ClassDelete: 1}
	stopPlan = price.Tally{azblob.ClassOther: 2, azblob.ClassWrite: 1}

	recoverPlan = price.Tally{azblob.ClassOther: 2, azblob.ClassWrite: 1}

	buildCatalogue = price.Tally{azblob.ClassWrite: 2, azblob.ClassList: 4, azblob.ClassOther: 1}

	restorePlan = price.Tally{azblob.ClassWrite: 3, azblob.ClassOther: 4, azblob.ClassDelete: 2}
	restorePart = price.Tally{azblob.ClassWrite: 1}
	lookAtRole  = price.Tally{azblob.ClassRead: 1} // before each plan or note that a mirror writes
	mirrorNote  = price.Tally{azblob.ClassRead: 1, azblob.ClassWrite: 1}
	updatePlan  = price.Tally{azblob.ClassWrite: 3, azblob.ClassRead: 2, azblob.ClassOther: 1, azblob.ClassDelete: 2}
)

// step is a step of a change, and how often the change takes it.
type step struct {
	of    price.Tally
	times int
}

// estimate returns what looking took and the steps of a change take together.
func estimate(looked price.Tally, steps ...step) price.Tally {
	all := price.Tally{}
	maps.Copy(all, looked)
	for _, s := range steps {
		for class, n := range s.of {
			all[class] += n * int(s.times)
		}
	}
	return all
}
