package azblob

import (
	"time"

	"github.com/google/uuid"
	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// A day of the vault by itself: which container it is, what is known of it, and which part of it is wanted.

// day is a container of this vault.
type day struct {
	container string
	date      time.Time
	// marked says that the vault made the container, so each open plan in it has a marker.
	marked bool
	// hinted says that the day has had a catalogue, so it may have one.
	hinted   bool
	metadata map[string]string // of the container
	// lease and seen are the container's lease, and the service's clock, when the container was listed.
	lease blob.Lease
	seen  time.Time
}

func newDay(date time.Time, c blob.ContainerItem) day {
	return day{c.Name, date, c.Metadata[metaLayout] != "", c.Metadata[metaCatalogue] != "", c.Metadata, c.Lease, c.Seen}
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

// stretch returns the part of a day that After, Before and BeforeID leave. It returns false if they leave nothing.
func stretch(d day, f storage.Filters) (w window, ok bool) {
	w = window{d, listing.Span{From: listing.FirstID(d.date), To: listing.FirstID(d.date.AddDate(0, 0, 1))}}
	// IDs have whole milliseconds. The first one after a time is the next, whether the time is whole or not.
	if after := listing.FirstID(f.After.Add(time.Millisecond)); !f.After.IsZero() && listing.Less(w.From, after) {
		w.From = after
	}
	if bound := driver.CreatedBefore(f); !bound.IsZero() {
		if before := listing.FirstID(bound.Add(time.Millisecond - 1)); listing.Less(before, w.To) {
			w.To = before
		}
	}
	if before := f.BeforeID; before != uuid.Nil && listing.Less(before, w.To) {
		w.To = before
	}
	return w, listing.Less(w.From, w.To)
}

// window is a part of a day.
type window struct {
	day
	listing.Span
}

// passed reports whether a day has passed at a time of the service. An unknown time counts as late.
func passed(date, seen time.Time) bool {
	return seen.IsZero() || !seen.Before(date.AddDate(0, 0, 1))
}

// closedAfter is how long after its beginning a day is closed: the day after it has passed, too. The service's
// answers come from many machines, so one change may be dated before midnight and a later one after it. But a
// change that finds its day young commits within the grace period, long before the day is closed.
const closedAfter = 48 * time.Hour

// closed reports whether a day is closed at a time of the service. At an unknown time it is not.
func closed(date, seen time.Time) bool { return !seen.IsZero() && !seen.Before(date.Add(closedAfter)) }

// date returns the start of the plan's day.
func (k keys) date() time.Time { return workflow.Time(k.plan).UTC().Truncate(24 * time.Hour) }
