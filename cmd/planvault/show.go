package main

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/report"
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
	ID          uuid.UUID         `json:"id"`
	Group       *uuid.UUID        `json:"group,omitempty"`
	Name        string            `json:"name"`
	Descr       string            `json:"descr,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Status      string            `json:"status"`
	Reason      string            `json:"reason,omitempty"`
	Owner       *uuid.UUID        `json:"owner,omitempty"`
	Epoch       int64             `json:"epoch,omitempty"`
	ForkedFrom  *uuid.UUID        `json:"forkedFrom,omitempty"`
	Forked      *attributionJSON  `json:"forked,omitempty"`
	Stopped     *attributionJSON  `json:"stopped,omitempty"`
	Submitted   time.Time         `json:"submitted,omitzero"`
	Started     time.Time         `json:"started,omitzero"`
	Ended       time.Time         `json:"ended,omitzero"`
	TookSeconds float64           `json:"tookSeconds,omitempty"`
	Actions     map[string]int    `json:"actions"`
	Failed      []actionRow       `json:"failed,omitempty"`
	Running     []actionRow       `json:"running,omitempty"`
}

// actionRow is an action in the JSON of show.
type actionRow struct {
	ID       uuid.UUID `json:"id"`
	Path     string    `json:"path"`
	Plugin   string    `json:"plugin,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Attempts int       `json:"attempts"`
	Error    string    `json:"error,omitempty"`
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
