package web

import (
	"context"
	"maps"
	"sync"
	"time"
)

// shared makes calls on behalf of many viewers. Viewers who want the same thing at the same time wait for one
// call, and its answer is used until it is no longer fresh. A call ends early when nobody waits for it.
type shared[K comparable, V any] struct {
	call  func(ctx context.Context, key K) (V, error)
	fresh time.Duration // how long an answer is used
	limit time.Duration // how long a call may take
	keep  int           // the largest number of answers

	mu      sync.Mutex
	answers map[K]*answer[V]
}

// answer is a call and what came of it. Fields below done are set before done is closed.
type answer[V any] struct {
	waiting int
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
	a := s.join(ctx, key)
	defer s.leave(key, a)
	select {
	case <-a.done:
		return a.value, a.expires, a.err
	case <-ctx.Done():
		return value, time.Time{}, context.Cause(ctx)
	}
}

// join returns the fresh answer for a key, or the call under way, or begins one.
func (s *shared[K, V]) join(ctx context.Context, key K) *answer[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	a := s.answers[key]
	if a == nil {
		s.makeRoom()
		a = &answer[V]{done: make(chan struct{})}
		ctx, a.cancel = context.WithTimeout(context.WithoutCancel(ctx), s.limit)
		s.answers[key] = a
		go func() {
			defer close(a.done)
			a.value, a.err = s.call(ctx, key)
			a.expires = time.Now().Add(s.fresh)
		}()
	}
	a.waiting++
	return a
}

// leave ends a call for which nobody waits any more. Its answer, the error of a call that was cut short, is not
// kept.
func (s *shared[K, V]) leave(key K, a *answer[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.waiting--
	if a.waiting > 0 {
		return
	}
	a.cancel()
	if !a.ended() && s.answers[key] == a {
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
