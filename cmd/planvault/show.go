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
	ID          uuid.UUID         `json:"id" help:"the plan's ID"`
	Group       *uuid.UUID        `json:"group,omitempty" help:"the ID of its group"`
	Name        string            `json:"name" help:"its name"`
	Descr       string            `json:"descr,omitempty" help:"its description"`
	Labels      map[string]string `json:"labels,omitempty" help:"its labels"`
	Status      string            `json:"status" help:"NotStarted, Running, Completed, Failed or Stopped"`
	Reason      string            `json:"reason,omitempty" help:"why it failed"`
	Owner       *uuid.UUID        `json:"owner,omitempty" help:"the node that owns it, or owned it last"`
	Epoch       int64             `json:"epoch,omitempty" help:"how often an owner has taken it"`
	ForkedFrom  *uuid.UUID        `json:"forkedFrom,omitempty" help:"the plan that it was forked from"`
	Forked      *attributionJSON  `json:"forked,omitempty" help:"who asked for the fork, and why"`
	Stopped     *attributionJSON  `json:"stopped,omitempty" help:"who asked for the stop, and why"`
	Submitted   time.Time         `json:"submitted,omitzero" help:"when it was submitted"`
	Started     time.Time         `json:"started,omitzero" help:"when it began"`
	Ended       time.Time         `json:"ended,omitzero" help:"when it ended"`
	TookSeconds float64           `json:"tookSeconds,omitempty" help:"how long it took"`
	Actions     map[string]int    `json:"actions" help:"actions by status; NotApplied: bypass checks that failed"`
	Failed      []actionRow       `json:"failed,omitempty" help:"the actions that failed"`
	Running     []actionRow       `json:"running,omitempty" help:"the actions that run"`
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

// summaryOf returns the summary of a plan. In Actions, NotApplied are those of bypass checks that failed, which is no
// failure of the plan.
func summaryOf(p *workflow.Plan, root *report.Node) planSummary {
	s := planSummary{
		ID: p.ID, Group: known(p.GroupID), Name: p.Name, Descr: p.Descr, Labels: p.Labels, Status: p.State.Status.String(),
		Owner: known(p.Owner), Epoch: p.Epoch, ForkedFrom: known(p.ForkedFrom), Forked: attributionJSONOf(p.Forked), Stopped: attributionJSONOf(p.Stopped),
		Submitted: utc(p.SubmitTime), Started: utc(p.State.Start), Ended: utc(p.State.End), Actions: map[string]int{},
	}
	if p.Reason != workflow.NoFailure {
		s.Reason = p.Reason.String()
	}
	if took, ok := root.Span.Took(); ok {
		s.TookSeconds = took.Seconds()
	}
	for status, n := range root.Actions {
		s.Actions[status.String()] = n
	}
	if root.NotApplied > 0 {
		s.Actions["NotApplied"] = root.NotApplied
	}
	for n := range root.All() {
		switch action, ok := n.Object.(*workflow.Action); {
		case !ok:
		case n.Status == workflow.Failed && n.Troubled():
			s.Failed = append(s.Failed, actionRowOf(action, n))
		case n.Status == workflow.Running && n.Span.Open:
			s.Running = append(s.Running, actionRowOf(action, n))
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
