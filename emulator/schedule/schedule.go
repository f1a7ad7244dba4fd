// Package schedule decides in which order the requests to an [emulator.Server] take effect, so that a test
// can try all orders, one after the other.
package schedule

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/planvault/azblob/emulator"
)

// Schedule is an [emulator.Gate] that holds every request of its transports until the test grants it. It does
// not watch goroutines: a test waits with [testing/synctest.Wait] until all clients are blocked, asks which
// requests are held, and grants one of them:
//
//	s := schedule.New(first, second)
//	go func() { ... }() // the clients
//	for synctest.Wait(); len(s.Held()) > 0; synctest.Wait() {
//		s.Held()[0].Grant()
//	}
//
// The same grants lead to the same run if the clients are deterministic. A Schedule is safe for concurrent
// use.
type Schedule struct {
	mu      sync.Mutex
	held    []*Turn
	current *Turn // granted, and has not taken effect yet

	granting sync.Mutex // serializes Grant, so that Leave belongs to current
}

// New returns a schedule for the requests that the transports send from now on.
func New(transports ...*emulator.Transport) *Schedule {
	s := &Schedule{}
	for _, t := range transports {
		t.SetGate(s)
	}
	return s
}

// Turn is a request that a [Schedule] holds.
type Turn struct {
	// Request is the request, without its number, time and outcome.
	Request emulator.Request

	schedule *Schedule
	granted  chan struct{}
	left     chan emulator.Request
}

// Held returns the requests that are held, sorted by client, then by [emulator.Request.String], then by
// arrival. The order does not depend on which goroutine ran first.
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

// Grant lets the request take effect, with the faults that are injected for it, and returns it with its
// outcome before the client learns the outcome. Grant returns false if the request is no longer held: it was
// granted before, or its context ended.
func (t *Turn) Grant() (emulator.Request, bool) {
	s := t.schedule
	s.granting.Lock()
	defer s.granting.Unlock()
	if !s.begin(t) {
		return emulator.Request{}, false
	}
	close(t.granted)
	return <-t.left, true
}

// begin makes t the current request. It reports whether t was held.
func (s *Schedule) begin(t *Turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.removeLocked(t) {
		return false
	}
	s.current = t
	return true
}

// removeLocked removes t from the held requests. It reports whether t was held.
func (s *Schedule) removeLocked(t *Turn) bool {
	i := slices.Index(s.held, t)
	if i >= 0 {
		s.held = slices.Delete(s.held, i, i+1)
	}
	return i >= 0
}

// Enter implements [emulator.Gate].
func (s *Schedule) Enter(ctx context.Context, r emulator.Request) error {
	t := &Turn{Request: r, schedule: s, granted: make(chan struct{}), left: make(chan emulator.Request, 1)}
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
	if s.removeLocked(t) {
		return ctx.Err()
	}
	return nil // Grant was called at the same time and waits for Leave.
}

// Leave implements [emulator.Gate].
func (s *Schedule) Leave(r emulator.Request) {
	s.mu.Lock()
	t := s.current
	s.current = nil
	s.mu.Unlock()
	t.left <- r
}
