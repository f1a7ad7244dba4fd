package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// Nodes, queues and engines that are alone don't know each other's plans. A plan that a younger one has overtaken is noted in the
// record of the key, and younger plans leave it the room that it waits for (T10).

const (
	// looksNoted is for how many looks a plan is noted: nodes that are not the first by hash make every third one.
	looksNoted = 4
	// longestNoted bounds that, from the end of a pause.
	longestNoted = 10 * time.Minute
)

// waiters returns the plans that are noted in a record now. If a pause was lifted, notes that were to outlast it don't count.
func waiters(k storage.KeyRecord) []storage.Waiter {
	return slices.DeleteFunc(slices.Clone(k.Waiting), func(w storage.Waiter) bool {
		return !w.Until.After(k.Now) || w.Until.After(later(k.Now, k.PausedUntil).Add(longestNoted))
	})
}

// ahead returns the plans that are noted in a record and come before a plan.
func (t turn) ahead(k storage.KeyRecord) []storage.Waiter {
	return slices.DeleteFunc(waiters(k), func(w storage.Waiter) bool { return driver.NewestFirst(w.Plan, t.plan) <= 0 })
}

func (t turn) isNotedBy(w storage.Waiter) bool { return w.Plan == t.plan }

// noteUntil returns until when a plan is to be noted that has found no room in a record. It is zero if no younger plan has overtaken
// it, if so many are noted before it that it can't be the next, or if it is noted for long enough.
func (t turn) noteUntil(k storage.KeyRecord, every time.Duration) time.Time {
	from := later(k.Now, k.PausedUntil)
	passed := slices.ContainsFunc(k.Holders, func(h storage.Holder) bool { return driver.NewestFirst(h.Plan, t.plan) < 0 })
	lasts := func(w storage.Waiter) bool { return t.isNotedBy(w) && w.Until.After(from.Add(every*3/2)) }
	switch {
	case t.unique, !passed && !slices.ContainsFunc(k.Waiting, t.isNotedBy):
	case len(t.ahead(k)) >= min(t.most(k), storage.MaxWaiting), slices.ContainsFunc(waiters(k), lasts):
	default:
		return from.Add(min(looksNoted*every, longestNoted))
	}
	return time.Time{}
}

// note notes a plan that has found no room in a record, unless it lacks another turn as well: it would hold up others for nothing.
// rest are the turns that it has not looked at. As it may have ended on another node, that the plan still waits is found after the
// record was read. If somebody else changes the record, the next look notes the plan.
func (s store) note(ctx context.Context, t turn, k storage.KeyRecord, rest []turn, every time.Duration) error {
	until := t.noteUntil(k, every)
	if until.IsZero() {
		return nil
	}
	for _, other := range rest {
		if _, err := s.lookAtTurn(ctx, other); errors.Is(err, ErrNoTurn) {
			return nil
		} else if err != nil {
			return err
		}
	}
	switch p, err := s.find(ctx, t.plan); {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	case p.State.Status.Final() || mayHaveTurn(p):
		return nil
	}
	k.Waiting = append(slices.DeleteFunc(waiters(k), t.isNotedBy), storage.Waiter{Plan: t.plan, Limit: t.limit, Until: until})
	slices.SortFunc(k.Waiting, func(a, b storage.Waiter) int { return driver.NewestFirst(b.Plan, a.Plan) })
	k.Waiting = k.Waiting[:min(len(k.Waiting), storage.MaxWaiting)]
	if err := s.putKey(ctx, k); !overtaken(err) {
		return err
	}
	return nil
}
