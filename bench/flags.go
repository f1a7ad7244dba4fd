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

// config is what the flags say.
type config struct {
	short, list, json bool
	run               *regexp.Regexp
	connectionString  string
	throughput        bool
	duration          time.Duration
	workers           int
	cpuProfile        string
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{run: regexp.MustCompile("")}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&c.short, "short", false, "leave out the largest vaults; on an account the largest plans")
	f.BoolVar(&c.list, "list", false, "name the rows that would be measured")
	f.BoolVar(&c.json, "json", false, "print one JSON object for each row")
	f.Func("run", "measure the rows whose name matches this `regexp`", func(s string) (err error) {
		c.run, err = regexp.Compile(s)
		return err
	})
	f.StringVar(&c.connectionString, "connection-string", "", "measure on the account of this connection string, as `text`")
	f.BoolVar(&c.throughput, "throughput", false, "measure operations per second instead of their costs")
	f.DurationVar(&c.duration, "duration", 5*time.Second, "how long -throughput drives each operation")
	f.IntVar(&c.workers, "workers", 64, "how many plans -throughput works on at once")
	f.StringVar(&c.cpuProfile, "cpuprofile", "", "write -throughput's CPU profiles to `file`, with the operation's name before it")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q: there are flags only", f.Arg(0))
	case c.workers < 1:
		return c, errors.New("-workers must be at least 1")
	case c.cpuProfile != "" && !c.throughput:
		return c, errors.New("-cpuprofile is for -throughput")
	}
	return c, nil
}

// pick chooses the rows to measure. An account is not filled with more plans than the smallest vault's.
func (c config) pick(rows []row) []row {
	return slices.DeleteFunc(rows, func(r row) bool {
		if !c.run.MatchString(r.String()) {
			return true
		}
		if c.connectionString != "" {
			return r.vault.plans > smallestVault || c.short && r.size.name == largestPlan
		}
		return c.short && r.vault.plans >= largestVault
	})
}
