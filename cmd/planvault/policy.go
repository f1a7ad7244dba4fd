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
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// policyCommand sets and shows how long plans are kept.
func (a *app) policyCommand() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Let engines remove plans of some age"}
	c.AddCommand(a.policySetCommand(), a.policyShowCommand(), a.policyRemoveCommand())
	return c
}

func (a *app) policySetCommand() *cobra.Command {
	var keep, keepFailed age
	var p retention.Policy
	var now, dryRun bool
	c := a.onVault("set [--keep AGE] [--keep-failed AGE] [--catalogue]", "Say how long engines keep plans",
		func(ctx context.Context, v *azblob.Vault, _ []string) (err error) {
			if p.KeepDays, err = wholeDays("keep", keep); err != nil {
				return err
			}
			if p.KeepFailedDays, err = wholeDays("keep-failed", keepFailed); err != nil {
				return err
			}
			p, err = p.WithDefaults()
			switch wrong, ok := errors.AsType[*workflow.FieldError](err); {
			case ok:
				flag := map[string]string{"KeepDays": "--keep", "KeepFailedDays": "--keep-failed"}[wrong.Field]
				return usageError("%s: %s", flag, wrong.Problem)
			case err != nil:
				return err
			}
			return a.setPolicy(ctx, v, p, now, dryRun)
		})
	c.Flags().Var(&keep, "keep", "keep Completed and Stopped plans for this `AGE`, such as 90d")
	c.Flags().Var(&keepFailed, "keep-failed", "keep Failed plans for this `AGE` (default: that of --keep)")
	c.Flags().BoolVar(&p.Catalogue, "catalogue", false, "build the catalogues of past days")
	c.Flags().BoolVar(&now, "now", false, "let engines begin at once, and not after a day")
	addDryRun(c.Flags(), &dryRun)
	return a.signed(c)
}

// wholeDays returns an age as the days of a policy.
func wholeDays(flag string, g age) (int, error) {
	const aDay = age(24 * time.Hour)
	if g%aDay != 0 {
		return 0, usageError("--%s: %s is not a number of days", flag, g.String())
	}
	return int(g / aDay), nil
}

// policyWork is what a step of a policy has to do.
type policyWork struct {
	Drop  int `json:"drop" help:"how many days are dropped"`                // days
	Purge int `json:"purge" help:"how many days lose some plans"`           // days of which some plans are removed
	Plans int `json:"plans" help:"how many plans are removed one by one"`   // that are removed one by one
	Held  int `json:"held" help:"how many days stay because they are held"` // days that are held
}

func workOf(days []retention.Day) (w policyWork) {
	for _, d := range days {
		switch d.Operation() {
		case retention.OperationDrop:
			w.Drop++
		case retention.OperationPurge:
			w.Purge++
			w.Plans += d.Due()
		}
		if d.Held {
			w.Held++
		}
	}
	return w
}

// String returns "drop 275 days, remove 1,204 plans of 12 days; held: 1 day".
func (w policyWork) String() string {
	text := "drop " + plural(w.Drop, "day")
	if w.Purge > 0 {
		text += ", remove " + plural(w.Plans, "plan") + " of " + plural(w.Purge, "day")
	}
	if w.Held > 0 {
		text += "; held: " + plural(w.Held, "day")
	}
	return text
}

func (w policyWork) takes() price.Tally {
	return estimate(nil, step{retireDay, w.Drop}, step{keepDay, w.Purge}, step{purgePlan, w.Plans})
}

// policySet is what became of a policy that was set.
type policySet struct {
	retention.Policy
	Changed bool       `json:"changed" help:"whether it differs from the one before"`
	First   policyWork `json:"firstStep" help:"what its first step removes"`
	planned
}

// dueDays returns the days that a policy reaches.
func dueDays(ctx context.Context, v storage.Vault, p retention.Policy) ([]retention.Day, error) {
	days, ok := storage.As[retention.Vault](v)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return days.DueDays(ctx, p)
}

// setPolicy says what a policy would do, and sets it if it may.
func (a *app) setPolicy(ctx context.Context, v *azblob.Vault, p retention.Policy, now, dryRun bool) error {
	a.progress("look", "day", 0).then(untouched)
	days, err := dueDays(ctx, v, p)
	if err != nil {
		return err
	}
	set := policySet{Policy: p, First: workOf(days)}
	when := "after a day"
	if now {
		when = "within an hour"
	}
	doing := p.String() + "; " + when + ", engines " + set.First.String()
	if dryRun {
		set.planned = plannedOf(set.First.takes())
		return a.print(set, set.after(doing))
	}
	if err := a.confirm(ctx, change{doing: "policy set", what: doing, requests: set.First.takes()}); err != nil {
		return err
	}
	if err := a.auditEntry(ctx, v, storage.AuditEntry{What: "policy-set", Detail: p.String()}, func(ctx context.Context) (err error) {
		set.Changed, err = retention.Set(ctx, v, p, retention.Change{By: a.attributionOf(ctx), AtOnce: now})
		return err
	}); err != nil {
		return err
	}
	return a.print(set, func(w io.Writer) {
		if !set.Changed {
			fmt.Fprintln(w, "this is the policy already")
			return
		}
		fmt.Fprintf(w, "%s; engines begin %s\n", p.String(), when)
	})
}

func (a *app) policyRemoveCommand() *cobra.Command {
	return a.signed(a.onVault("remove", "Keep all plans from now on", func(ctx context.Context, v *azblob.Vault, _ []string) error {
		removed := false
		if err := a.auditEntry(ctx, v, about("policy-remove"), func(ctx context.Context) (err error) {
			removed, err = retention.Remove(ctx, v, a.attributionOf(ctx))
			return err
		}); err != nil {
			return err
		}
		return a.print(struct {
			Removed bool `json:"removed"`
		}{removed}, func(w io.Writer) {
			if removed {
				fmt.Fprintln(w, "the policy is removed; a step that is under way ends within a minute")
				return
			}
			fmt.Fprintln(w, "there is no policy")
		})
	}))
}

// policyShown is what policy show tells.
type policyShown struct {
	retention.Policy
	By      string            `json:"by,omitempty" help:"who set it, as they said"`
	Why     string            `json:"why,omitempty" help:"why"`
	Set     time.Time         `json:"set" help:"when, by the service's clock"`
	AtOnce  bool              `json:"atOnce,omitempty" help:"whether it removes before a day has passed"`
	Claim   string            `json:"claim,omitempty" help:"who does a step now"`
	Last    *retention.Report `json:"last,omitempty" help:"what the last step did"`
	Next    time.Time         `json:"next" help:"when the next step may begin"` // when the next step may begin
	Overdue bool              `json:"overdue" help:"whether nobody has begun it"`
	Due     policyWork        `json:"due" help:"what it removes"`
}

// overdue is how long after its time a step is late. Engines look each hour.
const overdue = 3 * time.Hour

func (a *app) policyShowCommand() *cobra.Command {
	return a.onVault("show", "Show the policy, what it did last, and what it will do next",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			found, err := retention.Find(ctx, v)
			if errors.Is(err, storage.ErrNotFound) {
				return cmp.Or(a.summarize("there is no policy: all plans are kept"), error(errFound))
			}
			if err != nil {
				return err
			}
			roster, err := v.Control().Roster(ctx)
			if err != nil {
				return err
			}
			days, err := dueDays(ctx, v, found.Policy)
			if err != nil {
				return err
			}
			s := policyShown{
				Policy: found.Policy, By: found.By.By, Why: found.By.Why, Set: found.By.At, AtOnce: found.AtOnce, Claim: found.Claim,
				Last: found.Last, Next: utc(found.Begin()), Due: workOf(days),
			}
			s.Overdue = roster.Now.Sub(s.Next) > overdue
			if err := a.print(s, s.text); err != nil || !s.Overdue {
				return err
			}
			return errFound
		})
}

// text writes the policy for people.
func (s policyShown) text(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-8s"+format+"\n", append([]any{name}, args...)...)
	}
	line("policy", "%s", s.Policy.String())
	line("set", "%s%s", stamp(s.Set), signed(s.By, s.Why))
	if s.Claim != "" {
		line("now", "%s is at work", printable(s.Claim, 60))
	}
	if r := s.Last; r != nil {
		line("last", "%s%s: %s dropped, %s removed one by one", stamp(r.At), signed(r.By, ""), plural(r.Dropped, "day"), plural(r.Removed, "plan"))
		for _, d := range r.Kept {
			line("", "%s stays: %s", d.Day, printable(d.Why, 80))
		}
		if more := r.KeptAll - len(r.Kept); more > 0 {
			line("", "%s more stay", plural(more, "day"))
		}
		if r.Error != "" {
			line("", "failed: %s", printable(r.Error, 200))
		}
	}
	when := "from " + stamp(s.Next)
	if s.Overdue {
		when = "overdue since " + stamp(s.Next) + ": no engine enforces it; start one, or update those that run"
	}
	line("next", "%s: %s", when, s.Due)
}

// by returns who did something, and why, behind a time.
func signed(who, why string) (text string) {
	if who != "" {
		text = " by " + printable(who, 60)
	}
	if why != "" {
		text += " (" + printable(why, 100) + ")"
	}
	return text
}
