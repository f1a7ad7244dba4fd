package azblob

import (
	"bytes"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// The service lists names in ascending order, and listings want the newest plan first. Names sort by the IDs
// in them, and IDs by their time, so a day is read in windows, from its end backwards. A listing with a
// delimiter shows which minutes of a day have plans, and which milliseconds of a minute. Windows are measured
// in these groups, so that time without plans costs nothing.

// window is a range of one day's IDs.
type window struct {
	day
	from, to uuid.UUID // to is the first ID after the window
	limit    int       // the size of a page
	sample   int       // how many groups are enough to measure the window; 0 for all
}

// reading is what was read of a window.
type reading struct {
	plans []candidate // in ascending order
	blobs int         // the number of blobs in the part that was read
	to    uuid.UUID   // the end of the window, or the first ID that did not fit on the page
	day   *catalogued // in place of the others: the catalogue that has the window
}

// reader reads one directory of the vault's days.
type reader interface {
	// read reads one page of a window. It reads a window within a millisecond to its end.
	read(ctx context.Context, w window) (reading, error)
	// groups returns the first keys of the groups of a window, in ascending order, and no more pages of them than
	// hold w.sample. It may return others, too.
	groups(ctx context.Context, w window) ([]uint64, error)
}

func less(a, b uuid.UUID) bool { return bytes.Compare(a[:], b[:]) < 0 }

// firstID returns an ID that sorts before those of a time, and after those of earlier milliseconds. The
// nearest time that a UUIDv7 can hold stands for a time that it can't.
func firstID(t time.Time) uuid.UUID {
	const last = 1<<48 - 1
	var ms uint64
	switch { // Go has times whose milliseconds overflow
	case t.After(time.UnixMilli(last)):
		ms = last
	case t.After(time.UnixMilli(0)):
		ms = uint64(t.UnixMilli())
	}
	return idOf(ms * aMillisecond)
}

func (w window) wholeDay() bool { return w.from == firstID(w.date) }

// lastHours returns the first ID of the four hours before the end of the window, or before now if that is
// earlier.
func (w window) lastHours(now time.Time) uuid.UUID {
	return idOf(min(keyOf(w.to), keyOf(firstID(now))) - aDay/6)
}

// last returns the key of the last ID of the window.
func (w window) last() uint64 {
	if key := keyOf(w.to); w.to != idOf(key) {
		return key
	}
	return keyOf(w.to) - 1
}

// inOne reports whether all IDs of the window are of one minute, or of one millisecond.
func (w window) inOne(size uint64) bool { return keyOf(w.from)/size == w.last()/size }

// groupSize returns the size of the groups in the window: milliseconds within a minute, and minutes
// otherwise.
func (w window) groupSize() uint64 {
	if w.inOne(aMinute) {
		return aMillisecond
	}
	return aMinute
}

// share returns the part of a day that lies in the window and before now.
func (w window) share(now time.Time) float64 {
	from, to := keyOf(w.from), min(keyOf(w.to), keyOf(firstID(now)))
	if to <= from { // written by a clock ahead
		to = keyOf(w.to)
	}
	return float64(max(1, to-from)) / aDay
}

// stretches returns the parts of days that the filters leave.
func stretches(days []day, f storage.Filters) []window {
	var list []window
	for _, d := range days {
		if w, ok := stretch(d, f); ok {
			list = append(list, w)
		}
	}
	return list
}

// stretch returns the part of a day that After, Before and BeforeID leave. It returns false if they leave
// nothing.
func stretch(d day, f storage.Filters) (w window, ok bool) {
	w = window{day: d, from: firstID(d.date), to: firstID(d.date.AddDate(0, 0, 1))}
	// IDs have whole milliseconds. The first one after a time is the next, whether the time is whole or not.
	if after := firstID(f.After.Add(time.Millisecond)); !f.After.IsZero() && less(w.from, after) {
		w.from = after
	}
	if bound := driver.CreatedBefore(f); !bound.IsZero() {
		if before := firstID(bound.Add(time.Millisecond - 1)); less(before, w.to) {
			w.to = before
		}
	}
	if before := f.BeforeID; before != uuid.Nil && less(before, w.to) {
		w.to = before
	}
	return w, less(w.from, w.to)
}
