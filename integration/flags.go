package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
)

// connectionStringVariable is where the Azure tools, too, look for a connection string.
const connectionStringVariable = "AZURE_STORAGE_CONNECTION_STRING"

// config is what the flags say.
type config struct {
	endpoint, msi    string
	connectionString string
	fromEnvironment  bool // the connection string is
	azurite          bool
	prefix           string
	keep, json       bool
	seed             uint64
	// picks says which steps to play; nil for all.
	picks func(name string) bool
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("integration", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: integration [flags]\n\nWithout -endpoint, -connection-string, -azurite and "+connectionStringVariable+
			" it uses the emulator, in this process.\n\nflags:")
		f.PrintDefaults()
	}
	f.StringVar(&c.endpoint, "endpoint", "", "blob endpoint of an account, `URL` like https://account.blob.core.windows.net; signs in with azidentity's DefaultAzureCredential")
	f.StringVar(&c.msi, "msi", "", "with -endpoint, sign in as the managed identity of this client ID or resource `ID`")
	f.StringVar(&c.connectionString, "connection-string", "", "connection string of an account, as `text`; default "+connectionStringVariable+" when no other target is given")
	f.BoolVar(&c.azurite, "azurite", false, "install the pinned Azurite if needed, start it, stop it afterwards")
	f.StringVar(&c.prefix, "prefix", fmt.Sprintf("it-%08x", rand.Uint32()), "`prefix` of the containers; none may exist")
	f.BoolVar(&c.keep, "keep", false, "keep the containers, with the plans of the listings in them, to be looked at (those of the emulator and of -azurite end with the program)")
	f.BoolVar(&c.json, "json", false, "print one JSON object for each step and one for the result, instead of text")
	f.Uint64Var(&c.seed, "seed", uint64(rand.Uint32()), "`number` that the random plan is made of")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	targets := 0
	f.Visit(func(f *flag.Flag) {
		if f.Name == "endpoint" || f.Name == "connection-string" || f.Name == "azurite" && c.azurite {
			targets++
		}
	})
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q: there are flags only", f.Arg(0))
	case targets > 1:
		return c, errors.New("-endpoint, -connection-string and -azurite exclude each other")
	case c.msi != "" && c.endpoint == "":
		return c, errors.New("-msi is for -endpoint")
	case targets == 0:
		c.connectionString = getenv(connectionStringVariable)
		c.fromEnvironment = c.connectionString != ""
	}
	return c, nil
}
