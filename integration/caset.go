package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/planvault/azblob/storage/storagetest"
)

// caseT implements storagetest.T for a case that no test runs.
type caseT struct {
	name string
	ctx  context.Context

	mu       sync.Mutex
	cleanups []func()
	log      []string
	failures []string
	skipped  bool
	reason   string // of the skip
}

var _ storagetest.T = (*caseT)(nil)

// runCase runs a case and then its cleanups, the last one first.
func runCase(ctx context.Context, name string, run func(t storagetest.T)) *caseT {
	ctx, end := context.WithCancel(ctx)
	t := &caseT{name: name, ctx: ctx}
	t.protect(func() { run(t) })
	end()
	for f := t.lastCleanup(); f != nil; f = t.lastCleanup() {
		t.protect(f)
	}
	return t
}

// protect runs a function on a new goroutine, which Fatalf and Skipf end. A panic becomes a failure.
func (t *caseT) protect(f func()) {
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

func (t *caseT) lastCleanup() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.cleanups) - 1
	if n < 0 {
		return nil
	}
	last := t.cleanups[n]
	t.cleanups = t.cleanups[:n]
	return last
}

func (t *caseT) Helper() {}

func (t *caseT) Name() string { return t.name }

func (t *caseT) Context() context.Context { return t.ctx }

func (t *caseT) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *caseT) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

func (t *caseT) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *caseT) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *caseT) Skipf(format string, args ...any) {
	t.mu.Lock()
	t.skipped, t.reason = true, fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *caseT) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}
