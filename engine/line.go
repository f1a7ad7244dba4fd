package engine

import (
	"cmp"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
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
func (l *line) join(plan *workflow.Plan, no *fleet.NoTurnError, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := 0
	for id, w := range l.plans {
		switch {
		case now.After(w.again.Add(turnPause)):
			delete(l.plans, id)
		case w.name == no.Name && w.unique == no.Unique && driver.NewestFirst(id, plan.ID) > 0:
			before++
		}
	}
	again := lookAgain(no, before/limitOf(plan, no), now)
	l.plans[plan.ID] = waiter{no.Name, no.Unique, again}
	return again
}

func (l *line) leave(plan uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.plans, plan)
}

// limitOf returns how many plans may have a turn at once, as a plan says.
func limitOf(plan *workflow.Plan, no *fleet.NoTurnError) int {
	for _, k := range plan.Keys {
		if k.Name == no.Name && !no.Unique {
			return cmp.Or(k.Limit, 1)
		}
	}
	return 1
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
