package report

import "time"

// Span is a time from a start to an end. Either may be unknown, which is the zero time.
type Span struct {
	Start, End time.Time
	// Open says that the end is only the present.
	Open bool
}

// Took returns how long the span is. It returns false if an end is unknown. A clock that was set back makes it
// negative.
func (s Span) Took() (time.Duration, bool) {
	if s.Start.IsZero() || s.End.IsZero() {
		return 0, false
	}
	return s.End.Sub(s.Start), true
}
