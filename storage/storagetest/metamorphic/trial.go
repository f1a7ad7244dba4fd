package metamorphic

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/planvault/azblob/storage/storagetest"
)

// trial is a T for one attempt. Its failures do not fail the test, so another attempt may follow.
type trial struct {
	storagetest.T
	ctx context.Context

	mu               sync.Mutex
	cleanups         []func()
	failure, skipped string
}

// endTrial is the panic value of Fatalf and Skipf. Unlike runtime.Goexit, a panic lets the goroutine of the
// caller continue.
type endTrial struct{}

// runTrial runs a function with a T of its own, and then its cleanups.
func runTrial(t storagetest.T, run func(p *trial)) *trial {
	ctx, cancel := context.WithCancel(t.Context())
	p := &trial{T: t, ctx: ctx}
	protect := func(f func()) {
		defer func() {
			if r := recover(); r != nil {
				if _, stop := r.(endTrial); !stop {
					panic(r)
				}
			}
		}()
		f()
	}
	protect(func() { run(p) })
	cancel()
	for _, f := range slices.Backward(p.cleanups) {
		protect(f)
	}
	return p
}

func (p *trial) Context() context.Context { return p.ctx }

func (p *trial) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

func (p *trial) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure != ""
}

func (p *trial) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == "" { // later failures are often consequences of the first
		p.failure = fmt.Sprintf(format, args...)
	}
}

func (p *trial) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	panic(endTrial{})
}

func (p *trial) Skipf(format string, args ...any) {
	p.mu.Lock()
	p.skipped = fmt.Sprintf(format, args...)
	p.mu.Unlock()
	panic(endTrial{})
}
