package emulator

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Schedule is a [Gate] that holds every request of its transports until it is
// given its turn, so that a test can try the orders in which requests may take
// effect, one after the other. It knows nothing of goroutines: a test waits until
// all clients are blocked, with [testing/synctest.Wait], asks what is held, and
// grants one:
//
//	schedule := emulator.NewSchedule(first, second)
//	go func() { ... }() // the clients
//	for synctest.Wait(); len(schedule.Held()) > 0; synctest.Wait() {
//		schedule.Held()[0].Grant()
//	}
//
// The same grants make the same run, if the clients do the same on the same
// answers. It is safe for concurrent use.
type Schedule struct {
	mu   sync.Mutex
	held []*Turn
	now  *Turn // has been granted and not yet taken effect

	granting sync.Mutex
}

// NewSchedule returns a schedule for the requests that these transports send from
// now on.
func NewSchedule(transports ...*Transport) *Schedule {
	s := &Schedule{}
	for _, t := range transports {
		t.SetGate(s)
	}
	return s
}

// Turn is a request that waits in a [Schedule].
type Turn struct {
	// Request is what is asked. It has no number, time and outcome yet.
	Request Request

	schedule *Schedule
	granted  chan struct{}
	left     chan Request
}

// Held returns the requests that wait: sorted by client, then by what they ask,
// then as they came, so that it does not depend on which goroutine ran first.
func (s *Schedule) Held() []*Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := slices.Clone(s.held)
	slices.SortStableFunc(held, func(a, b *Turn) int {
		return cmp.Or(
			cmp.Compare(a.Request.Client, b.Request.Client),
			cmp.Compare(a.Request.String(), b.Request.String()),
		)
	})
	return held
}

// Grant lets the request take effect, with the faults that are injected for it,
// and returns what became of it. Its client is about to learn of that. It is false
// when the request no longer waits: it was granted before, or its context ended.
func (t *Turn) Grant() (Request, bool) {
	s := t.schedule
	s.granting.Lock() // so that Leave can tell whose it is
	defer s.granting.Unlock()
	if !s.take(t) {
		return Request{}, false
	}
	close(t.granted)
	return <-t.left, true
}

// take ends a request's waiting to let it take effect, and tells whether it was
// waiting.
func (s *Schedule) take(t *Turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.drop(t) {
		return false
	}
	s.now = t
	return true
}

// drop takes a request from those that wait, with the lock held.
func (s *Schedule) drop(t *Turn) bool {
	i := slices.Index(s.held, t)
	if i >= 0 {
		s.held = slices.Delete(s.held, i, i+1)
	}
	return i >= 0
}

// Enter implements [Gate].
func (s *Schedule) Enter(ctx context.Context, r Request) error {
	t := &Turn{Request: r, schedule: s, granted: make(chan struct{}), left: make(chan Request, 1)}
	s.mu.Lock()
	s.held = append(s.held, t)
	s.mu.Unlock()
	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop(t) {
		return ctx.Err()
	}
	return nil // it was granted at the same time, and whoever granted it waits for Leave
}

// Leave implements [Gate].
func (s *Schedule) Leave(r Request) {
	s.mu.Lock()
	t := s.now
	s.now = nil
	s.mu.Unlock()
	t.left <- r
}
