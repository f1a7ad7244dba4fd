package fleet

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
)

// settle repeats do until its outcome is known, or ctx ends. The store recognizes the repetition of a call that took effect
// without an answer.
func settle(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, storage.ErrUnknown) || !sleep.For(ctx, settlePause) {
			return err
		}
	}
}

// settlePause is the time until a call with an unknown outcome is repeated. The store has retried before.
const settlePause = time.Second

// overtaken reports whether a write was certainly refused because somebody else has changed or removed its target.
func overtaken(err error) bool {
	return (errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound)) && !errors.Is(err, storage.ErrUnknown)
}

// conflicted reports whether a write was certainly refused because there is another version.
func conflicted(err error) bool { return overtaken(err) && errors.Is(err, storage.ErrConflict) }

// maxAtOnce bounds the sub-objects of a plan that are stored at once. It is above the usual limit of a store,
// which has one of its own.
const maxAtOnce = 256

// atOnce calls do for all elements, many at a time.
func atOnce[T any](all []T, do func(T) error) error { return atMost(maxAtOnce, all, do) }

// atMost calls do for all elements, at most n at a time. After an error it begins no more, waits for those in
// progress, and returns the first error.
func atMost[T any](n int, all []T, do func(T) error) error {
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(n)
	for _, each := range all {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil // another call has failed
			}
			return do(each)
		})
	}
	return g.Wait()
}
