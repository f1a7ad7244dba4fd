package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/planvault/azblob/internal/price"
)

// bulk is the flags that commands share which change much at once.
type bulk struct {
	dryRun bool
	budget age
}

func (b *bulk) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&b.dryRun, "dry-run", false, "change nothing, and say what would be done")
}

func (b *bulk) addBudget(flags *pflag.FlagSet) {
	flags.Var(&b.budget, "budget", "begin nothing new after this `DURATION`, such as 10m; exit code 3 says that more is left")
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
	DryRun   bool    `json:"dryRun,omitempty"`
	Requests int     `json:"requests,omitempty"`
	Dollars  float64 `json:"dollars,omitempty"`
}

func plannedOf(requests price.Tally) planned {
	return planned{true, requests.Total(), requests.Dollars()}
}

// String returns "about 35,000 requests, $0.14".
func (p planned) String() string {
	return fmt.Sprintf("about %s, %s", plural(p.Requests, "request"), dollars(p.Dollars))
}

// leftOver returns the error of a command that did all that its budget allowed.
func leftOver(err error, more bool) error {
	if err == nil && more {
		return errMore
	}
	return err
}

// moreLeft is how a report ends if more is left.
const moreLeft = "; more is left: run the same command again"

// date returns a day as flags and reports have it.
func date(day time.Time) string { return day.UTC().Format(time.DateOnly) }

// dates returns days as reports have them.
func dates(days []time.Time) []string {
	texts := make([]string, len(days))
	for i, day := range days {
		texts[i] = date(day)
	}
	return texts
}
