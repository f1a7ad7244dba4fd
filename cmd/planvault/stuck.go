package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// stuckCommand shows what is stuck.
func (a *app) stuckCommand() *cobra.Command {
	older := age(fleet.DefaultOlder)
	all := false
	c := a.onVault("stuck", "Show open plans that make no progress, and why",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			return a.stuck(ctx, v, time.Duration(older), all)
		})
	c.Flags().Var(&older, "older", "plans without progress for longer than this `AGE`, such as 15m or 2h")
	c.Flags().BoolVar(&all, "all", false, "show all open plans, with how each is doing")
	return c
}

// stuck prints the plans that are stuck, or all open plans.
func (a *app) stuck(ctx context.Context, v *azblob.Vault, older time.Duration, all bool) error {
	i, err := a.inspect(ctx, v, fleet.InspectOptions{Older: older, ReadAll: all})
	errs := []error{err}
	rows, stuck := []openRow{}, 0
	for _, p := range i.Plans {
		if err == nil && p.Condition == fleet.Unknown {
			errs = append(errs, p.Err)
		}
		if p.Stuck {
			stuck++
		}
		if all || p.Stuck {
			rows = append(rows, openRowOf(p, i))
		}
	}
	if err := a.printOpen(rows, all); err != nil {
		return err
	}
	a.noteForeign(int64(i.Foreign))
	switch err := errors.Join(errs...); {
	case err != nil:
		return err
	case stuck > 0:
		return errFound
	}
	if a.found() {
		a.remark("Nothing is stuck: %s, %s.", plural(len(i.Plans), "open plan"), alive(i))
	}
	return nil
}

// openRow is an open plan in the output of stuck.
type openRow struct {
	ID               uuid.UUID    `json:"id"`
	Group            *uuid.UUID   `json:"group,omitempty"`
	Name             string       `json:"name"`
	Status           string       `json:"status,omitempty"`
	Condition        string       `json:"condition"`
	Stuck            bool         `json:"stuck"`
	Why              string       `json:"why"`
	Owner            *uuid.UUID   `json:"owner,omitempty"`
	OwnerName        string       `json:"ownerName,omitempty"`
	OwnerState       string       `json:"ownerState"`
	HeartbeatSeconds *float64     `json:"heartbeatSeconds,omitempty"`
	Epoch            int64        `json:"epoch"`
	Progress         time.Time    `json:"progress"`
	IdleSeconds      float64      `json:"idleSeconds"`
	Running          []runningRow `json:"running,omitempty"`
	More             int          `json:"moreRunning,omitempty"`
	Done             int          `json:"doneActions,omitempty"`
	Actions          int          `json:"actions,omitempty"`
	StopRequested    time.Time    `json:"stopRequested,omitzero"`
	Error            string       `json:"error,omitempty"`

	doing string
}

type runningRow struct {
	Path     string    `json:"path"`
	Since    time.Time `json:"since,omitzero"`
	Attempts int       `json:"attempts"`
}

// mostRunning is how many running actions a row has.
const mostRunning = 100

func openRowOf(p fleet.OpenPlan, i fleet.Inspection) openRow {
	r := openRow{
		ID: p.ID, Group: known(p.GroupID), Name: p.Name, Condition: string(p.Condition), Stuck: p.Stuck, Why: p.Why,
		Owner: known(p.Owner), OwnerState: string(p.OwnerState), Epoch: p.Epoch,
		Progress: p.Progress.UTC(), IdleSeconds: max(0, i.Now.Sub(p.Progress)).Seconds(),
		Done: p.Done, Actions: p.Actions, StopRequested: p.StopRequested.UTC(), doing: p.Doing(),
	}
	if p.Condition != fleet.Unreadable || p.State.Status != workflow.NotStarted {
		r.Status = p.State.Status.String()
	}
	if p.Err != nil {
		r.Error = storage.Detail(p.Err)
	}
	for n, action := range p.Running {
		if n == mostRunning {
			r.More = len(p.Running) - n
			break
		}
		r.Running = append(r.Running, runningRow{action.Path, action.Since.UTC(), action.Attempts})
	}
	if m := memberOf(i, p.Owner); m != nil {
		seconds := m.Silence.Seconds()
		r.OwnerName, r.HeartbeatSeconds = m.Name, &seconds
	}
	return r
}

// cells returns the columns of a plan. The condition is shown beside all open plans.
func (r openRow) cells() []string {
	return []string{
		r.ID.String(), r.condition(), r.owner(), r.heartbeat(), seconds(r.IdleSeconds), orDash(printable(r.doing, 40)), printable(r.Name, 40),
	}
}

func (r openRow) condition() string {
	if r.Stuck {
		return r.Condition + ", stuck"
	}
	return r.Condition
}

// owner returns the name of the owner, or its ID.
func (r openRow) owner() string {
	switch {
	case r.OwnerName != "":
		return printable(r.OwnerName, 24)
	case r.Owner != nil:
		return r.Owner.String()
	}
	return "-"
}

func (r openRow) heartbeat() string {
	switch {
	case r.HeartbeatSeconds != nil:
		return seconds(*r.HeartbeatSeconds)
	case r.OwnerState == string(fleet.OwnerGone):
		return "gone"
	}
	return "-"
}

// printOpen prints open plans as a table, and below it why each is stuck or how it is doing.
func (a *app) printOpen(rows []openRow, all bool) error {
	cells, titles := openRow.cells, []string{"PLAN", "CONDITION", "OWNER", ">HEARTBEAT", ">PROGRESS", "DOING", "NAME"}
	if !all {
		cells, titles = func(r openRow) []string { return slices.Delete(r.cells(), 1, 2) }, slices.Delete(titles, 1, 2)
	}
	if err := printTable(a, rows, cells, titles...); err != nil {
		return err
	}
	for _, r := range rows {
		if err := a.summarize(fmt.Sprintf("\n%s: %s", r.ID, printable(r.Why, 0))); err != nil {
			return err
		}
	}
	return nil
}
