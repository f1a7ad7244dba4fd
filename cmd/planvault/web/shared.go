package web

import (
	"context"
	"maps"
	"sync"
	"time"
)

// shared makes calls on behalf of many viewers. Viewers who want the same thing at the same time wait for one
// call, and its answer is used until it is no longer fresh. A call ends early when nobody has waited for it for a
// while.
type shared[K comparable, V any] struct {
	call  func(ctx context.Context, key K) (V, error)
	fresh time.Duration // how long an answer is used
	limit time.Duration // how long a call may take
	keep  int           // the largest number of answers

	mu      sync.Mutex
	answers map[K]*answer[V]
}

// linger is how long a call goes on when nobody waits for it any more: a page that has waited long enough is followed by
// its events.
const linger = 5 * time.Second

// answer is a call and what came of it. Fields below done are set before done is closed.
type answer[V any] struct {
	waiting int
	idle    *time.Timer // ends the call for which nobody waits; nil while somebody does
	cancel  context.CancelFunc
	done    chan struct{}

	value   V
	err     error
	expires time.Time
}

func newShared[K comparable, V any](fresh, limit time.Duration, keep int, call func(context.Context, K) (V, error)) *shared[K, V] {
	return &shared[K, V]{call: call, fresh: fresh, limit: limit, keep: keep, answers: map[K]*answer[V]{}}
}

// get returns the answer for a key and when it expires. Errors are answers, too, so that a store in trouble is
// asked no more often than a healthy one. When ctx ends, get returns its cause.
func (s *shared[K, V]) get(ctx context.Context, key K) (value V, expires time.Time, err error) {
	a, leave := s.join(ctx, key)
	defer leave()
	select {
	case <-a.done:
		return a.value, a.expires, a.err
	case <-ctx.Done():
		return value, time.Time{}, context.Cause(ctx)
	}
}

// join returns the fresh answer for a key, or the call under way, or begins one. The caller calls leave when it no
// longer waits for it.
func (s *shared[K, V]) join(ctx context.Context, key K) (a *answer[V], leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	a = s.answers[key]
	if a == nil {
		s.makeRoom()
		a = s.begin(ctx, key)
	}
	if a.waiting++; a.idle != nil {
		a.idle.Stop()
		a.idle = nil
	}
	return a, func() { s.leave(key, a) }
}

// begin begins a call.
func (s *shared[K, V]) begin(ctx context.Context, key K) *answer[V] {
	a := &answer[V]{done: make(chan struct{})}
	s.answers[key] = a
	ctx, a.cancel = context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	go func() {
		defer a.cancel()
		defer close(a.done)
		a.value, a.err = s.call(ctx, key)
		a.expires = time.Now().Add(s.fresh)
	}()
	return a
}

// end ends all calls.
func (s *shared[K, V]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.answers {
		a.cancel()
	}
}

// leave notes that somebody no longer waits.
func (s *shared[K, V]) leave(key K, a *answer[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.waiting--; a.waiting == 0 && !a.ended() {
		a.idle = time.AfterFunc(linger, func() { s.abandon(key, a) })
	}
}

// abandon ends a call if still nobody waits for it. What comes of it, the error of a call that was cut short, is not
// kept.
func (s *shared[K, V]) abandon(key K, a *answer[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.waiting == 0 && !a.ended() {
		a.cancel()
		delete(s.answers, key)
	}
}

func (a *answer[V]) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// expire forgets the answers that are no longer fresh.
func (s *shared[K, V]) expire() {
	now := time.Now()
	maps.DeleteFunc(s.answers, func(_ K, a *answer[V]) bool { return a.ended() && !now.Before(a.expires) })
}

// makeRoom forgets some answer if there are too many. Calls under way stay.
func (s *shared[K, V]) makeRoom() {
	for key, a := range s.answers {
		if len(s.answers) < s.keep {
			return
		}
		if a.ended() {
			delete(s.answers, key)
		}
	}
}
