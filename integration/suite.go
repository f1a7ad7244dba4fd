package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/conformance"
	"github.com/planvault/azblob/internal/trial"
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
		failed, skipped []*playedCase
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
			case t.Skipped() != "":
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
		return fmt.Errorf("%s failed, such as %s: %s", count(len(failed), "case"), failed[0].Name(), failed[0].Failure())
	}
	return nil
}

// playCase runs one case with stores on the target, each under a prefix of its own. The containers of a store are deleted
// when its case ends, because leftovers slow services down.
func (s *stage) playCase(ctx context.Context, c storagetest.Case) *playedCase {
	p := &playedCase{}
	counting := azblob.Options{Observer: azblob.Observer{Request: func(context.Context, azblob.RequestEvent) { p.requests.Add(1) }}}
	started := time.Now()
	p.Trial = trial.Run(ctx, suiteName(c), func(t storagetest.T) {
		c.Run(t, storagetest.Harness{New: func(t storagetest.T) storagetest.Store {
			prefix := s.newPrefix()
			always := context.WithoutCancel(t.Context()) // clean up after an interrupt, too
			t.Cleanup(func() {
				if _, err := s.drop(always, prefix); err != nil {
					t.Errorf("%v", err)
				}
			})
			return conformance.Endpoint{
				Dial: func(ctx context.Context, opts ...azblob.Options) (*azblob.Vault, error) {
					return s.dial(ctx, prefix, append(opts, counting)...)
				},
				Transport: func(storagetest.T) policy.Transporter { return s.connect() },
			}.Store()
		}})
	})
	p.took = time.Since(started)
	return p
}

// playedCase is a case that was played.
type playedCase struct {
	*trial.Trial
	requests atomic.Int64
	took     time.Duration
}

// String returns the outcome, with the log of a case that failed, or why a case was skipped.
func (p *playedCase) String() string {
	result, lines := "ok", []string(nil)
	switch {
	case p.Failed():
		result, lines = "failed", append(p.Log(), p.Failures()...)
	case p.Skipped() != "":
		result, lines = "skipped", []string{p.Skipped()}
	}
	text := fmt.Sprintf("%-7s %10s %15s  %s", result, p.took.Round(time.Millisecond), count(int(p.requests.Load()), "request"), p.Name())
	for _, l := range lines {
		text += "\n      " + strings.ReplaceAll(strings.TrimSpace(l), "\n", "\n      ")
	}
	return text
}
