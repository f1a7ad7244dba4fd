package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/conformance"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"
)

// suiteCases returns the cases of the conformance suite and short metamorphic runs.
func suiteCases() []storagetest.Case { return append(storagetest.Cases(), metamorphic.Cases()...) }

// suiteName returns the name of a case of the conformance suite in this program.
func suiteName(c storagetest.Case) string { return "suite/" + c.Name }

const (
	// longestPrefix leaves room for the suffix of a case's prefix, such as "-s99999". A vault's prefix has up to
	// 52 characters.
	longestPrefix = 52 - len("-s99999")
	// casesAtOnce is how many cases run at the same time. Most of them wait for the network or for retries.
	casesAtOnce = 4
)

// playCases runs the chosen cases. It continues after a failure, and returns an error that names the first
// one.
func (s *stage) playCases(ctx context.Context, cases []storagetest.Case) error {
	all := len(cases)
	cases = slices.DeleteFunc(slices.Clone(cases), func(c storagetest.Case) bool { return !s.cfg.plays(suiteName(c), c.Long) })
	if len(cases) == 0 {
		return nil
	}
	s.printf("\n== suite: the promises of storage.Vault, each case on containers of its own\n")
	var (
		g               errgroup.Group
		failed, skipped []*caseT
		requests        atomic.Int64
		started         = time.Now()
	)
	g.SetLimit(casesAtOnce)
	for _, c := range cases {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err() // interrupted
			}
			t := s.playCase(ctx, c)
			s.mu.Lock()
			defer s.mu.Unlock()
			requests.Add(t.requests.Load())
			switch {
			case t.Failed():
				failed = append(failed, t)
			case t.skipped:
				skipped = append(skipped, t)
			}
			s.printf("   %s\n", t)
			return nil
		})
	}
	err := g.Wait()
	s.played = append(s.played, sum{"suite", int(requests.Load()), time.Since(started)})
	s.printf("%s, %d failed, %d skipped\n", count(len(cases), "case"), len(failed), len(skipped))
	if s.cfg.picks == nil && len(cases) < all {
		s.printf("Left out: %s of the suite; -all plays them too.\n", count(all-len(cases), "long case"))
	}
	switch {
	case err != nil:
		return fmt.Errorf("suite: %w", err)
	case len(failed) > 0:
		return fmt.Errorf("%s failed, such as %s: %s", count(len(failed), "case"), failed[0].name, failed[0].failures[0])
	}
	return nil
}

// playCase runs one case with stores on the target, each under a prefix of its own. The containers of a store are deleted
// when its case ends, because leftovers slow services down.
func (s *stage) playCase(ctx context.Context, c storagetest.Case) *caseT {
	t := &caseT{name: suiteName(c)}
	counting := azblob.WithObserver(azblob.Observer{Request: func(context.Context, azblob.RequestEvent) { t.requests.Add(1) }})
	started := time.Now()
	t.run(ctx, func() {
		c.Run(t, storagetest.Harness{New: func(t storagetest.T) storagetest.Store {
			prefix := s.newPrefix()
			always := context.WithoutCancel(t.Context()) // clean up after an interrupt, too
			t.Cleanup(func() {
				if _, err := s.drop(always, prefix); err != nil {
					t.Errorf("%v", err)
				}
			})
			return conformance.Endpoint{
				Dial: func(ctx context.Context, opts ...azblob.Option) (*azblob.Vault, error) {
					return s.dial(ctx, prefix, append(opts, counting)...)
				},
				Transport: func(storagetest.T) policy.Transporter { return s.connect() },
			}.Store()
		}})
	})
	t.took = time.Since(started)
	return t
}

// caseT implements storagetest.T for a case that no test runs.
type caseT struct {
	name     string
	ctx      context.Context
	requests atomic.Int64
	took     time.Duration

	mu            sync.Mutex
	cleanups      []func()
	log, failures []string
	skipped       bool
}

var _ storagetest.T = (*caseT)(nil)

// run runs a case and then its cleanups, the last one first.
func (t *caseT) run(ctx context.Context, do func()) {
	ctx, end := context.WithCancel(ctx)
	t.ctx = ctx
	t.protect(do)
	end()
	for len(t.cleanups) > 0 { // a cleanup may add one
		last := t.cleanups[len(t.cleanups)-1]
		t.cleanups = t.cleanups[:len(t.cleanups)-1]
		t.protect(last)
	}
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

// String returns the outcome, and the log of a case that failed or was skipped.
func (t *caseT) String() string {
	result, lines := "ok", []string(nil)
	switch {
	case t.Failed():
		result, lines = "failed", append(t.log, t.failures...)
	case t.skipped:
		result, lines = "skipped", t.log[len(t.log)-1:]
	}
	text := fmt.Sprintf("%-7s %10s %15s  %s", result, t.took.Round(time.Millisecond), count(int(t.requests.Load()), "request"), t.name)
	for _, l := range lines {
		text += "\n      " + strings.ReplaceAll(strings.TrimSpace(l), "\n", "\n      ")
	}
	return text
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
	t.Logf(format, args...)
	t.skipped = true
	runtime.Goexit()
}

func (t *caseT) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}
