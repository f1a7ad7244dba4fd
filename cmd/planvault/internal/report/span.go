package report

import (
	"encoding/json"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
)

// Span is a time from a start to an end. Either may be unknown, which is the zero time.
type Span struct {
	Start, End time.Time
	// Open says that the end is only the present.
	Open bool
}

// IsZero reports whether an end is unknown.
func (s Span) IsZero() bool { return s.Start.IsZero() || s.End.IsZero() }

// Took returns how long the span is, or "" if an end is unknown. A clock that was set back makes it negative.
func (s Span) Took() string {
	if s.IsZero() {
		return ""
	}
	return human.Duration(s.End.Sub(s.Start))
}

// String returns how long the span is, and whether it goes on.
func (s Span) String() string {
	if s.Open {
		return s.Took() + " so far"
	}
	return s.Took()
}

// MarshalJSON writes how many seconds the span is long.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(s.End.Sub(s.Start).Seconds()) }
