package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// suspended is the report of suspend.
type suspended struct {
	By      string `json:"by" help:"who suspended the vault, as they said"`
	Why     string `json:"why" help:"why"`
	Evicted int    `json:"evicted" help:"how many nodes were evicted"`
	// Unclaimed is the number of Running plans that engines without a fleet began.
	Unclaimed int `json:"unclaimed" help:"how many Running plans belong to engines without a fleet"`
}

// suspendCommand keeps engines away from a vault.
func (a *app) suspendCommand() *cobra.Command {
	c := a.onVault("suspend --reason TEXT", "Keep engines away from the vault, and wait until none works on it",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			if a.who.reason == "" {
				return usageError("suspend: say why, with --reason TEXT")
			}
			requests := price.Tally{azblob.ClassWrite: 1, azblob.ClassList: 30}
			if err := a.confirm(ctx, change{doing: "suspend", what: "the vault", requests: requests}); err != nil {
				return err
			}
			report, err := a.suspend(ctx, v, a.who.reason, fleet.SuspendOptions{})
			if err != nil {
				return err
			}
			return a.print(report, func(w io.Writer) {
				fmt.Fprintf(w, "The vault is suspended by %s: %s\nNo node of a fleet works on it; %s evicted. planvault resume ends this.\n", report.By, printable(report.Why, 0), plural(report.Evicted, "node"))
				if report.Unclaimed > 0 {
					fmt.Fprintf(w, "%s began in an engine without a fleet, which looks only when it starts: stop it.\n", plural(report.Unclaimed, "plan"))
				}
			})
		})
	return a.signed(c)
}

// suspend suspends a vault and waits until no node works on it. The log has both as one change.
func (a *app) suspend(ctx context.Context, v *azblob.Vault, why string, o fleet.SuspendOptions) (report suspended, err error) {
	by := workflow.Attribution{By: a.attributionOf(ctx).By, Why: why}
	err = a.auditEntry(ctx, v, about("suspend"), func(ctx context.Context) (err error) {
		report, err = a.suspendUnlogged(ctx, v, by, o)
		return err
	})
	return report, err
}

func (a *app) suspendUnlogged(ctx context.Context, v *azblob.Vault, by workflow.Attribution, o fleet.SuspendOptions) (suspended, error) {
	reached := a.progress("suspend", "node", 0).then("the vault is suspended; " + goOn)
	defer reached.end()
	was, err := fleet.Suspend(ctx, v, by, o)
	if err != nil {
		return suspended{}, err
	}
	if was.Copy {
		return suspended{}, usageError("the vault is a copy, and suspended as long as it is: %s", was.Why)
	}
	unclaimed, err := fleet.Clear(ctx, v, fleet.ClearOptions{By: by, Doing: func(what string) { fmt.Fprintf(a.stderr, "%s.\n", printable(sentence(what), 0)) }})
	if err != nil {
		return suspended{}, err
	}
	n, err := v.Control().FindNote(ctx, storage.NoteSuspended)
	if err == nil {
		was, err = storage.ReadNote[storage.Suspension](n)
	}
	return suspended{was.By, was.Why, len(was.Evicted), unclaimed}, err
}

// sentence makes the first letter of a text a capital.
func sentence(text string) string { return string(text[0]-'a'+'A') + text[1:] }

// resumeCommand lets engines work on a suspended vault again, or on a plan that is paused.
func (a *app) resumeCommand() *cobra.Command {
	var back bool
	var to connection
	c := a.onVault("resume [ID]", "Let engines work on a suspended vault again, or on a paused plan",
		func(ctx context.Context, v *azblob.Vault, args []string) error {
			if len(args) > 0 {
				id, found, err := a.findPlan(ctx, v, args[0])
				if err != nil {
					return err
				}
				if found != "" {
					fmt.Fprintln(a.stderr, found)
				}
				return a.resumePlan(ctx, v, id)
			}
			resume := func(ctx context.Context) error { return fleet.Resume(ctx, v, a.attributionOf(ctx)) }
			if back {
				copied, err := a.open(ctx, to)
				if err != nil {
					return err
				}
				resume = func(ctx context.Context) error { return mirror.MoveBack(ctx, a.pair(v, copied), a.attributionOf(ctx)) }
			}
			if err := a.confirm(ctx, change{doing: "resume", what: "the vault", requests: price.Tally{azblob.ClassRead: 2, azblob.ClassDelete: 1}}); err != nil {
				return err
			}
			if err := a.auditEntry(ctx, v, about("resume"), resume); errors.Is(err, fleet.ErrSuspended) {
				return fmt.Errorf("%w; see planvault help resume", err)
			} else if err != nil {
				return err
			}
			return a.print(struct {
				Resumed bool `json:"resumed"`
			}{true}, func(w io.Writer) { fmt.Fprintln(w, "The vault is not suspended: start the engines.") })
		})
	c.Args = cobra.MaximumNArgs(1)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && back {
			return usageError("resume: --moved-back is for a vault, and not for a plan")
		}
		for _, text := range args {
			if _, _, err := parseIDOrEnd("plan", text); err != nil {
				return err // before the vault is opened
			}
		}
		return run(c, args)
	}
	to.addFlags(c.Flags(), "to-")
	c.Flags().BoolVar(&back, "moved-back", false, "the vault has moved to the copy that the flags with to- name, which is suspended and given up")
	return a.signed(c)
}
