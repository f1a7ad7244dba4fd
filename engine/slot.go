package engine

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
)

// ErrFull is the reason for leaving a plan of a fleet that waited for a minute for one of the places of Options.Plans.
// Any node that has a place takes it.
var ErrFull = errors.New("other plans have all places")

// slot is one of the places of Options.Plans. A plan that has neither called a plugin nor written for a while only
// waits. It gives its place back until it goes on.
type slot struct {
	places   *semaphore.Weighted
	patience time.Duration        // how long to wait for a place
	doze     func(steps int)      // is told that the plan does nothing, after how many calls and writes
	rest     func() (wake func()) // says elsewhere that the plan rests

	// urgent ends when the plan must end soon, even without a place.
	urgent context.Context
	hurry  context.CancelFunc

	// own guards the fields below. It is no mutex, because whoever has it may wait for a place.
	own   *semaphore.Weighted
	busy  int // calls and writes
	steps int // those that have begun so far
	held  bool
	wake  func() // nil if the plan does not rest
	timer *time.Timer
}

// restAfter is how long a plan does nothing before it rests. Steps that follow each other keep the place.
const restAfter = time.Second

// newSlot returns a slot that holds a place, or waits for one when the first call or write begins.
func newSlot(places *semaphore.Weighted, held bool, patience time.Duration, doze func(steps int), rest func() (wake func())) *slot {
	s := &slot{places: places, held: held, patience: patience, doze: doze, rest: rest, own: semaphore.NewWeighted(1)}
	s.urgent, s.hurry = context.WithCancel(context.Background())
	s.timer = time.AfterFunc(restAfter, s.idle)
	return s
}

// begin says that a call or write begins. If the plan has no place, begin waits for one. The error is ErrFull, or the
// cause of the end of ctx.
func (s *slot) begin(ctx context.Context) error {
	if s.own.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.own.Release(1)
	if !s.held {
		if err := s.takePlace(ctx); err != nil {
			return err
		}
	}
	if s.wake != nil {
		s.wake()
		s.wake = nil
	}
	s.timer.Stop()
	s.busy++
	s.steps++
	return nil
}

// takePlace waits for a place. An urgent plan goes on without one.
func (s *slot) takePlace(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	defer context.AfterFunc(s.urgent, cancel)()
	s.held = s.places.Acquire(waiting, 1) == nil
	switch {
	case s.held:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.urgent.Err() != nil:
		return nil
	}
	return ErrFull
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
	if s.busy > 0 {
		return
	}
	s.doze(s.steps)
	if s.wake == nil {
		s.wake = s.rest()
		s.release()
	}
}

// again says that the work on the plan begins anew.
func (s *slot) again() {
	_ = s.own.Acquire(context.Background(), 1)
	defer s.own.Release(1)
	if s.busy == 0 {
		s.timer.Reset(restAfter)
	}
}

// taken returns how many calls and writes have begun.
func (s *slot) taken() int {
	_ = s.own.Acquire(context.Background(), 1)
	defer s.own.Release(1)
	return s.steps
}

// release gives the place back, if there is one.
func (s *slot) release() {
	if s.held {
		s.held = false
		s.places.Release(1)
	}
}

// close gives the place back for good, after the last call and write.
func (s *slot) close() {
	_ = s.own.Acquire(context.Background(), 1)
	defer s.own.Release(1)
	s.timer.Stop()
	s.busy++ // the timer may have fired
	s.hurry()
	if s.wake != nil {
		s.wake()
	}
	s.release()
}
