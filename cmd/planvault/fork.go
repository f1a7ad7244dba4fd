package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// forkCommand runs a plan again, as a new one.
func (a *app) forkCommand() *cobra.Command {
	var fromFailure, fromStart, compensated, again, dryRun bool
	c := a.changesPlan("fork ID", "Run a plan again as a new plan, from its failure or from its start",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
			return a.fork(ctx, v, id, workflow.ForkOptions{FromStart: fromStart, AfterCompensation: compensated, By: a.attributionOf(ctx)}, again, dryRun)
		})
	c.Flags().BoolVar(&fromFailure, "from-failure", false, "run what is left of a plan that is Failed or Stopped")
	c.Flags().BoolVar(&compensated, "after-compensation", false, "with --from-failure, also if deferred actions may have undone work")
	c.Flags().BoolVar(&fromStart, "from-start", false, "run all of a final plan again")
	c.Flags().BoolVar(&again, "again", false, "make one more fork of a plan that was forked from there before")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print which actions would run again, and store nothing")
	c.MarkFlagsOneRequired("from-failure", "from-start")
	c.MarkFlagsMutuallyExclusive("from-failure", "from-start")
	c.MarkFlagsMutuallyExclusive("after-compensation", "from-start")
	return a.signed(c)
}

// forked is the report of fork.
type forked struct {
	ID          *uuid.UUID `json:"id,omitempty" help:"the ID of the new plan; a dry run has none"` // none in a dry run
	ForkedFrom  uuid.UUID  `json:"forkedFrom" help:"the plan that it was forked from"`
	CarriedOver int        `json:"carriedOverActions" help:"how many actions do not run again"`
	Actions     int        `json:"actions" help:"how many actions there are"`
	Again       []string   `json:"again,omitempty" help:"in a dry run, the paths of the actions that would run"` // in a dry run
}

// fork makes a plan from a final one and stores it.
func (a *app) fork(ctx context.Context, v *azblob.Vault, id uuid.UUID, opts workflow.ForkOptions, again, dryRun bool) error {
	reached := a.progress("fork", "plan", 0).then(untouched)
	plan, err := v.Read(ctx, id)
	if err != nil {
		return err
	}
	f, err := forkOf(ctx, v, plan, opts, again)
	if err != nil {
		return fmt.Errorf("fork plan %s: %w", id, err)
	}
	report := forked{ForkedFrom: id}
	for o, path := range workflow.Paths(f) {
		if _, ok := o.(*workflow.Action); !ok {
			continue
		}
		report.Actions++
		if o.Header().State.Status == workflow.NotStarted {
			report.Again = append(report.Again, path)
		}
	}
	report.CarriedOver = report.Actions - len(report.Again)
	if dryRun {
		return a.print(report, report.write)
	}
	report.ID, report.Again = &f.ID, nil
	reached.then(fmt.Sprintf("the same command makes plan %s, unless it exists", f.ID))
	if err := a.auditEntry(ctx, v, about("fork", id, f.ID), func(ctx context.Context) error { return create(a.submits(ctx), v, f) }); err != nil {
		if errors.Is(err, storage.ErrExists) { // somebody else was faster
			err = existing(f.ID, "")
		}
		return fmt.Errorf("fork plan %s: %w", id, err)
	}
	if err := a.print(report, report.write); err != nil {
		return err
	}
	a.remark("%d of %s were carried over. An engine runs the others.", report.CarriedOver, plural(report.Actions, "action"))
	return nil
}

// forkOf returns the first fork that does not exist. Unless there is to be another one, that is the one with number 1.
func forkOf(ctx context.Context, v *azblob.Vault, p *workflow.Plan, opts workflow.ForkOptions, again bool) (*workflow.Plan, error) {
	for opts.Number = 1; ; opts.Number++ {
		f, err := workflow.Fork(p, opts)
		if err != nil {
			return nil, err
		}
		switch earlier, err := lookUp(ctx, v, f.ID); {
		case errors.Is(err, storage.ErrNotFound):
			return f, nil
		case err != nil:
			return nil, err
		case !again:
			return nil, existing(f.ID, ", which is "+earlier.State.Status.String())
		}
	}
}

// existing returns the error for a fork that exists.
func existing(id uuid.UUID, status string) error {
	return fmt.Errorf("%w, as plan %s%s; --again makes another one", storage.ErrExists, id, status)
}

// write writes the ID of the fork, or what a fork would run again.
func (f forked) write(w io.Writer) {
	if f.ID != nil {
		fmt.Fprintln(w, f.ID)
		return
	}
	fmt.Fprintf(w, "%d of %s run again:\n", len(f.Again), plural(f.Actions, "action"))
	for _, path := range f.Again {
		fmt.Fprintln(w, printable(path, 0))
	}
}

// tries is how often a call with an unknown outcome is made.
const tries = 3

// create stores a plan. The vault recognizes the same plan if an earlier try took effect without an answer.
func create(ctx context.Context, v storage.Creator, plan *workflow.Plan) (err error) {
	for range tries {
		if err = v.Create(ctx, plan); err == nil || !errors.Is(err, storage.ErrUnknown) || ctx.Err() != nil {
			break
		}
	}
	return err
}
