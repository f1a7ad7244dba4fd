package web

import (
	"context"
	"maps"
	"sync"
	"time"
)

// shared makes calls on behalf of many viewers. Viewers who want the same thing at the same time wait for one
// call, and its answer is used until it is no longer fresh.
type shared[K comparable, V any] struct {
	call  func(ctx context.Context, key K) (V, error)
	fresh func(V) time.Duration // how long an answer is used
	limit time.Duration         // how long a call may take, whoever waits for it
	keep  int                   // the largest number of answers

	mu      sync.Mutex
	answers map[K]*answer[V]
}

// answer is a call and what came of it. Fields below done are set before done is closed.
type answer[V any] struct {
	cancel context.CancelFunc
	done   chan struct{}

	value   V
	err     error
	expires time.Time
}

func newShared[K comparable, V any](fresh func(V) time.Duration, limit time.Duration, keep int, call func(context.Context, K) (V, error)) *shared[K, V] {
	return &shared[K, V]{call: call, fresh: fresh, limit: limit, keep: keep, answers: map[K]*answer[V]{}}
}

// always returns the freshness of answers that are all used for the same time.
func always[V any](d time.Duration) func(V) time.Duration { return func(V) time.Duration { return d } }

// get returns the answer for a key and when it expires. Errors are answers, too, so that a store in trouble is
// asked no more often than a healthy one. When ctx ends, get returns its cause.
func (s *shared[K, V]) get(ctx context.Context, key K) (value V, expires time.Time, err error) {
	a := s.ask(ctx, key)
	select {
	case <-a.done:
		return a.value, a.expires, a.err
	case <-ctx.Done():
		return value, time.Time{}, context.Cause(ctx)
	}
}

// ask returns the fresh answer for a key, or the call under way, or begins one, which the end of ctx does not end.
func (s *shared[K, V]) ask(ctx context.Context, key K) *answer[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if a := s.answers[key]; a != nil && !a.stale(now) {
		return a
	}
	maps.DeleteFunc(s.answers, func(_ K, a *answer[V]) bool {
		return a.stale(now) || a.ended() && len(s.answers) >= s.keep // calls under way stay
	})
	a := &answer[V]{done: make(chan struct{})}
	s.answers[key] = a
	ctx, a.cancel = context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	go func() {
		defer a.cancel()
		defer close(a.done)
		a.value, a.err = s.call(ctx, key)
		a.expires = time.Now().Add(s.fresh(a.value))
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

func (a *answer[V]) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// stale reports whether an answer is no longer fresh.
func (a *answer[V]) stale(now time.Time) bool { return a.ended() && !now.Before(a.expires) }
