package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// forking is how a plan is forked.
type forking struct {
	workflow.ForkOptions
	fromFailure, again, dryRun, includeForks bool

	repairs repairs
	// allow looks at the plan first; nil allows any.
	allow func(p *workflow.Plan) error
}

func (k *forking) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&k.again, "again", false, "make one more fork of a plan that was forked from there before")
}

// forkCommand runs a plan again, as a new one.
func (a *app) forkCommand() *cobra.Command {
	var k forking
	var e each
	c := a.changesPlan("fork [ID]", "Run a plan again as a new plan, from its failure or from its start",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID, _ []string) error {
			k.dryRun = e.dryRun
			return a.fork(ctx, v, id, k)
		})
	flags := c.Flags()
	flags.BoolVar(&k.fromFailure, "from-failure", false, "run what is left of a plan that is Failed or Stopped")
	flags.BoolVar(&k.AfterCompensation, "after-compensation", false, "with --from-failure, also if deferred actions may have undone work")
	flags.BoolVar(&k.FromStart, "from-start", false, "run all of a final plan again")
	flags.BoolVar(&k.includeForks, "include-forks", false, "of a search, also fork what are forks themselves, and failed again")
	k.repairs.addFlags(flags)
	k.addFlags(flags)
	a.orEach(c, &e, "a failed", func(ctx context.Context, v *azblob.Vault, f storage.Filters) error {
		return a.forkEach(ctx, v, f, k, &e)
	})
	c.MarkFlagsOneRequired("from-failure", "from-start")
	c.MarkFlagsMutuallyExclusive("from-failure", "from-start")
	c.MarkFlagsMutuallyExclusive("after-compensation", "from-start")
	return a.signed(c)
}

// retryCommand runs again what is left of a plan that an action has stopped.
func (a *app) retryCommand() *cobra.Command {
	var k forking
	c := a.changesPlan("retry ID [ACTION...]", "Run a plan again from the action that failed",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID, more []string) error {
			k.allow = func(p *workflow.Plan) error { return allFailed(p, more) }
			return a.fork(ctx, v, id, k)
		})
	c.Args = cobra.MinimumNArgs(1)
	k.addFlags(c.Flags())
	addDryRun(c.Flags(), &k.dryRun)
	return a.signed(c)
}

// allFailed returns an error unless names are those of all actions that failed and run again in a fork. One goes without. It
// leaves a plan that can't be forked to Fork.
func allFailed(p *workflow.Plan, names []string) error {
	failed := map[uuid.UUID]bool{}
	for o, carried := range workflow.CarriedOver(p) {
		if o.Kind() == workflow.KindAction && !carried && o.Header().State.Status == workflow.Failed {
			failed[*o.Header().ID] = true
		}
	}
	switch {
	case p.State.Status != workflow.Failed && p.State.Status != workflow.Stopped:
		return nil
	case len(failed) == 0:
		return usageError("plan %s is %s, and no action has failed: planvault fork --from-failure runs what is left", p.ID, p.State.Status)
	case len(failed) == 1 && len(names) == 0:
		return nil
	}
	for _, name := range names {
		a, err := findAction(p, name)
		switch {
		case err != nil:
			return err
		case !failed[a.ID]:
			return usageError("action %q is %s: a retry is of actions that failed, and planvault fork of others", printable(name, 60), a.State.Status)
		}
		delete(failed, a.ID)
	}
	if len(failed) == 0 {
		return nil
	}
	errs := []error{fmt.Errorf("every action that failed runs again: name these, too, or skip one with planvault fork")}
	for o, path := range workflow.Paths(p) {
		if id := *o.Header().ID; failed[id] {
			errs = append(errs, fmt.Errorf("%s  %s", printable(path, 60), id))
		}
	}
	return &exitError{exitUsage, errors.Join(errs[:min(len(errs), mostCandidates+1)]...)}
}

// forked is the report of fork.
type forked struct {
	ID          *uuid.UUID `json:"id,omitempty" help:"the ID of the new plan; a dry run has none"` // none in a dry run
	ForkedFrom  uuid.UUID  `json:"forkedFrom" help:"the plan that it was forked from"`
	CarriedOver int        `json:"carriedOverActions" help:"how many actions do not run again"`
	Skipped     int        `json:"skippedActions,omitempty" help:"how many actions count as done without having run"`
	Actions     int        `json:"actions" help:"how many actions there are"`
	Again       []string   `json:"again,omitempty" help:"in a dry run, the paths of the actions that would run"` // in a dry run
}

// fork makes a plan from a final one and stores it.
func (a *app) fork(ctx context.Context, v *azblob.Vault, id uuid.UUID, k forking) error {
	reached := a.progress("fork", "plan", 0).then(untouched)
	plan, err := v.Read(ctx, id)
	if err != nil {
		return err
	}
	k.By = a.attributionOf(ctx)
	if k.allow != nil {
		err = k.allow(plan)
	}
	if err == nil {
		err = k.repairs.in(a, plan, &k.ForkOptions)
	}
	if err != nil {
		return err
	}
	f, err := forkOf(ctx, v, plan, k)
	if err != nil {
		return fmt.Errorf("fork plan %s: %w", id, err)
	}
	report := forked{ForkedFrom: id, Skipped: len(k.Skip)}
	for o, path := range workflow.Paths(f) {
		if _, ok := o.(*workflow.Action); !ok {
			continue
		}
		report.Actions++
		if o.Header().State.Status == workflow.NotStarted {
			report.Again = append(report.Again, path)
		}
	}
	report.CarriedOver = report.Actions - len(report.Again) - report.Skipped
	if k.dryRun {
		return a.print(report, report.write)
	}
	report.ID, report.Again = &f.ID, nil
	reached.then(fmt.Sprintf("the same command makes plan %s, unless it exists", f.ID))
	if err := a.auditEntry(ctx, v, about("fork", id, f.ID), func(ctx context.Context) error { return create(a.submits(ctx), v, f) }); err != nil {
		if errors.Is(err, storage.ErrExists) { // somebody else was faster
			err = k.existing(f.ID, "")
		}
		return fmt.Errorf("fork plan %s: %w", id, err)
	}
	if err := a.print(report, report.write); err != nil {
		return err
	}
	a.remark("%d of %s were carried over, and %d skipped. An engine runs the others.", report.CarriedOver, plural(report.Actions, "action"), report.Skipped)
	return nil
}

// forkOf returns the first fork that does not exist. Unless there is to be another one, that is the one with number 1.
func forkOf(ctx context.Context, v *azblob.Vault, p *workflow.Plan, k forking) (*workflow.Plan, error) {
	for k.Number = 1; ; k.Number++ {
		f, err := workflow.Fork(p, k.ForkOptions)
		if err != nil {
			return nil, err
		}
		switch earlier, err := lookUp(ctx, v, f.ID); {
		case errors.Is(err, storage.ErrNotFound):
			return f, nil
		case err != nil:
			return nil, err
		case !k.again:
			return nil, k.existing(f.ID, ", which is "+earlier.State.Status.String())
		}
	}
}

// existing returns the error for a fork that exists.
func (k forking) existing(id uuid.UUID, status string) error {
	if k.repairs.any() {
		status += " and may lack these repairs"
	}
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

// forkedEach is the report of fork for all plans of a search.
type forkedEach struct {
	planned
	Forked   int  `json:"forked" help:"how many plans were forked, or would be"`
	Existing int  `json:"existing" help:"how many had such a fork already"`
	LeftOut  int  `json:"leftOut" help:"how many are forks themselves: see --include-forks"`
	Refused  int  `json:"refused" help:"how many can't be forked like this"`
	Failed   int  `json:"failed" help:"how many could not be read or forked"`
	More     bool `json:"more" help:"whether the budget ended it early"`
}

// What becomes of a plan that is to be forked, beside isDue.
const (
	wasForked  = "forked"
	hadFork    = "existing"
	isFork     = "fork"
	isRefused  = "refused"
	notOfThese = "another plugin"
)

// forkEach forks the plans that filters select. A plan has one fork with number 1, so whoever calls it again goes on.
func (a *app) forkEach(ctx context.Context, v *azblob.Vault, f storage.Filters, k forking, e *each) error {
	if k.repairs.any() || k.again {
		return usageError("--skip, --result, --request and --again are for one plan")
	}
	forkable := []workflow.Status{workflow.Failed, workflow.Stopped}
	if k.FromStart {
		forkable = append(forkable, workflow.Completed)
	}
	if err := only(&f, forkable[:1], forkable); err != nil {
		return err
	}
	k.By, k.Number = a.attributionOf(ctx), 1
	var parts atomic.Int64
	refusal := atomic.Pointer[error]{}
	ids, looked, err := a.look(ctx, v, f, func(ctx context.Context, r storage.ListResult) (string, error) {
		if r.ForkedFrom != uuid.Nil && !k.includeForks && f.ByForkedFrom == nil {
			return isFork, nil
		}
		p, err := v.Read(ctx, r.ID)
		if err != nil {
			return "", err
		}
		if !e.has(p, workflow.Failed) {
			return notOfThese, nil
		}
		fork, err := workflow.Fork(p, k.ForkOptions)
		if err != nil {
			refusal.CompareAndSwap(nil, new(fmt.Errorf("fork plan %s: %w", r.ID, err)))
			return isRefused, nil
		}
		if exists, err := v.Exists(ctx, fork.ID); err != nil || exists {
			return hadFork, err
		}
		parts.Add(int64(len(workflow.Parts(fork))))
		return isDue, nil
	})
	if err != nil {
		return err
	}
	if why := refusal.Load(); why != nil {
		a.complain(*why)
	}
	report := forkedEach{Forked: len(ids), Existing: looked.of[hadFork], LeftOut: looked.of[isFork], Refused: looked.of[isRefused], Failed: looked.failed}
	return carryOut(ctx, a, e.dryRun, due[swept]{
		change:  change{doing: "fork", what: plural(len(ids), "plan"), requests: estimate(nil, step{forkPlan, len(ids)}, step{restorePart, int(parts.Load())})},
		journal: v, entry: about("fork"), n: len(ids), found: looked, err: looked.err(),
		wouldDo: func(p planned) error {
			report.planned = p
			return a.print(report, report.text)
		},
		do: func(ctx context.Context) (swept, error) {
			s, err := sweep(ctx, a.progress("fork", "plan", len(ids)).then(goOn), slices.Values(ids), e.timeLeft(), func(ctx context.Context, id uuid.UUID) (string, error) {
				return forkOne(a.submits(ctx), v, id, k.ForkOptions)
			})
			return s, errors.Join(looked.err(), err)
		},
		done: func(s swept, _ error) (more bool, err error) {
			report.Forked, report.More = s.of[wasForked], s.more
			if len(ids) > 0 {
				report.Existing += s.of[hadFork]
				report.Failed += s.failed
			}
			if err := a.print(report, report.text); err != nil {
				return s.more, err
			}
			if report.Refused > 0 && report.Failed == 0 && !s.more {
				return false, errFound
			}
			return s.more, nil
		},
	})
}

// forkOne forks a plan, unless it has been.
func forkOne(ctx context.Context, v *azblob.Vault, id uuid.UUID, opts workflow.ForkOptions) (string, error) {
	p, err := v.Read(ctx, id)
	if err != nil {
		return "", err
	}
	f, err := workflow.Fork(p, opts)
	if err == nil {
		err = create(ctx, v, f)
	}
	if errors.Is(err, storage.ErrExists) {
		return hadFork, nil
	}
	return wasForked, err
}

func (f forkedEach) text(w io.Writer) {
	did := "forked"
	if f.DryRun {
		did = "would be forked"
	}
	fmt.Fprintf(w, "%s %s", plural(f.Forked, "plan"), did)
	for _, other := range []struct {
		n    int
		what string
	}{{f.Existing, "had a fork"}, {f.LeftOut, "are forks and were left out"}, {f.Refused, "can't be forked like this"}, {f.Failed, "failed"}} {
		if other.n > 0 {
			fmt.Fprintf(w, ", %s %s", count(other.n), other.what)
		}
	}
	if f.DryRun {
		fmt.Fprintf(w, ": %s", f.planned)
	}
	fmt.Fprintln(w, ifMore(f.More))
}
