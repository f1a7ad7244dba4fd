// Package trial runs cases of package storagetest whose failures do not fail a test, or that no test runs.
package trial

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/planvault/azblob/storage/storagetest"
)

// Trial is a [storagetest.T] that keeps how a case ended.
type Trial struct {
	name string
	ctx  context.Context

	mu       sync.Mutex
	cleanups []func()
	log      []string
	failures []string
	skipped  string
}

var _ storagetest.T = (*Trial)(nil)

// Run runs a function with a T of its own, and then its cleanups, the last one first.
func Run(ctx context.Context, name string, run func(t storagetest.T)) *Trial {
	ctx, cancel := context.WithCancel(ctx)
	t := &Trial{name: name, ctx: ctx}
	t.protect(func() { run(t) })
	cancel()
	for len(t.cleanups) > 0 { // a cleanup may add one
		last := t.cleanups[len(t.cleanups)-1]
		t.cleanups = t.cleanups[:len(t.cleanups)-1]
		t.protect(last)
	}
	return t
}

// protect runs a function on a new goroutine, which Fatalf and Skipf end. A panic becomes a failure.
func (t *Trial) protect(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

// Failure returns the first failure, or "". Later ones are often its consequences.
func (t *Trial) Failure() string {
	if len(t.failures) == 0 {
		return ""
	}
	return t.failures[0]
}

// Failures returns all failures.
func (t *Trial) Failures() []string { return t.failures }

// Log returns what the case has logged.
func (t *Trial) Log() []string { return t.log }

// Skipped returns why the case was skipped, or "".
func (t *Trial) Skipped() string { return t.skipped }

// Helper does nothing.
func (t *Trial) Helper() {}

// Name returns the name of the case.
func (t *Trial) Name() string { return t.name }

// Context ends before the cleanups.
func (t *Trial) Context() context.Context { return t.ctx }

// Cleanup calls f when the case has ended.
func (t *Trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Failed reports whether the case has failed.
func (t *Trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

// Logf adds to the log.
func (t *Trial) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

// Errorf makes the case fail.
func (t *Trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// Fatalf makes the case fail and ends it.
func (t *Trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf ends the case.
func (t *Trial) Skipf(format string, args ...any) {
	t.mu.Lock()
	t.skipped = fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}
