package main

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
)

// logCommand shows who changed the vault.
func (a *app) logCommand() *cobra.Command {
	var f storage.AuditFilters
	var made period
	c := a.onVault("log [ID|DAY]", "Show who changed the vault with this tool, and why, newest first",
		func(ctx context.Context, v *azblob.Vault, args []string) (err error) {
			for _, arg := range args {
				if f.Day, err = storage.ParseDay(arg); err == nil {
					continue
				}
				if _, _, err := parseIDOrEnd("plan", arg); err != nil {
					return usageError("%q is neither a day nor the ID of a plan", printable(arg, 50))
				}
				if f.Plan, _, err = a.findPlan(ctx, v, arg); err != nil {
					return err
				}
			}
			f.After, f.Before = made.from(time.Now())
			return a.log(ctx, v.Control(), f)
		})
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().IntVar(&f.Limit, "limit", 20, "the most changes to show, a `NUMBER`; 0 for all")
	made.addFlags(c.Flags(), "made", "changes made")
	return c
}

// auditRow is a change in the log.
type auditRow struct {
	ID     uuid.UUID   `json:"id" help:"the ID of the record"`
	At     time.Time   `json:"at" help:"when the change began"`
	What   string      `json:"what" help:"the command"`
	By     string      `json:"by" help:"who did it, as they said"`
	Why    string      `json:"why,omitempty" help:"why"`
	Plans  []uuid.UUID `json:"plans,omitempty" help:"the plans that it is about"`
	From   string      `json:"from,omitempty" help:"the first day that it is about"` // a day
	To     string      `json:"to,omitempty" help:"the last one"`
	Detail string      `json:"detail,omitempty" help:"the flags"`
	// Result is "began" of a change that is not known to have ended.
	Result string    `json:"result" help:"how it ended; began if that is not known"`
	Stored time.Time `json:"stored" help:"when the record was stored, by the service's clock"`
}

func auditRowOf(d storage.AuditEntry) auditRow {
	row := auditRow{d.ID, utc(d.By.At), d.What, d.By.By, d.By.Why, d.Plans, "", "", d.Detail, d.Result, utc(d.Stored)}
	if !d.From.IsZero() {
		row.From, row.To = d.From.String(), d.To.String()
	}
	if row.Result == "" {
		row.Result = "began"
	}
	return row
}

// about says what the change was about, by the text of a plan's ID.
func (r auditRow) about(text func(uuid.UUID) string) string {
	var words []string
	if len(r.Plans) > 0 {
		words = append(words, text(r.Plans[0]))
	}
	if len(r.Plans) > 1 {
		words = append(words, "and "+count(len(r.Plans)-1)+" more")
	}
	switch {
	case r.From != r.To:
		words = append(words, r.From+".."+r.To)
	case r.From != "":
		words = append(words, r.From)
	}
	return strings.Join(append(words, r.Detail), " ")
}

// logColumns are the columns of log. The short table has no more than the first word of a result: done, failed or began.
func (a *app) logColumns() []column[auditRow] {
	text := func(title string, least int, cell func(auditRow) string) column[auditRow] {
		return column[auditRow]{title: title, least: least, cell: func(r auditRow) string { return printable(cell(r), 0) }}
	}
	result := text("RESULT", 0, func(r auditRow) string { return r.Result })
	result.short = func(r auditRow) string {
		word, _, _ := strings.Cut(r.Result, ":")
		return printable(word, 10)
	}
	about := text("ABOUT", 16, func(r auditRow) string { return r.about(uuid.UUID.String) })
	about.short = func(r auditRow) string { return printable(r.about(shortID), 0) }
	return []column[auditRow]{
		{title: "TIME", cell: func(r auditRow) string { return a.stamp(r.At) }},
		text("WHAT", 8, func(r auditRow) string { return r.What }),
		text("BY", 10, func(r auditRow) string { return r.By }),
		result, about,
		text("WHY", 12, func(r auditRow) string { return r.Why }),
	}
}

// log prints audit entries. Those that can't be read are an error, below the others.
func (a *app) log(ctx context.Context, v storage.Control, f storage.AuditFilters) error {
	found, unreadable := storage.Collect(v.AuditEntries(ctx, f))
	if unreadable != nil && len(found) == 0 {
		return unreadable
	}
	var rows []auditRow
	for _, d := range found {
		rows = append(rows, auditRowOf(d))
	}
	if err := newColumns(a, a.logColumns()).print(rows); err != nil {
		return err
	}
	return unreadable
}
