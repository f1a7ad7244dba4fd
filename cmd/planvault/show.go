package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// showCommand prints a plan as a tree.
func (a *app) showCommand() *cobra.Command {
	var w watch
	var signals bool
	c := a.onPlan("show ID", "Show a plan as a tree, and follow it",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
			if shortest := 100 * time.Millisecond; time.Duration(w.every) < shortest {
				return usageError("--interval must be %v or more", shortest)
			}
			w.app, w.vault, w.id = a, v, id
			w.waits = func(p *workflow.Plan) string { return a.waitsForTurn(ctx, v, p) }
			if signals {
				list, err := fleet.Signals(ctx, v, id, 0)
				if err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) {
					return err
				}
				if err != nil {
					a.complain(err)
				}
				w.signals = signalRowsOf(list)
			}
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
	flags.BoolVar(&signals, "signals", false, "list the signals of an open plan, without what is in them")
	flags.BoolVar(&w.exitStatus, "exit-status", false, "end with exit code 4 if the plan is Failed or Stopped")
	return c
}

// waitsForTurn says for which turn a plan waits, or nothing.
func (a *app) waitsForTurn(ctx context.Context, v storage.Vault, p *workflow.Plan) string {
	if p.State.Status.Final() || p.WaitsFor == "" && (p.State.Status != workflow.NotStarted || !fleet.TakesTurns(p)) {
		return ""
	}
	i, err := fleet.Inspect(ctx, v, fleet.InspectOptions{Older: readNone, Plans: []uuid.UUID{p.ID}})
	switch {
	case err != nil:
		a.complain(err)
	case len(i.Plans) == 1 && i.Plans[0].Turn != nil:
		return i.Plans[0].Why
	}
	return ""
}

// planSummary is a plan in the JSON of show.
type planSummary struct {
	report.Facts
	Failed  []actionRow  `json:"failed,omitempty" help:"the actions that failed"`
	Running []actionRow  `json:"running,omitempty" help:"the actions that run"`
	Skipped []skippedRow `json:"skipped,omitempty" help:"the actions that a person declared done"`
	Turn    string       `json:"turn,omitempty" help:"for which turn it waits, and who has it"`
	Signals []signalRow  `json:"signals,omitempty" help:"with --signals, the plan's signals"`
}

// signalRow is a signal in the JSON of show. What is in it may be secret.
type signalRow struct {
	Number int       `json:"number" help:"its number"`
	Name   string    `json:"name" help:"its name"`
	By     string    `json:"by,omitempty" help:"who sent it"`
	Why    string    `json:"why,omitempty" help:"why"`
	At     time.Time `json:"at" help:"when it was stored"`
	Bytes  int       `json:"bytes" help:"the size of what is in it"`
}

func signalRowsOf(list []fleet.Signal) (rows []signalRow) {
	for _, s := range list {
		rows = append(rows, signalRow{s.Number, s.Name, s.By.By, s.By.Why, utc(s.By.At), len(s.Payload)})
	}
	return rows
}

// line is the row for people.
func (r signalRow) line(stamp func(time.Time) string) string {
	text := fmt.Sprintf("  signal %d  %s  %s", r.Number, stamp(r.At), printable(r.Name, 60))
	if r.By != "" {
		text += " by " + printable(r.By, 60)
	}
	if r.Why != "" {
		text += ": " + printable(r.Why, 120)
	}
	return text
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
