package engine

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// slot is one of the places of Options.Plans. A plan that has neither called a plugin nor written for a while only
// waits. It gives its place back until it goes on.
type slot struct {
	places *semaphore.Weighted
	rest   func() (wake func()) // says elsewhere that the plan rests

	// own guards the fields below. It is no mutex, because whoever has it may wait for a place.
	own   *semaphore.Weighted
	busy  int // calls and writes
	wake  func()
	timer *time.Timer
}

// restAfter is how long a plan does nothing before it rests. Steps that follow each other keep the place.
const restAfter = time.Second

// newSlot returns a slot that holds a place.
func newSlot(places *semaphore.Weighted, rest func() (wake func())) *slot {
	s := &slot{places: places, rest: rest, own: semaphore.NewWeighted(1)}
	s.timer = time.AfterFunc(restAfter, s.idle)
	return s
}

// begin says that a call or write begins. If the plan rests, begin waits for a place. The error is the cause of the end
// of ctx.
func (s *slot) begin(ctx context.Context) error {
	if s.own.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.own.Release(1)
	if s.wake != nil {
		if s.places.Acquire(ctx, 1) != nil {
			return context.Cause(ctx)
		}
		s.wake()
		s.wake = nil
	}
	s.timer.Stop()
	s.busy++
	return nil
}

// end ends what begin began.
func (s *slot) end() {
	_ = s.own.Acquire(context.Background(), 1)
	defer s.own.Release(1)
	if s.busy--; s.busy == 0 {
		s.timer.Reset(restAfter)
	}
}

// idle lets the plan rest if it does nothing.
func (s *slot) idle() {
	_ = s.own.Acquire(context.Background(), 1)
	defer s.own.Release(1)
	if s.busy == 0 && s.wake == nil {
		s.wake = s.rest()
		s.places.Release(1)
	}
}

// close gives the place back for good, after the last call and write.
func (s *slot) close() {
	_ = s.own.Acquire(context.Background(), 1)
	defer s.own.Release(1)
	s.timer.Stop()
	s.busy++ // the timer may have fired
	if s.wake != nil {
		s.wake()
		return
	}
	s.places.Release(1)
}
