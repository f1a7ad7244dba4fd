package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// config is what the flags say.
type config struct {
	data             string
	connectionString string
	endpoint         string
	msi              string
	prefix           string
	planFile         string
	submit           bool
	serve            bool
	poll             time.Duration
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("engine", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: engine [flags]\n\nRuns plans, and goes on where it stood when it was killed. Without -endpoint and -connection-string\n"+
			"it keeps them in an emulator inside, in the folder of -data, whatever the environment says.\n\nflags:")
		f.PrintDefaults()
	}
	f.StringVar(&c.data, "data", "engine-data", "`folder` for the emulator's data and the files that plans write")
	f.StringVar(&c.endpoint, "endpoint", "", "keep the plans in an account, at the blob endpoint `URL` like https://account.blob.core.windows.net; signs in with azidentity's DefaultAzureCredential")
	f.StringVar(&c.msi, "msi", "", "with -endpoint, sign in as the managed identity of this client ID or resource `ID`")
	f.StringVar(&c.connectionString, "connection-string", "", "keep the plans in the account of this connection string, as `text`")
	f.StringVar(&c.prefix, "prefix", "engine", "`prefix` of the vault's containers; one engine works on it at a time")
	f.StringVar(&c.planFile, "plan", "", "run the plan in this JSON `file` instead of the built-in one; a plan of its name that is open is gone on with")
	f.BoolVar(&c.submit, "submit", false, "store the plan for an engine that works on the same vault, or for the next one, and end")
	f.BoolVar(&c.serve, "serve", false, "wait for plans that others submit, until an interrupt")
	f.DurationVar(&c.poll, "poll", time.Second, "`time` between two looks for new plans")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q: there are flags only", f.Arg(0))
	case given["endpoint"] && given["connection-string"]:
		return c, errors.New("-endpoint and -connection-string exclude each other")
	case c.msi != "" && c.endpoint == "":
		return c, errors.New("-msi is for -endpoint")
	case c.data == "":
		return c, errors.New("-data is empty: it names a folder")
	case c.submit && c.serve:
		return c, errors.New("-submit ends when the plan is stored, and -serve does not end: give one of them")
	case c.poll <= 0:
		return c, fmt.Errorf("-poll must be more than 0, not %v", c.poll)
	}
	return c, nil
}
