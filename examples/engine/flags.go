package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
)

// config holds the values of the flags.
type config struct {
	data             string
	connectionString string
	endpoint         string
	msi              string
	prefix           string
	planFile         string
	fork             uuid.UUID
	submit           bool
	serve            bool
	poll             time.Duration
	node             string
	interval, ttl    time.Duration
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("engine", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: engine [flags]\n\nRuns plans, and continues them after a crash. Without -endpoint and -connection-string it keeps them\n"+
			"in an emulator in this process, in the folder of -data, and ignores the environment.\n\nflags:")
		f.PrintDefaults()
	}
	f.StringVar(&c.data, "data", "engine-data", "`folder` for the emulator's data and the files that plans write")
	f.StringVar(&c.endpoint, "endpoint", "", "keep the plans in an account, at the blob endpoint `URL` like https://account.blob.core.windows.net; signs in with azidentity's DefaultAzureCredential")
	f.StringVar(&c.msi, "msi", "", "with -endpoint, sign in as the managed identity of this client ID or resource `ID`")
	f.StringVar(&c.connectionString, "connection-string", "", "keep the plans in the account of this connection string (`text`)")
	f.StringVar(&c.prefix, "prefix", "engine", "`prefix` of the vault's containers; only one engine may work on it at a time, unless all have -node")
	f.StringVar(&c.planFile, "plan", "", "run the plan in this JSON `file` instead of the built-in one, or continue an open plan of the same name")
	f.Func("fork", "run what is left of the plan with this `ID`, which failed or was stopped", func(text string) (err error) {
		c.fork, err = uuid.Parse(text)
		return err
	})
	f.BoolVar(&c.submit, "submit", false, "store the plan for the running engine or the next one, and exit")
	f.BoolVar(&c.serve, "serve", false, "wait for submitted plans until an interrupt")
	f.DurationVar(&c.poll, "poll", time.Second, "`time` between searches for new plans")
	f.StringVar(&c.node, "node", "", "join the fleet of the processes that share the vault, under this `name`, and release a service of this name")
	f.DurationVar(&c.interval, "interval", 2*time.Second, "with -node, the `time` between heartbeats and between searches for plans")
	f.DurationVar(&c.ttl, "ttl", 6*time.Second, "with -node, the `time` without a heartbeat after which the others take a node's plans over")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q: engine takes flags only", f.Arg(0))
	case given["endpoint"] && given["connection-string"]:
		return c, errors.New("-endpoint and -connection-string are mutually exclusive")
	case given["fork"] && given["plan"]:
		return c, errors.New("-fork and -plan are mutually exclusive")
	case c.msi != "" && c.endpoint == "":
		return c, errors.New("-msi needs -endpoint")
	case c.data == "":
		return c, errors.New("-data must name a folder")
	case c.submit && c.serve:
		return c, errors.New("-submit and -serve are mutually exclusive")
	case c.node == "" && (given["node"] || given["interval"] || given["ttl"]):
		return c, errors.New("-interval and -ttl need -node, and -node needs a name")
	case strings.Trim(c.node, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(c.node) > 20:
		return c, fmt.Errorf("-node %q: a name has at most 20 lower-case letters, digits and hyphens", c.node)
	case c.node != "" && c.submit:
		return c, errors.New("-submit and -node are mutually exclusive")
	case c.poll <= 0:
		return c, fmt.Errorf("-poll must be positive, not %v", c.poll)
	}
	return c, nil
}
