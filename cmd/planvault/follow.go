package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
)

// follow is the flags of mirror --follow.
type follow struct {
	on    bool
	name  string
	every age
}

func (f *follow) addFlags(flags *pflag.FlagSet) {
	f.every = age(time.Minute)
	flags.BoolVar(&f.on, "follow", false, "keep the copy up to date until an interrupt, and suspended")
	flags.StringVar(&f.name, "name", "standby", "with --follow, the `NAME` of the copy: the note copy-NAME in the vault says how far it is")
	flags.Var(&f.every, "every", "with --follow, the `DURATION` between two rounds")
}

// followed is what a round did.
type followed struct {
	At         time.Time `json:"at" help:"when the round ended"`
	CaughtUp   time.Time `json:"caughtUp,omitzero" help:"the time up to which the copy has everything"`
	LagSeconds float64   `json:"lagSeconds" help:"how far it is behind"`
	Copied     int       `json:"copied" help:"how many plans were copied"`
	Updated    int       `json:"updated" help:"how many were written anew"`
	Removed    int       `json:"removed" help:"how many were removed from the copy"`
	Unchanged  int       `json:"unchanged" help:"how many the copy had already"`
	Failed     int       `json:"failed" help:"how many could not be copied"`
	Error      string    `json:"error,omitempty" help:"what failed"`
}

// follow keeps a copy up to date until the context ends, which is no interrupt: there is no other end.
func (a *app) follow(ctx context.Context, to connection, f follow, o mirror.Options) error {
	from, into, err := a.openBoth(ctx, to)
	if err != nil {
		return err
	}
	rounds := int(max(1, time.Hour/max(time.Second, time.Duration(f.every))))
	idle := price.Tally{azblob.ClassList: 8 * rounds, azblob.ClassWrite: 2 * rounds}
	if err := a.confirm(ctx, change{doing: "follow", what: "an hour without changes", requests: idle}); err != nil {
		return err
	}
	p := a.progress("follow", "round", 0).then("the copy stays suspended; run the same command again to go on, or planvault switch")
	defer p.end()
	told := time.Time{}
	var failed error
	options := mirror.FollowOptions{
		Name: f.name, By: a.attributionOf(ctx), Interval: time.Duration(f.every), Delete: o.Delete, Concurrency: o.Concurrency,
		Round: func(r mirror.Round) {
			p.step()
			if r.Err != nil {
				a.complain(r.Err)
			}
			if r.Err == nil && r.Report.Copied+r.Report.Updated+r.Report.Deleted == 0 && time.Since(told) < time.Hour {
				return
			}
			told = time.Now()
			if err := a.printRound(r); err != nil {
				failed = err
			}
		},
	}
	entry := about("mirror")
	entry.Detail = "from " + a.places[0]
	return a.auditEntry(ctx, into, entry, func(ctx context.Context) error {
		if err := mirror.Follow(ctx, a.pair(from, into), options); ctx.Err() == nil {
			return err
		}
		return failed
	})
}

// printRound prints what a round did.
func (a *app) printRound(r mirror.Round) error {
	row := followed{
		At: r.Now, CaughtUp: r.Standing.CaughtUp, LagSeconds: r.Lag().Seconds(), Copied: r.Report.Copied, Updated: r.Report.Updated,
		Removed: r.Report.Deleted, Unchanged: r.Report.Unchanged, Failed: r.Report.Failed,
	}
	if r.Err != nil {
		row.Error = storage.Detail(r.Err)
	}
	return a.print(row, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s copied, %s updated, %s removed, %s unchanged; %s\n", stamp(row.At), count(row.Copied), count(row.Updated), count(row.Removed),
			count(row.Unchanged), upTo(r.Standing.CaughtUp))
	})
}

// upTo says up to when a copy has everything.
func upTo(caughtUp time.Time) string {
	if caughtUp.IsZero() {
		return "the copy does not have everything yet"
	}
	return "the copy has everything up to " + stamp(caughtUp)
}
