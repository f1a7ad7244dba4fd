package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
)

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
func (a *app) pause(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
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
