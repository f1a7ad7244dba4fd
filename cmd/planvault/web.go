package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob/cmd/planvault/internal/web"
	"github.com/planvault/azblob/fleet"
)

// webCommand serves a read-only view to browsers.
func (a *app) webCommand() *cobra.Command {
	w := webFlags{interval: age(defaultInterval), older: age(fleet.DefaultOlder)}
	c := &cobra.Command{
		Use:   "web",
		Short: "Show the vault in a browser",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.web(c.Context(), w) },
	}
	c.Flags().StringVar(&w.listen, "listen", "127.0.0.1:8484", "serve on this `ADDRESS`")
	addList(c.Flags(), "host", "also answer browsers that call the server by this `NAME`", &w.hosts, parseHost)
	c.Flags().Var(&w.interval, "interval", "`TIME` between two looks at open plans and members, such as 15s or 1m")
	c.Flags().Var(&w.older, "older", "plans without progress for longer than this `AGE` are stuck")
	return c
}

// hostName is a name that the Host header of a browser may have.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func parseHost(text string) ([]string, error) {
	if net.ParseIP(text) == nil && !hostName.MatchString(text) {
		return nil, fmt.Errorf("%q is not a name: give it as browsers do, without a port, such as plans.example.com or an address", printable(text, 50))
	}
	return []string{text}, nil
}

// defaultInterval is the default of --interval.
const defaultInterval = 15 * time.Second

// webFlags are the flags of web.
type webFlags struct {
	listen          string
	hosts           []string
	interval, older age
}

// served is where the pages are.
type served struct {
	URL string `json:"url" help:"where the pages are"`
}

// shortestInterval keeps a slip from costing dollars an hour.
const shortestInterval = time.Second

func (a *app) web(ctx context.Context, f webFlags) error {
	if time.Duration(f.interval) < shortestInterval {
		return usageError("--interval must be %v or more", shortestInterval)
	}
	where, err := a.resolve(a.connection)
	if err != nil {
		return err
	}
	v, err := a.openNew(ctx, a.connection)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("serve on %s: %w: choose another address with --listen", f.listen, err)
	}
	local := l.Addr().(*net.TCPAddr).IP.IsLoopback()
	o := web.Options{Vault: where.Prefix, Flags: a.public(where), Hosts: f.hosts, Interval: time.Duration(f.interval), Older: time.Duration(f.older), AllowEmpty: a.allowEmpty}
	if local {
		o.Hosts = append(o.Hosts, web.LoopbackHosts()...)
	}
	if !local {
		fmt.Fprintf(a.stderr, "planvault: warning: there is no login: everybody who reaches %s can read all plans\n", l.Addr())
	}
	a.remark("Serving %s. Interrupt to end.", where)
	address := served{"http://" + l.Addr().String()}
	if err := a.print(address, func(w io.Writer) { fmt.Fprintln(w, address.URL) }); err != nil {
		return errors.Join(err, l.Close())
	}
	return web.New(v, o).Serve(ctx, l)
}
