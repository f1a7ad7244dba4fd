package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// statsCommand counts plans, blobs and bytes by day.
func (a *app) statsCommand() *cobra.Command {
	var p period
	bytes := false
	c := a.onVault("stats", "Count plans by day and status, and what storing them costs",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			from, to, err := p.days(time.Now())
			if err != nil {
				return err
			}
			return a.stats(ctx, v, azblob.StatsOptions{From: from, To: to, Bytes: bytes})
		})
	p.addFlags(c.Flags(), "created", "days that have any time")
	c.Flags().BoolVar(&bytes, "bytes", false, "also count blobs and bytes, which lists every blob")
	return c
}

// dayRow is a day of planvault stats, or the total.
type dayRow struct {
	Day        string   `json:"day" help:"the day on which the plans were created"`
	Plans      int      `json:"plans" help:"how many these are"`
	NotStarted int      `json:"notStarted" help:"how many of them have not begun"`
	Running    int      `json:"running" help:"how many run"`
	Completed  int      `json:"completed" help:"how many are Completed"`
	Failed     int      `json:"failed" help:"how many are Failed"`
	Stopped    int      `json:"stopped" help:"how many are Stopped"`
	Unreadable int      `json:"unreadable,omitempty" help:"how many can't be read"`
	Foreign    int      `json:"foreign,omitempty" help:"how many another program wrote"`
	Held       bool     `json:"held,omitempty" help:"whether the day is held"`
	Blobs      *int     `json:"blobs,omitempty" help:"with --bytes, how many blobs the day has"`
	Bytes      *int64   `json:"bytes,omitempty" help:"with --bytes, the size of these"`
	Month      *float64 `json:"dollarsPerMonth,omitempty" help:"with --bytes, what storing them costs"`
}

func dayRowOf(d azblob.DayStats, bytes bool) dayRow {
	r := dayRow{
		Day: d.Day.String(), Plans: d.Total(), NotStarted: d.Plans[workflow.NotStarted], Running: d.Plans[workflow.Running],
		Completed: d.Plans[workflow.Completed], Failed: d.Plans[workflow.Failed], Stopped: d.Plans[workflow.Stopped],
		Unreadable: d.Unreadable, Foreign: d.Foreign, Held: d.Held,
	}
	if bytes {
		month := float64(d.Bytes) / 1e9 * price.GBMonth
		r.Blobs, r.Bytes, r.Month = &d.Blobs, &d.Bytes, &month
	}
	return r
}

// dayColumns are the columns of stats. Beside bytes, the short table says of the statuses only how many plans are open.
func dayColumns(bytes bool) []column[dayRow] {
	number := func(title string, shown shownIn, n func(dayRow) int) column[dayRow] {
		return column[dayRow]{title: title, shown: shown, cell: func(r dayRow) string { return count(n(r)) }}
	}
	status := inBoth
	if bytes {
		status = inWide
	}
	columns := []column[dayRow]{
		{title: "DAY", cell: func(r dayRow) string { return r.Day }},
		number(">PLANS", inBoth, func(r dayRow) int { return r.Plans }),
		number(">NOT STARTED", status, func(r dayRow) int { return r.NotStarted }),
		number(">RUNNING", status, func(r dayRow) int { return r.Running }),
		number(">COMPLETED", status, func(r dayRow) int { return r.Completed }),
		number(">FAILED", status, func(r dayRow) int { return r.Failed }),
		number(">STOPPED", status, func(r dayRow) int { return r.Stopped }),
	}
	if bytes {
		columns = append(columns,
			number(">OPEN", inShort, func(r dayRow) int { return r.NotStarted + r.Running }),
			column[dayRow]{title: ">BLOBS", cell: func(r dayRow) string { return countOrDash(r.Blobs) }},
			column[dayRow]{title: ">SIZE", cell: func(r dayRow) string { return byteSize(*r.Bytes) }},
			column[dayRow]{title: ">$/MONTH", cell: func(r dayRow) string { return dollars(*r.Month) }})
	}
	return append(columns, column[dayRow]{title: "", cell: dayRow.note, least: 5})
}

// note returns what else there is to say about a day.
func (r dayRow) note() string {
	var notes []string
	if r.Held {
		notes = append(notes, "held")
	}
	if r.Unreadable > 0 {
		notes = append(notes, fmt.Sprint(r.Unreadable, " unreadable"))
	}
	if r.Foreign > 0 {
		notes = append(notes, count(r.Foreign)+" foreign")
	}
	return strings.Join(notes, "; ")
}

// stats prints the selected days, and their total. After a failure it prints those before.
func (a *app) stats(ctx context.Context, v *azblob.Vault, o azblob.StatsOptions) error {
	if o.Bytes && a.stderrIsTerm {
		if err := a.estimateStats(ctx, v, o); err != nil {
			return err
		}
	}
	days, err := v.Admin().Stats(ctx, o)
	if err != nil {
		return err
	}
	p := a.progress("stats", "day", 0).then("--created-before goes on with the days before")
	t := newColumns(a, dayColumns(o.Bytes)).streamed()
	sum := azblob.DayStats{Plans: map[workflow.Status]int{}}
	g := growth{today: storage.DayOf(time.Now())}
	n := 0
	for d := range days {
		if d.Err != nil {
			err = fmt.Errorf("after %s: %w", plural(n, "day"), d.Err)
			break
		}
		n++
		p.reach(storage.Progress{Done: n, Total: n + d.Result.Left})
		addStats(&sum, d.Result)
		g.add(d.Result)
		if err = t.add(dayRowOf(d.Result, o.Bytes)); err != nil {
			break
		}
	}
	p.end()
	if n > 0 && a.output == outputTable {
		total := dayRowOf(sum, o.Bytes)
		total.Day = "total"
		_ = t.add(total) // a failure to write is that of end
	}
	if err = cmp.Or(err, t.end()); err != nil || !g.known(o) {
		return err
	}
	return a.summarize(g.line(o.Bytes))
}

// month is the period of a growth, in days.
const month = 30

// growth sums the days of the last month that has ended, and of the month before.
type growth struct {
	today        storage.Day
	oldest       storage.Day
	last, before azblob.DayStats
}

func (g *growth) add(d azblob.DayStats) {
	if d.Total() == 0 {
		return
	}
	g.oldest = d.Day
	for _, sum := range []*azblob.DayStats{&g.last, &g.before} {
		if sum.Plans == nil {
			sum.Plans = map[workflow.Status]int{}
		}
	}
	switch {
	case !d.Day.Before(g.today):
	case !d.Day.Before(g.today.Add(-month)):
		addStats(&g.last, d)
	case !d.Day.Before(g.today.Add(-2 * month)):
		addStats(&g.before, d)
	}
}

// known reports whether the selected days have the whole last month, and plans in it.
func (g *growth) known(o azblob.StatsOptions) bool {
	since := g.today.Add(-month)
	return g.last.Total() > 0 && !g.oldest.After(since) && !o.From.After(since) && (o.To.IsZero() || !o.To.Before(g.today.Add(-1)))
}

// line says what the last month has added. With bytes, it adds what that costs: running a plan writes each of its blobs
// three times (docs/scale.md).
func (g *growth) line(bytes bool) string {
	plans, before := g.last.Total(), g.before.Total()
	text := "growth: " + plural(plans, "plan")
	if bytes {
		text += ", " + byteSize(g.last.Bytes)
	}
	text += fmt.Sprintf(" in the last %d days", month)
	if twoMonths := g.today.Add(-2 * month); before > 0 && !g.oldest.After(twoMonths) {
		text += fmt.Sprintf(", %+.0f%% on the %d days before", 100*(float64(plans)/float64(before)-1), month)
	}
	if bytes {
		writes, storing := 3*float64(g.last.Blobs)*price.Of(azblob.ClassWrite), float64(g.last.Bytes)/1e9*price.GBMonth
		text += fmt.Sprintf("; running them took about %s, and storing them costs %s a month", dollars(writes), dollars(storing))
	}
	return text
}

func addStats(sum *azblob.DayStats, d azblob.DayStats) {
	for status, n := range d.Plans {
		sum.Plans[status] += n
	}
	sum.Unreadable += d.Unreadable
	sum.Foreign += d.Foreign
	sum.Blobs += d.Blobs
	sum.Bytes += d.Bytes
}

// estimateStats says what it takes to list every blob of the selected days. It counts their plans, and takes those of
// the day that has the fewest for typical.
func (a *app) estimateStats(ctx context.Context, v *azblob.Vault, o azblob.StatsOptions) error {
	o.Bytes = false
	days, err := storage.Collect(v.Admin().Stats(ctx, o))
	if err != nil {
		return err
	}
	var sample azblob.DayStats
	var plans int
	for _, d := range days {
		n := d.Total()
		if plans += n; n > 0 && (sample.Total() == 0 || n < sample.Total()) {
			sample = d
		}
	}
	if plans == 0 {
		return nil
	}
	sized, err := storage.Collect(v.Admin().Stats(ctx, azblob.StatsOptions{From: sample.Day, To: sample.Day, Bytes: true}))
	if err != nil {
		return err
	}
	pages := len(days)
	for _, d := range sized {
		pages += int(plans*d.Blobs/max(1, d.Total())/5000 + plans/2500)
	}
	fmt.Fprintf(a.stderr, "stats: %s in %s, about %s, %s\n", plural(plans, "plan"), plural(len(days), "day"), plural(pages, "request"),
		dollars(price.Tally{azblob.ClassList: pages}.Dollars()))
	return nil
}
