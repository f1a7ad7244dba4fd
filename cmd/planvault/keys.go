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
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
)

// keysCommand shows the keys for which plans take turns.
func (a *app) keysCommand() *cobra.Command {
	var o *order[keyRow]
	var again repeat
	limit, all, unique := 0, false, false
	c := a.onVault("keys [NAME]", "Show the keys for which plans take turns: who has them, and how many wait",
		func(ctx context.Context, v *azblob.Vault, args []string) error {
			if limit < 0 {
				return usageError("keys: --limit must not be negative")
			}
			most := limit
			if all {
				most = 0
			}
			return a.repeat(ctx, again, func(ctx context.Context) error {
				if len(args) > 0 {
					return a.key(ctx, v, args[0], unique, most)
				}
				return a.keys(ctx, v, most, o)
			})
		})
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().IntVar(&limit, "limit", 50, "`NUMBER` of keys, or of the plans that have turns; 0 shows all")
	c.Flags().BoolVar(&all, "all", false, "show all")
	c.Flags().BoolVar(&unique, "unique", false, uniqueHelp)
	o = addSort(c.Flags(), a.keyColumns(), "sort the keys")
	again.addFlags(c.Flags())
	return c
}

// uniqueHelp is about the flag --unique.
const uniqueHelp = "NAME is the Unique of a plan, and not a key"

// keyRow is a key in the output of keys.
type keyRow struct {
	Name        string     `json:"name" help:"the key, or the Unique of plans"`
	Unique      bool       `json:"unique,omitempty" help:"whether it is a Unique"`
	Limit       int        `json:"limit,omitempty" help:"how many plans may work at once, as an operator has set it"`
	PausedUntil time.Time  `json:"pausedUntil,omitzero" help:"the time before which nobody gets a turn, if it is to come"`
	By          string     `json:"by,omitempty" help:"who has set the limit or the pause last"`
	Why         string     `json:"why,omitempty" help:"why"`
	At          time.Time  `json:"at,omitzero" help:"when"`
	Holders     int        `json:"holders" help:"how many plans have a turn, or take room"`
	Waiting     int        `json:"waiting" help:"how many open plans are due and have no turn"`
	Plans       int        `json:"plans" help:"how many open plans have the key"`
	Next        *uuid.UUID `json:"next,omitempty" help:"the plan that waits and was submitted first"`
	Changed     time.Time  `json:"changed,omitzero" help:"when its record was changed last, if there is one"`
	Error       string     `json:"error,omitempty" help:"why the record can't be read: nobody gets a turn; see planvault key repair"`
}

func keyRowOf(k fleet.KeyState) keyRow {
	r := keyRow{
		Name: k.Name, Unique: k.Unique, Limit: k.Limit, PausedUntil: utc(k.PausedUntil), By: k.By.By, Why: k.By.Why, At: utc(k.By.At),
		Holders: k.Holders, Waiting: k.Waiting, Plans: k.Plans, Next: known(k.Next), Changed: utc(k.Stored),
	}
	if k.Err != nil {
		r.Error = storage.Detail(k.Err)
	}
	return r
}

// keyColumns are the columns of keys.
func (a *app) keyColumns() []column[keyRow] {
	return []column[keyRow]{
		{title: "KEY", cell: func(r keyRow) string { return printable(r.Name, 0) }, compare: by(func(r keyRow) string { return r.Name }), least: 12},
		{title: "KIND", cell: keyRow.kind, compare: by(keyRow.kind), optional: true},
		{title: ">LIMIT", cell: keyRow.limit, compare: by(func(r keyRow) int { return r.Limit })},
		{title: ">HOLDERS", cell: func(r keyRow) string { return count(r.Holders) }, compare: by(func(r keyRow) int { return r.Holders })},
		{title: ">WAITING", cell: func(r keyRow) string { return count(r.Waiting) }, compare: by(func(r keyRow) int { return r.Waiting })},
		{title: ">PLANS", cell: func(r keyRow) string { return count(r.Plans) }, compare: by(func(r keyRow) int { return r.Plans }), shown: inWide},
		{title: "PAUSED UNTIL", cell: func(r keyRow) string { return r.pausedUntil() }, compare: byTime(func(r keyRow) time.Time { return r.PausedUntil }), optional: true},
		{title: "LAST SET BY", cell: func(r keyRow) string { return printable(r.By, 30) }, compare: by(func(r keyRow) string { return r.By }), least: 8, optional: true},
		{title: "WHY", cell: func(r keyRow) string { return printable(r.Why, 0) }, shown: inWide, optional: true},
	}
}

func (r keyRow) kind() string {
	if r.Unique {
		return "unique"
	}
	return ""
}

func (r keyRow) pausedUntil() string {
	if r.PausedUntil.IsZero() {
		return ""
	}
	return stamp(r.PausedUntil)
}

func (r keyRow) limit() string {
	if r.Limit == 0 {
		return "-"
	}
	return count(r.Limit)
}

// keys prints the keys of a vault, most waited for first.
func (a *app) keys(ctx context.Context, v *azblob.Vault, most int, o *order[keyRow]) error {
	p := a.progress("look", "key", 0).then(untouched)
	defer p.end()
	all, err := fleet.Keys(ctx, v)
	if err != nil {
		return err
	}
	var rows []keyRow
	damaged := 0
	for _, k := range all {
		if k.Name == "" {
			a.complain(k.Err)
			damaged++
			continue
		}
		rows = append(rows, keyRowOf(k))
	}
	o.sort(rows)
	found := len(rows)
	if most > 0 {
		rows = rows[:min(most, found)]
	}
	if err := newColumns(a, a.keyColumns()).print(rows); err != nil {
		return err
	}
	if found > len(rows) {
		fmt.Fprintf(a.stderr, "planvault: there are %s more: --all shows all\n", plural(found-len(rows), "key"))
	}
	if damaged > 0 {
		return fmt.Errorf("the records of %s can't be read: nobody gets a turn for them; see planvault help key repair", plural(damaged, "key"))
	}
	return nil
}

// keyShown is a key in the JSON of keys NAME.
type keyShown struct {
	keyRow
	Has []holderRow `json:"has,omitempty" help:"the plans that have a turn, or take room"`
}

// holderRow is a plan that takes room for a key.
type holderRow struct {
	ID     uuid.UUID  `json:"id" help:"the plan's ID"`
	Name   string     `json:"name,omitempty" help:"its name"`
	Status string     `json:"status,omitempty" help:"its status, unless it is gone or can't be read"`
	State  string     `json:"state" help:"awake, asleep, over: whoever waits takes its turn, or not found"`
	Owner  *uuid.UUID `json:"owner,omitempty" help:"the node that owns it"`
	Since  time.Time  `json:"since,omitzero" help:"since when it runs, or when it ended"`
}

func holderRowOf(h fleet.KeyHolder) holderRow {
	r := holderRow{ID: h.Plan.ID, Name: h.Plan.Name, Owner: known(h.Plan.Owner), Since: utc(h.Plan.State.Start), State: "awake"}
	switch {
	case h.Plan.SubmitTime.IsZero():
		r.State = "not found"
		return r
	case !h.Turn:
		r.State = "over"
	case h.Plan.Asleep():
		r.State = "asleep"
	}
	if r.Status = h.Plan.State.Status.String(); h.Plan.State.Status.Final() {
		r.Since = utc(h.Plan.State.End)
	}
	return r
}

func (a *app) holderColumns() []column[holderRow] {
	return []column[holderRow]{
		idColumn("PLAN", func(r holderRow) uuid.UUID { return r.ID }),
		{title: "STATUS", cell: func(r holderRow) string { return orDash(r.Status) }},
		{title: "STATE", cell: func(r holderRow) string { return r.State }},
		{title: "SINCE", cell: func(r holderRow) string { return a.stamp(r.Since) }},
		{title: "OWNER", cell: func(r holderRow) string {
			if r.Owner == nil {
				return "-"
			}
			return r.Owner.String()
		}, shown: inWide},
		{title: "NAME", cell: func(r holderRow) string { return printable(r.Name, 40) }, least: 8},
	}
}

// key prints one key, and the plans that have its turns.
func (a *app) key(ctx context.Context, v *azblob.Vault, name string, unique bool, most int) error {
	p := a.progress("look", "key", 0).then(untouched)
	defer p.end()
	k, holders, err := fleet.KeyHolders(ctx, v, name, unique)
	if errors.Is(err, storage.ErrNotFound) && !unique {
		return fmt.Errorf("%w; give --unique for the Unique of a plan", err)
	}
	if err != nil {
		return err
	}
	shown := keyShown{keyRow: keyRowOf(k)}
	for _, h := range holders {
		if most > 0 && len(shown.Has) == most {
			break
		}
		shown.Has = append(shown.Has, holderRowOf(h))
	}
	if err := a.print(shown, func(w io.Writer) { a.describeKey(w, shown.keyRow) }); err != nil {
		return err
	}
	if a.output != outputJSON {
		if err := newColumns(a, a.holderColumns()).print(shown.Has); err != nil {
			return err
		}
	}
	if left := len(holders) - len(shown.Has); left > 0 {
		fmt.Fprintf(a.stderr, "planvault: %s more have a turn: --all shows all\n", plural(left, "plan"))
	}
	if k.Err != nil {
		return fmt.Errorf("the record can't be read, so nobody gets a turn: %w; see planvault help key repair", k.Err)
	}
	return nil
}

// describeKey says in words how a key is doing.
func (a *app) describeKey(w io.Writer, r keyRow) {
	settings := fleet.KeySettings{Limit: r.Limit, PausedUntil: r.PausedUntil}
	set := signed(r.By, r.Why)
	if set != "" {
		set = ", last set" + set
	}
	fmt.Fprintf(w, "%s %s: %s%s\n", fleet.KeyState{Unique: r.Unique}.Kind(), quoted(r.Name), settingsText(settings, a.stamp), set)
	have, wait := "have", "wait"
	if r.Holders == 1 {
		have = "has"
	}
	if r.Waiting == 1 {
		wait = "waits"
	}
	fmt.Fprintf(w, "%s %s a turn, %s %s", plural(r.Holders, "plan"), have, plural(r.Waiting, "plan"), wait)
	if r.Next != nil {
		fmt.Fprintf(w, ", first %s", r.Next)
	}
	fmt.Fprintln(w)
}
