package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/sample"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
)

// emulatorFlags are the flags of the command emulator.
type emulatorFlags struct {
	listen, data string
	sample       bool
}

// emulatorCommand serves the emulator.
func (a *app) emulatorCommand() *cobra.Command {
	var f emulatorFlags
	c := &cobra.Command{
		Use:   "emulator",
		Short: "Serve an emulator of Azure Blob Storage, to try things",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.emulate(c.Context(), f) },
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:10000", "`ADDRESS` to serve on; port 0 is any that is free")
	c.Flags().StringVar(&f.data, "data", "", "`FILE` that keeps the data")
	c.Flags().BoolVar(&f.sample, "sample", false, "store sample plans, if there are none")
	return c
}

// emulate serves the emulator until the context ends, which is no interrupt: there is no other end.
func (a *app) emulate(ctx context.Context, f emulatorFlags) (err error) {
	server := emulator.New(emulator.Options{NoLog: true})
	if f.data != "" {
		if server, err = emulator.Open(f.data, emulator.Options{NoLog: true}); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	port, err := server.Listen(f.listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, port.Close()) }()
	served := emulation{URL: port.URL(), ConnectionString: port.ConnectionString(), Data: f.data}
	if tcp, ok := port.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() && tcp.Port == 10000 {
		served.ConnectionString = "UseDevelopmentStorage=true"
	}
	if f.sample {
		served.Prefix = samplePrefix
		v, n, err := a.storeSample(ctx, server)
		if err != nil {
			return err
		}
		served.Plans = n
		var beating sync.WaitGroup
		beating.Go(func() {
			for sample.Beat(ctx, v.Control()) && sleep.For(ctx, 3*time.Second) {
			}
		})
		defer beating.Wait()
	}
	if err := a.print(served, served.print); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// samplePrefix is the prefix of the vault of sample plans.
const samplePrefix = "sample"

// storeSample stores the sample plans in a vault that has no plans, and returns the vault and their number.
func (a *app) storeSample(ctx context.Context, server *emulator.Server) (*azblob.Vault, int, error) {
	v, err := azblob.NewFromConnectionString(ctx, samplePrefix, server.ConnectionString(), nil, azblob.Options{ClientOptions: server.ClientOptions()})
	if err != nil {
		return nil, 0, err
	}
	a.vaults = append(a.vaults, v)
	if there, err := storage.Collect(v.List(ctx, 1)); err != nil || len(there) > 0 {
		return v, 0, err
	}
	n, err := sample.Store(ctx, v, time.Now())
	return v, n, err
}

// emulation is what the emulator says of itself.
type emulation struct {
	URL              string `json:"url" help:"where the emulator is"`
	ConnectionString string `json:"connectionString" help:"what connects to it"`
	Data             string `json:"data,omitempty" help:"the file that keeps its data"`
	Prefix           string `json:"prefix,omitempty" help:"the prefix of the vault of sample plans"`
	Plans            int    `json:"plans,omitempty" help:"how many of these were stored"` // that were stored
}

// print says what to do with the emulator.
func (e emulation) print(w io.Writer) {
	where := "in memory"
	if e.Data != "" {
		where = "in the file " + e.Data
	}
	fmt.Fprintf(w, "The emulator is at %s, its data %s. Ctrl-C stops it. Try, in another terminal:\n\n", e.URL, where)
	fmt.Fprintf(w, "    export PLANVAULT_CONNECTION_STRING='%s'\n", e.ConnectionString)
	if e.Prefix == "" {
		fmt.Fprint(w, `    export PLANVAULT_PREFIX=engine
    go run github.com/planvault/azblob/examples/engine@latest -connection-string "$PLANVAULT_CONNECTION_STRING"
    planvault list
`)
		return
	}
	fmt.Fprintf(w, "    export PLANVAULT_PREFIX=%s\n", e.Prefix)
	fmt.Fprint(w, `    planvault list            # all plans, newest first
    planvault stuck           # what is stuck, who owns it, and why
    planvault nodes           # who works on the vault
    planvault web             # all of it in a browser
`)
}
