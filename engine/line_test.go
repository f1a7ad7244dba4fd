package engine

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/workflow"
)

// TestLine has a plan join a line in which forty older ones wait.
func TestLine(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	no := func(name string, limit int) *fleet.NoTurnError {
		return &fleet.NoTurnError{Name: name, Limit: limit, Stored: now}
	}
	var plans []uuid.UUID
	for i := range 41 {
		plans = append(plans, workflow.NewV7At(now.Add(time.Duration(i)*time.Second)))
	}
	youngest := plans[40]
	for _, test := range []struct {
		name  string
		no    *fleet.NoTurnError
		lacks func(l *line) // what others have done since
		after time.Duration
		want  time.Duration
	}{
		{"all wait", no("a", 1), nil, 0, 60 * time.Second},
		{"ten at once", no("a", 10), nil, 0, 15 * time.Second},
		{"for another key", no("b", 1), nil, 0, 10 * time.Second},
		{"a Unique", &fleet.NoTurnError{Name: "a", Unique: true, Stored: now}, nil, 0, 10 * time.Second},
		{"half of them go", no("a", 1), func(l *line) {
			for _, p := range plans[:20] {
				l.leave(p)
			}
		}, 0, 35 * time.Second},
		{"all but four were to be looked at ten seconds ago", no("a", 1), nil, 64 * time.Second, 15 * time.Second},
		{"nothing has changed for long", &fleet.NoTurnError{Name: "a", Stored: now.Add(-16 * time.Minute)}, nil, 0, 2 * time.Minute},
		{"nothing has changed for a day", &fleet.NoTurnError{Name: "a", Stored: now.Add(-24 * time.Hour)}, nil, 0, 5 * time.Minute},
		{"paused for long", &fleet.NoTurnError{Name: "a", Stored: now, PausedUntil: now.Add(time.Hour)}, nil, 0, time.Hour},
		{"a pause ends", &fleet.NoTurnError{Name: "a", Stored: now.Add(-24 * time.Hour), PausedUntil: now.Add(time.Second)}, nil, 0, 10 * time.Second},
		{"unknown", &fleet.NoTurnError{Name: "a"}, nil, 0, 10 * time.Second},
	} {
		l := line{plans: map[uuid.UUID]waiter{}}
		for _, p := range plans {
			l.join(p, no("a", 1), now)
		}
		if test.lacks != nil {
			test.lacks(&l)
		}
		at := now.Add(test.after)
		if test.after > 0 {
			test.no.Stored = at
		}
		if got := l.join(youngest, test.no, at).Sub(at); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
