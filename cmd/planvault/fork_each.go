package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

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
