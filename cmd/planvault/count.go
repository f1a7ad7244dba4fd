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
	c := a.onVault("count", "Count plans, all or some, by status, group, day, submitter or label",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			f := s.filters(time.Now())
			if by.of == nil {
				return a.count(ctx, v, f)
			}
			return a.countBy(ctx, v, f, by)
		})
	s.addFlags(c.Flags())
	c.Flags().Var(&by, "by", "count plans of each `KIND`: "+strings.Join(groupingNames(), ", ")+", or label=KEY for each value of a label")
	_ = c.RegisterFlagCompletionFunc("by", words(append(groupingNames(), byLabel)...)) // it fails for a flag that has completion
	return c
}

// grouping is a value of --by: what the plans of a tally have in common.
type grouping struct {
	name  string
	label string // the key, if it is a label
	// of returns what a plan has, and whether it has any. tell has it in JSON.
	of   func(r storage.ListResult) (value string, has bool)
	tell func(t *tally, value string)
}

var groupings = []grouping{
	{
		name: "status", of: func(r storage.ListResult) (string, bool) { return r.State.Status.String(), true },
		tell: func(t *tally, value string) { t.Status = value },
	},
	{
		name: "group", of: func(r storage.ListResult) (string, bool) { return r.GroupID.String(), r.GroupID != uuid.Nil },
		tell: func(t *tally, value string) { t.Group = value },
	},
	{
		name: "day", of: func(r storage.ListResult) (string, bool) { return date(workflow.Time(r.ID)), true },
		tell: func(t *tally, value string) { t.Day = value },
	},
	{
		name: "submitter", of: func(r storage.ListResult) (string, bool) { return r.SubmittedBy, r.SubmittedBy != "" },
		tell: func(t *tally, value string) { t.SubmittedBy = value },
	},
}

func groupingNames() (names []string) {
	for _, g := range groupings {
		names = append(names, g.name)
	}
	return names
}

// byLabel is how --by begins for a label.
const byLabel = "label="

func (g *grouping) String() string { return g.name }
func (g *grouping) Type() string   { return "kind" }

func (g *grouping) Set(text string) error {
	if key, ok := strings.CutPrefix(text, byLabel); ok {
		*g = grouping{
			name: text, label: key, of: func(r storage.ListResult) (string, bool) { value, has := r.Labels[key]; return value, has },
			tell: func(t *tally, value string) { t.Value = &value },
		}
		return workflow.CheckLabels(map[string]string{key: ""})
	}
	i := slices.IndexFunc(groupings, func(of grouping) bool { return of.name == text })
	if i < 0 {
		return fmt.Errorf("%q is not %s or label=KEY", printable(text, 50), strings.Join(groupingNames(), ", "))
	}
	*g = groupings[i]
	return nil
}

// tally is how many plans there are, of a kind or at all.
type tally struct {
	Status      string  `json:"status,omitempty" help:"with --by status, the status of these"`
	Group       string  `json:"group,omitempty" help:"with --by group, their group, if they have one"`
	Day         string  `json:"day,omitempty" help:"with --by day, the day on which they were created"`
	SubmittedBy string  `json:"submittedBy,omitempty" help:"with --by submitter, who submitted them, if that is known"`
	Label       string  `json:"label,omitempty" help:"with --by label=KEY, the key"`
	Value       *string `json:"value,omitempty" help:"with --by label=KEY, the value; plans without the label have none"`
	Plans       int     `json:"plans" help:"how many plans there are"`
	Foreign     int     `json:"foreign,omitzero" help:"how many plans of another program it left out"`

	kind kind
}

// kind is what the plans of a tally have, or that they have none.
type kind struct {
	value string
	has   bool
}

// compare puts statuses in their order, and other values in that of their texts, after the plans that have none.
func (g *grouping) compare(a, b kind) int {
	switch {
	case a.has != b.has && b.has:
		return -1
	case a.has != b.has:
		return 1
	case g.name == "status":
		x, _ := workflow.ParseStatus(a.value)
		y, _ := workflow.ParseStatus(b.value)
		return cmp.Compare(x, y)
	}
	return strings.Compare(a.value, b.value)
}

// cell is what a table shows.
func (k kind) cell() string {
	switch {
	case !k.has:
		return "-"
	case k.value == "":
		return `""`
	}
	return printable(k.value, 0)
}

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

// countBy prints how many plans there are of each kind. It counts all in one listing.
func (a *app) countBy(ctx context.Context, v storage.Reader, f storage.Filters, by grouping) error {
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
			var k kind
			if value, has := by.of(r.Result); has {
				k = kind{value, true}
			}
			plans[k]++
			p.step()
		}
	}
	var tallies []tally
	for _, k := range slices.SortedFunc(maps.Keys(plans), by.compare) {
		t := tally{Label: by.label, Plans: plans[k], kind: k}
		if k.has {
			by.tell(&t, k.value)
		}
		tallies = append(tallies, t)
	}
	defer a.noteForeign(foreign)
	cells := func(t tally) []string { return []string{t.kind.cell(), count(t.Plans)} }
	title := strings.ToUpper(by.name)
	if by.label != "" {
		title = "LABEL " + by.label
	}
	return errors.Join(printTable(a, tallies, cells, title, ">PLANS"), unread)
}
