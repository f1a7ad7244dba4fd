package azblob

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// What a policy of package retention removes.

var _ retention.Vault = offered{}

// DueDays returns the days that a policy reaches, oldest first, by the service's clock. It lists the days, looks in days
// that are to be dropped for plans that ended late, and counts the plans of the others, mostly with one request for each
// day, as [Admin.Stats] does.
//
// Errors: [storage.ErrInvalid] for a policy that makes no sense.
func (o offered) DueDays(ctx context.Context, p retention.Policy) (due []retention.Day, err error) {
	err = o.call(ctx, "DueDays", uuid.Nil, func(ctx context.Context) error {
		if p, err = p.WithDefaults(); err != nil {
			return err
		}
		due, err = o.dueDays(ctx, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(due, func(a, b retention.Day) int { return a.Day.Compare(b.Day) })
	return due, nil
}

func (s *store) dueDays(ctx context.Context, p retention.Policy) ([]retention.Day, error) {
	days, err := s.days(ctx)
	if err != nil {
		return nil, err
	}
	days = slices.DeleteFunc(days, func(d day) bool { return p.Reach(storage.DayOf(d.date), d.seen) == retention.ReachNone })
	due := make([]retention.Day, len(days))
	var some []day // that are to be counted
	var of []int   // which they are
	if err := s.parallel(len(days), func(i int) (err error) {
		d := days[i]
		due[i] = retention.Day{Day: storage.DayOf(d.date), Reach: p.Reach(storage.DayOf(d.date), d.seen), Held: d.lease == blob.LeasedForever}
		if due[i].Reach == retention.ReachFinal && !due[i].Held {
			due[i].Recent, err = s.recent(ctx, p, due[i].Reach, d, blob.MaxPage)
		}
		return err
	}); err != nil {
		return nil, err
	}
	for i, d := range due {
		if !d.Held && (d.Reach == retention.ReachFinished || d.Recent > 0) {
			some, of = append(some, days[i]), append(of, i)
		}
	}
	for counted, err := range s.countDays(ctx, some) {
		if err != nil {
			return nil, err
		}
		d := &due[of[0]]
		d.Plans, d.Unreadable = counted.Plans, counted.Unreadable
		if d.Reach == retention.ReachFinished && d.Due() > 0 {
			if d.Recent, err = s.recent(ctx, p, d.Reach, some[0], blob.MaxPage); err != nil {
				return nil, err
			}
		}
		some, of = some[1:], of[1:]
	}
	return due, nil
}

// Retire removes from a day what a policy no longer keeps by the service's clock. If nothing must stay, it drops the
// day as [Admin.Expire] does, with three more requests if a catalogue shows when the plans ended; otherwise, or if the
// policy still keeps Failed plans of the day, with two more for each 2,500 plans. If something must stay, it deletes plans
// one by one, as [storage.Purge] does. A held day is left alone.
//
// Retire may run beside all other calls, may be stopped at any point, and may be called again.
//
// Errors: those of Expire and Purge; [storage.ErrInvalid] for a policy that makes no sense.
func (o offered) Retire(ctx context.Context, p retention.Policy, date storage.Day, budget time.Duration) (result retention.Result, err error) {
	began := time.Now()
	x := &expiry{store: o.store, day: day{date: date.Start()}}
	var became ExpireResult
	err = o.call(ctx, "Retire", uuid.Nil, func(ctx context.Context) error {
		if x.policy, err = p.WithDefaults(); err == nil {
			err = driver.CheckDay("day", date)
		}
		if err != nil {
			return err
		}
		became, err = x.retire(ctx)
		return err
	})
	switch {
	case err != nil || x.reach == retention.ReachNone:
		return result, err
	case became == ExpireDropped:
		result.Dropped = true
		return result, nil
	case !slices.Contains([]ExpireResult{ExpireOpen, expireMixed, ExpireUnmarked, ExpireForeign}, became):
		result.Kept = string(became)
		return result, nil
	case became == ExpireOpen && x.reach == retention.ReachFinal, became == ExpireUnmarked, became == ExpireForeign:
		result.Kept = string(became)
	}
	for _, f := range x.due() {
		left := budget
		if budget > 0 {
			left = max(1, budget-time.Since(began))
		}
		report, err := storage.Purge(audited.Mark(ctx), o.Vault, storage.SelectWhere(f), storage.PurgeOptions{By: workflow.Attribution{By: "policy"}, Budget: left})
		result.Removed += int(report.Deleted)
		result.More = result.More || report.More || report.Failed > 0
		if report.Held > 0 {
			result.Kept = string(ExpireHeld)
		}
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

// retire drops the day if the policy keeps nothing in it, or says why it does not.
func (x *expiry) retire(ctx context.Context) (ExpireResult, error) {
	name := x.prefix.day(x.day.date)
	c, err := x.client.HeadContainer(ctx, name)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		x.reach = retention.ReachFinal
		return ExpireDropped, x.confirmDropped(ctx, name)
	}
	if err != nil {
		return "", blobError("look for container", blob.Ref{Container: name}, err)
	}
	x.day = newDay(x.day.date, c)
	if x.reach = x.policy.Reach(storage.DayOf(x.day.date), x.day.seen); x.reach == retention.ReachNone {
		return "", nil
	}
	became, err := x.unclaimed(ctx)
	if err == nil && became == ExpireDropped {
		became, err = x.drop(ctx)
	}
	return became, err
}

// due returns filters of the plans of the day that the policy no longer keeps.
func (x *expiry) due() []storage.Filters {
	of := func(statuses ...workflow.Status) storage.Filters {
		f := driver.OfDay(storage.DayOf(x.day.date))
		f.ByStatus, f.EndedBefore = statuses, x.policy.EndedBefore(statuses[0], x.day.seen)
		return f
	}
	if x.reach == retention.ReachFinished || x.policy.KeepDays == x.policy.KeepFailedDays {
		return []storage.Filters{of(x.reach.Statuses()...)}
	}
	return []storage.Filters{of(workflow.Completed, workflow.Stopped), of(workflow.Failed)}
}
