package azblob

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// StatsOptions are the options of [Admin.Stats].
type StatsOptions struct {
	// From and To are the first and the last day to count. The zero Day is no bound. Default: all days.
	From, To storage.Day
	// Bytes also counts the blobs of each day and their bytes. The service has no such sum, so every blob is
	// listed, 5,000 to a request.
	Bytes bool
}

// DayStats is what is stored in a day.
type DayStats struct {
	// Left is the number of selected days that follow.
	Day  storage.Day
	Left int
	// Held says that the day is held ([Admin.Hold]).
	Held bool
	// Plans are the numbers of plans by status. Statuses without plans are absent.
	Plans map[workflow.Status]int
	// Unreadable is the number of plans whose metadata can't be read, so that their status is unknown.
	Unreadable int
	// Foreign is the number of plans that another program wrote.
	Foreign int
	// Blobs and Bytes are the number and the total size of all blobs in the day's container, with strays and markers,
	// but without earlier versions and deleted blobs. They are zero unless [StatsOptions.Bytes] is set.
	Blobs int
	Bytes int64
}

// Total returns the number of plans, whatever their status, without those of another program.
func (d DayStats) Total() (n int) {
	for _, of := range d.Plans {
		n += of
	}
	return n + d.Unreadable
}

// Stats yields how many plans of each status each day has, newest day first, including days without plans. It reads past
// days by their catalogues, mostly with one request each, and lists the plans of the others, 2,500 to a request. It
// reads ahead, and memory does not grow with the vault. Changes made meanwhile may or may not count.
//
// Stats itself returns ErrInvalid or ErrClosed. Every other error is the last element, for example because the
// service failed or ctx ended: a day is whole or absent. No request is sent before the sequence is ranged over, and
// each range over it counts anew. Breaking out of the loop cancels the requests under way.
func (a *Admin) Stats(ctx context.Context, o StatsOptions) (iter.Seq[storage.Stream[DayStats]], error) {
	if err := a.refuse(ctx, "Stats", driver.CheckDays("StatsOptions.From", o.From, "To", o.To)); err != nil {
		return nil, err
	}
	return func(yield func(storage.Stream[DayStats]) bool) {
		ended := false
		err := a.call(ctx, "Stats", uuid.Nil, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			for day, err := range a.stats(ctx, o) {
				if err != nil {
					return opError("Stats", uuid.Nil, err)
				}
				if ended = !yield(storage.Stream[DayStats]{Result: day}); ended {
					return nil
				}
			}
			return nil
		})
		if err != nil && !ended {
			yield(storage.Stream[DayStats]{Err: err})
		}
	}, nil
}

// sizedAtOnce is how many days are sized at the same time. Each has a page of a listing in memory, about a megabyte.
const sizedAtOnce = 16

// stats yields the selected days. An error is the last element.
func (s *store) stats(ctx context.Context, o StatsOptions) iter.Seq2[DayStats, error] {
	return func(yield func(DayStats, error) bool) {
		days, err := s.selectDays(ctx, o.From, o.To)
		if err != nil {
			yield(DayStats{}, err)
			return
		}
		next, stop := iter.Pull2(s.countDays(ctx, days))
		defer stop()
		left := len(days)
		for some := range slices.Chunk(days, sizedAtOnce) {
			sizes := make([]size, len(some))
			if o.Bytes {
				err = s.parallel(len(some), func(i int) (err error) {
					sizes[i], err = s.sizeOf(ctx, some[i])
					return err
				})
			}
			for _, size := range sizes {
				day, countErr, _ := next()
				if err = cmp.Or(err, countErr, ctx.Err()); err != nil { // an incomplete count must not pass for one
					yield(DayStats{}, err)
					return
				}
				left--
				day.Left, day.Blobs, day.Bytes = left, size.blobs, size.bytes
				if !yield(day, nil) {
					return
				}
			}
		}
	}
}

// countDays yields the numbers of plans in days, which are sorted newest first: one element for each day, or an error
// as the last one.
func (s *store) countDays(ctx context.Context, days []day) iter.Seq2[DayStats, error] {
	return func(yield func(DayStats, error) bool) {
		next, stop := iter.Pull2(search{store: s}.list(ctx, days, s.pages(blob.MaxPage)))
		defer stop()
		p, err, more := next()
		for _, d := range days {
			counted := DayStats{Day: storage.DayOf(d.date), Held: d.lease == blob.LeasedForever, Plans: map[workflow.Status]int{}}
			for more && err == nil && p.keys.container == d.container {
				counted.add(p)
				p, err, more = next()
			}
			if err != nil { // it may be of this day or of a later one
				yield(DayStats{}, err)
				return
			}
			if !yield(counted, nil) {
				return
			}
		}
	}
}

// add counts the plans that a candidate stands for.
func (d *DayStats) add(p candidate) {
	switch {
	case p.err == nil:
		d.Plans[p.result.State.Status] += max(1, p.weight)
	case errors.Is(p.err, storage.ErrForeign):
		d.Foreign++
	default:
		d.Unreadable++
	}
}

// size is how much is stored in a day.
type size struct {
	blobs int
	bytes int64
}

// sizeOf lists all blobs of a day.
func (s *store) sizeOf(ctx context.Context, d day) (sum size, err error) {
	for item, err := range s.listPrefix(ctx, "list", blob.Ref{Container: d.container}, false) {
		if err != nil {
			return size{}, err
		}
		sum.blobs++
		sum.bytes += item.Size
	}
	return sum, nil
}
