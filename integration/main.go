// Command integration shows what a vault does on an Azure Blob service: the life of a plan, a crash in the middle of a
// write, recovery, listings, and what is done with finished plans. The first step reports how the service answers
// where only a real account can settle it. In the end it runs the conformance suite, storage/storagetest, which proves
// what the steps show, and tries conflicts, a death at each request, the members of a fleet, and every filter.
// The long cases of the suite need -all; the last lines say how many were left out. Only flags choose an account;
// environment variables don't.
//
//	go run ./integration                    against the emulator, in this process, within 20 seconds
//	go run ./integration -all               with the long cases, a minute more
//	go run ./integration -real              against the emulator as real accounts were recorded to answer
//	go run ./integration -azurite           against the pinned Azurite, which it installs, starts and stops
//	go run ./integration -endpoint URL      against an account, with the identity that azidentity finds
//	go run ./integration -connection-string TEXT
//
//	go run ./integration -otel              prints the trace of a plan's life, by OpenTelemetry
//	go run ./integration -list              prints the names of all steps and cases
//	go run ./integration -run REGEXP        plays those whose names match
//
//	go run ./integration -soak 1h -clients 16 -faults
//
// The last command is a soak: processes do random operations on one vault over connections that fail at
// random. They are killed at random and started again. In the end the vault must agree with what the
// processes were told: no plan is lost or half there, and nothing is left over. An interrupt ends the soak
// early, with the same checks.
//
//	go run ./integration -fleet 8 -chaos 2m -faults
//
// This command is a fleet under chaos: processes run plans as nodes of a fleet. Some are killed with SIGKILL,
// some frozen with SIGSTOP for 5 to 60 seconds, some leave, and new ones join. Each node reports every call of
// its plugin. In the end all plans must be final, no outcome may be lost, and no action may have run after its
// outcome was stored. With -interval 2s everything is five times as fast as with the defaults of a fleet. Shorter
// intervals are close to the resolution of the service's clock, and takeovers may then last longer. What virtual
// time shows better, tests/week does. With -keys 20, plans take turns for up to three of 20 keys, and no more of them
// may work at any moment than the limits of their keys allow.
//
// The program prints each step with its requests, and each case on a line. A step that fails ends the run; a
// case does not. The last line is PASS, or "FAIL: " with the reason. The exit code is 0, 1, or 2 for wrong
// flags.
//
// The program uses containers of its own prefix only, refuses to start if there are any, and deletes the
// containers that it made. Each case has a prefix of its own, the run's with a number.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
)

func main() {
	if isWorker(os.Args[1:]) {
		os.Exit(runWorker(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once, without cleaning up
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const (
	exitPass   = 0
	exitFail   = 1
	exitMisuse = 2
)

// config holds the values of the flags.
type config struct {
	account
	azurite, real, all, list, otel, faults bool
	prefix                                 string
	seed                                   uint64
	soak, chaos, grace, interval, every    time.Duration
	clients, fleet, plans, keys            int
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

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("integration", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: integration [flags]\n\nWithout -endpoint, -connection-string and -azurite it uses the emulator in this process and\n"+
			"ignores the environment. It plays the story and the short cases of the suite; -all plays everything.\n\nflags:")
		f.PrintDefaults()
	}
	f.StringVar(&c.Endpoint, "endpoint", "", "blob endpoint of an account, `URL` like https://account.blob.core.windows.net; signs in with azidentity's DefaultAzureCredential")
	f.StringVar(&c.ConnectionString, "connection-string", "", "connection string of an account, as `text`")
	f.BoolVar(&c.azurite, "azurite", false, "install the pinned Azurite if necessary, start it, and stop it afterwards")
	f.StringVar(&c.prefix, "prefix", fmt.Sprintf("it-%08x", rand.Uint32()), "`prefix` of the containers; none of the prefix may exist")
	f.Uint64Var(&c.seed, "seed", uint64(rand.Uint32()), "with -soak or -chaos, the `number` that operations, faults and kills are made of, and with -real the answers")
	f.BoolVar(&c.real, "real", false, "let the emulator answer as recorded real accounts do: its dates lag, and pages are cut short")
	f.DurationVar(&c.soak, "soak", 0, "instead of the story, let processes work on one vault for this `time`, kill them at random, and check that nothing is lost")
	f.IntVar(&c.clients, "clients", 16, "with -soak, the number of processes")
	f.BoolVar(&c.faults, "faults", false, "with -soak or -chaos, let connections fail at random")
	f.DurationVar(&c.chaos, "chaos", 0, "instead of the story, let the processes of a fleet run plans for this `time`, kill and freeze them at random, and check what they did")
	f.IntVar(&c.fleet, "fleet", 8, "with -chaos, the number of nodes")
	f.IntVar(&c.plans, "plans", 0, "with -chaos, the number of plans; by default two for each second")
	f.IntVar(&c.keys, "keys", 0, "with -chaos, the `number` of keys that the plans take turns for")
	f.DurationVar(&c.interval, "interval", 10*time.Second, "with -chaos, the fleet's interval; its TTL is three intervals")
	f.DurationVar(&c.every, "every", 0, "with -chaos, the mean `time` between two kills, freezes or leaves; by default the interval")
	f.DurationVar(&c.grace, "grace", 0, fmt.Sprintf("with -soak or -chaos, grace `period` of the vaults; slow connections and busy machines need more than the default (%v, or with -chaos 30s and six intervals)", soakGrace))
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
	c.every = cmp.Or(c.every, c.interval)
	c.plans = cmp.Or(c.plans, max(1, int(2*c.chaos.Seconds())))
	return c, c.check(f)
}

// excluded holds pairs of flags that exclude each other, and needed what a flag needs one of.
var (
	excluded = [][2]string{
		{"endpoint", "connection-string"},
		{"endpoint", "azurite"},
		{"connection-string", "azurite"},
		{"real", "endpoint"},
		{"real", "connection-string"},
		{"real", "azurite"},
		{"soak", "chaos"},
		{"run", "soak"},
		{"run", "chaos"},
		{"all", "run"},
		{"all", "soak"},
		{"all", "chaos"},
	}
	needed = map[string][]string{
		"clients": {"soak"}, "fleet": {"chaos"}, "plans": {"chaos"}, "keys": {"chaos"}, "interval": {"chaos"}, "every": {"chaos"},
		"grace": {"soak", "chaos"}, "faults": {"soak", "chaos"},
	}
)

// check returns an error for arguments and combinations of flags that make no sense.
func (c config) check(f *flag.FlagSet) error {
	set := map[string]bool{}
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	for _, pair := range excluded {
		if set[pair[0]] && set[pair[1]] {
			return fmt.Errorf("-%s excludes -%s", pair[0], pair[1])
		}
	}
	for name, of := range needed {
		if set[name] && !slices.ContainsFunc(of, func(other string) bool { return set[other] }) {
			return fmt.Errorf("-%s needs one of -%s", name, of)
		}
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: integration takes flags only", f.Arg(0))
	case c.otel && f.NFlag() > 1:
		return errors.New("-otel excludes all other flags")
	case len(c.prefix) > longestPrefix:
		return fmt.Errorf("-prefix is longer than %d characters, which leaves no room for the prefixes of cases", longestPrefix)
	case c.grace != 0 && c.grace < time.Second:
		return errors.New("-grace is less than 1s, the resolution of the service's times")
	case c.soak < 0 || c.clients < 1 || c.clients > maxClients:
		return fmt.Errorf("-soak needs a positive time and 1 to %d clients", maxClients)
	case c.chaos < 0 || c.fleet < 1 || c.fleet > maxClients || c.plans < 1 || c.keys < 0:
		return fmt.Errorf("-chaos needs a positive time, 1 to %d nodes, at least one plan, and no negative -keys", maxClients)
	case c.interval < time.Second || c.every <= 0:
		return errors.New("-interval is at least 1s, and -every positive")
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitPass
	case err != nil:
		fmt.Fprintln(stderr, "integration:", err)
		return exitMisuse
	}
	cases := suiteCases()
	names := names(cfg, cases)
	switch {
	case len(names) == 0:
		fmt.Fprintln(stderr, "integration: -run matches no step and no case; -list prints their names")
		return exitMisuse
	case cfg.list:
		for _, name := range names {
			fmt.Fprintln(stdout, name)
		}
		return exitPass
	case cfg.otel:
		return end(stdout, printTrace(ctx, stdout, stderr))
	}
	t, err := openTarget(ctx, cfg, stderr)
	if err != nil {
		return end(stdout, err)
	}
	return conduct(ctx, newStage(cfg, t, stdout), cases)
}

// names returns the names of the steps and cases to play.
func names(cfg config, cases []storagetest.Case) (all []string) {
	for _, st := range story() {
		if cfg.plays(st.name, false) {
			all = append(all, st.name)
		}
	}
	for _, c := range cases {
		if cfg.plays(suiteName(c), c.Long) {
			all = append(all, suiteName(c))
		}
	}
	return all
}

// end prints the last line and returns the exit code.
func end(w io.Writer, err error) int {
	if err == nil {
		fmt.Fprintln(w, "PASS")
		return exitPass
	}
	fmt.Fprintf(w, "FAIL: %s\n", oneLine(err))
	return exitFail
}

// conduct plays all steps, and then the cases if no step failed. It cleans up and closes the target.
func conduct(ctx context.Context, s *stage, cases []storagetest.Case) int {
	fmt.Fprintf(s.out, "Target: %s\nPrefix: %s\nSeed: %d\n", s.title, s.cfg.prefix, s.cfg.seed)
	err := s.onOwnContainers(ctx, func() error {
		switch {
		case s.cfg.soak > 0:
			return s.playSoak(ctx)
		case s.cfg.chaos > 0:
			return s.playChaos(ctx)
		}
		return errors.Join(s.play(ctx, cases), s.sumUp())
	})
	code := end(s.out, errors.Join(err, s.close()))
	if s.vault == nil && errors.Is(err, storage.ErrInvalid) {
		return exitMisuse // the vault refused the prefix or the endpoint before any request
	}
	return code
}
