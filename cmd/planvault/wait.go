package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// waitCommand waits until plans are final.
func (a *app) waitCommand() *cobra.Command {
	c := a.onVault("wait ID...", "Wait until plans are final, and end with their outcome",
		func(ctx context.Context, v *azblob.Vault, args []string) error {
			ids, err := a.planIDs(ctx, v, args)
			if err != nil {
				return err
			}
			return a.wait(ctx, v, ids)
		})
	c.Args = cobra.MinimumNArgs(1)
	return c
}

// ended is a plan that wait has seen the end of.
type ended struct {
	ID      uuid.UUID `json:"id" help:"the plan's ID"`
	Name    string    `json:"name,omitempty" help:"its name"`
	Status  string    `json:"status" help:"its status: Completed, Failed or Stopped"`
	Ended   time.Time `json:"ended,omitzero" help:"when it ended"`
	Failure string    `json:"failure,omitempty" help:"which action failed first, and why"`
}

// longestAwait is the longest pause between two looks. The pauses grow with the wait.
const longestAwait = time.Minute

// wait prints each plan when it is final. One search looks at all that are still open.
func (a *app) wait(ctx context.Context, v storage.Reader, ids []uuid.UUID) error {
	open := slices.Compact(slices.SortedFunc(slices.Values(ids), func(x, y uuid.UUID) int { return strings.Compare(x.String(), y.String()) }))
	p := a.progress("wait", "plan", len(open)).then("run it again to wait again")
	defer p.end()
	var outcome error
	for began := time.Now(); ; {
		found, err := storage.Collect(v.Search(ctx, storage.Filters{ByIDs: open}))
		if ctx.Err() != nil {
			return stillOpen(open, context.Cause(ctx))
		}
		if errors.Is(err, storage.ErrUnavailable) {
			a.complain(err)
		} else if err != nil {
			return err
		} else if open, err = a.afterLook(ctx, v, open, found, &outcome); err != nil {
			return err
		}
		p.at(p.total - len(open))
		if len(open) == 0 {
			return outcome
		}
		if !sleep.For(ctx, min(max(time.Since(began)/4, awaitInterval), longestAwait)) {
			return stillOpen(open, context.Cause(ctx))
		}
	}
}

// afterLook prints the plans that have ended, and returns those that are open. A plan that was not found has no outcome.
func (a *app) afterLook(ctx context.Context, v storage.Reader, open []uuid.UUID, found []storage.ListResult, outcome *error) (left []uuid.UUID, err error) {
	for _, id := range open {
		i := slices.IndexFunc(found, func(r storage.ListResult) bool { return r.ID == id })
		switch {
		case i < 0:
			a.complain(fmt.Errorf("plan %s: %w", id, storage.ErrNotFound))
			*outcome = errFound
		case !found[i].State.Status.Final():
			left = append(left, id)
		default:
			r := found[i]
			row := ended{id, r.Name, r.State.Status.String(), utc(r.State.End), failureOf(ctx, v, r)}
			if err := a.printNext(row, func(w io.Writer) {
				fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s  %-9s  %s  %s", row.ID, row.Status, printable(row.Name, 60), printable(row.Failure, 0)), " "))
			}); err != nil {
				return nil, err
			}
			if r.State.Status != workflow.Completed {
				*outcome = errFound
			}
		}
	}
	return left, nil
}

// failureOf returns what failed in a plan that is Failed, or "" if that can't be read.
func failureOf(ctx context.Context, v storage.Reader, r storage.ListResult) string {
	if r.State.Status != workflow.Failed {
		return ""
	}
	plan, err := v.Read(ctx, r.ID)
	if err != nil {
		return ""
	}
	return fleet.Describe(plan, r.State.End).Failure
}

// stillOpen is the error of a wait that ended before the plans.
func stillOpen(open []uuid.UUID, because error) error {
	which := "plan " + open[0].String()
	if more := len(open) - 1; more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s: not final yet: %w", which, because)
}
