package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
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

// longestPrefix leaves room for the suffix of a case's prefix, such as "-s99999". A vault's prefix has up to
// 52 characters.
const longestPrefix = 52 - len("-s99999")

// playCases runs the chosen cases. It continues after a failure, and returns an error that names the first
// one.
func (s *stage) playCases(ctx context.Context, cases []storagetest.Case) error {
	if s.cfg.picks == nil {
		for _, c := range cases {
			if !s.cfg.playsCase(c) {
				s.leftOut = append(s.leftOut, suiteName(c))
			}
		}
	}
	cases = slices.DeleteFunc(slices.Clone(cases), func(c storagetest.Case) bool { return !s.cfg.playsCase(c) })
	if len(cases) == 0 {
		return nil
	}
	s.out.step("suite", "the promises of storage.Vault, each case on containers of its own")
	play := func(c storagetest.Case) {
		if ctx.Err() != nil {
			return // interrupted
		}
		o := s.playCase(ctx, c)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outcomes = append(s.outcomes, o)
		s.out.outcome(o)
	}
	var g errgroup.Group
	g.SetLimit(s.casesAtOnce)
	for _, c := range cases {
		g.Go(func() error { play(c); return nil })
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("suite: interrupted: %w", ctx.Err())
	}
	var failed []outcome
	for _, o := range s.outcomes {
		if o.Result == "failed" {
			failed = append(failed, o)
		}
	}
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s: %s", failed[0].Case, failed[0].Error)
	}
	return fmt.Errorf("%d cases, such as %s: %s", len(failed), failed[0].Case, failed[0].Error)
}

// playCase runs one case and returns its outcome.
func (s *stage) playCase(ctx context.Context, c storagetest.Case) outcome {
	var requests atomic.Int64
	started := time.Now()
	t := runCase(ctx, suiteName(c), func(t storagetest.T) { c.Run(t, s.harness(&requests)) })
	o := outcome{Case: t.name, Result: "ok", Requests: int(requests.Load()), Seconds: time.Since(started).Seconds()}
	switch {
	case t.Failed():
		o.Result, o.Error, o.Log = "failed", strings.Join(t.failures, "\n"), t.log
	case t.skipped:
		o.Result, o.Reason = "skipped", t.reason
	}
	return o
}

// harness opens stores on the target, each under a prefix of its own. The containers of a store are deleted
// when its case ends, because leftovers slow services down. With -keep, the containers of a case that fails
// stay.
func (s *stage) harness(requests *atomic.Int64) storagetest.Harness {
	counting := azblob.WithObserver(azblob.Observer{Request: func(context.Context, azblob.RequestEvent) { requests.Add(1) }})
	return storagetest.Harness{New: func(t storagetest.T) storagetest.Store {
		prefix := fmt.Sprintf("%s-s%d", s.cfg.prefix, s.stores.Add(1))
		ctx := context.WithoutCancel(t.Context()) // clean up after an interrupt, too
		t.Cleanup(func() {
			if err := s.leave(ctx, prefix, s.cfg.keep && t.Failed()); err != nil {
				t.Errorf("%v", err)
			}
		})
		return conformance.Endpoint{
			Dial: func(ctx context.Context, opts ...azblob.Option) (*azblob.Vault, error) {
				return s.dial(ctx, prefix, append(opts, counting)...)
			},
			Transport: func(storagetest.T) policy.Transporter { return s.connect() },
		}.Store()
	}}
}

// leave deletes the containers of a prefix, or records them as kept.
func (s *stage) leave(ctx context.Context, prefix string, keep bool) error {
	names, err := s.containers(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list containers: %w", redact(err))
	}
	if keep {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, name := range names {
			s.made[name] = true
		}
		return nil
	}
	_, err = s.drop(ctx, names)
	return err
}

// drop deletes containers. It returns the names of those that existed.
func (t *target) drop(ctx context.Context, names []string) (deleted []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var (
		mu   sync.Mutex
		errs []error
		g    errgroup.Group
	)
	g.SetLimit(atOnce)
	for _, name := range names {
		g.Go(func() error {
			_, err := t.service.DeleteContainer(ctx, name, nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				deleted = append(deleted, name)
			case !bloberror.HasCode(err, bloberror.ContainerNotFound):
				errs = append(errs, fmt.Errorf("container %s is left, delete it by hand: %w", name, redact(err)))
			}
			return nil
		})
	}
	_ = g.Wait()
	slices.Sort(deleted)
	return deleted, errors.Join(errs...)
}
