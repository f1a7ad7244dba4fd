package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/web"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/price"
)

// webCommand serves a read-only view to browsers.
func (a *app) webCommand() *cobra.Command {
	w := webFlags{interval: age(defaultInterval), older: age(fleet.DefaultOlder)}
	c := &cobra.Command{
		Use:   "web",
		Short: "Show the vault in a browser",
		Long: `Web serves pages for a browser until an interrupt: the open plans, stuck ones first, with
their owners and why they are stuck; the members of the fleet; a search over all plans; the
report of each plan, and its JSON; and health, for people and at /healthz for machines. The
pages only read.

There is no login. Web listens on this machine alone unless --listen says otherwise; then
everybody who reaches the port can read all plans. From elsewhere, use a tunnel:

    ssh -L 8484:localhost:8484 HOST

or a proxy that has a login and runs on the same machine; --host allows its name. A request
for any other name is refused, so that no page on the web can read the vault through your
browser.

Open plans and members are looked at each --interval, once for all viewers, and not at all
while nobody watches; whoever asks /healthz watches, too. A look takes a list of the members,
one of the days, one for each day without a catalogue, and one or two requests for each open
plan. It also reads each running plan that was created longer than --older ago: two requests,
and one for each of its sub-objects. With the default interval, an hour of watching costs
about:

` + webCosts() + `
The page of an open plan reads the plan each --interval while anybody sees it. A page of the
history takes up to 4 requests without filters; a search for a text in names reads all plans.
--cost prints at the end what was really sent.`,
		Example: `  planvault web
  planvault web --listen 127.0.0.1:9000 --interval 1m
  planvault web --host plans.example.com`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.web(c.Context(), w) },
	}
	c.Flags().StringVar(&w.listen, "listen", "127.0.0.1:8484", "serve on this `ADDRESS`")
	c.Flags().StringSliceVar(&w.hosts, "host", nil, "also answer browsers that call the server by this `NAME`")
	c.Flags().Var(&w.interval, "interval", "`TIME` between two looks at open plans and members, such as 15s or 1m")
	c.Flags().Var(&w.older, "older", "plans without progress for longer than this `AGE` are stuck")
	return c
}

// defaultInterval is the default of --interval.
const defaultInterval = 15 * time.Second

// webCosts returns what an hour of watching costs in vaults of different sizes.
func webCosts() string {
	var b strings.Builder
	for _, v := range []struct {
		what                  string
		days, open, old, each int
	}{
		{"10 days, 20 open plans", 10, 20, 0, 0},
		{"365 days, 20 open plans", 365, 20, 0, 0},
		{"365 days, 20 plans of 60 actions that run for long", 365, 20, 20, 79},
	} {
		look := price.Tally{azblob.ClassList: 2 + v.days, azblob.ClassOther: v.open, azblob.ClassRead: v.old * v.each}
		fmt.Fprintf(&b, "    %-52s %s\n", v.what, dollars(look.Dollars()*float64(time.Hour/defaultInterval)))
	}
	return b.String()
}

// webFlags are the flags of web.
type webFlags struct {
	listen          string
	hosts           []string
	interval, older age
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
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("serve on %s: %w: choose another address with --listen", f.listen, err)
	}
	local := l.Addr().(*net.TCPAddr).IP.IsLoopback()
	o := web.Options{Vault: where.Prefix, Hosts: f.hosts, Interval: time.Duration(f.interval), Older: time.Duration(f.older)}
	if local {
		o.Hosts = append(o.Hosts, web.LoopbackHosts()...)
	}
	if !local {
		fmt.Fprintf(a.stderr, "planvault: warning: there is no login: everybody who reaches %s can read all plans\n", l.Addr())
	}
	a.remark("Serving %s. Interrupt to end.", where)
	address := struct {
		URL string `json:"url"`
	}{"http://" + l.Addr().String()}
	if err := a.print(address, func(w io.Writer) { fmt.Fprintln(w, address.URL) }); err != nil {
		return errors.Join(err, l.Close())
	}
	return web.New(v, o).Serve(ctx, l)
}
