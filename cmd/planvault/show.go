package main

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/workflow"
)

// showCommand prints a plan as a tree.
func (a *app) showCommand() *cobra.Command {
	var w watch
	c := a.onPlan("show ID", "Show a plan as a tree, and follow it",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
			if shortest := 100 * time.Millisecond; time.Duration(w.every) < shortest {
				return usageError("--interval must be %v or more", shortest)
			}
			w.app, w.vault, w.id = a, v, id
			p, err := w.run(ctx)
			if err == nil && w.exitStatus && (p.State.Status == workflow.Failed || p.State.Status == workflow.Stopped) {
				return errFound
			}
			return err
		})
	flags := c.Flags()
	flags.BoolVar(&w.all, "all", false, "show all of a large plan, and errors in full")
	flags.BoolVar(&w.follow, "watch", false, "follow the plan until it is final")
	w.every = age(2 * time.Second)
	flags.Var(&w.every, "interval", "with --watch, the `TIME` between two looks at the plan, such as 2s or 1m")
	flags.BoolVar(&w.exitStatus, "exit-status", false, "end with exit code 4 if the plan is Failed or Stopped")
	return c
}

// planSummary is a plan in the JSON of show.
type planSummary struct {
	report.Facts
	Failed  []actionRow  `json:"failed,omitempty" help:"the actions that failed"`
	Running []actionRow  `json:"running,omitempty" help:"the actions that run"`
	Skipped []skippedRow `json:"skipped,omitempty" help:"the actions that a person declared done"`
}

// skippedRow is an action in the JSON of show that did not run.
type skippedRow struct {
	ID   uuid.UUID `json:"id" help:"the action's ID"`
	Path string    `json:"path" help:"its path in the plan"`
	report.Said
}

// actionRow is an action in the JSON of show.
type actionRow struct {
	ID       uuid.UUID `json:"id" help:"the action's ID"`
	Path     string    `json:"path" help:"its path in the plan"`
	Plugin   string    `json:"plugin,omitempty" help:"its plugin"`
	Started  time.Time `json:"started,omitzero" help:"when it began"`
	Attempts int       `json:"attempts" help:"how often it was tried"`
	Error    string    `json:"error,omitempty" help:"its last error"`
}

func summaryOf(root *report.Node) planSummary {
	s := planSummary{Facts: report.FactsOf(root)}
	for n := range root.All() {
		switch action, ok := n.Object.(*workflow.Action); {
		case !ok:
		case n.Status == workflow.Failed && n.Troubled():
			s.Failed = append(s.Failed, actionRowOf(action, n))
		case n.Status == workflow.Running && n.Span.Open:
			s.Running = append(s.Running, actionRowOf(action, n))
		case n.SkippedBy() != nil:
			s.Skipped = append(s.Skipped, skippedRow{action.ID, n.Path, *n.SkippedBy()})
		}
	}
	return s
}

func actionRowOf(action *workflow.Action, n *report.Node) actionRow {
	return actionRow{
		ID: action.ID, Path: n.Path, Plugin: action.Plugin,
		Started: utc(action.State.Start), Attempts: len(action.Attempts), Error: n.LastError(),
	}
}
