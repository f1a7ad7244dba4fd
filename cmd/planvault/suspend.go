package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
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

// pauseCommand keeps a plan from beginning anything.
func (a *app) pauseCommand() *cobra.Command {
	return a.signed(a.changesPlan("pause ID", "Let a plan begin nothing more until it is resumed", a.pause))
}

// paused is the report of pause, and of resume for a plan.
type paused struct {
	ID      uuid.UUID `json:"id" help:"the plan's ID"`
	Paused  bool      `json:"paused" help:"whether it is paused"`
	Message string    `json:"message" help:"the same as a sentence, and what it does now"`
}

// pause pauses a plan, and says what it does now.
func (a *app) pause(ctx context.Context, v *azblob.Vault, id uuid.UUID, _ []string) error {
	reached := a.progress("pause", "plan", 0).then("run it again, which is safe")
	defer reached.end()
	by, err := a.asks(ctx, v)
	if err != nil {
		return err
	}
	if err := fleet.PausePlan(ctx, v, id, by); err != nil {
		return err
	}
	i, err := fleet.Inspect(ctx, v, fleet.InspectOptions{Older: readNone, Plans: []uuid.UUID{id}})
	if err != nil {
		return fmt.Errorf("the plan is paused, but what it does now is not known: %w", err)
	}
	message := "The plan has just ended, or was deleted."
	if len(i.Plans) > 0 {
		message = i.Plans[0].Why
		if heard := hears(ctx, v, i.Plans[0].Plan); heard != "" {
			message = "The plan is paused. " + heard
		}
	}
	return a.printPaused(paused{id, true, message})
}

// resumePlan ends the pause of a plan.
func (a *app) resumePlan(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
	reached := a.progress("resume", "plan", 0).then("run it again, which is safe")
	defer reached.end()
	by, err := a.asks(ctx, v)
	if err != nil {
		return err
	}
	if err := fleet.ResumePlan(ctx, v, id, by); err != nil {
		return err
	}
	p, _ := lookUp(ctx, v, id) // it may have gone since
	heard := cmp.Or(hears(ctx, v, p), "It goes on within the fleet's interval, when a node is alive.")
	return a.printPaused(paused{id, false, "The plan is not paused. " + heard})
}

func (a *app) printPaused(p paused) error {
	return a.print(p, func(w io.Writer) { fmt.Fprintln(w, wrap(printable(p.Message, 0), a.width())) })
}
