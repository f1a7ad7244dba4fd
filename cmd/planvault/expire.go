package main

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// expireCommand drops old days.
func (a *app) expireCommand() *cobra.Command {
	var b bulk
	var olderThan age
	var empty, verify bool
	var keep string
	c := a.onVault("expire --older-than AGE", "Drop old days as a whole",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			days, err := wholeDays("older-than", olderThan)
			if err != nil {
				return err
			}
			return a.expire(ctx, v, azblob.ExpireOptions{OlderThanDays: days, Empty: empty, Verify: verify, DryRun: b.dryRun, Budget: b.timeLeft()}, keep)
		})
	c.Flags().Var(&olderThan, "older-than", "drop the days that ended this long ago, an `AGE` such as 90d")
	c.Flags().BoolVar(&empty, "empty", false, "also drop younger days in which nothing is stored")
	c.Flags().BoolVar(&verify, "verify", false, "also look for plans of other programs in days that have had a catalogue")
	b.addFlags(c.Flags())
	addKeep(c.Flags(), &keep)
	_ = c.MarkFlagRequired("older-than")
	return a.signed(c)
}

// expiredRow is a day that was to be dropped.
type expiredRow struct {
	Day    string `json:"day" help:"the day"`
	Result string `json:"result" help:"what became of it"`
	// Plans is how many plans were in the day. It is counted for days that are dropped.
	Plans     *int        `json:"plans,omitempty" help:"how many plans it had"`
	Open      int         `json:"open,omitempty" help:"how many plans keep it, because they are open or being changed"`
	OpenPlans []uuid.UUID `json:"openPlans,omitempty" help:"some of these"`
	Foreign   []uuid.UUID `json:"foreignPlans,omitempty" help:"some plans of another program, which keep it"`
	DryRun    bool        `json:"dryRun,omitempty" help:"nothing was changed"`
	Error     string      `json:"error,omitempty" help:"why it failed"`
}

// expire says what would be dropped, and drops it if it may.
func (a *app) expire(ctx context.Context, v *azblob.Vault, o azblob.ExpireOptions, keep string) error {
	look := o
	look.DryRun, look.Budget = true, 0
	a.progress("look", "day", 0).then(untouched)
	found, failed := v.Admin().Expire(ctx, look)
	if failed != nil && (ctx.Err() != nil || found.Dropped() == 0) {
		return failed
	}
	requests := expireTakes(a.meter.traffic().requests, found)
	plans, all, err := a.countDays(ctx, v, found)
	if err != nil {
		return err
	}
	if keep != keepNone {
		requests = estimate(requests, step{copyDay, found.Dropped()}, step{readPlan, all})
	}
	what := plural(found.Dropped(), "day") + " with " + plural(all, "plan")
	return carryOut(ctx, a, o.DryRun, due[azblob.ExpireReport]{
		change: change{doing: "expire", what: what, requests: requests},
		n:      found.Dropped(), found: found, err: failed, journal: v, entry: dropped(found).auditEntry("expire"),
		wouldDo: func(p planned) error {
			return cmp.Or(a.printExpired(found, plans, true), a.print(p, p.after("would drop "+what)))
		},
		do: func(ctx context.Context) (r azblob.ExpireReport, err error) {
			k, err := a.keep(keep, "expire")
			if err != nil {
				return r, err
			}
			if k.keeper != nil {
				o.Keep = func(ctx context.Context, day storage.Day) error { return k.keeper.KeepAll(ctx, v, driver.OfDay(day)) }
			}
			p := a.progress("expire", "day", len(found.Days)).then(goOn)
			o.Progress = p.reach
			o.By = a.attributionOf(ctx)
			r, err = v.Admin().Expire(ctx, o)
			p.end()
			return r, errors.Join(err, a.endKeeping(k))
		},
		done: func(r azblob.ExpireReport, err error) (more bool, _ error) {
			summary := plural(r.Dropped(), "day") + " dropped" + ifMore(err == nil && r.More)
			return r.More, cmp.Or(a.printExpired(r, plans, false), a.summarize(summary))
		},
	})
}

// dropped returns the days that an expiry drops.
func dropped(r azblob.ExpireReport) days {
	d := days{}
	for _, day := range r.Days {
		if day.Result == azblob.ExpireDropped {
			d[day.Day] = true
		}
	}
	return d
}

// expireTakes returns the requests of an expiry after a dry run.
func expireTakes(looked price.Tally, found azblob.ExpireReport) price.Tally {
	open := 0
	for _, d := range found.Days {
		if d.Result == azblob.ExpireOpen {
			open++
		}
	}
	return estimate(looked, step{dropDay, found.Dropped()}, step{keepDay, open})
}

// countedAtOnce is how many days are counted at a time.
const countedAtOnce = 8

// countDays counts the plans of the days that would be dropped. A plan that can't be read does not count.
func (a *app) countDays(ctx context.Context, v *azblob.Vault, found azblob.ExpireReport) (plans map[string]int, all int, err error) {
	p := a.progress("count the plans", "day", found.Dropped()).then(untouched)
	defer p.end()
	plans = map[string]int{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(countedAtOnce)
	for _, d := range found.Days {
		if d.Result != azblob.ExpireDropped {
			continue
		}
		g.Go(func() error {
			n, err := v.Count(ctx, driver.OfDay(d.Day))
			if err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			plans[d.Day.String()] = n
			all += n
			p.step()
			return nil
		})
	}
	return plans, all, g.Wait()
}

// printExpired prints the days.
func (a *app) printExpired(r azblob.ExpireReport, plans map[string]int, dryRun bool) error {
	var rows []expiredRow
	for _, d := range r.Days {
		row := expiredRow{Day: d.Day.String(), Result: string(d.Result), Open: d.Open, OpenPlans: d.Plans, DryRun: dryRun}
		if d.Result == azblob.ExpireForeign {
			row.OpenPlans, row.Foreign = nil, d.Plans
		}
		if n, ok := plans[d.Day.String()]; ok {
			row.Plans = &n
		}
		if d.Err != nil {
			row.Error = storage.Detail(d.Err)
		}
		rows = append(rows, row)
	}
	return printTable(a, rows, func(r expiredRow) []string {
		return []string{r.Day, r.Result, countOrDash(r.Plans), r.why()}
	}, "DAY", "RESULT", ">PLANS", "WHY")
}

// why says why a day is kept.
func (r expiredRow) why() string {
	switch azblob.ExpireResult(r.Result) {
	case azblob.ExpireOpen:
		text := plural(r.Open, "plan") + " open or being changed"
		if len(r.OpenPlans) > 0 {
			text += ", such as " + r.OpenPlans[0].String()
		}
		return text
	case azblob.ExpireHeld:
		return "held: planvault release " + r.Day
	case azblob.ExpireBusy:
		return "another expire is at work on it, or died less than a minute ago"
	case azblob.ExpireUnmarked:
		return "the vault did not make its container, so open plans may have no markers"
	case azblob.ExpireForeign:
		return "it has plans written by another program, such as " + r.Foreign[0].String()
	case azblob.ExpireFailed:
		return printable(r.Error, 100)
	}
	return ""
}
