package main

import (
	"cmp"
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
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// countCommand counts plans.
func (a *app) countCommand() *cobra.Command {
	var s selection
	var by string
	c := a.onVault("count", "Count plans, all or some, by status, group or day",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			f := s.filters(time.Now())
			if by == "" {
				return a.count(ctx, v, f)
			}
			return a.countBy(ctx, v, f, by)
		})
	s.addFlags(c.Flags())
	c.Flags().Var(oneOf{&by, []string{"status", "group", "day"}}, "by", "count plans of each `KIND`: status, group or day")
	return c
}

// tally is how many plans there are, of a status, group or day, or at all.
type tally struct {
	kind
	Plans   int `json:"plans" help:"how many plans there are"`
	Foreign int `json:"foreign,omitzero" help:"how many plans of another program it left out"`
}

// kind is what the plans of a tally have in common.
type kind struct {
	Status string `json:"status,omitempty" help:"with --by status, the status of these"`
	Group  string `json:"group,omitempty" help:"with --by group, their group, if they have one"`
	Day    string `json:"day,omitempty" help:"with --by day, the day on which they were created"`

	status workflow.Status
}

func kindOf(r storage.ListResult, by string) kind {
	switch by {
	case "status":
		return kind{Status: r.State.Status.String(), status: r.State.Status}
	case "group":
		if r.GroupID == uuid.Nil {
			return kind{}
		}
		return kind{Group: r.GroupID.String()}
	}
	return kind{Day: date(workflow.Time(r.ID))}
}

// compare puts statuses in their order, and groups and days in that of their texts.
func (t tally) compare(other tally) int {
	return cmp.Or(cmp.Compare(t.status, other.status), strings.Compare(t.text(), other.text()))
}

func (t tally) text() string { return t.Status + t.Group + t.Day }

// count prints how many plans filters select.
func (a *app) count(ctx context.Context, v storage.Reader, f storage.Filters) error {
	n, unread := v.Count(ctx, f)
	var foreign int
	if left, ok := errors.AsType[*storage.ForeignError](unread); ok {
		foreign, unread = left.Plans, nil
	}
	defer a.noteForeign(foreign)
	if unread != nil && planOfError(unread) == uuid.Nil {
		return unread
	}
	return errors.Join(a.print(tally{Plans: n, Foreign: foreign}, func(w io.Writer) { fmt.Fprintln(w, count(n)) }), unread)
}

// countBy prints how many plans there are of each status, group or day. It counts all in one listing.
func (a *app) countBy(ctx context.Context, v storage.Reader, f storage.Filters, by string) error {
	plans := map[kind]int{}
	p := a.progress("count", "plan", 0)
	defer p.end()
	var unread error // the first plan that can't be read, as in Count
	var foreign int
	for r := range search(ctx, v, f) {
		switch {
		case errors.Is(r.Err, storage.ErrForeign):
			foreign++
		case planOfError(r.Err) != uuid.Nil:
			unread = cmp.Or(unread, r.Err)
		case r.Err != nil:
			return r.Err
		default:
			plans[kindOf(r.Result, by)]++
			p.step()
		}
	}
	var tallies []tally
	for k, n := range plans {
		tallies = append(tallies, tally{kind: k, Plans: n})
	}
	defer a.noteForeign(foreign)
	slices.SortFunc(tallies, tally.compare)
	cells := func(t tally) []string { return []string{orDash(t.text()), count(t.Plans)} }
	return errors.Join(printTable(a, tallies, cells, strings.ToUpper(by), ">PLANS"), unread)
}
