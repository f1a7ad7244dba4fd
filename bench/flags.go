package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// config holds the values of the flags.
type config struct {
	short, list, json bool
	run               *regexp.Regexp
	connectionString  string
	throughput, cpu   bool
	history           bool
	duration          time.Duration
	workers           int
	cpuProfile        string
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{run: regexp.MustCompile("")}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&c.short, "short", false, "leave out the largest vaults, a node's long times and the allocations for the largest plan and in large vaults, or on an account the largest plan")
	f.BoolVar(&c.list, "list", false, "print the names of the rows and stop")
	f.BoolVar(&c.json, "json", false, "print one JSON object for each row")
	f.Func("run", "measure the rows whose name matches this `regexp`", func(s string) (err error) {
		c.run, err = regexp.Compile(s)
		return err
	})
	f.StringVar(&c.connectionString, "connection-string", "", "measure on the account of this connection string (`text`)")
	f.BoolVar(&c.cpu, "cpu", false, "measure processor time and allocations beside those of a bare client of the SDK; with -short once and without judging them")
	f.BoolVar(&c.throughput, "throughput", false, "measure operations per second instead of their costs")
	f.BoolVar(&c.history, "history", false, "measure searches in a year of closed days; with -short of small ones")
	f.DurationVar(&c.duration, "duration", 5*time.Second, "how long -throughput repeats each operation")
	f.IntVar(&c.workers, "workers", 64, "how many plans -throughput works on concurrently")
	f.StringVar(&c.cpuProfile, "cpuprofile", "", "write the CPU profiles of -throughput to `file`, prefixed with the name of the operation")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q: bench takes flags only", f.Arg(0))
	case c.workers < 1:
		return c, errors.New("-workers must be at least 1")
	case c.cpuProfile != "" && !c.throughput:
		return c, errors.New("-cpuprofile needs -throughput")
	case c.cpu && (c.throughput || c.connectionString != ""):
		return c, errors.New("-cpu excludes -throughput and -connection-string")
	case c.history && (c.cpu || c.throughput || c.connectionString != ""):
		return c, errors.New("-history excludes -cpu, -throughput and -connection-string")
	}
	return c, nil
}

// pick returns the rows to measure. On an account it leaves out all but the smallest vaults.
func (c config) pick(rows []row) []row {
	return slices.DeleteFunc(rows, func(r row) bool {
		if !c.run.MatchString(r.String()) {
			return true
		}
		if c.connectionString != "" {
			return r.vault.plans > smallestVault || r.period > 0 || c.short && r.size.name == largestPlan
		}
		return c.short && r.long
	})
}
