package engine

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage/driver"
)

// line has the plans that wait for turns while something else places them, as far as this process has looked at them.
type line struct {
	mu    sync.Mutex
	plans map[uuid.UUID]waiter
}

// waiter is a plan that waits for the turn of a key or Unique. Somebody else may have it once it was to be looked at again.
type waiter struct {
	name   string
	unique bool
	again  time.Time
}

// join adds a plan to the line, and returns when to look at it again, at a time by the store's clock.
func (l *line) join(plan uuid.UUID, no *fleet.NoTurnError, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := 0
	for id, w := range l.plans {
		switch {
		case now.After(w.again.Add(turnPause)):
			delete(l.plans, id)
		case w.name == no.Name && w.unique == no.Unique && driver.NewestFirst(id, plan) > 0:
			before++
		}
	}
	again := lookAgain(no, before/max(no.Limit, 1), now)
	l.plans[plan] = waiter{no.Name, no.Unique, again}
	return again
}

func (l *line) leave(plan uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.plans, plan)
}

// lookAgain returns when to look again for a turn that others have for so many rounds. What has not changed for an hour is unlikely to
// change within seconds. The record changes often while a plan is noted there, which therefore comes in time.
func lookAgain(no *fleet.NoTurnError, rounds int, now time.Time) time.Time {
	again := now.Add(turnPause)
	switch {
	case no.PausedUntil.After(again):
		return no.PausedUntil
	case no.PausedUntil.IsZero() && !no.Stored.IsZero():
		return now.Add(min(max(now.Sub(no.Stored)/8, turnPause+turnPause*time.Duration(rounds)/8), sleepFrom))
	}
	return again
}
