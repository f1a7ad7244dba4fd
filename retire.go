package azblob

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/retention"
)

// What a policy of package retention removes.

var _ retention.Vault = (*Vault)(nil)

// DueDays returns the days that a policy reaches, oldest first, by the service's clock. It lists the days, and counts the
// plans of those whose Failed plans it keeps, mostly with a request for each, as [Vault.Stats] does.
//
// Errors: [storage.ErrInvalid] for a policy that makes no sense.
func (v *Vault) DueDays(ctx context.Context, p retention.Policy) (due []retention.Day, err error) {
	err = v.call(ctx, "DueDays", uuid.Nil, func(ctx context.Context) error {
		if p, err = p.WithDefaults(); err != nil {
			return err
		}
		days, err := v.days(ctx)
		if err != nil {
			return err
		}
		var some []day
		for _, d := range days {
			reached := retention.Day{Day: d.date, Reach: p.Reach(d.date, d.seen), Held: d.lease == blob.LeasedForever}
			switch {
			case reached.Reach == retention.ReachNone:
			case reached.Reach == retention.ReachFinal || reached.Held:
				due = append(due, reached)
			default:
				some = append(some, d)
			}
		}
		for counted, err := range v.countDays(ctx, some) {
			if err != nil {
				return err
			}
			due = append(due, retention.Day{Day: counted.Day, Reach: retention.ReachFinished, Plans: counted.Plans, Unreadable: counted.Unreadable})
		}
		slices.SortFunc(due, func(a, b retention.Day) int { return a.Day.Compare(b.Day) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return due, nil
}

// Retire removes from a day (UTC) what a policy no longer keeps by the service's clock. If nothing else is in the day,
// it drops the day as [Vault.Expire] does, with a request more, and two for 2,500 plans if the policy still keeps Failed
// plans of the day. Otherwise it removes the plans one by one, as [storage.Purge] does. A held day stays as it is.
//
// It may run beside all other calls, may be stopped at any point, and may be called again.
//
// Errors: those of Expire and Purge; [storage.ErrInvalid] for a policy that makes no sense.
func (v *Vault) Retire(ctx context.Context, p retention.Policy, date time.Time, budget time.Duration) (result retention.Result, err error) {
	date = date.UTC().Truncate(24 * time.Hour)
	var reach retention.Reach
	var became ExpireResult
	err = v.call(ctx, "Retire", uuid.Nil, func(ctx context.Context) error {
		if p, err = p.WithDefaults(); err != nil {
			return err
		}
		reach, became, err = v.retireDay(ctx, p, date)
		return err
	})
	switch {
	case err != nil || reach == retention.ReachNone:
		return result, err
	case became == DayDropped:
		result.Dropped = true
		return result, nil
	case !slices.Contains([]ExpireResult{DayOpen, dayMixed, DayUnmarked, DayForeign}, became):
		result.Kept = string(became)
		return result, nil
	case became == DayOpen && reach == retention.ReachFinal, became == DayUnmarked, became == DayForeign:
		result.Kept = string(became)
	}
	report, err := storage.Purge(ctx, v, storage.PurgeOptions{
		Select: storage.Filters{After: date.Add(-time.Millisecond), Before: date.AddDate(0, 0, 1), ByStatus: reach.Statuses()},
		Budget: budget,
	})
	result.Removed, result.More = report.Deleted, report.More || report.Failed > 0
	if report.Held > 0 {
		result.Kept = string(DayHeld)
	}
	return result, err
}

// retireDay drops a day if p keeps nothing in it, or says why it does not.
func (s *store) retireDay(ctx context.Context, p retention.Policy, date time.Time) (retention.Reach, ExpireResult, error) {
	name := s.prefix.day(date)
	c, err := s.client.HeadContainer(ctx, name)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		err = s.confirmDropped(ctx, name)
		return retention.ReachFinal, DayDropped, err
	}
	if err != nil {
		return 0, "", blobError("look for container", blob.Ref{Container: name}, err)
	}
	d := newDay(date, c)
	reach := p.Reach(d.date, d.seen)
	if reach == retention.ReachNone {
		return reach, "", nil
	}
	x := &expiry{store: s, day: d, result: ExpiredDay{Day: d.date}}
	if reach != retention.ReachFinal {
		x.only = reach.Statuses()
	}
	became, err := x.unclaimed(ctx)
	if err == nil && became == DayDropped {
		became, err = x.drop(ctx)
	}
	return reach, became, err
}
