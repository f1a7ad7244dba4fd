package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"github.com/planvault/azblob/storage/storagetest"
)

// config holds the values of the flags.
type config struct {
	endpoint, msi    string
	connectionString string
	azurite          bool
	prefix           string
	keep, json       bool
	seed             uint64
	real             bool
	list, otel       bool
	all              bool
	grace            time.Duration // zero for the default
	soak             time.Duration
	clients          int
	faults           bool
	fleet            int
	chaos            time.Duration
	plans            int
	interval, ttl    time.Duration
	every            time.Duration
	// picks reports whether -run names a step or case; nil without -run.
	picks func(name string) bool
}

// plays reports whether a step or case is played: those that -run matches, or all with -all, or all but the
// long cases.
func (c config) plays(name string, long bool) bool {
	if c.picks != nil {
		return c.picks(name)
	}
	return c.all || c.list || !long
}

// playsCase is plays for a case.
func (c config) playsCase(of storagetest.Case) bool { return c.plays(suiteName(of), of.Long) }

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("integration", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: integration [flags]\n\nWithout -endpoint, -connection-string and -azurite it uses the emulator in this process and\n"+
			"ignores the environment. It plays the story and the short cases of the suite; -all plays everything.\n\nflags:")
		f.PrintDefaults()
	}
	f.StringVar(&c.endpoint, "endpoint", "", "blob endpoint of an account, `URL` like https://account.blob.core.windows.net; signs in with azidentity's DefaultAzureCredential")
	f.StringVar(&c.msi, "msi", "", "with -endpoint, sign in as the managed identity of this client ID or resource `ID`")
	f.StringVar(&c.connectionString, "connection-string", "", "connection string of an account, as `text`")
	f.BoolVar(&c.azurite, "azurite", false, "install the pinned Azurite if necessary, start it, and stop it afterwards")
	f.StringVar(&c.prefix, "prefix", fmt.Sprintf("it-%08x", rand.Uint32()), "`prefix` of the containers; none of the prefix may exist")
	f.BoolVar(&c.keep, "keep", false, "keep the containers of the story and of cases that fail (those of the emulator and of -azurite end with the program)")
	f.BoolVar(&c.json, "json", false, "print one JSON object for each step, each case and the result, instead of text")
	f.Uint64Var(&c.seed, "seed", uint64(rand.Uint32()), "with -soak or -chaos, the `number` that operations, faults and kills are made of, and with -real the answers")
	f.BoolVar(&c.real, "real", false, "let the emulator answer as recorded real accounts do: its dates lag, and pages are cut short")
	f.DurationVar(&c.soak, "soak", 0, "instead of the story, let processes work on one vault for this `time`, kill them at random, and check that nothing is lost")
	f.IntVar(&c.clients, "clients", 16, "with -soak, the number of processes")
	f.BoolVar(&c.faults, "faults", false, "with -soak or -chaos, let connections fail at random")
	f.DurationVar(&c.chaos, "chaos", 0, "instead of the story, let the processes of a fleet run plans for this `time`, kill and freeze them at random, and check what they did")
	f.IntVar(&c.fleet, "fleet", 8, "with -chaos, the number of nodes")
	f.IntVar(&c.plans, "plans", 0, "with -chaos, the number of plans; by default two for each second")
	f.DurationVar(&c.interval, "interval", 10*time.Second, "with -chaos, the fleet's interval")
	f.DurationVar(&c.ttl, "ttl", 0, "with -chaos, the fleet's TTL; by default three intervals")
	f.DurationVar(&c.every, "every", 0, "with -chaos, the mean `time` between two kills, freezes or leaves; by default a third of the TTL")
	f.DurationVar(&c.grace, "grace", 0, fmt.Sprintf("with -soak or -chaos, grace `period` of the vaults; slow connections and busy machines need more than the default (%v, or with -chaos 30s and twice the TTL)", soakGrace))
	f.BoolVar(&c.all, "all", false, "play the long cases too, which takes a minute more")
	f.BoolVar(&c.list, "list", false, "print the names of all steps and cases, and stop")
	f.BoolVar(&c.otel, "otel", false, "instead of the story, print the trace of a plan's life on the emulator, as OpenTelemetry reports it; no other flag")
	f.Func("run", "play only the steps and cases whose names match the `regexp`, including long cases", func(text string) error {
		re, err := regexp.Compile(text)
		if err == nil {
			c.picks = re.MatchString
		}
		return err
	})
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.ttl = cmp.Or(c.ttl, 3*c.interval)
	c.every = cmp.Or(c.every, c.ttl/3)
	c.plans = cmp.Or(c.plans, max(1, int(2*c.chaos.Seconds())))
	return c, c.check(f)
}

// check returns an error for arguments and combinations of flags that make no sense.
func (c config) check(f *flag.FlagSet) error {
	targets := 0
	var forChaos string
	f.Visit(func(f *flag.Flag) {
		if slices.Contains([]string{"fleet", "plans", "interval", "ttl", "every"}, f.Name) {
			forChaos = f.Name
		}
		if f.Name == "endpoint" || f.Name == "connection-string" || f.Name == "azurite" && c.azurite {
			targets++
		}
	})
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: integration takes flags only", f.Arg(0))
	case c.otel && f.NFlag() > 1:
		return errors.New("-otel excludes all other flags")
	case targets > 0 && c.real:
		return errors.New("-real is for the emulator: it excludes -endpoint, -connection-string and -azurite")
	case targets > 1:
		return errors.New("-endpoint, -connection-string and -azurite are mutually exclusive")
	case c.msi != "" && c.endpoint == "":
		return errors.New("-msi needs -endpoint")
	case len(c.prefix) > longestPrefix:
		return fmt.Errorf("-prefix is longer than %d characters, which leaves no room for the prefixes of cases", longestPrefix)
	case c.grace != 0 && c.grace < time.Second:
		return errors.New("-grace is less than 1s, the resolution of the service's times")
	case c.soak < 0 || c.clients < 1 || c.clients > maxClients:
		return fmt.Errorf("-soak needs a positive time and 1 to %d clients", maxClients)
	case c.chaos < 0 || c.fleet < 1 || c.fleet > maxClients || c.plans < 1:
		return fmt.Errorf("-chaos needs a positive time, 1 to %d nodes and at least one plan", maxClients)
	case c.interval < time.Second || c.ttl < 3*c.interval || c.every <= 0:
		return errors.New("-interval is at least 1s, -ttl at least three times as long, and -every positive")
	case c.soak > 0 && c.chaos > 0:
		return errors.New("-soak and -chaos are mutually exclusive")
	case forChaos != "" && c.chaos == 0:
		return fmt.Errorf("-%s needs -chaos", forChaos)
	case (c.grace != 0 || c.faults) && c.soak == 0 && c.chaos == 0:
		return errors.New("-grace and -faults need -soak or -chaos")
	case (c.soak > 0 || c.chaos > 0) && c.picks != nil:
		return errors.New("-run excludes -soak and -chaos")
	case c.all && (c.soak > 0 || c.chaos > 0 || c.picks != nil):
		return errors.New("-all excludes -run, -soak and -chaos")
	}
	return nil
}
