package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
)

// mirrorCommand brings a copy up to date.
func (a *app) mirrorCommand() *cobra.Command {
	var b bulk
	var o mirror.Options
	var to connection
	var p period
	var f follow
	c := &cobra.Command{
		Use:   "mirror --to-endpoint URL|--to-connection-string TEXT|--to-profile NAME",
		Short: "Bring a copy of the vault in another account up to date",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.After, o.Before = p.from(time.Now())
			if f.on {
				if b.dryRun || b.budget != 0 || o.Deep || !o.After.IsZero() || !o.Before.IsZero() {
					return usageError("--follow excludes --dry-run, --budget, --deep and the times of plans")
				}
				return a.follow(c.Context(), to, f, o)
			}
			o.DryRun, o.Budget = b.dryRun, b.timeLeft()
			return a.mirror(c.Context(), to, o)
		},
	}
	to.addFlags(c.Flags(), "to-")
	c.Flags().BoolVar(&o.Delete, "delete", false, "remove plans from the copy that the vault no longer has")
	c.Flags().BoolVar(&o.Deep, "deep", false, "read each plan at both sides, and compare all of it")
	p.addFlags(c.Flags(), "created", "plans created")
	b.addFlags(c.Flags())
	f.addFlags(c.Flags())
	return a.signed(c)
}

// mirrored is what a mirror did, or would do.
type mirrored struct {
	planned
	Plans         int     `json:"plans" help:"how many plans the vault has"`
	Copied        int     `json:"copied" help:"how many were copied"`
	Updated       int     `json:"updated" help:"how many were written anew"`
	Removed       int     `json:"removed" help:"how many were removed from the copy"`
	Unchanged     int     `json:"unchanged" help:"how many the copy had already"`
	Extra         int     `json:"extra" help:"how many only the copy has"`
	Failed        int     `json:"failed" help:"how many could not be copied"`
	Notes         int     `json:"notes,omitzero" help:"how many pauses and signals were copied or removed"`
	Foreign       int     `json:"foreign,omitzero" help:"how many plans of another program it left out"`
	BehindSeconds float64 `json:"behindSeconds" help:"how far the copy is behind"`
	More          bool    `json:"more" help:"whether the budget ended it early"`
}

func mirroredOf(r mirror.Report, p planned) mirrored {
	return mirrored{p, r.Plans, r.Copied, r.Updated, r.Deleted, r.Unchanged, r.Extra, r.Failed, r.Notes, r.Foreign, r.Behind.Seconds(), r.More}
}

// rest says what is the same, or stays.
func (m mirrored) rest() string {
	text := fmt.Sprintf("%s unchanged, %s only in the copy, %s failed", count(m.Unchanged), count(m.Extra), count(m.Failed))
	if m.Notes > 0 {
		text += fmt.Sprintf(", %s changed", plural(m.Notes, "note"))
	}
	if m.Foreign > 0 {
		text += fmt.Sprintf(", %s written by another program", count(m.Foreign))
	}
	return text
}

func (a *app) mirror(ctx context.Context, to connection, o mirror.Options) error {
	from, into, err := a.openBoth(ctx, to)
	if err != nil {
		return err
	}
	o.By = a.attributionOf(ctx)
	pair := a.pair(from, into)
	look := o
	look.DryRun, look.Budget = true, 0
	found, err := a.runMirror(ctx, a.progress("compare", "plan", 0).then(untouched), pair, look)
	if err != nil && (ctx.Err() != nil || found.Failed == 0) {
		return err
	}
	changes := found.Copied + found.Updated + found.Deleted + found.Notes
	what := fmt.Sprintf("%s to copy, %s to update, %s to remove", plural(found.Copied, "plan"), count(found.Updated), count(found.Deleted))
	if found.Notes > 0 {
		what += fmt.Sprintf(", %s to copy or remove", plural(found.Notes, "note"))
	}
	// What the Recovery at the beginning takes is not in it: a listing for each day of the copy.
	requests := estimate(a.meter.traffic().requests, step{restorePlan, found.Copied}, step{restorePart, found.CopiedParts},
		step{updatePlan, found.Updated}, step{purgePlan, found.Deleted}, step{mirrorNote, found.Notes}, step{lookAtRole, changes})
	return carryOut(ctx, a, o.DryRun, due[mirror.Report]{
		change: change{doing: "mirror", what: what, requests: requests},
		n:      changes, found: found, err: err, journal: into, entry: about("mirror"),
		wouldDo: func(p planned) error {
			m := mirroredOf(found, p)
			return a.print(m, func(w io.Writer) {
				fmt.Fprintf(w, "from %s\nto   %s\nwould copy %s, update %s, remove %s: %s\n%s; the copy is %s behind\n", a.places[0], a.places[1],
					plural(m.Copied, "plan"), count(m.Updated), count(m.Removed), m.planned, m.rest(), span(found.Behind))
			})
		},
		do: func(ctx context.Context) (mirror.Report, error) {
			return a.runMirror(ctx, a.progress("mirror", "plan", found.Plans+found.Extra+found.Deleted).then(goOn), pair, o)
		},
		done: func(r mirror.Report, _ error) (more bool, err error) {
			m := mirroredOf(r, planned{})
			return r.More, a.print(m, func(w io.Writer) {
				fmt.Fprintf(w, "%s copied, %s updated, %s removed, %s%s\n", plural(m.Copied, "plan"), count(m.Updated), count(m.Removed), m.rest(), ifMore(m.More && ctx.Err() == nil))
			})
		},
	})
}

// runMirror runs a mirror with progress.
func (a *app) runMirror(ctx context.Context, p *progress, pair mirror.Pair, o mirror.Options) (mirror.Report, error) {
	defer p.end()
	o.Progress = p.reach
	return mirror.Run(ctx, pair, o)
}

// pair returns a vault and its copy, and where they are.
func (a *app) pair(from, into storage.Vault) mirror.Pair {
	return mirror.Pair{Source: from, Copy: into, From: a.places[0], To: a.places[1]}
}

// openBoth opens the vault and its copy. They must not be the same.
func (a *app) openBoth(ctx context.Context, to connection) (from, into *azblob.Vault, err error) {
	from, into, err = a.openPair(ctx, to)
	if err != nil {
		return nil, nil, err
	}
	a.progress("compare", "plan", 0).then(untouched)
	return from, into, sameStore(ctx, from, into)
}

// openPair opens the vault and its copy, and asks neither of them anything.
func (a *app) openPair(ctx context.Context, to connection) (from, into *azblob.Vault, err error) {
	source, err := a.resolve(a.connection)
	if err != nil {
		return nil, nil, err
	}
	copied, err := a.resolve(to)
	if err != nil {
		return nil, nil, err
	}
	if source.String() == copied.String() {
		return nil, nil, usageError("the copy is the vault itself: %s", copied)
	}
	if from, err = a.open(ctx, source); err != nil {
		return nil, nil, err
	}
	into, err = a.openNew(ctx, copied)
	return from, into, err
}

// sameStore returns an error if the copy is the vault itself under another name: a plan that was written twice does not
// have the same version twice.
func sameStore(ctx context.Context, from, to storage.Reader) error {
	var newest storage.ListResult
	for r := range search(ctx, from, storage.Filters{Limit: 1}) {
		switch {
		case errors.Is(r.Err, storage.ErrForeign):
		case r.Err != nil:
			return r.Err
		default:
			newest = r.Result
		}
	}
	if newest.ID == uuid.Nil {
		return nil
	}
	found, err := storage.Collect(to.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{newest.ID}}))
	if err == nil && len(found) > 0 && found[0].State.ETag == newest.State.ETag {
		err = fmt.Errorf("the copy is the vault itself under another name: plan %s has the same version in both; nothing was changed", found[0].ID)
	}
	return err
}

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
