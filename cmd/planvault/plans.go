package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// known returns nil for an ID that is not set.
func known(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// planColumns are the columns of list.
func (a *app) planColumns() []column[report.Listed] {
	submitter := func(r report.Listed) string { return r.SubmittedBy }
	name, status := func(r report.Listed) string { return r.Name }, func(r report.Listed) string { return r.Status }
	return []column[report.Listed]{
		idColumn("PLAN", func(r report.Listed) uuid.UUID { return r.ID }),
		{title: "STATUS", cell: status, compare: by(status)},
		{
			title: "SUBMITTED", cell: func(r report.Listed) string { return a.stamp(r.Submitted) },
			compare: byTime(func(r report.Listed) time.Time { return r.Submitted }),
		},
		{
			title: ">TOOK", cell: func(r report.Listed) string { return orDash(r.Took.Took()) },
			compare: by(func(r report.Listed) time.Duration { return r.Ended.Sub(r.Started) }),
		},
		{title: "NAME", cell: func(r report.Listed) string { return printable(r.Name, 60) }, compare: by(name), least: 8},
		{title: "SUBMITTED BY", cell: func(r report.Listed) string { return printable(r.SubmittedBy, 0) }, compare: by(submitter), shown: inWide, optional: true},
		{title: "PLACED BY", cell: func(r report.Listed) string { return printable(r.External, 40) }, shown: inWide, optional: true},
		{title: "LABELS", cell: func(r report.Listed) string { return printable(workflow.FormatLabels(r.Labels), 0) }, least: 8, optional: true},
	}
}

// page is the flags of a page of a listing.
type page struct {
	limit int
	after string
	all   bool
	flags *pflag.FlagSet
}

func (p *page) addFlags(flags *pflag.FlagSet) {
	p.flags = flags
	flags.IntVar(&p.limit, "limit", 50, "`NUMBER` of plans on a page")
	flags.StringVar(&p.after, "page", "", "go on after the plan with this `ID`, the last one of the page before")
	flags.BoolVar(&p.all, "all", false, "all plans, on one page")
}

// bound bounds filters to the page.
func (a *app) bound(ctx context.Context, v storage.Reader, p *page, f *storage.Filters) error {
	switch {
	case p.all && p.flags.Changed("limit"):
		return usageError("--all and --limit exclude each other")
	case p.all:
	case p.limit <= 0:
		return usageError("--limit must be positive; --all lists all plans")
	default:
		f.Limit = p.limit
	}
	if p.after == "" {
		return nil
	}
	last, err := a.planIDs(ctx, v, []string{p.after})
	if err == nil {
		f.BeforeID = last[0]
	}
	return err
}

// search yields the plans that filters select. Filters without any selection are a List. An error at the start is the
// only element.
func search(ctx context.Context, r storage.Reader, f storage.Filters) iter.Seq[storage.Stream[storage.ListResult]] {
	var found iter.Seq[storage.Stream[storage.ListResult]]
	var err error
	if f.BeforeID == uuid.Nil && selectsAll(f) {
		found, err = r.List(ctx, f.Limit)
	} else {
		found, err = r.Search(ctx, f)
	}
	if err != nil {
		return slices.Values([]storage.Stream[storage.ListResult]{{Err: err}})
	}
	return found
}

// selectsAll reports whether filters select all plans, on some page.
func selectsAll(f storage.Filters) bool {
	f.Limit, f.BeforeID = 0, uuid.Nil
	return len(f.Fields()) == 0
}

// lookUp returns what a listing shows of a plan.
func lookUp(ctx context.Context, v storage.Reader, id uuid.UUID) (storage.ListResult, error) {
	found, err := storage.Collect(v.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{id}}))
	switch {
	case err != nil:
		return storage.ListResult{}, err
	case len(found) == 0:
		return storage.ListResult{}, fmt.Errorf("plan %s: %w", id, storage.ErrNotFound)
	}
	return found[0], nil
}

// countOwn counts the plans that filters select. Those of another program are no failure.
func countOwn(ctx context.Context, v storage.Reader, f storage.Filters) (int, error) {
	n, err := v.Count(ctx, f)
	if errors.Is(err, storage.ErrForeign) {
		err = nil
	}
	return n, err
}

// awaitInterval is the time between two looks at a plan that is waited for.
const awaitInterval = 2 * time.Second

// await looks at a plan until it is as wanted.
func (a *app) await(ctx context.Context, v *azblob.Vault, id uuid.UUID, wanted func(storage.ListResult) bool) (storage.ListResult, error) {
	for {
		p, err := lookUp(ctx, v, id)
		if err != nil || wanted(p) {
			return p, err
		}
		if !sleep.For(ctx, awaitInterval) {
			return p, ctx.Err()
		}
	}
}
