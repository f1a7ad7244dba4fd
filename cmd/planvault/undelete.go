package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// undeleteCommand brings deleted plans and dropped days back.
func (a *app) undeleteCommand() *cobra.Command {
	dryRun := false
	// All days may have been dropped, so there may be no container.
	c := a.onVaultBy(a.openNew, "undelete ID|DAY", "Bring back a deleted plan, or what was deleted of a day (soft delete)",
		func(ctx context.Context, v *azblob.Vault, args []string) error {
			if day, err := time.Parse(time.DateOnly, args[0]); err == nil {
				return a.undeleteDay(ctx, v, day, dryRun)
			}
			id, err := parseID("plan", args[0])
			if err != nil {
				return usageError("%q is neither a day nor the whole ID of a plan", printable(args[0], 50))
			}
			plan := storage.ListResult{ID: id}
			if dryRun {
				if plan, err = deletedPlan(ctx, v, id); err != nil {
					return err
				}
			}
			return a.undeletePlans(ctx, v, []storage.ListResult{plan}, storage.Deed{}, dryRun)
		})
	c.Args = cobra.ExactArgs(1)
	addDryRun(c.Flags(), &dryRun)
	return a.signed(c)
}

// undeletedRow is a plan or a day that was to come back.
type undeletedRow struct {
	ID     *uuid.UUID `json:"id,omitempty"`
	Day    string     `json:"day,omitempty"`
	Status string     `json:"status,omitempty"`
	Name   string     `json:"name,omitempty"`
	Result string     `json:"result"` // restored, there, kept, or failed
	Error  string     `json:"error,omitempty"`
}

func (r undeletedRow) cells() []string {
	what := r.Day
	if r.ID != nil {
		what = r.ID.String()
	}
	return []string{what, r.Status, r.Result, printable(r.Name, 60)}
}

// printUndeleted prints plans that came back, or could.
func (a *app) printUndeleted(rows []undeletedRow) error {
	return printTable(a, rows, undeletedRow.cells, "PLAN", "STATUS", "RESULT", "NAME")
}

// deletedPlan finds a deleted plan among those that the account keeps.
func deletedPlan(ctx context.Context, v *azblob.Vault, id uuid.UUID) (storage.ListResult, error) {
	if _, err := lookUp(ctx, v, id); err == nil {
		return storage.ListResult{}, &exitError{exitFound, fmt.Errorf("plan %s is there: undelete would change nothing", id)}
	}
	plans, err := v.Deleted(ctx, workflow.Time(id))
	if err != nil {
		return storage.ListResult{}, err
	}
	for _, p := range plans {
		if p.ID == id {
			return p, nil
		}
	}
	return storage.ListResult{}, &exitError{exitFound, fmt.Errorf("plan %s: the account keeps no deleted plan with this ID", id)}
}

// undeleteDay restores a day that was dropped, or the plans that were deleted of a day that is there.
func (a *app) undeleteDay(ctx context.Context, v *azblob.Vault, day time.Time, dryRun bool) error {
	a.progress("look", "day", 0).then(untouched)
	plans, err := v.Deleted(ctx, day)
	deed := days{day: true}.deed("undelete")
	if err == nil {
		return a.undeletePlans(ctx, v, plans, deed, dryRun)
	}
	if !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	row := undeletedRow{Day: date(day), Result: "restored"}
	warning := a.policyWarning(ctx, v, day)
	return carryOut(ctx, a, dryRun, due[struct{}]{
		change: change{doing: "undelete", what: "1 day", requests: estimate(a.meter.traffic().requests, step{undeleteDay, 1}), warning: warning},
		n:      1, journal: v, deed: deed,
		wouldDo: func(p planned) error {
			return a.print(p, p.after("would restore the day, if the account keeps it"))
		},
		do: func() (none struct{}, err error) {
			if err = v.UndeleteDay(ctx, day); errors.Is(err, storage.ErrExists) {
				row.Result, err = "there", nil
			}
			return none, err
		},
		done: func(_ struct{}, err error) (bool, error) {
			if err != nil {
				return false, nil
			}
			return false, a.print(row, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", row.Day, row.Result) })
		},
	})
}

// policyWarning says that the policy of the vault removes plans of a day again, or is empty.
func (a *app) policyWarning(ctx context.Context, v *azblob.Vault, at time.Time) string {
	p, err := retention.Find(ctx, v)
	if err != nil || p.Reach(at.UTC().Truncate(24*time.Hour), time.Now()) == retention.ReachNone {
		return ""
	}
	return fmt.Sprintf("WARNING: the policy (%s) reaches %s, and engines remove final plans of that day again: hold the day, or change the policy.\n", policyText(p.Policy), date(at))
}

// undeletePlans restores plans, one after the other. One that fails does not stop the others.
func (a *app) undeletePlans(ctx context.Context, v *azblob.Vault, plans []storage.ListResult, deed storage.Deed, dryRun bool) error {
	rows := make([]undeletedRow, len(plans))
	for i, p := range plans {
		rows[i] = undeletedRow{ID: &plans[i].ID, Name: p.Name, Result: "kept"}
		if !p.SubmitTime.IsZero() {
			rows[i].Status = p.State.Status.String()
		}
	}
	if deed.What == "" {
		deed = about("undelete", plans[0].ID)
	}
	n, warning := int64(len(plans)), ""
	if n > 0 {
		warning = a.policyWarning(ctx, v, workflow.Time(plans[0].ID))
	}
	return carryOut(ctx, a, dryRun, due[struct{}]{
		change: change{doing: "undelete", what: plural(n, "plan"), requests: estimate(a.meter.traffic().requests, step{undeletePlan, n}), warning: warning},
		n:      n, journal: v, deed: deed,
		wouldDo: func(p planned) error {
			return errors.Join(a.printUndeleted(rows), a.print(p, p.after("would restore "+plural(n, "plan"))))
		},
		do: func() (none struct{}, err error) {
			reached := a.progress("undelete", "plan", n).then(goOn)
			defer reached.end()
			var errs []error
			for i := range rows {
				if ctx.Err() != nil {
					break
				}
				if err := rows[i].undelete(ctx, v); err != nil {
					errs = append(errs, err)
				}
				reached.step()
			}
			return none, errors.Join(append(errs, ctx.Err())...)
		},
		done: func(struct{}, error) (bool, error) {
			if n == 0 {
				return false, a.summarize("The account keeps no deleted plans of this day.")
			}
			return false, a.printUndeleted(rows)
		},
	})
}

// undelete restores the plan of the row, and notes what became of it.
func (r *undeletedRow) undelete(ctx context.Context, v *azblob.Vault) error {
	err := v.Undelete(ctx, *r.ID)
	if errors.Is(err, storage.ErrUnknown) && ctx.Err() == nil {
		err = v.Undelete(ctx, *r.ID)
	}
	switch {
	case err == nil:
		r.Result = "restored"
	case errors.Is(err, storage.ErrExists):
		r.Result = "there"
	default:
		r.Result, r.Error = "failed", storage.Detail(err)
		return err
	}
	p, err := lookUp(ctx, v, *r.ID)
	if err == nil {
		r.Status, r.Name = p.State.Status.String(), p.Name
	}
	return nil
}
