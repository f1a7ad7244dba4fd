package storage

import (
	"cmp"
	"fmt"
	"time"
)

// Day is a day of the calendar, in UTC. A plan belongs to the day of the time in its ID. Days can be compared with ==. The
// zero value is no day.
type Day struct {
	Year  int
	Month time.Month
	Day   int
}

// DayOf returns the UTC day of a time, whatever the time's location. The day of the zero time is the zero Day.
func DayOf(t time.Time) (d Day) {
	if !t.IsZero() {
		d.Year, d.Month, d.Day = t.UTC().Date()
	}
	return d
}

// ParseDay returns the day of a text such as "2026-12-25". The error is [ErrInvalid].
func ParseDay(text string) (Day, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return Day{}, fmt.Errorf("%w: %q is not a day such as 2026-12-25", ErrInvalid, text)
	}
	return DayOf(t), nil
}

// Valid reports whether the calendar has the day.
func (d Day) Valid() bool { return !d.IsZero() && DayOf(d.Start()) == d }

// IsZero reports whether d is the zero value.
func (d Day) IsZero() bool { return d == Day{} }

// Start returns the beginning of the day, 0:00 UTC. That of the zero Day is the zero time.
func (d Day) Start() time.Time {
	if d.IsZero() {
		return time.Time{}
	}
	return time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, time.UTC)
}

// Add returns the day that is n days later, or earlier if n is negative.
func (d Day) Add(n int) Day { return DayOf(d.Start().AddDate(0, 0, n)) }

// Compare returns -1 if d is before e, 1 if it is after e, and 0 if they are the same day.
func (d Day) Compare(e Day) int {
	return cmp.Or(cmp.Compare(d.Year, e.Year), cmp.Compare(d.Month, e.Month), cmp.Compare(d.Day, e.Day))
}

// Before reports whether d is before e.
func (d Day) Before(e Day) bool { return d.Compare(e) < 0 }

// After reports whether d is after e.
func (d Day) After(e Day) bool { return d.Compare(e) > 0 }

// String returns the day as ParseDay reads it, and "" for the zero Day.
func (d Day) String() string {
	if d.IsZero() {
		return ""
	}
	return fmt.Sprintf("%04d-%02d-%02d", d.Year, int(d.Month), d.Day)
}

// MarshalText returns what String returns.
func (d Day) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText returns.
func (d *Day) UnmarshalText(text []byte) (err error) {
	*d = Day{}
	if len(text) > 0 {
		*d, err = ParseDay(string(text))
	}
	return err
}
