package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
)

// switching is the flags of the command switch.
type switching struct {
	to                      connection
	lost, unclaimed, remove bool
	despite                 bool
	checked                 age
}

// switchCommand makes a copy the vault that engines work on.
func (a *app) switchCommand() *cobra.Command {
	s := switching{checked: age(48 * time.Hour)}
	c := &cobra.Command{
		Use:   "switch --to-endpoint URL|--to-connection-string TEXT|--to-profile NAME",
		Short: "Move engines to a copy of the vault, so that no plan runs in both",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.switchOver(c.Context(), s) },
	}
	s.to.addFlags(c.Flags(), "to-")
	flags := c.Flags()
	flags.BoolVar(&s.lost, "lost", false, "the vault does not answer: open the copy as it is")
	flags.BoolVar(&s.unclaimed, "unclaimed", false, "the engines without a fleet that began plans do not run any more")
	flags.BoolVar(&s.remove, "delete", false, "remove plans from the copy that the vault no longer has")
	flags.BoolVar(&s.despite, "despite", false, "open the copy although plans could not be copied, or the check finds problems")
	flags.Var(&s.checked, "check", "check the days of the copy that have plans of this `DURATION`")
	return a.signed(c)
}

// switched is the report of switch.
type switched struct {
	From      string    `json:"from" help:"the vault"`
	To        string    `json:"to" help:"the copy, which is open now"`
	Lost      bool      `json:"lost,omitempty" help:"whether the vault was given up"`
	CaughtUp  time.Time `json:"caughtUp,omitzero" help:"the time up to which the copy had everything before"`
	Evicted   int       `json:"evicted" help:"how many nodes were evicted"`
	Unclaimed int       `json:"unclaimed" help:"how many Running plans belong to engines without a fleet"`
	Copied    int       `json:"copied" help:"how many plans were copied"`
	Updated   int       `json:"updated" help:"how many were written anew"`
	Removed   int       `json:"removed" help:"how many were removed from the copy"`
	Failed    int       `json:"failed" help:"how many could not be copied"`
	Checked   int       `json:"checked" help:"how many plans of the copy were checked"` // plans
	Problems  int       `json:"problems" help:"how many problems that found"`
	Opened    time.Time `json:"opened" help:"when the copy was opened"`
	By        string    `json:"by" help:"who switched, as they said"`
	Before    bool      `json:"before,omitempty" help:"whether the copy was open already"`
}

// lostAfter is how long the vault may take to answer before it counts as lost.
const lostAfter = time.Minute

// switchOver makes the copy the vault that engines work on. Each step may be repeated, so the same command goes on
// wherever it was interrupted:
//
//  1. the copy is suspended, if it is not;
//  2. the vault is suspended, its nodes leave or are evicted, and its open plans are fenced;
//  3. what the copy lacks is copied, and compared;
//  4. the copy is checked;
//  5. the copy is opened. Nothing is copied any more from here on.
func (a *app) switchOver(ctx context.Context, s switching) error {
	from, into, err := a.openPair(ctx, s.to)
	if err != nil {
		return err
	}
	reached := a.progress("switch", "plan", 0).then(untouched)
	defer reached.end()
	report := switched{From: a.places[0], To: a.places[1], Lost: s.lost}
	state, err := mirror.StateOf(ctx, into)
	if err != nil {
		return err
	}
	report.CaughtUp, report.Before = state.CaughtUp, !state.Promoted.IsZero()
	answers := a.answers(ctx, from)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.lost && answers == nil:
		return usageError("switch: the vault in %s answers: run it without --lost, which fences its engines; nothing was changed", a.places[0])
	case !s.lost && answers != nil:
		return fmt.Errorf("switch: nothing was changed, because the vault does not answer: %w; if it is lost, read planvault help switch, and give --lost", answers)
	}
	if !s.lost {
		if err := sameStore(ctx, from, into); err != nil {
			return err
		}
	}
	if n, err := into.Control().FindNote(ctx, storage.NoteSuspended); err == nil {
		if c, err := storage.ReadNote[storage.Suspension](n); err != nil || c.MovedTo != "" {
			return cmp.Or(err, usageError("switch: the copy has moved itself: %s", human.Resumes(c.Copy, c.MovedTo)))
		}
	}
	if err := a.confirmSwitch(ctx, s, report); err != nil {
		return err
	}
	reached.then("the vaults may be suspended; " + goOn)
	if err := a.auditEntry(ctx, into, about("switch"), func(ctx context.Context) error { return a.moveEngines(ctx, from, into, s, state, &report) }); err != nil {
		return err
	}
	return a.print(report, report.write)
}

// moveEngines takes the steps of a switch.
func (a *app) moveEngines(ctx context.Context, from, into *azblob.Vault, s switching, state mirror.State, report *switched) error {
	by := a.attributionOf(ctx)
	if state.Promoted.IsZero() && !(s.lost && state.Copy) { // Adopt asks the vault, which does not answer if it is lost
		err := mirror.Adopt(ctx, a.pair(from, into), by)
		if err == nil {
			state, err = mirror.StateOf(ctx, into)
		}
		if err != nil {
			return err
		}
	}
	if !s.lost {
		c, err := a.suspend(ctx, from, "the vault has moved to "+a.places[1], fleet.SuspendOptions{MovedTo: a.places[1], MovedID: state.ID})
		if err != nil {
			return err
		}
		if report.Evicted, report.Unclaimed = c.Evicted, c.Unclaimed; c.Unclaimed > 0 && !s.unclaimed && state.Promoted.IsZero() {
			return usageError("switch: %s began in an engine without a fleet, which nothing fences: stop that engine, and run this again with --unclaimed", plural(c.Unclaimed, "plan"))
		}
	}
	if state.Promoted.IsZero() {
		if err := a.complete(ctx, from, into, s, report); err != nil {
			return err
		}
	}
	a.progress("open the copy", "step", 0).then(goOn)
	if err := mirror.Promote(ctx, into, by); err != nil { // an earlier one may have been interrupted
		return err
	}
	state, err := mirror.StateOf(ctx, into)
	report.Opened, report.By = state.Promoted, state.By
	return err
}

// answers returns nil if a vault answers within lostAfter.
func (a *app) answers(ctx context.Context, v *azblob.Vault) error {
	ctx, cancel := context.WithTimeout(ctx, lostAfter)
	defer cancel()
	_, err := v.Control().Roster(ctx)
	return err
}

// confirmSwitch says what the switch does, and what it can't do.
func (a *app) confirmSwitch(ctx context.Context, s switching, r switched) error {
	c := change{doing: "switch", what: "suspend the vault, copy what is left (not counted), open the copy", requests: price.Tally{azblob.ClassList: 60, azblob.ClassWrite: 5, azblob.ClassRead: 10}}
	if s.lost {
		c.what = "open the copy as it is"
		c.warning = fmt.Sprintf(`%s does not answer, so nothing fences its engines.
Stop them now, or cut their network: an engine that still reaches the account goes on with its plans,
and so do the engines on the copy.
%s.
What was done since then is done again, and plans that were created since then are missing.
When the account is back, run the same command without --lost: it suspends the vault there.
`, r.From, sentence(upTo(r.CaughtUp)))
	}
	if r.Before {
		c.what = "suspend the vault, whose copy is open"
	}
	return a.confirm(ctx, c)
}

// complete copies what the copy lacks, compares both, and checks the copy.
func (a *app) complete(ctx context.Context, from, into *azblob.Vault, s switching, r *switched) error {
	if !s.lost {
		if err := a.copyRest(ctx, from, into, s, r); err != nil {
			return err
		}
	} else if err := into.Recovery(ctx); err != nil && !s.despite {
		return fmt.Errorf("switch: %w; repair it, or give --despite", err)
	}
	p := a.progress("check the copy", "day", 0).then("the copy is not open yet; " + goOn)
	defer p.end()
	checked, err := into.Admin().Check(ctx, azblob.CheckOptions{From: storage.DayOf(time.Now().Add(-time.Duration(s.checked))), Progress: p.reach})
	if err != nil {
		return err
	}
	r.Checked, r.Problems = checked.Plans, len(checked.Problems)
	if r.Problems > 0 && !s.despite {
		return fmt.Errorf("switch: the copy is not open: %s in it, such as %s; look with planvault check, repair it with planvault recover, or give --despite", plural(r.Problems, "problem"), checked.Problems[0])
	}
	return nil
}

// copyRest copies what the copy lacks, and compares both.
func (a *app) copyRest(ctx context.Context, from, into *azblob.Vault, s switching, r *switched) error {
	copied := func(o mirror.Options) (mirror.Report, error) {
		o.Delete, o.By = s.remove, a.attributionOf(ctx)
		return a.runMirror(ctx, a.progress("mirror", "plan", 0).then("the copy is not open yet; "+goOn), a.pair(from, into), o)
	}
	found, err := copied(mirror.Options{})
	r.Copied, r.Updated, r.Removed, r.Failed = found.Copied, found.Updated, found.Deleted, found.Failed
	if err == nil {
		if found, err = copied(mirror.Options{DryRun: true}); err == nil && found.Copied+found.Updated+found.Deleted+found.Notes > 0 {
			err = fmt.Errorf("switch: somebody still writes to the vault: %s, %s and %s differ after all was copied; stop whoever submits plans or signals, and run this again",
				plural(found.Copied, "new plan"), plural(found.Updated, "plan"), plural(found.Notes, "note"))
		}
	}
	if err == nil && found.ExtraOpen > 0 {
		err = fmt.Errorf("switch: engines would run %s of the copy that the vault does not have, such as deleted ones: give --delete to remove what the vault does not have", plural(found.ExtraOpen, "open plan"))
	}
	if err != nil && (ctx.Err() != nil || !s.despite) {
		return errors.Join(err, fmt.Errorf("switch: the copy is not open: run the same command again, or give --despite to leave these plans behind"))
	}
	return nil
}

// write says what was done, and what comes next.
func (r switched) write(w io.Writer) {
	if !r.Lost {
		fmt.Fprintf(w, "%s is suspended: %s evicted.\n", r.From, plural(r.Evicted, "node"))
	}
	if !r.Lost && !r.Before {
		fmt.Fprintf(w, "%s copied, %s updated, %s removed, %s failed.\n", plural(r.Copied, "plan"), count(r.Updated), count(r.Removed), count(r.Failed))
	}
	if !r.Before {
		fmt.Fprintf(w, "%s in %s checked.\n", plural(r.Problems, "problem"), plural(r.Checked, "plan"))
	}
	next := "Start the engines there."
	if r.Before {
		next = "Nothing was copied to it."
	}
	fmt.Fprintf(w, "%s is open since %s.\n%s\n", r.To, stamp(r.Opened), next)
}
