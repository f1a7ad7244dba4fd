package azblob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// ExpireOptions are the options of [Admin.Expire].
type ExpireOptions struct {
	// OlderThanDays is the age of the days to drop: a day is dropped once that many days have passed since it ended,
	// by the service's clock. It is between 1 and 36,525, so the day before today is never dropped. Required.
	OlderThanDays int
	// Empty also drops younger days in which nothing is stored any more, such as those whose plans were all
	// deleted. It takes one listing for each of them.
	Empty bool
	// Verify also lists the plans of days that have had a catalogue, so that a plan which another program has written
	// since keeps its day. It takes two requests for each 2,500 plans. Default: false.
	Verify bool
	// Keep is called before each day is dropped, for example to write its plans to a bundle. If it returns an
	// error, the day stays, as ExpireFailed. Plans stored after Keep has looked are dropped, too. Calls may be concurrent.
	// Default: nil.
	Keep func(ctx context.Context, day storage.Day) error
	// By says who asks, and why, for the audit log. Its At is ignored. Required, but for a dry run.
	By workflow.Attribution
	// DryRun drops nothing. The report says what would be dropped.
	DryRun bool
	// Budget is the time after which Expire begins no other day; it begins the first eight in any case. Default: 0, which
	// is no limit.
	Budget time.Duration
	// Progress is called after each day that is old enough, or may be empty. It may be nil.
	Progress func(storage.Progress)
}

// detail says in a few words which days expire, for the audit log.
func (o ExpireOptions) detail() string {
	text := fmt.Sprintf("older than %s", plural(o.OlderThanDays, "day"))
	if o.Empty {
		text += ", and empty days"
	}
	return text
}

// ExpireReport is what [Admin.Expire] did.
type ExpireReport struct {
	// Days are the days that were to be dropped, oldest first.
	Days []ExpiredDay
	// More says that Expire did not look at all days, because the budget was used up, the context ended, or the identity
	// lacks a right.
	More bool
}

// Dropped returns the number of days that were dropped.
func (r ExpireReport) Dropped() (n int) {
	for _, d := range r.Days {
		if d.Result == ExpireDropped {
			n++
		}
	}
	return n
}

// Expire drops whole days that are older than an age, are not held ([Admin.Hold]), and in which no plan is open or being
// changed. It drops the oldest days first, eight at a time. Listing the days takes one request, and a day that has had a
// catalogue six, whatever it holds. Other days, and all days if Verify is set, cost two more listings of their plans, 2,500
// to a request. Expire drops a day only if two listings show nothing open, and either a builder of its catalogue or two
// listings have seen no plan of another program. Everything in the container goes with the day, sound or damaged.
//
// Expire may run beside all other calls, may be stopped at any point and may be run again. While it works on a day, a Create
// of a plan of that day returns [storage.ErrConflict]. If it dies, that lasts for at most a minute; the next Create, Recovery
// or Expire then removes what it left. Its fence is a finite lease of the container, so it relies on no clock but the
// service's. An account with soft delete of containers keeps a dropped day.
//
// The audit log has an Expire that drops a day, which takes two requests more; see [storage.Audit].
//
// A day that can't be dropped now is skipped, and the report says why. If a day fails, Expire continues with the others, and
// the error joins those of all days; a day that the service protects, such as by a legal hold, is [storage.ErrProtected].
// Expire stops early when ctx ends or the identity lacks a right ([storage.LacksRight]). The report is complete up to there.
//
// Errors: [storage.ErrInvalid] for another age, a negative budget, or an empty By; [storage.ErrDenied] for an
// identity without the right to write and delete containers; [storage.ErrUnknown] if the outcome for a day is unknown:
// the next Expire settles it.
func (a *Admin) Expire(ctx context.Context, o ExpireOptions) (report ExpireReport, err error) {
	err = a.call(ctx, "Expire", uuid.Nil, func(ctx context.Context) error {
		if o.OlderThanDays < 1 || o.OlderThanDays > oldest {
			return driver.Invalid("ExpireOptions.OlderThanDays", "%d is not between 1 and %d", o.OlderThanDays, oldest)
		}
		if o.Budget < 0 {
			return driver.Invalid("ExpireOptions.Budget", "%v is negative", o.Budget)
		}
		run := func(ctx context.Context, begin func()) error {
			report, err = expiring{a.store, o, begin}.run(ctx)
			return err
		}
		if o.DryRun {
			return run(ctx, func() {})
		}
		return a.audit(ctx, storage.AuditEntry{What: "expire", By: o.By, Detail: o.detail()}, run)
	})
	return report, err
}

const (
	// expiredAtOnce is how many days Expire drops at a time.
	expiredAtOnce = 8
	// oldest is the greatest age in days that may be dropped.
	oldest = 36525
)

// expiring is an Expire that is running.
type expiring struct {
	*store
	o     ExpireOptions
	begin func() // before the first change
}

// run drops the days that are due, oldest first.
func (x expiring) run(ctx context.Context) (report ExpireReport, err error) {
	began := time.Now()
	days, err := x.days(ctx)
	if err != nil {
		return report, err
	}
	slices.Reverse(days)
	days = slices.DeleteFunc(days, func(d day) bool { return !isPast(d.date, d.seen) || !x.o.Empty && !x.o.due(d) })
	progress := storage.Progress{Total: len(days)}
	var errs []error
	for first := true; len(days) > 0; first = false {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		if !first && used(x.o.Budget, began) || slices.ContainsFunc(errs, storage.LacksRight) {
			break
		}
		some := days[:min(expiredAtOnce, len(days))]
		days = days[len(some):]
		for _, d := range x.expireDays(ctx, some) {
			report.Days = append(report.Days, d)
			if d.Err != nil {
				errs = append(errs, d.Err)
			}
		}
		for range some {
			if progress.Done++; x.o.Progress != nil {
				x.o.Progress(progress)
			}
		}
	}
	report.More = len(days) > 0
	return report, errors.Join(errs...)
}

// expireDays drops days at once. Those that fail do not stop the others.
func (x expiring) expireDays(ctx context.Context, days []day) []ExpiredDay {
	done := make([]ExpiredDay, len(days))
	_ = x.parallel(len(days), func(i int) error {
		done[i] = x.expireDay(ctx, days[i])
		return nil
	})
	return slices.DeleteFunc(done, func(d ExpiredDay) bool { return d.Result == "" })
}

// due reports whether a day is older than the age.
func (o ExpireOptions) due(d day) bool {
	return !d.seen.Before(d.date.AddDate(0, 0, 1+o.OlderThanDays))
}

// expireDay drops a day, or says why it does not. A young day that is not empty has no result.
func (x expiring) expireDay(ctx context.Context, d day) ExpiredDay {
	e := &expiry{store: x.store, day: d, result: ExpiredDay{Day: storage.DayOf(d.date)}, empty: !x.o.due(d), verify: x.o.Verify}
	result, err := e.unclaimed(ctx)
	keeps := x.o.Keep != nil && !x.o.DryRun && !e.empty
	if err == nil && result == ExpireDropped && (x.o.DryRun || e.empty || keeps) {
		result, err = e.content(ctx)
	}
	if err == nil && result == ExpireDropped && keeps {
		err = x.o.Keep(ctx, e.result.Day)
	}
	if err == nil && result == ExpireDropped && !x.o.DryRun {
		x.begin()
		result, err = e.drop(ctx)
	}
	switch {
	case err != nil:
		result, e.result.Err = ExpireFailed, opError("Expire", uuid.Nil, err)
	case e.empty && result != ExpireDropped:
		result = ""
	}
	e.result.Result = result
	return e.result
}
