// Package trial runs cases whose failures do not fail the test.
package trial

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/planvault/azblob/storage/storagetest"
)

// Trial is a [storagetest.T] that keeps how a case ended.
type Trial struct {
	storagetest.T
	ctx context.Context

	mu       sync.Mutex
	cleanups []func()
	failure  string
	skipped  string
}

// ended is the panic value of Fatalf and Skipf. Unlike runtime.Goexit, a panic lets the goroutine of the caller
// continue.
type ended struct{}

// Run runs a function with a T of its own, and then its cleanups.
func Run(t storagetest.T, run func(t storagetest.T)) *Trial {
	ctx, cancel := context.WithCancel(t.Context())
	r := &Trial{T: t, ctx: ctx}
	protect := func(f func()) {
		defer func() {
			if v := recover(); v != nil && v != any(ended{}) {
				panic(v)
			}
		}()
		f()
	}
	protect(func() { run(r) })
	cancel()
	for _, f := range slices.Backward(r.cleanups) {
		protect(f)
	}
	return r
}

// Failure returns the first failure, or "". Later ones are often its consequences.
func (r *Trial) Failure() string { return r.failure }

// Skipped returns why the case was skipped, or "".
func (r *Trial) Skipped() string { return r.skipped }

// Context ends before the cleanups.
func (r *Trial) Context() context.Context { return r.ctx }

// Cleanup calls f when the case has ended.
func (r *Trial) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// Failed reports whether the case has failed.
func (r *Trial) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure != ""
}

// Errorf makes the case fail.
func (r *Trial) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

// Fatalf makes the case fail and ends it.
func (r *Trial) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(ended{})
}

// Skipf ends the case.
func (r *Trial) Skipf(format string, args ...any) {
	r.mu.Lock()
	r.skipped = fmt.Sprintf(format, args...)
	r.mu.Unlock()
	panic(ended{})
}
