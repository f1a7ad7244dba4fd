package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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
	var by grouping
	c := &cobra.Command{
		Use:   "count",
		Short: "Count plans, all or some, by status, group or day",
		Args:  cobra.NoArgs,
		RunE: a.onVault(func(ctx context.Context, v *azblob.Vault, _ []string) error {
			f := s.filters(time.Now())
			if by == "" {
				return a.count(ctx, v, f)
			}
			return a.countBy(ctx, v, f, by)
		}),
	}
	s.addFlags(c.Flags())
	c.Flags().Var(&by, "by", "count plans of each `KIND`: status, group or day")
	return c
}

// grouping is the value of --by.
type grouping string

const (
	byStatus grouping = "status"
	byGroup  grouping = "group"
	byDay    grouping = "day"
)

// groupings are the values of --by.
var groupings = []grouping{byStatus, byGroup, byDay}

func (g *grouping) String() string { return string(*g) }
func (g *grouping) Type() string   { return "kind" }

func (g *grouping) Set(text string) error {
	if !slices.Contains(groupings, grouping(text)) {
		return fmt.Errorf("plans are counted by status, group or day, not %q", text)
	}
	*g = grouping(text)
	return nil
}

// count prints how many plans filters select.
func (a *app) count(ctx context.Context, v *azblob.Vault, f storage.Filters) error {
	n, unread := v.Count(ctx, f)
	if unread != nil && planOfError(unread) == uuid.Nil {
		return unread
	}
	return errors.Join(a.print(struct {
		Plans int64 `json:"plans"`
	}{n}, func(w io.Writer) { fmt.Fprintln(w, count(n)) }), unread)
}

// tally is how many plans there are of a status, group or day.
type tally struct {
	Status string     `json:"status,omitempty"`
	Group  *uuid.UUID `json:"group,omitempty"`
	Day    string     `json:"day,omitempty"`
	Plans  int64      `json:"plans"`

	status workflow.Status // for the order
}

// tallyOf returns the key of a plan.
func (g grouping) tallyOf(r storage.ListResult) (t tally) {
	switch g {
	case byStatus:
		t.status, t.Status = r.State.Status, r.State.Status.String()
	case byGroup:
		t.Group = &r.GroupID
	case byDay:
		t.Day = workflow.Time(r.ID).UTC().Format(time.DateOnly)
	}
	return t
}

// key is the same for plans that are counted together.
func (t tally) key() string {
	if t.Group != nil {
		return t.Group.String()
	}
	return t.Day + t.Status
}

func (t tally) compare(other tally) int {
	if t.status != other.status {
		return int(t.status) - int(other.status)
	}
	return strings.Compare(t.key(), other.key())
}

// countBy prints how many plans there are of each status, group or day. It counts all in one listing.
func (a *app) countBy(ctx context.Context, v *azblob.Vault, f storage.Filters, by grouping) error {
	tallies := map[string]tally{}
	p := a.progress("count", "plan", 0)
	defer p.end()
	var n int64
	var unread error // the first plan that can't be read, as in Count
	for r := range search(ctx, v, f) {
		switch {
		case planOfError(r.Err) != uuid.Nil:
			unread = cmp.Or(unread, r.Err)
			continue
		case r.Err != nil:
			return r.Err
		}
		t := by.tallyOf(r.Result)
		t.Plans = tallies[t.key()].Plans + 1
		tallies[t.key()] = t
		n++
		p.at(n)
	}
	return errors.Join(a.printTallies(tallies, by), unread)
}

func (a *app) printTallies(tallies map[string]tally, by grouping) error {
	return printTable(
		a, slices.SortedFunc(maps.Values(tallies), tally.compare),
		column[tally]{title: strings.ToUpper(string(by)), text: tally.key},
		column[tally]{title: "PLANS", text: func(t tally) string { return count(t.Plans) }, right: true},
	)
}
